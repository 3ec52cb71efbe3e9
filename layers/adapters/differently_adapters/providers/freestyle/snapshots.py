"""Snapshots: whose one is stands in its display name, and which capture in its slug, which exists once an account."""

from __future__ import annotations

from pydantic import JsonValue

from differently_core.contract import Owner, SnapshotInfo, SnapshotKind, SnapshotRequest, SnapshotState
from differently_core.errors import BackendError, InvalidState, NotFound, ProviderUnavailable, SandboxFailed

from ...waiting import begun
from .api import Api
from .wire import FOREVER, SnapshotRead, slug


def name_of(owner: Owner) -> str:
    return f"differently/{owner.installation}/{owner.sandbox}"


def take(api: Api, source: str, owner: Owner, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
    """One for an operation: the slug is taken when it was captured before, and then that one is found."""
    wanted = slug(owner.installation, owner.sandbox, "snapshot", request.operation)
    body: dict[str, JsonValue] = {
        "slug": wanted,
        "displayName": name_of(owner),
        "ttlSeconds": FOREVER,
        "autoDeleteSeconds": FOREVER,
    }
    try:
        ref = api.snapshot(source, body, deadline)
    except InvalidState:
        pass
    except BackendError as error:
        if error.settled:
            raise
        found = _of_operation(api, source, wanted)
        if found is None and "status" in error.details:
            raise SandboxFailed("Freestyle could not capture the VM.", settled=True) from None
        if found is None:
            raise
        return shown(found, owner)
    else:
        return SnapshotInfo(ref, owner, SnapshotKind.MEMORY, SnapshotState.READY)
    found = _of_operation(api, source, wanted)
    if found is None:
        raise InvalidState("Freestyle cannot capture the VM in its present state.")
    return shown(found, owner)


def _of_operation(api: Api, source: str, wanted: str) -> SnapshotRead | None:
    with begun():
        return next((seen for seen in api.snapshots(source) if seen.slug == wanted), None)


def owned(api: Api, owner: Owner, ref: str) -> SnapshotRead | None:
    """None for one that does not exist; raises `NotFound` for one of somebody else's."""
    seen = next((seen for seen in api.snapshots() if seen.id == ref), None)
    if seen is not None and seen.display_name != name_of(owner):
        raise NotFound("The snapshot does not exist at Freestyle.")
    return seen


def check(api: Api, installation: str, ref: str) -> None:
    """A sandbox may be made from any snapshot of its installation, and from no other."""
    seen = next((seen for seen in api.snapshots() if seen.id == ref), None)
    if seen is None or not (seen.display_name or "").startswith(f"differently/{installation}/"):
        raise NotFound("The snapshot does not exist at Freestyle.", missing="snapshot")


def shown(seen: SnapshotRead, owner: Owner) -> SnapshotInfo:
    if seen.display_name != name_of(owner):
        raise ProviderUnavailable("Freestyle keeps another name on the snapshot than it was given.")
    return SnapshotInfo(seen.id, owner, SnapshotKind.MEMORY, SnapshotState.READY)
