"""Snapshots against lost answers, races and a backend that forgets: one record, one capture, one end."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend, Late, LoseAnswer, LoseCall, Refuse, Revert, Slow
from differently_core.contract import Capabilities, Operation
from differently_core.errors import DifferentlyError, InvalidState, ProviderUnavailable, QuotaExceeded
from differently_core.model.event import Event
from differently_core.model.quota import Limits, Scope
from differently_core.model.sandbox import Status
from differently_core.model.snapshot import (
    TRANSITIONS,
    Snapshot,
    SnapshotKind,
    SnapshotStatus,
    SnapshotTally,
    SnapshotUse,
)
from differently_core.operations import capturing, pool_release, snapshots
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.runtime.ids import SandboxId, SnapshotId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Delete, Put
from tests.support.interruptions import Interrupted
from tests.support.world import OPERATOR, StepSnapshot, World


def running(world: World) -> SandboxId:
    sandbox = world.create()
    world.deliver_all()
    return sandbox


def take(world: World, sandbox: SandboxId | None = None, **request: Any) -> SnapshotId:
    body = TakeSnapshot.model_validate(request)
    return snapshots.take(world.core, world.caller, sandbox or running(world), body).snapshot


def ready(world: World, **request: Any) -> SnapshotId:
    snapshot = take(world, **request)
    world.deliver_all()
    assert status(world, snapshot) is SnapshotStatus.READY
    return snapshot


def row(world: World, snapshot: SnapshotId) -> Snapshot | None:
    return world.memory.get(Snapshot, Snapshot.key_of(snapshot))


def status(world: World, snapshot: SnapshotId) -> SnapshotStatus | None:
    found = row(world, snapshot)
    return None if found is None else found.status


def delete(world: World, snapshot: SnapshotId) -> None:
    snapshots.delete(world.core, world.caller, snapshot)


def counted(world: World) -> list[tuple[int, int]]:
    return [(tally.count, tally.bytes) for tally in world.rows(SnapshotTally)]


def counts_are_those_of_the_records(world: World) -> None:
    rows = [entry for entry in world.rows(Snapshot) if entry.holds]
    for tally in world.rows(SnapshotTally):
        names = {Scope.ORG: "org", Scope.PROJECT: "project", Scope.POOL: "pool"}
        mine = [entry for entry in rows if getattr(entry, names[tally.scope]) == tally.name]
        assert (tally.count, tally.bytes) == (len(mine), sum(entry.charged_bytes for entry in mine)), tally


def test_the_intent_is_stored_before_the_capture_and_names_it(world: World, backend: FakeBackend):
    """Issue 4 (4): intent with operation id stored before each capture."""
    sandbox = running(world)
    snapshot = take(world, sandbox)
    seen: list[Snapshot | None] = []
    backend.plan = lambda call: seen.append(row(world, snapshot)) if call.operation is Operation.SNAPSHOT else None
    world.deliver_all()

    (before,) = seen
    assert before is not None
    assert (before.status, before.unsettled) == (SnapshotStatus.CREATING, True)
    assert before.claim_until == world.core.after(65)
    (captured,) = backend.snapshots()
    assert (captured.operation, captured.owner) == (snapshot, world.core.owner(sandbox))


@pytest.mark.parametrize("fault", [LoseAnswer(), LoseCall(), Late(20.0), Slow(100.0)], ids=str)
def test_an_unknown_outcome_is_observed_and_never_a_second_capture(world: World, backend: FakeBackend, fault: Any):
    backend.expect(Operation.SNAPSHOT, fault)
    snapshot = take(world)
    for _ in range(10):
        world.deliver_all()
        world.pass_time(20)

    assert status(world, snapshot) is SnapshotStatus.READY
    assert len(backend.snapshots()) == 1
    counts_are_those_of_the_records(world)


def test_a_worker_that_died_in_the_call_is_followed_by_one_that_finds_its_capture(world: World, backend: FakeBackend):
    snapshot = take(world)

    class Died(BaseException):
        pass

    def die(call: Any) -> None:
        if call.operation is Operation.SNAPSHOT_GET or call.operation is Operation.SNAPSHOT:
            backend.plan = None
            raise Died

    # It captures, and dies before it can write down what.
    backend.expect(Operation.SNAPSHOT, Late(0.0))
    backend.plan = die
    capturing.step(world.core, snapshot)
    backend.plan = die
    world.clock.advance(5)
    with pytest.raises(Died):
        capturing.step(world.core, snapshot)
    world.lose_messages()

    capturing.step(world.core, snapshot)
    assert status(world, snapshot) is SnapshotStatus.CREATING, "the dead one may still be calling"
    world.pass_time(65)

    assert status(world, snapshot) is SnapshotStatus.READY
    assert len(backend.snapshots()) == 1


def test_a_backend_that_is_away_is_waited_for_and_then_it_failed(world: World, backend: FakeBackend):
    snapshot = take(world)
    backend.up = False
    for _ in range(8):
        world.deliver_all()
        world.pass_time(60)
    assert status(world, snapshot) is SnapshotStatus.CREATING
    world.pass_time(capturing.CAPTURE_SECONDS_MAX)
    world.pass_time(capturing.CAPTURE_SECONDS_MAX)

    found = row(world, snapshot)
    assert found is not None
    assert (found.status, found.holds) == (SnapshotStatus.FAILED, False)
    assert found.reason is not None
    assert found.reason.code == "timed_out"
    counts_are_those_of_the_records(world)


def test_one_that_never_gets_ready_is_given_up_and_removed(world: World, backend: FakeBackend):
    backend.snapshot_seconds = 10**9
    snapshot = take(world)
    for _ in range(20):
        world.deliver_all()
        world.pass_time(60)

    found = row(world, snapshot)
    assert found is not None
    assert (found.status, found.holds) == (SnapshotStatus.FAILED, False)
    assert backend.snapshots() == []
    counts_are_those_of_the_records(world)


def test_a_capture_under_way_counts_as_use(world: World, backend: FakeBackend):
    """Issue 4 (1): what is at work in a sandbox keeps it awake until it ends."""
    backend.snapshot_seconds = 400.0
    sandbox = running(world)
    take(world, sandbox)
    for _ in range(4):
        world.deliver_all()
        world.pass_time(40)
    last = world.sandbox(sandbox).last_activity_at
    assert last is not None
    assert (world.clock.now() - last).total_seconds() < 90


def test_a_failed_capture_counts_until_its_remains_are_gone(world: World, backend: FakeBackend):
    backend.expect(Operation.SNAPSHOT, Revert())
    backend.expect(Operation.SNAPSHOT_DELETE, Refuse())
    snapshot = take(world)
    capturing.step(world.core, snapshot)
    world.lose_messages()
    world.pass_time(1)
    found = row(world, snapshot)
    assert found is not None
    assert (found.status, found.holds, len(backend.snapshots())) == (SnapshotStatus.FAILED, True, 1)
    counts_are_those_of_the_records(world)

    world.pass_time(60)

    assert (counted(world), backend.snapshots()) == ([(0, 0)] * 3, [])


def test_a_source_that_its_snapshot_stopped_is_told_to_be_stopped_at_once(world: World, backend: FakeBackend):
    """users/reports.md S12: the state is read back after a snapshot that stops its source; nobody is told "running"."""
    backend.capabilities = Capabilities(backend.capabilities.features, snapshot_stops=True)
    sandbox = running(world)
    take(world, sandbox)
    world.deliver_all()

    found = world.sandbox(sandbox)
    assert found.reason is not None
    assert (found.status, found.reason.code) == (Status.STOPPED, "instance_stopped")
    assert world.held(Scope.ORG, world.org.id) == 0


def test_a_source_that_goes_on_is_not_looked_at(world: World, backend: FakeBackend):
    sandbox = running(world)
    looks = backend.calls[Operation.GET]
    take(world, sandbox)
    world.deliver_all()

    assert (world.status(sandbox), backend.calls[Operation.GET]) == (Status.RUNNING, looks)


# Deletes


def test_a_delete_during_the_capture_removes_what_was_captured(world: World, backend: FakeBackend):
    snapshot = take(world)

    def deletes(call: Any) -> None:
        if call.operation is Operation.SNAPSHOT:
            backend.plan = None
            delete(world, snapshot)
            capturing.step(world.core, snapshot)  # which leaves it to the call that is under way

    backend.plan = deletes
    capturing.step(world.core, snapshot)
    assert status(world, snapshot) is SnapshotStatus.DELETING
    assert len(backend.snapshots()) == 1
    world.deliver_all()

    assert (row(world, snapshot), backend.snapshots(), counted(world)) == (None, [], [(0, 0)] * 3)


def test_a_delete_after_a_lost_answer_removes_what_nobody_knew_of(world: World, backend: FakeBackend):
    """The only way to learn what was captured is to ask for the same capture again."""
    backend.expect(Operation.SNAPSHOT, LoseAnswer())
    snapshot = take(world)
    capturing.step(world.core, snapshot)
    delete(world, snapshot)
    world.deliver_all()
    for _ in range(3):
        world.pass_time(30)

    assert (row(world, snapshot), backend.snapshots(), counted(world)) == (None, [], [(0, 0)] * 3)


def test_a_refusal_after_a_lost_answer_does_not_make_it_forgotten(world: World, backend: FakeBackend):
    """A backend that could not be reached says nothing of what an earlier call had done there."""
    backend.expect(Operation.SNAPSHOT, LoseAnswer(), Refuse())
    snapshot = take(world)
    capturing.step(world.core, snapshot)
    world.lose_messages()
    world.pass_time(5)
    assert backend.calls[Operation.SNAPSHOT] == 2
    delete(world, snapshot)
    world.deliver_all()
    world.pass_time(60)

    assert (row(world, snapshot), backend.snapshots()) == (None, [])


def test_one_in_use_is_not_deleted_under_who_uses_it(world: World, backend: FakeBackend):
    snapshot = ready(world)
    use = SnapshotUse(snapshot=snapshot, sandbox=running(world))
    world.memory.transact([Put(use, (), "use")])
    delete(world, snapshot)
    world.deliver_all()
    world.pass_time(120)
    assert (status(world, snapshot), len(backend.snapshots())) == (SnapshotStatus.DELETING, 1)

    world.memory.transact([Delete(SnapshotUse, use.key(), "use")])
    world.pass_time(30)

    assert (row(world, snapshot), backend.snapshots()) == (None, [])


def test_a_foreign_snapshot_under_the_same_ref_is_left_alone(world: World, backend: FakeBackend):
    """reliability.md I2: the owner is checked on the thing itself."""
    snapshot = ready(world)
    (captured,) = backend.snapshots()
    captured.owner = type(captured.owner)("inst_another", captured.owner.sandbox)
    delete(world, snapshot)
    world.deliver_all()

    assert row(world, snapshot) is None
    assert backend.snapshots() == [captured]


def test_deletes_at_once_are_one(world: World, backend: FakeBackend):
    snapshot = ready(world)
    for _ in range(3):
        delete(world, snapshot)
    world.bag.messages += [StepSnapshot(snapshot)] * 3
    world.deliver_all()

    assert counted(world) == [(0, 0)] * 3
    actions = [event.action for event in world.rows(Event) if event.target == snapshot]
    assert sorted(actions) == ["snapshot.create", "snapshot.delete", "snapshot.deleted", "snapshot.ready"]


def test_a_store_that_is_away_is_raised_and_changes_nothing(world: World, backend: FakeBackend):
    """reliability.md I9: an unreadable row is never taken for an absent one."""
    snapshot = ready(world)

    class Away:
        def __getattr__(self, name: str) -> Any:
            raise ProviderUnavailable("away")

    store = world.core.store
    object.__setattr__(world.core, "store", Away())
    with pytest.raises(DifferentlyError):
        capturing.step(world.core, snapshot)
    object.__setattr__(world.core, "store", store)
    assert status(world, snapshot) is SnapshotStatus.READY


# Acceptance


def test_a_sandbox_that_leaves_while_it_is_accepted_is_not_captured():
    interrupted: list[Interrupted] = []

    def wrap(memory: MemoryStore) -> Interrupted:
        interrupted.append(Interrupted(memory))
        return interrupted[0]

    world = World(wrap=wrap)
    world.add_pool()
    sandbox = running(world)
    interrupted[0].before("snapshot", lambda: world.delete(sandbox))

    with pytest.raises(InvalidState):
        take(world, sandbox)

    assert world.rows(Snapshot) == []
    assert set(counted(world)) <= {(0, 0)}


def test_a_quota_holds_against_many_at_once(world: World, backend: FakeBackend):
    limits = Limits(snapshots_max=3)
    world.caller = world.tenant(*world.add_tenant(project=limits))
    sandbox = running(world)
    made, refused = 0, 0
    for _ in range(6):
        try:
            take(world, sandbox)
            made += 1
        except QuotaExceeded:
            refused += 1

    assert (made, refused) == (3, 3)
    world.deliver_all()
    counts_are_those_of_the_records(world)


def test_a_pool_that_is_removed_while_one_is_accepted_refuses_it_or_stays(world: World):
    """Acceptance is conditional on the pool, and removal on its tally: one of the two loses."""
    interrupted = Interrupted(world.memory)
    world.add_pool()
    sandbox = running(world)
    draft = snapshots.drafted(world.core, world.caller, world.sandbox(sandbox), SnapshotKind.DISK, 86_400)
    object.__setattr__(world.core, "store", interrupted)
    world.delete(sandbox)
    world.deliver_all()
    world.pass_time(120)
    pool_release.remove(world.core, OPERATOR, "pool")

    outcome = world.core.commit(snapshots.acceptance(world.core, world.caller, draft))

    assert set(getattr(outcome, "failed", {})) >= {"pool"}
    assert world.rows(Snapshot) == []


# The machine


def test_every_state_can_be_left_by_a_delete_and_by_nothing_that_is_not_listed():
    assert all(SnapshotStatus.DELETING in after for before, after in TRANSITIONS.items() if after)
    assert TRANSITIONS[SnapshotStatus.DELETING] == frozenset()
    assert set(TRANSITIONS) == set(SnapshotStatus)


def test_memory_is_captured_of_what_runs_alone():
    assert snapshots.CAPTURED_IN[SnapshotKind.MEMORY] < snapshots.CAPTURED_IN[SnapshotKind.DISK]
