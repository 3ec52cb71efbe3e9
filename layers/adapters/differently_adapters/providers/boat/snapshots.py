"""Saved snapshots: whose one is, and which capture, stands in its name, which exists once in an account."""

from __future__ import annotations

from differently_core.contract import Owner, SnapshotInfo, SnapshotKind, SnapshotRequest, SnapshotState
from differently_core.errors import BackendError, InvalidState, NotFound

from ...waiting import Waits, begun
from .api import Api
from .names import of_installation, of_sandbox, snapshot_name
from .wire import SNAPSHOT_STATES, SnapshotRead


def take(api: Api, source: str, owner: Owner, request: SnapshotRequest, waits: Waits) -> SnapshotInfo:
    """One for an operation. Saving again would replace it, so it is looked for first, and after an answer was lost."""
    name = snapshot_name(owner, request.operation)
    seen = _saved(api, name) or _save(api, source, name)
    with begun():
        while _state(seen) is SnapshotState.CREATING and waits.again():
            seen = api.snapshot(name)
    return _shown(seen, owner)


def _save(api: Api, source: str, name: str) -> SnapshotRead:
    try:
        return api.save(source, name)
    except BackendError as error:
        if error.settled:
            raise
        failure = error
    found = _saved(api, name)
    if found is None:
        raise failure
    return found


def _saved(api: Api, name: str) -> SnapshotRead | None:
    try:
        return api.snapshot(name)
    except NotFound:
        return None


def owned(api: Api, owner: Owner, ref: str) -> SnapshotInfo:
    return _shown(api.snapshot(checked(owner, ref)), owner)


def checked(owner: Owner, ref: str) -> str:
    """Raises `NotFound` for the name of somebody else's."""
    if not ref.startswith(of_sandbox(owner)):
        raise NotFound("The snapshot does not exist at Boat.", foreign=True)
    return ref


def check(api: Api, installation: str, ref: str) -> None:
    """A sandbox may be made from any snapshot of its installation, and from no other."""
    seen = _saved(api, ref) if ref.startswith(of_installation(installation)) else None
    if seen is None:
        raise NotFound("The snapshot does not exist at Boat.", missing="snapshot")
    if _state(seen) is SnapshotState.CREATING:
        raise InvalidState("The snapshot is not ready yet.")


def _state(seen: SnapshotRead) -> SnapshotState:
    return SNAPSHOT_STATES.get(seen.status, SnapshotState.FAILED)


def _shown(seen: SnapshotRead, owner: Owner) -> SnapshotInfo:
    state = _state(seen)
    message = "" if state is SnapshotState.READY else seen.status
    return SnapshotInfo(seen.name, owner, SnapshotKind.DISK, state, message=message)
