"""Adding intervals up by day and month, so that a report reads few rows however many sandboxes there were.

Each interval is in the sums exactly once: a transaction writes the changed sums and, on its version, how far the
organization is. A pass that dies leaves everything as it was, and of two passes one is refused. Intervals of the last
minutes are left alone, as one that a slow process is about to write may sort before them; whoever reports adds those
himself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from ..model.due import stamp
from ..model.record import Key, Record, Table
from ..model.tenancy import OrgEntry
from ..model.usage import Amounts, DaySum, Interval, LabelSum, MonthSum, RolledUp, Sums, UsageRound, interval_partition
from ..runtime.ids import OrgId
from ..store.ports import ACTIONS_MAX, Absent, Committed, Equals, Put
from .core import Core

log = logging.getLogger(__name__)
SETTLES: Final = timedelta(minutes=20)
"""No process lives so long: what it was about to write when it read the clock is written by then, or never."""
ROUND_EACH: Final = timedelta(minutes=10)
ORGS_MAX: Final = 100
"""Looked at in one pass; the next one goes on behind them."""
PAGES_MAX: Final = 20
"""Read of one organization in one pass."""
SUMS_MAX: Final = ACTIONS_MAX - 1
FAMILIES: Final = 3
"""Sums that one day of one interval goes into."""


def roll_all(core: Core) -> int:
    """One pass over organizations; how many intervals were added. Raises only for faults of the store."""
    seen = core.store.get(UsageRound, UsageRound.key_of())
    now = core.clock.now()
    if seen is not None and seen.after is None and now < seen.began + ROUND_EACH:
        return 0
    started = seen if seen is not None and seen.after is not None else UsageRound(began=now)
    page = core.store.query(Table.CONFIG, "ORGS", after=started.after, limit=ORGS_MAX)
    orgs = [row.id for row in page.rows if isinstance(row, OrgEntry)]
    done = sum(roll(core, org) for org in orgs)
    going_on = started.with_(after=page.rows[-1].key().sk if page.next is not None else None)
    core.store.transact([Put(going_on, (), "round")])
    if done:
        log.info("usage added up", extra={"orgs": len(orgs), "intervals": done})
    return done


def roll(core: Core, org: OrgId) -> int:
    """Add up what an organization's sandboxes used until `SETTLES` ago; how many whole intervals were added."""
    done = 0
    for _ in range(PAGES_MAX):
        at = position(core, org)
        page = core.store.query(Table.LOG, interval_partition(org), after=at.after)
        latest = stamp(core.clock.now() - SETTLES)
        settled = [row for row in page.rows if isinstance(row, Interval) and row.key().sk < latest]
        if not settled:
            return done
        whole, after, sums = _taken(at, settled)
        if not _add(core, at, after, sums):
            return done
        done += whole
        if whole == len(settled) and (page.next is None or len(settled) < len(page.rows)):
            return done
    return done


def position(core: Core, org: OrgId) -> RolledUp:
    return core.store.get(RolledUp, RolledUp.key_of(org)) or RolledUp(org=org)


def _taken(at: RolledUp, intervals: Iterable[Interval]) -> tuple[int, RolledUp, Mapping[Key, Sums]]:
    """As much of them as one transaction holds: how many whole ones, where it ends, and what is to be added."""
    sums: dict[Key, Sums] = {}
    whole, after = 0, at
    for interval in intervals:
        for day in days_left(after, interval):
            if len(sums) + FAMILIES > SUMS_MAX:
                return whole, after, sums
            for part in parts(interval, day):
                known = sums.get(part.key())
                sums[part.key()] = part if known is None else known.plus(part.amounts)
            after = after.with_(days_until=day.isoformat())
        after = after.with_(after=interval.key().sk, days_until=None)
        whole += 1
    return whole, after, sums


def days_left(at: RolledUp, interval: Interval) -> list[date]:
    """The days of the interval behind `at` that are in no sum yet."""
    return [day for day in interval.days() if at.days_until is None or day.isoformat() > at.days_until]


def parts(interval: Interval, day: date) -> Iterator[Sums]:
    """What a day of the interval adds to each family."""
    amounts = amounts_of(interval, day)
    facts = {"org": interval.org, "project": interval.project, "currency": interval.currency}
    name = day.isoformat()
    yield DaySum(**facts, day=name, pool=interval.pool, key_id=interval.key_id).plus(amounts)
    yield LabelSum(**facts, day=name, labels=interval.labels).plus(amounts)
    yield MonthSum(**facts, month=name[:7]).plus(amounts)


def amounts_of(interval: Interval, day: date) -> Amounts:
    begin = datetime.combine(day, time(), UTC)
    return interval.within(begin, begin + timedelta(days=1))


def _add(core: Core, at: RolledUp, after: RolledUp, sums: Mapping[Key, Sums]) -> bool:
    """False when another pass was here meanwhile."""
    keys: list[tuple[type[Record], Key]] = [(type(part), key) for key, part in sums.items()]
    stored = core.store.batch_get(keys)
    changed = [
        row.plus(part.amounts) if isinstance(row, Sums) else part
        for row, part in zip(stored, sums.values(), strict=True)
    ]
    was = Equals("version", at.version) if at.version else Absent()
    moved = Put(after.with_(version=at.version + 1), (was,), "position")
    writes = [Put(row, (), f"sum {number}") for number, row in enumerate(changed)]
    return isinstance(core.store.transact([moved, *writes]), Committed)
