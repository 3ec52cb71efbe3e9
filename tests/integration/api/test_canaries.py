"""A secret in the wrong place of any request goes no further: not into answers, logs, events or rows."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from differently_api.examples import EXAMPLES, PATH_EXAMPLES
from differently_api.route import Access, AnyRoute, NoBody
from differently_api.routes import ROUTES
from differently_core.model.record import Table
from differently_core.runtime.telemetry import JsonFormatter
from tests.support.api import Reply, Tenant, World

CANARY = "canary-8f1d0c7e55b24a"
QUERIES = {"path": "a"}
TOKEN_SHAPED = "dk_01JBM2YPQ8A2C4E6G1J3K5M7NP_" + CANARY + "x" * 30


SHOWN = frozenset({"projectId", "adapter"})
"""What they name may stand in the answer: that there is no such one."""
ERROR_BYTES_MAX = 4_096


class Plane:
    """One control plane for all routes; what it logs is kept."""

    def __init__(self) -> None:
        self.log = io.StringIO()
        self.world = World()
        self.world.pool()
        self.tenant: Tenant = self.world.tenant()
        sandbox = self.world.running(self.tenant)
        self.names = {
            **PATH_EXAMPLES, "id": sandbox, "org": self.tenant.org, "project": self.tenant.project, "name": "main",
        }  # fmt: skip

    def ask(self, route: AnyRoute, body: Any, query: str = "", **headers: str) -> Reply:
        token = self.world.operator if route.access is Access.OPERATOR else self.tenant.token
        needed = "".join(f"&{name}={value}" for name, value in QUERIES.items() if name in route.query.model_fields)
        target = f"{route.path.format(**self.names)}?{(needed + query).removeprefix('&')}"
        reply = self.world.call(route.method, target, body, token=token, headers=headers)
        assert reply.status != 500, reply.raw
        return reply


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    made = Plane()
    handler = logging.StreamHandler(made.log)
    handler.setFormatter(JsonFormatter("test"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield made
    root.removeHandler(handler)
    root.setLevel(level)


def spoilt(example: dict[str, Any]) -> Iterator[Any]:
    """Bodies with the canary where no secret belongs, each of which is refused."""
    yield {**example, "noSuchField": CANARY}
    yield json.dumps(example)[:-1] + f', "x": "{CANARY}'
    yield f'{{"x": "{CANARY}", "x": "{CANARY}"}}'
    yield [CANARY]
    yield CANARY
    for name in example:
        yield {**example, name: {"no field": {"nor": [CANARY]}}}
        yield {**example, name: [[CANARY]]}
        if name not in SHOWN:
            yield {**example, name: f"\x00{CANARY}"}


def clean(reply: Reply) -> None:
    assert CANARY.encode() not in reply.raw, reply.raw
    assert CANARY not in json.dumps(dict(reply.headers))


CHANGES = [route for route in ROUTES if route.body not in (bytes, NoBody)]
LONG = "z" * 200_000
KEYED = [route for route in ROUTES if "Idempotency-Key" in route.request_headers]


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.name)
def test_a_body_that_is_refused_is_not_repeated(plane: Plane, route: AnyRoute) -> None:
    """A caller learns the name of a field, as far as it can stand in a message, and never what was in it."""
    for body in spoilt(dict(EXAMPLES[route.body])):
        reply = plane.ask(route, body)
        assert reply.status in (400, 404, 422), (body, reply.raw)
        clean(reply)


@pytest.mark.parametrize("route", CHANGES, ids=lambda route: route.name)
def test_an_error_is_short_however_long_what_was_sent_is(plane: Plane, route: AnyRoute) -> None:
    """Else every mistake costs its bytes twice, and a log line may hold all of them."""
    example = dict(EXAMPLES[route.body])
    for body in (
        {**example, LONG: 1},
        *({**example, name: value} for name in example for value in (LONG, {LONG: LONG}, [LONG])),
    ):
        reply = plane.ask(route, body)
        assert reply.status < 300 or len(reply.raw) < ERROR_BYTES_MAX, (body.keys(), len(reply.raw), reply.raw[:200])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/sandboxes", {"projectId": LONG}),
        ("POST", "/v1/placement/explain", {"projectId": LONG}),
        ("POST", "/v1/api-keys", {"name": "x", "scope": "tenant", "projectId": LONG}),
        ("GET", f"/v1/sandboxes?projectId={LONG[:5000]}", None),
        ("GET", f"/v1/snapshots?projectId={LONG[:5000]}", None),
        ("GET", f"/v1/secrets?projectId={LONG[:5000]}", None),
        ("GET", f"/v1/api-keys?org={LONG[:5000]}", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_id_that_no_table_could_hold_is_one_that_there_is_not(
    world: World, method: str, path: str, body: Any
) -> None:
    """An operator's projectId of any length became a key of a row, and came back twice in the error."""
    reply = world.call(method, path, body, token=world.operator)
    assert (reply.status, reply.code) == (404, "not_found")
    assert len(reply.raw) < ERROR_BYTES_MAX


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_what_comes_beside_a_request_is_not_repeated(plane: Plane, route: AnyRoute) -> None:
    """A key in a header or in the query string, where people put it when they are in a hurry."""
    if route.access is Access.PUBLIC:
        return
    headers = {"X-Api-Key": CANARY, "Cookie": f"token={CANARY}", "X-Request-Id": CANARY, "Traceparent": CANARY}
    clean(plane.ask(route, {"noSuchField": 1}, f"&api_key={CANARY}&limit={CANARY}&cursor={CANARY}", **headers))
    path = route.path.format(**plane.names)
    for authorization in (f"Bearer {CANARY}", f"Basic {CANARY}", CANARY, f"Bearer {TOKEN_SHAPED}"):
        reply = plane.world.call(route.method, path, headers={"Authorization": authorization})
        assert reply.status == 401
        clean(reply)


@pytest.mark.parametrize("route", KEYED, ids=lambda route: route.name)
def test_a_key_of_idempotency_is_kept_by_its_hash_alone(plane: Plane, route: AnyRoute) -> None:
    for key in (CANARY, f"{CANARY} with a space", f"{CANARY}é", CANARY * 50):
        clean(plane.ask(route, {}, **{"Idempotency-Key": key}))


def test_nothing_of_it_was_logged_or_kept(plane: Plane) -> None:
    """After all the others; by itself it asks one of each."""
    for route in CHANGES[:5]:
        plane.ask(route, {"noSuchField": CANARY})
    plane.world.settle()
    written = plane.log.getvalue()
    assert '"message":"request"' in written
    assert CANARY not in written
    rows = plane.world.store.rows()  # type: ignore[attr-defined]
    assert sum(slot[0] is Table.LOG for slot in rows) >= 3
    assert not [record for record in rows.values() if CANARY in str(record.model_dump())]
