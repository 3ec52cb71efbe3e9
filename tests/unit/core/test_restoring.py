"""A restore against a delete that comes just before it, and against two of its worker's steps."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import LoseCall
from differently_core.contract import Operation
from differently_core.errors import InvalidState, NotFound
from differently_core.model.quota import Limits
from differently_core.model.resources import Size
from differently_core.model.sandbox import Sandbox, Status
from differently_core.model.snapshot import Snapshot, SnapshotUse
from differently_core.operations import capturing, sandboxes, snapshots, tenants, worker
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.runtime.ids import SnapshotId
from differently_core.store.memory import MemoryStore
from tests.support.interruptions import Interrupted
from tests.support.world import OPERATOR, World


class Stage:
    def __init__(self) -> None:
        stores: list[Interrupted] = []

        def wrap(memory: MemoryStore) -> Interrupted:
            stores.append(Interrupted(memory))
            return stores[0]

        self.world = World(wrap=wrap)
        self.store = stores[0]
        self.backend = self.world.add_pool()
        source = self.world.create()
        self.world.deliver_all()
        self.snapshot = snapshots.take(self.world.core, self.world.caller, source, TakeSnapshot()).snapshot
        self.world.deliver_all()
        self.source = source

    def delete(self) -> None:
        snapshots.delete(self.world.core, self.world.caller, self.snapshot)

    def uses(self) -> list[SnapshotId]:
        return [row.snapshot for row in self.world.rows(SnapshotUse)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.parametrize("room", [True, False], ids=["quiet", "busy"])
def test_a_delete_that_overtakes_a_restore_wins(stage: Stage, room: bool):
    """Issue 4: what is held is not deleted, so what is being deleted is not held."""
    world = stage.world
    if not room:
        full = Limits(total=Size.unlimited().model_copy(update={"sandboxes": 1}))
        tenants.set_quota(world.core, OPERATOR, world.org.id, None, full)
    stage.store.before("use", stage.delete)

    with pytest.raises(InvalidState, match="being deleted"):
        world.create(snapshotId=stage.snapshot)

    assert [row.id for row in world.rows(Sandbox)] == [stage.source]
    assert stage.uses() == []
    world.deliver_all()
    assert world.rows(Snapshot) == []


def test_a_snapshot_that_went_altogether_before_the_write_is_not_found(stage: Stage):
    def go() -> None:
        stage.delete()
        stage.world.deliver_all()

    stage.store.before("use", go)
    with pytest.raises(NotFound):
        stage.world.create(snapshotId=stage.snapshot)

    assert [row.id for row in stage.world.rows(Sandbox)] == [stage.source]


def test_a_restore_that_is_tried_again_holds_its_snapshot_all_the_while(stage: Stage):
    world = stage.world
    stage.backend.expect(Operation.CREATE, LoseCall())
    child = world.create(snapshotId=stage.snapshot)
    stage.delete()
    worker.step(world.core, child)
    capturing.step(world.core, stage.snapshot)
    assert (world.status(child), stage.uses(), len(stage.backend.snapshots())) == (
        Status.PROVISIONING, [stage.snapshot], 1,
    )  # fmt: skip
    for _ in range(4):
        world.pass_time(60)

    assert (world.status(child), stage.uses(), stage.backend.snapshots()) == (Status.RUNNING, [], [])


def test_two_steps_at_once_let_go_once(stage: Stage):
    """The worker stood still after it had admitted the sandbox, and another one came."""
    world = stage.world
    child = world.create(snapshotId=stage.snapshot)
    stage.store.before("attempt", lambda: worker.step(world.core, child))
    worker.step(world.core, child)
    world.deliver_all()
    assert (world.status(child), stage.uses()) == (Status.RUNNING, [])

    sandboxes.delete(world.core, world.caller, child)
    world.deliver_all()
    assert (world.status(child), stage.uses()) == (Status.TERMINATED, [])
