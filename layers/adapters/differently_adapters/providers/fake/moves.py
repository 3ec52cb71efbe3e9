"""Stop, start, pause, resume and call off: accepted now, done a while later, or never."""

from __future__ import annotations

from math import inf

from differently_core.contract import InstanceState, Operation, Progress, Target, Transition, Transitioned
from differently_core.errors import InvalidState, SandboxFailed

from . import jobs
from .backend import FakeBackend
from .calls import lost
from .faults import Fault, Ignored, Late, Revert, Slow, TooLate
from .instances import FakeInstance, Move
from .ownership import find, seen

_BEFORE = {
    Operation.STOP: (InstanceState.RUNNING, InstanceState.PAUSED),
    Operation.START: (InstanceState.STOPPED,),
    Operation.PAUSE: (InstanceState.RUNNING,),
    Operation.RESUME: (InstanceState.PAUSED,),
}
_AFTER = {
    Operation.STOP: InstanceState.STOPPED,
    Operation.START: InstanceState.RUNNING,
    Operation.PAUSE: InstanceState.PAUSED,
    Operation.RESUME: InstanceState.RUNNING,
}


def rest_or_rise(
    backend: FakeBackend, target: Target, operation: Operation, fault: Fault | None, deadline: float
) -> FakeInstance:
    """Stop or start; being there already is success."""
    with backend.lock:
        instance = find(backend, target)
        if _settled(backend, instance) is _AFTER[operation]:
            return instance
        move = _begin(backend, instance, operation, fault)
    _await(backend, move, fault, deadline)
    if move.progress is Progress.UNDERWAY:
        raise lost(operation)
    if move.progress is Progress.FAILED:
        raise SandboxFailed(f"The backend could not {operation} the instance.", settled=True)
    return instance


def pause_or_resume(
    backend: FakeBackend,
    target: Target,
    operation: Operation,
    transition: Transition,
    fault: Fault | None,
    deadline: float,
) -> Transitioned:
    """One name is one attempt: asked again, it tells how that one stands."""
    with backend.lock:
        instance = find(backend, target)
        known = instance.moves.get(transition.operation)
        if known is not None:
            return _told(backend, instance, known)
        _check_incarnation(instance, transition)
        if transition.observe_only:
            return _never_begun(backend, instance, operation)
        if _settled(backend, instance) is _AFTER[operation]:
            return Transitioned(Progress.DONE, seen(backend, instance))
        move = _begin(backend, instance, operation, fault)
        instance.moves[transition.operation] = move
    _await(backend, move, fault, deadline)
    return _told(backend, instance, move)


def _never_begun(backend: FakeBackend, instance: FakeInstance, operation: Operation) -> Transitioned:
    there = instance.move is None and instance.state is _AFTER[operation] and not instance.deleting
    if there:
        return Transitioned(Progress.DONE, seen(backend, instance))
    return Transitioned(Progress.FAILED, seen(backend, instance), "It was never begun.")


def call_off(backend: FakeBackend, target: Target, transition: Transition, fault: Fault | None) -> Transitioned:
    with backend.lock:
        instance = find(backend, target)
        _check_incarnation(instance, transition)
        move = instance.moves.get(transition.operation)
        if move is not None and move.operation is not Operation.PAUSE:
            raise InvalidState("That is no pause.")
        if isinstance(fault, TooLate) or (backend.resume_restores and instance.state is InstanceState.PAUSED):
            return Transitioned(Progress.FAILED, seen(backend, instance), "It is too late.")
        if instance.state not in {InstanceState.RUNNING, InstanceState.PAUSED} or instance.deleting:
            raise InvalidState(f"The instance is {instance.state}.")
        if move is not None:
            move.progress = Progress.FAILED
        if instance.move is move:
            instance.move = None
        if instance.state is InstanceState.PAUSED:
            become(backend, instance, Operation.RESUME)
        return Transitioned(Progress.DONE, seen(backend, instance))


def _settled(backend: FakeBackend, instance: FakeInstance) -> InstanceState:
    """Its state, when it is not in the middle of something."""
    if instance.deleting or instance.move is not None:
        doing = "delete" if instance.move is None else instance.move.operation.value
        raise InvalidState(f"The instance is in the middle of {doing}.")
    return instance.state


def _check_incarnation(instance: FakeInstance, transition: Transition) -> None:
    if transition.incarnation != str(instance.incarnation):
        raise InvalidState(f"The instance is incarnation {instance.incarnation}, not the one that was named.")


def _begin(backend: FakeBackend, instance: FakeInstance, operation: Operation, fault: Fault | None) -> Move:
    before = InstanceState.PENDING
    if backend.clock.monotonic() >= instance.runs_at:
        before = instance.state
    if before not in _BEFORE[operation]:
        raise InvalidState(f"The instance is {before}.")
    if operation is Operation.START:
        backend.rouse(instance)
    move = Move(operation, begun=not isinstance(fault, Ignored))
    if move.begun:
        instance.move = move
        failed = isinstance(fault, Revert)
        backend.later(_seconds(backend, fault), lambda: _finish(backend, instance, move, failed))
    return move


def _seconds(backend: FakeBackend, fault: Fault | None) -> float:
    match fault:
        case Slow(seconds) | Late(seconds) | Revert(seconds):
            return seconds
        case Ignored():
            return inf
        case _:
            return backend.move_seconds


def _finish(backend: FakeBackend, instance: FakeInstance, move: Move, failed: bool) -> None:
    if move.progress is not Progress.UNDERWAY:  # called off
        return
    move.progress = Progress.FAILED if failed else Progress.DONE
    instance.move = None
    if not failed:
        become(backend, instance, move.operation)
    elif move.operation is Operation.START:
        backend.rest(instance)


def become(backend: FakeBackend, instance: FakeInstance, operation: Operation) -> None:
    """What the operation makes of it."""
    now = backend.clock.monotonic()
    instance.state, instance.used_at = _AFTER[operation], now
    if _AFTER[operation] is InstanceState.RUNNING:
        backend.woke(instance)
    match operation:
        case Operation.STOP:
            backend.rest(instance)
            jobs.end_all(backend, instance)
            instance.ports.clear()
        case Operation.START:
            instance.incarnation += 1
        case Operation.PAUSE:
            instance.paused_at = now
        case Operation.RESUME:
            jobs.hold(instance, instance.paused_at, now)
            if backend.resume_restores:
                instance.incarnation += 1


def _await(backend: FakeBackend, move: Move, fault: Fault | None, deadline: float) -> None:
    if isinstance(fault, Late):
        raise lost(move.operation)
    if move.progress is Progress.UNDERWAY:
        backend.clock.sleep(min(_seconds(backend, fault), deadline))
        backend.catch_up()


def _told(backend: FakeBackend, instance: FakeInstance, move: Move) -> Transitioned:
    why = "It failed and the instance is as it was." if move.progress is Progress.FAILED else ""
    return Transitioned(move.progress, seen(backend, instance), why)
