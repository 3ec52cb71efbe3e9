"""The writes that move a sandbox between placement, the queue and its end. Each is one transaction.

All of them are conditional on the version that was decided from, so a delete, a longer lifetime or another worker
always wins over a stale decision. What a sandbox holds is given back in the write that ends the holding.
"""

from __future__ import annotations

from datetime import timedelta

from ..model.attempt import Attempt, AttemptState
from ..model.queue import QueueRow
from ..model.sandbox import ENDED, LIVE, Reason, Sandbox, SandboxEnv, Status, told
from ..model.secret import SandboxSecrets
from ..store.ports import Absent, Action, Delete, Equals, Outcome, Put
from . import backlogs
from .accounts import give_back
from .core import Caller, Core
from .create import patience_seconds, queue_row
from .metering import changes_counting, metered
from .restoring import let_go
from .sandboxes import free_key


def write(before: Sandbox, after: Sandbox) -> tuple[Sandbox, Put]:
    """The next version of a sandbox, on condition that nobody wrote since it was read.

    For what changes nothing that is counted; `ValueError` if it does.
    """
    if changes_counting(before, after):
        raise ValueError(f"{before.status} -> {after.status} changes what is counted and must be written by `transfer`")
    return _next(before, after)


def transfer(core: Core, before: Sandbox, after: Sandbox) -> tuple[Sandbox, list[Put]]:
    """The same, for what may change what is counted: with the interval that ends, if one does."""
    if not changes_counting(before, after):
        changed, put = _next(before, after)
        return changed, [put]
    metered_now, ended = metered(before, after, core.catalog.price(after.pool), core.clock.now())
    changed, put = _next(before, metered_now)
    return changed, [put] if ended is None else [put, Put(ended, (Absent(),), f"interval:{after.id}")]


def _next(before: Sandbox, after: Sandbox) -> tuple[Sandbox, Put]:
    changed = after.with_(version=before.version + 1)
    return changed, Put(changed, (Equals("version", before.version),), "sandbox")


def write_attempt(before: Attempt, after: Attempt) -> Put:
    changed = after.with_(version=before.version + 1)
    return Put(changed, (Equals("version", before.version),), "attempt")


def settled(core: Core, attempt: Attempt) -> Attempt:
    return attempt.with_(
        status=AttemptState.SETTLED,
        holds_slot=False,
        holds_place=False,
        ended=True,
        due_at=None,
        settled_at=core.clock.now(),
    )


def in_debt(core: Core, sandbox: Sandbox, attempt: Attempt) -> Attempt:
    """The attempt keeps what its sandbox holds of the pool, and is cleaned up by itself from now on.

    A sandbox at rest holds no slot, one that runs no place among what is kept.
    """
    held = sandbox.reservation
    holds = held is not None and held.pool == attempt.pool
    kept = sandbox.retained and sandbox.pool == attempt.pool
    return attempt.with_(status=AttemptState.DEBT, holds_slot=holds, holds_place=kept, due_at=core.clock.now())


def requeue(
    core: Core, caller: Caller, sandbox: Sandbox, attempt: Attempt | None, reason: Reason, *, counted: bool,
    seconds: float, proved: bool,
) -> Outcome:  # fmt: skip
    """Back into the queue at its old place. `proved`: nothing is left at the backend; otherwise the attempt is a debt.

    It waits no longer than its caller wanted in the first place, but a failure that counts is worth one more try.
    """
    ready = core.after(seconds)
    one_look = ready + timedelta(seconds=core.tuning.queue_look_seconds)
    deadline = sandbox.queue_deadline or max(one_look, ready + timedelta(seconds=patience_seconds(core, sandbox)))
    waiting = sandbox.with_(
        status=Status.QUEUED, pool=None, region=None, backend_ref=None, reservation=None, claim=None, reason=reason,
        failures=sandbox.failures + (1 if counted else 0), not_before=ready, due_at=ready,
        queue_deadline=max(deadline, one_look) if counted else deadline,
    )  # fmt: skip
    waiting, places = backlogs.join(core, waiting, at_any_rate=True)
    changed, puts = transfer(core, sandbox, waiting)
    actions: list[Action] = [
        *puts,
        Put(queue_row(changed), (), "queue"),
        *places,
        *give_back(sandbox, keep_pool=attempt is not None and not proved),
        event_of(core, caller, "sandbox.requeue", sandbox, changed),
    ]
    if attempt is not None:
        actions.append(write_attempt(attempt, settled(core, attempt) if proved else in_debt(core, sandbox, attempt)))
    return core.commit(actions)


def end(
    core: Core, caller: Caller, sandbox: Sandbox, status: Status, reason: Reason, attempt: Attempt | None = None, *,
    proved: bool = True,
) -> Outcome:  # fmt: skip
    """The last write of a sandbox's life: everything it holds goes back, its key is free, its environment is gone."""
    assert status in ENDED
    now = core.clock.now()
    over = sandbox.with_(
        status=status,
        reason=reason,
        ended_at=now,
        due_at=None,
        reservation=None,
        retained=False,
        backlogs=(),
        claim=None,
        move=None,
        not_before=None,
    )
    changed, puts = transfer(core, sandbox, over)
    actions: list[Action] = [
        *puts,
        *give_back(sandbox, keep_pool=attempt is not None and not proved),
        *backlogs.leave(sandbox),
        event_of(core, caller, f"sandbox.{status.value}", sandbox, changed),
    ]
    if sandbox.idempotent and sandbox.status in LIVE:
        # A deleted one gave up its key when the delete was accepted; by now the key may name another sandbox.
        actions.append(free_key(sandbox.id))
    if sandbox.has_env:
        actions.append(Delete(SandboxEnv, SandboxEnv.key_of(sandbox.id), "env"))
    if sandbox.masks:
        actions.append(Delete(SandboxSecrets, SandboxSecrets.key_of(sandbox.id), "secrets"))
    actions += let_go(sandbox)
    if sandbox.reservation is None:
        actions.append(Delete(QueueRow, QueueRow.key_of(sandbox.org, sandbox.priority, sandbox.id), "queue"))
    if attempt is not None:
        actions.append(write_attempt(attempt, settled(core, attempt) if proved else in_debt(core, sandbox, attempt)))
    return core.commit(actions)


def event_of(core: Core, caller: Caller, action: str, before: Sandbox, after: Sandbox) -> Put:
    event = core.event(
        caller, action, after.id, after.org, project=after.project, pool=before.pool or after.pool,
        before=before.status.value, after=after.status.value,
        details={**told(after.reason), "attempt": after.attempt},
    )  # fmt: skip
    return Put(event, (Absent(),), "event")
