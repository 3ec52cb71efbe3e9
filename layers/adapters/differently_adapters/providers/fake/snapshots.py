"""Snapshots: captured once for each operation, ready a while later, and kept whatever becomes of the instance."""

from __future__ import annotations

from differently_core.contract import (
    InstanceState,
    Operation,
    Owner,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
    Target,
)
from differently_core.errors import InvalidState, NotFound

from . import moves
from .backend import FakeBackend
from .calls import lost
from .faults import Broken, Fault, Late, Revert, Slow
from .instances import FakeInstance, FakeSnapshot
from .ownership import find


def take(
    backend: FakeBackend, target: Target, request: SnapshotRequest, fault: Fault | None, deadline: float
) -> SnapshotInfo:
    with backend.lock:
        first = backend.captured(target.owner, request.operation)
        if first is not None:
            return told(first)
        instance = find(backend, target)
        _check_state(backend, instance, request.kind)
        made = _captured(backend, instance, request, isinstance(fault, Broken))
        backend.keep(made)
        if backend.capabilities.snapshot_stops and instance.state is not InstanceState.STOPPED:
            moves.become(backend, instance, Operation.STOP)
        end = SnapshotState.FAILED if isinstance(fault, Revert) else SnapshotState.READY
        seconds = _seconds(backend, fault)
        backend.later(seconds, lambda: _finish(made, end))
    if isinstance(fault, Late):
        raise lost(Operation.SNAPSHOT)
    if made.state is SnapshotState.CREATING:
        backend.clock.sleep(min(seconds, deadline))
        backend.catch_up()
    return told(made)


def _check_state(backend: FakeBackend, instance: FakeInstance, kind: SnapshotKind) -> None:
    state = instance.state_at(backend.clock.monotonic())
    fits = state is InstanceState.RUNNING or (kind is SnapshotKind.DISK and state is InstanceState.STOPPED)
    if instance.deleting or instance.move is not None or not (fits or instance.is_idle(backend.clock.monotonic())):
        raise InvalidState(f"The instance is {state}.")


def _captured(backend: FakeBackend, instance: FakeInstance, request: SnapshotRequest, broken: bool) -> FakeSnapshot:
    return FakeSnapshot(
        backend.new_ref("snap"), instance.owner, request.operation, backend.captures or request.kind,
        dict(instance.files), set(instance.folders), broken=broken,
    )  # fmt: skip


def _seconds(backend: FakeBackend, fault: Fault | None) -> float:
    match fault:
        case Slow(seconds) | Late(seconds) | Revert(seconds):
            return seconds
        case _:
            return backend.snapshot_seconds


def _finish(snapshot: FakeSnapshot, end: SnapshotState) -> None:
    snapshot.state = end


def get(backend: FakeBackend, owner: Owner, ref: str) -> SnapshotInfo:
    found = backend.find_snapshot(ref)
    if found is None or found.owner != owner:
        raise _missing(ref)
    return told(found)


def delete(backend: FakeBackend, owner: Owner, ref: str) -> None:
    with backend.lock:
        found = backend.find_snapshot(ref)
        if found is not None and found.owner != owner:
            raise _missing(ref)
        if found is not None:
            backend.drop_snapshot(found)


def source(backend: FakeBackend, installation: str, ref: str) -> FakeSnapshot:
    """What a new instance of this installation starts from."""
    found = backend.find_snapshot(ref)
    if found is None or found.owner.installation != installation:
        raise _missing(ref)
    if found.state is not SnapshotState.READY:
        raise InvalidState(f"The snapshot is {found.state}.")
    return found


def told(snapshot: FakeSnapshot) -> SnapshotInfo:
    size = sum(len(file.data) for file in snapshot.files.values())
    ready = snapshot.state is SnapshotState.READY
    why = "The capture failed." if snapshot.state is SnapshotState.FAILED else ""
    return SnapshotInfo(
        snapshot.ref, snapshot.owner, snapshot.kind, snapshot.state, size_bytes=size if ready else None, message=why
    )


def _missing(ref: str) -> NotFound:
    return NotFound(f"There is no snapshot {ref!r}.")
