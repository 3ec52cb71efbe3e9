"""What was used, and what it is estimated to cost: sums of whole days, what is not in them yet, and what still runs.

A report reads three things: the sums that `rollups` keeps, the intervals behind them, and the meters of live sandboxes.
One that ends between two reads is found in both and counted once. Work is bounded: a report that would have to read
more says what to narrow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final

from ..errors import LimitExceeded
from ..model.record import Record, Table
from ..model.sandbox import Sandbox
from ..model.tenancy import Org, OrgEntry
from ..model.usage import (
    DAYS,
    LABELS,
    MONTHS,
    Amounts,
    DaySum,
    Interval,
    LabelSum,
    MonthSum,
    RolledUp,
    Sums,
    interval_partition,
    sum_partition,
)
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import Page, StoreThrottled
from .core import Core
from .metering import open_interval
from .recount import projects_of
from .rollups import days_left, parts, position
from .spending import promised, seconds_left
from .standing import Owner

PAGES_MAX: Final = 200
"""Read for one report, of 200 rows each."""
PAGE_OF_ORGS: Final = 40
"""Organizations in one page of a report by organization, or fewer, where they have used much."""
TRIES_MAX: Final = 4


class GroupBy(StrEnum):
    ORG = "org"
    PROJECT = "project"
    POOL = "pool"
    KEY = "key"
    LABEL = "label"
    DAY = "day"
    MONTH = "month"
    """For budgets: one calendar month, by project."""


@dataclass(frozen=True)
class Ask:
    """Whole days in UTC: from `first`, and before `end`."""

    first: date
    end: date
    by: GroupBy
    label: str = ""

    @property
    def begin_at(self) -> datetime:
        return datetime.combine(self.first, time(), UTC)

    @property
    def end_at(self) -> datetime:
        return datetime.combine(self.end, time(), UTC)

    def group_of(self, part: Sums) -> str | None:
        """None for what has no such label."""
        match self.by:
            case GroupBy.ORG:
                return part.org
            case GroupBy.PROJECT | GroupBy.MONTH:
                return part.project
            case GroupBy.LABEL:
                assert isinstance(part, LabelSum)
                return part.labels.get(self.label)
        assert isinstance(part, DaySum)
        return {GroupBy.POOL: part.pool, GroupBy.KEY: part.key_id}.get(self.by, part.day)

    def takes(self, part: Sums) -> bool:
        if self.by is GroupBy.MONTH:
            return isinstance(part, MonthSum) and part.month == f"{self.first:%Y-%m}"
        wanted = LabelSum if self.by is GroupBy.LABEL else DaySum
        return isinstance(part, wanted) and self.first.isoformat() <= part.day < self.end.isoformat()


@dataclass(frozen=True)
class Line:
    """One group in one currency; `currency` is None for what ran on pools without prices."""

    group: str | None
    currency: str | None
    amounts: Amounts


@dataclass(frozen=True)
class Report:
    lines: tuple[Line, ...]
    next: str | None = None
    """The organization to go on behind, in a report by organization."""


class TooMuch(Exception):
    """More would have to be read than one report may."""


@dataclass
class _Reader:
    """The store, page by page, as far as one report may read."""

    core: Core
    pages: int = 0

    def rows(self, table: Table, pk: str, *, prefix: str = "", after: str | None = None) -> Iterator[Record]:
        return self._paged(lambda at: self.core.store.query(table, pk, prefix=prefix, after=at), after)

    def live(self, project: ProjectId) -> Iterator[Record]:
        return self._paged(lambda at: self.core.store.query_list(f"LIVE#{project}", after=at), None)

    def _paged(self, read: Callable[[str | None], Page], after: str | None) -> Iterator[Record]:
        while True:
            self.pages += 1
            if self.pages > PAGES_MAX:
                raise TooMuch
            page = read(after)
            yield from page.rows
            after = page.next
            if after is None:
                return


@dataclass
class _Totals:
    ask: Ask
    sums: defaultdict[tuple[str | None, str | None], Amounts] = field(default_factory=lambda: defaultdict(Amounts))

    def add(self, part: Sums) -> None:
        if self.ask.takes(part):
            self.sums[self.ask.group_of(part), part.currency] += part.amounts

    def lines(self) -> tuple[Line, ...]:
        ordered = sorted(self.sums.items(), key=lambda entry: tuple((name is None, name or "") for name in entry[0]))
        return tuple(Line(group, currency, amounts) for (group, currency), amounts in ordered if amounts != Amounts())


def of_owner(core: Core, owner: Owner, ask: Ask) -> Report:
    """What one organization or project used. Raises `LimitExceeded` naming what to narrow."""
    totals = _Totals(ask)
    try:
        _collect(_Reader(core), owner, totals)
    except TooMuch:
        raise _too_much(ask, isinstance(owner, Org)) from None
    return Report(totals.lines())


def of_everybody(core: Core, ask: Ask, after: str | None) -> Report:
    """What all organizations used: by organization a page of them, otherwise all at once.

    Raises `LimitExceeded` naming what to narrow.
    """
    reader, totals = _Reader(core), _Totals(ask)
    paged = ask.by is GroupBy.ORG
    done: list[str] = []
    try:
        for org in _orgs(reader, after):
            found = core.catalog.org(org)
            one = _Totals(ask)
            _collect(reader, found, one)
            for key, amounts in one.sums.items():
                totals.sums[key] += amounts
            done.append(org)
            if paged and (len(done) >= PAGE_OF_ORGS or reader.pages > PAGES_MAX // 2):
                return Report(totals.lines(), org)
    except TooMuch:
        if paged and done:
            return Report(totals.lines(), done[-1])
        raise _too_much(ask, of_org=True, of_all=not paged) from None
    return Report(totals.lines())


@dataclass(frozen=True)
class MonthCosts:
    """In millionths of one currency. `uncounted`: something has another price, or an unknown one."""

    spent: int
    projected: int
    uncounted: bool


def of_month(core: Core, owner: Owner, begin: datetime, end: datetime, currency: str) -> MonthCosts:
    """What one owner spent in a month until now, and what may come of what runs until it ends, or the month does.

    Raises `LimitExceeded` where that would take more reads than one report may.
    """
    ask = Ask(begin.date(), end.date(), GroupBy.MONTH)
    now = core.clock.now()
    totals, promises = _Totals(ask), 0
    reader = _Reader(core)
    uncounted = False
    try:
        for sandbox in _live(reader, list(projects_of(core, owner))):
            meter = sandbox.meter
            if meter is None or meter.kept:
                continue
            if meter.price is None or meter.price.currency != currency:
                uncounted = True
            else:
                seconds = seconds_left(sandbox, now)
                promises += promised(meter.price, sandbox.size, seconds, now)
        _collect(reader, owner, totals)
    except TooMuch:
        raise _too_much(ask, isinstance(owner, Org)) from None
    spent = sum(amounts.cost for (_, of), amounts in totals.sums.items() if of == currency)
    uncounted = uncounted or any(of != currency for (_, of), amounts in totals.sums.items() if amounts != Amounts())
    return MonthCosts(spent, spent + promises, uncounted)


def running(core: Core, owner: Owner) -> Iterator[Sandbox]:
    """Its live sandboxes, as an index has them that may lag a little; as many as one report may read."""
    try:
        yield from _live(_Reader(core), list(projects_of(core, owner)))
    except TooMuch:
        return


def _live(reader: _Reader, projects: list[ProjectId]) -> Iterator[Sandbox]:
    for project in projects:
        yield from (row for row in reader.live(project) if isinstance(row, Sandbox))


def _orgs(reader: _Reader, after: str | None) -> Iterator[OrgId]:
    yield from (row.id for row in reader.rows(Table.CONFIG, "ORGS", after=after) if isinstance(row, OrgEntry))


def _too_much(ask: Ask, of_org: bool, of_all: bool = False) -> LimitExceeded:
    narrower = ["orgId"] if of_all else []
    narrower += ["projectId"] if of_org else []
    narrower += ["from and to"] if (ask.end - ask.first).days > 1 else []
    return LimitExceeded(
        f"This report would read more than {PAGES_MAX} pages of usage. Narrow it: {', or '.join(narrower) or 'wait'}.",
        resource="pages", limit=PAGES_MAX,
    )  # fmt: skip


def _collect(reader: _Reader, owner: Owner, totals: _Totals) -> None:
    """Live sandboxes first and intervals last, so that what ends in between is met twice, and never not at all."""
    org, project = (owner.id, None) if isinstance(owner, Org) else (owner.org, owner.id)
    projects = list(projects_of(reader.core, owner))
    running = list(_open(reader, projects, totals.ask))
    for _ in range(TRIES_MAX):
        at = position(reader.core, org)
        summed = list(_summed(reader, org, projects, totals.ask))
        if position(reader.core, org).version == at.version:
            break
    else:
        raise StoreThrottled("Usage is being added up at this moment; repeat the call in a second.")
    behind = list(_behind(reader, org, at))
    for part in summed:
        if project is None or part.project == project:
            totals.add(part)
    ended = {(interval.sandbox, interval.since) for _, interval in behind}
    fresh = [(at, entry) for at, entry in behind if project is None or entry.project == project]
    begun = [(RolledUp(org=org), entry) for entry in running if (entry.sandbox, entry.since) not in ended]
    for seen, interval in (*fresh, *begun):
        for day in days_left(seen, interval):
            if totals.ask.first <= day < totals.ask.end:
                for part in parts(interval, day):
                    totals.add(part)


def _open(reader: _Reader, projects: list[ProjectId], ask: Ask) -> Iterator[Interval]:
    """What still runs, until now. One that is being removed is reported when it is gone."""
    now = reader.core.clock.now()
    if now <= ask.begin_at:
        return
    for sandbox in _live(reader, projects):
        interval = open_interval(sandbox, now)
        if interval is not None and interval.since < ask.end_at:
            yield interval


def _summed(reader: _Reader, org: OrgId, projects: list[ProjectId], ask: Ask) -> Iterator[Sums]:
    if ask.by is GroupBy.MONTH:
        rows = reader.rows(Table.STATE, sum_partition(org), prefix=f"{MONTHS}{ask.first:%Y-%m}#")
        yield from (row for row in rows if isinstance(row, MonthSum))
        return
    families = [f"{LABELS}{project}#" for project in projects] if ask.by is GroupBy.LABEL else [DAYS]
    for family in families:
        yield from _family(reader, org, family, ask)


def _family(reader: _Reader, org: OrgId, family: str, ask: Ask) -> Iterator[Sums]:
    first = f"{family}{ask.first.isoformat()}"
    for row in reader.rows(Table.STATE, sum_partition(org), prefix=family, after=first):
        if isinstance(row, (DaySum, LabelSum)):
            if row.day >= ask.end.isoformat():
                return
            yield row


def _behind(reader: _Reader, org: OrgId, at: RolledUp) -> Iterator[tuple[RolledUp, Interval]]:
    """Intervals that are in no sum yet, the first of them perhaps in part."""
    for row in reader.rows(Table.LOG, interval_partition(org), after=at.after):
        if isinstance(row, Interval):
            yield at, row
            at = RolledUp(org=org)


def period(core: Core, first: date | None, end: date | None) -> tuple[date, date]:
    """What was asked for; by default this month, with today."""
    today = core.clock.now().astimezone(UTC).date()
    return first or today.replace(day=1), end or today + timedelta(days=1)
