"""A port of a running sandbox that can be reached from outside for a while.

The row is written before the backend is asked, so that whatever becomes of the call somebody takes the address back.
The address itself is a key to the port: it goes to the caller and is kept nowhere.

    opening -> open       the backend gave an address
            -> closing    the answer was lost, or the sandbox no longer runs
    open    -> closing    asked for, its time is over, or the sandbox no longer runs
    closing -> (no row)   the backend took the address back, or it ended by itself
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from ..runtime.ids import OrgId, ProjectId, SandboxId
from .due import due_index
from .record import Key, Record, Table

PORT_MAX = 65_535
PORTS_MAX = 32
"""Ports of one sandbox that may be reached at once."""
PORT_SECONDS_MIN, PORT_SECONDS_DEFAULT, PORT_SECONDS_MAX = 60, 3_600, 86_400


class PortStatus(StrEnum):
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


class OpenPort(Record):
    kind: ClassVar[str] = "port"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("status", "version", "due_at")

    sandbox: SandboxId
    port: int
    org: OrgId
    project: ProjectId
    pool: str
    ref: str | None
    """The instance that it belongs to."""
    generation: int
    """Of the sandbox when it was opened: a later one means that it was stopped or ended in between."""
    status: PortStatus
    version: int = 1
    opened_at: datetime
    expires_at: datetime
    """When it is taken back, or at the latest ends by itself."""
    due_at: datetime | None = None
    failures: int = 0
    """Times that the backend was asked to take it back and did not say that it has."""

    @staticmethod
    def key_of(sandbox: SandboxId, port: int) -> Key:
        return Key(Table.STATE, f"SBX#{sandbox}", f"PORT#{port:05d}")

    def key(self) -> Key:
        return self.key_of(self.sandbox, self.port)

    def index(self) -> dict[str, str | int]:
        return due_index(f"{self.sandbox}#PORT#{self.port:05d}", self.due_at)
