"""A forced removal dies at every write, and called again it goes on where it was: nothing is counted twice or lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from differently_core.errors import DifferentlyError, InvalidState
from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.pool import Pool
from differently_core.model.quota import Scope
from differently_core.model.sandbox import ENDED, Sandbox, Status
from differently_core.model.snapshot import SnapshotTally
from differently_core.operations import pool_release, snapshots
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome, StoreUnavailable
from tests.support.world import OPERATOR, World


class Dying:
    """Ends whoever writes for the n-th time: before the write, or after it, with its answer lost."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self.left: int | None = None
        self.after = False

    def transact(self, actions: Sequence[Action]) -> Outcome:
        if self.left is None or self.left > 1:
            self.left = self.left - 1 if self.left is not None else None
            return self._memory.transact(actions)
        self.left = None
        if self.after:
            self._memory.transact(actions)
        raise StoreUnavailable("no answer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


def laden() -> tuple[World, Dying]:
    """Three sandboxes: one with a snapshot, one that cannot be deleted since the backend is down, one that runs."""
    dying: list[Dying] = []

    def wrap(memory: MemoryStore) -> Any:
        dying.append(Dying(memory))
        return dying[0]

    world = World(wrap=wrap)
    world.add_pool(concurrency=4)
    made = [world.create() for _ in range(3)]
    world.deliver_all()
    snapshots.take(world.core, world.caller, made[0], TakeSnapshot())
    world.deliver_all()
    world.pools.backend("pool").up = False
    world.delete(made[1])
    world.deliver_all()
    return world, dying[0]


def remove(world: World) -> bool:
    try:
        pool_release.remove(world.core, OPERATOR, "pool", force=True)
    except InvalidState:
        return False
    return True


@pytest.mark.parametrize("after", [False, True], ids=["before", "answer lost"])
@pytest.mark.parametrize("place", range(1, 9))
def test_a_forced_removal_that_dies_goes_on_when_it_is_called_again(place: int, after: bool) -> None:
    world, dying = laden()
    dying.left, dying.after = place, after
    try:
        done = remove(world)
    except DifferentlyError:
        done = False
    dying.left = None
    for _ in range(3):
        world.deliver_all()
        world.pass_time(60)
        if done or world.memory.get(Pool, Pool.key_of("pool")) is None:
            break
        done = remove(world)

    assert world.memory.get(Pool, Pool.key_of("pool")) is None
    assert {sandbox.status for sandbox in world.rows(Sandbox)} <= set(ENDED)
    assert {attempt.status for attempt in world.rows(Attempt)} == {AttemptState.SETTLED}
    assert all(tally.count == 0 for tally in world.rows(SnapshotTally))
    for scope, name in ((Scope.ORG, world.org.id), (Scope.PROJECT, world.project.id)):
        assert world.held(scope, name) == 0
    assert Status.TERMINATED in {sandbox.status for sandbox in world.rows(Sandbox)}
