"""What the reconciler remembers of a pool between two passes: where it is, and what it found suspicious."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from .record import Key, Record, Table

SUSPECTS_MAX = 1_000


class Reconciliation(Record):
    """`suspects` maps a finding to when it was first made; it is acted on only when a later pass makes it again."""

    kind: ClassVar[str] = "reconciliation"
    table: ClassVar[Table] = Table.STATE

    pool: str
    at: datetime
    cursor: str | None = None
    suspects: dict[str, datetime] = {}

    @staticmethod
    def key_of(pool: str) -> Key:
        return Key(Table.STATE, "RECONCILIATIONS", pool)

    def key(self) -> Key:
        return self.key_of(self.pool)
