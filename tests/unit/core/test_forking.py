"""Forks against races and messages that come in any order: one child, one snapshot, neither without the other."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend
from differently_core.contract import Operation
from differently_core.errors import InvalidState, QuotaExceeded
from differently_core.model.queue import QueueRow
from differently_core.model.quota import Limits
from differently_core.model.sandbox import Sandbox, Status
from differently_core.model.snapshot import Snapshot, SnapshotStatus, SnapshotTally, SnapshotUse
from differently_core.operations import capturing, forking, sandboxes, snapshots, worker
from differently_core.operations.forking import ForkSandbox
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from tests.support.interruptions import Interrupted
from tests.support.world import World


def running(world: World) -> SandboxId:
    sandbox = world.create()
    world.deliver_all()
    return sandbox


def fork(world: World, source: SandboxId, key: str | None = None, **request: Any) -> SandboxId:
    return forking.fork(world.core, world.caller, source, ForkSandbox.model_validate(request), key).sandbox


def snapshot_of(world: World, child: SandboxId) -> Snapshot | None:
    taken = world.sandbox(child).from_snapshot
    assert taken is not None
    return world.memory.get(Snapshot, Snapshot.key_of(taken))


def nothing_is_left(world: World) -> None:
    assert world.rows(Snapshot) == []
    assert world.rows(SnapshotUse) == []
    assert {(tally.count, tally.bytes) for tally in world.rows(SnapshotTally)} <= {(0, 0)}


def test_it_waits_outside_the_queue_until_there_is_something_to_start_from(world: World, backend: FakeBackend):
    backend.snapshot_seconds = 330.0
    child = fork(world, running(world))
    for _ in range(3):
        world.deliver_all()
        world.pass_time(60)
    assert (world.status(child), world.rows(QueueRow)) == (Status.QUEUED, [])
    assert world.sandbox(child).queue_deadline is None, "its patience does not count yet"

    for _ in range(3):
        world.pass_time(60)

    assert world.status(child) is Status.RUNNING
    nothing_is_left(world)


def test_a_step_that_comes_too_early_changes_nothing(world: World, backend: FakeBackend):
    child = fork(world, running(world))
    before = world.sandbox(child)
    worker.step(world.core, child)

    assert world.sandbox(child) == before


def test_a_step_that_comes_twice_joins_the_queue_once(world: World, backend: FakeBackend):
    child = fork(world, running(world))
    found = snapshot_of(world, child)
    assert found is not None
    capturing.step(world.core, found.id)
    worker.step(world.core, child)
    worker.step(world.core, child)
    assert [row.sandbox for row in world.rows(QueueRow)] == [child]
    world.deliver_all()

    assert world.status(child) is Status.RUNNING


def test_a_snapshot_that_was_deleted_by_hand_ends_the_fork(world: World, backend: FakeBackend):
    child = fork(world, running(world))
    found = snapshot_of(world, child)
    assert found is not None
    snapshots.delete(world.core, world.caller, found.id)
    world.deliver_all()
    world.pass_time(60)

    ended = world.sandbox(child)
    assert ended.status is Status.FAILED
    assert ended.reason is not None
    assert ended.reason.code == "snapshot_failed"
    assert backend.calls[Operation.SNAPSHOT] == 0
    nothing_is_left(world)


def test_a_snapshot_that_was_deleted_when_it_was_ready_is_still_forked_from(world: World, backend: FakeBackend):
    """A snapshot in use is not removed under it."""
    child = fork(world, running(world))
    found = snapshot_of(world, child)
    assert found is not None
    capturing.step(world.core, found.id)
    snapshots.delete(world.core, world.caller, found.id)
    world.deliver_all()
    world.pass_time(60)

    assert world.status(child) is Status.RUNNING
    nothing_is_left(world)


def test_a_source_that_leaves_before_the_capture_fails_the_fork(world: World, backend: FakeBackend):
    source = running(world)
    child = fork(world, source)
    world.delete(source)
    world.bag.messages.reverse()
    world.deliver_all()
    world.pass_time(60)

    assert (world.status(child), world.status(source)) == (Status.FAILED, Status.TERMINATED)
    nothing_is_left(world)


def test_a_fork_of_a_fork_and_of_its_source_are_three(world: World, backend: FakeBackend):
    source = running(world)
    child = fork(world, source)
    world.deliver_all()
    others = [fork(world, child), fork(world, source)]
    world.deliver_all()

    assert {world.status(one) for one in (source, child, *others)} == {Status.RUNNING}
    assert len({instance.ref for instance in backend.instances()}) == 4
    nothing_is_left(world)


def test_a_delete_that_overtakes_the_acceptance_wins():
    interrupted: list[Interrupted] = []

    def wrap(memory: MemoryStore) -> Interrupted:
        interrupted.append(Interrupted(memory))
        return interrupted[0]

    world = World(wrap=wrap)
    world.add_pool()
    source = running(world)
    interrupted[0].before("snapshot", lambda: world.delete(source))

    with pytest.raises(InvalidState):
        fork(world, source)

    nothing_is_left(world)
    assert [row.id for row in world.rows(Sandbox)] == [source]


def test_a_refused_fork_has_no_side_effect(world: World, backend: FakeBackend):
    world.caller = world.tenant(*world.add_tenant(org=Limits(snapshots_max=1)))
    source = running(world)
    fork(world, source)
    before = world.memory.rows()

    with pytest.raises(QuotaExceeded):
        fork(world, source)

    assert world.memory.rows() == before


def test_a_key_that_is_free_again_forks_anew(world: World, backend: FakeBackend):
    source = running(world)
    first = fork(world, source, "k")
    sandboxes.delete(world.core, world.caller, first)
    second = fork(world, source, "k")
    world.deliver_all()
    world.pass_time(60)

    assert (world.status(first), world.status(second)) == (Status.TERMINATED, Status.RUNNING)
    nothing_is_left(world)


def test_a_snapshot_never_outlives_its_fork_by_more_than_a_look(world: World, backend: FakeBackend):
    """reliability.md I4: temporary snapshots are eventually gone, although every message is lost."""
    child = fork(world, running(world))
    world.deliver_all()
    other = fork(world, child)
    for _ in range(2):
        world.lose_messages()
        world.pass_time(60)
    sandboxes.delete(world.core, world.caller, other)
    world.lose_messages()
    for _ in range(3):
        world.pass_time(capturing.USE_SECONDS)

    nothing_is_left(world)
    assert backend.snapshots() == []
    assert SnapshotStatus.READY not in {row.status for row in world.rows(Snapshot)}
