"""The sealer's work: give each event a place in its organization's chain, exactly once.

An append is one transaction of two conditional writes, the segment and the head that it follows from; so of two sealers
one is refused and looks again. An event that is delivered twice is found in the chain, however late it comes: the
greatest id that was sealed never falls from one segment to the next, so what is greater than all is new without a read,
and anything else can be in no segment before the first one that reached its id.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..audit.canonical import canonical
from ..audit.tree import Frontier, leaf_hash
from ..model.audit import SEGMENT_EVENTS_MAX, ChainHead, Segment
from ..model.event import Event
from ..model.record import Table
from ..store.ports import Absent, Committed, Equals, Put, Store, StoreThrottled
from .core import Core

RECENT_SEGMENTS = 10
"""What is looked at first for an event that may be sealed already: it was delivered twice in a row."""


@dataclass(frozen=True)
class Sealed:
    """`events` were appended by this call; `lag_seconds` is the age of the oldest of them."""

    events: int = 0
    lag_seconds: float = 0.0


def seal(core: Core, org: str, events: Iterable[Event]) -> Sealed:
    """Append those of the organization's events that are in no segment yet; others change nothing.

    Two round trips for up to `SEGMENT_EVENTS_MAX` new events. Raises only for faults of the store.
    """
    waiting = sorted({event.id: event for event in events if event.org == org}.values(), key=lambda event: event.id)
    appended: list[Event] = []
    for start in range(0, len(waiting), SEGMENT_EVENTS_MAX):
        appended += _append(core, org, waiting[start : start + SEGMENT_EVENTS_MAX])
    # Of what was new alone: after a restart the stream gives old events again, which were sealed in their time.
    oldest = min((event.at for event in appended), default=None)
    lag = (core.clock.now() - oldest).total_seconds() if oldest is not None else 0.0
    return Sealed(len(appended), max(0.0, lag))


def _append(core: Core, org: str, events: Sequence[Event]) -> Sequence[Event]:
    for attempt in range(core.tuning.conflict_tries_max):
        if attempt:
            core.back_off(attempt)
        head = core.store.get(ChainHead, ChainHead.key_of(org)) or ChainHead(org=org)
        known = sealed_among(core.store, head, [event.id for event in events])
        new = [event for event in events if event.id not in known]
        if not new:
            return ()
        segment = _segment(core, head, new)
        was = Equals("size", head.size) if head.size else Absent()
        outcome = core.store.transact(
            [Put(segment, (Absent(),), "segment"), Put(_after(head, segment), (was,), "head")]
        )
        if isinstance(outcome, Committed):
            return new
    raise StoreThrottled("Another sealer keeps appending to this chain; deliver the events again.")


def _segment(core: Core, head: ChainHead, events: Sequence[Event]) -> Segment:
    return Segment(
        org=head.org, first=head.size, events=tuple(event.id for event in events),
        hashes=tuple(as_text(leaf_hash(canonical(event))) for event in events), frontier=head.frontier,
        newest=max(head.newest, *(event.id for event in events)), sealed_at=core.clock.now(),
    )  # fmt: skip


def _after(head: ChainHead, segment: Segment) -> ChainHead:
    grown = frontier_of(head.size, head.frontier).extend(as_bytes(text) for text in segment.hashes)
    return head.with_(
        size=grown.size, frontier=tuple(as_text(value) for value in grown.hashes), newest=segment.newest,
        sealed_at=segment.sealed_at,
    )  # fmt: skip


# Where an event is in the chain


def sealed_among(store: Store, head: ChainHead, ids: Sequence[str]) -> dict[str, int]:
    """The place of each of these events that is sealed."""
    asked = {identity for identity in ids if identity <= head.newest}
    found: dict[str, int] = {}
    if not asked:
        return found
    for segment in _segments_from(store, head, min(asked)):
        found.update({
            identity: segment.first + number for number, identity in enumerate(segment.events) if identity in asked
        })  # fmt: skip
        if len(found) == len(asked):
            break
    return found


def _segments_from(store: Store, head: ChainHead, identity: str) -> Iterator[Segment]:
    """Every segment that may hold this event or a greater one."""
    partition = Segment.partition(head.org)
    recent = store.query(Table.LOG, partition, reverse=True, limit=RECENT_SEGMENTS)
    rows = [row for row in recent.rows if isinstance(row, Segment)]
    if recent.next is None or (rows and rows[-1].newest < identity):
        yield from (row for row in reversed(rows) if row.newest >= identity)
        return
    yield from segments(store, head.org, first_reaching(store, head, identity))


def first_reaching(store: Store, head: ChainHead, identity: str) -> int:
    """A place in the first segment whose `newest` is not below `identity`, by halving."""
    low, high = 0, head.size - 1
    while low < high:
        middle = (low + high) // 2
        segment = segment_with(store, head.org, middle)
        if segment is None:
            return low
        if segment.newest < identity:
            low = segment.last + 1
        else:
            high = min(middle, segment.first)
    return low


def segment_with(store: Store, org: str, place: int) -> Segment | None:
    """The segment that holds this place; one round trip."""
    page = store.query(Table.LOG, Segment.partition(org), after=_before(place), limit=1)
    row = page.rows[0] if page.rows else None
    return row if isinstance(row, Segment) and row.first <= place else None


def segments(store: Store, org: str, place: int = 0, *, limit: int = RECENT_SEGMENTS) -> Iterator[Segment]:
    """Every segment from the one that holds `place` on, read `limit` at a time."""
    after: str | None = _before(place)
    while True:
        page = store.query(Table.LOG, Segment.partition(org), after=after, limit=limit)
        yield from (row for row in page.rows if isinstance(row, Segment))
        if page.next is None:
            return
        after = page.next


def _before(place: int) -> str | None:
    return Segment.place(place - 1) if place else None


# Hashes as they are stored


def as_text(value: bytes) -> str:
    return b64encode(value).decode()


def as_bytes(text: str) -> bytes:
    return b64decode(text)


def frontier_of(size: int, hashes: Sequence[str]) -> Frontier:
    return Frontier(size, tuple(as_bytes(text) for text in hashes))
