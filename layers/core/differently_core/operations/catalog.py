"""What operators decide, as operations read it: pools, probes, templates, policies and tenants, from a short cache.

A cached pool view may be a few seconds old; that is safe because admission itself is a condition in the store. A read
that fails raises: an unreadable policy never means "no policy".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ..errors import Internal, NotFound
from ..model.pool import Policy, PolicyRules, Pool, PoolView, Template
from ..model.record import Table
from ..model.tenancy import Installation, Org, Project, ProjectEntry
from ..policy.placement import Candidate, Rules
from ..runtime.clock import Clock
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import PAGE_ROWS_MAX, Store

T = TypeVar("T")
CACHE_SECONDS = 5.0
CACHE_ENTRIES_MAX = 10_000
GLOBAL = "global"
POOLS_MAX = 1_000


@dataclass(frozen=True)
class Pools:
    """Pools and what the last probes saw, as of one moment."""

    pools: Mapping[str, Pool]
    views: Mapping[str, PoolView]

    def candidates(self) -> list[Candidate]:
        return [Candidate(pool, self.views.get(name)) for name, pool in self.pools.items()]


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

    def template(self, name: str) -> Template | None:
        return self._cached("templates", self._read_templates).get(name)

    def rules(self, org: OrgId, project: ProjectId) -> Rules:
        """Global, organization and project policy, widest first.

        An organization or project without a policy adds no limit. Without a global policy the built-in one applies,
        which allows nothing external.
        """
        policies = self._cached("policies", self._read_policies)
        narrower = [policies[scope].rules for scope in (org, project) if scope in policies]
        return Rules([policies[GLOBAL].rules if GLOBAL in policies else PolicyRules(), *narrower])

    def org(self, org: OrgId) -> Org:
        found = self._cached(f"org:{org}", lambda: self._store.get(Org, Org.key_of(org)))
        if found is None:
            raise NotFound(f"There is no organization {org!r}.", org=org)
        return found

    def project(self, org: OrgId, project: ProjectId) -> Project:
        found = self._cached(f"project:{project}", lambda: self._store.get(Project, Project.key_of(org, project)))
        if found is None:
            raise NotFound(f"There is no project {project!r}.", project=project)
        return found

    def org_of(self, project: ProjectId) -> OrgId:
        found = self._cached(f"entry:{project}", lambda: self._store.get(ProjectEntry, ProjectEntry.key_of(project)))
        if found is None:
            raise NotFound(f"There is no project {project!r}.", project=project)
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
        return Pools({pool.name: pool for pool in pools}, {view.name: view for view in views})

    def _read_templates(self) -> Mapping[str, Template]:
        return {row.name: row for row in self._whole(Table.CONFIG, "TEMPLATES", Template)}

    def _read_policies(self) -> Mapping[str, Policy]:
        return {row.scope: row for row in self._whole(Table.CONFIG, "POLICIES", Policy)}

    def _whole(self, table: Table, pk: str, record: type[T]) -> list[T]:
        rows: list[T] = []
        after: str | None = None
        while len(rows) < POOLS_MAX * 10:
            page = self._store.query(table, pk, after=after, limit=PAGE_ROWS_MAX)
            rows.extend(cast(list[T], list(page.rows)))
            after = page.next
            if after is None:
                return rows
        raise Internal(f"More than {POOLS_MAX * 10} {record.__name__} rows.")
