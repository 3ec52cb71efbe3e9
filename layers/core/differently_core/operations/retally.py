"""Counting again how many snapshots an organization or project keeps, and how large they are.

As for what sandboxes hold (`recount`), and simpler: every snapshot of the index, and every one that the log names
lately, is read from its own row. The correction is a difference, on condition that nothing was charged or given back
since; a tally that nobody needed yet is no fault.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import cast

from ..errors import InvalidState
from ..model.record import Key
from ..model.snapshot import Snapshot, SnapshotTally, snapshot_list
from ..model.tenancy import Project
from ..runtime.ids import OrgId, ProjectId, SnapshotId
from ..store.ports import ACTIONS_MAX, Absent, AnyOf, Committed, Condition, Equals, Missing, Put, StoreThrottled, Update
from .core import Caller, Core
from .recount import LAG, ROWS_MAX, TRIES_MAX, changed_since, projects_of
from .standing import Owner, org_of, read, scope_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    snapshots: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Retally:
    """`drift` is what the tally said beyond what is kept: above zero, room was lost; below, too much was let in."""

    held: Kept
    drift: Kept
    corrected: bool


def retally(core: Core, caller: Caller, org: OrgId, project: ProjectId | None, *, correct: bool = True) -> Retally:
    """Compare a tally with the snapshots there are, and correct it unless `correct` is False.

    Raises `NotFound`, `InvalidState` for more snapshots than one call can read, and `StoreThrottled` when the tally
    never stood still for the reads.
    """
    owner = read(core, org, project)
    since = core.clock.now() - LAG
    listed = _listed(core, owner)
    for attempt in range(TRIES_MAX):
        tally = _tally(core, owner)
        named = changed_since(core, org_of(owner), since, "snap_")
        done = _compare(core, caller, owner, tally, _kept(core, owner, listed | named), correct)
        if done is not None:
            _tell(owner, done)
            return done
        core.back_off(min(attempt, 4))
    raise StoreThrottled(f"The snapshots of {owner.id} change too fast to be counted right now; repeat the call.")


def _compare(
    core: Core, caller: Caller, owner: Owner, tally: SnapshotTally | None, held: Kept, correct: bool
) -> Retally | None:
    """None when somebody charged the tally or gave back since it was read."""
    counted = Kept(tally.count, tally.bytes) if tally is not None else Kept()
    drift = Kept(counted.snapshots - held.snapshots, counted.bytes - held.bytes)
    if drift == Kept() or not correct:
        again = _tally(core, owner)
        same = (again.moves if again is not None else None) == (tally.moves if tally is not None else None)
        return Retally(held, drift, corrected=False) if same else None
    event = core.event(
        caller, "quota.recount", owner.id, org_of(owner), project=owner.id if isinstance(owner, Project) else None,
        details={"drift_snapshots": drift.snapshots, "drift_snapshot_bytes": drift.bytes},
    )  # fmt: skip
    actions = [_correction(owner, tally, held, drift), Put(event, (Absent(),), "event")]
    return Retally(held, drift, corrected=True) if isinstance(core.commit(actions), Committed) else None


def _correction(owner: Owner, tally: SnapshotTally | None, held: Kept, drift: Kept) -> Put | Update:
    if tally is None:
        made = SnapshotTally(scope=scope_of(owner), name=owner.id, count=held.snapshots, bytes=held.bytes)
        return Put(made, (Absent(),), "tally")
    still: Condition = Equals("moves", tally.moves)
    when = (still,) if tally.moves else (AnyOf((still, Missing("moves"))),)
    add = {name: -amount for name, amount in (("count", drift.snapshots), ("bytes", drift.bytes)) if amount}
    return Update(SnapshotTally, tally.key(), "tally", add={**add, "moves": 1}, when=when)


def _tally(core: Core, owner: Owner) -> SnapshotTally | None:
    return core.store.get(SnapshotTally, SnapshotTally.key_of(scope_of(owner), owner.id))


def _listed(core: Core, owner: Owner) -> set[str]:
    """Its snapshots by the index, which may be some seconds behind."""
    found: set[str] = set()
    for project in projects_of(core, owner):
        after: str | None = None
        while True:
            page = core.store.query_list(snapshot_list(project), after=after)
            found.update(row.id for row in cast("tuple[Snapshot, ...]", page.rows))
            if len(found) > ROWS_MAX:
                raise InvalidState(f"{owner.id} has more than {ROWS_MAX} snapshots; count its projects one by one.")
            after = page.next
            if after is None:
                break
    return found


def _kept(core: Core, owner: Owner, identities: set[str]) -> Kept:
    """What they count for, by their own rows."""
    ordered, count, amount = sorted(identities), 0, 0
    for start in range(0, len(ordered), ACTIONS_MAX):
        part = ordered[start : start + ACTIONS_MAX]
        keys: list[tuple[type[Snapshot], Key]] = [(Snapshot, Snapshot.key_of(SnapshotId(name))) for name in part]
        for row in core.store.batch_get(keys):
            if isinstance(row, Snapshot) and row.holds and owner.id in (row.org, row.project):
                count, amount = count + 1, amount + row.charged_bytes
    return Kept(count, amount)


def _tell(owner: Owner, done: Retally) -> None:
    right = done.drift == Kept()
    log.log(
        logging.INFO if right else logging.ERROR, "snapshots recounted",
        extra={
            "org": org_of(owner), "project": owner.id if isinstance(owner, Project) else None,
            "drift_snapshots": done.drift.snapshots, "drift_snapshot_bytes": done.drift.bytes,
            "corrected": done.corrected,
        },
    )  # fmt: skip
