"""Sandboxes made from snapshots, seen from outside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from differently_adapters.providers.fake import Broken
from differently_core.contract import Operation
from differently_core.model.snapshot import Snapshot, SnapshotUse
from differently_core.store.ports import StoreUnavailable
from tests.support.api import Reply, Tenant, World


def create(world: World, tenant: Tenant, body: Any, key: str | None = None) -> Reply:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return world.call("POST", "/v1/sandboxes", body, token=tenant.token, headers=headers)


def get(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def taken(world: World, tenant: Tenant, body: Any = None, request: Any = None, data: bytes = b"kept") -> str:
    """The id of a ready snapshot of a sandbox with one file, `a`, whose sandbox has ended."""
    sandbox = world.running(tenant, body)
    world.call("PUT", f"/v1/sandboxes/{sandbox}/files/content?path=a", data, token=tenant.token)
    made = world.call("POST", f"/v1/sandboxes/{sandbox}/snapshots", request or {}, token=tenant.token).json()
    world.settle()
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=tenant.token)
    world.settle()
    return str(made["id"])


def read(world: World, tenant: Tenant, sandbox: str) -> bytes:
    return world.call("GET", f"/v1/sandboxes/{sandbox}/files/content?path=a", token=tenant.token).raw


def snapshot_of(world: World, tenant: Tenant, snapshot: str) -> Any:
    return world.call("GET", f"/v1/snapshots/{snapshot}", token=tenant.token).json()


def holds(world: World, snapshot: str) -> int:
    page = world.store.query(Snapshot.table, f"SNAP#{snapshot}", prefix="USE#")
    return sum(isinstance(row, SnapshotUse) for row in page.rows)


def test_a_sandbox_starts_from_what_was_captured_as_it_was(world: World, acme: Tenant) -> None:
    """features.md 1: snapshots, data survives; it is as large as what was captured, unless more is asked for."""
    snapshot = taken(world, acme, {"resources": {"cpu": 2, "memoryMiB": 1024, "diskGiB": 4}})
    made = create(world, acme, {"snapshotId": snapshot})
    assert made.status == 202
    sandbox = made.json()["id"]
    assert (made.json()["snapshotId"], holds(world, snapshot)) == (snapshot, 1)
    world.settle()
    found = get(world, acme, sandbox)
    assert (found["status"], found["resources"]) == ("running", {"cpu": 2.0, "memoryMiB": 1024, "diskGiB": 4})
    assert (read(world, acme, sandbox), holds(world, snapshot)) == (b"kept", 0)

    more = create(world, acme, {"snapshotId": snapshot, "resources": {"cpu": 1, "diskGiB": 8}}).json()
    assert more["resources"] == {"cpu": 1.0, "memoryMiB": 1024, "diskGiB": 8}


def test_it_runs_only_where_the_snapshot_is_kept(world: World, acme: Tenant) -> None:
    world.pool("cheap", costModel={"cpuHour": 0.0})
    world.pool("dear", costModel={"cpuHour": 9.0})
    snapshot = taken(world, acme, {"placement": {"allowedPools": ["dear"]}})
    made = create(world, acme, {"snapshotId": snapshot, "placement": {"allowedPools": ["cheap", "dear"]}}).json()
    world.settle()
    assert get(world, acme, made["id"])["pool"] == "dear"

    elsewhere = create(world, acme, {"snapshotId": snapshot, "placement": {"allowedPools": ["cheap"]}})
    assert (elsewhere.status, elsewhere.code) == (422, "no_eligible_pool")
    assert "dear" in elsewhere.json()["error"]["message"]


def test_a_full_pool_is_waited_for(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    snapshot = taken(world, acme, {"placement": {"allowedPools": ["tiny"]}})
    first = create(world, acme, {"snapshotId": snapshot}).json()
    world.settle()
    second = create(world, acme, {"snapshotId": snapshot}).json()
    assert (second["status"], holds(world, snapshot)) == ("queued", 1)
    world.call("DELETE", f"/v1/sandboxes/{first['id']}", token=acme.token)
    world.settle()
    assert get(world, acme, second["id"])["status"] == "running"
    assert read(world, acme, second["id"]) == b"kept"


def test_one_in_use_is_deleted_when_what_is_made_from_it_is_made(world: World, acme: Tenant) -> None:
    """Issue 4: a snapshot in use by a restore is not deleted under it."""
    world.pool("tiny", max_concurrency=1)
    snapshot = taken(world, acme, {"placement": {"allowedPools": ["tiny"]}})
    first = world.running(acme, {"placement": {"allowedPools": ["tiny"]}})
    waiting = create(world, acme, {"snapshotId": snapshot}).json()
    world.call("DELETE", f"/v1/snapshots/{snapshot}", token=acme.token)
    world.settle()
    world.pass_time(60)
    assert len(world.backend("tiny").snapshots()) == 1
    refused = create(world, acme, {"snapshotId": snapshot})
    assert (refused.status, refused.code) == (409, "invalid_state")

    world.call("DELETE", f"/v1/sandboxes/{first}", token=acme.token)
    world.settle()
    assert read(world, acme, waiting["id"]) == b"kept"
    world.pass_time(30)
    assert world.backend("tiny").snapshots() == []
    assert world.call("GET", f"/v1/snapshots/{snapshot}", token=acme.token).status == 404


def test_a_restore_that_ends_before_it_runs_lets_go(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme)
    made = create(world, acme, {"snapshotId": snapshot}).json()
    world.call("DELETE", f"/v1/sandboxes/{made['id']}", token=acme.token)
    world.settle()
    assert (get(world, acme, made["id"])["status"], holds(world, snapshot)) == ("terminated", 0)


# What cannot be restored


def test_one_that_is_not_ready_is_409_and_says_why(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    made = world.call("POST", f"/v1/sandboxes/{sandbox}/snapshots", {}, token=acme.token).json()
    early = create(world, acme, {"snapshotId": made["id"]})
    assert (early.status, early.code) == (409, "invalid_state")
    assert "still being taken" in early.json()["error"]["message"]
    assert early.json()["error"]["details"] == {"snapshotId": made["id"], "status": "creating"}


@pytest.mark.parametrize("whose", ["nobody", "stranger", "sibling", "no id at all"])
def test_anothers_and_none_are_404(world: World, acme: Tenant, whose: str) -> None:
    snapshot = "snap_01JBM2ZQ7M0N4P6R8T1V3X5Z7B"
    if whose in ("stranger", "sibling"):
        snapshot = taken(world, world.tenant(whose, org=acme.org if whose == "sibling" else None))
    elif whose == "no id at all":
        snapshot = "../x"
    reply = create(world, acme, {"snapshotId": snapshot})
    assert (reply.status, reply.code) == (404, "not_found")


def test_too_small_a_size_is_422_with_what_is_needed(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme, {"resources": {"diskGiB": 10, "memoryMiB": 2048}})
    small = create(world, acme, {"snapshotId": snapshot, "resources": {"diskGiB": 9}})
    assert (small.status, small.code) == (422, "limit_exceeded")
    assert small.json()["error"]["details"] == {"resource": "diskGiB", "requested": 9, "minimum": 10}
    assert create(world, acme, {"snapshotId": snapshot, "resources": {"memoryMiB": 512}}).status == 202


def test_memory_needs_as_much_memory(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme, {"resources": {"memoryMiB": 2048}}, {"kind": "memory"})
    small = create(world, acme, {"snapshotId": snapshot, "resources": {"memoryMiB": 512}})
    assert (small.status, small.json()["error"]["details"]["minimum"]) == (422, 2048)


def test_what_the_backend_lost_fails_the_sandbox_and_is_found_broken(world: World, acme: Tenant) -> None:
    """users/reports.md S13: a lost snapshot is a terminal, typed reason, and is not tried for ever."""
    snapshot = taken(world, acme)
    backend = world.backend("main")
    backend.drop_snapshot(backend.snapshots()[0])
    made = create(world, acme, {"snapshotId": snapshot}).json()
    world.settle()
    found = get(world, acme, made["id"])
    assert (found["status"], found["statusReason"]["code"]) == ("failed", "snapshot_lost")
    assert (holds(world, snapshot), backend.instances()) == (0, [])
    world.pass_time(60)
    assert snapshot_of(world, acme, snapshot)["status"] == "broken"
    late = create(world, acme, {"snapshotId": snapshot})
    assert (late.status, late.code) == (409, "invalid_state")
    assert "lost by its pool" in late.json()["error"]["message"]


def test_one_that_cannot_be_restored_fails_the_sandbox_after_a_few_tries(world: World, acme: Tenant) -> None:
    """reliability.md F35: a snapshot is told to be ready, and its restore fails."""
    world.backend("main").expect(Operation.SNAPSHOT, Broken())
    snapshot = taken(world, acme)
    made = create(world, acme, {"snapshotId": snapshot}).json()
    for _ in range(12):
        world.settle()
        world.pass_time(60)
    found = get(world, acme, made["id"])
    assert (found["status"], found["statusReason"]["code"]) == ("failed", "sandbox_failed")
    assert (holds(world, snapshot), world.backend("main").instances()) == (0, [])


def test_what_is_made_from_a_snapshot_keeps_its_classification(world: World, acme: Tenant) -> None:
    """Else what policy keeps from a pool could be restored there under another name."""
    snapshot = taken(world, acme, {"classification": "secret"})
    made = create(world, acme, {"snapshotId": snapshot})
    assert made.json()["classification"] == "secret"
    other = create(world, acme, {"snapshotId": snapshot, "classification": "default"})
    assert (other.status, other.json()["error"]["details"]["field"]) == (400, "classification")


def test_what_is_made_from_a_snapshot_reaches_no_more_than_its_source(world: World, acme: Tenant) -> None:
    """A copy holds what the original held, so unless it is asked for otherwise it is kept from the same addresses."""
    snapshot = taken(world, acme, {"egress": {"allow": ["example.com"]}})
    made = create(world, acme, {"snapshotId": snapshot}).json()
    assert made["egress"]["allow"] == ["example.com"]
    wider = create(world, acme, {"snapshotId": snapshot, "egress": {"allow": ["example.com", "example.org"]}}).json()
    assert wider["egress"]["allow"] == ["example.com", "example.org"]


def test_a_snapshot_that_cannot_be_read_makes_nothing(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """reliability.md I9: a create and its worker fail closed, and neither starts from an empty disk instead."""
    tenant = memory.tenant()
    snapshot = taken(memory, tenant)
    made = create(memory, tenant, {"snapshotId": snapshot}).json()
    read_row = type(memory.store).get

    def get_row(self: Any, record: Any, key: Any) -> Any:
        if record is Snapshot:
            raise StoreUnavailable("No answer.")
        return read_row(self, record, key)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory.store), "get", get_row)
        refused = create(memory, tenant, {"snapshotId": snapshot})
        assert (refused.status, refused.code) == (503, "provider_unavailable")
        with pytest.raises(StoreUnavailable):
            memory.settle()
        assert memory.backend("main").instances() == []
    for _ in range(4):
        memory.pass_time(70)
    assert read(memory, tenant, made["id"]) == b"kept"


def test_an_explanation_names_the_one_pool_and_holds_nothing(world: World, acme: Tenant) -> None:
    world.pool("other")
    snapshot = taken(world, acme, {"placement": {"allowedPools": ["other"]}})
    body = {"snapshotId": snapshot}
    explained = world.call("POST", "/v1/placement/explain", body, token=acme.token)
    assert explained.status == 200, explained.raw
    eligible = [entry["pool"] for entry in explained.json()["candidates"] if entry["eligible"]]
    assert (eligible, holds(world, snapshot)) == (["other"], 0)


def test_a_replay_finds_its_sandbox_although_the_snapshot_is_gone(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme)
    first = create(world, acme, {"snapshotId": snapshot}, "k")
    world.settle()
    world.call("DELETE", f"/v1/snapshots/{snapshot}", token=acme.token)
    world.settle()
    again = create(world, acme, {"snapshotId": snapshot}, "k")
    assert (again.status, again.json()) == (200, first.json())
    assert create(world, acme, {"snapshotId": snapshot}, "other").status == 404


def test_many_restores_of_one_snapshot_at_once(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme)
    with ThreadPoolExecutor(8) as threads:
        replies = list(threads.map(lambda _: create(world, acme, {"snapshotId": snapshot}), range(12)))
    assert {reply.status for reply in replies} == {202}
    world.settle()
    assert {get(world, acme, reply.json()["id"])["status"] for reply in replies} == {"running"}
    assert (holds(world, snapshot), len(world.backend("main").instances())) == (0, 12)
