"""Carrying out a move: tell the backend once, then only look, and write down what became of it.

Before the call the record says that it is being made, to which incarnation, under which operation. Three outcomes are
told apart. Confirmed: the sandbox is where it was asked to be; at rest it gives its quota back, in the same write.
Refused: it is where it was before, with the reason. Unknown: the same operation is observed until it is known, at the
latest until the move's deadline; from then on what the backend shows is the outcome. Nothing is ever repeated blindly.

One that woke and could not be confined is not where it was before: it runs. It is told to rest again, and holds its
quota until it is seen to rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from ..contract import (
    Adapter,
    Instance,
    InstanceState,
    Operation,
    Progress,
    Target,
    Transition,
    Transitioned,
    supports,
)
from ..errors import (
    BackendError,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    UnsupportedOperation,
)
from ..model.attempt import Attempt
from ..model.sandbox import AGAIN, BACK, Claim, Condition, Conditions, Move, MoveKind, Reason, Sandbox, Status
from ..store.ports import Action, Committed, Refused
from . import leases, retention, times
from .accounts import back_to_work, give_back
from .attempts import newest
from .backends import adapter_of, calling, mark_unhealthy, reachable, rest
from .confining import confined, confined_at
from .core import Core, system
from .ending import end, event_of, transfer, write, write_attempt
from .moves import new_move, queued, soon, waiting_row

log = logging.getLogger(__name__)
WORKER = system("worker")
STATES = {
    InstanceState.RUNNING: Status.RUNNING,
    InstanceState.STOPPED: Status.STOPPED,
    InstanceState.PAUSED: Status.PAUSED,
}


def carry_on(core: Core, sandbox: Sandbox) -> None:
    """The next step of a sandbox on its way; raises only for faults of the store."""
    move = sandbox.move
    assert move is not None
    if sandbox.claimed(core.clock.now()):
        return
    try:
        adapter = adapter_of(core, sandbox.pool or "")
    except BackendError as error:
        _unreached(core, sandbox, move, error)
        return
    if move.wanted_back and not move.unconfined and _is_called_off(core, sandbox, move, adapter):
        return
    if move.called_at is None:
        _begin(core, sandbox, move, adapter)
    else:
        _observe(core, sandbox, move, adapter)


def _target(core: Core, sandbox: Sandbox) -> Target:
    return Target(core.owner(sandbox.id), sandbox.backend_ref)


def _is_called_off(core: Core, sandbox: Sandbox, move: Move, adapter: Adapter) -> bool:
    """Give the move up, if that can still be; False when it has to come to its end first.

    The same incarnation goes on, or nothing is done: a backend that is too late finishes, and is woken again.
    """
    if move.called_at is None:
        _stay(core, sandbox, move)
        return True
    if move.kind is not MoveKind.PAUSE or move.call_off_at is not None or not supports(adapter, Operation.CALL_OFF):
        return False
    told = move.model_copy(update={"call_off_at": core.clock.now()})
    changed, put = write(sandbox, sandbox.with_(move=told, due_at=soon(core, sandbox)))
    if isinstance(core.store.transact([put]), Refused):
        core.nudges.worker(sandbox.id)
        return True
    transition = Transition(move.operation, move.incarnation)
    seconds = core.tuning.move_call_seconds
    try:
        answer = calling(adapter, lambda: adapter.call_off(_target(core, sandbox), transition, seconds))
    except DifferentlyError as error:
        log.info("call-off not confirmed", extra={"sandbox": sandbox.id, "error": error.message})
        _look_again(core, changed)
        return True
    if answer.progress is Progress.DONE and answer.instance.state is InstanceState.RUNNING:
        _stay(core, changed, told)
    else:
        _look_again(core, changed)  # too late for that: it comes to its end, and back
    return True


def _stay(core: Core, sandbox: Sandbox, move: Move) -> None:
    """It never rested: it goes on as it was, with what it holds."""
    if not _may_go_on(core, sandbox, move):
        return

    def decide(found: Sandbox) -> tuple[Sandbox, list[Action]]:
        running = found.with_(
            status=move.way.before, move=None, claim=None, reason=None, idled=False, last_activity_at=core.clock.now(),
            retained=False,
        )  # fmt: skip
        return times.at_large(core, running), list(back_to_work(found))

    _conclude(core, sandbox, decide)


def _begin(core: Core, sandbox: Sandbox, move: Move, adapter: Adapter) -> None:
    """Look at what is there, write down what is about to be done to it, and do it."""
    try:
        seen = calling(adapter, lambda: adapter.get(_target(core, sandbox)))
    except DifferentlyError as error:
        _unreached(core, sandbox, move, error)
        return
    if seen.state is InstanceState.ERROR:
        _failed(core, sandbox, seen)
    elif STATES.get(seen.state) is move.way.after and not seen.idle:
        _arrive(core, sandbox, move, seen, adapter)
    else:
        claimed = _claimed(core, sandbox, move, seen)
        if claimed is not None and claimed.move is not None:
            _call(core, claimed, claimed.move, adapter)


def _claimed(core: Core, sandbox: Sandbox, move: Move, seen: Instance) -> Sandbox | None:
    until = core.after(core.tuning.move_call_seconds + core.tuning.claim_margin_seconds)
    called = move.model_copy(update={"called_at": core.clock.now(), "incarnation": seen.incarnation})
    claim = Claim(owner=core.worker_name, until=until, generation=sandbox.generation)
    due = until if sandbox.expires_at is None else min(until, sandbox.expires_at)
    changed, put = write(sandbox, sandbox.with_(move=called, claim=claim, due_at=due))
    if isinstance(core.store.transact([put]), Refused):
        core.nudges.worker(sandbox.id)
        return None
    return changed


def _call(core: Core, sandbox: Sandbox, move: Move, adapter: Adapter) -> None:
    """The one call, in what is left of its time."""
    assert move.called_at is not None
    left = core.tuning.move_call_seconds - (core.clock.now() - move.called_at).total_seconds()
    if left <= 0:
        return  # this process stood still; whoever comes next observes that nothing began
    transition = Transition(move.operation, move.incarnation)
    try:
        told = calling(adapter, lambda: _tell(adapter, _target(core, sandbox), move, transition, left))
    except DifferentlyError as error:
        _answered(core, sandbox, move, adapter, error)
    else:
        _settle(core, sandbox, move, adapter, told)


def _tell(adapter: Adapter, target: Target, move: Move, transition: Transition, seconds: float) -> Transitioned:
    match move.kind:
        case MoveKind.PAUSE:
            return adapter.pause(target, transition, seconds)
        case MoveKind.RESUME:
            return adapter.resume(target, transition, seconds)
        case MoveKind.STOP:
            return _as_far(move, adapter.stop(target, seconds))
        case MoveKind.START:
            return _as_far(move, adapter.start(target, seconds))


def _as_far(move: Move, seen: Instance) -> Transitioned:
    done = STATES.get(seen.state) is move.way.after
    return Transitioned(Progress.DONE if done else Progress.UNDERWAY, seen)


def _observe(core: Core, sandbox: Sandbox, move: Move, adapter: Adapter) -> None:
    """How the one call stands; the backend is not told anything again."""
    target = _target(core, sandbox)
    try:
        told = calling(adapter, lambda: _look(core, adapter, target, move))
    except InvalidState:
        _take_what_is(core, sandbox, move, adapter, "The instance is in another state than the move left it in.")
    except DifferentlyError as error:
        _unreached(core, sandbox, move, error)
    else:
        _settle(core, sandbox, move, adapter, told)


def _look(core: Core, adapter: Adapter, target: Target, move: Move) -> Transitioned:
    if move.kind in (MoveKind.PAUSE, MoveKind.RESUME):
        transition = Transition(move.operation, move.incarnation, observe_only=True)
        return _tell(adapter, target, move, transition, core.tuning.look_seconds)
    told = _as_far(move, adapter.get(target))
    if told.progress is Progress.UNDERWAY and _has_settled(core, move) and told.instance.state in STATES:
        return Transitioned(Progress.FAILED, told.instance, f"The backend never did {move.kind} it.")
    return told


def _has_settled(core: Core, move: Move) -> bool:
    """A stop or start has no name by which the backend tells how it stands: after a while its not being done counts."""
    assert move.called_at is not None
    seconds = core.tuning.move_call_seconds + core.tuning.move_settles_seconds
    return core.clock.now() >= move.called_at + timedelta(seconds=seconds)


# Outcomes


def _settle(core: Core, sandbox: Sandbox, move: Move, adapter: Adapter, told: Transitioned) -> None:
    if told.instance.state is InstanceState.ERROR:
        _failed(core, sandbox, told.instance)
    elif told.progress is Progress.DONE:
        _arrive(core, sandbox, move, told.instance, adapter)
    elif told.progress is Progress.FAILED:
        _back(core, sandbox, move, f"{move.kind}_failed", told.message or f"The backend did not {move.kind} it.")
    elif core.clock.now() >= move.until:
        _take_what_is(core, sandbox, move, adapter, "It took longer than a move may take.")
    else:
        _look_again(core, sandbox)


def _answered(core: Core, sandbox: Sandbox, move: Move, adapter: Adapter, error: DifferentlyError) -> None:
    """The call itself failed. What was refused has not happened; what is unknown is looked at."""
    log.info("move not confirmed", extra={"sandbox": sandbox.id, "move": move.kind.value, "error": error.message})
    if error.reaction.marks_pool_unhealthy:
        mark_unhealthy(core, sandbox.pool or "", error.message)
    if isinstance(error, NotFound):
        _unreached(core, sandbox, move, error)
    elif isinstance(error, BackendError) and not error.settled:
        _look_again(core, sandbox)
    elif isinstance(error, InsufficientCapacity) and move.way.wakes:
        _wait_again(core, sandbox, move, error)
    elif isinstance(error, InvalidState):
        _take_what_is(core, sandbox, move, adapter, error.message)
    else:
        _back(core, sandbox, move, error.code, error.message)


def _unreached(core: Core, sandbox: Sandbox, move: Move, error: DifferentlyError) -> None:
    """The instance could not be looked at. Before the call nothing has happened; after it nothing is known.

    One that is not found may be hidden for a moment: losing it is for the reconciler, or for the end of the move.
    """
    over = core.clock.now() >= move.until
    if isinstance(error, NotFound) and over:
        reason = Reason(code="instance_lost", source="backend", detail=error.message, at=core.clock.now())
        _end(core, sandbox, reason)
    elif move.called_at is None and not isinstance(error, NotFound):
        _back(core, sandbox, move, error.code, error.message)
    else:
        _look_again(core, sandbox, core.tuning.queue_look_seconds if over else None)


def _take_what_is(core: Core, sandbox: Sandbox, move: Move, adapter: Adapter, why: str) -> None:
    """No answer will come that is better than a look."""
    try:
        seen = calling(adapter, lambda: adapter.get(_target(core, sandbox)))
    except DifferentlyError as error:
        _unreached(core, sandbox, move, error)
        return
    if seen.state is InstanceState.ERROR:
        _failed(core, sandbox, seen)
    elif STATES.get(seen.state) is move.way.after:
        _arrive(core, sandbox, move, seen, adapter)
    elif seen.state is InstanceState.PENDING and core.clock.now() < move.until:
        _look_again(core, sandbox)
    elif seen.state is InstanceState.PENDING and move.way.wakes and sandbox.egress_rules is not None:
        _rest_again(core, sandbox, move, f"{move.kind}_failed", why)  # it may run yet, with no rules
    else:
        _back(core, sandbox, move, f"{move.kind}_failed", why)


def _arrive(core: Core, sandbox: Sandbox, move: Move, seen: Instance, adapter: Adapter) -> None:
    if not move.way.wakes:
        _rest(core, sandbox, move, seen, adapter)
        return
    probed = reachable(core, adapter, _target(core, sandbox))
    try:
        is_confined = confined(core, adapter, sandbox, seen) is not None
    except (InvalidRequest, UnsupportedOperation) as error:
        _rest_again(core, sandbox, move, error.code, error.message)
        return
    is_over = core.clock.now() >= move.until
    if not is_over and (probed is None or not is_confined):
        _look_again(core, sandbox)
    elif not is_confined:
        _rest_again(core, sandbox, move, "egress_not_confirmed", "What it may reach could not be set.")
    else:
        _run(core, sandbox, move, seen, adapter, probed)


def _rest(core: Core, sandbox: Sandbox, move: Move, seen: Instance, adapter: Adapter) -> None:
    """The backend has finished: what the sandbox held goes back with the write that says so."""

    def decide(found: Sandbox) -> tuple[Sandbox, list[Action]]:
        if move.wanted_back:
            back = found.with_(move=new_move(core, BACK[move.kind]), reservation=None, incarnation=seen.incarnation)
            waiting, rows = waiting_row(core, retention.at_rest(core, back), "asked to run again before it rested")
            return waiting, [*rows, *give_back(found, rests=True)]
        resting = found.with_(
            status=move.way.after,
            move=None,
            claim=None,
            reservation=None,
            incarnation=seen.incarnation,
        )
        kept = leases.told(core, retention.at_rest(core, resting), adapter, seen.expires_at)
        return times.at_large(core, kept), list(give_back(found, rests=True))

    if _conclude(core, sandbox, decide, rests=move.way.after):
        _tell_time(core, sandbox, move)
        core.nudges.dispatch()


def _run(
    core: Core, sandbox: Sandbox, move: Move, seen: Instance, adapter: Adapter, probed: Condition | None
) -> None:  # fmt: skip
    """It runs again. One in which no command runs by the end of the move is shown with that, and kept."""
    now = core.clock.now()
    conditions = Conditions(
        seen=Condition(at=now, evidence=f"instance {seen.state} with our labels"),
        reachable=probed,
        prepared=sandbox.conditions.prepared,
        admitted=Condition(at=now, evidence=f"{move.kind}, generation {sandbox.generation}"),
    )
    unreachable = Reason(code="not_reachable", source="worker", detail="no command runs in it", at=now)

    def decide(found: Sandbox) -> tuple[Sandbox, list[Action]]:
        running = found.with_(
            status=Status.RUNNING, move=None, claim=None, reason=None if probed is not None else unreachable,
            conditions=conditions, queue_deadline=None, last_activity_at=now, incarnation=seen.incarnation, idled=False,
            running_since=now, rested_at=None, retained=False,
        )  # fmt: skip
        told = leases.told(core, running, adapter, seen.expires_at)
        return times.at_large(core, told), list(back_to_work(found))

    if _conclude(core, sandbox, decide, rests=None):
        _tell_time(core, sandbox, move)


def _tell_time(core: Core, sandbox: Sandbox, move: Move) -> None:
    """The line that is the metric of how long moves take: finished ones alone, from their call or admission on."""
    seconds = (core.clock.now() - move.asked_at).total_seconds()
    log.info(
        "move finished",
        extra={"sandbox": sandbox.id, "pool": sandbox.pool, "kind": move.kind.value, "seconds": round(seconds, 3)},
    )


def _back(core: Core, sandbox: Sandbox, move: Move, code: str, detail: str) -> None:
    """To where it was, with the reason. What it took to wake goes back; what it ran on it keeps."""
    if move.unconfined:
        _keep_trying(core, sandbox, move, code, detail)
        return
    if move.wanted_back:
        _stay(core, sandbox, move)
        return
    if not move.way.wakes and not _may_go_on(core, sandbox, move):
        return
    log.info("move refused", extra={"sandbox": sandbox.id, "move": move.kind.value, "code": code})
    reason = Reason(code=code, source="backend", detail=detail, at=core.clock.now())

    def decide(found: Sandbox) -> tuple[Sandbox, list[Action]]:
        before = found.with_(status=move.way.before, move=None, claim=None, reason=reason, queue_deadline=None)
        if move.way.wakes:
            return times.at_large(core, before.with_(reservation=None)), list(give_back(found, rests=True))
        running = _still_awake(core, before.with_(retained=False), code)
        return times.at_large(core, running), list(back_to_work(found))

    if _conclude(core, sandbox, decide, rests=move.way.before if move.way.wakes else None) and move.way.wakes:
        core.nudges.dispatch()


def _may_go_on(core: Core, sandbox: Sandbox, move: Move) -> bool:
    """Whether one that was told to rest, and did not, is held to its rules still; if not, it is looked at again.

    A backend that began with it, or came back from it, may have lost them. Where they cannot be set in the time of a
    move, it is told to rest until it does.
    """
    if move.called_at is None or sandbox.egress_rules is None:
        return True
    try:
        adapter = adapter_of(core, sandbox.pool or "")
        if confined_at(core, adapter, sandbox, sandbox.backend_ref or "") is not None:
            return True
    except (BackendError, InvalidRequest, UnsupportedOperation) as error:
        log.info("egress not confirmed", extra={"sandbox": sandbox.id, "error": error.message})
    if core.clock.now() < move.until:
        _look_again(core, sandbox)
    else:
        _keep_trying(core, sandbox, move, "egress_not_confirmed", "What it may reach could not be set.")
    return False


def _rest_again(core: Core, sandbox: Sandbox, move: Move, code: str, detail: str) -> None:
    """It runs and is not confined: on its way to rest, with all it holds, until the backend is seen to have done it."""
    kind = AGAIN[move.kind]
    log.warning("woke unconfined", extra={"sandbox": sandbox.id, "move": move.kind.value, "code": code})
    reason = Reason(code=code, source="backend", detail=detail, at=core.clock.now())

    def decide(found: Sandbox) -> tuple[Sandbox, list[Action]]:
        away = new_move(core, kind).model_copy(update={"unconfined": True})
        leaving = found.with_(
            status=away.way.during, move=away, claim=None, reason=reason, queue_deadline=None,
            due_at=soon(core, found, 0.0),
        )  # fmt: skip
        return leaving, []

    if _conclude(core, sandbox, decide, rests=move.way.before, told=f"sandbox.{kind}"):
        core.nudges.worker(sandbox.id)


def _keep_trying(core: Core, sandbox: Sandbox, move: Move, code: str, detail: str) -> None:
    """It cannot be confined and did not come to rest: told again, as another try; where that can never be, ended."""
    if code == UnsupportedOperation.code:
        _end(core, sandbox, Reason(code="egress_not_confirmed", source="backend", detail=detail, at=core.clock.now()))
        return
    log.warning("still unconfined", extra={"sandbox": sandbox.id, "move": move.kind.value, "code": code})

    def decide(found: Sandbox) -> tuple[Sandbox, list[Action]]:
        wanted = found.move.wanted_back if found.move is not None else move.wanted_back
        again = new_move(core, move.kind).model_copy(update={"unconfined": True, "wanted_back": wanted})
        due = soon(core, found, core.tuning.queue_look_seconds)
        return found.with_(move=again, claim=None, due_at=due), []

    _conclude(core, sandbox, decide, arrived=False)


def _still_awake(core: Core, running: Sandbox, code: str) -> Sandbox:
    """One that was to be put to rest for not being used is left alone as long again; for good where that cannot be."""
    if not running.idled:
        return running
    idle_by = None if code == UnsupportedOperation.code else running.idle_by
    return running.with_(idled=False, idle_by=idle_by, last_activity_at=core.clock.now())


def _wait_again(core: Core, sandbox: Sandbox, move: Move, error: InsufficientCapacity) -> None:
    """The backend has no room to wake it now: back into the queue, like a create that meets a full backend."""
    if sandbox.queue_timeout_seconds == 0:
        _back(core, sandbox, move, error.code, error.message)
        return
    seconds = rest(core, sandbox.pool or "")
    for_later = sandbox.with_(move=new_move(core, move.kind), reservation=None)
    changed, actions = queued(core, sandbox, for_later, error.message, seconds=seconds)
    event = event_of(core, WORKER, "sandbox.requeue", sandbox, changed)
    outcome = core.commit([*actions, *give_back(sandbox, rests=True), event])
    if isinstance(outcome, Committed):
        core.nudges.dispatch()
    else:
        _give_up_claim(core, sandbox)


def _failed(core: Core, sandbox: Sandbox, seen: Instance) -> None:
    """The instance is broken, so no waiting helps: the end, at once."""
    detail = seen.message or "the backend reports it failed"
    _end(core, sandbox, Reason(code="instance_error", source="backend", detail=detail, at=core.clock.now()))


def _end(core: Core, sandbox: Sandbox, reason: Reason) -> None:
    attempt = newest(core, sandbox)
    if isinstance(end(core, WORKER, sandbox, Status.FAILED, reason, attempt, proved=False), Refused):
        _give_up_claim(core, sandbox)
        return
    if attempt is not None:
        core.nudges.cleanup(sandbox.id, attempt.number)
    core.nudges.dispatch()


# Writing


def _look_again(core: Core, sandbox: Sandbox, seconds: float | None = None) -> None:
    _conclude(
        core, sandbox, lambda found: (found.with_(claim=None, due_at=soon(core, found, seconds)), []), arrived=False
    )


def _give_up_claim(core: Core, sandbox: Sandbox) -> None:
    """Somebody changed the record while the backend was called: let the next step decide from what it is now."""
    _look_again(core, sandbox, 0.0)
    core.nudges.worker(sandbox.id)


def _conclude(
    core: Core,
    sandbox: Sandbox,
    decide: Callable[[Sandbox], tuple[Sandbox, list[Action]]],
    *,
    rests: Status | None = None,
    arrived: bool = True,
    told: str | None = None,
) -> bool:
    """Write what became of a move, over a changed label or lifetime but never over a newer intent.

    One that `arrived` is told to the log (as `told`, or by its new state) and to the attempt, which says what the
    reconciler is to expect.
    """
    found = sandbox
    for _ in range(core.tuning.conflict_tries_max):
        after, others = decide(found)
        changed, puts = transfer(core, found, after)
        actions: list[Action] = [*puts, *others]
        if arrived:
            actions.append(event_of(core, WORKER, told or f"sandbox.{changed.status.value}", found, changed))
            actions += _expect(newest(core, found), rests)
        if isinstance(core.commit(actions), Committed):
            return True
        stored = core.store.get(Sandbox, sandbox.key())
        if stored is None or not _is_the_same_move(stored, sandbox):
            break
        found = stored
    core.nudges.worker(sandbox.id)
    return False


def _expect(attempt: Attempt | None, rests: Status | None) -> list[Action]:
    if attempt is None or attempt.rests is rests:
        return []
    return [write_attempt(attempt, attempt.with_(rests=rests))]


def _is_the_same_move(stored: Sandbox, sandbox: Sandbox) -> bool:
    if stored.generation != sandbox.generation or stored.move is None or sandbox.move is None:
        return False
    return stored.status is sandbox.status and stored.move.operation == sandbox.move.operation
