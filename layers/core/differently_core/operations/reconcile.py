"""Reconcile: what the backends say flows back into the store, one pool at a time.

Nothing foreign is touched, nothing that is starting is touched, and nothing is done about a finding that is made only
once: a list may lag behind. Absence is judged from whole lists alone; a list that fails skips the pool for this pass.
What an open attempt or a debt may have left is the worker's and the cleanup's business, so both are only nudged.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ..contract import Adapter, Instance, InstanceState, Target
from ..errors import DifferentlyError, NotFound
from ..model.attempt import Attempt, AttemptState
from ..model.reconciliation import SUSPECTS_MAX, Reconciliation
from ..model.sandbox import ENDED, LIVE, MoveKind, Reason, Sandbox, Status
from ..runtime.ids import SandboxId
from ..store.ports import Action, Committed, Put, StoreThrottled, StoreUnavailable
from . import leases, moves, pool_recount, retention, times
from .accounts import give_back
from .attempts import newest, unsettled
from .backends import adapter_of, calling, delete_instance, share_a_backend
from .core import Core, system
from .difference import Changed, Finding, Missing, Strange, compare
from .ending import end, event_of, transfer, write_attempt
from .worker import finished

log = logging.getLogger(__name__)
RECONCILER = system("reconciler")
GRACE = timedelta(seconds=30)
"""How long a finding must stand before it is acted on, at least."""
ATTEMPTS_MAX = 5_000
"""Attempts that one pass reads; the next goes on where it stopped."""
FINDINGS_MAX = 200
"""Findings that one pass looks into."""
FOLLOWED = {InstanceState.STOPPED: Status.STOPPED, InstanceState.PAUSED: Status.PAUSED}
WOKEN = {Status.STOPPED: MoveKind.START, Status.PAUSED: MoveKind.RESUME}


@dataclass(frozen=True)
class Report:
    """What one pass over one pool found and did; `error` when its list could not be read."""

    pool: str
    instances: int = 0
    attempts: int = 0
    orphans_deleted: int = 0
    lost: int = 0
    followed: int = 0
    nudged: int = 0
    suspects: int = 0
    unowned_skipped: int = 0
    error: str | None = None


@dataclass
class _Pass:
    core: Core
    pool: str
    adapter: Adapter
    report: Report
    suspects: dict[str, datetime] = field(default_factory=dict)

    def count(self, **more: int) -> None:
        self.report = replace(self.report, **{name: getattr(self.report, name) + by for name, by in more.items()})


def reconcile_all(core: Core) -> list[Report]:
    """Every pool after the other; one that fails never keeps the next from being looked at."""
    return [reconcile(core, name) for name in sorted(core.catalog.pools().pools)]


def reconcile(core: Core, pool: str) -> Report:
    """One bounded pass, and now and then a count of what the pool holds; raises only for faults of the store."""
    pool_recount.when_due(core, pool)
    try:
        adapter = adapter_of(core, pool)
        instances = calling(adapter, lambda: adapter.list(core.catalog.installation().id))
    except (StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        log.warning("pool not reconciled", extra={"pool": pool, "error": error.message})
        return Report(pool, error=error.message)
    before = core.store.get(Reconciliation, Reconciliation.key_of(pool))
    attempts, cursor = _attempts(core, pool, before.cursor if before is not None else None)
    whole = cursor is None and (before is None or before.cursor is None)
    difference = compare(core.catalog.installation().id, instances, attempts, whole=whole)
    run = _Pass(core, pool, adapter, Report(pool, len(instances), len(attempts), unowned_skipped=difference.unowned))
    _nudge_the_stuck(run, attempts)
    _look_into(run, difference.findings, before)
    core.store.transact([Put(_remembered(run, cursor), (), "reconciliation")])
    log.info("reconciled", extra={"pool": pool, "lost": run.report.lost, "orphans": run.report.orphans_deleted})
    return replace(run.report, suspects=len(run.suspects))


def _attempts(core: Core, pool: str, after: str | None) -> tuple[list[Attempt], str | None]:
    found: list[Attempt] = []
    while len(found) < ATTEMPTS_MAX:
        page = core.store.query_pool(pool, after=after)
        found += [row for row in page.rows if isinstance(row, Attempt)]
        after = page.next
        if after is None:
            break
    return found, after


def _remembered(run: _Pass, cursor: str | None) -> Reconciliation:
    kept = dict(sorted(run.suspects.items(), key=lambda entry: entry[1])[:SUSPECTS_MAX])
    return Reconciliation(pool=run.pool, at=run.core.clock.now(), cursor=cursor, suspects=kept)


def _nudge_the_stuck(run: _Pass, attempts: Sequence[Attempt]) -> None:
    """Open attempts past their time, and debts: their due time finds them too, so this only makes it sooner."""
    now = run.core.clock.now()
    for attempt in attempts:
        if attempt.status is AttemptState.CALLING and attempt.call_until <= now:
            run.core.nudges.worker(attempt.sandbox)
            run.count(nudged=1)
        elif attempt.status is AttemptState.DEBT and attempt.due_at is not None and attempt.due_at <= now:
            run.core.nudges.cleanup(attempt.sandbox, attempt.number)
            run.count(nudged=1)


def _look_into(run: _Pass, findings: Sequence[Finding], before: Reconciliation | None) -> None:
    """Act on what was found before and has stood for the grace; remember what is new."""
    now = run.core.clock.now()
    known = before.suspects if before is not None else {}
    for finding in findings[:FINDINGS_MAX]:
        since = known.get(finding.name, now)
        if now - since < GRACE or not _settle(run, finding):
            run.suspects[finding.name] = since


def _settle(run: _Pass, finding: Finding) -> bool:
    """Do what the finding asks for, if it still holds; True when there is nothing left to remember."""
    try:
        match finding:
            case Strange(instance):
                return _remove_orphan(run, instance)
            case Missing(attempt):
                return _lose(run, attempt)
            case Changed(attempt, instance):
                return _follow(run, attempt, instance)
    except (StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        log.info("finding kept", extra={"pool": run.pool, "finding": finding.name, "error": error.message})
        return False


def _remove_orphan(run: _Pass, instance: Instance) -> bool:
    """Delete an instance that nothing can want any more, on what the store says right now.

    A sandbox that has ended, or runs elsewhere, never comes back to an instance that no open attempt of it names.
    """
    core = run.core
    sandbox = core.store.get(Sandbox, Sandbox.key_of(SandboxId(instance.owner.sandbox)))
    attempts = [
        attempt
        for attempt in unsettled(core, SandboxId(instance.owner.sandbox))
        if share_a_backend(core, attempt.pool, run.pool)
    ]
    if not _is_orphan(sandbox, attempts, instance):
        return False
    if calling(run.adapter, lambda: delete_instance(run.adapter, Target(instance.owner, instance.ref))):
        log.warning("orphan deleted", extra={"pool": run.pool, "sandbox": instance.owner.sandbox})
        run.count(orphans_deleted=1)
        return True
    return False


def _is_orphan(sandbox: Sandbox | None, attempts: Sequence[Attempt], instance: Instance) -> bool:
    if any(attempt.status is AttemptState.CALLING for attempt in attempts):
        return False  # it may be the one that is being made
    if any(attempt.ref == instance.ref for attempt in attempts):
        return False  # in use through another pool on the same backend, or a debt that will be cleaned up
    if any(attempt.status is AttemptState.DEBT and attempt.ref is None for attempt in attempts):
        return False  # a debt without a name may mean it
    if sandbox is None or sandbox.status in ENDED:
        return True
    return sandbox.status not in (Status.QUEUED, Status.PROVISIONING, Status.TERMINATING)


def _current(core: Core, attempt: Attempt) -> tuple[Sandbox, Attempt] | None:
    """The sandbox and the attempt as they stand now, if the sandbox still lives in this attempt's instance."""
    sandbox = core.store.get(Sandbox, Sandbox.key_of(attempt.sandbox))
    stored = newest(core, sandbox) if sandbox is not None else None
    if sandbox is None or stored is None or stored.number != attempt.number or stored.status is not AttemptState.LIVE:
        return None
    return (sandbox, stored) if sandbox.status in LIVE else None


def _lose(run: _Pass, attempt: Attempt) -> bool:
    """Absent from two whole lists and by a direct look: the sandbox ended behind our back."""
    core = run.core
    current = _current(core, attempt)
    if current is None:
        return True
    sandbox, stored = current
    over = finished(core, stored)
    try:
        calling(run.adapter, lambda: run.adapter.get(Target(core.owner(sandbox.id), stored.ref)))
    except NotFound:
        if not over:
            return False
    else:
        return True
    detail = "absent from two complete lists and from a direct look"
    reason = Reason(code=leases.lapse_code(core, sandbox), source="backend", detail=detail, at=core.clock.now())
    # Its instance is gone; a second one of the same create may be there, which the cleanup looks for.
    if isinstance(end(core, RECONCILER, sandbox, Status.FAILED, reason, stored, proved=False), Committed):
        run.count(lost=1)
        core.nudges.cleanup(sandbox.id, stored.number)
        core.nudges.dispatch()
    return True


def follow(core: Core, pool: str, adapter: Adapter, sandbox: SandboxId) -> None:
    """A direct look at one sandbox's instance by whoever knows that it may have changed; what cannot be told waits."""
    found = core.store.get(Sandbox, Sandbox.key_of(sandbox))
    attempt = newest(core, found) if found is not None else None
    if attempt is None or attempt.pool != pool or attempt.status is not AttemptState.LIVE:
        return
    try:
        instance = calling(adapter, lambda: adapter.get(Target(core.owner(sandbox), attempt.ref)))
    except DifferentlyError as error:
        log.info("not followed", extra={"pool": pool, "sandbox": sandbox, "error": error.message})
        return
    if instance.state in FOLLOWED:
        _follow(_Pass(core, pool, adapter, Report(pool)), attempt, instance)


def _follow(run: _Pass, attempt: Attempt, instance: Instance) -> bool:
    """The instance went another way by itself: say so, and give back what it no longer uses.

    One that is on its way is the worker's business. One that woke by itself is admitted like any other, so that it
    does not run without quota; until there is room it waits.
    """
    core = run.core
    current = _current(core, attempt)
    if current is None:
        return True
    sandbox, stored = current
    if sandbox.move is not None:
        core.nudges.worker(sandbox.id)
        run.count(nudged=1)
        return True
    detail = instance.message or f"the backend reports {instance.state}"
    reason = Reason(code=f"instance_{instance.state}", source="backend", detail=detail, at=core.clock.now())
    if instance.state is InstanceState.RUNNING:
        kind = WOKEN.get(sandbox.status)
        done = kind is None or moves.follow_awake(core, RECONCILER, sandbox, kind, reason) is not None
    elif instance.state in FOLLOWED:
        view = core.catalog.pools().views.get(run.pool)
        idled = instance.idle or (view is not None and view.idles_by_itself)
        done = _rest(core, sandbox.with_(idled=idled), stored, FOLLOWED[instance.state], reason)
    else:
        done = isinstance(end(core, RECONCILER, sandbox, Status.FAILED, reason, stored, proved=False), Committed)
    if done:
        run.count(followed=1)
        core.nudges.dispatch()
    return True


def _rest(core: Core, sandbox: Sandbox, attempt: Attempt, status: Status, reason: Reason) -> bool:
    expected = write_attempt(attempt, attempt.with_(rests=status))
    if sandbox.status is status:
        return isinstance(core.commit([expected]), Committed)
    at_rest = sandbox.with_(
        status=status, reason=reason, reservation=None, claim=None, busy_until=None, busy_with=None,
    )  # fmt: skip
    changed, puts = transfer(core, sandbox, times.at_large(core, retention.at_rest(core, at_rest)))
    actions: list[Action] = [
        *puts,
        expected,
        *give_back(sandbox, rests=True),
        event_of(core, RECONCILER, f"sandbox.{status.value}", sandbox, changed),
    ]
    return isinstance(core.commit(actions), Committed)
