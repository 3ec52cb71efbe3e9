"""The queue as people see it: who waits, at which place, for what, and since when. Reads and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from ..errors import PolicyUnreadable
from ..model.queue import QUEUE_SHARDS, QueueRow, queue_partition
from ..model.quota import Counter, Scope
from ..model.record import Key, Table
from ..model.resources import Size
from ..policy.placement import HIDDEN_REASONS, Decision, place
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import ACTIONS_MAX, Page
from .core import Caller, Core
from .wishes import wish_of

LIMIT_MAX = 100
PAGES_MAX = 20
"""Pages of an organization's queue that one call of a tenant reads at most to find its project's own."""


class Why(StrEnum):
    QUOTA = "quota"
    """Its organization or project has no room, or is closed."""
    NO_ROOM = "no_room"
    """No pool that may take it has room now."""
    LATER = "later"
    """It is tried again at `notBefore`."""
    POLICY_UNREADABLE = "policy_unreadable"
    TURN = "turn"
    """Nothing is in its way but those before it."""


@dataclass(frozen=True)
class Waiter:
    """`position` counts from 1 within the organization; higher priorities first, then older ones."""

    row: QueueRow
    position: int
    why: Why
    detail: str


@dataclass(frozen=True)
class _At:
    """Where a list goes on: in which shard, behind which row, and how many of that row's organization came before."""

    shard: int = 0
    after: str | None = None
    org: str = ""
    counted: int = 0

    def text(self) -> str:
        return f"{self.shard}|{self.counted}|{self.org}|{self.after or ''}"

    @classmethod
    def of(cls, text: str) -> _At:
        shard, counted, org, after = text.split("|", 3)
        return cls(int(shard), after or None, org, int(counted))


def list_waiting(core: Core, caller: Caller, position: str | None, limit: int) -> tuple[list[Waiter], str | None]:
    """One page in the order of the queue, and where to go on; a page may be short and still have a next one.

    A tenant sees its project's own, an operator every organization's, one after the other.
    """
    at = _At() if position is None else _At.of(position)
    if caller.operator:
        found, after = _everybody(core, at, min(limit, LIMIT_MAX))
    else:
        assert caller.org is not None
        found, after = _of_project(core, caller.org, caller.tenant_project(), at, min(limit, LIMIT_MAX))
    judge = _Judge(core, [row for row, _ in found], hides=not caller.operator)
    return [Waiter(row, place, *judge.of(row)) for row, place in found], after.text() if after is not None else None


def _everybody(core: Core, at: _At, limit: int) -> tuple[list[tuple[QueueRow, int]], _At | None]:
    for shard in range(at.shard, QUEUE_SHARDS):
        page = core.store.query(Table.STATE, f"QUEUE#{shard}", after=at.after, limit=limit)
        found, at = _numbered(page, at)
        if page.next is not None:
            return found, replace(at, shard=shard, after=page.next)
        at = _At(shard + 1)
        if found:
            return found, at if at.shard < QUEUE_SHARDS else None
    return [], None


def _of_project(
    core: Core, org: OrgId, project: ProjectId, at: _At, limit: int
) -> tuple[list[tuple[QueueRow, int]], _At | None]:  # fmt: skip
    for _ in range(PAGES_MAX):
        page = core.store.query(Table.STATE, queue_partition(org), prefix=f"{org}#", after=at.after, limit=limit)
        found, at = _numbered(page, at)
        own = [(row, place) for row, place in found if row.project == project]
        if page.next is None:
            return own, None
        at = replace(at, after=page.next)
        if own:
            return own, at
    return [], at


def _numbered(page: Page, at: _At) -> tuple[list[tuple[QueueRow, int]], _At]:
    """Each row with its place in its organization's queue."""
    found: list[tuple[QueueRow, int]] = []
    org, counted = at.org, at.counted
    for row in page.rows:
        if isinstance(row, QueueRow):
            org, counted = row.org, counted + 1 if row.org == org else 1
            found.append((row, counted))
    return found, replace(at, org=org, counted=counted)


class _Judge:
    """Says what each of some rows waits for, as far as counters and the pools' last probes tell."""

    def __init__(self, core: Core, rows: Sequence[QueueRow], *, hides: bool) -> None:
        self._core = core
        self._now = core.clock.now()
        self._hides = hides
        names = {(scope, name) for row in rows for scope, name in ((Scope.ORG, row.org), (Scope.PROJECT, row.project))}
        self._counters = _counters(core, {*names, *((Scope.POOL, name) for name in core.catalog.pools().pools)})

    def of(self, row: QueueRow) -> tuple[Why, str]:
        for scope, name in ((Scope.ORG, str(row.org)), (Scope.PROJECT, str(row.project))):
            counter = self._counters.get((scope, name))
            if counter is None or counter.closed is not None:
                return Why.QUOTA, f"the {scope} is closed"
            resource = row.size.exceeding(counter.free)
            if resource is not None:
                return Why.QUOTA, f"the {scope} has no free {resource}"
        if row.not_before is not None and row.not_before > self._now:
            return Why.LATER, ""
        if row.wakes_on is not None:
            return self._pool(row, row.wakes_on)
        try:
            decision = self._decide(row)
        except PolicyUnreadable:
            return Why.POLICY_UNREADABLE, ""
        return (Why.TURN, "") if decision.chosen is not None else (Why.NO_ROOM, self._summary(decision))

    def _pool(self, row: QueueRow, pool: str) -> tuple[Why, str]:
        fits = row.size.fits_in(_free(self._counters.get((Scope.POOL, pool))))
        return (Why.TURN, "") if fits else (Why.NO_ROOM, f"pool {pool} is full")

    def _decide(self, row: QueueRow) -> Decision:
        catalog = self._core.catalog
        candidates = [
            replace(entry, free=_free(self._counters.get((Scope.POOL, entry.pool.name))))
            for entry in catalog.pools().candidates(self._now)
        ]
        rules = catalog.rules(row.org, row.project, row.classification)
        return place(wish_of(row), candidates, rules, catalog.template(row.template))

    def _summary(self, decision: Decision) -> str:
        """`main: full, spare: draining`; a tenant is not told of pools that are not for it."""
        return ", ".join(
            f"{pool}: {why.reason}"
            for pool, why in sorted(decision.rejected.items())
            if not (self._hides and why.reason in HIDDEN_REASONS)
        )


def _free(counter: Counter | None) -> Size:
    return counter.free if counter is not None and counter.closed is None else Size()


def _counters(core: Core, names: set[tuple[Scope, str]]) -> Mapping[tuple[Scope, str], Counter]:
    found: dict[tuple[Scope, str], Counter] = {}
    order = sorted(names)
    for start in range(0, len(order), ACTIONS_MAX):
        keys: list[tuple[type[Counter], Key]] = [
            (Counter, Counter.key_of(scope, name)) for scope, name in order[start : start + ACTIONS_MAX]
        ]
        found.update({(row.scope, row.name): row for row in core.store.batch_get(keys) if isinstance(row, Counter)})
    return found


def age_seconds(row: QueueRow, now: datetime) -> float:
    return max(0.0, (now - row.since).total_seconds()) if row.since is not None else 0.0
