"""An attempt: one try to create a sandbox's instance on one pool, recorded before the call that makes it.

After a crash or a lost answer the attempt says where to look. An attempt that may have left something behind keeps
its pool's slot (`holds_slot`) until absence and the end of the attempt are both proved.

    calling -> live      the instance is the sandbox's
            -> debt      something may be left: clean up
            -> settled   proved: nothing is left and nothing can come
    live    -> debt | settled
    debt    -> settled
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from ..runtime.ids import OrgId, ProjectId, SandboxId
from .due import due_index, purge_index
from .record import Key, Record, Table
from .resources import Size
from .sandbox import Status


class AttemptState(StrEnum):
    CALLING = "calling"
    LIVE = "live"
    DEBT = "debt"
    SETTLED = "settled"


def pool_partition(pool: str) -> str:
    """Where the unsettled attempts of a pool are listed: what we believe to be at its backend."""
    return f"POOL#{pool}"


class Attempt(Record):
    kind: ClassVar[str] = "attempt"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("status", "version", "due_at")

    sandbox: SandboxId
    number: int
    org: OrgId
    project: ProjectId
    pool: str
    size: Size
    generation: int
    status: AttemptState
    version: int = 1
    started_at: datetime
    call_until: datetime
    """After this moment no call of ours that belongs to the attempt can still be in flight."""
    settles_at: datetime
    """After this moment the backend cannot bring up a late instance of it; the adapter declares how long that takes."""
    ref: str | None = None
    rests: Status | None = None
    """`stopped` or `paused` while its sandbox is; then its instance is not expected to run."""
    preemptible: bool = False
    holds_slot: bool = False
    holds_place: bool = False
    """The same, for its pool's place of a sandbox that was at rest, or on its way there or back."""
    ended: bool = False
    """True once the outcome of the create call was seen: nothing late can come of it."""
    calls: int = 1
    """Create calls made for it: an idempotent create may be repeated under one attempt."""
    cleanup_failures: int = 0
    due_at: datetime | None = None
    settled_at: datetime | None = None

    @staticmethod
    def key_of(sandbox: SandboxId, number: int) -> Key:
        return Key(Table.STATE, f"SBX#{sandbox}", f"ATTEMPT#{number:06d}")

    def key(self) -> Key:
        return self.key_of(self.sandbox, self.number)

    def index(self) -> dict[str, str | int]:
        identifier = f"{self.sandbox}#{self.number:06d}"
        held = self.status is not AttemptState.SETTLED
        return {
            **due_index(identifier, self.due_at),
            **purge_index(self.settled_at),
            **({"pool_pk": pool_partition(self.pool), "pool_sk": identifier} if held else {}),
        }
