"""The crash matrix of ports, snapshots, restores and forks: each dies at every write and call, and is put right."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend, LoseAnswer, LoseCall, Refuse, Revert
from differently_core.contract import Operation
from differently_core.errors import DifferentlyError, SandboxFailed
from differently_core.model.sandbox import Sandbox, Status
from differently_core.model.snapshot import Snapshot, SnapshotStatus
from differently_core.operations import capturing, forking, ports, snapshots, worker
from differently_core.operations.dispatch import dispatch
from differently_core.operations.forking import ForkSandbox
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.runtime.ids import SandboxId, SnapshotId

from .processes import Killed
from .test_crash_matrix import DOWN, Act, Scenario, Stage, dies_everywhere


def _take(stage: Stage, sandbox: SandboxId, **asked: Any) -> SnapshotId:
    request = TakeSnapshot.model_validate(asked)
    return snapshots.take(stage.world.core, stage.world.caller, sandbox, request, "k").snapshot


def _ready(stage: Stage) -> SnapshotId:
    snapshot = _take(stage, stage.sandbox(Status.RUNNING))
    stage.world.deliver_all()
    assert _row(stage, snapshot).status is SnapshotStatus.READY
    return snapshot


def _row(stage: Stage, snapshot: SnapshotId) -> Snapshot:
    found = stage.world.memory.get(Snapshot, Snapshot.key_of(snapshot))
    assert found is not None
    return found


def _expose(*faults: Any) -> Any:
    def prepare(stage: Stage) -> Act:
        sandbox = stage.sandbox(Status.RUNNING)
        stage.backends["pool"].expect(Operation.PORT_EXPOSE, *faults)
        return lambda: ports.expose(stage.world.core, stage.world.caller, sandbox, 3000, 600)

    return prepare


def _close(*faults: Any) -> Any:
    def prepare(stage: Stage) -> Act:
        sandbox = stage.sandbox(Status.RUNNING)
        ports.expose(stage.world.core, stage.world.caller, sandbox, 3000, 600)
        stage.backends["pool"].expect(Operation.PORT_REVOKE, *faults)
        return lambda: ports.close(stage.world.core, stage.world.caller, sandbox, 3000)

    return prepare


def _port_of_the_deleted(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING)
    ports.expose(stage.world.core, stage.world.caller, sandbox, 3000, 600)
    stage.world.delete(sandbox)
    return lambda: ports.step(stage.world.core, sandbox, 3000)


def _accept(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING)
    return lambda: _take(stage, sandbox)


def _capture(*faults: Any) -> Any:
    def prepare(stage: Stage) -> Act:
        snapshot = _take(stage, stage.sandbox(Status.RUNNING))
        stage.backends["pool"].expect(Operation.SNAPSHOT, *faults)
        return lambda: capturing.step(stage.world.core, snapshot)

    return prepare


def _capture_again(stage: Stage) -> Act:
    """The first answer was lost; the second step is the one that dies."""
    act = _capture(LoseAnswer())(stage)
    act()
    stage.world.lose_messages()
    stage.world.clock.advance(5)
    return act  # type: ignore[no-any-return]


def _remove(*faults: Any) -> Any:
    def prepare(stage: Stage) -> Act:
        snapshot = _ready(stage)
        snapshots.delete(stage.world.core, stage.world.caller, snapshot)
        stage.backends["pool"].expect(Operation.SNAPSHOT_DELETE, *faults)
        return lambda: capturing.step(stage.world.core, snapshot)

    return prepare


def _remove_what_nobody_saw(stage: Stage) -> Act:
    """The capture's answer was lost before the delete came."""
    act = _capture(LoseAnswer())(stage)
    act()
    (snapshot,) = [row.id for row in stage.world.rows(Snapshot)]
    snapshots.delete(stage.world.core, stage.world.caller, snapshot)
    stage.world.lose_messages()
    stage.world.clock.advance(5)
    return act  # type: ignore[no-any-return]


def _delete(stage: Stage) -> Act:
    snapshot = _ready(stage)
    return lambda: snapshots.delete(stage.world.core, stage.world.caller, snapshot)


def _retire(stage: Stage) -> Act:
    snapshot = _take(stage, stage.sandbox(Status.RUNNING), retentionSeconds=3600)
    stage.world.deliver_all()
    stage.world.clock.advance(3600)
    return lambda: capturing.step(stage.world.core, snapshot)


def _break(stage: Stage) -> Act:
    snapshot = _ready(stage)
    backend = stage.backends["pool"]
    FakeBackend.drop_snapshot(backend, backend.snapshots()[0])
    stage.world.clock.advance(6 * 3600)
    capturing.step(stage.world.core, snapshot)
    stage.world.clock.advance(60)
    return lambda: capturing.step(stage.world.core, snapshot)


def _clean_up_the_failed(stage: Stage) -> Act:
    act = _capture(Revert())(stage)
    act()
    stage.world.lose_messages()
    return act  # type: ignore[no-any-return]


def _restore(stage: Stage) -> Act:
    snapshot = _ready(stage)
    return lambda: stage.world.create("r", snapshotId=snapshot)


def _restoring(*faults: Any) -> Any:
    def prepare(stage: Stage) -> Act:
        sandbox = stage.world.create("r", snapshotId=_ready(stage))
        stage.world.lose_messages()
        stage.backends["pool"].expect(Operation.CREATE, *faults)
        return lambda: worker.step(stage.world.core, sandbox)

    return prepare


def _restore_what_was_lost(stage: Stage) -> Act:
    act = _restoring()(stage)
    backend = stage.backends["pool"]
    FakeBackend.drop_snapshot(backend, backend.snapshots()[0])
    return act  # type: ignore[no-any-return]


def _end_a_restore(stage: Stage) -> Act:
    sandbox = stage.world.create("r", snapshotId=_ready(stage))
    stage.world.delete(sandbox)
    stage.world.lose_messages()
    return lambda: worker.step(stage.world.core, sandbox)


def _fork(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING)
    request = ForkSandbox(env={"A": "1"})
    return lambda: forking.fork(stage.world.core, stage.world.caller, sandbox, request, "f")


def _forked(stage: Stage) -> Sandbox:
    """A fork that was accepted."""
    child = forking.fork(stage.world.core, stage.world.caller, stage.sandbox(Status.RUNNING), ForkSandbox(), "f")
    stage.world.lose_messages()
    return stage.world.sandbox(child.sandbox)


def _capture_for_a_fork(stage: Stage) -> Act:
    snapshot = _forked(stage).from_snapshot
    assert snapshot is not None
    return lambda: capturing.step(stage.world.core, snapshot)


def _join(stage: Stage) -> Act:
    child = _forked(stage)
    assert child.from_snapshot is not None
    capturing.step(stage.world.core, child.from_snapshot)
    stage.world.lose_messages()
    return lambda: worker.step(stage.world.core, child.id)


def _admit_a_fork(stage: Stage) -> Act:
    act = _join(stage)
    act()
    stage.world.lose_messages()
    return lambda: dispatch(stage.world.core)


def _make_a_fork(stage: Stage) -> Act:
    _admit_a_fork(stage)()
    stage.world.lose_messages()
    (child,) = [row.id for row in stage.world.rows(Sandbox) if row.forked_from is not None]
    return lambda: worker.step(stage.world.core, child)


def _retire_for_a_fork(stage: Stage) -> Act:
    _make_a_fork(stage)()
    stage.world.lose_messages()
    (snapshot,) = [row.id for row in stage.world.rows(Snapshot)]
    return lambda: capturing.step(stage.world.core, snapshot)


def _fail_a_fork(stage: Stage) -> Act:
    child = _forked(stage)
    assert child.from_snapshot is not None
    stage.backends["pool"].expect(Operation.SNAPSHOT, Revert())
    capturing.step(stage.world.core, child.from_snapshot)
    stage.world.lose_messages()
    return lambda: worker.step(stage.world.core, child.id)


BROKEN = Refuse(SandboxFailed("It cannot be captured.", settled=True))
SCENARIOS = (
    Scenario("open a port", _expose()),
    Scenario("open a port, refused", _expose(DOWN)),
    Scenario("open a port, answer lost", _expose(LoseAnswer())),
    Scenario("close a port", _close()),
    Scenario("close a port, refused", _close(DOWN)),
    Scenario("a port of a deleted sandbox", _port_of_the_deleted),
    Scenario("accept a snapshot", _accept),
    Scenario("capture", _capture()),
    Scenario("capture, backend down", _capture(DOWN)),
    Scenario("capture, failed", _capture(BROKEN)),
    Scenario("capture, reverted", _capture(Revert())),
    Scenario("capture, answer lost", _capture(LoseAnswer())),
    Scenario("capture, never arrived", _capture(LoseCall())),
    Scenario("capture again", _capture_again),
    Scenario("clean up the failed", _clean_up_the_failed),
    Scenario("delete a snapshot", _delete),
    Scenario("remove a snapshot", _remove()),
    Scenario("remove a snapshot, refused", _remove(DOWN)),
    Scenario("remove a snapshot, answer lost", _remove(LoseAnswer())),
    Scenario("remove what nobody saw", _remove_what_nobody_saw),
    Scenario("retire", _retire),
    Scenario("break", _break),
    Scenario("restore", _restore),
    Scenario("restoring", _restoring()),
    Scenario("restoring, answer lost", _restoring(LoseAnswer())),
    Scenario("restoring, not idempotent", _restoring(LoseAnswer()), idempotent=False),
    Scenario("restoring what was lost", _restore_what_was_lost),
    Scenario("end a restore", _end_a_restore),
    Scenario("fork", _fork),
    Scenario("capture for a fork", _capture_for_a_fork),
    Scenario("a fork joins the queue", _join),
    Scenario("a fork is admitted", _admit_a_fork),
    Scenario("a fork is made", _make_a_fork),
    Scenario("the snapshot of a fork goes", _retire_for_a_fork),
    Scenario("a fork fails", _fail_a_fork),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_an_operation_that_dies_anywhere_is_put_right(scenario: Scenario):
    dies_everywhere(scenario)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_fork_that_died_is_repeated_with_its_key(at: int):
    """users/reports.md S1: whatever became of the first call, there is one child."""
    stage = Stage(idempotent=True)
    source = stage.sandbox(Status.RUNNING)
    world = stage.world
    with stage.fuse.lit(at), suppress(Killed, DifferentlyError):
        forking.fork(world.core, world.caller, source, ForkSandbox(), "k")

    again = forking.fork(world.core, world.caller, source, ForkSandbox(), "k")
    world.lose_messages()
    for _ in range(4):
        world.pass_time(60)

    assert [row.id for row in world.rows(Sandbox) if row.id != source] == [again.sandbox]
    assert world.status(again.sandbox) is Status.RUNNING
    stage.end_all()
