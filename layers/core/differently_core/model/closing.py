"""An organization or project on its way out: what must still be removed before it counts as archived or deleted.

The row is in the due index until nothing is held, so the way out goes on whatever dies in between.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from ..runtime.ids import OrgId, ProjectId
from .due import due_index
from .record import Key, Record, Table
from .tenancy import TenantState


class Closing(Record):
    kind: ClassVar[str] = "closing"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("version", "due_at")

    org: OrgId
    project: ProjectId | None = None
    target: TenantState
    by: str
    """Who asked; every removal is logged as theirs."""
    request_id: str
    at: datetime
    after: str | None = None
    """How far the pass over its keys and projects has come; None before it begins."""
    busy: bool = False
    """True once the pass has found something."""
    removed: int = 0
    """Sandboxes and snapshots that were told to go."""
    clean_at: datetime | None = None
    """Since when nothing was found; one look alone proves nothing, since the lists lag."""
    waits_for: str = ""
    due_at: datetime | None = None
    version: int = 1

    @property
    def tenant(self) -> str:
        return self.project or self.org

    @staticmethod
    def key_of(tenant: str) -> Key:
        return Key(Table.STATE, f"CLOSING#{tenant}", "META")

    def key(self) -> Key:
        return self.key_of(self.tenant)

    def index(self) -> dict[str, str | int]:
        return due_index(self.tenant, self.due_at)
