"""Snapshots, seen from outside: a record from acceptance to the moment the backend has removed it."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend, LoseAnswer, Refuse, Revert
from differently_core.contract import Capabilities, Operation
from differently_core.errors import SandboxFailed
from differently_core.model import features
from tests.support.api import Reply, Tenant, World


def take(world: World, tenant: Tenant, sandbox: str, body: Any = None, **headers: str) -> Reply:
    path = f"/v1/sandboxes/{sandbox}/snapshots"
    return world.call("POST", path, body or {}, token=tenant.token, headers=headers)


def taken(world: World, tenant: Tenant, sandbox: str | None = None, **body: Any) -> str:
    """The id of a snapshot that is ready."""
    reply = take(world, tenant, sandbox or world.running(tenant), body)
    assert reply.status == 202, reply.raw
    world.settle()
    assert get(world, tenant, reply.json()["id"])["status"] == "ready"
    return str(reply.json()["id"])


def get(world: World, tenant: Tenant, snapshot: str) -> Any:
    return world.call("GET", f"/v1/snapshots/{snapshot}", token=tenant.token).json()


def delete(world: World, tenant: Tenant, snapshot: str) -> Reply:
    return world.call("DELETE", f"/v1/snapshots/{snapshot}", token=tenant.token)


def used(world: World, tenant: Tenant) -> list[tuple[int, int]]:
    """Snapshots and bytes that count for the organization and for the project."""
    paths = (f"/v1/orgs/{tenant.org}/quota", f"/v1/projects/{tenant.project}/quota")
    answers = [world.call("GET", path, token=tenant.token).json()["used"] for path in paths]
    return [(answer["snapshots"], answer["snapshotBytes"]) for answer in answers]


def kept(world: World, pool: str = "main") -> int:
    return len(world.backend(pool).snapshots())


def test_a_snapshot_has_a_record_from_acceptance_on(world: World, acme: Tenant) -> None:
    """features.md 1: snapshots; issue 4 (1): a record from acceptance on."""
    sandbox = world.running(acme, {"resources": {"cpu": 2, "memoryMiB": 1024}})
    world.call("PUT", f"/v1/sandboxes/{sandbox}/files/content?path=a", b"12345", token=acme.token)
    reply = take(world, acme, sandbox, {"name": "first", "retentionSeconds": 3600})
    assert reply.status == 202
    made = reply.json()
    assert reply.headers["Location"] == f"/v1/snapshots/{made['id']}"
    assert get(world, acme, made["id"]) == made
    assert (made["status"], made["sandboxId"], made["kind"], made["name"]) == ("creating", sandbox, "disk", "first")
    assert made["retainUntil"] == "2026-01-01T01:00:00Z"
    assert kept(world) == 0

    world.settle()
    found = get(world, acme, made["id"])
    assert (found["status"], found["sizeBytes"], found["pool"]) == ("ready", 5, "main")
    assert found["resources"] == {"cpu": 2.0, "memoryMiB": 1024, "diskGiB": 1}
    assert "ref" not in found
    seen = world.call("GET", f"/v1/snapshots/{made['id']}", token=world.operator).json()
    assert seen["ref"] == world.backend("main").snapshots()[0].ref
    assert used(world, acme) == [(1, 5), (1, 5)]


def test_a_snapshot_outlives_its_sandbox(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    snapshot = taken(world, acme, sandbox)
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    assert get(world, acme, snapshot)["status"] == "ready"
    assert kept(world) == 1


def test_a_deleted_snapshot_goes_with_what_it_counted_for(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme)
    for _ in range(2):
        reply = delete(world, acme, snapshot)
        assert (reply.status, reply.json()["status"]) == (202, "deleting")
    assert used(world, acme)[0][0] == 1, "until the backend has removed it"
    world.settle()
    assert kept(world) == 0
    gone = world.call("GET", f"/v1/snapshots/{snapshot}", token=acme.token)
    assert (gone.status, gone.code) == (404, "not_found")
    assert delete(world, acme, snapshot).status == 404
    assert used(world, acme) == [(0, 0), (0, 0)]


def test_a_delete_is_repeated_until_the_backend_says_gone(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme)
    world.backend("main").expect(Operation.SNAPSHOT_DELETE, Refuse(), LoseAnswer(), Refuse())
    delete(world, acme, snapshot)
    world.settle()
    assert get(world, acme, snapshot)["status"] == "deleting"
    for _ in range(4):
        world.pass_time(60)
    assert world.call("GET", f"/v1/snapshots/{snapshot}", token=acme.token).status == 404
    assert (kept(world), used(world, acme)[0]) == (0, (0, 0))


def test_a_delete_wins_over_a_capture_under_way(world: World, acme: Tenant) -> None:
    """Nothing was captured yet, so nothing ever is."""
    made = take(world, acme, world.running(acme)).json()
    delete(world, acme, made["id"])
    world.settle()
    assert world.call("GET", f"/v1/snapshots/{made['id']}", token=acme.token).status == 404
    assert world.backend("main").calls[Operation.SNAPSHOT] == 0
    assert used(world, acme)[0] == (0, 0)


def test_a_failed_capture_says_why_and_leaves_nothing(world: World, acme: Tenant) -> None:
    world.backend("main").expect(Operation.SNAPSHOT, Revert())
    made = take(world, acme, world.running(acme)).json()
    world.settle()
    found = get(world, acme, made["id"])
    assert (found["status"], found["statusReason"]["code"]) == ("failed", "capture_failed")
    world.pass_time(60)
    assert get(world, acme, made["id"])["status"] == "failed"
    assert (kept(world), used(world, acme)[0]) == (0, (0, 0))


def test_a_refused_capture_fails_at_once(world: World, acme: Tenant) -> None:
    world.backend("main").expect(Operation.SNAPSHOT, Refuse(SandboxFailed("disk full", settled=True)))
    made = take(world, acme, world.running(acme)).json()
    world.settle()
    reason = get(world, acme, made["id"])["statusReason"]
    assert (reason["code"], reason["detail"]) == ("sandbox_failed", "disk full")
    assert used(world, acme)[0] == (0, 0)


def test_a_capture_of_a_sandbox_that_went_away_fails(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    made = take(world, acme, sandbox).json()
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    found = get(world, acme, made["id"])
    assert (found["status"], found["statusReason"]["code"]) == ("failed", "source_unavailable")
    assert used(world, acme)[0] == (0, 0)


def test_a_lost_answer_is_observed_and_nothing_is_captured_twice(world: World, acme: Tenant) -> None:
    world.backend("main").expect(Operation.SNAPSHOT, LoseAnswer(), LoseAnswer())
    made = take(world, acme, world.running(acme)).json()
    world.settle()
    for _ in range(3):
        world.pass_time(30)
    assert get(world, acme, made["id"])["status"] == "ready"
    assert kept(world) == 1


def test_what_the_backend_lost_is_broken_and_asked_for_no_more(world: World, acme: Tenant) -> None:
    """Issue 4 (1): one that the backend lost is marked broken, not retried for ever."""
    snapshot = taken(world, acme)
    backend = world.backend("main")
    backend.drop_snapshot(backend.snapshots()[0])
    world.pass_time(6 * 3600)
    assert get(world, acme, snapshot)["status"] == "ready", "one look proves nothing"
    world.pass_time(60)
    found = get(world, acme, snapshot)
    assert (found["status"], found["statusReason"]["code"]) == ("broken", "snapshot_lost")
    assert used(world, acme) == [(0, 0), (0, 0)]
    asked = backend.calls[Operation.SNAPSHOT_GET]
    for _ in range(4):
        world.pass_time(6 * 3600)
    assert backend.calls[Operation.SNAPSHOT_GET] == asked
    delete(world, acme, snapshot)
    world.settle()
    assert world.call("GET", f"/v1/snapshots/{snapshot}", token=acme.token).status == 404


def test_a_look_that_finds_it_again_leaves_it_ready(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme)
    backend = world.backend("main")
    (lost,) = backend.snapshots()
    backend.drop_snapshot(lost)
    world.pass_time(6 * 3600)
    backend.keep(lost)
    for _ in range(3):
        world.pass_time(60)
    assert get(world, acme, snapshot)["status"] == "ready"


def test_retention_ends_a_snapshot_although_every_message_is_lost(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme, retentionSeconds=3600)
    world.pass_time(3599)
    assert get(world, acme, snapshot)["status"] == "ready"
    for _ in range(3):
        world.mail.messages.clear()
        world.pass_time(1)
    assert world.call("GET", f"/v1/snapshots/{snapshot}", token=acme.token).status == 404
    assert (kept(world), used(world, acme)[0]) == (0, (0, 0))


def test_what_failed_and_what_broke_ends_with_its_retention_too(world: World, acme: Tenant) -> None:
    world.backend("main").expect(Operation.SNAPSHOT, Revert())
    made = take(world, acme, world.running(acme, {"ttlSeconds": 86_400}), {"retentionSeconds": 3600}).json()
    for _ in range(3):
        world.settle()
        world.pass_time(1800)
    assert world.call("GET", f"/v1/snapshots/{made['id']}", token=acme.token).status == 404


# Lists


def test_a_list_is_newest_first_paged_and_by_sandbox(world: World, acme: Tenant) -> None:
    one, other = world.running(acme), world.running(acme)
    ids = []
    for number in range(5):
        ids.append(taken(world, acme, one if number % 2 == 0 else other))
        world.clock.advance(1)
    path = "/v1/snapshots?limit=2"
    pages, cursor = [], ""
    while True:
        page = world.call("GET", f"{path}{cursor}", token=acme.token).json()
        pages.append([entry["id"] for entry in page["items"]])
        if "nextCursor" not in page:
            break
        cursor = f"&cursor={page['nextCursor']}"
    assert pages == [ids[4:2:-1], ids[2:0:-1], ids[:1]]
    of_one = world.call("GET", f"/v1/snapshots?sandboxId={one}", token=acme.token).json()["items"]
    assert [entry["id"] for entry in of_one] == ids[4::-2]
    delete(world, acme, ids[0])
    going = world.call("GET", "/v1/snapshots?status=deleting", token=acme.token).json()["items"]
    assert [entry["id"] for entry in going] == ids[:1]
    foreign = world.call("GET", f"{path}&status=ready{cursor}", token=acme.token)
    assert (foreign.status, foreign.code) == (400, "invalid_request")


def test_another_tenant_sees_nothing(world: World, acme: Tenant) -> None:
    """reliability.md I11: 404, not 403."""
    sandbox = world.running(acme)
    snapshot = taken(world, acme, sandbox)
    for stranger in (world.tenant("stranger"), world.tenant("sibling", org=acme.org)):
        assert world.call("GET", f"/v1/snapshots/{snapshot}", token=stranger.token).status == 404
        assert delete(world, stranger, snapshot).status == 404
        assert take(world, stranger, sandbox).status == 404
        assert world.call("GET", "/v1/snapshots", token=stranger.token).json() == {"items": []}
        named = world.call("GET", f"/v1/snapshots?projectId={acme.project}", token=stranger.token)
        assert named.status == 404
    assert get(world, acme, snapshot)["status"] == "ready"


def test_an_operator_names_the_project_of_a_list(world: World, acme: Tenant) -> None:
    snapshot = taken(world, acme)
    assert world.call("GET", "/v1/snapshots", token=world.operator).status == 400
    found = world.call("GET", f"/v1/snapshots?projectId={acme.project}", token=world.operator).json()["items"]
    assert [entry["id"] for entry in found] == [snapshot]
    assert world.call("DELETE", f"/v1/snapshots/{snapshot}", token=world.operator).status == 202


# What may be taken


def test_a_sandbox_that_does_not_run_is_409(world: World, acme: Tenant) -> None:
    made = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()
    early = take(world, acme, made["id"])
    assert (early.status, early.code) == (409, "invalid_state")
    sandbox = world.running(acme)
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    assert take(world, acme, sandbox).code == "invalid_state"


def without(backend: FakeBackend, *names: str) -> None:
    backend.capabilities = Capabilities(backend.capabilities.features - set(names))


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_kind_that_the_pool_does_not_offer_is_501_by_name(world: World, acme: Tenant, kind: str) -> None:
    """features.md 1: an optional operation that is missing is 501 with operation, pool and adapter."""
    sandbox = world.running(acme)
    without(world.backend("main"), features.SNAPSHOTS_DISK if kind == "disk" else features.SNAPSHOTS_MEMORY)
    world.probe()
    reply = take(world, acme, sandbox, {"kind": kind})
    assert (reply.status, reply.code) == (501, "unsupported_operation")
    details = reply.json()["error"]["details"]
    assert (details["operation"], details["pool"], details["adapter"]) == ("snapshot", "main", "fake")


def test_more_may_be_kept_than_was_asked_for(world: World, acme: Tenant) -> None:
    """reference-api.md 1b: the returned kind may be memory though disk was asked."""
    from differently_core.contract import SnapshotKind

    world.backend("main").captures = SnapshotKind.MEMORY
    assert get(world, acme, taken(world, acme))["kind"] == "memory"


@pytest.mark.parametrize("body", [{"kind": "both"}, {"retentionSeconds": 60}, {"name": "a\nb"}, {"other": 1}])
def test_what_cannot_be_asked_is_400(memory: World, body: Any) -> None:
    tenant = memory.tenant()
    reply = take(memory, tenant, memory.running(tenant), body)
    assert (reply.status, reply.code) == (400, "invalid_request")


def test_taking_one_counts_as_use(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.clock.advance(7)
    take(world, acme, sandbox)
    found = world.call("GET", f"/v1/sandboxes/{sandbox}", token=acme.token).json()
    assert found["lastActivityAt"] == "2026-01-01T00:00:07Z"


# Quotas


@pytest.mark.parametrize("scope", ["org", "project"])
def test_a_quota_of_snapshots_is_exact(world: World, acme: Tenant, scope: str) -> None:
    path = f"/v1/orgs/{acme.org}/quota" if scope == "org" else f"/v1/projects/{acme.project}/quota"
    assert world.call("PUT", path, {"maxSnapshots": 2}, token=world.operator).status == 200
    sandbox = world.running(acme)
    first = taken(world, acme, sandbox)
    taken(world, acme, sandbox)
    over = take(world, acme, sandbox)
    assert (over.status, over.code) == (429, "quota_exceeded")
    assert over.json()["error"]["details"] == {"scope": scope, "resource": "snapshots", "limit": 2, "held": 2}
    delete(world, acme, first)
    world.settle()
    assert take(world, acme, sandbox).status == 202


def test_a_quota_of_bytes_stops_the_next_one(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.call("PUT", f"/v1/sandboxes/{sandbox}/files/content?path=a", b"x" * 100, token=acme.token)
    taken(world, acme, sandbox)
    world.call("PUT", f"/v1/orgs/{acme.org}/quota", {"maxSnapshotGiB": 0}, token=world.operator)
    over = take(world, acme, sandbox)
    assert (over.status, over.json()["error"]["details"]["resource"]) == (429, "snapshotGiB")


def test_a_suspended_organization_takes_none(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.call("POST", f"/v1/orgs/{acme.org}/suspend", {}, token=world.operator)
    refused = take(world, acme, sandbox)
    assert (refused.status, refused.code) == (403, "suspended")


def test_a_pool_that_keeps_snapshots_cannot_be_removed(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    snapshot = taken(world, acme, sandbox)
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    refused = world.call("DELETE", "/v1/admin/pools/main", token=world.operator)
    assert (refused.status, refused.code) == (409, "invalid_state")
    counts = refused.json()["error"]["details"]
    assert {name: count for name, count in counts.items() if count} == {"pool": "main", "snapshots": 1}
    delete(world, acme, snapshot)
    world.settle()
    assert world.call("DELETE", "/v1/admin/pools/main", token=world.operator).status == 204


# Idempotency


def test_a_repeat_with_the_same_key_answers_with_the_first(world: World, acme: Tenant) -> None:
    """users/reports.md S1, for snapshots: a lost answer can be asked for again."""
    sandbox = world.running(acme)
    key = {"Idempotency-Key": "nightly"}
    first = take(world, acme, sandbox, {"name": "a"}, **key)
    world.settle()
    again = take(world, acme, sandbox, {"name": "a"}, **key)
    assert (first.status, again.status, again.headers["Idempotent-Replayed"]) == (202, 200, "true")
    assert again.json() == first.json()
    assert (again.headers["Location"], kept(world)) == (first.headers["Location"], 1)
    other = take(world, acme, sandbox, {"name": "b"}, **key)
    assert (other.status, other.code) == (409, "idempotency_conflict")
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    assert take(world, acme, sandbox, {"name": "a"}, **key).json() == first.json(), "its sandbox has ended"

    delete(world, acme, first.json()["id"])
    world.settle()
    fresh = take(world, acme, world.running(acme), {"name": "b"}, **key)
    assert fresh.status == 202, "the key is free when the snapshot is gone"
