"""Counting again what an organization or project holds, and putting its counter right.

A counter changes only in the transaction that changes a sandbox, so it can be wrong only after a fault of ours or a
table that was restored. The count is exact while others create and delete: sandboxes are read from an index that lags,
then every one that changed since is read again from its own row, and the result holds only if the counter was not
touched between. The correction is a difference, so it takes nothing back that others took meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast

from ..errors import InvalidState
from ..model.event import Event
from ..model.queue import Backlog
from ..model.quota import Counter, Scope
from ..model.record import Key, Table
from ..model.resources import DIMENSIONS, Size
from ..model.sandbox import Sandbox
from ..model.tenancy import Project, TenantState
from ..runtime.ids import OrgId, ProjectId, SandboxId
from ..store.ports import (
    ACTIONS_MAX,
    Absent,
    Action,
    AnyOf,
    Committed,
    Condition,
    Equals,
    Missing,
    Put,
    StoreThrottled,
    Update,
)  # fmt: skip
from .core import Caller, Core
from .standing import Owner, org_of, read, scope_of

log = logging.getLogger(__name__)
LAG: Final = timedelta(seconds=120)
"""What changed longer ago is in the index, and its event before those of now; both take seconds at most."""
ROWS_MAX: Final = 200_000
TRIES_MAX: Final = 20
Known = dict[SandboxId, Sandbox]


@dataclass(frozen=True)
class Recount:
    """`drift` is what the counter said beyond what is held: above zero, room was lost; below, too much was let in."""

    held: Size
    drift: Size
    corrected: bool
    queued: int = 0
    """Sandboxes that hold a place in its bounded backlog."""
    queued_drift: int = 0


def recount(core: Core, caller: Caller, org: OrgId, project: ProjectId | None, *, correct: bool = True) -> Recount:
    """Compare a counter with what its sandboxes hold, and correct it unless `correct` is False.

    Raises `NotFound`, `InvalidState` for more sandboxes than one call can read, and `StoreThrottled` when the counter
    never stood still for the two reads.
    """
    owner = read(core, org, project)
    since = core.clock.now() - LAG
    known = _walk(core, owner)
    for attempt in range(TRIES_MAX):
        done = _compare(core, caller, owner, known, since, correct)
        if done is not None:
            _tell(owner, done)
            return done
        core.back_off(min(attempt, 4))
    raise StoreThrottled(f"{owner.id} is too busy to be counted right now; repeat the call, or suspend it first.")


def _compare(
    core: Core, caller: Caller, owner: Owner, known: Known, since: datetime, correct: bool
) -> Recount | None:  # fmt: skip
    """None when somebody charged the counter or gave back between its reads."""
    key = Counter.key_of(scope_of(owner), owner.id)
    counter, backlog = core.store.get(Counter, key), _backlog(core, owner)
    _refresh(core, owner, known, since)
    held, queued = _held(known, owner), _queued(known, owner)
    drift = (counter.held if counter is not None else Size()) - held
    queued_drift = backlog.waiting - queued if backlog is not None else 0
    right = drift == Size() and queued_drift == 0 and (backlog is not None or owner.limits.backlog_max is None)
    if counter is not None and (right or not correct):
        again, backlog_again = core.store.get(Counter, key), _backlog(core, owner)
        same = again is not None and again.moves == counter.moves and _same(backlog, backlog_again)
        return Recount(held, drift, False, queued, queued_drift) if same else None
    if not correct:
        raise InvalidState(f"The counter of {owner.id} is missing; repeat without dryRun to make it.", id=owner.id)
    event = core.event(
        caller, "quota.recount", owner.id, org_of(owner), project=owner.id if isinstance(owner, Project) else None,
        details={**{f"drift_{name}": getattr(drift, name) for name in DIMENSIONS}, "drift_queued": queued_drift},
    )  # fmt: skip
    actions: list[Action] = [
        _correction(owner, counter, held, drift), *_backlog_correction(owner, backlog, queued, queued_drift),
        Put(event, (Absent(),), "event"),
    ]  # fmt: skip
    if not isinstance(core.commit(actions), Committed):
        return None
    core.nudges.dispatch()
    return Recount(held, drift, True, queued, queued_drift)


def _backlog(core: Core, owner: Owner) -> Backlog | None:
    return core.store.get(Backlog, Backlog.key_of(scope_of(owner), owner.id))


def _same(one: Backlog | None, other: Backlog | None) -> bool:
    return (one.moves if one is not None else None) == (other.moves if other is not None else None)


def _backlog_correction(owner: Owner, backlog: Backlog | None, queued: int, drift: int) -> list[Action]:
    limit = owner.limits.backlog_max
    if backlog is None:
        if limit is None:
            return []
        made = Backlog(scope=scope_of(owner), name=owner.id, free=limit - queued, limit=limit)
        return [Put(made, (Absent(),), "backlog")]
    still = (Equals("moves", backlog.moves),)
    return [Update(Backlog, backlog.key(), "backlog", add={"free": drift, "moves": 1}, when=still)] if drift else []


def _correction(owner: Owner, counter: Counter | None, held: Size, drift: Size) -> Put | Update:
    scope = scope_of(owner)
    if counter is None:
        free = owner.limits.total - held
        made = Counter.of(scope, owner.id, owner.limits.total).with_(
            closed=owner.state.value if owner.state is not TenantState.ACTIVE else None,
            **{f"free_{name}": getattr(free, name) for name in DIMENSIONS},
        )
        return Put(made, (Absent(),), "counter")
    still: Condition = Equals("moves", counter.moves)
    add = {f"free_{name}": getattr(drift, name) for name in DIMENSIONS if getattr(drift, name)}
    when = (still,) if counter.moves else (AnyOf((still, Missing("moves"))),)
    return Update(Counter, counter.key(), "counter", add={**add, "moves": 1}, when=when)


def _walk(core: Core, owner: Owner) -> Known:
    """What its sandboxes hold by the index, which may be some seconds behind."""
    known: Known = {}
    rows = 0
    for project in projects_of(core, owner):
        for partition in ("LIVE", "GONE"):
            after: str | None = None
            while True:
                page = core.store.query_list(f"{partition}#{project}", after=after)
                rows += len(page.rows)
                known.update(
                    (row.id, row) for row in cast("tuple[Sandbox, ...]", page.rows) if row.reservation or row.backlogs
                )
                if rows > ROWS_MAX:
                    raise InvalidState(f"{owner.id} has more than {ROWS_MAX} sandboxes; count its projects one by one.")
                after = page.next
                if after is None:
                    break
    return known


def projects_of(core: Core, owner: Owner) -> Iterator[ProjectId]:
    if isinstance(owner, Project):
        yield owner.id
        return
    after: str | None = None
    while True:
        page = core.store.query(Table.CONFIG, f"ORG#{owner.id}", prefix="PROJECT#", after=after)
        yield from (row.id for row in page.rows if isinstance(row, Project))
        after = page.next
        if after is None:
            return


def _refresh(core: Core, owner: Owner, known: Known, since: datetime) -> None:
    """Read again, from their own rows, the sandboxes that the log says have changed."""
    changed = sorted(SandboxId(name) for name in changed_since(core, org_of(owner), since, "sbx_"))
    for start in range(0, len(changed), ACTIONS_MAX):
        part = changed[start : start + ACTIONS_MAX]
        keys: list[tuple[type[Sandbox], Key]] = [(Sandbox, Sandbox.key_of(identity)) for identity in part]
        for identity, row in zip(part, core.store.batch_get(keys), strict=True):
            if isinstance(row, Sandbox):
                known[identity] = row


def changed_since(core: Core, org: OrgId, since: datetime, kind: str) -> set[str]:
    """What the log of the organization names, of the ids that begin with `kind`."""
    found: set[str] = set()
    after: str | None = None
    while True:
        page = core.store.query(Table.LOG, f"EVT#{org}", after=after, reverse=True)
        events = [row for row in page.rows if isinstance(row, Event)]
        found.update(event.target for event in events if event.target.startswith(kind))
        after = page.next
        if after is None or (events and events[-1].at < since):
            return found


def _queued(known: Known, owner: Owner) -> int:
    scope = scope_of(owner).value
    ours = (row for row in known.values() if owner.id in (row.org, row.project))
    return sum(scope in row.backlogs for row in ours)


def _held(known: Known, owner: Owner) -> Size:
    total = Size()
    for sandbox in known.values():
        ours = sandbox.project == owner.id if isinstance(owner, Project) else sandbox.org == owner.id
        if ours and sandbox.reservation is not None and sandbox.reservation.tenant:
            total += sandbox.reservation.size
    return total


def _tell(owner: Owner, done: Recount) -> None:
    """The line that is the metric of drift."""
    org = scope_of(owner) is Scope.ORG
    log.log(
        logging.INFO if done.drift == Size() and not done.queued_drift else logging.ERROR, "quota recounted",
        extra={
            "org": org_of(owner), "project": None if org else owner.id, "drift": abs(done.drift.sandboxes),
            "corrected": done.corrected, "drift_queued": done.queued_drift,
            **{f"drift_{name}": getattr(done.drift, name) for name in DIMENSIONS},
        },
    )  # fmt: skip
