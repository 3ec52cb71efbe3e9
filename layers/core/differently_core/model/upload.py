"""A file that is too large for one request: its bytes go to a staging bucket, and from there into one sandbox.

    open    -> writing    its bytes are on their way into the sandbox
    writing -> used       they are a file there; the row stays a while to answer a repeat
            -> open       they could not be written; the same upload may be tried again

A claim that its worker did not live to give back is over at `claimed_until`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from ..runtime.ids import OrgId, ProjectId, SandboxId
from .exec import FileInfo
from .record import Key, Record, Table

UPLOADS_MAX = 16
"""Of one sandbox at once that are not used and not over."""
SEND_SECONDS = 900
"""So long the address takes the bytes."""
USE_SECONDS = 3_600
"""So long what was sent can be used; the bucket itself forgets it a day later."""
WRITE_SECONDS = 900
"""So long one call may write: a function lives no longer."""
KEPT = timedelta(days=1)
"""A row that is over is purged so much later."""
UPLOAD_ID_PATTERN = r"^upl_[0-9A-HJKMNP-TV-Z]{26}$"


class UploadStatus(StrEnum):
    OPEN = "open"
    WRITING = "writing"
    USED = "used"


class Upload(Record):
    kind: ClassVar[str] = "upload"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("status", "version")

    id: str
    sandbox: SandboxId
    org: OrgId
    project: ProjectId
    size: int
    sha256: str
    """Of all its bytes, in hexadecimal."""
    status: UploadStatus = UploadStatus.OPEN
    version: int = 1
    created_at: datetime
    expires_at: datetime
    """From then on it cannot be used."""
    path: str | None = None
    """Where it is or was written last."""
    claimed_until: datetime | None = None
    file: FileInfo | None = None
    """What it became."""

    @staticmethod
    def key_of(sandbox: SandboxId, upload: str) -> Key:
        return Key(Table.STATE, f"SBX#{sandbox}", f"UPLOAD#{upload}")

    def key(self) -> Key:
        return self.key_of(self.sandbox, self.id)

    @property
    def object(self) -> str:
        """The name of its bytes in the staging bucket."""
        return f"uploads/{self.org}/{self.sandbox}/{self.id}"

    def is_being_written(self, now: datetime) -> bool:
        return self.status is UploadStatus.WRITING and self.claimed_until is not None and now < self.claimed_until

    def index(self) -> dict[str, str | int]:
        return {"purge_at": int((self.expires_at + KEPT).timestamp())}
