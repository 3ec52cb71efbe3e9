"""What must hold of snapshots: each thing that a backend keeps has one record, and is counted exactly once.

Beside `monitor`, which tells it of every write, of every create, and of what backends capture and drop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from differently_adapters.providers.fake import FakeSnapshot
from differently_core.contract import CreateRequest
from differently_core.model.event import Event
from differently_core.model.port import OpenPort, PortStatus
from differently_core.model.quota import Scope
from differently_core.model.record import Key, Record
from differently_core.model.sandbox import Sandbox, Status
from differently_core.model.snapshot import (
    TRANSITIONS,
    Snapshot,
    SnapshotStatus,
    SnapshotTally,
    SnapshotUse,
)
from differently_core.runtime.ids import SnapshotId

from .processes import Violation

if TYPE_CHECKING:
    from .seams import SimBackend

Change = tuple[Record | None, Record | None]
REMOVABLE = frozenset({SnapshotStatus.DELETING, SnapshotStatus.FAILED})
_PORTS: Mapping[PortStatus, frozenset[PortStatus]] = {
    PortStatus.OPENING: frozenset({PortStatus.OPENING, PortStatus.OPEN, PortStatus.CLOSING}),
    PortStatus.OPEN: frozenset({PortStatus.OPEN, PortStatus.CLOSING}),
    PortStatus.CLOSING: frozenset({PortStatus.CLOSING}),
}


def must(holds: bool, invariant: str, what: str) -> None:
    if not holds:
        raise Violation(f"{invariant}: {what}")


class Keeping:
    def __init__(self, rows: Callable[[], Mapping[Key, Record]], note: Callable[[str], None]) -> None:
        self.snapshots: dict[str, Snapshot] = {}
        self.uses: dict[str, set[str]] = {}
        """For each snapshot, the sandboxes that are being made from it."""
        self._rows = rows
        self._note = note

    def committed(self, changes: Sequence[Change]) -> None:
        events = [after for _, after in changes if isinstance(after, Event)]
        touched: set[tuple[Scope, str]] = set()
        for before, after in changes:
            row = after or before
            if isinstance(row, Snapshot):
                self._moved(before, after, events)
                touched |= {(Scope.ORG, row.org), (Scope.PROJECT, row.project), (Scope.POOL, row.pool)}
            elif isinstance(row, SnapshotUse):
                self._used(row, after is not None)
            elif isinstance(row, SnapshotTally):
                touched.add((row.scope, row.name))
            elif isinstance(row, OpenPort) and isinstance(before, OpenPort) and isinstance(after, OpenPort):
                must(after.status in _PORTS[before.status], "ports", f"{before.status} -> {after.status}")
                must(after.version == before.version + 1, "ports", f"version {before.version} -> {after.version}")
        for scope, name in touched:
            self._counted(scope, name)
        for _, after in changes:
            if isinstance(after, Sandbox):
                self.judge_hold(after)

    def take_over(self, rows: Iterable[Record]) -> None:
        for row in rows:
            if isinstance(row, Snapshot):
                self.snapshots[row.id] = row
            elif isinstance(row, SnapshotUse):
                self._used(row, True)

    def _moved(self, before: Record | None, after: Record | None, events: Sequence[Event]) -> None:
        if after is None:
            assert isinstance(before, Snapshot)
            must(before.status is SnapshotStatus.DELETING, "I7", f"{before.id} was removed while {before.status}")
            must(
                not self.uses.get(before.id), "I4", f"{before.id} was removed while {self.uses.get(before.id)} used it"
            )
            must(_told(events, before.id, None) == 1, "I10", f"the end of {before.id} is told by no event")
            self.snapshots.pop(before.id)
            self._note("snapshot deleting -> gone")
            return
        assert isinstance(after, Snapshot)
        self.snapshots[after.id] = after
        if before is None:
            must(after.status is SnapshotStatus.CREATING and after.holds, "I7", f"{after.id} began as {after.status}")
            self._note("snapshot new -> creating")
        else:
            assert isinstance(before, Snapshot)
            must(after.version == before.version + 1, "I7", f"{after.id}: version {before.version} -> {after.version}")
            must(before.holds or not after.holds, "I5", f"{after.id} holds something again")
            must(before.ref in (None, after.ref) or after.ref is None, "I1", f"{after.id}: {before.ref}, {after.ref}")
            if before.status is after.status:
                return
            self._note(f"snapshot {before.status.value} -> {after.status.value}")
            must(after.status in TRANSITIONS[before.status], "I7", f"{after.id}: {before.status} -> {after.status}")
        told = _told(events, after.id, after.status.value)
        # A retirement is told when it is over.
        must(told == 1, "I10", f"{after.id} -> {after.status}: {told} events tell of it")

    def _used(self, use: SnapshotUse, is_there: bool) -> None:
        users = self.uses.setdefault(use.snapshot, set())
        (users.add if is_there else users.discard)(use.sandbox)
        if is_there:
            found = self.snapshots.get(use.snapshot)
            fits = found is not None and (
                found.status is SnapshotStatus.READY
                or (found.status is SnapshotStatus.CREATING and found.fork == use.sandbox)
            )
            must(fits, "I9", f"{use.sandbox} holds {use.snapshot}, which is {found.status if found else 'not there'}")

    def judge_hold(self, sandbox: Sandbox) -> None:
        """A sandbox holds its snapshot until it has run or ended, and no longer."""
        if sandbox.from_snapshot is None:
            return
        waits = sandbox.status in (Status.QUEUED, Status.PROVISIONING, Status.TERMINATING)
        holds = sandbox.id in self.uses.get(sandbox.from_snapshot, set())
        wanted = waits and sandbox.started_at is None
        must(holds == wanted, "I4", f"{sandbox.id} is {sandbox.status} and holds {sandbox.from_snapshot}: {holds}")

    def _counted(self, scope: Scope, name: str) -> None:
        mine = [row for row in self.snapshots.values() if row.holds and name in (row.org, row.project, row.pool)]
        held = (len(mine), sum(row.charged_bytes for row in mine))
        tally = self._rows().get(SnapshotTally.key_of(scope, name))
        counted = (tally.count, tally.bytes) if isinstance(tally, SnapshotTally) else (0, 0)
        must(counted == held, "I5", f"{scope} {name} counts {counted} snapshots and bytes; records hold {held}")

    # Backends.

    def create_called(self, sandbox: Sandbox, request: CreateRequest) -> None:
        """What is to start from a snapshot never starts from nothing, nor from another one."""
        if sandbox.from_snapshot is None:
            must(request.from_snapshot is None, "I9", f"{sandbox.id} is made from {request.from_snapshot}")
            return
        found = self.snapshots.get(sandbox.from_snapshot)
        must(request.from_snapshot is not None, "I9", f"{sandbox.id} is made from nothing, not a snapshot")
        known = found.ref if found is not None else None
        must(known in (None, request.from_snapshot), "I9", f"{sandbox.id}: made from {request.from_snapshot}, {known}")

    def captured(self, backend: SimBackend, made: FakeSnapshot) -> None:
        found = self.snapshots.get(SnapshotId(made.operation))
        must(found is not None, "I4", f"{made.ref} was captured and has no record")
        assert found is not None
        must(found.unsettled and found.holds, "I7", f"{found.id}: captured before it was written down")
        must(made.owner.sandbox == found.sandbox, "I11", f"{found.id} is of {found.sandbox}, not of {made.owner}")
        same = [kept for kept in backend.snapshots() if kept.operation == made.operation and kept.ref != made.ref]
        must(not same, "I1", f"{found.id} was captured twice")

    def dropping(self, backend: SimBackend, kept: FakeSnapshot, ours: str) -> None:
        must(kept.owner.installation == ours, "I2", f"{kept.ref} of {kept.owner} is not ours and is being removed")
        found = self.snapshots.get(SnapshotId(kept.operation))
        must(found is not None and found.status in REMOVABLE, "I3", f"{kept.ref} of {kept.operation} is wanted")
        users = self.uses.get(kept.operation)
        must(
            found is None or found.status is SnapshotStatus.FAILED or not users, "I3", f"{kept.ref} is used by {users}"
        )

    def check_everything(self, rows: Mapping[Key, Record], backends: Iterable[SimBackend], ours: str) -> None:
        for row in rows.values():
            if isinstance(row, Sandbox):
                self.judge_hold(row)
            elif isinstance(row, SnapshotTally):
                self._counted(row.scope, row.name)
            elif isinstance(row, Snapshot):
                must(row == self.snapshots.get(row.id), "simulation", f"{row.id} was written behind the monitor's back")
        for backend in backends:
            for kept in backend.snapshots():
                if kept.owner.installation == ours:
                    found = self.snapshots.get(SnapshotId(kept.operation))
                    must(found is not None and found.holds, "I4", f"{kept.ref} is kept and no record holds it")


def _told(events: Sequence[Event], target: str, after: str | None) -> int:
    return sum(event.target == target and event.after == after for event in events)
