"""Putting to rest what nobody uses: one write, on condition that nobody used it since that was decided.

The pool pauses it, which keeps memory, or else stops it, which keeps the disk. A pool that puts its own instances to
sleep is left alone; the reconciler follows it.
"""

from __future__ import annotations

import logging

from ..contract import Adapter, Target, supports
from ..errors import BackendError, DifferentlyError, NotFound, QuotaExceeded
from ..model.exec import JobState
from ..model.sandbox import MoveKind, Reason, Sandbox
from ..store.ports import StoreThrottled, StoreUnavailable
from . import moves, times
from .backends import adapter_of, calling
from .core import Core, system
from .ending import write

log = logging.getLogger(__name__)
TIMER = system("timer")


def way_to_rest(core: Core, adapter: Adapter, pool: str) -> MoveKind | None:
    """How the pool puts to rest what nobody uses; None where it cannot, or does so by itself."""
    view = core.catalog.pools().views.get(pool)
    if view is not None and view.idles_by_itself:
        return None
    return next((kind for kind in (MoveKind.PAUSE, MoveKind.STOP) if supports(adapter, moves.OPERATIONS[kind])), None)


def run_out(core: Core, sandbox: Sandbox) -> bool:
    """It has run for as long at a stretch as it may: to rest, whatever runs in it; False where its pool cannot."""
    kinds = (MoveKind.PAUSE, MoveKind.STOP)
    try:
        adapter = adapter_of(core, sandbox.pool or "")
    except BackendError as error:
        log.info("not put to rest yet", extra={"sandbox": sandbox.id, "error": error.message})
        core.store.transact([write(sandbox, sandbox.with_(due_at=core.after(core.tuning.queue_look_seconds)))[1]])
        return True
    kind = next((kind for kind in kinds if supports(adapter, moves.OPERATIONS[kind])), None)
    if kind is None:
        return False
    try:
        moves.run_out(core, TIMER, sandbox, kind)
    except QuotaExceeded as error:
        _put_off(core, sandbox, error)
    return True


def _put_off(core: Core, sandbox: Sandbox, error: QuotaExceeded) -> None:
    """Its pool keeps no more: it runs on, shown with that, and is looked at again while nobody uses it."""
    log.info("not put to rest", extra={"sandbox": sandbox.id, "pool": sandbox.pool, "why": "retained_full"})
    reason = Reason(code="retained_full", source="policy", detail=error.message, at=core.clock.now())
    look = core.after(core.tuning.queue_look_seconds)
    due = min(moment for moment in (look, sandbox.expires_at, sandbox.renew_at) if moment is not None)
    core.store.transact([write(sandbox, sandbox.with_(reason=reason, due_at=due))[1]])


def settle(core: Core, sandbox: Sandbox) -> None:
    """A running sandbox is due: put it to rest if nobody uses it, else say when to look again."""
    now = core.clock.now()
    if sandbox.due_at is None or now < sandbox.due_at:
        return
    unused = sandbox.unused_at()
    if unused is not None and now >= unused:
        sandbox = _without_ended_jobs(core, sandbox)
    idle, kind = sandbox.idle_at(), sandbox.idle_by
    if idle is not None and now >= idle and kind is not None:
        try:
            moves.fall_asleep(core, TIMER, sandbox, kind)
        except QuotaExceeded as error:
            _put_off(core, sandbox, error)
    else:
        core.store.transact([write(sandbox, times.at_large(core, sandbox))[1]])


def _without_ended_jobs(core: Core, sandbox: Sandbox) -> Sandbox:
    """Jobs alone keep it awake: those that have ended do so no longer, and it counts as used until now."""
    now = core.clock.now()
    if sandbox.busy_until is None or sandbox.busy_until <= now:
        return sandbox
    jobs = times.only_jobs(sandbox)
    running = [job for job in jobs if _runs(core, sandbox, job)]
    if len(running) == len(jobs):
        return sandbox
    left = " ".join(f"job:{job}" for job in running)
    return sandbox.with_(
        busy_with=left or None, busy_until=sandbox.busy_until if left else None, last_activity_at=now
    )  # fmt: skip


def _runs(core: Core, sandbox: Sandbox, job: str) -> bool:
    """Whether a job still runs; one of which nothing can be learned counts until its time is over."""
    try:
        adapter = adapter_of(core, sandbox.pool or "")
        target = Target(core.owner(sandbox.id), sandbox.backend_ref)
        return calling(adapter, lambda: adapter.job_status(target, job)).state is JobState.RUNNING
    except NotFound:
        return False
    except (StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        log.info("job not seen", extra={"sandbox": sandbox.id, "error": error.message})
        return True
