"""Calling off a stop or pause, and preemption of idle sandboxes by work that waits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from differently_adapters.providers.fake import FakeBackend, LoseAnswer, LoseCall, TooLate
from differently_core.contract import Operation, Unsupported
from differently_core.errors import InvalidState
from differently_core.model.exec import ExecRequest
from differently_core.model.quota import Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.operations import execution, moves, moving, pools, preemption, sandboxes, tenants, worker
from differently_core.operations.dispatch import dispatch
from differently_core.runtime.ids import SandboxId
from tests.support.world import OPERATOR, World


def running(world: World, **request: object) -> SandboxId:
    sandbox = world.create(**request)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def ask(world: World, sandbox: SandboxId, kind: MoveKind) -> Sandbox:
    return moves.ask(world.core, world.caller, sandbox, kind)


def held(world: World) -> int:
    assert world.held(Scope.ORG, world.org.id) == world.held(Scope.POOL, "pool")
    return world.held(Scope.POOL, "pool")


def without_call_off(world: World) -> None:
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    adapter.operations = {**adapter.operations, Operation.CALL_OFF: Unsupported("not_here")}  # type: ignore[misc]


def limit_to(world: World, sandboxes_max: int) -> None:
    total = Size.unlimited().model_copy(update={"sandboxes": sandboxes_max})
    tenants.set_quota(world.core, OPERATOR, world.org.id, None, Limits(total=total))


# Calling off.


@pytest.fixture
def slow(world: World) -> FakeBackend:
    return world.add_pool(backend=FakeBackend(world.clock, move_seconds=200.0))


def pausing(world: World, kind: MoveKind = MoveKind.PAUSE) -> SandboxId:
    sandbox = running(world)
    ask(world, sandbox, kind)
    worker.step(world.core, sandbox)
    world.lose_messages()
    assert world.status(sandbox) in (Status.PAUSING, Status.STOPPING)
    return sandbox


def test_a_resume_calls_a_pause_off_and_the_same_incarnation_goes_on(world: World, slow: FakeBackend):
    """features.md 2 #61: never restored, never started cold."""
    sandbox = pausing(world)
    before = slow.instances()[0].incarnation

    asked = ask(world, sandbox, MoveKind.RESUME)
    assert asked.status is Status.PAUSING
    assert sandboxes.view(world.caller, asked).move.wanted_back is True  # type: ignore[union-attr]
    assert ask(world, sandbox, MoveKind.RESUME) == asked
    with pytest.raises(InvalidState):
        ask(world, sandbox, MoveKind.PAUSE)
    world.deliver_all()

    assert world.status(sandbox) is Status.RUNNING
    assert (slow.instances()[0].incarnation, slow.calls[Operation.RESUME], slow.calls[Operation.CALL_OFF]) == (
        before,
        0,
        1,
    )
    assert held(world) == 1
    world.pass_time(300)
    assert world.status(sandbox) is Status.RUNNING, "and it stays"


def test_one_that_the_backend_was_not_told_of_yet_just_stays(world: World, slow: FakeBackend):
    sandbox = running(world)
    ask(world, sandbox, MoveKind.PAUSE)
    ask(world, sandbox, MoveKind.RESUME)
    world.deliver_all()

    assert world.status(sandbox) is Status.RUNNING
    assert (slow.calls[Operation.PAUSE], slow.calls[Operation.CALL_OFF]) == (0, 0)


@pytest.mark.parametrize("how", ["too late", "not offered", "never arrived"])
def test_where_it_is_too_late_it_comes_to_its_end_and_back_in_turn(world: World, slow: FakeBackend, how: str):
    """features.md 2 #61: elsewhere it waits in the resume queue."""
    sandbox = pausing(world)
    if how == "not offered":
        without_call_off(world)
    else:
        slow.expect(Operation.CALL_OFF, TooLate() if how == "too late" else LoseCall())

    ask(world, sandbox, MoveKind.RESUME)
    for _ in range(10):
        world.pass_time(40)

    assert world.status(sandbox) is Status.RUNNING
    assert slow.calls[Operation.RESUME] == 1
    assert slow.calls[Operation.CALL_OFF] == (0 if how == "not offered" else 1)
    assert held(world) == 1


def test_a_call_off_whose_answer_was_lost_is_observed(world: World, slow: FakeBackend):
    sandbox = pausing(world)
    slow.expect(Operation.CALL_OFF, LoseAnswer())

    ask(world, sandbox, MoveKind.RESUME)
    world.deliver_all()
    world.pass_time(2)

    assert world.status(sandbox) is Status.RUNNING
    assert (slow.calls[Operation.CALL_OFF], slow.calls[Operation.RESUME]) == (1, 0)


@pytest.mark.parametrize(("kind", "back"), [(MoveKind.STOP, MoveKind.START), (MoveKind.PAUSE, MoveKind.RESUME)])
def test_without_room_it_waits_once_it_rests(world: World, slow: FakeBackend, kind: MoveKind, back: MoveKind):
    without_call_off(world)
    slow.move_seconds = 80.0
    limit_to(world, 1)
    sandbox = pausing(world, kind)
    world.clock.advance(1)
    other = world.create(priority=9)
    world.deliver_all()

    ask(world, sandbox, back)
    pools.probe_all(world.core)  # an answer that did not come speaks against the pool
    for _ in range(6):
        world.pass_time(50)

    assert (world.status(sandbox), world.status(other)) == (Status.QUEUED, Status.RUNNING)
    assert held(world) == 1
    world.delete(other)
    for _ in range(6):
        world.deliver_all()
        world.pass_time(50)
    assert world.status(sandbox) is Status.RUNNING


def test_a_delete_wins_over_a_call_off(world: World, slow: FakeBackend):
    sandbox = pausing(world)
    ask(world, sandbox, MoveKind.RESUME)
    world.delete(sandbox)
    world.deliver_all()

    assert world.status(sandbox) is Status.TERMINATED
    assert held(world) == 0


def test_a_use_calls_off_a_pause_of_what_was_idle(world: World, slow: FakeBackend):
    sandbox = running(world, idleTimeoutSeconds=60)
    world.clock.advance(90)
    worker.step(world.core, sandbox)
    worker.step(world.core, sandbox)
    assert world.status(sandbox) is Status.PAUSING

    execution.run(world.core, world.caller, sandbox, ExecRequest(command="true"))

    assert world.status(sandbox) is Status.RUNNING
    assert (slow.calls[Operation.CALL_OFF], slow.calls[Operation.RESUME]) == (1, 0)


# Preemption.


@dataclass
class Tight:
    """A pool with room for one, which a preemptible sandbox has."""

    world: World
    backend: FakeBackend
    sandbox: SandboxId


@pytest.fixture
def tight(world: World) -> Tight:
    backend = world.add_pool(concurrency=1)
    return Tight(world, backend, running(world, preemptible=True, ttlSeconds=86_400))


def test_waiting_work_pauses_an_idle_preemptible_one_which_wakes_in_its_turn(tight: Tight):
    """features.md 1: preemption; features.md 2 #56."""
    world = tight.world
    world.pass_time(90)
    waiting = world.create()
    world.deliver_all()

    found = world.sandbox(tight.sandbox)
    assert (found.status, found.idled) == (Status.PAUSED, True)
    assert found.reason is not None
    assert (found.reason.code, found.reason.source) == ("preempted", "policy")
    assert world.status(waiting) is Status.RUNNING
    assert held(world) == 1

    with pytest.raises(InvalidState, match="queued"):
        execution.run(world.core, world.caller, tight.sandbox, ExecRequest(command="true"))
    world.delete(waiting)
    world.deliver_all()
    assert world.status(tight.sandbox) is Status.RUNNING


def test_one_that_was_used_a_moment_ago_is_left_alone(tight: Tight):
    world = tight.world
    world.pass_time(60)
    execution.run(world.core, world.caller, tight.sandbox, ExecRequest(command="true"))
    waiting = world.create()

    world.pass_time(60)
    assert (world.status(tight.sandbox), world.status(waiting)) == (Status.RUNNING, Status.QUEUED)
    world.pass_time(60)
    assert (world.status(tight.sandbox), world.status(waiting)) == (Status.PAUSED, Status.RUNNING)


def test_a_busy_one_is_never_preempted(tight: Tight):
    """features.md 2 #61: preemption in the middle of a command."""
    world = tight.world
    request = ExecRequest(command="x", timeout_seconds=3000)
    execution.start_job(world.core, world.caller, tight.sandbox, request, "long")
    waiting = world.create()
    stream = execution.stream(world.core, world.caller, tight.sandbox, ExecRequest(command="x", timeout_seconds=800))
    next(stream)

    for _ in range(20):
        world.pass_time(60)

    assert (world.status(tight.sandbox), world.status(waiting)) == (Status.RUNNING, Status.QUEUED)


def test_one_that_did_not_agree_is_never_preempted(world: World):
    world.add_pool(concurrency=1)
    sandbox = running(world)
    waiting = world.create()

    for _ in range(5):
        world.pass_time(60)

    assert (world.status(sandbox), world.status(waiting)) == (Status.RUNNING, Status.QUEUED)


def test_no_more_are_preempted_than_wait(world: World):
    backend = world.add_pool(backend=FakeBackend(world.clock, move_seconds=100.0), concurrency=3)
    before = [running(world, preemptible=True) for _ in range(3)]
    world.pass_time(90)
    world.create()
    world.deliver_all()
    for _ in range(3):
        dispatch(world.core)
    assert backend.calls[Operation.PAUSE] == 1

    assert sorted(world.status(sandbox) for sandbox in before) == [Status.PAUSING, Status.RUNNING, Status.RUNNING]


def test_for_a_full_quota_one_of_the_same_project_makes_room(world: World, backend: FakeBackend):
    limit_to(world, 1)
    sandbox = running(world, preemptible=True)
    world.pass_time(90)

    waiting = world.create()
    world.deliver_all()

    assert (world.status(sandbox), world.status(waiting)) == (Status.PAUSED, Status.RUNNING)


def test_a_use_before_the_preemption_wins(tight: Tight):
    """Both ways round: here the use was first."""
    world = tight.world
    world.clock.advance(90)
    decided_on = world.sandbox(tight.sandbox)
    execution.run(world.core, world.caller, tight.sandbox, ExecRequest(command="true"))

    assert preemption._preempt(world.core, [decided_on], 1) == 0
    assert world.status(tight.sandbox) is Status.RUNNING


def test_a_preemption_before_the_use_wins_and_the_use_calls_it_off(tight: Tight):
    world = tight.world
    world.clock.advance(90)
    decided_on = world.sandbox(tight.sandbox)
    assert preemption._preempt(world.core, [decided_on], 1) == 1

    execution.run(world.core, world.caller, tight.sandbox, ExecRequest(command="true"))

    assert world.status(tight.sandbox) is Status.RUNNING


def test_a_worker_of_the_older_intent_has_nothing_more_to_say(world: World, slow: FakeBackend):
    """It saw the pause end; meanwhile a resume was asked for. Its outcome is not written over the newer wish."""
    sandbox = pausing(world)
    stale = world.sandbox(sandbox)
    assert stale.move is not None
    without_call_off(world)
    ask(world, sandbox, MoveKind.RESUME)
    world.clock.advance(200)
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    seen = adapter.get(moving._target(world.core, stale))

    moving._rest(world.core, stale, stale.move, seen, adapter)
    assert world.status(sandbox) is Status.PAUSING
    world.deliver_all()
    for _ in range(6):
        world.pass_time(50)

    assert world.status(sandbox) is Status.RUNNING
