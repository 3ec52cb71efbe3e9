"""What operators decide, as operations read it: pools, probes, templates, policies and tenants, from a short cache.

A cached pool view may be a few seconds old; that is safe because admission itself is a condition in the store. A read
that fails raises: an unreadable policy never means "no policy".
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

from ..errors import Internal, NotFound, PolicyUnreadable
from ..model.budget import Budget
from ..model.policy import DEFAULT_CLASSIFICATION, GLOBAL, Policy, PolicyRules
from ..model.pool import Pool, PoolView, Template
from ..model.profile import Profile
from ..model.queue import Depth
from ..model.record import Record, Table
from ..model.tenancy import Installation, Org, Project, ProjectEntry
from ..model.usage import Price
from ..policy.placement import Candidate, Rules
from ..runtime.clock import Clock
from ..runtime.ids import OrgId, ProjectId, is_id
from ..store.codec import of_kind
from ..store.ports import PAGE_ROWS_MAX, Store

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R", bound=Record)
CACHE_SECONDS = 5.0
CACHE_ENTRIES_MAX = 10_000
POOLS_MAX = 1_000
SILENT = timedelta(minutes=10)
UNREADABLE = (ValueError, TypeError, KeyError, Internal)
"""What reading a row raises when it holds something else than this version knows. A store that fails raises its own."""


@dataclass(frozen=True)
class Pools:
    """Pools and what the last probes saw, as of one moment."""

    pools: Mapping[str, Pool]
    views: Mapping[str, PoolView]
    depths: Mapping[OrgId, Depth] = field(default_factory=dict)
    """Long backlogs, by organization."""

    def candidates(self, now: datetime) -> list[Candidate]:
        return [
            Candidate(pool, self.views.get(name), resting=self.rests(name, now), silent=self.is_silent(name, now))
            for name, pool in self.pools.items()
        ]

    def is_silent(self, name: str, now: datetime) -> bool:
        """Whether it has had its time since it was registered, and no probe of it ever succeeded."""
        view = self.views.get(name)
        return (view is None or not view.features) and now - self.pools[name].created_at >= SILENT

    def rests(self, name: str, now: datetime) -> bool:
        """Whether its backend is left alone, because it said that it is full."""
        view = self.views.get(name)
        return view is not None and view.full_until is not None and now < view.full_until

    def on_trial(self, name: str) -> bool:
        """Whether it was full when it was last asked, so that one at a time finds out if it still is."""
        view = self.views.get(name)
        return view is not None and view.full_until is not None


@dataclass(frozen=True)
class _Policies:
    """Every policy by its scope; none of them when one cannot be read."""

    by_scope: Mapping[str, Policy]
    readable: bool


class Catalog:
    """Reads through a cache of `CACHE_SECONDS`; a process that writes calls `forget`, others see it when it expires."""

    def __init__(self, store: Store, clock: Clock, seconds: float = CACHE_SECONDS) -> None:
        self._store = store
        self._clock = clock
        self._seconds = seconds
        self._cache: dict[str, tuple[float, Any]] = {}
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Drop everything that can change."""
        with self._lock:
            self._cache = {name: entry for name, entry in self._cache.items() if entry[0] == float("inf")}

    def forget_pools(self) -> None:
        with self._lock:
            self._cache.pop("pools", None)

    def installation(self) -> Installation:
        """Made once by bootstrap and never changed, so it is kept for good."""
        return self._cached("installation", self._read_installation, seconds=float("inf"))

    def pools(self) -> Pools:
        return self._cached("pools", self._read_pools)

    def pool(self, name: str) -> Pool:
        found = self.pools().pools.get(name)
        if found is None:
            raise NotFound(f"There is no pool {name!r}.", pool=name)
        return found

    def budget(self, scope: str) -> Budget | None:
        """The budget of an organization or project. None also when budgets cannot be read: what a counter has left
        holds all the same, and where the budget is a hard stop not for long.
        """
        return self._cached("budgets", self._read_budgets).get(scope)

    def price(self, pool: str | None) -> Price | None:
        """What a pool costs from now on; None where that is unknown, or the pool is gone."""
        found = self.pools().pools.get(pool) if pool is not None else None
        return Price.of(found.cost_model) if found is not None else None

    def template(self, name: str) -> Template | None:
        return self._cached("templates", self._read_templates).get(name)

    def profile(self, name: str) -> Profile | None:
        return self._cached("profiles", self._read_profiles).get(name)

    def rules(self, org: OrgId, project: ProjectId, classification: str = DEFAULT_CLASSIFICATION) -> Rules:
        """Global, organization and project policy for work of this classification, widest first.

        An organization or project without a policy adds no limit. Without a global policy the built-in one applies,
        which allows nothing external. Raises `PolicyUnreadable` if one of the three cannot be read.
        """
        policies = self._policies(org, project)
        narrower = [policies[scope].rules for scope in (org, project) if scope in policies]
        scopes = [policies[GLOBAL].rules if GLOBAL in policies else PolicyRules(), *narrower]
        return Rules([rules.for_classification(classification) for rules in scopes])

    def policies(self) -> list[Policy]:
        """Every policy. Raises `PolicyUnreadable` if one of them cannot be read."""
        every = self._cached("policies", self._read_policies)
        if not every.readable:
            raise PolicyUnreadable("A placement policy cannot be read; an operator must replace it.")
        return list(every.by_scope.values())

    def _policies(self, org: OrgId, project: ProjectId) -> Mapping[str, Policy]:
        """Every policy, or when one of them cannot be read those of these scopes: others are not to suffer for it."""
        every = self._cached("policies", self._read_policies)
        if every.readable:
            return every.by_scope
        return self._cached(f"policies:{org}:{project}", lambda: self._read_scopes(GLOBAL, org, project))

    def org(self, org: OrgId) -> Org:
        """Raises `NotFound`, for what can be no id without a look: a key of a table has its bounds."""
        read = self._cached(f"org:{org}", lambda: self._store.get(Org, Org.key_of(org))) if is_id("org", org) else None
        if read is None:
            raise NotFound(f"There is no organization {org[:64]!r}.", org=org[:64])
        return read

    def project(self, org: OrgId, project: ProjectId) -> Project:
        found = self._cached(f"project:{project}", lambda: self._store.get(Project, Project.key_of(org, project)))
        if found is None:
            raise _no_project(project)
        return found

    def org_of(self, project: ProjectId) -> OrgId:
        """As `org`."""
        if not is_id("proj", project):
            raise _no_project(project)
        found = self._cached(f"entry:{project}", lambda: self._store.get(ProjectEntry, ProjectEntry.key_of(project)))
        if found is None:
            raise _no_project(project)
        return found.org

    def _cached(self, name: str, read: Callable[[], T], seconds: float | None = None) -> T:
        now = self._clock.monotonic()
        with self._lock:
            entry = self._cache.get(name)
        if entry is not None and now < entry[0]:
            return cast(T, entry[1])
        value = read()
        with self._lock:
            if len(self._cache) >= CACHE_ENTRIES_MAX:
                self._cache.clear()
            # An absence is not kept: what was just made must be found at once.
            if value is not None:
                self._cache[name] = (now + (self._seconds if seconds is None else seconds), value)
        return value

    def _read_installation(self) -> Installation:
        found = self._store.get(Installation, Installation.key_of())
        if found is None:
            raise Internal("This installation was never bootstrapped: run the bootstrap before the first call.")
        return found

    def _read_pools(self) -> Pools:
        pools = self._whole(Table.CONFIG, "POOLS", Pool)
        views = self._whole(Table.STATE, "POOLVIEWS", PoolView)
        depths = self._whole(Table.STATE, "DEPTHS", Depth)
        return Pools(
            {pool.name: pool for pool in pools}, {view.name: view for view in views}, {row.org: row for row in depths}
        )

    def _read_templates(self) -> Mapping[str, Template]:
        return {row.name: row for row in self._whole(Table.CONFIG, "TEMPLATES", Template)}

    def _read_profiles(self) -> Mapping[str, Profile]:
        return {row.name: row for row in self._whole(Table.CONFIG, Profile.key_of("").pk, Profile)}

    def _read_policies(self) -> _Policies:
        try:
            rows = self._whole(Table.CONFIG, "POLICIES", Policy)
        except UNREADABLE:
            log.error("a policy cannot be read; nothing of its scope is placed")
            return _Policies({}, readable=False)
        return _Policies({row.scope: row for row in rows}, readable=True)

    def _read_budgets(self) -> Mapping[str, Budget]:
        try:
            return {row.scope: row for row in self._whole(Table.CONFIG, "BUDGETS", Budget)}
        except UNREADABLE:
            log.error("a budget cannot be read")
            return {}

    def _read_scopes(self, *scopes: str) -> Mapping[str, Policy]:
        try:
            rows = self._store.batch_get([(Policy, Policy.key_of(scope)) for scope in scopes])
        except UNREADABLE as error:
            log.error("one of these policies cannot be read", extra={"scopes": scopes})
            raise PolicyUnreadable(
                "A placement policy for this project cannot be read, so nothing is placed for it. "
                "An operator must replace the policy."
            ) from error
        return {row.scope: row for row in rows if isinstance(row, Policy)}

    def _whole(self, table: Table, pk: str, record: type[R]) -> list[R]:
        rows: list[R] = []
        after: str | None = None
        while len(rows) < POOLS_MAX * 10:
            page = self._store.query(table, pk, after=after, limit=PAGE_ROWS_MAX)
            rows.extend(of_kind(record, row) for row in page.rows)
            after = page.next
            if after is None:
                return rows
        raise Internal(f"More than {POOLS_MAX * 10} {record.__name__} rows.")


def _no_project(project: ProjectId) -> NotFound:
    return NotFound(f"There is no project {project[:64]!r}.", project=project[:64])
