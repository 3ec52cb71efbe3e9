"""Forks, seen from outside: one call, a second sandbox, and nothing left of what was between."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import LoseAnswer, Revert
from differently_core.contract import Operation
from tests.support.api import Reply, Tenant, World

BOTH = {"env": {"TOKEN": "x"}, "secrets": [{"env": "TOKEN", "secret": "token"}]}


def fork(world: World, tenant: Tenant, sandbox: str, body: Any = None, key: str | None = None) -> Reply:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return world.call("POST", f"/v1/sandboxes/{sandbox}/fork", body or {}, token=tenant.token, headers=headers)


def get(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def put(world: World, tenant: Tenant, sandbox: str, data: bytes) -> None:
    path = f"/v1/sandboxes/{sandbox}/files/content?path=a"
    assert world.call("PUT", path, data, token=tenant.token).status == 200


def read(world: World, tenant: Tenant, sandbox: str) -> bytes:
    return world.call("GET", f"/v1/sandboxes/{sandbox}/files/content?path=a", token=tenant.token).raw


def snapshots(world: World, tenant: Tenant) -> list[Any]:
    items = world.call("GET", "/v1/snapshots", token=tenant.token).json()["items"]
    assert isinstance(items, list)
    return items


def nothing_is_left(world: World, tenant: Tenant) -> None:
    assert snapshots(world, tenant) == []
    assert world.backend("main").snapshots() == []
    used = world.call("GET", f"/v1/orgs/{tenant.org}/quota", token=tenant.token).json()["used"]
    assert (used["snapshots"], used["snapshotBytes"]) == (0, 0)


def test_a_fork_starts_from_what_its_source_is_now(world: World, acme: Tenant) -> None:
    """features.md 1: fork, data survives."""
    source = world.running(acme, {"resources": {"cpu": 2, "diskGiB": 4}, "labels": {"a": "1"}})
    put(world, acme, source, b"first")
    reply = fork(world, acme, source, {"labels": {"b": "2"}, "ttlSeconds": 60})
    assert reply.status == 202
    made = reply.json()
    assert reply.headers["Location"] == f"/v1/sandboxes/{made['id']}"
    assert (made["status"], made["statusReason"]["code"]) == ("queued", "waiting_for_snapshot")
    assert (made["forkedFrom"], made["labels"]) == (source, {"b": "2"})
    world.settle()
    put(world, acme, source, b"second")
    found = get(world, acme, made["id"])
    assert (found["status"], found["resources"]) == ("running", {"cpu": 2.0, "memoryMiB": 512, "diskGiB": 4})
    assert (read(world, acme, made["id"]), read(world, acme, source)) == (b"first", b"second")
    nothing_is_left(world, acme)


def test_its_snapshot_is_shown_as_what_it_is_while_it_is_there(world: World, acme: Tenant) -> None:
    made = fork(world, acme, world.running(acme)).json()
    (shown,) = snapshots(world, acme)
    assert (shown["status"], shown["forkId"]) == ("creating", made["id"])


def test_everything_comes_right_although_every_message_is_lost(world: World, acme: Tenant) -> None:
    source = world.running(acme)
    put(world, acme, source, b"kept")
    made = fork(world, acme, source).json()
    for _ in range(8):
        world.mail.messages.clear()
        world.pass_time(30)
    assert (get(world, acme, made["id"])["status"], read(world, acme, made["id"])) == ("running", b"kept")
    nothing_is_left(world, acme)


def test_a_fork_waits_for_room_like_anything_else(world: World, acme: Tenant) -> None:
    """reliability.md I5, users/reports.md S7: a fork passes through the same admission as a create."""
    world.call("PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 1}, token=world.operator)
    source = world.running(acme)
    put(world, acme, source, b"kept")
    made = fork(world, acme, source).json()
    world.settle()
    world.pass_time(60)
    found = get(world, acme, made["id"])
    assert (found["status"], found["statusReason"]["code"]) == ("queued", "waiting")
    world.call("DELETE", f"/v1/sandboxes/{source}", token=acme.token)
    world.settle()
    assert (get(world, acme, made["id"])["status"], read(world, acme, made["id"])) == ("running", b"kept")
    nothing_is_left(world, acme)


def test_a_fork_that_loses_its_patience_leaves_nothing(world: World, acme: Tenant) -> None:
    world.call("PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 1}, token=world.operator)
    made = fork(world, acme, world.running(acme), {"queueTimeoutSeconds": 30}).json()
    world.settle()
    for _ in range(3):
        world.pass_time(30)
    assert get(world, acme, made["id"])["statusReason"]["code"] == "queue_timeout"
    nothing_is_left(world, acme)


def test_a_capture_that_fails_fails_the_fork_with_the_reason(world: World, acme: Tenant) -> None:
    world.backend("main").expect(Operation.SNAPSHOT, Revert())
    made = fork(world, acme, world.running(acme)).json()
    world.settle()
    found = get(world, acme, made["id"])
    assert (found["status"], found["statusReason"]["code"]) == ("failed", "snapshot_failed")
    assert "capture_failed" in found["statusReason"]["detail"]
    world.pass_time(30)
    nothing_is_left(world, acme)


def test_a_lost_answer_makes_one_fork(world: World, acme: Tenant) -> None:
    world.backend("main").expect(Operation.SNAPSHOT, LoseAnswer())
    made = fork(world, acme, world.running(acme)).json()
    for _ in range(3):
        world.settle()
        world.pass_time(30)
    assert get(world, acme, made["id"])["status"] == "running"
    assert len(world.backend("main").instances()) == 2
    nothing_is_left(world, acme)


@pytest.mark.parametrize("settled", [False, True], ids=["at once", "later"])
def test_a_fork_that_is_deleted_takes_its_snapshot_along(world: World, acme: Tenant, settled: bool) -> None:
    made = fork(world, acme, world.running(acme)).json()
    if settled:
        world.mail.messages.rotate(0)
        world.pass_time(0)
    world.call("DELETE", f"/v1/sandboxes/{made['id']}", token=acme.token)
    world.settle()
    for _ in range(3):
        world.pass_time(60)
    assert get(world, acme, made["id"])["status"] == "terminated"
    nothing_is_left(world, acme)


def test_a_repeat_with_the_same_key_answers_with_the_first(world: World, acme: Tenant) -> None:
    """users/reports.md S1: one idempotent operation, also when its source has ended meanwhile."""
    source = world.running(acme)
    first = fork(world, acme, source, {"ttlSeconds": 600}, "k")
    world.settle()
    again = fork(world, acme, source, {"ttlSeconds": 600}, "k")
    assert (first.status, again.status, again.headers["Idempotent-Replayed"]) == (202, 200, "true")
    assert again.json() == first.json()
    assert len(world.backend("main").instances()) == 2
    other = fork(world, acme, source, {"ttlSeconds": 601}, "k")
    assert (other.status, other.code) == (409, "idempotency_conflict")
    taken = world.call("POST", "/v1/sandboxes", {}, token=acme.token, headers={"Idempotency-Key": "k"})
    assert taken.code == "idempotency_conflict"
    world.call("DELETE", f"/v1/sandboxes/{source}", token=acme.token)
    world.settle()
    assert fork(world, acme, source, {"ttlSeconds": 600}, "k").json() == first.json()
    nothing_is_left(world, acme)


def test_a_fork_reaches_no_more_than_its_source(world: World, acme: Tenant) -> None:
    source = world.running(acme, {"egress": {"allow": ["example.com"]}})
    made = fork(world, acme, source).json()
    assert made["egress"]["allow"] == ["example.com"]
    world.settle()
    rules = {instance.owner.sandbox: instance.egress for instance in world.backend("main").instances()}
    assert rules[made["id"]] == rules[source]


# What cannot be forked


def test_what_does_not_run_is_409(world: World, acme: Tenant) -> None:
    made = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()
    assert fork(world, acme, made["id"]).code == "invalid_state"


def test_a_quota_of_snapshots_holds_for_forks(world: World, acme: Tenant) -> None:
    world.call("PUT", f"/v1/orgs/{acme.org}/quota", {"maxSnapshots": 0}, token=world.operator)
    refused = fork(world, acme, world.running(acme))
    assert (refused.status, refused.json()["error"]["details"]["resource"]) == (429, "snapshots")


def test_a_pool_that_policy_no_longer_permits_is_refused_before_anything_is_captured(memory: World) -> None:
    tenant = memory.tenant()
    source = memory.running(tenant)
    denied = memory.call(
        "PUT", f"/v1/policies/{tenant.project}", {"rules": {"deniedPools": ["main"]}}, token=memory.operator
    )
    assert denied.status == 200, denied.raw
    memory.core.catalog.forget()
    refused = fork(memory, tenant, source)
    assert (refused.status, refused.code) == (422, "no_eligible_pool")
    assert snapshots(memory, tenant) == []


@pytest.mark.parametrize(
    "body", [{"queueTimeoutSeconds": 0}, {"template": "x"}, {"kind": "both"}, {"env": {"1": "x"}}, BOTH]
)
def test_what_cannot_be_asked_is_400(memory: World, body: Any) -> None:
    tenant = memory.tenant()
    reply = fork(memory, tenant, memory.running(tenant), body)
    assert (reply.status, reply.code) == (400, "invalid_request")


def test_too_small_a_disk_is_422(memory: World) -> None:
    tenant = memory.tenant()
    source = memory.running(tenant, {"resources": {"diskGiB": 4}})
    reply = fork(memory, tenant, source, {"resources": {"diskGiB": 3}})
    assert (reply.status, reply.code) == (422, "limit_exceeded")


def test_another_tenants_sandbox_is_not_found(memory: World) -> None:
    source = memory.running(memory.tenant("owner"))
    assert fork(memory, memory.tenant("stranger"), source).status == 404


def test_its_environment_is_its_own(memory: World) -> None:
    tenant = memory.tenant()
    source = memory.running(tenant, {"env": {"TOKEN": "of the source"}})
    made = fork(memory, tenant, source, {"env": {"OTHER": "of the fork"}}).json()
    memory.settle()
    envs = {instance.owner.sandbox: instance.env for instance in memory.backend("main").instances()}
    assert envs[made["id"]] == {"OTHER": "of the fork"}


def test_a_stopped_sandbox_can_be_forked_and_captured(world: World, acme: Tenant) -> None:
    source = world.running(acme)
    put(world, acme, source, b"kept")
    world.call("POST", f"/v1/sandboxes/{source}/stop", {}, token=acme.token)
    world.settle()
    assert get(world, acme, source)["status"] == "stopped"
    made = fork(world, acme, source).json()
    memory = world.call("POST", f"/v1/sandboxes/{source}/snapshots", {"kind": "memory"}, token=acme.token)
    assert (memory.status, memory.code) == (409, "invalid_state")
    world.settle()
    assert (get(world, acme, source)["status"], read(world, acme, made["id"])) == ("stopped", b"kept")


def test_a_stop_takes_ports_back(world: World, acme: Tenant) -> None:
    """reliability.md section 5: port URLs are revoked on stop (daytonaio/daytona#3032)."""
    sandbox = world.running(acme)
    world.call("POST", f"/v1/sandboxes/{sandbox}/ports", {"port": 3000}, token=acme.token)
    world.call("POST", f"/v1/sandboxes/{sandbox}/stop", {}, token=acme.token)
    world.settle()
    assert [instance.ports for instance in world.backend("main").instances()] == [{}]
    assert world.call("GET", f"/v1/sandboxes/{sandbox}/ports", token=acme.token).json() == {"items": []}
