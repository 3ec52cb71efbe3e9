"""Snapshots. Nothing of ours is kept on them but a name, so the name says whose one is and which capture it was.

A name is never used again, for that would add to the first snapshot. A list is all there is to look one up, and only
what stands in it counts: some releases answer a capture that they cannot do with an id of nothing.
"""

from __future__ import annotations

from typing import Final

from differently_core.contract import Owner, SnapshotInfo, SnapshotKind, SnapshotRequest, SnapshotState
from differently_core.errors import BackendError, NotFound, ProviderUnavailable, SandboxFailed

from ...names import digest
from .api import Api
from .wire import SnapshotRead

PREFIX: Final = "differently"


def name_of(owner: Owner, request: SnapshotRequest) -> str:
    return f"{_prefix(owner)}{digest(request.operation)}"


def _prefix(owner: Owner) -> str:
    return f"{_of_installation(owner.installation)}{digest(owner.installation, owner.sandbox)}-"


def _of_installation(installation: str) -> str:
    return f"{PREFIX}-{digest(installation)}-"


def _has_prefix(seen: SnapshotRead, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in seen.names)


def check(api: Api, ref: str, installation: str) -> None:
    """A sandbox may be made from any snapshot of its installation, and from no other."""
    seen = find(api, ref)
    if seen is None or not _has_prefix(seen, _of_installation(installation)):
        raise NotFound("The snapshot does not exist at CubeSandbox.", missing="snapshot")


def find(api: Api, ref: str) -> SnapshotRead | None:
    return next((seen for seen in api.snapshots() if seen.snapshot_id == ref), None)


def _named(api: Api, name: str) -> SnapshotRead | None:
    return next((seen for seen in api.snapshots() if name in seen.names), None)


def owned(api: Api, owner: Owner, ref: str) -> SnapshotRead | None:
    """None for one that is gone; `NotFound` for somebody else's."""
    seen = find(api, ref)
    if seen is not None and not _has_prefix(seen, _prefix(owner)):
        raise NotFound("The snapshot does not exist at CubeSandbox.")
    return seen


def take(api: Api, sandbox: str, owner: Owner, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
    """Take it, or find the one that this same operation took before."""
    name = name_of(owner, request)
    found = _named(api, name) or _taken(api, sandbox, name, deadline)
    return shown(found, owner)


def _taken(api: Api, sandbox: str, name: str, deadline: float) -> SnapshotRead:
    failure: BackendError = ProviderUnavailable("CubeSandbox answered with a snapshot that it does not list.")
    try:
        api.snapshot(sandbox, name, deadline)
    except BackendError as error:
        if error.settled:
            raise
        failure = error
    found = _named(api, name)
    if found is not None:
        return found
    if failure.details.get("status") == 500:
        raise SandboxFailed("CubeSandbox could not take the snapshot.", settled=True)
    raise failure


def shown(seen: SnapshotRead, owner: Owner) -> SnapshotInfo:
    """CubeSandbox captures memory with the disk, answers when the snapshot is ready, and tells no size."""
    return SnapshotInfo(seen.snapshot_id, owner, SnapshotKind.MEMORY, SnapshotState.READY)
