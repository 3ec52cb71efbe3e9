"""Reading the queue, a bounded part at a time, so that everybody in it is looked at in turn.

A look takes the oldest rows of each organization. Where those of one are all held up, what it has behind them may be
able to go elsewhere, so a further part is read too, and the next run goes on behind that. Organizations that one run
does not get to come first in the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..model.queue import QUEUE_SHARDS, DispatchCursor, QueueRow, queue_partition
from ..model.record import Key, Table
from ..runtime.ids import OrgId
from ..store.ports import PAGE_ROWS_MAX, Put
from .core import Core

ORGS_MAX = 200
"""Organizations looked at in one run, of all shards together."""
ROWS_MAX = 50
"""Oldest rows of each organization that a look takes."""
END = "#~"
"""Sorts behind every row of the organization before it."""


@dataclass
class Reader:
    """One run's way through the queue. `whole` is True while nothing was left out."""

    core: Core
    cursors: dict[int, DispatchCursor]
    whole: bool = True
    _before: dict[int, DispatchCursor] = field(default_factory=dict)

    @classmethod
    def start(cls, core: Core) -> Reader:
        keys: list[tuple[type[DispatchCursor], Key]] = [
            (DispatchCursor, DispatchCursor.key_of(shard)) for shard in range(QUEUE_SHARDS)
        ]
        found = {row.shard: row for row in core.store.batch_get(keys) if isinstance(row, DispatchCursor)}
        cursors = {shard: found.get(shard, DispatchCursor(shard=shard)) for shard in range(QUEUE_SHARDS)}
        return cls(core, cursors, _before=dict(cursors))

    def oldest(self) -> tuple[list[QueueRow], dict[OrgId, str]]:
        """The oldest rows of each organization, and for those that have more the position behind what was read."""
        self.whole = True
        rows: list[QueueRow] = []
        more: dict[OrgId, str] = {}
        for shard in range(QUEUE_SHARDS):
            rows += self._shard(shard, more)
        return rows, more

    def deeper(self, more: Mapping[OrgId, str], orgs: Iterable[OrgId]) -> list[QueueRow]:
        """A further part of what these organizations have waiting, behind what earlier looks read."""
        return [row for org in orgs for row in self._further(org, more[org])]

    def save(self) -> None:
        for shard, cursor in self.cursors.items():
            if cursor != self._before[shard]:
                self.core.store.transact([Put(cursor, (), "cursor")])

    def _shard(self, shard: int, more: dict[OrgId, str]) -> list[QueueRow]:
        """Hop from one organization to the next, from where the last run stopped, around the end, to there again."""
        began = self.cursors[shard].after_org
        orgs: set[OrgId] = set()
        rows: list[QueueRow] = []
        after, around = began, began is None
        while True:
            page = self.core.store.query(Table.STATE, f"QUEUE#{shard}", after=after, limit=ROWS_MAX)
            part = [row for row in page.rows if isinstance(row, QueueRow)]
            new = part if not around or began is None else [row for row in part if row.key().sk <= began]
            rows += new
            orgs |= {row.org for row in new}
            ended = page.next is None or len(new) < len(part)
            if not ended:
                last = part[-1]
                filled = sum(row.org == last.org for row in part) >= ROWS_MAX
                if filled:
                    more[last.org] = last.key().sk
                if len(orgs) >= ORGS_MAX // QUEUE_SHARDS:
                    self.whole = False
                    return self._stopped(shard, f"{last.org}{END}", rows)
                after = f"{last.org}{END}" if filled else page.next
            elif around:
                return self._stopped(shard, None, rows)
            else:
                after, around = None, True

    def _stopped(self, shard: int, after_org: str | None, rows: list[QueueRow]) -> list[QueueRow]:
        self.cursors[shard] = self.cursors[shard].with_(after_org=after_org)
        return rows

    def _further(self, org: OrgId, behind: str) -> list[QueueRow]:
        shard = _shard_of(org)
        deep = dict(self.cursors[shard].deep)
        after = max(deep.get(org, behind), behind)
        page = self.core.store.query(
            Table.STATE, queue_partition(org), prefix=f"{org}#", after=after, limit=PAGE_ROWS_MAX
        )
        rows = [row for row in page.rows if isinstance(row, QueueRow)]
        if page.next is not None:
            deep[org] = page.next
        else:
            deep.pop(org, None)
        self.whole = self.whole and page.next is None and after == behind
        self.cursors[shard] = self.cursors[shard].with_(deep=deep)
        return rows


def _shard_of(org: OrgId) -> int:
    return int(queue_partition(org).removeprefix("QUEUE#"))
