"""Proofs about a chain, and a look whether it still is what was sealed.

A segment holds the tree before it, so each hash of a proof is made of one segment: as many reads as the proof has
hashes, whatever the chain's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..audit import proofs
from ..audit.canonical import canonical
from ..audit.tree import Frontier, leaf_hash
from ..errors import InvalidRequest, NotFound
from ..model.audit import ChainHead, Segment
from ..model.event import Event
from ..store.ports import Store
from .core import Core
from .sealing import as_bytes, as_text, frontier_of, sealed_among, segment_with, segments

CHECKED_MAX = 2_000
"""Events that one call compares with their chain."""


@dataclass(frozen=True)
class Inclusion:
    place: int
    size: int
    leaf: str
    root: str
    path: tuple[str, ...]


@dataclass(frozen=True)
class Growth:
    old: int
    new: int
    old_root: str
    new_root: str
    path: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    place: int
    what: str


@dataclass(frozen=True)
class Checked:
    """`end` is the first place that was not looked at; `problem` the first that is not as it was sealed."""

    size: int
    root: str
    start: int
    end: int
    problem: Problem | None


def head_of(core: Core, org: str) -> ChainHead:
    return core.store.get(ChainHead, ChainHead.key_of(org)) or ChainHead(org=org)


def root_of(head: ChainHead) -> str:
    return as_text(frontier_of(head.size, head.frontier).root())


def root_at(core: Core, org: str, size: int) -> str:
    """What the chain came to when it had so many events; one round trip."""
    return _Tree(core.store, org).root(size)


class _Tree:
    """The tree of one chain, read as far as it is asked for."""

    def __init__(self, store: Store, org: str) -> None:
        self._store, self._org = store, org
        self._read: list[Segment] = []

    def complete(self, low: int, high: int) -> bytes:
        segment = self._with(high - 1)
        leaf = as_bytes(segment.hashes[high - 1 - segment.first])
        return proofs.completed(self._within(segment, high - 1), leaf, high - low)

    def leaf(self, place: int) -> str:
        segment = self._with(place)
        return segment.hashes[place - segment.first]

    def root(self, size: int) -> str:
        if size == 0:
            return as_text(Frontier().root())
        return as_text(self._within(self._with(size - 1), size).root())

    def path(self, ranges: Sequence[proofs.Range]) -> tuple[str, ...]:
        return tuple(as_text(proofs.root_over(span, self.complete)) for span in ranges)

    def _within(self, segment: Segment, size: int) -> Frontier:
        begun = frontier_of(segment.first, segment.frontier)
        return begun.extend(as_bytes(text) for text in segment.hashes[: size - segment.first])

    def _with(self, place: int) -> Segment:
        for segment in self._read:
            if segment.first <= place <= segment.last:
                return segment
        found = segment_with(self._store, self._org, place)
        if found is None:
            raise NotFound(f"The chain has no segment with the event {place}; GET /v1/audit-events/verify looks at it.")
        self._read.append(found)
        return found


def include(core: Core, org: str, event: str, size: int | None = None) -> Inclusion:
    """Raises `NotFound` for an event that is not sealed, `InvalidRequest` for a size that does not hold it."""
    head = head_of(core, org)
    place = sealed_among(core.store, head, [event]).get(event)
    if place is None:
        raise NotFound(f"There is no sealed event {event!r}; one that was just written is sealed in a moment.")
    whole = head.size if size is None else size
    if not place < whole <= head.size:
        raise InvalidRequest(f"size must be from {place + 1} to {head.size} to prove this event.", field="size")
    tree = _Tree(core.store, org)
    path = tree.path(proofs.inclusion(place, whole))
    return Inclusion(place, whole, tree.leaf(place), tree.root(whole), path)


def grow(core: Core, org: str, old: int, new: int | None = None) -> Growth:
    """Raises `InvalidRequest` for sizes that the chain did not have in this order."""
    head = head_of(core, org)
    whole = head.size if new is None else new
    if not 0 < old <= whole <= head.size:
        raise InvalidRequest(f"fromSize and toSize must rise, from 1 to {head.size} at most.", field="fromSize")
    tree = _Tree(core.store, org)
    return Growth(old, whole, tree.root(old), tree.root(whole), tree.path(proofs.consistency(old, whole)))


def check(core: Core, org: str, start: int = 0) -> Checked:
    """Make the hashes of `CHECKED_MAX` events and more again, from the one at `start` on, and compare with the chain.

    Raises `InvalidRequest` for a start behind the chain's end.
    """
    head = head_of(core, org)
    if start > head.size:
        raise InvalidRequest(f"fromSeq must be {head.size} at most: so many events are sealed.", field="fromSeq")
    place, problem = start, None
    running: Frontier | None = None
    for segment in segments(core.store, org, start):
        begun = frontier_of(segment.first, segment.frontier)
        if segment.first > place or (running is not None and (segment.first, begun) != (place, running)):
            problem = Problem(place, "the chain does not go on here")
        elif segment.first >= head.size:
            # Appended since the head was read, or the head was put back.
            stale = head_of(core, org).size <= head.size
            problem = Problem(place, "the chain's head is not its end") if stale else None
            return Checked(head.size, root_of(head), start, place, problem or _ended(head, place, running))
        elif place - start >= CHECKED_MAX:
            break
        else:
            problem = _spoiled(core, org, segment, place)
        if problem is not None:
            return Checked(head.size, root_of(head), start, problem.place, problem)
        running = begun.extend(as_bytes(text) for text in segment.hashes)
        place = segment.last + 1
    else:
        problem = _ended(head, place, running)
    return Checked(head.size, root_of(head), start, place, problem)


def _spoiled(core: Core, org: str, segment: Segment, start: int) -> Problem | None:
    rows = core.store.batch_get([(Event, Event.key_of(org, event)) for event in segment.events])
    for number, row in enumerate(rows):
        place = segment.first + number
        if place < start:
            continue
        if not isinstance(row, Event):
            return Problem(place, "the event is missing")
        if as_text(leaf_hash(canonical(row))) != segment.hashes[number]:
            return Problem(place, "the event is not as it was sealed")
    return None


def _ended(head: ChainHead, place: int, running: Frontier | None) -> Problem | None:
    if place > head.size or (running is not None and running != frontier_of(head.size, head.frontier)):
        return Problem(min(place, head.size), "the chain's head is not its end")
    return Problem(place, "the chain's end is missing") if place < head.size else None
