"""The sealed events as they are listed and exported, by their place in their organization's chain.

Places never change and only new ones are added, so a walk in either direction gives every event once, whatever arrives
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..audit.canonical import canonical
from ..errors import Internal
from ..model.audit import HEAD_SHARDS, SEGMENT_EVENTS_MAX, ChainHead, Segment
from ..model.event import Event
from ..model.record import Table
from ..runtime.ids import ulid
from ..store.ports import Store
from .core import Core
from .proving import head_of
from .sealing import first_reaching, segments

SCANNED_MAX = 500
"""Events that are read for one page at most; a page may be short and still have a next one."""
SEGMENTS_READ = 20
UNSEALED_COUNTED_MAX = 100
LATE = timedelta(days=1)
"""One that was sealed so long after it was written may be missed by `until`: the stream keeps nothing for longer."""


@dataclass(frozen=True)
class Wanted:
    """What to leave out. An `action` that ends in `*` means all that begin so. Both times are included."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def fits(self, event: Event) -> bool:
        return (
            self.actor in (None, event.actor)
            and self.target in (None, event.target)
            and self._is_action(event.action)
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at <= self.until)
        )

    def _is_action(self, action: str) -> bool:
        if self.action is None or self.action == action:
            return True
        return self.action.endswith("*") and action.startswith(self.action[:-1])


@dataclass(frozen=True)
class Placed:
    """`hash` is that of the event's leaf, as the chain has it."""

    place: int
    hash: str
    event: Event


def newest_first(
    core: Core, org: str, wanted: Wanted, before: int | None, limit: int
) -> tuple[list[Placed], int | None]:
    """Events with places below `before`, and where to go on below; None at the chain's beginning."""
    head = head_of(core, org)
    end = head.size if before is None else min(before, head.size)
    if wanted.until is not None:
        end = min(end, _from_time(core.store, head, wanted.until + LATE) + SEGMENT_EVENTS_MAX)
    found: list[Placed] = []
    scanned = 0
    while end > 0 and scanned < SCANNED_MAX:
        downwards = _down(core.store, org, end)
        if not downwards:
            raise Internal("The chain of events has a hole; GET /v1/audit-events/verify says where.")
        for segment in downwards:
            if wanted.since is not None and segment.newest < _first_id(wanted.since):
                return found, None
            entries = [entry for entry in _placed(core, segment) if entry.place < end]
            for entry in reversed(entries):
                end, scanned = entry.place, scanned + 1
                if wanted.fits(entry.event):
                    found.append(entry)
                    if len(found) == limit:
                        return found, end or None
            if scanned >= SCANNED_MAX:
                break
    return found, end or None


def oldest_first(
    core: Core, org: str, wanted: Wanted, start: int, limit: int
) -> tuple[list[Placed], int | None]:  # fmt: skip
    """Events from the place `start` on, and where to go on; None at the chain's end as it is now."""
    head = head_of(core, org)
    if wanted.since is not None:
        start = max(start, _from_time(core.store, head, wanted.since))
    found: list[Placed] = []
    scanned = 0
    for segment in segments(core.store, org, start, limit=SEGMENTS_READ) if start < head.size else ():
        if wanted.until is not None and segment.sealed_at > wanted.until + LATE:
            return found, None
        for entry in _placed(core, segment):
            if entry.place < start:
                continue
            start, scanned = entry.place + 1, scanned + 1
            if wanted.fits(entry.event):
                found.append(entry)
                if len(found) == limit:
                    return found, start if start < head.size else None
        if scanned >= SCANNED_MAX:
            break
    return found, start if start < head.size else None


def unsealed(core: Core, org: str) -> int:
    """Events that were written after the newest sealed one, counted up to `UNSEALED_COUNTED_MAX`."""
    newest = head_of(core, org).newest
    page = core.store.query(Table.LOG, Event.key_of(org, "").pk, after=newest or None, limit=UNSEALED_COUNTED_MAX)
    return len(page.rows)


def exported(core: Core, org: str, start: int, end: int) -> Iterator[tuple[int, bytes | None]]:
    """The canonical form of each event, by place; None for one whose row is gone."""
    for segment in segments(core.store, org, start, limit=SEGMENTS_READ):
        for place, row in _rows(core, segment):
            if start <= place < end:
                yield place, None if row is None else canonical(row)
        if segment.last + 1 >= end:
            return


def next_chain(store: Store, after: str | None) -> str | None:
    """The organization whose chain comes after this one's, in an order that is always the same; None after the last."""
    shard = 0 if after is None else int(ChainHead.shard_of(after).partition("#")[2])
    for number in range(shard, HEAD_SHARDS):
        position = after if number == shard else None
        page = store.query(Table.LOG, f"CHAINS#{number:02d}", after=position, limit=1)
        if page.rows:
            head = page.rows[0]
            assert isinstance(head, ChainHead)
            return head.org
    return None


def _down(store: Store, org: str, end: int) -> Sequence[Segment]:
    """The segments that hold the places below `end`, from there downwards, some of them."""
    # The first is found from below: any row behind it may be up to a whole segment away.
    first = store.query(Table.LOG, Segment.partition(org), after=Segment.place(end - 2) if end > 1 else None, limit=1)
    found = [row for row in first.rows if isinstance(row, Segment)]
    if not found or found[0].first == 0:
        return found
    more = store.query(
        Table.LOG, Segment.partition(org), after=Segment.place(found[0].last), limit=SEGMENTS_READ, reverse=True
    )
    return [*found, *(row for row in more.rows if isinstance(row, Segment))]


def _placed(core: Core, segment: Segment) -> list[Placed]:
    placed = []
    for place, row in _rows(core, segment):
        if row is None:
            raise Internal(f"The sealed event {place} is missing from the log; GET /v1/audit-events/verify says more.")
        placed.append(Placed(place, segment.hashes[place - segment.first], row))
    return placed


def _rows(core: Core, segment: Segment) -> Iterator[tuple[int, Event | None]]:
    rows = core.store.batch_get([(Event, Event.key_of(segment.org, event)) for event in segment.events])
    for number, row in enumerate(rows):
        yield segment.first + number, row if isinstance(row, Event) else None


def _from_time(store: Store, head: ChainHead, at: datetime) -> int:
    """A place before which no event is from `at` or later."""
    identity = _first_id(at)
    return head.size if identity > head.newest else first_reaching(store, head, identity)


def _first_id(at: datetime) -> str:
    return f"evt_{ulid(at, bytes(10))}"
