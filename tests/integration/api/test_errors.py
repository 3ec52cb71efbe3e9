"""The envelope of errors, and every code of the table met through the API."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter, LoseAnswer, Refuse
from differently_api.failures import failure
from differently_core import errors
from differently_core.contract import Operation, Unsupported
from differently_core.errors import REACTIONS, DifferentlyError, RateLimited
from differently_core.store.ports import StoreThrottled, StoreUnavailable
from tests.support.api import Reply, World


class Met:
    """One way to meet each code; what is not here is shown as another code."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.patch = monkeypatch
        self.tenant = world.tenant()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return self.world.call(method, path, body, token=self.tenant.token, headers=headers)

    def create(self, body: Any = None, **headers: str) -> Reply:
        return self.call("POST", "/v1/sandboxes", body or {}, **headers)

    def exec(self) -> Reply:
        return self.call("POST", f"/v1/sandboxes/{self.world.running(self.tenant)}/exec", {"command": "x"})

    def invalid_request(self) -> Reply:
        return self.create({"nothing": 1})

    def payload_too_large(self) -> Reply:
        return self.create("x" * (4 * 1024 * 1024 + 1))

    def method_not_allowed(self) -> Reply:
        return self.call("PUT", "/v1/sandboxes")

    def unauthenticated(self) -> Reply:
        return self.world.call("GET", "/v1/sandboxes")

    def forbidden(self) -> Reply:
        return self.call("GET", "/v1/orgs")

    def not_found(self) -> Reply:
        return self.call("GET", "/v1/sandboxes/x")

    def invalid_state(self) -> Reply:
        made = self.create().json()["id"]
        return self.call("POST", f"/v1/sandboxes/{made}/exec", {"command": "x"})

    def idempotency_conflict(self) -> Reply:
        self.create({}, **{"Idempotency-Key": "k"})
        return self.create({"priority": 1}, **{"Idempotency-Key": "k"})

    def unsupported_capability(self) -> Reply:
        return self.create({"capabilities": ["gpu"]})

    def no_eligible_pool(self) -> Reply:
        return self.create({"placement": {"allowedPools": ["nowhere"]}})

    def limit_exceeded(self) -> Reply:
        return self.create({"resources": {"cpu": 1000}})

    def quota_exceeded(self) -> Reply:
        path = f"/v1/projects/{self.tenant.project}/quota"
        self.world.call("PUT", path, {"maxConcurrent": 1}, token=self.world.operator)
        self.create()
        return self.create({"queueTimeoutSeconds": 0})

    def queue_full(self) -> Reply:
        path = f"/v1/orgs/{self.tenant.org}/quota"
        self.world.call("PUT", path, {"maxConcurrent": 1, "maxQueued": 1}, token=self.world.operator)
        for _ in range(2):
            self.create()
            self.world.settle()
        return self.create()

    def suspended(self) -> Reply:
        path = f"/v1/orgs/{self.tenant.org}/suspend"
        assert self.world.call("POST", path, {}, token=self.world.operator).status == 200
        return self.create()

    def budget_exceeded(self) -> Reply:
        prices = {"costModel": {"cpuHour": 1.0}}
        assert self.world.call("PATCH", "/v1/admin/pools/main", prices, token=self.world.operator).status == 200
        path, body = f"/v1/orgs/{self.tenant.org}/budget", {"limit": 0, "action": "stop"}
        assert self.world.call("PUT", path, body, token=self.world.operator).status == 200
        return self.create()

    def unsupported_operation(self) -> Reply:
        declared = {**FakeAdapter.operations, Operation.FILE_LIST: Unsupported("no_files")}
        self.patch.setattr(FakeAdapter, "operations", declared)
        return self.call("GET", f"/v1/sandboxes/{self.world.running(self.tenant)}/files")

    def provider_unavailable(self) -> Reply:
        sandbox = self.world.running(self.tenant)
        self.world.backend("main").expect(Operation.EXEC, Refuse())
        return self.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"})

    def exec_unconfirmed(self) -> Reply:
        sandbox = self.world.running(self.tenant)
        self.world.backend("main").expect(Operation.EXEC, LoseAnswer())
        return self.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"})

    def internal(self) -> Reply:
        sandbox = self.world.running(self.tenant)

        def broken(*_: Any) -> None:
            raise KeyError("secret text of a bug")

        self.patch.setattr(FakeAdapter, "exec", broken)
        return self.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"})


OF_THE_GATEWAY = {RateLimited.code}
"""Never answered by our own code; `tests/infrastructure/test_api_definition.py` looks at those."""
PUBLIC = sorted({reaction.public for reaction in REACTIONS.values()} - OF_THE_GATEWAY)


@pytest.mark.parametrize("code", PUBLIC)
def test_every_public_code_is_met_with_its_status(memory: World, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    reply: Reply = getattr(Met(memory, monkeypatch), code)()
    assert (reply.status, reply.code) == (REACTIONS[code].http_status, code)
    error = reply.json()["error"]
    assert set(error) == {"code", "message", "details", "requestId"}
    assert error["requestId"] == reply.headers["X-Request-Id"]
    assert error["message"].strip().endswith((".", ")")), error["message"]
    assert ("Retry-After" in reply.headers) == (reply.status in (429, 503))
    assert b"secret text" not in reply.raw


def _tree(kind: type[DifferentlyError]) -> list[type[DifferentlyError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _tree(child))]


@pytest.mark.parametrize("kind", _tree(DifferentlyError), ids=lambda kind: kind.__name__)
def test_every_error_of_the_tree_is_answered_by_the_table(kind: type[DifferentlyError]) -> None:
    answer = failure(kind("what happened"), "request-1")
    assert answer.status == REACTIONS[kind.code].http_status
    assert f'"code": "{REACTIONS[kind.code].public}"' in str(answer.body)


def test_no_code_of_the_table_is_without_an_error() -> None:
    assert {kind.code for kind in _tree(DifferentlyError)} == set(REACTIONS)


@pytest.mark.parametrize("kind", [StoreThrottled, StoreUnavailable])
def test_a_store_that_fails_is_503(
    memory: World, monkeypatch: pytest.MonkeyPatch, kind: type[DifferentlyError]
) -> None:
    tenant = memory.tenant()
    event = memory.event("POST", "/v1/sandboxes", {})
    event["requestContext"]["authorizer"] = memory.app.authorizer(
        {"methodArn": "a:b/c/d", "headers": {"Authorization": f"Bearer {tenant.token}"}}
    )["context"]
    memory.core.catalog.forget()

    def down(*_: Any, **__: Any) -> None:
        raise kind("The store did not answer.")

    for method in ("get", "query", "transact"):
        monkeypatch.setattr(memory.store, method, down)
    reply = memory.app.control(event)
    assert reply["statusCode"] == 503
    assert reply["headers"]["Retry-After"] == "5"


def test_an_unreadable_policy_is_503_and_never_no_policy(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    memory.pool("outside", trust="external")
    memory.core.catalog.forget()
    query = memory.store.query

    def policies_are_down(table: Any, pk: str, **options: Any) -> Any:
        if pk == "POLICIES":
            raise StoreUnavailable("The store did not answer.")
        return query(table, pk, **options)

    monkeypatch.setattr(memory.store, "query", policies_are_down)
    assert memory.call("POST", "/v1/sandboxes", {}, token=tenant.token).status == 503
    assert memory.call("GET", "/v1/capabilities", token=tenant.token).status == 503


def test_a_bug_of_ours_tells_nothing_and_is_logged_by_request(
    memory: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("secret text of a bug")

    tenant = memory.tenant()
    monkeypatch.setattr("differently_core.operations.sandboxes.list_sandboxes", broken)
    reply = memory.call("GET", "/v1/sandboxes", token=tenant.token)
    assert (reply.status, reply.code) == (500, "internal")
    assert b"secret" not in reply.raw
    assert b"ZeroDivision" not in reply.raw
    record = next(record for record in caplog.records if record.message == "unhandled")
    assert (record.levelno, record.__dict__["requestId"]) == (logging.ERROR, reply.headers["X-Request-Id"])


def test_answers_carry_a_request_id_even_when_the_event_has_none(memory: World) -> None:
    event = memory.event("GET", "/healthz")
    event["requestContext"] = {}
    reply = memory.app.control(event)
    assert reply["headers"]["X-Request-Id"].startswith("req_")
    assert memory.app.refused(event)["headers"]["X-Request-Id"].startswith("req_")


def test_an_empty_event_is_answered_too(memory: World) -> None:
    for entry in (memory.app.control, memory.app.admin, memory.app.data):
        assert entry({})["statusCode"] == 404


def test_the_tree_is_what_its_drawing_says() -> None:
    names = {line.split("── ")[1].split()[0] for line in str(errors.__doc__).splitlines() if "── " in line}
    tree = {kind.__name__ for kind in _tree(DifferentlyError) if kind.__module__ == errors.__name__}
    assert names == tree - {"DifferentlyError"}
