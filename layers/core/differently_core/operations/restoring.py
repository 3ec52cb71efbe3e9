"""The hold that a sandbox has on the snapshot it is made from: a row, there until the sandbox runs or has ended."""

from __future__ import annotations

from ..model.record import Table
from ..model.snapshot import SnapshotUse
from ..runtime.ids import SnapshotId
from .core import Core


def in_use(core: Core, snapshot: SnapshotId) -> bool:
    """Whether some sandbox is still being made from it; one round trip."""
    page = core.store.query(Table.STATE, f"SNAP#{snapshot}", prefix="USE#", limit=1)
    return any(isinstance(row, SnapshotUse) for row in page.rows)
