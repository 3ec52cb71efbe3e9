"""Stop, start, pause and resume, seen from outside."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter, LoseAnswer, Refuse
from differently_core.contract import Operation, Unsupported
from differently_core.errors import SandboxFailed
from tests.support.api import Reply, Tenant, World

WAYS = {
    "stop": ("running", "stopping", "stopped"),
    "start": ("stopped", "starting", "running"),
    "pause": ("running", "pausing", "paused"),
    "resume": ("paused", "resuming", "running"),
}
BACK = {"start": "stop", "resume": "pause"}


def post(world: World, tenant: Tenant, sandbox: str, what: str) -> Reply:
    return world.call("POST", f"/v1/sandboxes/{sandbox}/{what}", token=tenant.token)


def get(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def before(world: World, tenant: Tenant, what: str) -> str:
    """A sandbox where the move begins."""
    sandbox = world.running(tenant)
    if what in BACK:
        assert post(world, tenant, sandbox, BACK[what]).status == 202
        world.settle()
    assert get(world, tenant, sandbox)["status"] == WAYS[what][0]
    return sandbox


@pytest.mark.parametrize("what", WAYS)
def test_a_move_is_accepted_then_done_and_a_repeat_is_as_it_is(world: World, acme: Tenant, what: str) -> None:
    sandbox = before(world, acme, what)

    asked = post(world, acme, sandbox, what)
    assert (asked.status, asked.json()["status"]) == (202, WAYS[what][1])
    assert asked.json()["move"] == {"kind": what, "askedAt": "2026-01-01T00:00:00Z", "deadline": "2026-01-01T00:15:00Z"}
    assert post(world, acme, sandbox, what).status == 202
    world.settle()

    found = get(world, acme, sandbox)
    assert found["status"] == WAYS[what][2]
    assert "move" not in found
    again = post(world, acme, sandbox, what)
    assert (again.status, again.json()["status"]) == (200, WAYS[what][2])


def test_a_stop_keeps_the_files_and_a_start_goes_on_from_them(world: World, acme: Tenant) -> None:
    """features.md 1, lifecycle; features.md 2 #3: start works more than once."""
    sandbox = world.running(acme)
    path = f"/v1/sandboxes/{sandbox}/files/content?path=kept"
    world.call("PUT", path, b"\x00\xffkept", token=acme.token)

    for what in ("stop", "start", "stop", "start"):
        post(world, acme, sandbox, what)
        world.settle()

    assert world.call("GET", path, token=acme.token).raw == b"\x00\xffkept"


@pytest.mark.parametrize("what", ["stop", "pause"])
def test_commands_jobs_and_files_are_refused_until_it_runs_again(world: World, acme: Tenant, what: str) -> None:
    """features.md 2 #61."""
    sandbox = world.running(acme)
    base = f"/v1/sandboxes/{sandbox}"
    post(world, acme, sandbox, what)
    for state in (WAYS[what][1], WAYS[what][2]):
        for method, path, body in (
            ("POST", "/exec", {"command": "x"}),
            ("POST", "/exec?stream=true", {"command": "x"}),
            ("POST", "/jobs", {"command": "x"}),
            ("GET", "/files?path=.", None),
            ("PUT", "/files/content?path=a", b"x"),
        ):
            refused = world.call(method, f"{base}{path}", body, token=acme.token)
            assert (refused.status, refused.code) == (409, "invalid_state"), path
            assert refused.json()["error"]["details"]["status"] == state
        world.settle()


@pytest.mark.parametrize("what", WAYS)
def test_a_refused_move_says_why_and_leaves_it_where_it_was(world: World, acme: Tenant, what: str) -> None:
    sandbox = before(world, acme, what)
    world.backend("main").expect(Operation(what), Refuse(SandboxFailed("The disk is full.", settled=True)))

    post(world, acme, sandbox, what)
    world.settle()

    found = get(world, acme, sandbox)
    assert found["status"] == WAYS[what][0]
    assert found["statusReason"] == {
        "code": "sandbox_failed", "source": "backend", "detail": "The disk is full.", "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize("what", WAYS)
def test_a_lost_answer_is_observed_and_the_backend_is_told_once(world: World, acme: Tenant, what: str) -> None:
    """features.md 2 #50: a change finishes although nobody waits for its answer."""
    sandbox = before(world, acme, what)
    backend = world.backend("main")
    told = backend.calls[Operation(what)]
    backend.expect(Operation(what), LoseAnswer())

    post(world, acme, sandbox, what)
    world.settle()
    world.pass_time(2)

    assert get(world, acme, sandbox)["status"] == WAYS[what][2]
    assert backend.calls[Operation(what)] == told + 1


def test_a_paused_sandbox_lets_the_next_one_in_and_waits_for_its_own_turn(world: World, acme: Tenant) -> None:
    """features.md 1: pause A at limit 1 -> queued B runs; resume A waits in the queue. users/reports.md S7."""
    world.call("PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 1}, token=world.operator)
    first = world.running(acme)
    second = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()["id"]
    world.settle()
    assert get(world, acme, second)["status"] == "queued"

    post(world, acme, first, "pause")
    world.settle()
    assert (get(world, acme, first)["status"], get(world, acme, second)["status"]) == ("paused", "running")

    resumed = post(world, acme, first, "resume")
    assert (resumed.status, resumed.json()["status"], resumed.json()["move"]["kind"]) == (202, "queued", "resume")
    world.settle()
    assert get(world, acme, first)["status"] == "queued"
    assert post(world, acme, first, "pause").json()["status"] == "paused", "it need not wait"
    post(world, acme, first, "resume")

    world.call("DELETE", f"/v1/sandboxes/{second}", token=acme.token)
    world.settle()
    assert get(world, acme, first)["status"] == "running"


@pytest.mark.parametrize("what", WAYS)
def test_a_pool_that_cannot_answers_501_by_name(memory: World, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """features.md 1: 501 with details operation, pool, adapter."""
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    declared = {**FakeAdapter.operations, Operation(what): Unsupported("not_here")}
    monkeypatch.setattr(FakeAdapter, "operations", declared)

    refused = post(memory, tenant, sandbox, what)

    assert (refused.status, refused.code) == (501, "unsupported_operation")
    details = refused.json()["error"]["details"]
    assert (details["operation"], details["pool"], details["adapter"]) == (what, "main", "fake")


@pytest.mark.parametrize("what", WAYS)
def test_another_tenant_does_not_find_it(world: World, acme: Tenant, what: str) -> None:
    sandbox = world.running(acme)
    assert post(world, world.tenant("stranger"), sandbox, what).status == 404


@pytest.mark.parametrize("what", WAYS)
def test_a_delete_wins_over_a_move(world: World, acme: Tenant, what: str) -> None:
    sandbox = before(world, acme, what)
    post(world, acme, sandbox, what)
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()

    assert get(world, acme, sandbox)["status"] == "terminated"
    assert world.backend("main").instances() == []
    assert post(world, acme, sandbox, what).status == 409


def test_waiting_for_a_state_of_rest(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    post(world, acme, sandbox, "pause")
    world.settle()
    reply = world.call("GET", f"/v1/sandboxes/{sandbox}/wait?for=paused&timeoutSeconds=5", token=acme.token)
    assert reply.json()["status"] == "paused"
    listed = world.call("GET", "/v1/sandboxes?status=paused", token=acme.token).json()["items"]
    assert [item["id"] for item in listed] == [sandbox]


def test_a_resume_calls_a_pause_off(world: World, acme: Tenant) -> None:
    """features.md 2 #61."""
    world.backend("main").move_seconds = 100.0
    sandbox = world.running(acme)
    assert post(world, acme, sandbox, "pause").status == 202
    world.settle()

    asked = post(world, acme, sandbox, "resume")
    assert (asked.status, asked.json()["status"]) == (202, "pausing")
    assert asked.json()["move"]["wantedBack"] is True
    world.settle()

    assert get(world, acme, sandbox)["status"] == "running"
    assert world.backend("main").calls[Operation.RESUME] == 0


def test_waiting_work_makes_an_idle_preemptible_one_rest(world: World, acme: Tenant) -> None:
    """features.md 1: preemption; a busy one never."""
    world.call("PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 1}, token=world.operator)
    first = world.running(acme, {"preemptible": True, "ttlSeconds": 86400})
    world.pass_time(30)
    second = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()["id"]
    world.settle()
    assert get(world, acme, second)["status"] == "queued"
    assert get(world, acme, first)["preemptible"] is True

    world.pass_time(60)
    assert get(world, acme, second)["status"] == "running"
    rested = get(world, acme, first)
    assert (rested["status"], rested["idled"], rested["statusReason"]["code"]) == ("paused", True, "preempted")
    assert rested["statusReason"]["source"] == "policy"
