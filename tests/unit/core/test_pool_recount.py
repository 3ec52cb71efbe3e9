"""A pool's counter is compared with what holds it and put right: slots, places and debts."""

from __future__ import annotations

import logging

import pytest

from differently_adapters.providers.fake import FakeBackend, Refuse
from differently_core.contract import Operation
from differently_core.errors import NotFound
from differently_core.model.event import Event
from differently_core.model.quota import Counter, Scope
from differently_core.model.sandbox import MoveKind, Status
from differently_core.operations import moves, pool_recount, reconcile
from differently_core.operations.pool_recount import NOTHING
from differently_core.runtime.ids import SandboxId
from differently_core.store.ports import Delete, StoreThrottled, Update
from tests.support.world import OPERATOR, World

KEY = Counter.key_of(Scope.POOL, "pool")


@pytest.fixture
def backend(world: World) -> FakeBackend:
    return world.add_pool(backend=FakeBackend(world.clock))


def running(world: World) -> SandboxId:
    sandbox = world.create()
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def pausing(world: World, sandbox: SandboxId) -> None:
    moves.ask(world.core, world.caller, sandbox, MoveKind.PAUSE)


def bend(world: World, **add: int) -> None:
    world.memory.transact([Update(Counter, KEY, "counter", add={**add, "moves": 1})])


def count(world: World, *, correct: bool = True) -> pool_recount.PoolRecount:
    return pool_recount.recount(world.core, OPERATOR, "pool", correct=correct)


def everything_that_holds(world: World, backend: FakeBackend) -> tuple[int, int]:
    """One each: admitted and not begun, running, on its way to rest, at rest, and being removed against resistance."""
    running(world)
    resting, leaving, stuck = running(world), running(world), running(world)
    pausing(world, resting)
    world.deliver_all()
    backend.expect(Operation.DELETE, *[Refuse()] * 5)
    world.delete(stuck)
    world.deliver_all()
    pausing(world, leaving)
    world.create()
    world.lose_messages()
    return 4, 2


@pytest.mark.parametrize("seconds", [0, 200], ids=["by the log", "by the indexes"])
def test_everything_that_holds_is_found(world: World, backend: FakeBackend, seconds: int):
    slots, places = everything_that_holds(world, backend)
    world.clock.advance(seconds)
    done = count(world)
    assert (done.held.slots.sandboxes, done.held.retained, done.drift) == (slots, places, NOTHING)
    assert not done.corrected


@pytest.mark.parametrize("seconds", [0, 200])
def test_a_drift_is_corrected_and_told(
    world: World, backend: FakeBackend, seconds: int, caplog: pytest.LogCaptureFixture
):
    everything_that_holds(world, backend)
    world.clock.advance(seconds)
    right = world.counter(Scope.POOL, "pool")
    bend(world, free_sandboxes=-3, free_retained=1)
    looked = count(world, correct=False)
    assert (looked.drift.slots.sandboxes, looked.drift.retained, looked.corrected) == (3, -1, False)
    with caplog.at_level(logging.INFO, "differently_core"):
        assert count(world).corrected
    told = [record for record in caplog.records if record.msg == "pool recounted"][-1]
    assert (told.levelname, told.drift, told.pool) == ("ERROR", 4, "pool")  # type: ignore[attr-defined]
    now = world.counter(Scope.POOL, "pool")
    assert (now.held, now.retained) == (right.held, right.retained)
    assert [event.actor for event in world.rows(Event) if event.action == "pool.recount"] == [OPERATOR.actor]
    assert count(world).drift == NOTHING


def test_a_counter_that_is_gone_is_made_again(world: World, backend: FakeBackend):
    everything_that_holds(world, backend)
    right = world.counter(Scope.POOL, "pool")
    world.memory.transact([Delete(Counter, KEY, "counter")])
    assert count(world).corrected
    now = world.counter(Scope.POOL, "pool")
    assert (now.held, now.limit, now.retained, now.closed) == (right.held, right.limit, right.retained, None)


def test_a_pool_that_never_stands_still_is_left_alone(
    world: World, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
):
    running(world)
    bend(world, free_sandboxes=-1)
    reads = world.memory.get

    def busy(record: type[Counter], key: object) -> object:
        if record is Counter:
            bend(world)
        return reads(record, key)  # type: ignore[arg-type]

    monkeypatch.setattr(world.memory, "get", busy)
    with pytest.raises(StoreThrottled):
        count(world)


def test_there_is_nothing_to_count_of_a_pool_that_is_not_there(world: World):
    with pytest.raises(NotFound):
        count(world)


def test_once_an_hour_a_pass_counts_again_also_while_the_backend_is_down(world: World, backend: FakeBackend):
    running(world)
    reconcile.reconcile_all(world.core)
    bend(world, free_sandboxes=-2)
    backend.expect(Operation.LIST, *[Refuse()] * 10)
    world.clock.advance(1800)
    reconcile.reconcile_all(world.core)
    assert world.held(Scope.POOL, "pool") == 3
    world.clock.advance(1800)
    reconcile.reconcile_all(world.core)
    assert world.held(Scope.POOL, "pool") == 1
