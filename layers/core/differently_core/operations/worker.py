"""One step of one sandbox: look at what it is now, do the next thing, write down what happened.

A step is level-triggered: it can be called twice, late, by two workers or after a crash, because it decides only from
the record and writes only under the version it read. Backend calls happen between two writes: the attempt before, the
outcome after. What an error means for attempt, sandbox and pool is decided by the error table alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from ..contract import Adapter, CreateRequest, Info, Instance, InstanceState, Target
from ..errors import (
    AdapterFault, BackendError, DifferentlyError, InsufficientCapacity, NotFound, ProviderUnavailable, SandboxFailed,
)  # fmt: skip
from ..model.attempt import Attempt, AttemptState
from ..model.exec import ExecRequest
from ..model.pool import PoolView
from ..model.sandbox import Claim, Condition, Conditions, Reason, Sandbox, SandboxEnv, Status
from ..runtime.ids import SandboxId
from ..store.ports import Absent, Committed, Put, Refused, Update
from .accounts import give_back
from .core import Core, system
from .ending import end, event_of, requeue, write, write_attempt
from .sandboxes import free_key

log = logging.getLogger(__name__)
WORKER = system("worker")
TIMER = system("timer")
CREATE_CALLS_MAX = 3
T = TypeVar("T")
PROBE = ExecRequest(command="true", timeout_seconds=10)


def step(core: Core, sandbox: SandboxId) -> None:
    """Do what is due for this sandbox; raises only for faults of the store."""
    found = core.store.get(Sandbox, Sandbox.key_of(sandbox))
    if found is None:
        return
    match found.status:
        case Status.QUEUED:
            _wait_on(core, found)
        case Status.PROVISIONING:
            _provision(core, found)
        case Status.RUNNING:
            _expire(core, found)
        case Status.TERMINATING:
            _terminate(core, found)
        case Status.TERMINATED | Status.FAILED:
            pass  # a message that came twice, or late
        case _:
            log.warning("nothing to do", extra={"sandbox": found.id, "status": found.status.value})


def _wait_on(core: Core, sandbox: Sandbox) -> None:
    """A queued sandbox is due: its patience is over, or dispatch must look again."""
    now = core.clock.now()
    if sandbox.queue_deadline is not None and now >= sandbox.queue_deadline:
        detail = ", ".join(f"{entry.pool}: {entry.reason}" for entry in sandbox.rejections)
        reason = Reason(code="queue_timeout", source="timer", detail=detail, at=now)
        end(core, TIMER, sandbox, Status.FAILED, reason)
        return
    if sandbox.due_at is not None and now >= sandbox.due_at:
        look = core.after(core.tuning.queue_look_seconds)
        due = look if sandbox.queue_deadline is None else min(look, sandbox.queue_deadline)
        core.store.transact([write(sandbox, sandbox.with_(due_at=due))[1]])
    core.nudges.dispatch()


def _expire(core: Core, sandbox: Sandbox) -> None:
    """The time to live is over: the same end as a delete, unless the lifetime was extended meanwhile."""
    now = core.clock.now()
    if sandbox.expires_at is None or now < sandbox.expires_at:
        return
    reason = Reason(code="ttl_expired", source="timer", detail=f"after {sandbox.ttl_seconds} s", at=now)
    going = sandbox.with_(
        status=Status.TERMINATING, generation=sandbox.generation + 1, reason=reason, claim=None, due_at=now
    )
    changed, put = write(sandbox, going)
    actions = [put, event_of(core, TIMER, "sandbox.expire", sandbox, changed)]
    outcome = core.commit([*actions, free_key(sandbox.id)] if sandbox.idempotent else actions)
    if isinstance(outcome, Committed):
        _terminate(core, changed)


# Provisioning


def _provision(core: Core, sandbox: Sandbox) -> None:
    if sandbox.claimed(core.clock.now()):
        return
    attempt = _newest_attempt(core, sandbox)
    if attempt is not None and attempt.status is AttemptState.CALLING:
        _observe(core, sandbox, attempt)
    else:
        _attempt(core, sandbox)


def _newest_attempt(core: Core, sandbox: Sandbox) -> Attempt | None:
    if sandbox.attempt == 0:
        return None
    return core.store.get(Attempt, Attempt.key_of(sandbox.id, sandbox.attempt))


def adapter_of(core: Core, pool: str) -> Adapter:
    """The pool's adapter; a pool that is gone or cannot be built is a backend that cannot be used."""
    try:
        return core.backends.adapter(core.catalog.pool(pool))
    except BackendError:
        raise
    except DifferentlyError as error:
        raise ProviderUnavailable(error.message, settled=True, pool=pool) from error


def calling(adapter: Adapter, call: Callable[[], T]) -> T:
    """Call the backend; what an adapter raises outside our error tree is its bug, and the outcome is unknown."""
    try:
        return call()
    except DifferentlyError:
        raise
    except Exception as error:
        log.exception("adapter bug", extra={"adapter": adapter.kind})
        raise AdapterFault(f"The {adapter.kind} adapter failed: {type(error).__name__}.") from error


def _attempt(core: Core, sandbox: Sandbox) -> None:
    """Record a new attempt and the claim on it, then call the backend."""
    assert sandbox.pool is not None
    try:
        adapter = adapter_of(core, sandbox.pool)
        info = calling(adapter, adapter.info)
    except BackendError as error:
        _fail_attempt(core, sandbox, None, error)
        return
    now = core.clock.now()
    call_until = now + timedelta(seconds=info.create_seconds)
    attempt = Attempt(
        sandbox=sandbox.id, number=sandbox.attempt + 1, org=sandbox.org, project=sandbox.project, pool=sandbox.pool,
        size=sandbox.size, generation=sandbox.generation, status=AttemptState.CALLING, started_at=now,
        call_until=call_until, settles_at=call_until + timedelta(seconds=info.settles_seconds),
    )  # fmt: skip
    claimed = _claim(core, sandbox, info.create_seconds, attempt=attempt.number)
    changed, put = write(sandbox, claimed)
    outcome = core.store.transact([put, Put(attempt, (Absent(),), "attempt")])
    if isinstance(outcome, Committed):
        _call_create(core, changed, attempt, adapter, info.create_seconds)


def _claim(core: Core, sandbox: Sandbox, seconds: float, **changes: object) -> Sandbox:
    until = core.after(seconds + core.tuning.claim_margin_seconds)
    claim = Claim(owner=core.worker_name, until=until, generation=sandbox.generation)
    return sandbox.with_(claim=claim, due_at=until, **changes)


def _call_create(core: Core, sandbox: Sandbox, attempt: Attempt, adapter: Adapter, seconds: float) -> None:
    env = core.store.get(SandboxEnv, SandboxEnv.key_of(sandbox.id)) if sandbox.has_env else None
    template = core.catalog.template(sandbox.template)
    image = sandbox.image or (template.images.get(attempt.pool) if template is not None else None)
    request = CreateRequest(
        owner=core.owner(sandbox.id), org=sandbox.org, project=sandbox.project, template=sandbox.template, image=image,
        size=sandbox.size, ttl_seconds=sandbox.ttl_seconds, labels=sandbox.labels, env=env.env if env else {},
    )  # fmt: skip
    try:
        instance = calling(adapter, lambda: adapter.create(request, seconds))
    except DifferentlyError as error:
        _fail_attempt(core, sandbox, attempt, error, adapter)
        return
    _advance(core, sandbox, attempt.with_(ref=instance.ref, ended=True), instance, adapter, before=attempt)


def _observe(core: Core, sandbox: Sandbox, attempt: Attempt) -> None:
    """An attempt is open and nobody works on it: its worker died, its answer was lost, or it is not ready yet."""
    try:
        adapter = adapter_of(core, attempt.pool)
        info = calling(adapter, adapter.info)
    except BackendError as error:
        _leave_pool(core, sandbox, attempt, error)
        return
    claimed, put = write(sandbox, _claim(core, sandbox, info.create_seconds))
    if isinstance(core.store.transact([put]), Refused):
        return
    try:
        instance = calling(adapter, lambda: adapter.get(Target(core.owner(sandbox.id), attempt.ref)))
    except NotFound:
        _absent(core, claimed, attempt, adapter, info)
    except DifferentlyError as error:
        _leave_pool(core, claimed, attempt, error)
    else:
        _advance(core, claimed, attempt.with_(ref=instance.ref), instance, adapter, before=attempt)


def _absent(core: Core, sandbox: Sandbox, attempt: Attempt, adapter: Adapter, info: Info) -> None:
    """No instance is there. It may still come, so only time or an idempotent create can go on."""
    now = core.clock.now()
    vanished = attempt.ref is not None
    if not vanished and info.idempotent_create and attempt.calls < CREATE_CALLS_MAX:
        _repeat_create(core, sandbox, attempt, adapter, info)
    elif vanished or now >= attempt.settles_at:
        why = "the instance disappeared" if vanished else "no instance came up"
        reason = Reason(code="attempt_lost", source="backend", detail=why, at=now)
        _retry_or_fail(core, sandbox, attempt, reason, proved=finished(core, attempt))
    else:
        _look_again(core, sandbox, attempt, attempt)


def _repeat_create(core: Core, sandbox: Sandbox, attempt: Attempt, adapter: Adapter, info: Info) -> None:
    """Call an idempotent create again; written first, so that nobody takes the attempt for finished meanwhile."""
    call_until = core.after(info.create_seconds)
    repeated = attempt.with_(
        calls=attempt.calls + 1, call_until=call_until, settles_at=call_until + timedelta(seconds=info.settles_seconds)
    )
    if isinstance(core.commit([write_attempt(attempt, repeated)]), Committed):
        stored = repeated.with_(version=attempt.version + 1)
        _call_create(core, sandbox, stored, adapter, info.create_seconds)


def _advance(
    core: Core, sandbox: Sandbox, attempt: Attempt, instance: Instance, adapter: Adapter, *, before: Attempt
) -> None:
    """An instance of ours is there: admit it if it is ready, else look again later."""
    if instance.state is InstanceState.RUNNING:
        reachable = _reachable(core, adapter, sandbox, instance)
        if reachable is not None:
            _admit(core, sandbox, attempt, instance, reachable, before)
            return
    elif instance.state is InstanceState.ERROR:
        failed = SandboxFailed(instance.message or "the backend reports it failed", settled=True)
        _failed_instance(core, sandbox, attempt, failed, adapter, before=before)
        return
    if core.clock.now() - attempt.started_at > timedelta(seconds=core.tuning.ready_timeout_seconds):
        late = SandboxFailed(f"not ready after {core.tuning.ready_timeout_seconds:.0f} s ({instance.state})", settled=True)
        _failed_instance(core, sandbox, attempt, late, adapter, before=before)
        return
    _look_again(core, sandbox, attempt, before)


def _reachable(core: Core, adapter: Adapter, sandbox: Sandbox, instance: Instance) -> Condition | None:
    """Whether a command really runs in it."""
    try:
        target = Target(core.owner(sandbox.id), instance.ref)
        result = calling(adapter, lambda: adapter.exec(target, PROBE, 1024))
    except DifferentlyError as error:
        log.info("not reachable yet", extra={"sandbox": sandbox.id, "error": error.message})
        return None
    if result.exit_code != 0:
        return None
    return Condition(at=core.clock.now(), evidence="exec `true` exited 0")


def _admit(
    core: Core, sandbox: Sandbox, attempt: Attempt, instance: Instance, reachable: Condition, before: Attempt
) -> None:
    now = core.clock.now()
    expires = now + timedelta(seconds=sandbox.ttl_seconds)
    conditions = Conditions(
        seen=Condition(at=now, evidence=f"instance {instance.state} with our labels"),
        reachable=reachable,
        prepared=Condition(at=now, evidence=instance.prepared or "accepted by the backend's create"),
        admitted=Condition(at=now, evidence=f"attempt {attempt.number}, generation {sandbox.generation}"),
    )
    running = sandbox.with_(
        status=Status.RUNNING, backend_ref=instance.ref, region=instance.region or sandbox.region, claim=None,
        started_at=now, expires_at=expires, due_at=expires, last_activity_at=now, conditions=conditions, reason=None,
        queue_deadline=None, not_before=None, rejections=(),
    )  # fmt: skip
    changed, put = write(sandbox, running)
    live = write_attempt(before, attempt.with_(status=AttemptState.LIVE, due_at=None))
    outcome = core.commit([put, live, event_of(core, WORKER, "sandbox.running", sandbox, changed)])
    if isinstance(outcome, Refused):
        _hand_over(core, sandbox, attempt, before)


def _look_again(core: Core, sandbox: Sandbox, attempt: Attempt, before: Attempt) -> None:
    changed, put = write(sandbox, sandbox.with_(claim=None, due_at=core.after(core.tuning.observe_seconds)))
    actions = [put] if attempt == before else [put, write_attempt(before, attempt)]
    if isinstance(core.commit(actions), Refused):
        _hand_over(core, sandbox, attempt, before)


def _hand_over(core: Core, sandbox: Sandbox, attempt: Attempt, before: Attempt) -> None:
    """The sandbox was changed while the backend was called: note what was made, and let the newer intent act on it.

    A changed lifetime or label is no newer intent: the next step finds the instance and admits it.
    """
    if attempt != before:
        _note(core, attempt)
    found = core.store.get(Sandbox, sandbox.key())
    if found is None:
        return
    if found.status is Status.PROVISIONING and found.claim == sandbox.claim:
        core.commit([write(found, found.with_(claim=None, due_at=core.clock.now()))[1]])
    core.nudges.worker(sandbox.id)


def _note(core: Core, seen: Attempt) -> None:
    """Add the ref and the end of the call to the attempt as it stands now, whoever wrote it meanwhile."""
    for _ in range(core.tuning.conflict_tries_max):
        stored = core.store.get(Attempt, seen.key())
        if stored is None or stored.status is AttemptState.SETTLED:
            return
        noted = stored.with_(ref=seen.ref or stored.ref, ended=seen.ended or stored.ended)
        if noted == stored or isinstance(core.commit([write_attempt(stored, noted)]), Committed):
            return


# Failure classes


def _fail_attempt(
    core: Core, sandbox: Sandbox, attempt: Attempt | None, error: DifferentlyError, adapter: Adapter | None = None
) -> None:
    """React to a failed create by its class; `attempt` is None when the backend could not even be called."""
    log.info(
        "create failed",
        extra={"sandbox": sandbox.id, "pool": sandbox.pool, "code": error.code, "error": error.message},
    )
    reason = Reason(code=error.code, source="backend", detail=error.message, at=core.clock.now())
    if error.reaction.marks_pool_unhealthy:
        _mark_unhealthy(core, sandbox.pool or "", error.message)
    unknown = isinstance(error, BackendError) and not error.settled
    if error.code == "sandbox_failed" and attempt is not None and adapter is not None:
        _failed_instance(core, sandbox, attempt, error, adapter, before=attempt)
    elif unknown and attempt is not None and adapter is not None:
        _unknown(core, sandbox, attempt, adapter)
    elif isinstance(error, InsufficientCapacity):
        seconds = core.tuning.capacity_requeue_seconds
        outcome = requeue(core, WORKER, sandbox, attempt, reason, counted=False, seconds=seconds, proved=True)
        _after_write(core, sandbox, attempt, outcome)
    elif error.reaction.counts_attempt:
        _retry_or_fail(core, sandbox, attempt, reason, proved=True)
    else:
        outcome = end(core, WORKER, sandbox, Status.FAILED, reason, attempt)
        _after_write(core, sandbox, attempt, outcome)


def _unknown(core: Core, sandbox: Sandbox, attempt: Attempt, adapter: Adapter) -> None:
    """The answer is lost. Look under the same id soon; a late instance may come until `settles_at`."""
    settles = core.after(calling(adapter, adapter.info).settles_seconds)
    _look_again(core, sandbox, attempt.with_(settles_at=settles, call_until=core.clock.now()), attempt)


def _failed_instance(
    core: Core, sandbox: Sandbox, attempt: Attempt, error: DifferentlyError, adapter: Adapter, *, before: Attempt
) -> None:
    """This one failed on a healthy backend: remove what is left, then try again or give up."""
    reason = Reason(code="sandbox_failed", source="backend", detail=error.message, at=core.clock.now())
    known = attempt.with_(ended=attempt.ended or not isinstance(error, BackendError) or error.settled)
    gone = remove(core, adapter, known) and finished(core, known)
    if known != before and not isinstance(core.commit([write_attempt(before, known)]), Committed):
        _hand_over(core, sandbox, known, before)
        return
    stored = known.with_(version=before.version + 1) if known != before else before
    _retry_or_fail(core, sandbox, stored, reason, proved=gone)


def _leave_pool(core: Core, sandbox: Sandbox, attempt: Attempt, error: DifferentlyError) -> None:
    """The pool of an open attempt cannot be observed: leave a debt there and let placement find another pool."""
    if error.reaction.marks_pool_unhealthy:
        _mark_unhealthy(core, attempt.pool, error.message)
    reason = Reason(code=error.code, source="backend", detail=error.message, at=core.clock.now())
    _retry_or_fail(core, sandbox, attempt, reason, proved=False)


def _retry_or_fail(core: Core, sandbox: Sandbox, attempt: Attempt | None, reason: Reason, *, proved: bool) -> None:
    failures = sandbox.failures + 1
    if failures >= core.tuning.attempts_max:
        detail = f"{failures} attempts failed; the last: {reason.detail}"
        final = reason.model_copy(update={"detail": detail})
        outcome = end(core, WORKER, sandbox, Status.FAILED, final, attempt, proved=proved)
    else:
        doublings = min(failures, core.tuning.backoff_doublings_max)
        seconds = core.tuning.backoff_seconds * 2**doublings
        outcome = requeue(
            core, WORKER, sandbox, attempt, reason, counted=True, seconds=seconds, proved=proved
        )
    _after_write(core, sandbox, attempt, outcome)


def _after_write(core: Core, sandbox: Sandbox, attempt: Attempt | None, outcome: object) -> None:
    """What was freed may let somebody in; what was refused is looked at again under the newer intent."""
    if isinstance(outcome, Refused):
        if attempt is not None:
            _hand_over(core, sandbox, attempt, attempt)
        else:
            core.nudges.worker(sandbox.id)
        return
    core.nudges.dispatch()


def _mark_unhealthy(core: Core, pool: str, message: str) -> None:
    """Until its next good probe the pool gets nothing new."""
    view = core.store.get(PoolView, PoolView.key_of(pool))
    if view is not None and view.healthy:
        down = view.model_copy(update={"healthy": False, "message": message, "at": core.clock.now()})
        core.store.transact([Put(down, (), "view")])
        core.catalog.forget()


# Termination


def remove(core: Core, adapter: Adapter, attempt: Attempt) -> bool:
    """Delete the attempt's instance and say whether its absence was then seen. Errors mean "not proved yet"."""
    target = Target(core.owner(attempt.sandbox), attempt.ref)
    try:
        adapter.delete(target)
        adapter.get(target)
    except NotFound:
        return True
    except Exception as error:
        log.info(
            "removal not confirmed",
            extra={"sandbox": attempt.sandbox, "pool": attempt.pool, "error": type(error).__name__},
        )
    return False


def finished(core: Core, attempt: Attempt) -> bool:
    """True when no instance can come of the attempt any more: its end was seen, or its time is over."""
    return attempt.ended or core.clock.now() >= attempt.settles_at


def _terminate(core: Core, sandbox: Sandbox) -> None:
    """Delete at the backend until it is gone, then give everything back. Quota goes back even while a backend is stuck."""
    attempt = _newest_attempt(core, sandbox)
    if attempt is None or attempt.status in (AttemptState.SETTLED, AttemptState.DEBT):
        _finish(core, sandbox, None)
        return
    try:
        gone = remove(core, adapter_of(core, attempt.pool), attempt)
    except BackendError as error:
        log.warning("pool unusable", extra={"sandbox": sandbox.id, "pool": attempt.pool, "error": error.message})
        gone = False
    if gone and finished(core, attempt):
        _finish(core, sandbox, attempt)
    else:
        _try_later(core, sandbox, attempt)


def _finish(core: Core, sandbox: Sandbox, attempt: Attempt | None) -> None:
    reason = sandbox.reason or Reason(code="deleted", source="caller", at=core.clock.now())
    outcome = end(core, WORKER, sandbox, Status.TERMINATED, reason, attempt)
    if isinstance(outcome, Committed):
        core.nudges.dispatch()


def _try_later(core: Core, sandbox: Sandbox, attempt: Attempt) -> None:
    """The sandbox has ended for its tenant: its quota goes back now, the pool's slot only with the proof."""
    tuning = core.tuning
    tries = attempt.cleanup_failures + 1
    seconds = min(tuning.terminate_retry_seconds * 2 ** min(tries - 1, 10), tuning.terminate_retry_seconds_max)
    held = sandbox.reservation
    waiting = sandbox.with_(due_at=core.after(seconds))
    returned: list[Update] = []
    if held is not None and held.tenant:
        waiting = waiting.with_(reservation=held.model_copy(update={"tenant": False}))
        returned = give_back(sandbox, keep_pool=True)
    changed, put = write(sandbox, waiting)
    count = write_attempt(attempt, attempt.with_(cleanup_failures=tries))
    if isinstance(core.commit([put, count, *returned]), Committed) and returned:
        core.nudges.dispatch()
