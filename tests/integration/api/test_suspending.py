"""Suspended organizations and projects: nothing new starts, what runs goes on."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter
from differently_core.contract import Operation, Unsupported
from differently_core.model.closing import Closing
from differently_core.model.record import Table
from differently_core.operations import closing
from tests.support.api import Reply, Tenant, World


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def create(world: World, tenant: Tenant, key: str | None = None, **body: Any) -> Reply:
    headers = {"Idempotency-Key": key} if key is not None else None
    return world.call("POST", "/v1/sandboxes", body, token=tenant.token, headers=headers)


def path_of(tenant: Tenant, scope: str) -> str:
    return f"/v1/orgs/{tenant.org}" if scope == "org" else f"/v1/projects/{tenant.project}"


@pytest.mark.parametrize("scope", ["org", "project"])
def test_nothing_new_starts_and_the_caller_is_told_why(world: World, acme: Tenant, scope: str) -> None:
    done = op(world, "POST", f"{path_of(acme, scope)}/suspend", {"reason": "unpaid since October"})
    assert (done.status, done.json()["state"]) == (200, "suspended")
    assert done.json()["stateReason"]["detail"] == "unpaid since October"
    assert op(world, "GET", path_of(acme, scope)).json() == done.json()
    refused = create(world, acme)
    assert (refused.status, refused.code) == (403, "suspended")
    error = refused.json()["error"]
    assert "unpaid since October" in error["message"]
    assert error["details"] == {"scope": scope, "state": "suspended"}


def test_what_runs_can_be_used_read_changed_and_deleted(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    op(world, "POST", f"/v1/orgs/{acme.org}/suspend", {})
    base = f"/v1/sandboxes/{sandbox}"
    assert world.call("POST", f"{base}/exec", {"command": "true"}, token=acme.token).status == 200
    assert world.call("GET", base, token=acme.token).status == 200
    assert world.call("GET", "/v1/sandboxes", token=acme.token).json()["items"][0]["id"] == sandbox
    assert world.call("DELETE", base, token=acme.token).status == 202
    world.settle()
    assert world.call("GET", base, token=acme.token).json()["status"] == "terminated"
    assert op(world, "GET", f"/v1/orgs/{acme.org}/quota").json()["used"]["concurrent"] == 0


def test_a_process_that_has_not_heard_of_it_admits_nothing(world: World, acme: Tenant) -> None:
    """Its view of organizations is up to five seconds old; the counter is closed in the suspending write itself."""
    catalog = world.core.catalog
    create(world, acme)
    stale = {**catalog._cache}
    op(world, "POST", f"/v1/projects/{acme.project}/suspend", {"reason": "why not"})
    catalog._cache.update(stale)
    refused = create(world, acme)
    assert (refused.status, refused.code) == (403, "suspended")
    assert "why not" in refused.json()["error"]["message"]


def test_what_waits_waits_on_and_runs_when_the_suspension_is_over(world: World, acme: Tenant) -> None:
    op(world, "PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 1})
    first = world.running(acme)
    waiting = create(world, acme).json()["id"]
    world.settle()
    op(world, "POST", f"/v1/orgs/{acme.org}/suspend", {})
    world.call("DELETE", f"/v1/sandboxes/{first}", token=acme.token)
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{waiting}", token=acme.token).json()["status"] == "queued"
    done = op(world, "POST", f"/v1/orgs/{acme.org}/unsuspend")
    assert (done.status, done.json()["state"]) == (200, "active")
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{waiting}", token=acme.token).json()["status"] == "running"
    assert op(world, "GET", f"/v1/orgs/{acme.org}/quota").json()["waiting"] == 0


def test_a_repeat_of_an_accepted_create_still_finds_its_sandbox(world: World, acme: Tenant) -> None:
    made = create(world, acme, key="build-7").json()
    op(world, "POST", f"/v1/orgs/{acme.org}/suspend", {})
    again = create(world, acme, key="build-7")
    assert (again.status, again.json()["id"]) == (200, made["id"])
    assert create(world, acme, key="build-8").status == 403


def test_suspending_again_replaces_the_reason_and_says_nothing_twice(world: World, acme: Tenant) -> None:
    for reason in ("one", "one", "two"):
        op(world, "POST", f"/v1/orgs/{acme.org}/suspend", {"reason": reason})
    op(world, "POST", f"/v1/orgs/{acme.org}/unsuspend")
    op(world, "POST", f"/v1/orgs/{acme.org}/unsuspend")
    rows = [row for row in world.store.query(Table.LOG, f"EVT#{acme.org}").rows if "org." in row.action]  # type: ignore[attr-defined]
    assert sorted((row.action, row.details.get("reason")) for row in rows if row.action != "org.create") == [  # type: ignore[attr-defined]
        ("org.active", None), ("org.suspended", "one"), ("org.suspended", "two"),
    ]  # fmt: skip


def test_one_project_does_not_stop_its_neighbour(world: World, acme: Tenant) -> None:
    neighbour = world.tenant("neighbour", org=acme.org)
    op(world, "POST", f"/v1/projects/{acme.project}/suspend", {})
    assert create(world, acme).status == 403
    assert create(world, neighbour).status == 202
    op(world, "POST", f"/v1/orgs/{acme.org}/suspend", {})
    assert create(world, neighbour).status == 403
    listed = op(world, "GET", "/v1/orgs").json()["items"]
    assert [org["state"] for org in listed if org["id"] == acme.org] == ["suspended"]


def test_a_tenant_reads_its_own_project_and_no_other(world: World, acme: Tenant) -> None:
    other = world.tenant("other")
    assert world.call("GET", f"/v1/projects/{acme.project}", token=acme.token).json()["state"] == "active"
    assert world.call("GET", f"/v1/projects/{acme.project}", token=other.token).status == 404
    assert op(world, "POST", "/v1/projects/proj_x/suspend", {}).status == 404
    assert op(world, "POST", "/v1/orgs/org_01JBM2Y0G4S8N6P2Q7T3V5X9ZB/suspend", {}).status == 404


def test_what_runs_is_stopped_if_that_is_asked_for_and_can_be_started_afterwards(world: World, acme: Tenant) -> None:
    first, second = world.running(acme), world.running(acme)
    world.call("POST", f"/v1/sandboxes/{second}/pause", token=acme.token)
    world.settle()
    op(world, "POST", f"/v1/orgs/{acme.org}/suspend", {"stopRunning": True})
    world.settle()
    base = f"/v1/sandboxes/{first}"
    assert world.call("GET", base, token=acme.token).json()["status"] == "stopped"
    assert world.call("GET", f"/v1/sandboxes/{second}", token=acme.token).json()["status"] == "paused"
    assert world.call("POST", f"{base}/start", token=acme.token).code == "suspended"
    op(world, "POST", f"/v1/orgs/{acme.org}/unsuspend")
    world.pass_time(61)
    assert world.call("POST", f"{base}/start", token=acme.token).status == 202
    world.settle()
    world.pass_time(61)
    assert world.call("GET", base, token=acme.token).json()["status"] == "running"


@pytest.mark.parametrize("how", ["start", "keepalive"])
def test_a_suspended_tenant_calls_no_stop_off(world: World, acme: Tenant, how: str) -> None:
    """A tenant that asked for its sandboxes again and again kept them running through `stopRunning`."""
    world.backend("main").move_seconds = 100.0
    sandbox = world.running(acme, {"idleTimeoutSeconds": 10} if how == "keepalive" else {})
    base = f"/v1/sandboxes/{sandbox}"
    if how == "keepalive":
        world.pass_time(41)  # it is falling asleep when the suspension comes
    op(world, "POST", f"/v1/orgs/{acme.org}/suspend", {"stopRunning": True})
    world.settle()
    assert world.call("GET", base, token=acme.token).json()["status"] in ("stopping", "pausing")
    refused = world.call("POST", f"{base}/{how}", token=acme.token)
    assert (refused.status, refused.code) == (403, "suspended")
    for _ in range(2):
        world.pass_time(61)
    assert world.call("GET", base, token=acme.token).json()["status"] in ("stopped", "paused")


def test_what_was_being_started_is_stopped_a_minute_later(world: World, acme: Tenant) -> None:
    late = create(world, acme).json()["id"]
    messages = list(world.mail.messages)
    world.mail.messages.clear()
    op(world, "POST", f"/v1/projects/{acme.project}/suspend", {"stopRunning": True})
    world.settle()
    world.mail.messages.extend(messages)
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{late}", token=acme.token).json()["status"] == "running"
    world.pass_time(61)
    assert world.call("GET", f"/v1/sandboxes/{late}", token=acme.token).json()["status"] == "stopped"


def test_many_are_stopped_step_by_step(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    acme = memory.tenant("acme")
    neighbour = memory.tenant("neighbour", org=acme.org)
    monkeypatch.setattr(closing, "STEP_MAX", 2)
    sandboxes = [(tenant, memory.running(tenant)) for tenant in (acme, neighbour) for _ in range(5)]
    op(memory, "POST", f"/v1/orgs/{acme.org}/suspend", {"stopRunning": True})
    memory.settle()
    for tenant, sandbox in sandboxes:
        assert memory.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()["status"] == "stopped"


def test_a_pool_that_cannot_stop_lets_it_run_on(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    acme = memory.tenant("acme")
    sandbox = memory.running(acme)
    declared = {**FakeAdapter.operations, Operation.STOP: Unsupported("not_here")}
    monkeypatch.setattr(FakeAdapter, "operations", declared)
    op(memory, "POST", f"/v1/orgs/{acme.org}/suspend", {"stopRunning": True})
    memory.settle()
    memory.pass_time(61)
    assert memory.call("GET", f"/v1/sandboxes/{sandbox}", token=acme.token).json()["status"] == "running"
    row = memory.store.get(Closing, Closing.key_of(acme.org))
    assert row is not None
    assert row.due_at is None
