"""Removing a pool: what it still holds, and letting go of it by force.

A pool is removed when nothing of it is left to clean up. By force it is removed all the same, also when its kind does
not exist any more and nothing at its backend can be reached: then its sandboxes end here and what runs there stays
there, for somebody else to remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from ..errors import InvalidState
from ..model.attempt import Attempt, AttemptState
from ..model.pool import Pool, PoolCount, PoolState, PoolView
from ..model.quota import Counter, Scope
from ..model.reconciliation import Reconciliation
from ..model.record import Record, Table
from ..model.sandbox import ENDED, Reason, Sandbox, Status
from ..model.snapshot import Snapshot, SnapshotTally, snapshot_list
from ..model.tenancy import OPERATOR_ORG, Org, OrgEntry, Project
from ..store.ports import Absent, Action, AnyOf, Committed, Condition, Delete, Equals, Page, Put, Refused
from .accounts import left_by
from .capturing import let_go
from .core import Caller, Core
from .ending import end, settled, write_attempt
from .pools import detail, set_state, uses
from .tallies import tally

ATTEMPTS_MAX = 2_000
"""Let go of by one call; the next goes on."""
TRIES_MAX = 3
EMPTY_IT = "Drain it, delete its sandboxes and snapshots, then repeat."
REPEAT = "Repeat the call in a second."
NO_SNAPSHOTS: tuple[Condition, ...] = (AnyOf((Absent(), Equals("count", 0))),)


@dataclass(frozen=True)
class Held:
    """What a pool still holds. `slots` are its counter's, the rest are attempts."""

    slots: int
    instances: int
    """Running, paused or stopped."""
    starting: int
    cleanups: int
    """Attempts that may have left something behind."""
    snapshots: int

    @property
    def anything(self) -> bool:
        return any(asdict(self).values())


def held(core: Core, pool: str) -> Held:
    counter = core.store.get(Counter, Counter.key_of(Scope.POOL, pool))
    states = [attempt.status for attempt in _attempts(core, pool)]
    return Held(
        slots=counter.held.sandboxes if counter is not None else 0,
        instances=states.count(AttemptState.LIVE),
        starting=states.count(AttemptState.CALLING),
        cleanups=states.count(AttemptState.DEBT),
        snapshots=tally(core, Scope.POOL, pool).count,
    )


def remove(core: Core, caller: Caller, name: str, *, force: bool = False) -> None:
    """Remove a pool that holds nothing. Raises `InvalidState` with what it holds.

    With `force` its sandboxes end first, as `pool_removed`. What is admitted at this moment comes back by itself, so
    the call may have to be repeated.
    """
    pool = detail(core, name).pool
    holds = held(core, name)
    if holds.anything and force:
        pool = _let_go(core, caller, pool, holds)
        holds = held(core, name)
    if holds.anything:
        next_step = (
            "Repeat the call in a second." if force else "Drain it, delete its sandboxes and snapshots, then repeat."
        )
        raise InvalidState(
            f"Pool {name!r} still holds {holds.slots} slots: {holds.instances} instances, {holds.starting} that start, "
            f"{holds.cleanups} to clean up, and {holds.snapshots} snapshots. {next_step}",
            pool=name, held=holds.slots, instances=holds.instances, starting=holds.starting, cleanups=holds.cleanups,
            snapshots=holds.snapshots,
        )  # fmt: skip
    _delete(core, caller, pool, forced=force)


def _delete(core: Core, caller: Caller, pool: Pool, *, forced: bool) -> None:
    key = Counter.key_of(Scope.POOL, pool.name)
    counter = core.store.get(Counter, key)
    empty: tuple[Condition, ...] = ()
    if counter is not None:
        empty = tuple(Equals(f"free_{what}", getattr(counter, f"limit_{what}")) for what in ("sandboxes", "retained"))
    event = core.event(caller, "pool.delete", pool.name, OPERATOR_ORG, pool=pool.name, details={"forced": forced})
    actions: list[Action] = [
        *uses(pool, -1),
        Delete(Pool, pool.key(), "pool", (Equals("version", pool.version),)),
        Delete(Counter, key, "counter", empty),
        Delete(SnapshotTally, SnapshotTally.key_of(Scope.POOL, pool.name), "tally", NO_SNAPSHOTS),
        Delete(PoolView, PoolView.key_of(pool.name), "view"),
        Delete(PoolCount, PoolCount.key_of(pool.name), "count"),
        Delete(Reconciliation, Reconciliation.key_of(pool.name), "reconciliation"),
        Put(event, (Absent(),), "event"),
    ]
    if isinstance(core.commit(actions), Refused):
        raise InvalidState(f"Pool {pool.name!r} changed meanwhile; look at it and repeat.", pool=pool.name)
    core.catalog.forget()


def _let_go(core: Core, caller: Caller, pool: Pool, holds: Held) -> Pool:
    """Close the pool, say who asked for it, and end what it holds."""
    pool = set_state(core, caller, pool.name, PoolState.DRAINING).pool
    event = core.event(
        caller, "pool.force_release", pool.name, OPERATOR_ORG, pool=pool.name, details={**asdict(holds)}
    )  # fmt: skip
    core.commit([Put(event, (Absent(),), "event")])
    for attempt in _attempts(core, pool.name)[:ATTEMPTS_MAX]:
        _abandon(core, caller, attempt)
    for snapshot in _snapshots(core, pool.name):
        let_go(core, snapshot)
    core.nudges.dispatch()
    return pool


def _abandon(core: Core, caller: Caller, listed: Attempt) -> None:
    """Settle an attempt without a look at the backend, and end the sandbox that lives in it."""
    for _ in range(TRIES_MAX):
        attempt = core.store.get(Attempt, listed.key())
        if attempt is None or attempt.status is AttemptState.SETTLED:
            return
        sandbox = core.store.get(Sandbox, Sandbox.key_of(attempt.sandbox))
        if sandbox is not None and _lives_in(sandbox, attempt):
            status = Status.TERMINATED if sandbox.status is Status.TERMINATING else Status.FAILED
            detail = f"pool {attempt.pool} was removed by force"
            reason = Reason(code="pool_removed", source="operator", detail=detail, at=core.clock.now())
            outcome = end(core, caller, sandbox, status, reason, attempt)
        else:
            outcome = core.commit([write_attempt(attempt, settled(core, attempt)), *left_by(attempt)])
        if isinstance(outcome, Committed):
            return


def _lives_in(sandbox: Sandbox, attempt: Attempt) -> bool:
    return (
        sandbox.status not in ENDED
        and sandbox.pool == attempt.pool
        and sandbox.attempt == attempt.number
        and attempt.status in (AttemptState.CALLING, AttemptState.LIVE)
    )


def _snapshots(core: Core, pool: str) -> Iterator[Snapshot]:
    """Those that count for the pool; they are listed by project, so every project is looked through."""
    for org in _rows(partial(core.store.query, Table.CONFIG, "ORGS")):
        assert isinstance(org, OrgEntry)
        pk = Org.key_of(org.id).pk
        for project in _rows(partial(core.store.query, Table.CONFIG, pk, prefix="PROJECT#")):
            assert isinstance(project, Project)
            for row in _rows(partial(core.store.query_list, snapshot_list(project.id))):
                if isinstance(row, Snapshot) and row.pool == pool and row.holds:
                    yield row


def _rows(read: Callable[..., Page]) -> Iterator[Record]:
    after: str | None = None
    while True:
        page = read(after=after)
        yield from page.rows
        after = page.next
        if after is None:
            return


def _attempts(core: Core, pool: str) -> list[Attempt]:
    """All that are not settled, from an index that may be a moment behind."""
    rows = _rows(partial(core.store.query_pool, pool))
    return [row for row in rows if isinstance(row, Attempt)]
