"""Files that are too large for one request: sent to a staging bucket, then written into the sandbox from there.

The row of an upload lies under its sandbox, so no other sandbox and no other tenant can name it. It is used once: a
claim says who writes it, and what it became answers whoever asks again because an answer was lost. Bytes go through in
pieces, and a file that is not the announced one is an error before it is a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from ..contract import Operation
from ..errors import DifferentlyError, InvalidState, LimitExceeded, NotFound
from ..model.exec import FileInfo
from ..model.sandbox import GONE
from ..model.upload import SEND_SECONDS, UPLOADS_MAX, USE_SECONDS, WRITE_SECONDS, Upload, UploadStatus
from ..runtime.ids import SandboxId, is_id
from ..store.ports import Absent, Committed, Equals, Put, StoreThrottled, StoreUnavailable
from ..store.staging import Address, Staging, StagingUnavailable
from . import use
from .core import Caller, Core
from .execution import Place, call_backend, note_file, reach
from .sandboxes import find, not_running


@dataclass(frozen=True)
class Begun:
    upload: Upload
    address: Address
    """For the caller alone; it is kept nowhere."""


def begin(core: Core, caller: Caller, sandbox: str, size: int, sha256: str) -> Begun:
    """Announce `size` bytes with that hash; the sandbox may sleep meanwhile.

    Raises `NotFound`, `InvalidState` for a sandbox that is gone, `LimitExceeded` for too many at once.
    """
    found = find(core, caller, sandbox)
    if found.status in GONE:
        raise not_running(found)
    now = core.clock.now()
    upload = Upload(
        id=core.ids.new("upl"), sandbox=found.id, org=found.org, project=found.project, size=size, sha256=sha256,
        created_at=now, expires_at=now + timedelta(seconds=USE_SECONDS),
    )  # fmt: skip
    address = core.staging.address(upload.object, size, sha256, SEND_SECONDS)
    _check_room(core, found.id)
    core.commit([Put(upload, (Absent(),), "upload")])
    return Begun(upload, address)


def _check_room(core: Core, sandbox: SandboxId) -> None:
    """A bound against heaps of bytes, not an exact one: two calls at once may pass it by one."""
    table, pk, prefix = Upload.key_of(sandbox, "")
    now = core.clock.now()
    rows = [row for row in core.store.query(table, pk, prefix=prefix).rows if isinstance(row, Upload)]
    held = sum(1 for row in rows if row.status is not UploadStatus.USED and now < row.expires_at)
    if held >= UPLOADS_MAX:
        raise LimitExceeded(
            f"{held} uploads of this sandbox wait to be used already (limit {UPLOADS_MAX}); use them, or begin again "
            f"when they are over, {USE_SECONDS // 60} minutes after they began.",
            resource="uploads", limit=UPLOADS_MAX, held=held,
        )  # fmt: skip


def write(core: Core, caller: Caller, sandbox: str, path: str, upload: str) -> FileInfo:
    """Make the file from what was sent. Repeated with the same path it returns what the first call made.

    Raises `NotFound` for an upload that is over or of another sandbox, `InvalidState` for one that nothing was sent to,
    that is being written, or that became another file, and what a call to the backend raises.
    """
    found = find(core, caller, sandbox)
    entry = _find(core, found.id, upload)
    if entry.status is UploadStatus.USED:
        return _again(entry, path)
    _check_sent(core, entry)
    place = reach(core, caller, sandbox, Operation.FILE_WRITE, WRITE_SECONDS)
    with use.during(core, place.sandbox, place.lease):
        claimed = _claim(core, entry, path)
        try:
            note_file(core, caller, place, "write", path)
            made = _written(core, place, claimed, path)
        except BaseException:
            _give_back(core, claimed)
            raise
    _settle(core, claimed, made)
    return made


def _written(core: Core, place: Place, upload: Upload, path: str) -> FileInfo:
    source = _Source(core.staging, upload)
    try:
        return call_backend(core, place, lambda: place.adapter.file_write(place.target, path, source))
    except DifferentlyError as error:
        if source.failure is None:
            raise
        raise source.failure from error


def _find(core: Core, sandbox: SandboxId, upload: str) -> Upload:
    entry = core.store.get(Upload, Upload.key_of(sandbox, upload)) if is_id("upl", upload) else None
    if entry is None or core.clock.now() >= entry.expires_at:
        raise NotFound(
            f"This sandbox has no upload {upload[:64]!r}, or it is over; begin one with POST "
            f"/v1/sandboxes/{sandbox}/files/uploads.",
            sandboxId=sandbox, upload=upload[:64],
        )  # fmt: skip
    return entry


def _again(entry: Upload, path: str) -> FileInfo:
    if entry.file is not None and entry.path == path:
        return entry.file
    raise InvalidState("This upload became another file already; begin a new one.", upload=entry.id)


def _check_sent(core: Core, entry: Upload) -> None:
    """Before the sandbox is woken for it."""
    size = core.staging.size(entry.object)
    if size != entry.size:
        raise InvalidState(
            f"{size} bytes were sent, not the announced {entry.size}; send them again, or begin a new upload.",
            upload=entry.id, bytes=size,
        )  # fmt: skip


def _claim(core: Core, entry: Upload, path: str) -> Upload:
    now = core.clock.now()
    claimed = entry.with_(
        status=UploadStatus.WRITING, path=path, claimed_until=now + timedelta(seconds=WRITE_SECONDS),
        version=entry.version + 1,
    )  # fmt: skip
    unchanged = Equals("version", entry.version)
    if not entry.is_being_written(now) and isinstance(core.commit([Put(claimed, (unchanged,), "upload")]), Committed):
        return claimed
    raise InvalidState(
        "This upload is being written already; repeat the call in a few seconds.",
        upload=entry.id, status=UploadStatus.WRITING.value,
    )  # fmt: skip


def _give_back(core: Core, claimed: Upload) -> None:
    """Losing this is fine: then the claim is over later."""
    opened = claimed.with_(status=UploadStatus.OPEN, claimed_until=None, version=claimed.version + 1)
    with suppress(StoreThrottled, StoreUnavailable):
        core.commit([Put(opened, (Equals("version", claimed.version),), "upload")])


def _settle(core: Core, claimed: Upload, made: FileInfo) -> None:
    """The file is there, whatever becomes of this: the row is over in an hour, and its bytes within a day."""
    used = claimed.with_(status=UploadStatus.USED, claimed_until=None, file=made, version=claimed.version + 1)
    with suppress(StoreThrottled, StoreUnavailable, StagingUnavailable):
        if isinstance(core.commit([Put(used, (Equals("version", claimed.version),), "upload")]), Committed):
            core.staging.delete(claimed.object)


class _Source:
    """The bytes as an adapter reads them, from the beginning each time that it begins.

    Its own failure is kept, since an adapter may tell it as one of the backend's.
    """

    def __init__(self, staging: Staging, upload: Upload) -> None:
        self._staging = staging
        self._upload = upload
        self.failure: DifferentlyError | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._checked()
        except DifferentlyError as error:
            self.failure = error
            raise

    def _checked(self) -> Iterator[bytes]:
        """The last piece is held back until the whole is known to be right."""
        digest, size, held = hashlib.sha256(), 0, b""
        for chunk in self._staging.chunks(self._upload.object):
            digest.update(chunk)
            size += len(chunk)
            if held:
                yield held
            held = chunk
        if size != self._upload.size or digest.hexdigest() != self._upload.sha256:
            raise InvalidState(
                "What was sent is not what was announced; send it again, or begin a new upload.", upload=self._upload.id
            )
        yield held
