"""What snapshots count for: one in number from acceptance on, their bytes from the moment these are known.

Charged in the transaction that makes a record and given back in the one that says that nothing is kept any more. How
large a snapshot gets is only known afterwards, so the last one may go over the limit of bytes; the next one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import Internal, QuotaExceeded
from ..model.quota import Limits, Scope
from ..model.record import Record
from ..model.resources import UNLIMITED
from ..model.snapshot import Snapshot, SnapshotTally
from ..store.ports import Absent, AtMost, Condition, Put, Update
from .core import Core

GIB = 2**30


def scopes_of(snapshot: Snapshot) -> list[tuple[Scope, str]]:
    return [(Scope.ORG, snapshot.org), (Scope.PROJECT, snapshot.project), (Scope.POOL, snapshot.pool)]


def limits_of(core: Core, snapshot: Snapshot) -> Mapping[Scope, Limits]:
    """A pool keeps as many as it is given."""
    return {
        Scope.ORG: core.catalog.org(snapshot.org).limits,
        Scope.PROJECT: core.catalog.project(snapshot.org, snapshot.project).limits,
    }


def name_of(scope: Scope, name: str) -> str:
    return f"snapshots:{scope}:{name}"


def charge(core: Core, snapshot: Snapshot) -> list[Update]:
    """Count one more, where there is room in number and any room in bytes."""
    limits = limits_of(core, snapshot)
    return [_change(scope, name, 1, 0, _room(limits.get(scope))) for scope, name in scopes_of(snapshot)]


def _room(limits: Limits | None) -> tuple[Condition, ...]:
    if limits is None:
        return ()
    room: list[Condition] = [AtMost("count", limits.snapshots_max - 1)]
    if limits.snapshot_gib_max < UNLIMITED:
        room.append(AtMost("bytes", limits.snapshot_gib_max * GIB - 1))
    return tuple(room)


def charge_bytes(snapshot: Snapshot, amount: int) -> list[Update]:
    """What it turned out to keep; the same write notes it in `charged_bytes`."""
    return [_change(scope, name, 0, amount) for scope, name in scopes_of(snapshot)] if amount else []


def give_back(snapshot: Snapshot) -> list[Update]:
    """The same transaction must clear `holds`, or remove the record, so that it happens exactly once."""
    if not snapshot.holds:
        return []
    return [_change(scope, name, -1, -snapshot.charged_bytes) for scope, name in scopes_of(snapshot)]


def _change(scope: Scope, name: str, count: int, amount: int, when: tuple[Condition, ...] = ()) -> Update:
    add = {field: change for field, change in (("count", count), ("bytes", amount)) if change} | {"moves": 1}
    return Update(SnapshotTally, SnapshotTally.key_of(scope, name), name_of(scope, name), add=add, when=when)


def make_missing(core: Core, snapshot: Snapshot, failed: Mapping[str, Record | None]) -> bool:
    """Make the tallies that there are not yet, as the first snapshot of a scope finds it; True if any was missing."""
    missing = [entry for entry in scopes_of(snapshot) if failed.get(name_of(*entry), snapshot) is None]
    for scope, name in missing:
        core.commit([Put(SnapshotTally(scope=scope, name=name), (Absent(),), "tally")])
    return bool(missing)


def refusal(core: Core, snapshot: Snapshot, failed: Mapping[str, Record | None]) -> QuotaExceeded | None:
    """Which limit refused a charge, if one did."""
    for scope, limits in limits_of(core, snapshot).items():
        tally = failed.get(name_of(scope, snapshot.org if scope is Scope.ORG else snapshot.project))
        if tally is None:
            continue
        if not isinstance(tally, SnapshotTally):
            raise Internal("A tally of snapshots is something else.")
        if tally.count >= limits.snapshots_max:
            return QuotaExceeded(
                f"The {scope}'s quota of {limits.snapshots_max} snapshots is used up; delete one first.",
                scope=scope.value, resource="snapshots", limit=limits.snapshots_max, held=tally.count,
            )  # fmt: skip
        return QuotaExceeded(
            f"The {scope}'s quota of {limits.snapshot_gib_max} GiB of snapshots is used up; delete some first.",
            scope=scope.value, resource="snapshotGiB", limit=limits.snapshot_gib_max, held=tally.bytes // GIB,
        )  # fmt: skip
    return None


def tally(core: Core, scope: Scope, name: str) -> SnapshotTally:
    """Where none was ever taken, nothing is held; one round trip."""
    found = core.store.get(SnapshotTally, SnapshotTally.key_of(scope, name))
    return found or SnapshotTally(scope=scope, name=name)
