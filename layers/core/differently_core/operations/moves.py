"""Asking for a move: stop, start, pause, resume. Each is one write of intent, under a new generation.

What the backend is then told, and what becomes of it, is the worker's business (`moving`). A sandbox at rest holds no
quota, so waking one is admitted like a create: in one transaction with the counters when there is room, else it waits
in the queue for its own pool, and dispatch is its only door. A caller that hangs up changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from ..contract import Operation, supports, unsupported
from ..errors import InvalidState, QuotaExceeded
from ..model.queue import QueueRow
from ..model.quota import Counter, Scope
from ..model.sandbox import BACK, GONE, WAYS, Move, MoveKind, Reason, Reservation, Sandbox, Status
from ..store.ports import Absent, Action, Committed, Delete, Put, Refused, StoreThrottled
from . import backlogs, spending, times
from .accounts import is_open, name_of, retain, take
from .backends import adapter_of
from .core import Caller, Core
from .create import JOIN_TRIES_MAX, check_may_wait, check_not_closed, is_held_up_by_nobody, patience_seconds, queue_row
from .ending import event_of, transfer, write
from .marks import clear_if_nobody_waits
from .sandboxes import find

OPERATIONS = {
    MoveKind.STOP: Operation.STOP,
    MoveKind.START: Operation.START,
    MoveKind.PAUSE: Operation.PAUSE,
    MoveKind.RESUME: Operation.RESUME,
}
_SAID = {
    MoveKind.STOP: "stopped",
    MoveKind.START: "started",
    MoveKind.PAUSE: "paused",
    MoveKind.RESUME: "resumed",
}
_INSTEAD = {Status.STOPPED: "start", Status.PAUSED: "resume"}


def ask(core: Core, caller: Caller, sandbox: str, kind: MoveKind) -> Sandbox:
    """Accept a move; the sandbox comes back on its way, waiting, or as it is when it is there already.

    Two round trips, three when it has to wait. Raises `NotFound`, `UnsupportedOperation`, `InvalidState`; for a start
    or resume also `Suspended` and `QueueFull`, and for a sandbox that was created with `queueTimeoutSeconds: 0`
    `QuotaExceeded` or `InsufficientCapacity`; for a stop or pause `QuotaExceeded` when its pool keeps no more.
    """
    for _ in range(core.tuning.conflict_tries_max):
        found = find(core, caller, sandbox)
        _check_offered(core, found, kind)
        if _is_so_already(found, kind):
            if not found.idled or WAYS[kind].wakes:
                return found
            moved = _own(core, caller, found, kind)
        else:
            moved = _decide(core, caller, found, kind)
        if moved is not None:
            return moved
    raise StoreThrottled("This sandbox is being changed by many calls right now; repeat the call in a second.")


def _check_offered(core: Core, found: Sandbox, kind: MoveKind) -> None:
    """Before any I/O, and whatever the sandbox is doing: what its pool cannot do it can never do."""
    over = times.is_over(core, found)
    if found.status in GONE or found.backend_ref is None or over:
        what = "at the end of its time" if over else found.status.value
        raise InvalidState(f"The sandbox is {what}; it cannot be {_SAID[kind]}.", status=found.status.value)
    assert found.pool is not None
    adapter = adapter_of(core, found.pool)
    if not supports(adapter, OPERATIONS[kind]):
        raise unsupported(adapter, OPERATIONS[kind], found.pool)


def _is_so_already(found: Sandbox, kind: MoveKind) -> bool:
    """It is there, or on the same way: a repeated call is no second move."""
    if found.move is not None and found.move.wanted_back:
        return BACK[found.move.kind] is kind
    return found.status is WAYS[kind].after or (found.move is not None and found.move.kind is kind)


def _decide(core: Core, caller: Caller, found: Sandbox, kind: MoveKind) -> Sandbox | None:
    """The write that fits the state that was read; None when somebody else wrote meanwhile."""
    way = WAYS[kind]
    if found.status is way.before:
        reason = _asked(core, caller, kind)
        return (_wake if way.wakes else _leave)(core, caller, found, kind, reason)
    if found.status is Status.QUEUED and found.move is not None and found.move.way.before is way.after:
        return _stay(core, caller, found, kind)
    if found.move is not None and BACK.get(found.move.kind) is kind and not found.move.wanted_back:
        return want_back(core, caller, found)
    raise _not_now(found, kind)


def want_back(core: Core, caller: Caller, found: Sandbox) -> Sandbox | None:
    """It is on its way to rest and is to run again; None when somebody else wrote meanwhile.

    Under a new generation: whoever waits for the backend to finish has nothing more to say. It holds its quota still,
    so nothing is taken; but a suspended organization or project gets nothing back. Raises `Suspended`.
    """
    assert found.move is not None
    kind = BACK[found.move.kind]
    move = found.move.model_copy(update={"wanted_back": True})
    wanted = found.with_(
        move=move, generation=found.generation + 1, claim=None, reason=_asked(core, caller, kind),
        due_at=soon(core, found),
    )  # fmt: skip
    changed, put = write(found, wanted)
    event = core.event(caller, f"sandbox.{kind}", found.id, found.org, project=found.project, pool=found.pool)
    standing = [is_open(Scope.ORG, found.org), is_open(Scope.PROJECT, found.project)]
    outcome = core.commit([put, Put(event, (Absent(),), "event"), *standing])
    if isinstance(outcome, Refused):
        check_not_closed(core, found, outcome)
        return None
    core.nudges.worker(changed.id)
    return changed


def preempt(core: Core, caller: Caller, found: Sandbox, kind: MoveKind) -> Sandbox | None:
    """It makes room for work that waits, until somebody uses it; None when it was used, or changed, meanwhile."""
    detail = "for work that waits"
    reason = Reason(code="preempted", source="policy", detail=detail, at=core.clock.now())
    return _leave(core, caller, found, kind, reason, idled=True)


def _own(core: Core, caller: Caller, found: Sandbox, kind: MoveKind) -> Sandbox | None:
    """It rests, or will, because nobody used it; from now on because a caller wants it so, and use does not wake it."""
    changed, put = write(found, found.with_(idled=False, reason=_asked(core, caller, kind)))
    event = core.event(caller, f"sandbox.{kind}", found.id, found.org, project=found.project, pool=found.pool)
    return changed if isinstance(core.commit([put, Put(event, (Absent(),), "event")]), Committed) else None


def _not_now(found: Sandbox, kind: MoveKind) -> InvalidState:
    other = _INSTEAD.get(found.status)
    hint = f"POST /v1/sandboxes/{found.id}/{other}" if other else f"GET /v1/sandboxes/{found.id}/wait"
    return InvalidState(
        f"The sandbox is {found.status}, so it cannot be {_SAID[kind]} now; {hint} first.", status=found.status.value
    )


def new_move(core: Core, kind: MoveKind) -> Move:
    return Move(
        kind=kind, operation=core.ids.new("op"), asked_at=core.clock.now(), until=core.after(core.tuning.move_seconds)
    )


def soon(core: Core, sandbox: Sandbox, seconds: float | None = None) -> datetime:
    """When to look at a move again: after a while, but at once when its time to live is over."""
    at = core.after(core.tuning.observe_seconds if seconds is None else seconds)
    return at if sandbox.expires_at is None else min(at, sandbox.expires_at)


def _asked(core: Core, caller: Caller, kind: MoveKind) -> Reason:
    return Reason(code=_SAID[kind], source="caller", detail=f"by {caller.actor}", at=core.clock.now())


def _intent(core: Core, found: Sandbox, kind: MoveKind, status: Status, reason: Reason) -> Sandbox:
    return found.with_(
        status=status, generation=found.generation + 1, move=new_move(core, kind), claim=None, reason=reason,
        due_at=soon(core, found),
    )  # fmt: skip


def fall_asleep(core: Core, caller: Caller, found: Sandbox, kind: MoveKind) -> Sandbox | None:
    """Nobody uses it: to rest, until somebody does; None when it was used, or changed, meanwhile."""
    detail = f"not used for {found.idle_timeout_seconds} s"
    reason = Reason(code="idle", source="timer", detail=detail, at=core.clock.now())
    return _leave(core, caller, found, kind, reason, idled=True)


def rest_for_budget(core: Core, caller: Caller, found: Sandbox, kind: MoveKind) -> Sandbox | None:
    """Its budget is spent; only a caller wakes it again, once there is some. Raises `QuotaExceeded`."""
    detail = "the budget of this month is spent"
    reason = Reason(code="budget", source="policy", detail=detail, at=core.clock.now())
    return _leave(core, caller, found, kind, reason)


def run_out(core: Core, caller: Caller, found: Sandbox, kind: MoveKind) -> Sandbox | None:
    """It has run for as long as it may; only a caller wakes it again."""
    detail = f"ran for {found.max_run_seconds} s"
    reason = Reason(code="max_run_reached", source="timer", detail=detail, at=core.clock.now())
    return _leave(core, caller, found, kind, reason)


def _leave(
    core: Core, caller: Caller, found: Sandbox, kind: MoveKind, reason: Reason, *, idled: bool = False
) -> Sandbox | None:  # fmt: skip
    """From running to rest; what it holds is given back when the backend has finished.

    Its place among what the pool keeps is taken now, while it can still be refused. Raises `QuotaExceeded`.
    """
    assert found.pool is not None
    intended = _intent(core, found, kind, WAYS[kind].during, reason)
    changed, put = write(found, intended.with_(idled=idled, busy_until=None, busy_with=None, retained=True))
    outcome = core.commit([put, retain(found.pool), event_of(core, caller, f"sandbox.{kind}", found, changed)])
    if isinstance(outcome, Refused):
        _check_kept(found, kind, outcome)
        return None
    core.nudges.worker(changed.id)
    return changed


def _check_kept(found: Sandbox, kind: MoveKind, refusal: Refused) -> None:
    counter = refusal.failed.get(name_of(Scope.POOL, found.pool or ""))
    if isinstance(counter, Counter) and "sandbox" not in refusal.failed:
        raise QuotaExceeded(
            f"Pool {found.pool} keeps {counter.retained} stopped or paused sandboxes, and {counter.limit_retained} is "
            f"its limit, so this one cannot be {_SAID[kind]} now. Delete or wake one that rests, or have an operator "
            "raise the pool's maxRetained.",
            scope=Scope.POOL.value, resource="retained", limit=counter.limit_retained, held=counter.retained,
        )  # fmt: skip


# Waking


def use(core: Core, caller: Caller, found: Sandbox) -> Sandbox | None:
    """Wake one that was put to rest for not being used; None when somebody else wrote meanwhile."""
    kind = MoveKind.START if found.status is Status.STOPPED else MoveKind.RESUME
    _check_offered(core, found, kind)
    reason = Reason(code="used", source="caller", detail=f"by {caller.actor}", at=core.clock.now())
    return _wake(core, caller, found, kind, reason)


def follow_awake(core: Core, caller: Caller, found: Sandbox, kind: MoveKind, reason: Reason) -> Sandbox | None:
    """The backend woke it by itself: it is admitted as if it had been asked for."""
    return _wake(core, caller, found, kind, reason)


def _wake(core: Core, caller: Caller, found: Sandbox, kind: MoveKind, reason: Reason) -> Sandbox | None:
    """In at once, or into the queue; None when somebody else wrote meanwhile."""
    outcome = _try_quietly(core, caller, found, kind, reason)
    if isinstance(outcome, Refused):
        check_not_closed(core, found, outcome)
        spending.check(core, found, found.pool, outcome)
    if isinstance(outcome, Refused) and is_held_up_by_nobody(core, found, outcome):
        outcome = _try_quietly(core, caller, found, kind, reason)
    if not isinstance(outcome, Refused):
        return outcome
    if "sandbox" in outcome.failed:
        return None
    check_may_wait(core, found, outcome, "others are being admitted at this moment")
    waits_for = ", ".join(sorted(outcome.failed)) or "others are being admitted at this moment"
    return _wait(core, caller, found, kind, waits_for)


def _try_quietly(
    core: Core, caller: Caller, found: Sandbox, kind: MoveKind, reason: Reason
) -> Sandbox | Refused:  # fmt: skip
    """Take what it needs and go, in one transaction; a second try only after a conflict."""
    intended = _intent(core, found, kind, WAYS[kind].during, reason)
    changed, puts = transfer(core, found, admitted(core, intended))
    actions = [*puts, event_of(core, caller, f"sandbox.{kind}", found, changed), *_take(core, changed)]
    refusal = Refused()
    for attempt in range(2):
        outcome = core.store.transact(actions)
        if isinstance(outcome, Committed):
            core.nudges.worker(changed.id)
            return changed
        refusal = outcome
        if outcome.failed:
            break
        core.back_off(attempt)
    return refusal


def admitted(core: Core, sandbox: Sandbox) -> Sandbox:
    """Let in again, by its own call or by dispatch: on its way to the pool that keeps it."""
    assert sandbox.move is not None
    assert sandbox.pool is not None
    return sandbox.with_(
        status=sandbox.move.way.during, move=new_move(core, sandbox.move.kind),
        reservation=Reservation(size=sandbox.size, pool=sandbox.pool), not_before=None, rejections=(), backlogs=(),
        due_at=soon(core, sandbox),
    )  # fmt: skip


def _take(core: Core, sandbox: Sandbox) -> list[Action]:
    """A pool that takes nothing new still serves what it keeps; a suspended organization gets nothing back."""
    assert sandbox.pool is not None
    return [
        take(Scope.ORG, sandbox.org, sandbox.size, spending=spending.of(core, sandbox, sandbox.org, sandbox.pool)),
        take(
            Scope.PROJECT,
            sandbox.project,
            sandbox.size,
            spending=spending.of(core, sandbox, sandbox.project, sandbox.pool),
        ),
        take(Scope.POOL, sandbox.pool, sandbox.size, closed_too=True),
    ]


def _wait(core: Core, caller: Caller, found: Sandbox, kind: MoveKind, waits_for: str) -> Sandbox | None:
    intended = _intent(core, found, kind, Status.QUEUED, _asked(core, caller, kind))
    changed, actions = queued(core, found, intended, waits_for, at_any_rate=caller.scope is None)
    event = event_of(core, caller, f"sandbox.{kind}", found, changed)
    outcome = core.commit([*actions, event], tries_max=JOIN_TRIES_MAX if changed.backlogs else None)
    if isinstance(outcome, Refused):
        if "sandbox" not in outcome.failed:
            backlogs.check_joined(outcome.failed)
        return None
    core.nudges.dispatch()
    return changed


def queued(
    core: Core, before: Sandbox, intended: Sandbox, waits_for: str, *, seconds: float = 0.0, at_any_rate: bool = True
) -> tuple[Sandbox, list[Action]]:
    """Into the queue for its own pool, not to be looked at for `seconds`; rows that nobody shares, and its places."""
    waiting, rows = waiting_row(core, intended, waits_for, seconds=seconds, at_any_rate=at_any_rate)
    changed, puts = transfer(core, before, waiting)
    return changed, [*puts, *rows]


def waiting_row(
    core: Core, intended: Sandbox, waits_for: str, *, seconds: float = 0.0, at_any_rate: bool = True
) -> tuple[Sandbox, list[Action]]:  # fmt: skip
    """The sandbox as it waits to be woken, its row in the queue, and its places in bounded backlogs."""
    ready = core.after(seconds)
    deadline = intended.queue_deadline or ready + timedelta(seconds=patience_seconds(core, intended))
    look = min(ready + timedelta(seconds=core.tuning.queue_look_seconds), deadline)
    waiting = intended.with_(
        status=Status.QUEUED, queue_deadline=deadline, not_before=ready if seconds else None, claim=None,
        due_at=look if intended.expires_at is None else min(look, intended.expires_at),
        reason=Reason(code="waiting", source="admission", detail=waits_for, at=core.clock.now()),
    )  # fmt: skip
    waiting, places = backlogs.join(core, waiting, at_any_rate=at_any_rate)
    return waiting, [Put(queue_row(waiting), (), "queue"), *places]


def _stay(core: Core, caller: Caller, found: Sandbox, kind: MoveKind) -> Sandbox | None:
    """It waits to be woken and is asked to rest: it rests already."""
    return no_longer_waiting(core, caller, found.with_(idled=False), _asked(core, caller, kind))


def no_longer_waiting(core: Core, caller: Caller, found: Sandbox, reason: Reason) -> Sandbox | None:
    """Out of the queue and at rest, as before it was asked to wake; None when somebody else wrote meanwhile."""
    assert found.move is not None
    resting = found.with_(
        status=found.move.way.before, move=None, claim=None, reason=reason, generation=found.generation + 1,
        queue_deadline=None, not_before=None, rejections=(), backlogs=(),
    )  # fmt: skip
    changed, put = write(found, times.at_large(core, resting))
    actions: Sequence[Action] = [
        put,
        *backlogs.leave(found),
        Delete(QueueRow, QueueRow.key_of(found.org, found.priority, found.id), "queue"),
        event_of(core, caller, f"sandbox.{resting.status.value}", found, changed),
    ]
    if isinstance(core.commit(actions), Refused):
        return None
    clear_if_nobody_waits(core, found.org, found.project)
    core.nudges.dispatch()
    return changed
