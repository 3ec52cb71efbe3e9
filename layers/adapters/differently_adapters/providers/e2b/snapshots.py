"""Snapshots. E2B keeps nothing of ours on them but a name, so the name says whose one is and which capture it was.

Names are short and have few characters, so owners and operations are told in them by digests; a name is never used
again, for that would add to the first snapshot. E2B tells a snapshot's id as `team/name:tag`.
"""

from __future__ import annotations

from typing import Final

from differently_core.contract import Owner, SnapshotInfo, SnapshotKind, SnapshotRequest, SnapshotState
from differently_core.errors import BackendError, NotFound, SandboxFailed

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


def _name(ref: str) -> str:
    """Of the id or a full name of a snapshot: without the team and the tag."""
    return ref.rpartition("/")[2].partition(":")[0]


def _named(seen: SnapshotRead) -> set[str]:
    return {_name(seen.snapshot_id), *(_name(name) for name in seen.names)}


def check(api: Api, ref: str, installation: str) -> None:
    """A sandbox may be made from any snapshot of its installation, and from no other."""
    if not _name(ref).startswith(_of_installation(installation)) or find(api, ref) is None:
        raise NotFound("The snapshot does not exist at E2B.")


def find(api: Api, ref: str) -> SnapshotRead | None:
    return next((seen for seen in api.snapshots_named(ref) if _name(ref) in _named(seen)), None)


def owned(api: Api, owner: Owner, ref: str) -> SnapshotRead | None:
    """None for one that is gone; `NotFound` for somebody else's."""
    if not _name(ref).startswith(_prefix(owner)):
        raise NotFound("The snapshot does not exist at E2B.")
    return find(api, ref)


def take(api: Api, sandbox: str, owner: Owner, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
    """Take it, or find the one that this same operation took before."""
    name = name_of(owner, request)
    found = find(api, name)
    if found is None:
        try:
            found = api.snapshot(sandbox, name, deadline)
        except BackendError as error:
            if error.settled:
                raise
            found = find(api, name)
            if found is None and "status" in error.details:
                raise SandboxFailed("E2B could not take the snapshot.", settled=True) from None
            if found is None:
                raise
    return shown(found, owner)


def shown(seen: SnapshotRead, owner: Owner) -> SnapshotInfo:
    """E2B captures memory with the disk, answers when the snapshot is ready, and tells no size."""
    return SnapshotInfo(seen.snapshot_id, owner, SnapshotKind.MEMORY, SnapshotState.READY)
