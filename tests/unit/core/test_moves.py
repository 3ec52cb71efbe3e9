"""Stop, start, pause and resume: what is accepted, what the backend is told, and what becomes of every answer."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from differently_adapters.providers.fake import (
    FakeBackend,
    FakeInstance,
    Fault,
    Ignored,
    Late,
    LoseAnswer,
    LoseCall,
    Refuse,
    Revert,
    Slow,
    Vanish,
)
from differently_adapters.providers.fake.backend import ExecFunction
from differently_core.contract import CommandResult, InstanceState, Operation, Unsupported
from differently_core.errors import (
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    QueueFull,
    QuotaExceeded,
    SandboxFailed,
    Suspended,
    UnsupportedOperation,
)
from differently_core.model.attempt import AttemptState
from differently_core.model.event import Event
from differently_core.model.exec import ExecRequest
from differently_core.model.pool import PoolState
from differently_core.model.queue import QueueRow
from differently_core.model.quota import Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import AGAIN, BACK, WAYS, MoveKind, Sandbox, Status
from differently_core.operations import execution, moves, moving, pools, reconcile, sandboxes, standing, tenants, worker
from differently_core.operations.requests import UpdateSandbox
from differently_core.runtime.ids import SandboxId
from tests.support.world import OPERATOR, World

OPERATIONS = {
    MoveKind.STOP: Operation.STOP,
    MoveKind.START: Operation.START,
    MoveKind.PAUSE: Operation.PAUSE,
    MoveKind.RESUME: Operation.RESUME,
}
LEAVING = (MoveKind.STOP, MoveKind.PAUSE)
WAKING = (MoveKind.START, MoveKind.RESUME)
DOWN = Refuse(ProviderUnavailable("Connection refused.", settled=True))


def ask(world: World, sandbox: SandboxId, kind: MoveKind) -> Sandbox:
    return moves.ask(world.core, world.caller, sandbox, kind)


def before(world: World, kind: MoveKind, **request: object) -> SandboxId:
    """A sandbox that is where the move begins."""
    sandbox = world.create(**request)
    world.deliver_all()
    if kind in WAKING:
        ask(world, sandbox, MoveKind.STOP if kind is MoveKind.START else MoveKind.PAUSE)
        world.deliver_all()
    assert world.status(sandbox) is WAYS[kind].before
    return sandbox


def held(world: World) -> list[int]:
    scopes = ((Scope.ORG, world.org.id), (Scope.PROJECT, world.project.id), (Scope.POOL, "pool"))
    return [world.held(scope, name) for scope, name in scopes]


def told(world: World, sandbox: SandboxId) -> list[str]:
    return [event.action for event in world.rows(Event) if event.target == sandbox]


def limit_to(world: World, sandboxes_max: int, queued_max: int = 10) -> None:
    total = Size.unlimited().model_copy(update={"sandboxes": sandboxes_max})
    tenants.set_quota(world.core, OPERATOR, world.org.id, None, Limits(total=total, queued_max=queued_max))


@pytest.mark.parametrize("kind", MoveKind)
def test_a_move_is_written_before_the_backend_hears_of_it(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind)
    calls = backend.calls[OPERATIONS[kind]]
    generation = world.sandbox(sandbox).generation

    asked = ask(world, sandbox, kind)

    assert asked == world.sandbox(sandbox)
    assert (asked.status, asked.generation) == (WAYS[kind].during, generation + 1)
    assert asked.move is not None
    assert asked.move.operation.startswith("op_")
    assert asked.due_at is not None
    assert backend.calls[OPERATIONS[kind]] == calls

    world.deliver_all()

    after = world.sandbox(sandbox)
    assert (after.status, after.move, after.claim) == (WAYS[kind].after, None, None)
    assert backend.calls[OPERATIONS[kind]] == calls + 1
    assert told(world, sandbox)[-2:] == [f"sandbox.{kind}", f"sandbox.{after.status}"]


def test_data_survives_a_stop_and_the_instance_is_the_same(world: World, backend: FakeBackend):
    """features.md 1, lifecycle: stop/start, data survives."""
    sandbox = before(world, MoveKind.STOP)
    execution.write_file(world.core, world.caller, sandbox, "kept", [b"kept"])
    (instance,) = backend.instances()

    for kind in (MoveKind.STOP, MoveKind.START, MoveKind.STOP, MoveKind.START):
        ask(world, sandbox, kind)
        world.deliver_all()

    content = execution.read_file(world.core, world.caller, sandbox, "kept")
    assert b"".join(content.chunks) == b"kept"
    assert world.sandbox(sandbox).backend_ref == instance.ref
    assert world.sandbox(sandbox).conditions.reachable is not None


@pytest.mark.parametrize("kind", LEAVING)
def test_what_it_held_comes_back_only_when_the_backend_has_finished(world: World, backend: FakeBackend, kind: MoveKind):
    """features.md 2 #56 and #60: a checkpointing pool frees the slot when the checkpoint is written."""
    backend.move_seconds = 200.0
    sandbox = before(world, kind)

    ask(world, sandbox, kind)
    worker.step(world.core, sandbox)
    assert world.status(sandbox) is WAYS[kind].during
    assert held(world) == [1, 1, 1]

    world.pass_time(200)

    assert world.status(sandbox) is WAYS[kind].after
    assert held(world) == [0, 0, 0]
    assert world.sandbox(sandbox).reservation is None
    assert [attempt.status for attempt in world.attempts(sandbox)] == [AttemptState.LIVE]


@pytest.mark.parametrize("kind", MoveKind)
def test_a_repeated_call_is_no_second_move(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind)
    calls = backend.calls[OPERATIONS[kind]]

    first = ask(world, sandbox, kind)
    again = ask(world, sandbox, kind)
    world.deliver_all()
    after = ask(world, sandbox, kind)

    assert again == first
    assert (after.status, after.move) == (WAYS[kind].after, None)
    assert backend.calls[OPERATIONS[kind]] == calls + 1


@pytest.mark.parametrize("kind", MoveKind)
@pytest.mark.parametrize("status", [Status.QUEUED, Status.PROVISIONING, Status.TERMINATING, Status.TERMINATED])
def test_what_never_ran_or_is_gone_is_not_moved(world: World, backend: FakeBackend, kind: MoveKind, status: Status):
    if status is Status.QUEUED:
        limit_to(world, 1)
        world.create()
    sandbox = world.create()
    if status in (Status.TERMINATING, Status.TERMINATED):
        world.deliver_all()
        world.delete(sandbox)
    if status is Status.TERMINATED:
        world.deliver_all()

    with pytest.raises(InvalidState) as refused:
        ask(world, sandbox, kind)

    assert refused.value.details == {"status": status.value}


@pytest.mark.parametrize(
    ("at", "kind", "hint"),
    [
        (MoveKind.START, MoveKind.PAUSE, "/start"),
        (MoveKind.START, MoveKind.RESUME, "/start"),
        (MoveKind.RESUME, MoveKind.STOP, "/resume"),
        (MoveKind.RESUME, MoveKind.START, "/resume"),
    ],
)
def test_the_wrong_move_says_which_is_right(
    world: World, backend: FakeBackend, at: MoveKind, kind: MoveKind, hint: str
):
    sandbox = before(world, at)

    with pytest.raises(InvalidState, match=hint):
        ask(world, sandbox, kind)


def test_another_tenants_sandbox_is_not_found(world: World, backend: FakeBackend):
    sandbox = before(world, MoveKind.STOP)
    stranger = world.tenant(*world.add_tenant())

    with pytest.raises(NotFound):
        moves.ask(world.core, stranger, sandbox, MoveKind.STOP)


@pytest.mark.parametrize("kind", MoveKind)
def test_a_pool_that_cannot_is_told_by_operation_pool_and_adapter(world: World, kind: MoveKind):
    """features.md 1: an optional operation that is missing is 501 with operation, pool and adapter."""
    world.add_pool()
    sandbox = before(world, MoveKind.STOP)
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    declared = {**adapter.operations, OPERATIONS[kind]: Unsupported("not_here")}
    adapter.operations = declared  # type: ignore[misc]  # of this one instance

    with pytest.raises(UnsupportedOperation) as refused:
        ask(world, sandbox, kind)

    assert refused.value.details == {
        "operation": kind.value, "pool": "pool", "adapter": "fake", "reason": "not_here",
    }  # fmt: skip


# Commands.


@pytest.mark.parametrize("kind", LEAVING)
@pytest.mark.parametrize("arrived", [False, True])
def test_no_work_goes_into_what_is_leaving_or_rests(world: World, backend: FakeBackend, kind: MoveKind, arrived: bool):
    """features.md 2 #61: exec and files during a pause worked, and their work was gone afterwards."""
    sandbox = before(world, kind)
    ask(world, sandbox, kind)
    if arrived:
        world.deliver_all()
    calls: list[Callable[[], object]] = [
        lambda: execution.run(world.core, world.caller, sandbox, ExecRequest(command="true")),
        lambda: execution.stream(world.core, world.caller, sandbox, ExecRequest(command="true")),
        lambda: execution.start_job(world.core, world.caller, sandbox, ExecRequest(command="true"), "j"),
        lambda: execution.read_file(world.core, world.caller, sandbox, "a"),
        lambda: execution.write_file(world.core, world.caller, sandbox, "a", [b"x"]),
    ]
    commands = backend.calls[Operation.EXEC]

    for call in calls:
        with pytest.raises(InvalidState):
            call()

    assert backend.calls[Operation.EXEC] == commands


# Outcomes.


@pytest.mark.parametrize("kind", MoveKind)
@pytest.mark.parametrize(
    "error",
    [
        ProviderUnavailable("Connection refused.", settled=True),
        SandboxFailed("It cannot be done.", settled=True),
        UnsupportedOperation("It never begins.", operation="pause", pool="pool", adapter="fake"),
    ],
)
def test_what_was_refused_is_where_it_was_with_the_reason(
    world: World, backend: FakeBackend, kind: MoveKind, error: DifferentlyError
):
    """features.md 2 #13 and #61: a failed pause goes back to running."""
    sandbox = before(world, kind)
    backend.expect(OPERATIONS[kind], Refuse(error))

    ask(world, sandbox, kind)
    world.deliver_all()

    found = world.sandbox(sandbox)
    assert (found.status, found.move) == (WAYS[kind].before, None)
    assert found.reason is not None
    assert (found.reason.code, found.reason.source) == (error.code, "backend")
    assert held(world) == ([0, 0, 0] if kind in WAKING else [1, 1, 1])
    ask(world, sandbox, kind)
    pools.probe_all(world.core)
    world.deliver_all()
    assert world.status(sandbox) is WAYS[kind].after, "and it can be asked again"


@pytest.mark.parametrize("kind", MoveKind)
@pytest.mark.parametrize("fault", [LoseAnswer(), LoseAnswer(inf)])
def test_a_lost_answer_is_observed_and_the_backend_is_told_once(
    world: World, backend: FakeBackend, kind: MoveKind, fault: Fault
):
    sandbox = before(world, kind)
    calls = backend.calls[OPERATIONS[kind]]
    backend.expect(OPERATIONS[kind], fault)

    ask(world, sandbox, kind)
    world.deliver_all()
    assert world.status(sandbox) is WAYS[kind].during
    world.pass_time(2)

    assert world.status(sandbox) is WAYS[kind].after
    assert backend.calls[OPERATIONS[kind]] == calls + 1


@pytest.mark.parametrize("kind", MoveKind)
def test_a_call_that_never_arrived_leaves_it_where_it_was(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind)
    calls = backend.calls[OPERATIONS[kind]]
    backend.expect(OPERATIONS[kind], LoseCall())

    ask(world, sandbox, kind)
    world.deliver_all()
    for _ in range(60):
        world.pass_time(2)

    found = world.sandbox(sandbox)
    assert found.status is WAYS[kind].before
    assert found.reason is not None
    assert found.reason.code == f"{kind}_failed"
    assert backend.calls[OPERATIONS[kind]] == calls + 1
    assert held(world) == ([0, 0, 0] if kind in WAKING else [1, 1, 1])


@pytest.mark.parametrize("kind", MoveKind)
def test_one_that_takes_long_is_waited_for(world: World, backend: FakeBackend, kind: MoveKind):
    """features.md 2 #53: a checkpoint of a large sandbox takes minutes."""
    sandbox = before(world, kind)
    backend.expect(OPERATIONS[kind], Slow(80.0 if kind in (MoveKind.STOP, MoveKind.START) else 400.0))

    ask(world, sandbox, kind)
    for _ in range(10):
        world.deliver_all()
        world.pass_time(40)

    assert world.status(sandbox) is WAYS[kind].after
    assert len(backend.instances()) == 1


@pytest.mark.parametrize("kind", [MoveKind.PAUSE, MoveKind.RESUME])
def test_one_that_never_ends_is_over_at_its_deadline(world: World, backend: FakeBackend, kind: MoveKind):
    """reliability.md I7: a transient state has a deadline and does not outlive it."""
    sandbox = before(world, kind)
    backend.expect(OPERATIONS[kind], Ignored())

    ask(world, sandbox, kind)
    world.deliver_all()
    world.pass_time(838)
    assert world.status(sandbox) is WAYS[kind].during
    world.pass_time(2)

    assert world.status(sandbox) is WAYS[kind].before
    assert held(world) == ([0, 0, 0] if kind in WAKING else [1, 1, 1])


@pytest.mark.parametrize("kind", MoveKind)
def test_one_that_fails_half_way_is_where_it_was(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind)
    backend.expect(OPERATIONS[kind], Revert(5.0))

    ask(world, sandbox, kind)
    world.deliver_all()

    assert world.status(sandbox) is WAYS[kind].before


@pytest.mark.parametrize("kind", MoveKind)
def test_a_broken_instance_ends_at_once_not_at_the_deadline(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind)
    ask(world, sandbox, kind)
    (instance,) = backend.instances()
    instance.state = InstanceState.ERROR

    world.deliver_all()

    found = world.sandbox(sandbox)
    assert found.status is Status.FAILED
    assert found.reason is not None
    assert found.reason.code == "instance_error"
    world.pass_time(60)
    assert held(world) == [0, 0, 0]
    assert backend.instances() == []


@pytest.mark.parametrize("kind", MoveKind)
def test_an_instance_that_vanishes_on_the_way_is_lost(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind)
    backend.expect(OPERATIONS[kind], Vanish())

    ask(world, sandbox, kind)
    for _ in range(4):
        world.deliver_all()
        reconcile.reconcile_all(world.core)
        world.pass_time(31)

    found = world.sandbox(sandbox)
    assert found.status is Status.FAILED
    assert found.reason is not None
    assert found.reason.code == "instance_lost"
    assert held(world) == [0, 0, 0]


def test_a_pool_that_cannot_be_reached_keeps_an_open_move_open(world: World, backend: FakeBackend):
    """What became of the call is not known, so nothing is claimed; it is known when the pool is back."""
    sandbox = before(world, MoveKind.STOP)
    backend.expect(Operation.STOP, LoseAnswer())
    ask(world, sandbox, MoveKind.STOP)
    world.deliver_all()
    backend.up = False

    for _ in range(20):
        world.pass_time(60)
    assert world.status(sandbox) is Status.STOPPING
    assert held(world) == [1, 1, 1]
    backend.up = True
    world.pass_time(60)

    assert world.status(sandbox) is Status.STOPPED
    assert held(world) == [0, 0, 0]


def test_a_worker_that_died_before_its_call_is_not_taken_for_one_that_called(world: World, backend: FakeBackend):
    sandbox = before(world, MoveKind.PAUSE)
    ask(world, sandbox, MoveKind.PAUSE)
    found = world.sandbox(sandbox)
    assert found.move is not None
    seen = world.pools.adapter(world.core.catalog.pool("pool")).get(moving._target(world.core, found))
    moving._claimed(world.core, found, found.move, seen)
    world.lose_messages()

    world.pass_time(66)

    after = world.sandbox(sandbox)
    assert after.status is Status.RUNNING
    assert after.reason is not None
    assert after.reason.code == "pause_failed"
    assert backend.calls[Operation.PAUSE] == 0


# Races.


@pytest.mark.parametrize("kind", MoveKind)
def test_a_delete_wins_over_a_move_in_the_middle(world: World, backend: FakeBackend, kind: MoveKind):
    """reliability.md I6: not even a finishing resume brings a deleted sandbox back."""
    sandbox = before(world, kind, env={"A": "1"})
    backend.move_seconds = 10.0
    backend.exec_function = _deleting(world, sandbox, backend.exec_function)
    ask(world, sandbox, kind)
    if kind not in WAKING:
        world.delete(sandbox)
    world.deliver_all()
    world.pass_time(10)

    assert world.status(sandbox) is Status.TERMINATED
    assert held(world) == [0, 0, 0]
    assert backend.instances() == []


def _deleting(world: World, sandbox: SandboxId, run: ExecFunction) -> ExecFunction:
    """A delete arrives while the probe runs: after the backend has woken it, before we have written it down."""

    def deleting(instance: FakeInstance, request: ExecRequest) -> CommandResult:
        world.delete(sandbox)
        return run(instance, request)

    return deleting


@pytest.mark.parametrize("kind", MoveKind)
def test_a_changed_label_does_not_hold_a_move_up(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind)
    ask(world, sandbox, kind)
    found = world.sandbox(sandbox)
    sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(labels={"team": "red"}))

    moving._look_again(world.core, found)
    world.deliver_all()

    after = world.sandbox(sandbox)
    assert (after.status, after.labels) == (WAYS[kind].after, {"team": "red"})


@pytest.mark.parametrize("kind", MoveKind)
def test_a_time_to_live_ends_it_on_its_way_and_at_rest(world: World, backend: FakeBackend, kind: MoveKind):
    """The time to live of a paused sandbox goes on."""
    sandbox = before(world, kind, ttlSeconds=100)
    backend.expect(OPERATIONS[kind], Ignored())
    ask(world, sandbox, kind)
    world.deliver_all()

    world.pass_time(100)

    assert world.status(sandbox) is Status.TERMINATED
    assert held(world) == [0, 0, 0]


@pytest.mark.parametrize("kind", WAKING)
def test_a_time_to_live_ends_it_while_it_waits_to_be_woken(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind, ttlSeconds=100)
    limit_to(world, 0)
    ask(world, sandbox, kind)

    world.pass_time(100)

    assert world.status(sandbox) is Status.TERMINATED
    assert world.rows(QueueRow) == []


# Waking.


@pytest.mark.parametrize("kind", WAKING)
def test_who_wakes_without_room_waits_and_is_let_in_to_its_own_pool(world: World, backend: FakeBackend, kind: MoveKind):
    """features.md 1: pause A at limit 1, queued B runs; resume A waits in the queue. users/reports.md S7."""
    limit_to(world, 1)
    sandbox = before(world, kind)
    other = world.create()
    world.deliver_all()
    assert world.status(other) is Status.RUNNING
    world.add_pool("other")

    asked = ask(world, sandbox, kind)

    assert (asked.status, asked.pool) == (Status.QUEUED, "pool")
    assert asked.move is not None
    assert asked.move.kind is kind
    assert [row.wakes_on for row in world.rows(QueueRow)] == ["pool"]
    world.deliver_all()
    assert world.status(sandbox) is Status.QUEUED
    world.delete(other)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    assert held(world) == [1, 1, 1]
    assert world.rows(QueueRow) == []


@pytest.mark.parametrize("kind", WAKING)
def test_a_new_one_does_not_overtake_who_waits_to_be_woken(world: World, backend: FakeBackend, kind: MoveKind):
    """reliability.md I13."""
    limit_to(world, 1)
    sandbox = before(world, kind)
    first = world.create()
    world.deliver_all()
    ask(world, sandbox, kind)
    world.deliver_all()
    world.clock.advance(1)
    late = world.create()
    world.deliver_all()

    world.delete(first)
    world.deliver_all()

    assert (world.status(sandbox), world.status(late)) == (Status.RUNNING, Status.QUEUED)


@pytest.mark.parametrize("kind", WAKING)
@pytest.mark.parametrize("waits", [False, True])
def test_a_draining_pool_still_wakes_what_it_keeps(world: World, backend: FakeBackend, kind: MoveKind, waits: bool):
    """A draining pool takes nothing new and still serves what it holds."""
    sandbox = before(world, kind)
    if waits:
        limit_to(world, 0)
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)

    ask(world, sandbox, kind)
    world.deliver_all()
    if waits:
        assert world.status(sandbox) is Status.QUEUED
        limit_to(world, 1)
        world.pass_time(60)

    assert world.status(sandbox) is Status.RUNNING
    assert held(world) == [1, 1, 1]


@pytest.mark.parametrize("kind", WAKING)
def test_who_loses_its_patience_rests_again(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind, queueTimeoutSeconds=30)
    limit_to(world, 0)
    ask(world, sandbox, kind)

    world.pass_time(30)

    found = world.sandbox(sandbox)
    assert (found.status, found.move) == (WAYS[kind].before, None)
    assert found.reason is not None
    assert found.reason.code == "queue_timeout"
    assert world.rows(QueueRow) == []


@pytest.mark.parametrize("kind", WAKING)
def test_who_does_not_want_to_wait_is_refused_and_stays(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox = before(world, kind, queueTimeoutSeconds=0)
    limit_to(world, 0)
    as_it_was = world.sandbox(sandbox)

    with pytest.raises(QuotaExceeded):
        ask(world, sandbox, kind)

    assert world.sandbox(sandbox) == as_it_was


def test_a_suspended_organization_wakes_nothing(world: World, backend: FakeBackend):
    sandbox = before(world, MoveKind.START)
    standing.suspend(world.core, OPERATOR, world.org.id, None, "unpaid")

    with pytest.raises(Suspended, match="unpaid"):
        ask(world, sandbox, MoveKind.START)

    assert world.status(sandbox) is Status.STOPPED


def test_a_backlog_that_is_full_refuses_to_wake(world: World, backend: FakeBackend):
    sandbox = before(world, MoveKind.START)
    limit_to(world, 1, queued_max=1)
    for _ in range(2):
        world.create()
    world.deliver_all()

    with pytest.raises(QueueFull):
        ask(world, sandbox, MoveKind.START)


@pytest.mark.parametrize(("kind", "back"), [(MoveKind.START, MoveKind.STOP), (MoveKind.RESUME, MoveKind.PAUSE)])
def test_who_waits_to_be_woken_can_be_put_to_rest_again(
    world: World, backend: FakeBackend, kind: MoveKind, back: MoveKind
):
    sandbox = before(world, kind)
    limit_to(world, 0)
    ask(world, sandbox, kind)

    rested = ask(world, sandbox, back)

    assert (rested.status, rested.move) == (WAYS[kind].before, None)
    assert world.rows(QueueRow) == []
    limit_to(world, 5)
    world.pass_time(60)
    assert world.status(sandbox) is WAYS[kind].before


def test_a_backend_without_room_to_start_it_makes_it_wait(world: World):
    room = Size.unlimited().model_copy(update={"cpu_millis": 1000})
    backend = world.add_pool(backend=FakeBackend(world.clock, room=room))
    sandbox = before(world, MoveKind.START)
    backend.expect(Operation.START, Refuse(InsufficientCapacity("Full.")))

    ask(world, sandbox, MoveKind.START)
    worker.step(world.core, sandbox)
    found = world.sandbox(sandbox)
    assert (found.status, found.pool) == (Status.QUEUED, "pool")
    assert held(world) == [0, 0, 0]
    world.pass_time(2)

    assert world.status(sandbox) is Status.RUNNING


def test_a_delete_of_one_that_waits_to_be_woken_takes_its_instance(world: World, backend: FakeBackend):
    sandbox = before(world, MoveKind.RESUME)
    limit_to(world, 0)
    ask(world, sandbox, MoveKind.RESUME)

    world.delete(sandbox)
    world.deliver_all()

    assert world.status(sandbox) is Status.TERMINATED
    assert backend.instances() == []
    assert world.rows(QueueRow) == []


# The reconciler.


@pytest.mark.parametrize(("state", "status"), [("stopped", Status.STOPPED), ("paused", Status.PAUSED)])
def test_what_rests_as_expected_is_no_finding(world: World, backend: FakeBackend, state: str, status: Status):
    kind = MoveKind.STOP if status is Status.STOPPED else MoveKind.PAUSE
    sandbox = before(world, kind)
    ask(world, sandbox, kind)
    world.deliver_all()

    (report,) = reconcile.reconcile_all(world.core)

    assert (report.suspects, report.followed) == (0, 0)
    assert world.attempts(sandbox)[-1].rests is status


@pytest.mark.parametrize("kind", WAKING)
@pytest.mark.parametrize("room", [True, False])
def test_one_that_woke_by_itself_is_admitted_and_never_runs_on_without_quota(
    world: World, backend: FakeBackend, kind: MoveKind, room: bool
):
    sandbox = before(world, kind)
    (instance,) = backend.instances()
    instance.state = InstanceState.RUNNING
    if not room:
        limit_to(world, 0)

    for _ in range(3):
        reconcile.reconcile_all(world.core)
        world.pass_time(31)

    assert world.status(sandbox) is (Status.RUNNING if room else Status.QUEUED)
    assert held(world) == ([1, 1, 1] if room else [0, 0, 0])


@pytest.mark.parametrize("kind", LEAVING)
def test_a_late_stop_or_pause_is_followed(world: World, backend: FakeBackend, kind: MoveKind):
    """It was given up, and happens after all."""
    sandbox = before(world, kind)
    backend.expect(OPERATIONS[kind], Late(950.0))
    ask(world, sandbox, kind)
    world.deliver_all()
    for _ in range(60):
        world.pass_time(15)
    assert world.status(sandbox) is Status.RUNNING

    for _ in range(6):
        reconcile.reconcile_all(world.core)
        world.pass_time(31)

    assert world.status(sandbox) is WAYS[kind].after
    assert held(world) == [0, 0, 0]


def test_fifty_cycles_leave_one_instance_and_nothing_else(world: World, backend: FakeBackend):
    """Issue 4, item 3: pause and resume leave a constant number of artifacts."""
    sandbox = before(world, MoveKind.PAUSE, ttlSeconds=86_400)
    rows = None
    for _ in range(50):
        for kind in (MoveKind.PAUSE, MoveKind.RESUME):
            ask(world, sandbox, kind)
            world.deliver_all()
        kept = len([row for row in world.memory.rows().values() if not isinstance(row, Event)])
        assert rows in (None, kept)
        rows = kept

    assert len(backend.instances()) == 1
    assert held(world) == [1, 1, 1]


# What it may reach.


@pytest.mark.parametrize("kind", WAKING)
def test_what_it_may_reach_is_set_again_before_it_runs_again(world: World, backend: FakeBackend, kind: MoveKind):
    """Egress rules of an instance may go with its stop; nothing runs in one that is not known to be confined."""
    sandbox = before(world, kind, egress={"allow": ["example.com"]})
    (instance,) = backend.instances()
    instance.egress = None
    backend.expect(Operation.EGRESS_SET, DOWN)

    ask(world, sandbox, kind)
    world.deliver_all()
    assert world.status(sandbox) is WAYS[kind].during
    world.pass_time(2)

    assert world.status(sandbox) is Status.RUNNING
    assert instance.egress is not None
    assert instance.egress.allow == ("example.com",)


@pytest.mark.parametrize("kind", LEAVING)
@pytest.mark.parametrize("way", ["comes back by itself", "is called off"])
def test_one_that_began_to_rest_goes_on_only_confined(world: World, backend: FakeBackend, kind: MoveKind, way: str):
    """Found by the simulator (seeds 1002 and 1019): the backend had lost the rules when it came back."""
    sandbox = before(world, kind, egress={"allow": ["example.com"]})
    (instance,) = backend.instances()
    backend.expect(OPERATIONS[kind], Revert(5.0))
    backend.plan = lambda call: DOWN if call.operation is Operation.EGRESS_SET else None
    ask(world, sandbox, kind)
    world.deliver_all()
    if way == "is called off":
        backend.expect(Operation.CALL_OFF, LoseCall())
        ask(world, sandbox, BACK[kind])
    instance.egress = None

    for _ in range(60):
        world.pass_time(2)
    assert world.status(sandbox) is WAYS[kind].during, "it runs, and what it may reach is not known"

    backend.plan = lambda call: None
    for _ in range(60):
        world.pass_time(2)
    assert world.status(sandbox) is Status.RUNNING
    assert instance.egress is not None


@pytest.mark.parametrize("kind", LEAVING)
def test_one_that_began_to_rest_and_cannot_be_confined_is_told_to_rest_until_it_does(
    world: World, backend: FakeBackend, kind: MoveKind
):
    sandbox = before(world, kind, egress={"allow": ["example.com"]})
    backend.expect(OPERATIONS[kind], Revert(5.0))
    backend.plan = lambda call: DOWN if call.operation is Operation.EGRESS_SET else None
    ask(world, sandbox, kind)
    for _ in range(40):
        world.pass_time(60)
    assert (world.status(sandbox), kept := world.sandbox(sandbox).retained) == (WAYS[kind].after, True), kept


def unconfined(
    world: World, backend: FakeBackend, kind: MoveKind, fault: Fault = DOWN
) -> tuple[SandboxId, FakeInstance]:  # fmt: skip
    """One that was woken without its rules, which cannot be set either; its wake has had its time."""
    backend.keeps_egress = False
    sandbox = before(world, kind, egress={"allow": ["example.com"]})
    (instance,) = backend.instances()
    backend.plan = lambda call: fault if call.operation is Operation.EGRESS_SET else None
    ask(world, sandbox, kind)
    world.deliver_all()
    assert (world.status(sandbox), instance.state) == (WAYS[kind].during, InstanceState.RUNNING)
    return sandbox, instance


@pytest.mark.parametrize("fault", [DOWN, LoseCall(), Ignored()])
@pytest.mark.parametrize("kind", WAKING)
def test_one_that_cannot_be_confined_is_told_to_rest_again_before_it_is_shown_at_rest(
    world: World, backend: FakeBackend, kind: MoveKind, fault: Fault
):
    """It runs at its backend: only that it was seen to rest gives its quota back."""
    sandbox, instance = unconfined(world, backend, kind, fault)
    rests = AGAIN[kind]
    backend.expect(OPERATIONS[rests], LoseAnswer())

    world.pass_time(world.core.tuning.move_seconds)
    world.deliver_all()
    assert (world.status(sandbox), held(world)) == (WAYS[rests].during, [1, 1, 1])

    world.pass_time(2)
    after = world.sandbox(sandbox)
    assert instance.state is not InstanceState.RUNNING
    assert (after.status, after.move, held(world)) == (WAYS[kind].before, None, [0, 0, 0])
    assert after.reason is not None
    assert after.reason.code == "egress_not_confirmed"
    assert told(world, sandbox)[-2:] == [f"sandbox.{rests}", f"sandbox.{after.status}"]
    (attempt,) = world.attempts(sandbox)
    assert attempt.rests is WAYS[kind].before


@pytest.mark.parametrize("kind", WAKING)
def test_one_that_will_not_rest_again_stays_on_its_way_with_what_it_holds(
    world: World, backend: FakeBackend, kind: MoveKind
):
    """A refused move to rest leads back to running everywhere else; here that would run it without its rules."""
    sandbox, instance = unconfined(world, backend, kind)
    rests = AGAIN[kind]
    backend.expect(OPERATIONS[rests], DOWN, Refuse(SandboxFailed("It cannot be done.", settled=True)), LoseCall())
    world.pass_time(world.core.tuning.move_seconds)

    for _ in range(4):
        world.deliver_all()
        assert (world.status(sandbox), held(world)) == (WAYS[rests].during, [1, 1, 1])
        assert instance.state is InstanceState.RUNNING
        world.pass_time(world.core.tuning.queue_look_seconds)
    for _ in range(6):
        world.pass_time(world.core.tuning.queue_look_seconds)

    assert instance.state is not InstanceState.RUNNING
    assert (world.status(sandbox), held(world)) == (WAYS[kind].before, [0, 0, 0])


@pytest.mark.parametrize("kind", WAKING)
def test_one_that_is_wanted_back_rests_first_and_runs_with_its_rules(
    world: World, backend: FakeBackend, kind: MoveKind
):
    """Calling the move to rest off would let it run as it is."""
    sandbox, instance = unconfined(world, backend, kind)
    backend.expect(OPERATIONS[AGAIN[kind]], DOWN, DOWN)
    world.pass_time(world.core.tuning.move_seconds)
    world.deliver_all()

    ask(world, sandbox, kind)
    world.deliver_all()
    assert world.status(sandbox) is WAYS[AGAIN[kind]].during
    assert backend.calls[Operation.CALL_OFF] == 0

    backend.plan = None
    for _ in range(4):
        world.pass_time(world.core.tuning.queue_look_seconds)
    assert world.status(sandbox) is Status.RUNNING
    assert instance.egress is not None
    assert instance.egress.allow == ("example.com",)


@pytest.mark.parametrize("kind", WAKING)
def test_one_that_can_neither_be_confined_nor_rest_ends(world: World, backend: FakeBackend, kind: MoveKind):
    sandbox, _ = unconfined(world, backend, kind)
    backend.expect(OPERATIONS[AGAIN[kind]], Refuse(UnsupportedOperation("The pool cannot do this.")))

    world.pass_time(world.core.tuning.move_seconds)
    world.deliver_all()

    after = world.sandbox(sandbox)
    assert after.status is Status.FAILED
    assert after.reason is not None
    assert after.reason.code == "egress_not_confirmed"
    assert backend.instances() == []


@pytest.mark.parametrize("kind", WAKING)
def test_rules_that_its_backend_refuses_put_it_to_rest_at_once(world: World, backend: FakeBackend, kind: MoveKind):
    backend.keeps_egress = False
    sandbox = before(world, kind, egress={"allow": ["example.com"]})
    (instance,) = backend.instances()
    backend.expect(Operation.EGRESS_SET, Refuse(InvalidRequest("No such rule.")))

    ask(world, sandbox, kind)
    world.deliver_all()

    after = world.sandbox(sandbox)
    assert (after.status, held(world)) == (WAYS[kind].before, [0, 0, 0])
    assert after.reason is not None
    assert after.reason.code == "invalid_request"
    assert instance.state is not InstanceState.RUNNING
