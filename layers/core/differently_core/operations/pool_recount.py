"""Counting again what a pool holds, its slots and its places for what rests, and putting its counter right.

As for tenants (`recount`): a counter changes only in the transaction that changes what it counts, so it is wrong only
after a fault of ours or a table that was restored. Whoever holds something of a pool is named by its unsettled
attempts, or is on its way in or out and therefore due soon, or was changed a moment ago and is named by the log.
Indexes may lag, so each is read again from its own row, and a count holds only if the counter did not move meanwhile.
Nothing is corrected that was not found twice, and a correction is a difference, on condition that nothing moved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ..errors import InvalidState
from ..model.attempt import Attempt
from ..model.due import DUE_SHARDS, stamp
from ..model.pool import Pool, PoolCount
from ..model.quota import Counter, Scope
from ..model.record import Key, Table
from ..model.resources import DIMENSIONS, UNLIMITED, Size
from ..model.sandbox import Sandbox, Status
from ..model.tenancy import OPERATOR_ORG, OrgEntry
from ..runtime.ids import OrgId, SandboxId
from ..store.ports import (
    ACTIONS_MAX,
    Absent,
    Action,
    AnyOf,
    Check,
    Committed,
    Equals,
    Missing,
    Present,
    Put,
    StoreThrottled,
    Update,
)  # fmt: skip
from .attempts import unsettled
from .core import Caller, Core, system
from .pools import detail
from .recount import LAG, ROWS_MAX, TRIES_MAX, changed_since

log = logging.getLogger(__name__)
RECOUNTER: Final = system("recounter")
EVERY: Final = timedelta(hours=1)
HORIZON: Final = timedelta(hours=1)
"""What is being made or removed is looked at again far sooner."""
PASSING: Final = frozenset({Status.PROVISIONING.value, Status.TERMINATING.value})


@dataclass(frozen=True)
class Held:
    """Of one pool."""

    slots: Size
    retained: int


NOTHING: Final = Held(Size(), 0)


@dataclass(frozen=True)
class PoolRecount:
    """`drift` is what the counter said beyond what is held: above zero, room was lost; below, too much was let in."""

    held: Held
    drift: Held
    corrected: bool


def recount(core: Core, caller: Caller, pool: str, *, correct: bool = True) -> PoolRecount:
    """Compare a pool's counter with what holds it, and correct it unless `correct` is False.

    Raises `NotFound`, `InvalidState` for more than one call can read, and `StoreThrottled` when the counter never stood
    still for the reads.
    """
    found = detail(core, pool).pool
    counted = _counted(core, found)
    if counted.drift != NOTHING and correct:
        again = _counted(core, found)
        corrected = again.drift == counted.drift and _correct(core, caller, found, again)
        counted = _Counted(again.held, again.drift, again.counter, corrected)
    done = PoolRecount(counted.held, counted.drift, counted.corrected)
    _tell(pool, done)
    return done


def when_due(core: Core, pool: str) -> None:
    """Once an hour, by whoever comes by: find a drift, tell of it, repair it. Raises only for faults of the store."""
    key = PoolCount.key_of(pool)
    last = core.store.get(PoolCount, key)
    now = core.clock.now()
    if last is not None and now - last.at < EVERY:
        return
    when = Absent() if last is None else Equals("at", stamp(last.at))
    mine: list[Action] = [
        Put(PoolCount(pool=pool, at=now), (when,), "count"), Check(Pool, Pool.key_of(pool), "pool", (Present(),))
    ]  # fmt: skip
    if not isinstance(core.store.transact(mine), Committed):
        return
    try:
        recount(core, RECOUNTER, pool)
    except (StoreThrottled, InvalidState) as error:
        log.info("pool not recounted", extra={"pool": pool, "why": error.message})


@dataclass(frozen=True)
class _Counted:
    held: Held
    drift: Held
    counter: Counter | None
    corrected: bool = False


def _counted(core: Core, pool: Pool) -> _Counted:
    since = core.clock.now() - LAG
    attempts = _attempts(core, pool.name)
    known = {attempt.sandbox for attempt in attempts} | set(_passing(core))
    keys = {attempt.key() for attempt in attempts}
    for attempt_number in range(TRIES_MAX):
        counter = _counter(core, pool.name)
        lately = {SandboxId(name) for org in _orgs(core) for name in changed_since(core, org, since, "sbx_")}
        keys |= {attempt.key() for sandbox in sorted(lately) for attempt in unsettled(core, sandbox)}
        held = _held(core, pool.name, known | lately, keys)
        again = _counter(core, pool.name)
        if (counter.moves if counter is not None else None) == (again.moves if again is not None else None):
            said = Held(counter.held, counter.retained) if counter is not None else NOTHING
            drift = Held(said.slots - held.slots, said.retained - held.retained)
            return _Counted(held, drift, counter)
        core.back_off(min(attempt_number, 4))
    raise StoreThrottled(f"Pool {pool.name} is too busy to be counted right now; repeat the call, or drain it first.")


def _counter(core: Core, pool: str) -> Counter | None:
    return core.store.get(Counter, Counter.key_of(Scope.POOL, pool))


def _attempts(core: Core, pool: str) -> list[Attempt]:
    found: list[Attempt] = []
    after: str | None = None
    while True:
        page = core.store.query_pool(pool, after=after)
        found += [row for row in page.rows if isinstance(row, Attempt)]
        if len(found) > ROWS_MAX:
            raise InvalidState(f"Pool {pool} has more than {ROWS_MAX} attempts; it cannot be counted by one call.")
        after = page.next
        if after is None:
            return found


def _passing(core: Core) -> Iterator[SandboxId]:
    """Sandboxes that are being made or removed: the only ones that may hold a slot without an open attempt."""
    until = stamp(core.clock.now() + HORIZON)
    for shard in range(DUE_SHARDS):
        after: str | None = None
        while True:
            rows, after = core.store.query_due(f"DUE#{shard}", until=until, after=after)
            for row in rows:
                if row.kind == Sandbox.kind and row.status in PASSING:
                    yield SandboxId(row.key.pk.removeprefix("SBX#"))
            if after is None:
                break


def _orgs(core: Core) -> Iterator[OrgId]:
    after: str | None = None
    while True:
        page = core.store.query(Table.CONFIG, "ORGS", after=after)
        yield from (row.id for row in page.rows if isinstance(row, OrgEntry))
        after = page.next
        if after is None:
            return


def _held(core: Core, pool: str, sandboxes: set[SandboxId], attempts: set[Key]) -> Held:
    """What they hold, by their own rows."""
    slots, retained = Size(), 0
    keys: list[tuple[type[Sandbox] | type[Attempt], Key]] = [
        *((Sandbox, Sandbox.key_of(name)) for name in sorted(sandboxes)), *((Attempt, key) for key in sorted(attempts)),
    ]  # fmt: skip
    for start in range(0, len(keys), ACTIONS_MAX):
        part: list[tuple[type[Sandbox] | type[Attempt], Key]] = keys[start : start + ACTIONS_MAX]
        for row in core.store.batch_get(part):
            if isinstance(row, Sandbox) and row.reservation is not None and row.reservation.pool == pool:
                slots += row.reservation.size
            if isinstance(row, Sandbox) and row.retained and row.pool == pool:
                retained += 1
            if isinstance(row, Attempt) and row.pool == pool:
                slots += row.size if row.holds_slot else Size()
                retained += row.holds_place
    return Held(slots, retained)


def _correct(core: Core, caller: Caller, pool: Pool, counted: _Counted) -> bool:
    drift = counted.drift
    event = core.event(
        caller, "pool.recount", pool.name, OPERATOR_ORG, pool=pool.name,
        details={
            **{f"drift_{name}": getattr(drift.slots, name) for name in DIMENSIONS}, "drift_retained": drift.retained,
        },
    )  # fmt: skip
    actions: list[Action] = [_correction(pool, counted), Put(event, (Absent(),), "event")]
    if not isinstance(core.commit(actions), Committed):
        return False
    core.nudges.dispatch()
    return True


def _correction(pool: Pool, counted: _Counted) -> Put | Update:
    counter, held, drift = counted.counter, counted.held, counted.drift
    if counter is None:
        limit = Size.unlimited().model_copy(update={"sandboxes": pool.max_concurrency})
        free = limit - held.slots
        places = UNLIMITED if pool.max_retained is None else pool.max_retained
        made = Counter.of(Scope.POOL, pool.name, limit, pool.max_retained).with_(
            closed="draining" if pool.state is not pool.state.ACTIVE else None, free_retained=places - held.retained,
            **{f"free_{name}": getattr(free, name) for name in DIMENSIONS},
        )  # fmt: skip
        return Put(made, (Absent(),), "counter")
    add = {f"free_{name}": getattr(drift.slots, name) for name in DIMENSIONS if getattr(drift.slots, name)}
    if drift.retained:
        add["free_retained"] = drift.retained
    still = Equals("moves", counter.moves)
    when = (still,) if counter.moves else (AnyOf((still, Missing("moves"))),)
    return Update(Counter, counter.key(), "counter", add={**add, "moves": 1}, when=when)


def _tell(pool: str, done: PoolRecount) -> None:
    """The line that is the metric of drift."""
    log.log(
        logging.INFO if done.drift == NOTHING else logging.ERROR, "pool recounted",
        extra={
            "pool": pool, "drift": abs(done.drift.slots.sandboxes) + abs(done.drift.retained),
            "drift_slots": done.drift.slots.sandboxes, "drift_retained": done.drift.retained,
            "corrected": done.corrected,
        },
    )  # fmt: skip
