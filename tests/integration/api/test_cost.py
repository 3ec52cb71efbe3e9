"""How often a call goes to the store, on both stores: a warm process asks only what it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from differently_core.model.policy import CommandLog, PolicyRules
from differently_core.operations import policies
from differently_core.runtime.ids import OrgId, ProjectId
from differently_core.store.ledger import Cost
from tests.support.api import BOOT, Reply, Tenant, World


def cost_of(world: World, call: Callable[[], Reply], *, authorizer: bool = False) -> Cost:
    """What one call costs once the gateway and the catalog are warm."""
    world.core.catalog.pools()
    world.core.catalog.rules(OrgId("any"), ProjectId("any"))
    with world.store.ledger.measure() as cost:  # type: ignore[attr-defined]
        reply = call()
        assert reply.raw is not None  # a streamed answer ends when it was read
        assert reply.status < 500, reply.raw
    assert isinstance(cost, Cost)
    if not authorizer:
        assert cost.calls[:1] == ["GetItem"]  # the authorizer's read of the key, which the gateway remembers
        cost.calls, cost.trips = cost.calls[1:], cost.trips - 1
    return cost


@pytest.fixture
def warm(world: World, acme: Tenant) -> Callable[..., Reply]:
    """Calls of a tenant in a process that has served it before."""
    world.running(acme)

    def call(method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return world.call(method, path, body, token=acme.token, headers=headers)

    return call


def test_a_quiet_create_is_one_trip_with_or_without_a_key(world: World, warm: Callable[..., Reply]) -> None:
    assert cost_of(world, lambda: warm("POST", "/v1/sandboxes", {})).calls == ["TransactWriteItems"]
    body = {"labels": {"a": "b"}, "env": {"A": "b"}}
    keyed = cost_of(world, lambda: warm("POST", "/v1/sandboxes", body, **{"Idempotency-Key": "k"}))
    assert keyed.calls == ["TransactWriteItems"]
    replayed = cost_of(world, lambda: warm("POST", "/v1/sandboxes", body, **{"Idempotency-Key": "k"}))
    assert replayed.calls == ["TransactWriteItems"]


def test_a_busy_create_is_two_trips(world: World, warm: Callable[..., Reply]) -> None:
    world.pool("tiny", max_concurrency=1)
    body = {"placement": {"allowedPools": ["tiny"]}}
    warm("POST", "/v1/sandboxes", body)
    busy = cost_of(world, lambda: warm("POST", "/v1/sandboxes", body))
    assert busy.calls == ["TransactWriteItems", "TransactWriteItems"]


def test_a_bounded_backlog_is_no_further_trip(world: World, acme: Tenant, warm: Callable[..., Reply]) -> None:
    world.call("PUT", f"/v1/projects/{acme.project}/quota", {"maxQueued": 1}, token=world.operator)
    world.pool("tiny", max_concurrency=1)
    body = {"placement": {"allowedPools": ["tiny"]}}
    warm("POST", "/v1/sandboxes", body)
    warm("GET", "/v1/sandboxes")
    busy = cost_of(world, lambda: warm("POST", "/v1/sandboxes", body))
    assert busy.calls == ["TransactWriteItems", "TransactWriteItems"]
    refused = warm("POST", "/v1/sandboxes", body)
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "queue_full", "10")
    assert refused.json()["error"]["details"] == {"scope": "project", "waiting": 1, "limit": 1}


def test_reading_listing_changing_and_deleting(world: World, warm: Callable[..., Reply]) -> None:
    sandbox = warm("GET", "/v1/sandboxes").json()["items"][0]["id"]
    path = f"/v1/sandboxes/{sandbox}"
    assert cost_of(world, lambda: warm("GET", path)).calls == ["GetItem"]
    assert cost_of(world, lambda: warm("GET", "/v1/sandboxes")).trips == 1
    assert cost_of(world, lambda: warm("GET", "/v1/sandboxes?ended=true")).trips <= 2
    assert cost_of(world, lambda: warm("PATCH", path, {"ttlSeconds": 60})).calls == ["GetItem", "TransactWriteItems"]
    assert cost_of(world, lambda: warm("GET", f"{path}/wait")).calls == ["GetItem"]
    assert cost_of(world, lambda: warm("DELETE", path)).calls == ["TransactWriteItems"]
    assert cost_of(world, lambda: warm("DELETE", path)).calls == ["TransactWriteItems"]


def test_a_command_that_is_logged_costs_a_write_before_and_one_after(world: World, warm: Callable[..., Reply]) -> None:
    base = f"/v1/sandboxes/{warm('GET', '/v1/sandboxes').json()['items'][0]['id']}"
    for path in ("exec", "exec?stream=true"):
        cost = cost_of(world, lambda p=path: warm("POST", f"{base}/{p}", {"command": "x"}))  # type: ignore[misc]
        assert cost.calls == ["GetItem", "PutItem", "PutItem"]
    for method, path, body in (
        ("POST", "jobs", {"id": "j", "command": "x"}),
        ("PUT", "files/content?path=a", b"x"),
        ("GET", "files/content?path=a", None),
        ("DELETE", "files/content?path=a", None),
    ):
        cost = cost_of(world, lambda m=method, p=path, b=body: warm(m, f"{base}/{p}", b))  # type: ignore[misc]
        assert cost.calls == ["GetItem", "PutItem"], path
    assert cost_of(world, lambda: warm("GET", f"{base}/files?path=.")).calls == ["GetItem"]


def test_use_of_a_sandbox_is_one_read_and_now_and_then_a_trace(world: World, warm: Callable[..., Reply]) -> None:
    policies.replace(world.core, BOOT, "global", PolicyRules(command_log=CommandLog.NONE))
    sandbox = warm("GET", "/v1/sandboxes").json()["items"][0]["id"]
    base = f"/v1/sandboxes/{sandbox}"
    for method, path, body in (
        ("POST", f"{base}/exec", {"command": "x"}),
        ("POST", f"{base}/exec?stream=true", {"command": "x"}),
        ("POST", f"{base}/jobs", {"id": "j", "command": "x"}),
        ("GET", f"{base}/jobs/j", None),
        ("GET", f"{base}/jobs/j/output", None),
        ("DELETE", f"{base}/jobs/j", None),
        ("PUT", f"{base}/files/content?path=a", b"x"),
        ("GET", f"{base}/files/content?path=a", None),
        ("GET", f"{base}/files?path=.", None),
        ("GET", f"{base}/files/stat?path=a", None),
        ("DELETE", f"{base}/files/content?path=a", None),
    ):
        assert cost_of(world, lambda m=method, p=path, b=body: warm(m, p, b)).calls == ["GetItem"], path  # type: ignore[misc]
    world.clock.advance(30)
    # Half a minute later the use is noted, once.
    calls = cost_of(world, lambda: warm("POST", f"{base}/exec", {"command": "x"})).calls
    assert calls == ["GetItem", "UpdateItem"]
    assert cost_of(world, lambda: warm("POST", f"{base}/exec", {"command": "x"})).calls == ["GetItem"]


def test_a_move_is_a_read_and_a_write(world: World, warm: Callable[..., Reply]) -> None:
    path = f"/v1/sandboxes/{warm('GET', '/v1/sandboxes').json()['items'][0]['id']}"
    for move in ("stop", "start", "pause", "resume"):
        assert cost_of(world, lambda m=move: warm("POST", f"{path}/{m}")).calls == ["GetItem", "TransactWriteItems"]  # type: ignore[misc]
        assert cost_of(world, lambda m=move: warm("POST", f"{path}/{m}")).calls == ["GetItem"]  # type: ignore[misc]
        world.settle()


def test_a_tenants_capabilities_cost_nothing_while_warm(world: World, warm: Callable[..., Reply]) -> None:
    assert cost_of(world, lambda: warm("GET", "/v1/capabilities")).trips == 0


def test_what_a_wrong_key_costs(world: World) -> None:
    with world.store.ledger.measure() as cost:  # type: ignore[attr-defined]
        assert world.call("GET", "/v1/sandboxes", token="nonsense").status == 401
    assert cost.trips == 0
    unknown = "dk_01JBM2YPQ8A2C4E6G1J3K5M7NP_" + "x" * 43
    with world.store.ledger.measure() as cost:  # type: ignore[attr-defined]
        assert world.call("GET", "/v1/sandboxes", token=unknown).status == 401
    assert cost.calls == ["GetItem"]
