"""One immutable row for each change: audit, outbox and source of usage, written in the change's own transaction."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from .record import Key, Record, Table


class Event(Record):
    """`actor` is a key id, or the part of the system that acted; `request_id` is the request that caused it."""

    kind: ClassVar[str] = "event"
    table: ClassVar[Table] = Table.LOG
    native: ClassVar[tuple[str, ...]] = ("org",)

    id: str
    org: str
    at: datetime
    actor: str
    request_id: str
    action: str
    target: str
    project: str | None = None
    pool: str | None = None
    before: str | None = None
    after: str | None = None
    details: dict[str, str | int | bool | None] = {}

    @staticmethod
    def key_of(org: str, event: str) -> Key:
        return Key(Table.LOG, f"EVT#{org}", event)

    def key(self) -> Key:
        return self.key_of(self.org, self.id)
