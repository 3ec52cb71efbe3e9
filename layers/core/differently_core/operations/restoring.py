"""Making a sandbox from a snapshot: what may be made from it, and the hold that keeps it until that is done.

The hold is a row, written in the transaction that accepts the sandbox, on condition that the snapshot is ready, and
gone in the one by which the sandbox runs or has ended. While there is one, the snapshot is not removed.
"""

from __future__ import annotations

from ..errors import InvalidRequest, InvalidState, LimitExceeded, NoEligiblePool, NotFound
from ..model.record import Table
from ..model.resources import Size
from ..model.sandbox import Sandbox
from ..model.snapshot import Snapshot, SnapshotKind, SnapshotStatus, SnapshotUse
from ..runtime.ids import ProjectId, SandboxId, SnapshotId, is_id
from ..store.ports import Action, Check, Delete, Equals, Put, Refused
from .core import Core
from .requests import CreateSandbox

SOURCE = "source"
"""How the condition on the snapshot is named in a transaction and in its refusal."""


def no_snapshot(snapshot: str) -> NotFound:
    return NotFound(f"There is no snapshot {snapshot[:64]!r}.", snapshotId=snapshot[:64])


def source_of(core: Core, project: ProjectId, request: CreateSandbox) -> Snapshot | None:
    """The snapshot that a create asks for, ready to be used; one round trip.

    Raises `NotFound`, also for one of another project, `InvalidState` while it is not ready or when it is no more,
    and `NoEligiblePool` where the request rules out the pool that keeps it.
    """
    if request.snapshot_id is None:
        return None
    found = _stored(core, request.snapshot_id)
    if found is None or found.project != project:
        raise no_snapshot(request.snapshot_id)
    _check_ready(found)
    if "classification" in request.model_fields_set and request.classification != found.classification:
        raise InvalidRequest(
            "classification: what is made from a snapshot keeps that of what it was taken of; leave it out.",
            field="classification",
        )
    wanted = request.placement.allowed_pools
    if wanted and found.pool not in wanted:
        raise NoEligiblePool(
            f"The snapshot is kept by pool {found.pool} and can be restored only there; allow that pool.",
            pool=found.pool, snapshotId=found.id,
        )  # fmt: skip
    return found


def _stored(core: Core, snapshot: str) -> Snapshot | None:
    return core.store.get(Snapshot, Snapshot.key_of(SnapshotId(snapshot))) if is_id("snap", snapshot) else None


def _check_ready(found: Snapshot) -> None:
    why = f" ({found.reason.code}: {found.reason.detail})" if found.reason is not None else ""
    match found.status:
        case SnapshotStatus.READY:
            return
        case SnapshotStatus.CREATING:
            text = "is still being taken; repeat the call when it is ready"
        case SnapshotStatus.FAILED:
            text = f"failed{why}; take another one"
        case SnapshotStatus.BROKEN:
            text = f"was lost by its pool{why}; nothing can be made from it any more"
        case SnapshotStatus.DELETING:
            text = "is being deleted; nothing new is made from it"
    raise InvalidState(f"The snapshot {text}.", snapshotId=found.id, status=found.status.value)


def check_fits(snapshot: Snapshot, size: Size) -> None:
    """What was captured needs the room that it was captured in. Raises `LimitExceeded`."""
    needed = {"disk_gib": "diskGiB"}
    if (snapshot.captured or snapshot.asked) is SnapshotKind.MEMORY:
        needed["memory_mib"] = "memoryMiB"
    for field, resource in needed.items():
        asked, least = getattr(size, field), getattr(snapshot.size, field)
        if asked < least:
            raise LimitExceeded(
                f"{resource} {asked} is too small for the snapshot, which needs {least}; ask for that or more.",
                resource=resource, requested=asked, minimum=least,
            )  # fmt: skip


# The hold


def hold(snapshot: SnapshotId, sandbox: SandboxId) -> list[Action]:
    return [
        Check(Snapshot, Snapshot.key_of(snapshot), SOURCE, (Equals("status", SnapshotStatus.READY.value),)),
        Put(SnapshotUse(snapshot=snapshot, sandbox=sandbox), (), "use"),
    ]


def check_held(sandbox: Sandbox, refusal: Refused) -> None:
    """Raises why a snapshot could not be held, if it was that which refused."""
    if SOURCE not in refusal.failed:
        return
    row = refusal.failed[SOURCE]
    if isinstance(row, Snapshot):
        _check_ready(row)
    raise no_snapshot(sandbox.from_snapshot or "")


def let_go(sandbox: Sandbox) -> list[Action]:
    """Part of the write by which a sandbox runs, or has ended; done twice it is done once."""
    if sandbox.from_snapshot is None:
        return []
    return [Delete(SnapshotUse, SnapshotUse.key_of(sandbox.from_snapshot, sandbox.id), "use")]


def in_use(core: Core, snapshot: SnapshotId) -> bool:
    """Whether some sandbox is still being made from it; one round trip."""
    page = core.store.query(Table.STATE, f"SNAP#{snapshot}", prefix="USE#", limit=1)
    return any(isinstance(row, SnapshotUse) for row in page.rows)


# At the backend


def ref_of(core: Core, snapshot: SnapshotId) -> str:
    """What the backend calls it. Raises `NotFound` when there is nothing to make a sandbox from; never guesses."""
    found = _stored(core, snapshot)
    if found is None or found.ref is None or found.status in (SnapshotStatus.FAILED, SnapshotStatus.BROKEN):
        raise no_snapshot(snapshot)
    return found.ref


def doubt(core: Core, snapshot: SnapshotId) -> None:
    """The backend did not know it: have it looked for now, not some hours later."""
    found = _stored(core, snapshot)
    if found is not None and found.status is SnapshotStatus.READY:
        soon = found.with_(due_at=core.clock.now(), version=found.version + 1)
        core.commit([Put(soon, (Equals("version", found.version),), "snapshot")])
        core.nudges.snapshot(snapshot)
