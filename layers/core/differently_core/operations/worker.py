"""One step of one sandbox: look at what it is now, do the next thing, write down what happened.

A step is level-triggered: it can be called twice, late, by two workers or after a crash, because it decides only from
the record and writes only under the version it read. Backend calls happen between two writes: the attempt before, the
outcome after. What an error means for attempt, sandbox and pool is decided by the error table alone.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from ..contract import Adapter, CreateRequest, Info, Instance, InstanceState, Operation, Target, supports
from ..errors import (
    BackendError,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    SandboxFailed,
    UnsupportedOperation,
)  # fmt: skip
from ..model.attempt import Attempt, AttemptState
from ..model.port import OpenPort
from ..model.record import Table
from ..model.sandbox import Claim, Condition, Conditions, Reason, Sandbox, SandboxEnv, Status
from ..policy import egress
from ..policy.starting import Start, start_of
from ..runtime.ids import SandboxId
from ..store.ports import (
    Absent,
    Action,
    Check,
    Committed,
    Equals,
    Put,
    Refused,
)  # fmt: skip
from . import forking, idle, leases, moves, moving, times
from .accounts import give_back
from .attempts import newest, unsettled
from .backends import (
    adapter_of,
    calling,
    delete_instance,
    find_instance,
    has_room_again,
    mark_unhealthy,
    reachable,
    rest,
    share_a_backend,
)  # fmt: skip
from .confining import confined
from .core import Core, system
from .ending import end, event_of, requeue, transfer, write, write_attempt
from .giving import given
from .marks import clear_if_nobody_waits
from .restoring import doubt, let_go, ref_of
from .sandboxes import free_key

log = logging.getLogger(__name__)
WORKER = system("worker")
TIMER = system("timer")
CREATE_CALLS_MAX = 3
LEAVING = frozenset({Status.PAUSING, Status.STOPPING, Status.TERMINATING})
"""On the way out of running."""


def step(core: Core, sandbox: SandboxId) -> None:
    """Do what is due for this sandbox; raises only for faults of the store."""
    found = core.store.get(Sandbox, Sandbox.key_of(sandbox))
    if found is None:
        return
    if found.status in LEAVING:
        _close_ports(core, found)
    match found.status:
        case Status.QUEUED:
            _wait_on(core, found)
        case Status.PROVISIONING:
            _provision(core, found)
        case Status.RUNNING:
            if not (_expire(core, found) or _run_out(core, found) or leases.settle(core, found)):
                idle.settle(core, found)
        case Status.PAUSED | Status.STOPPED:
            if not (_expire(core, found) or leases.settle(core, found)):
                _look_later(core, found)
        case Status.PAUSING | Status.RESUMING | Status.STOPPING | Status.STARTING:
            if not _expire(core, found):
                moving.carry_on(core, found)
        case Status.TERMINATING:
            _terminate(core, found)
        case Status.TERMINATED | Status.FAILED:
            pass  # a message that came twice, or late


def _close_ports(core: Core, sandbox: Sandbox) -> None:
    """Take back soon what leads into it; should the messages be lost, each port finds out by its own due time."""
    for row in core.store.query(Table.STATE, f"SBX#{sandbox.id}", prefix="PORT#").rows:
        if isinstance(row, OpenPort):
            core.nudges.port(sandbox.id, row.port)


def _wait_on(core: Core, sandbox: Sandbox) -> None:
    """A queued sandbox is due: its patience is over, or the sweep that found it had dispatch look again."""
    if _expire(core, sandbox):
        return
    if sandbox.awaits_snapshot:
        forking.look(core, sandbox)
        return
    now = core.clock.now()
    if sandbox.queue_deadline is not None and now >= sandbox.queue_deadline:
        reason = Reason(code="queue_timeout", source="timer", detail=_waited_for(sandbox), at=now)
        if sandbox.move is not None:
            moves.no_longer_waiting(core, TIMER, sandbox, reason)
        elif isinstance(end(core, TIMER, sandbox, Status.FAILED, reason), Committed):
            clear_if_nobody_waits(core, sandbox.org, sandbox.project)
        return
    if sandbox.due_at is not None and now >= sandbox.due_at:
        look = core.after(core.tuning.queue_look_seconds)
        due = min(moment for moment in (look, sandbox.queue_deadline, sandbox.expires_at) if moment is not None)
        core.store.transact([write(sandbox, sandbox.with_(due_at=due))[1]])


def _waited_for(sandbox: Sandbox) -> str:
    """Why each pool refused it, or what became of its last attempt."""
    if sandbox.rejections or sandbox.reason is None:
        return ", ".join(f"{entry.pool}: {entry.reason}" for entry in sandbox.rejections)
    return f"{sandbox.reason.code}: {sandbox.reason.detail}"


def _expire(core: Core, sandbox: Sandbox) -> bool:
    """Its time is over: the same end as a delete, unless its lifetime was extended meanwhile. False while it is not."""
    reason = _over(core, sandbox)
    if reason is not None:
        end_of_time(core, sandbox, reason)
    return reason is not None


def end_of_time(core: Core, sandbox: Sandbox, reason: Reason) -> None:
    now = core.clock.now()
    going = sandbox.with_(
        status=Status.TERMINATING, generation=sandbox.generation + 1, reason=reason, claim=None, due_at=now
    )
    changed, put = write(sandbox, going)
    actions = [put, event_of(core, TIMER, "sandbox.expire", sandbox, changed)]
    outcome = core.commit([*actions, free_key(sandbox.id)] if sandbox.idempotent else actions)
    if isinstance(outcome, Committed):
        _terminate(core, changed)


def _over(core: Core, sandbox: Sandbox) -> Reason | None:
    """Why its time is over, if it is."""
    now = core.clock.now()
    if sandbox.expires_at is not None and now >= sandbox.expires_at:
        capped = sandbox.lifetime_ends_at is not None and sandbox.expires_at >= sandbox.lifetime_ends_at
        detail = "its pool keeps it no longer" if capped else f"after {sandbox.ttl_seconds} s"
        return Reason(code="ttl_expired", source="timer", detail=detail, at=now)
    kept_until = sandbox.kept_until()
    if kept_until is not None and now >= kept_until:
        detail = f"{sandbox.status} since {sandbox.rested_at:%Y-%m-%dT%H:%M:%SZ}"
        return Reason(code="retention_expired", source="timer", detail=detail, at=now)
    return None


def _run_out(core: Core, sandbox: Sandbox) -> bool:
    """It has run for as long at a stretch as it may: to rest with it, or where its pool cannot, to its end."""
    now, until = core.clock.now(), times.runs_until(sandbox)
    if until is None or now < until:
        return False
    if not idle.run_out(core, sandbox):
        detail = f"after {sandbox.max_run_seconds} s"
        end_of_time(core, sandbox, Reason(code="max_run_reached", source="timer", detail=detail, at=now))
    return True


def _look_later(core: Core, sandbox: Sandbox) -> None:
    """It was due for something that has been put off since."""
    if sandbox.due_at is not None and sandbox.due_at <= core.clock.now():
        core.store.transact([write(sandbox, times.at_large(core, sandbox))[1]])


# Provisioning


def _provision(core: Core, sandbox: Sandbox) -> None:
    if sandbox.claimed(core.clock.now()):
        return
    attempt = newest(core, sandbox)
    if attempt is not None and attempt.status is AttemptState.CALLING:
        _observe(core, sandbox, attempt)
    else:
        _attempt(core, sandbox)


def _attempt(core: Core, sandbox: Sandbox) -> None:
    """Record a new attempt and the claim on it, then call the backend."""
    assert sandbox.pool is not None
    try:
        adapter = adapter_of(core, sandbox.pool)
        info = calling(adapter, adapter.info)
    except BackendError as error:
        _fail_attempt(core, sandbox, None, error)
        return
    try:
        given(core, sandbox)  # opened before anything is written: what cannot be opened now is tried again later
    except InvalidRequest as error:
        _fail_attempt(core, sandbox, None, error)
        return
    now = core.clock.now()
    call_until = now + timedelta(seconds=info.create_seconds)
    attempt = Attempt(
        sandbox=sandbox.id, number=sandbox.attempt + 1, org=sandbox.org, project=sandbox.project, pool=sandbox.pool,
        size=sandbox.size, preemptible=sandbox.preemptible, generation=sandbox.generation,
        status=AttemptState.CALLING, started_at=now, call_until=call_until,
        settles_at=call_until + timedelta(seconds=info.settles_seconds),
    )  # fmt: skip
    claimed = _claim(core, sandbox, info.create_seconds, attempt=attempt.number)
    changed, put = write(sandbox, claimed)
    outcome = core.store.transact([put, Put(attempt, (Absent(),), "attempt")])
    if isinstance(outcome, Committed):
        _call_create(core, changed, attempt, adapter)


def _claim(core: Core, sandbox: Sandbox, seconds: float, **changes: object) -> Sandbox:
    until = core.after(seconds + core.tuning.claim_margin_seconds)
    claim = Claim(owner=core.worker_name, until=until, generation=sandbox.generation)
    return sandbox.with_(claim=claim, due_at=until, **changes)


def _call_create(core: Core, sandbox: Sandbox, attempt: Attempt, adapter: Adapter) -> None:
    """Call the backend, in what is left of the attempt's time: nothing may come of it later than was written."""
    env = core.store.get(SandboxEnv, SandboxEnv.key_of(sandbox.id)) if sandbox.has_env else None
    start = _start(core, sandbox, attempt.pool)
    try:
        source = ref_of(core, sandbox.from_snapshot) if sandbox.from_snapshot is not None else None
        secrets = given(core, sandbox)
    except (NotFound, InvalidRequest) as error:
        _fail_attempt(core, sandbox, attempt, error)
        return
    request = CreateRequest(
        owner=core.owner(sandbox.id), org=sandbox.org, project=sandbox.project, template=start.template,
        image=start.image, size=sandbox.size, ttl_seconds=sandbox.ttl_seconds, labels=sandbox.labels,
        env={**(env.env if env else {}), **secrets}, from_snapshot=source,
        egress=egress.rules_of(sandbox.egress_rules) if sandbox.egress_rules is not None else None,
    )  # fmt: skip
    if request.egress is not None and not supports(adapter, Operation.EGRESS_SET):
        # The pool was another one when it was chosen. Nothing was sent.
        refused = SandboxFailed("The pool cannot limit what the sandbox reaches, which was asked for.", settled=True)
        _fail_attempt(core, sandbox, attempt, refused)
        return
    seconds = (attempt.call_until - core.clock.now()).total_seconds()
    if seconds <= 0:
        return  # this process stood still; whoever comes when its claim is over finds nothing and goes on
    try:
        instance = calling(adapter, lambda: adapter.create(request, seconds))
    except DifferentlyError as error:
        _fail_attempt(core, sandbox, attempt, error)
        return
    # After a repeated call the instance of an earlier one, whose answer was lost, may still come.
    seen = attempt.with_(ref=instance.ref, ended=attempt.calls == 1)
    _advance(core, sandbox, seen, instance, adapter, before=attempt)


def _start(core: Core, sandbox: Sandbox, pool: str) -> Start:
    """What it starts from there; if template or pool changed so that it cannot any more, the backend is to say so."""
    view = core.catalog.pools().views.get(pool)
    template = core.catalog.template(sandbox.template)
    start = start_of(sandbox.template, sandbox.image, template, pool, view.templates if view is not None else ())
    return start or Start(sandbox.template, sandbox.image)


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
    over = finished(core, attempt)  # before the look: what comes between the two has not been seen
    try:
        instance = calling(adapter, lambda: adapter.get(Target(core.owner(sandbox.id), attempt.ref)))
    except NotFound:
        _absent(core, claimed, attempt, adapter, info, over=over)
    except DifferentlyError as error:
        _leave_pool(core, claimed, attempt, error)
    else:
        _advance(core, claimed, attempt.with_(ref=instance.ref), instance, adapter, before=attempt)


def _absent(core: Core, sandbox: Sandbox, attempt: Attempt, adapter: Adapter, info: Info, *, over: bool) -> None:
    """No instance is there. It may still come, so only time or an idempotent create can go on."""
    vanished = attempt.ref is not None
    if not vanished and info.idempotent_create and attempt.calls < CREATE_CALLS_MAX:
        _repeat_create(core, sandbox, attempt, adapter, info)
    elif vanished or over:
        why = "the instance disappeared" if vanished else "no instance came up"
        reason = Reason(code="attempt_lost", source="backend", detail=why, at=core.clock.now())
        _retry_or_fail(core, sandbox, attempt, reason, proved=not vanished)
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
        _call_create(core, sandbox, stored, adapter)


def _advance(
    core: Core, sandbox: Sandbox, attempt: Attempt, instance: Instance, adapter: Adapter, *, before: Attempt
) -> None:
    """An instance of ours is there: admit it if it is ready, else look again later."""
    if instance.state is InstanceState.RUNNING:
        probed = reachable(core, adapter, Target(core.owner(sandbox.id), instance.ref))
        try:
            egress_set = None if probed is None else confined(core, adapter, sandbox, instance)
        except (InvalidRequest, UnsupportedOperation) as error:
            _failed_instance(core, sandbox, attempt, error.message)
            return
        if probed is not None and egress_set is not None:
            _admit(core, sandbox, attempt, instance, adapter, probed, egress_set, before)
            return
    elif instance.state is InstanceState.ERROR:
        _failed_instance(core, sandbox, attempt, instance.message or "the backend reports it failed")
        return
    if core.clock.now() - attempt.started_at > timedelta(seconds=core.tuning.ready_timeout_seconds):
        seconds = core.tuning.ready_timeout_seconds
        _failed_instance(core, sandbox, attempt, f"not ready after {seconds:.0f} s ({instance.state})")
        return
    _look_again(core, sandbox, attempt, before)


def _admit(
    core: Core, sandbox: Sandbox, attempt: Attempt, instance: Instance, adapter: Adapter, probed: Condition,
    egress_set: str, before: Attempt,
) -> None:  # fmt: skip
    debts = _debts(core, sandbox, attempt)
    if any(debt.ref == instance.ref for debt in debts):
        _leave_to_cleanup(core, sandbox, attempt)
        return
    now = core.clock.now()
    sandbox = sandbox.with_(lifetime_ends_at=_lifetime_end(core, attempt))
    expires = times.expiry(sandbox, now, sandbox.ttl_seconds)
    conditions = Conditions(
        seen=Condition(at=now, evidence=f"instance {instance.state} with our labels"),
        reachable=probed,
        prepared=Condition(at=now, evidence=(instance.prepared or "accepted by the backend's create") + egress_set),
        admitted=Condition(at=now, evidence=f"attempt {attempt.number}, generation {sandbox.generation}"),
    )
    running = sandbox.with_(
        status=Status.RUNNING, backend_ref=instance.ref, incarnation=instance.incarnation,
        region=instance.region or sandbox.region, claim=None, started_at=now, expires_at=expires,
        last_activity_at=now, idle_by=idle.way_to_rest(core, adapter, attempt.pool), conditions=conditions, reason=None,
        queue_deadline=None, not_before=None, rejections=(),
    )  # fmt: skip
    noted = leases.told(core, running.with_(running_since=now), adapter, instance.expires_at)
    changed, put = write(sandbox, times.at_large(core, noted))
    live = write_attempt(before, attempt.with_(status=AttemptState.LIVE, due_at=None))
    unchanged: list[Action] = [
        Check(Attempt, debt.key(), f"debt {debt.number}", (Equals("version", debt.version),)) for debt in debts
    ]
    event = event_of(core, WORKER, "sandbox.running", sandbox, changed)
    outcome = core.commit([put, live, event, *unchanged, *let_go(sandbox)])
    if isinstance(outcome, Refused):
        _hand_over(core, sandbox, attempt)
        return
    has_room_again(core, attempt.pool)
    if sandbox.from_snapshot is not None:
        core.nudges.snapshot(sandbox.from_snapshot)  # it may wait to be deleted


def _lifetime_end(core: Core, attempt: Attempt) -> datetime | None:
    """The latest end that its pool can give it: a little before the pool's own."""
    view = core.catalog.pools().views.get(attempt.pool)
    most = view.lifetime_seconds() if view is not None else 0
    margin = min(core.tuning.lifetime_margin_seconds, most / 2)
    return attempt.started_at + timedelta(seconds=most - margin) if most else None


def _debts(core: Core, sandbox: Sandbox, attempt: Attempt) -> list[Attempt]:
    """Earlier attempts whose cleanup could mean this instance: two pools may lead to one backend."""
    if attempt.number == 1:
        return []
    return [
        debt
        for debt in unsettled(core, sandbox.id)
        if debt.number != attempt.number
        and debt.ref in (None, attempt.ref)
        and share_a_backend(core, debt.pool, attempt.pool)
    ]


def _leave_to_cleanup(core: Core, sandbox: Sandbox, attempt: Attempt) -> None:
    """The backend gave us the instance of an earlier attempt, which is being removed: wait until it is gone."""
    reason = Reason(code="cleanup_pending", source="worker", detail="of an earlier attempt", at=core.clock.now())
    seconds = core.tuning.capacity_requeue_seconds
    outcome = requeue(core, WORKER, sandbox, attempt, reason, counted=False, seconds=seconds, proved=False)
    _after_write(core, sandbox, attempt, outcome, proved=False)


def _look_again(core: Core, sandbox: Sandbox, attempt: Attempt, before: Attempt) -> None:
    _, put = write(sandbox, sandbox.with_(claim=None, due_at=core.after(core.tuning.observe_seconds)))
    actions = [put] if attempt == before else [put, write_attempt(before, attempt)]
    if isinstance(core.commit(actions), Refused):
        _hand_over(core, sandbox, attempt)


def _hand_over(core: Core, sandbox: Sandbox, attempt: Attempt) -> None:
    """The sandbox was changed while the backend was called: note what was made, and let the newer intent act on it.

    A changed lifetime or label is no newer intent: the next step finds the instance and admits it.
    """
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


def _fail_attempt(core: Core, sandbox: Sandbox, attempt: Attempt | None, error: DifferentlyError) -> None:
    """React to a failed create by its class; `attempt` is None when the backend could not even be called."""
    log.info(
        "create failed",
        extra={"sandbox": sandbox.id, "pool": sandbox.pool, "code": error.code, "error": error.message},
    )
    lost = sandbox.from_snapshot if isinstance(error, NotFound) else None
    code = "snapshot_lost" if lost is not None else error.code
    reason = Reason(code=code, source="backend", detail=error.message, at=core.clock.now())
    if lost is not None:
        doubt(core, lost)
    if error.reaction.marks_pool_unhealthy:
        mark_unhealthy(core, sandbox.pool or "", error.message)
    unknown = isinstance(error, BackendError) and not error.settled
    # A refusal proves that nothing came of this call, not of an earlier one that was never answered.
    proved = attempt is None or attempt.calls == 1
    if isinstance(error, SandboxFailed) and attempt is not None:
        answered = _call_over(core, attempt).with_(ended=error.settled and proved)
        _failed_instance(core, sandbox, answered, error.message)
    elif unknown and attempt is not None:
        # The answer is lost. Look under the same id soon.
        _look_again(core, sandbox, _call_over(core, attempt), attempt)
    elif isinstance(error, InsufficientCapacity):
        seconds = rest(core, sandbox.pool or "")
        outcome = requeue(core, WORKER, sandbox, attempt, reason, counted=False, seconds=seconds, proved=proved)
        _after_write(core, sandbox, attempt, outcome, proved=proved)
    elif error.reaction.counts_attempt or isinstance(error, InvalidState):
        # In a wrong state now (a name still being freed, say) is not wrong for good.
        _retry_or_fail(core, sandbox, attempt, reason, proved=proved)
    else:
        outcome = end(core, WORKER, sandbox, Status.FAILED, reason, attempt, proved=proved)
        _after_write(core, sandbox, attempt, outcome, proved=proved)


def _call_over(core: Core, attempt: Attempt) -> Attempt:
    """The create call has come back: from now on counts how long a late instance of it may still turn up."""
    now = core.clock.now()
    return attempt.with_(call_until=now, settles_at=now + (attempt.settles_at - attempt.call_until))


def _failed_instance(core: Core, sandbox: Sandbox, attempt: Attempt, detail: str) -> None:
    """This one failed on a healthy backend: give it up, then try again or give up the sandbox.

    What is left of it is removed by the cleanup, after this write. The other way round, a worker that stood still in
    between could remove an instance that has become ready and is in use.
    """
    reason = Reason(code="sandbox_failed", source="backend", detail=detail, at=core.clock.now())
    _retry_or_fail(core, sandbox, attempt, reason, proved=False)


def _leave_pool(core: Core, sandbox: Sandbox, attempt: Attempt, error: DifferentlyError) -> None:
    """The pool of an open attempt cannot be observed: leave a debt there and let placement find another pool."""
    if error.reaction.marks_pool_unhealthy:
        mark_unhealthy(core, attempt.pool, error.message)
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
        outcome = requeue(core, WORKER, sandbox, attempt, reason, counted=True, seconds=seconds, proved=proved)
    _after_write(core, sandbox, attempt, outcome, proved=proved)


def _after_write(core: Core, sandbox: Sandbox, attempt: Attempt | None, outcome: object, *, proved: bool) -> None:
    """What was freed may let somebody in; what was refused is looked at again under the newer intent."""
    if isinstance(outcome, Refused):
        if attempt is not None:
            _hand_over(core, sandbox, attempt)
        else:
            core.nudges.worker(sandbox.id)
        return
    if attempt is not None and not proved:
        core.nudges.cleanup(sandbox.id, attempt.number)
    core.nudges.dispatch()


# Termination


def remove(core: Core, adapter: Adapter, attempt: Attempt) -> bool:
    """Delete everything of the sandbox at the backend and say whether its absence was then seen.

    A backend may have made a second instance and told of one, so the last look is by owner. Errors mean "not proved
    yet". Only for a sandbox that has ended: nothing of it may be in use there any more.
    """
    owner = core.owner(attempt.sandbox)
    try:
        if attempt.ref is not None and not delete_instance(adapter, Target(owner, attempt.ref)):
            return False
        return find_instance(adapter, Target(owner)) is None or delete_instance(adapter, Target(owner))
    except Exception as error:
        log.info(
            "removal not confirmed",
            extra={"sandbox": attempt.sandbox, "pool": attempt.pool, "error": type(error).__name__},
        )
    return False


def finished(core: Core, attempt: Attempt) -> bool:
    """True when no instance can come of the attempt any more: its end was seen, or its time is over.

    Only a look that begins after this is a proof that nothing is there.
    """
    return attempt.ended or core.clock.now() >= attempt.settles_at


def _terminate(core: Core, sandbox: Sandbox) -> None:
    """Delete at the backend until it is gone, then give everything back; quota goes back even while it is stuck."""
    attempt = newest(core, sandbox)
    if attempt is None or attempt.status in (AttemptState.SETTLED, AttemptState.DEBT):
        _finish(core, sandbox, None)
        return
    over = finished(core, attempt)
    try:
        gone = remove(core, adapter_of(core, attempt.pool), attempt)
    except BackendError as error:
        log.warning("pool unusable", extra={"sandbox": sandbox.id, "pool": attempt.pool, "error": error.message})
        gone = False
    if gone and over:
        _finish(core, sandbox, attempt)
    else:
        _try_later(core, sandbox, attempt)


def _finish(core: Core, sandbox: Sandbox, attempt: Attempt | None) -> None:
    reason = sandbox.reason or Reason(code="deleted", source="caller", at=core.clock.now())
    outcome = end(core, WORKER, sandbox, Status.TERMINATED, reason, attempt)
    if isinstance(outcome, Refused):
        return
    if sandbox.reservation is None:
        clear_if_nobody_waits(core, sandbox.org, sandbox.project)
    core.nudges.dispatch()


def next_try(core: Core, attempt: Attempt) -> datetime:
    """When to look again for what an attempt left: longer after each failure, but at once when its time is over."""
    tuning = core.tuning
    doublings = min(attempt.cleanup_failures, 10)
    at = core.after(min(tuning.terminate_retry_seconds * 2**doublings, tuning.terminate_retry_seconds_max))
    return min(at, attempt.settles_at) if attempt.settles_at > core.clock.now() else at


def _try_later(core: Core, sandbox: Sandbox, attempt: Attempt) -> None:
    """The sandbox has ended for its tenant: its quota goes back now, the pool's slot only with the proof."""
    tries = attempt.cleanup_failures + 1
    held = sandbox.reservation
    waiting = sandbox.with_(due_at=next_try(core, attempt))
    gives_back = held is not None and held.tenant
    if held is not None and gives_back:
        waiting = waiting.with_(reservation=held.model_copy(update={"tenant": False}))
    _, puts = transfer(core, sandbox, waiting)
    count = write_attempt(attempt, attempt.with_(cleanup_failures=tries))
    actions: list[Action] = [*puts, count]
    if gives_back:
        # Whoever counts again finds by its event what was given back.
        actions += [*give_back(sandbox, keep_pool=True), event_of(core, WORKER, "sandbox.release", sandbox, waiting)]
    if isinstance(core.commit(actions), Committed) and gives_back:
        core.nudges.dispatch()
