"""Snapshots of the disk. Their names are unique in an organization and say whose one is and which capture it was.

A capture that fails leaves no record, and the sandbox goes back to what it was: so both are watched.
"""

from __future__ import annotations

from typing import Final

from differently_core.contract import Owner, SnapshotInfo, SnapshotKind, SnapshotRequest, SnapshotState
from differently_core.errors import BackendError, InvalidState, NotFound, SandboxFailed
from differently_core.runtime.clock import Clock

from ...names import digest
from .api import Api
from .wire import SnapshotRead

POLL_SECONDS: Final = 0.25
POLL_SECONDS_MAX: Final = 3.0
UNSEEN_MAX: Final = 4
"""So many looks at a sandbox that captures nothing, and no record: then there will be none."""
STATES: Final = {
    "active": SnapshotState.READY, "inactive": SnapshotState.READY, "error": SnapshotState.FAILED,
    "build_failed": SnapshotState.FAILED,
}  # fmt: skip
GONE: Final = "removing"


def _of_installation(installation: str) -> str:
    return f"differently-{digest(installation)}-"


def _prefix(owner: Owner) -> str:
    return f"{_of_installation(owner.installation)}{digest(owner.installation, owner.sandbox)}-"


def name_of(owner: Owner, request: SnapshotRequest) -> str:
    return f"{_prefix(owner)}{digest(request.operation)}"


def find(api: Api, name: str) -> SnapshotRead | None:
    try:
        seen = api.snapshot_get(name)
    except NotFound:
        return None
    return None if seen.state == GONE or seen.name != name else seen


def check(api: Api, name: str, installation: str) -> None:
    """A sandbox may be made from any snapshot of its installation, and from no other."""
    seen = find(api, name) if name.startswith(_of_installation(installation)) else None
    if seen is None:
        raise _missing()
    if seen.state not in STATES:
        raise InvalidState("The snapshot is not ready yet.")


def owned(api: Api, owner: Owner, name: str) -> SnapshotRead | None:
    """None for one that is gone; `NotFound` for somebody else's."""
    if not name.startswith(_prefix(owner)):
        raise _missing()
    return find(api, name)


def observed(api: Api, owner: Owner, name: str) -> SnapshotInfo:
    seen = owned(api, owner, name)
    if seen is None:
        raise _missing()
    return _shown(seen, owner)


def take(api: Api, clock: Clock, sandbox: str, owner: Owner, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
    """Take it, or find the one that this same operation took before, and follow it until it is ready."""
    ends = clock.monotonic() + deadline
    name = name_of(owner, request)
    seen = find(api, name)
    if seen is None:
        _begin(api, sandbox, name)
    pause, unseen = POLL_SECONDS, 0
    while clock.monotonic() + pause < ends:
        seen = find(api, name)
        captures = api.sandbox(sandbox).state == "snapshotting"  # and nothing runs in it meanwhile
        if seen is not None and seen.state in STATES and not captures:
            break
        unseen = 0 if captures or seen is not None else unseen + 1
        if unseen >= UNSEEN_MAX:
            raise SandboxFailed("Daytona could not take the snapshot, and does not say why.", settled=True)
        clock.sleep(pause)
        pause = min(POLL_SECONDS_MAX, pause * 1.5)
    if seen is None:
        return SnapshotInfo(name, owner, SnapshotKind.DISK, SnapshotState.CREATING)
    return _shown(seen, owner)


def _begin(api: Api, sandbox: str, name: str) -> None:
    try:
        api.snapshot(sandbox, name)
    except InvalidState as error:
        if error.details.get("reason") != "name_taken":
            raise
    except BackendError as error:
        if error.settled or (find(api, name) is None and api.sandbox(sandbox).state != "snapshotting"):
            raise


def _shown(seen: SnapshotRead, owner: Owner) -> SnapshotInfo:
    state = STATES.get(seen.state, SnapshotState.CREATING)
    message = "" if state is SnapshotState.READY else (seen.error_reason or seen.state)
    size = None if seen.size is None else int(seen.size * 1024**3)
    return SnapshotInfo(seen.name, owner, SnapshotKind.DISK, state, size_bytes=size, message=message)


def _missing() -> NotFound:
    return NotFound("The snapshot does not exist at Daytona.")
