"""The `waiting` marks on counters: how they are found to be stale, and taken away.

Dispatch sets and clears them for the organizations that it finds in the queue. An organization whose last waiting
sandbox was deleted, or lost its patience, is not found there any more; then whoever notices clears its marks. A mark
that is cleared too early lets one create overtake; a mark that stays refuses creates for ever.
"""

from __future__ import annotations

from ..model.queue import QueueRow, queue_partition
from ..model.quota import Counter, Scope
from ..model.record import Table
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import Committed, Equals, Update
from .core import Core


def clear_if_nobody_waits(core: Core, org: OrgId, project: ProjectId) -> bool:
    """Clear the marks of this project and its organization if nothing of them is queued; True if there were any."""
    page = core.store.query(Table.STATE, queue_partition(org), prefix=f"{org}#")
    rows = [row for row in page.rows if isinstance(row, QueueRow)]
    idle: list[tuple[Scope, str]] = []
    if not rows:
        idle.append((Scope.ORG, org))
    if page.next is None and not any(row.project == project for row in rows):
        idle.append((Scope.PROJECT, project))
    cleared = [clear(core, scope, name) for scope, name in idle]
    return any(cleared)


def clear(core: Core, scope: Scope, name: str) -> bool:
    key = Counter.key_of(scope, name)
    found = core.store.get(Counter, key)
    if found is None or found.waiting is None:
        return False
    unmark = Update(Counter, key, "waiting", remove=("waiting",), when=(Equals("waiting", found.waiting),))
    return isinstance(core.store.transact([unmark]), Committed)
