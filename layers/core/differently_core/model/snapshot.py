"""A snapshot: a copy of a sandbox that outlives it, kept by the pool that took it.

The record is written before anything is captured, and its id names that one capture to the backend, so a capture is
asked for again under the same name and never taken twice.

    creating -> ready      the backend has it
             -> failed     with the reason; what may be left of it is removed
    ready    -> broken     the backend lost it
    any      -> deleting   asked for, or nobody wanted it any longer
    deleting -> (no row)   the backend says that it is gone
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from ..runtime.ids import KeyId, OrgId, ProjectId, SandboxId, SnapshotId
from .due import due_index
from .egress import EgressLimit
from .policy import DEFAULT_CLASSIFICATION
from .quota import Scope
from .record import Key, Record, Table
from .resources import Size
from .sandbox import Reason
from .secret import BoundSecret


class SnapshotKind(StrEnum):
    DISK = "disk"
    MEMORY = "memory"


class SnapshotStatus(StrEnum):
    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"
    BROKEN = "broken"
    DELETING = "deleting"


S = SnapshotStatus
TRANSITIONS: Mapping[SnapshotStatus, frozenset[SnapshotStatus]] = {
    S.CREATING: frozenset({S.READY, S.FAILED, S.DELETING}),
    S.READY: frozenset({S.BROKEN, S.DELETING}),
    S.FAILED: frozenset({S.DELETING}),
    S.BROKEN: frozenset({S.DELETING}),
    S.DELETING: frozenset(),
}


class Snapshot(Record):
    kind: ClassVar[str] = "snapshot"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("status", "version", "org", "project", "reason", "due_at")

    id: SnapshotId
    org: OrgId
    project: ProjectId
    sandbox: SandboxId
    """What it was taken of; it may be gone."""
    pool: str
    source_ref: str | None
    """The instance that was captured."""
    template: str
    image: str | None = None
    size: Size
    classification: str = DEFAULT_CLASSIFICATION
    egress: EgressLimit | None = None
    """What the sandbox might reach; so may what is made from it, unless it asks for something else."""
    asked: SnapshotKind
    captured: SnapshotKind | None = None
    """May be more than was asked for."""
    name: str = ""
    status: SnapshotStatus
    version: int = 1
    reason: Reason | None = None
    ref: str | None = None
    """The backend's own id of it."""
    size_bytes: int | None = None
    due_at: datetime | None = None
    claim_until: datetime | None = None
    """Until then a worker may be calling the backend for it."""
    unsettled: bool = False
    """True from before a call that captures until its end was seen: something may come of it."""
    holds: bool = True
    """True while the backend may keep anything of it; so long it counts against quotas and keeps its pool."""
    charged_bytes: int = 0
    """What it counts for, beside being one."""
    failures: int = 0
    missed_at: datetime | None = None
    """When the backend first did not know it."""
    bound: tuple[BoundSecret, ...] = ()
    """Secrets, still sealed, that it may hold traces of."""
    key_hash: str | None = None
    """Names the row of its `Idempotency-Key`."""
    fork: SandboxId | None = None
    """Taken to make this sandbox, and gone when that is made."""
    created_at: datetime
    created_by: KeyId
    ready_at: datetime | None = None
    retain_until: datetime

    @staticmethod
    def key_of(snapshot: SnapshotId) -> Key:
        return Key(Table.STATE, f"SNAP#{snapshot}", "META")

    def key(self) -> Key:
        return self.key_of(self.id)

    def index(self) -> dict[str, str | int]:
        return {"list_pk": snapshot_list(self.project), "list_sk": self.id, **due_index(self.id, self.due_at)}

    def claimed(self, now: datetime) -> bool:
        return self.claim_until is not None and now < self.claim_until


def snapshot_list(project: str) -> str:
    """Where the snapshots of a project are listed."""
    return f"SNAP#{project}"


class SnapshotUse(Record):
    """A sandbox that is being made from a snapshot; while there is one, the snapshot is not deleted at its backend."""

    kind: ClassVar[str] = "snapshot_use"
    table: ClassVar[Table] = Table.STATE

    snapshot: SnapshotId
    sandbox: SandboxId

    @staticmethod
    def key_of(snapshot: SnapshotId, sandbox: SandboxId) -> Key:
        return Key(Table.STATE, f"SNAP#{snapshot}", f"USE#{sandbox}")

    def key(self) -> Key:
        return self.key_of(self.snapshot, self.sandbox)


class SnapshotKey(Record):
    """The row behind an `Idempotency-Key`: it names one snapshot as long as that has a record."""

    kind: ClassVar[str] = "snapshot_key"
    table: ClassVar[Table] = Table.STATE

    hash: str
    snapshot: SnapshotId
    digest: str
    accepted: str

    @staticmethod
    def key_of(hash: str) -> Key:
        return Key(Table.STATE, f"SNAPKEY#{hash}", "META")

    def key(self) -> Key:
        return self.key_of(self.hash)


class SnapshotTally(Record):
    """How many snapshots an organization, project or pool holds, and how large they are."""

    kind: ClassVar[str] = "snapshot_tally"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("count", "bytes", "moves")

    scope: Scope
    name: str
    count: int = 0
    bytes: int = 0
    moves: int = 0
    """Rises with every charge and every giving back, so that whoever counts can tell that nothing moved."""

    @staticmethod
    def key_of(scope: Scope, name: str) -> Key:
        return Key(Table.STATE, f"SNAPSHOTS#{scope}#{name}", "META")

    def key(self) -> Key:
        return self.key_of(self.scope, self.name)
