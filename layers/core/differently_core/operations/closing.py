"""Archiving and deleting organizations and projects: a way out that goes on until nothing is held.

From the first write on nothing new starts. Then, in bounded steps, its keys are revoked, its secrets are forgotten,
and every sandbox and snapshot is told to go; the sandboxes' own operations see to the backends. It is over when two
looks, further apart than any list lags, find nothing that lives, no attempt that is not settled and no quota that is
held. A pool that is offline, or that lists nothing, settles no attempt, so it keeps its tenants from being taken for
gone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Final, cast

from ..errors import DifferentlyError, InvalidState, NotFound
from ..model.attempt import Attempt
from ..model.closing import Closing
from ..model.policy import Policy
from ..model.pool import Pool
from ..model.quota import Counter
from ..model.record import Table
from ..model.sandbox import MoveKind, Sandbox, Status
from ..model.snapshot import Snapshot, SnapshotStatus, snapshot_list
from ..model.tenancy import KeyScope, Org, OrgEntry, Project, TenantState
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import (
    Absent,
    Action,
    Check,
    Committed,
    Delete,
    Equals,
    Put,
    StoreThrottled,
    StoreUnavailable,
)  # fmt: skip
from . import keys, moves, project_secrets, sandboxes, snapshots, standing, webhooks
from .core import Caller, Core
from .standing import Owner, org_of, read, scope_of, transition

log = logging.getLogger(__name__)
STEP_MAX: Final = 25
"""Sandboxes and snapshots that one step tells to go, and projects that it looks at."""
WAIT: Final = timedelta(seconds=5)
LATER: Final = timedelta(seconds=30)
APART: Final = timedelta(seconds=60)
"""Between two looks that find nothing: longer than lists lag, and than a process decides by what it has cached."""
KEYS: Final = "KEYS#"
PROJECTS: Final = "PROJECT#"
"""What a pass goes through, in this order; its place is one of the two with the last key or project."""
ON_THE_WAY: Final = {TenantState.ARCHIVED: TenantState.ARCHIVING, TenantState.DELETED: TenantState.DELETING}


def close(core: Core, caller: Caller, org: OrgId, project: ProjectId | None, target: TenantState) -> Owner:
    """Begin; repeating it is success, and a delete takes over from an archiving.

    Raises `NotFound`, and `InvalidState` for archiving what is being deleted.
    """
    for _ in range(core.tuning.conflict_tries_max):
        found = read(core, org, project)
        if found.state in (target, ON_THE_WAY[target]):
            return found
        if found.state is TenantState.DELETING:
            raise InvalidState(f"{found.id} is being deleted already.", state=found.state.value)
        before = of(core, found)
        row = Closing(
            org=org, project=project, target=target, by=caller.actor, request_id=caller.request_id,
            at=core.clock.now(), due_at=core.clock.now(), version=before.version + 1 if before is not None else 1,
        )  # fmt: skip
        outcome = core.commit([*transition(core, caller, found, ON_THE_WAY[target], ""), Put(row, (), "closing")])
        core.catalog.forget()
        if isinstance(outcome, Committed):
            core.nudges.closing(found.id)
            return read(core, org, project)
        if "counter" in outcome.failed:
            raise InvalidState(f"The counter of {found.id} is missing; repair its quota first.", id=found.id)
    raise StoreThrottled("This is being changed by others right now; repeat the call.")


def suspend(
    core: Core, caller: Caller, org: OrgId, project: ProjectId | None, detail: str, *, stop: bool
) -> Owner:  # fmt: skip
    """As `standing.suspend`; with `stop` what runs is stopped too, step by step, where its pool can do that."""
    owner = standing.suspend(core, caller, org, project, detail)
    if not stop:
        return owner
    for _ in range(core.tuning.conflict_tries_max):
        before = of(core, owner)
        if before is not None and before.due_at is not None:
            return owner
        row = Closing(
            org=org, project=project, target=TenantState.SUSPENDED, by=caller.actor, request_id=caller.request_id,
            at=core.clock.now(), due_at=core.clock.now(), version=before.version + 1 if before is not None else 1,
        )  # fmt: skip
        when = (Equals("version", before.version),) if before is not None else (Absent(),)
        still = Check(type(owner), owner.key(), "owner", (Equals("state", TenantState.SUSPENDED.value),))
        outcome = core.commit([Put(row, when, "closing"), still])
        if isinstance(outcome, Committed):
            core.nudges.closing(owner.id)
            return owner
        if "owner" in outcome.failed:
            break
    return read(core, org, project)


def of(core: Core, owner: Owner) -> Closing | None:
    return core.store.get(Closing, Closing.key_of(owner.id))


def step(core: Core, tenant: str) -> None:
    """One bounded step, if one is due; raises only for faults of the store."""
    row = core.store.get(Closing, Closing.key_of(tenant))
    if row is None or row.due_at is None or core.clock.now() < row.due_at:
        return
    if row.target is TenantState.SUSPENDED:
        _stop_some(core, row)
        return
    row = _pass(core, row)
    if row.after is not None:
        _write(core, row, timedelta())
    elif row.busy:
        _write(core, row.with_(busy=False, clean_at=None, waits_for="sandboxes and snapshots that are going"), WAIT)
    else:
        _judge(core, row)


def _pass(core: Core, row: Closing) -> Closing:
    """Revoke keys, tell what is found to go; `after` is None again when every project was looked at."""
    caller = Caller(actor=row.by, request_id=row.request_id, scope=KeyScope.OPERATOR)
    if row.after is None or row.after.startswith(KEYS):
        return _revoke(core, caller, row)
    projects, more = _projects(core, row)
    left = STEP_MAX
    for project in projects:
        gone, found = _empty(core, caller, project, left)
        left -= gone
        row = row.with_(removed=row.removed + gone, busy=row.busy or found)
        if left <= 0:
            return row
        row = row.with_(after=f"{PROJECTS}{project}")
    return row if more else row.with_(after=None)


def _revoke(core: Core, caller: Caller, row: Closing) -> Closing:
    after = row.after.removeprefix(KEYS) if row.after is not None else None
    found, position = keys.list_keys(core, row.org, after, STEP_MAX)
    for key in found:
        if key.revoked_at is None and row.project in (None, key.project):
            keys.revoke_key(core, caller, key.id)
    return row.with_(after=f"{KEYS}{position}" if position is not None else PROJECTS)


def _projects(core: Core, row: Closing) -> tuple[list[ProjectId], bool]:
    if row.project is not None:
        return [row.project], False
    page = core.store.query(Table.CONFIG, f"ORG#{row.org}", prefix=PROJECTS, after=row.after, limit=STEP_MAX)
    return [found.id for found in page.rows if isinstance(found, Project)], page.next is not None


def _empty(core: Core, caller: Caller, project: ProjectId, most: int) -> tuple[int, bool]:
    """How many were told to go, and whether anything was there at all."""
    told = 0
    living = core.store.query_list(f"LIVE#{project}", limit=most)
    for sandbox in cast("tuple[Sandbox, ...]", living.rows):
        sandboxes.delete(core, caller, sandbox.id)
        told += 1
    kept = core.store.query_list(snapshot_list(project), limit=max(most - told, 1))
    for snapshot in cast("tuple[Snapshot, ...]", kept.rows):
        if snapshot.status is not SnapshotStatus.DELETING:
            snapshots.delete(core, caller, snapshot.id)
            told += 1
    owner = project_secrets.owner_of(core, caller, project)
    secrets, _ = project_secrets.listed(core, owner, None, STEP_MAX)
    for secret in secrets:
        with suppress(NotFound):  # by somebody else just now
            project_secrets.remove(core, caller, owner, secret.name)
    return told, bool(living.rows or kept.rows or secrets)


def _stop_some(core: Core, row: Closing) -> None:
    """Two passes a minute apart: what was being started during the first is found by the second."""
    if read(core, row.org, row.project).state is not TenantState.SUSPENDED:
        _over(core, row)
        return
    caller = Caller(actor=row.by, request_id=row.request_id, scope=KeyScope.OPERATOR)
    projects, more = _projects(core, row.with_(after=row.after or PROJECTS))
    for project in projects:
        told = _stop_running(core, caller, project)
        row = row.with_(removed=row.removed + told)
        if told >= STEP_MAX:
            _write(core, row.with_(after=row.after or PROJECTS), timedelta())
            return
        row = row.with_(after=f"{PROJECTS}{project}")
    if more:
        _write(core, row, timedelta())
    elif row.clean_at is None:
        _write(core, row.with_(after=None, clean_at=core.clock.now()), APART)
    else:
        _over(core, row)


def _stop_running(core: Core, caller: Caller, project: ProjectId) -> int:
    """How many were told to stop. What cannot be stopped, or not now, runs on."""
    told = 0
    after: str | None = None
    while told < STEP_MAX:
        page = core.store.query_list(f"LIVE#{project}", after=after)
        for sandbox in cast("tuple[Sandbox, ...]", page.rows):
            if sandbox.status is not Status.RUNNING or told >= STEP_MAX:
                continue
            try:
                moves.ask(core, caller, sandbox.id, MoveKind.STOP)
                told += 1
            except (StoreThrottled, StoreUnavailable):
                raise
            except DifferentlyError as error:
                log.info("not stopped", extra={"sandbox": sandbox.id, "code": error.code})
        after = page.next
        if after is None:
            break
    return told


def _over(core: Core, row: Closing) -> None:
    done = row.with_(due_at=None, version=row.version + 1)
    core.commit([Put(done, (Equals("version", row.version),), "closing")])


def _judge(core: Core, row: Closing) -> None:
    """Nothing lives any more by the lists: is anything held?"""
    owner = read(core, row.org, row.project)
    counter = core.store.get(Counter, Counter.key_of(scope_of(owner), owner.id))
    held = _held(core, row, counter)
    now = core.clock.now()
    if held is not None:
        _write(core, row.with_(clean_at=None, waits_for=held), LATER)
    elif row.clean_at is None or now - row.clean_at < APART:
        since = row.clean_at or now
        _write(core, row.with_(clean_at=since, waits_for="a second look"), since + APART - now)
    else:
        by = Caller(actor=row.by, request_id=row.request_id, scope=KeyScope.OPERATOR)
        webhooks.remove_all(core, by, row.org, row.project)
        _finish(core, row, owner, counter)


def _held(core: Core, row: Closing, counter: Counter | None) -> str | None:
    """What is held yet, in words; None for nothing."""
    if counter is not None and counter.held.sandboxes > 0:
        return f"quota of {counter.held.sandboxes} sandboxes"
    for pool in _pools(core):
        after: str | None = None
        while True:
            page = core.store.query_pool(pool, after=after)
            attempts = (entry for entry in page.rows if isinstance(entry, Attempt))
            if any(entry.project == row.project if row.project else entry.org == row.org for entry in attempts):
                return f"pool {pool}, which has not proved that its instances are gone"
            after = page.next
            if after is None:
                break
    return None


def _pools(core: Core) -> Iterator[str]:
    """As stored: a pool that was made seconds ago may hold something too."""
    after: str | None = None
    while True:
        page = core.store.query(Table.CONFIG, "POOLS", after=after)
        yield from (row.name for row in page.rows if isinstance(row, Pool))
        after = page.next
        if after is None:
            return


def _finish(core: Core, row: Closing, owner: Owner, counter: Counter | None) -> None:
    caller = Caller(actor=row.by, request_id=row.request_id, scope=KeyScope.OPERATOR)
    over = owner.with_(name="") if row.target is TenantState.DELETED else owner
    empty = (Equals("free_sandboxes", counter.limit_sandboxes),) if counter is not None else ()
    done = row.with_(due_at=None, waits_for="", version=row.version + 1)
    actions: list[Action] = [
        *transition(core, caller, over, row.target, "", counter=empty),
        Put(done, (Equals("version", row.version),), "closing"),
    ]
    if row.target is TenantState.DELETED:
        actions.append(Delete(Policy, Policy.key_of(owner.id), "policy"))
    if row.target is TenantState.DELETED and isinstance(owner, Org):
        entry = OrgEntry(id=owner.id, name="", created_at=owner.created_at)
        actions.append(Delete(OrgEntry, entry.key(), "entry"))
    if isinstance(core.commit(actions), Committed):
        core.catalog.forget()
        log.info("closed", extra={"org": org_of(owner), "project": row.project, "state": row.target.value})
    else:
        _write(core, row.with_(clean_at=None), LATER)


def _write(core: Core, row: Closing, wait: timedelta) -> None:
    """Lost to another worker's step, which has written its own next one."""
    later = row.with_(due_at=core.clock.now() + wait, version=row.version + 1)
    outcome = core.commit([Put(later, (Equals("version", row.version),), "closing")])
    if isinstance(outcome, Committed) and not wait:
        core.nudges.closing(row.tenant)
