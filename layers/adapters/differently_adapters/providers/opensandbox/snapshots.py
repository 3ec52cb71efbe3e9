"""Snapshots. OpenSandbox keeps no labels on them, so whose one is stands in its name, and so does which capture."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from differently_core.contract import Owner, SnapshotInfo, SnapshotKind, SnapshotRequest, SnapshotState, Target
from differently_core.errors import BackendError, InvalidState, NotFound
from differently_core.runtime.clock import Clock

from ...waiting import Waits, begun
from .lifecycle import Lifecycle
from .wire import SandboxRead, SnapshotRead

STATES: Final = {"creating": SnapshotState.CREATING, "ready": SnapshotState.READY}


def name_of(owner: Owner, request: SnapshotRequest) -> str:
    return f"{_prefix(owner)}{request.kind}/{request.operation}"


def _prefix(owner: Owner) -> str:
    return f"differently/{owner.installation}/{owner.sandbox}/"


def check(seen: SnapshotRead, installation: str) -> None:
    """A sandbox may be made from any snapshot of its installation, and from no other."""
    if not (seen.name or "").startswith(f"differently/{installation}/"):
        raise NotFound("The snapshot does not exist in OpenSandbox.", foreign=True)
    if seen.status.state.lower() == "creating":
        raise InvalidState("The snapshot is not ready yet.")


def observed(seen: SnapshotRead, owner: Owner) -> SnapshotInfo:
    if not (seen.name or "").startswith(_prefix(owner)):
        raise NotFound("The snapshot does not exist in OpenSandbox.", foreign=True)
    state = STATES.get(seen.status.state.lower(), SnapshotState.FAILED)
    message = "" if state is SnapshotState.READY else (seen.status.message or seen.status.reason or seen.status.state)
    # The answer tells neither kind nor size. Memory is only asked for where the operator says that it is captured.
    told = (seen.name or "").removeprefix(_prefix(owner)).partition("/")[0]
    kind = SnapshotKind.MEMORY if told == SnapshotKind.MEMORY else SnapshotKind.DISK
    return SnapshotInfo(seen.id, owner, kind, state, message=message)


def left_of(api: Lifecycle, target: Target, request: SnapshotRequest) -> SnapshotInfo | None:
    """What this operation took of a sandbox that is gone by now: whoever asks again may only want to remove it."""
    if target.ref is None:
        return None
    found = api.snapshots_named(target.ref, name_of(target.owner, request))
    first = min(found, key=lambda seen: (seen.created_at, seen.id), default=None)
    return None if first is None else observed(first, target.owner)


def take(
    api: Lifecycle, clock: Clock, source: SandboxRead, owner: Owner, request: SnapshotRequest, deadline: float
) -> SnapshotInfo:
    """Take it, or find the one that this same operation took before, and follow it until it is ready."""
    waits = Waits(clock, clock.monotonic() + deadline)
    name = name_of(owner, request)
    seen = _first(api, source, name) or _begin(api, source, name, waits)
    with begun():
        while seen.status.state.lower() == "creating" and waits.again():
            seen = api.snapshot_get(seen.id)
    return observed(seen, owner)


def _begin(api: Lifecycle, source: SandboxRead, name: str, waits: Waits) -> SnapshotRead:
    """Sent once. After a lost answer it is looked for as long as there is time, and never sent again."""
    try:
        begun_now = api.snapshot(source.id, name)
    except BackendError as error:
        if error.settled:
            raise
        found = _first(api, source, name)
        while found is None and waits.again():
            found = _first(api, source, name)
        if found is None:
            raise
        return found
    return _one_of(api, source, begun_now, name)


def _one_of(api: Lifecycle, source: SandboxRead, made: SnapshotRead, name: str) -> SnapshotRead:
    """An earlier attempt of the same operation may have come to light: the older one is the operation's."""
    with begun():
        first = _first(api, source, name) or made
        if first.id != made.id:
            with suppress(InvalidState):  # it cannot be removed while it is being made; it has a name of ours
                api.snapshot_delete(made.id)
    return first


def _first(api: Lifecycle, source: SandboxRead, name: str) -> SnapshotRead | None:
    found = api.snapshots_named(source.id, name)
    return min(found, key=lambda seen: (seen.created_at, seen.id), default=None)
