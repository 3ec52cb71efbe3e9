"""How long the backlogs are that nobody bounded: a guard, so that none grows without end.

Counted by dispatch, the one that reads the queue anyway, and read by creates from the catalog: a counter in the
transaction of everybody who begins to wait would be a row that all of them write. So the guard can be passed by
what comes between two runs of dispatch, which is a moment, and is never in the way of those who do not wait. A bound
that an operator set is exact (`backlogs`).
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Sequence
from datetime import timedelta

from ..model.queue import Depth, QueueRow, queue_partition
from ..model.record import Table
from ..runtime.ids import OrgId
from ..store.ports import Delete, Put
from .core import Core

SECONDS_KEPT = 10.0
"""A count that is not older is not repeated for an organization that has more rows than a look takes."""


def waiting(core: Core, org: OrgId) -> int:
    """As last counted; 0 for a backlog that is far from its bound. No trip with a warm catalog."""
    found = core.catalog.pools().depths.get(org)
    if found is None or core.clock.now() - found.at > timedelta(seconds=2 * core.tuning.queue_look_seconds):
        return 0
    return found.waiting


def note(core: Core, rows: Sequence[QueueRow], more: Collection[OrgId], whole: bool) -> None:
    """Keep the lengths of what is left after a run, where they are near their bounds or were."""
    seen = Tally(row.org for row in rows)
    known = core.catalog.pools().depths
    changed = False
    for org in seen:
        limit = core.catalog.org(org).limits.queued_max
        before = known.get(org)
        if org in more and before is not None and core.clock.now() - before.at < timedelta(seconds=SECONDS_KEPT):
            continue
        length = _counted(core, org, limit) if org in more else seen[org]
        if 2 * length >= limit and (before is None or before.waiting != length or _ages(core, before)):
            core.store.transact([Put(Depth(org=org, waiting=length, at=core.clock.now()), (), "depth")])
            changed = True
        elif 2 * length < limit and before is not None:
            core.store.transact([Delete(Depth, Depth.key_of(org), "depth")])
            changed = True
    for org in sorted(known.keys() - seen.keys()) if whole else ():
        core.store.transact([Delete(Depth, Depth.key_of(org), "depth")])
        changed = True
    if changed:
        core.catalog.forget_pools()


def _ages(core: Core, found: Depth) -> bool:
    return core.clock.now() - found.at >= timedelta(seconds=core.tuning.queue_look_seconds)


def _counted(core: Core, org: OrgId, enough: int) -> int:
    """Every row of the organization, up to its bound."""
    count, after = 0, None
    while count < enough:
        page = core.store.query(Table.STATE, queue_partition(org), prefix=f"{org}#", after=after)
        count, after = count + len(page.rows), page.next
        if after is None:
            break
    return count
