"""What a pool keeps without running is bounded: its places are taken and given back with the moves, exactly once."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import FakeBackend, LoseAnswer, Refuse
from differently_core.contract import InstanceState, Operation
from differently_core.errors import InvalidState, ProviderUnavailable, QuotaExceeded
from differently_core.model.quota import Counter, Scope
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.operations import moves, pool_changes, pool_release, reconcile
from differently_core.runtime.ids import SandboxId
from tests.support.world import OPERATOR, World


def bounded(world: World, places: int | None = 1, **more: object) -> FakeBackend:
    backend = world.add_pool(backend=FakeBackend(world.clock), **more)  # type: ignore[arg-type]
    set_bound(world, places)
    return backend


def set_bound(world: World, places: int | None) -> None:
    pool_changes.change(world.core, OPERATOR, "pool", {"max_retained": places})


def running(world: World, **request: object) -> SandboxId:
    sandbox = world.create(**request)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def ask(world: World, sandbox: SandboxId, kind: MoveKind) -> Sandbox:
    return moves.ask(world.core, world.caller, sandbox, kind)


def kept(world: World) -> int:
    return world.counter(Scope.POOL, "pool").retained


@pytest.mark.parametrize(("away", "back"), [(MoveKind.STOP, MoveKind.START), (MoveKind.PAUSE, MoveKind.RESUME)])
def test_a_place_is_held_from_the_call_that_puts_to_rest_until_it_runs_again(
    world: World, away: MoveKind, back: MoveKind
):
    bounded(world)
    sandbox = running(world)
    for _ in range(3):
        ask(world, sandbox, away)
        assert kept(world) == 1
        world.deliver_all()
        assert (world.sandbox(sandbox).retained, kept(world), world.held(Scope.POOL, "pool")) == (True, 1, 0)
        ask(world, sandbox, back)
        assert kept(world) == 1, "its disk or memory is there until it runs"
        world.deliver_all()
        assert (world.status(sandbox), kept(world)) == (Status.RUNNING, 0)


def test_where_no_place_is_left_the_call_says_what_to_do_and_nothing_moves(world: World):
    backend = bounded(world)
    first, second = running(world), running(world)
    ask(world, first, MoveKind.PAUSE)
    world.deliver_all()
    with pytest.raises(QuotaExceeded) as refused:
        ask(world, second, MoveKind.STOP)
    assert refused.value.details == {"scope": "pool", "resource": "retained", "limit": 1, "held": 1}
    assert "maxRetained" in refused.value.message
    world.deliver_all()
    assert (world.status(second), world.sandbox(second).generation) == (Status.RUNNING, 1)
    assert backend.calls[Operation.STOP] == 0

    world.delete(first)
    world.deliver_all()
    ask(world, second, MoveKind.STOP)
    world.deliver_all()
    assert (world.status(second), kept(world)) == (Status.STOPPED, 1)


def test_a_pool_that_keeps_nothing_says_so(world: World):
    bounded(world, 0)
    sandbox = running(world)
    with pytest.raises(QuotaExceeded):
        ask(world, sandbox, MoveKind.PAUSE)
    set_bound(world, None)
    ask(world, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    assert world.status(sandbox) is Status.PAUSED


def test_a_lower_bound_ends_nothing_and_lets_nothing_more_to_rest(world: World):
    bounded(world, 3)
    resting = [running(world), running(world)]
    for sandbox in resting:
        ask(world, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    third = running(world)
    set_bound(world, 1)
    assert [world.status(sandbox) for sandbox in resting] == [Status.PAUSED] * 2
    counter = world.counter(Scope.POOL, "pool")
    assert (counter.free_retained, counter.limit_retained, counter.retained) == (-1, 1, 2)
    with pytest.raises(QuotaExceeded):
        ask(world, third, MoveKind.PAUSE)


@pytest.mark.parametrize("fault", [Refuse(), LoseAnswer()])
def test_a_move_that_comes_to_nothing_gives_its_place_back(world: World, fault: Refuse | LoseAnswer):
    backend = bounded(world)
    sandbox = running(world)
    backend.expect(Operation.PAUSE, fault)
    ask(world, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    for _ in range(20):
        world.pass_time(60.0)
    resting = world.status(sandbox) is Status.PAUSED
    assert kept(world) == (1 if resting else 0)
    assert world.sandbox(sandbox).retained is resting


def test_a_refused_wake_keeps_its_place(world: World):
    backend = bounded(world)
    sandbox = running(world)
    ask(world, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    backend.expect(Operation.RESUME, Refuse(ProviderUnavailable("Not now.", settled=True)))
    ask(world, sandbox, MoveKind.RESUME)
    world.deliver_all()
    assert (world.status(sandbox), kept(world)) == (Status.PAUSED, 1)


def test_what_rests_by_itself_is_counted_whatever_the_bound(world: World):
    backend = bounded(world, 0)
    sandbox = running(world)
    backend.instances()[0].state = InstanceState.STOPPED
    for _ in range(3):
        world.clock.advance(60.0)
        reconcile.reconcile_all(world.core)
    world.deliver_all()
    counter = world.counter(Scope.POOL, "pool")
    assert (world.status(sandbox), counter.retained, counter.free_retained) == (Status.STOPPED, 1, -1)
    world.delete(sandbox)
    world.deliver_all()
    assert kept(world) == 0


def test_an_idle_one_runs_on_while_nothing_more_is_kept_and_says_why(world: World):
    bounded(world)
    resting, idle = running(world), running(world, idleTimeoutSeconds=60)
    ask(world, resting, MoveKind.PAUSE)
    world.deliver_all()
    written = world.sandbox(idle).version
    for _ in range(10):
        world.pass_time(20.0)
    found = world.sandbox(idle)
    assert (found.status, found.reason.code if found.reason else None) == (Status.RUNNING, "retained_full")
    assert found.version - written <= 4, "looked at once a minute, not at every sweep"
    world.delete(resting)
    world.deliver_all()
    for _ in range(4):
        world.pass_time(20.0)
    assert world.status(idle) is Status.PAUSED


def test_a_full_pool_of_rest_does_not_keep_an_idle_one_beyond_its_time(world: World):
    bounded(world, 0)
    sandbox = running(world, idleTimeoutSeconds=60, ttlSeconds=130)
    for _ in range(7):
        world.pass_time(20.0)
    assert world.status(sandbox) is Status.TERMINATED


def test_nothing_is_preempted_where_nothing_more_is_kept(world: World):
    bounded(world, 0, concurrency=1)
    spare = running(world, preemptible=True)
    world.clock.advance(200.0)
    world.create()
    world.deliver_all()
    assert world.status(spare) is Status.RUNNING
    set_bound(world, 1)
    world.deliver_all()
    assert world.status(spare) is Status.PAUSED


def test_what_may_be_left_of_one_at_rest_keeps_its_place_until_it_is_proved_gone(world: World):
    backend = bounded(world)
    sandbox = running(world)
    ask(world, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    backend.expect(Operation.DELETE, *[Refuse()] * 3)
    backend.instances()[0].state = InstanceState.ERROR
    for _ in range(2):
        world.clock.advance(60.0)
        reconcile.reconcile_all(world.core)
    world.deliver_all()
    assert (world.status(sandbox), kept(world)) == (Status.FAILED, 1)
    with pytest.raises(InvalidState):
        pool_release.remove(world.core, OPERATOR, "pool")
    for _ in range(30):
        world.pass_time(60.0)
    assert kept(world) == 0
    pool_release.remove(world.core, OPERATOR, "pool")


def test_a_removal_by_force_gives_every_place_back(world: World):
    bounded(world, 2)
    sandbox = running(world)
    ask(world, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    pool_release.remove(world.core, OPERATOR, "pool", force=True)
    assert world.status(sandbox) is Status.FAILED
    assert world.memory.get(Counter, Counter.key_of(Scope.POOL, "pool")) is None
