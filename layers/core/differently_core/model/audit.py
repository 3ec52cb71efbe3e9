"""The chain of an organization's events: which event has which place, and the tree that they make.

The head is the only row that an append contends for; segments are written once and never changed. Hashes are text in
base64, as transparency logs write them.
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import ClassVar

from .record import Key, Record, Table

HEAD_SHARDS = 16
SEGMENT_EVENTS_MAX = 100
"""Some 8 KB a row: one read finds a segment, and one write makes it."""


class ChainHead(Record):
    """`size` events are sealed, with the places 0 to `size` - 1. `frontier` is that of the tree over them."""

    kind: ClassVar[str] = "chain"
    table: ClassVar[Table] = Table.LOG
    native: ClassVar[tuple[str, ...]] = ("size",)

    org: str
    size: int = 0
    frontier: tuple[str, ...] = ()
    newest: str = ""
    """The greatest id of an event that is sealed."""
    compared: str = ""
    """Every event up to this id is known to be sealed: where the next comparison begins."""
    sealed_at: datetime | None = None

    @staticmethod
    def shard_of(org: str) -> str:
        return f"CHAINS#{zlib.crc32(org.encode()) % HEAD_SHARDS:02d}"

    @staticmethod
    def key_of(org: str) -> Key:
        return Key(Table.LOG, ChainHead.shard_of(org), org)

    def key(self) -> Key:
        return self.key_of(self.org)


class Root(Record):
    """What a chain came to when it had `size` events: `hash` in base64, and the checkpoint that tells it to others."""

    kind: ClassVar[str] = "root"
    table: ClassVar[Table] = Table.LOG
    native: ClassVar[tuple[str, ...]] = ("size",)

    org: str
    size: int
    hash: str
    at: datetime
    note: str

    @staticmethod
    def partition(org: str) -> str:
        return f"ROOT#{org}"

    @staticmethod
    def place(size: int) -> str:
        return f"{size:015d}"

    def key(self) -> Key:
        return Key(Table.LOG, self.partition(self.org), self.place(self.size))


class Segment(Record):
    """The events `first` to `last` in their order, appended by one write.

    `frontier` is that of the tree before them, so that a segment alone tells every complete subtree that ends in it.
    `newest` is the greatest id of any event up to its end; it never falls from one segment to the next.
    """

    kind: ClassVar[str] = "segment"
    table: ClassVar[Table] = Table.LOG

    org: str
    first: int
    events: tuple[str, ...]
    hashes: tuple[str, ...]
    frontier: tuple[str, ...]
    newest: str
    sealed_at: datetime

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1

    @staticmethod
    def partition(org: str) -> str:
        return f"SEG#{org}"

    @staticmethod
    def place(number: int) -> str:
        return f"{number:015d}"

    def key(self) -> Key:
        # By its last event: the first row from a place on is the one that holds it.
        return Key(Table.LOG, self.partition(self.org), self.place(self.last))
