"""Snapshots as callers see them: take, list, read, delete. What follows from it is done by `capturing`.

Taking one writes a record and answers; the capture itself comes after that, under the record's own name. Another
tenant's snapshot is not found, whatever is asked of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Self, cast

from pydantic import Field, StringConstraints

from ..errors import (
    IdempotencyConflict,
    InvalidRequest,
    InvalidState,
    LimitExceeded,
    NotFound,
    PolicyUnreadable,
    Suspended,
    UnsupportedOperation,
)
from ..model import features
from ..model.due import stamp
from ..model.policy import RETENTION_SECONDS_MAX, RETENTION_SECONDS_MIN
from ..model.pool import Pool
from ..model.record import Record, Wire
from ..model.sandbox import GONE, Reason, Sandbox, Status, told
from ..model.snapshot import Snapshot, SnapshotKey, SnapshotKind, SnapshotStatus, snapshot_list
from ..runtime.ids import KeyId, ProjectId, SnapshotId, is_id, keyed_bytes
from ..store.ports import (
    Absent,
    Action,
    Check,
    Committed,
    Equals,
    Present,
    Put,
    Refused,
    StoreThrottled,
    Update,
)
from . import retention, tallies
from .core import Caller, Core
from .cursors import seal, unseal
from .giving import traces
from .requests import ResourcesView, StatusReason
from .restoring import no_snapshot
from .sandboxes import LIST_PAGES_MAX, find
from .standing import check_admits

LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX = 50, 200
OF_A_KIND = {SnapshotKind.DISK: features.SNAPSHOTS_DISK, SnapshotKind.MEMORY: features.SNAPSHOTS_MEMORY}
CAPTURED_IN = {
    SnapshotKind.DISK: frozenset({Status.RUNNING, Status.STOPPED}),
    SnapshotKind.MEMORY: frozenset({Status.RUNNING}),
}
"""States of a sandbox in which a snapshot of a kind can be taken."""


class TakeSnapshot(Wire):
    """Body of a snapshot. Everything has a default, so `{}` works."""

    kind: SnapshotKind = SnapshotKind.DISK
    """`memory` keeps running processes too, where the pool can. More may be kept than was asked for."""
    name: Annotated[str, StringConstraints(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    retention_seconds: Annotated[int, Field(ge=RETENTION_SECONDS_MIN, le=RETENTION_SECONDS_MAX)] | None = None
    """It is deleted that long after it was asked for; absent means as policies or the installation say."""

    def digest(self, sandbox: str) -> str:
        asked = self.model_dump(mode="json", exclude_defaults=True)
        return hashlib.sha256(json.dumps([sandbox, asked], sort_keys=True).encode()).hexdigest()


class SnapshotView(Wire):
    """A snapshot as callers see it; `ref` is for operators only."""

    id: str
    org: str
    project: str
    sandbox_id: str
    """What it was taken of; it may be gone."""
    status: SnapshotStatus
    status_reason: StatusReason | None = None
    kind: SnapshotKind
    name: str = ""
    size_bytes: int | None = None
    """Absent until it is ready, and where the pool does not tell."""
    template: str
    resources: ResourcesView
    """Of the sandbox that it was taken of: a restore needs as much disk."""
    pool: str
    created_at: datetime
    created_by: str
    ready_at: datetime | None = None
    retain_until: datetime
    fork_id: str | None = None
    """The sandbox that it is taken for; when that is made it goes by itself."""
    ref: str | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, *, operator: bool = False) -> Self:
        size = snapshot.size
        return cls(
            id=snapshot.id, org=snapshot.org, project=snapshot.project, sandbox_id=snapshot.sandbox,
            status=snapshot.status,
            status_reason=StatusReason(**snapshot.reason.model_dump()) if snapshot.reason else None,
            kind=snapshot.captured or snapshot.asked, name=snapshot.name, size_bytes=snapshot.size_bytes,
            template=snapshot.template,
            resources=ResourcesView(cpu=size.cpu_millis / 1000, memory_mib=size.memory_mib, disk_gib=size.disk_gib),
            pool=snapshot.pool, created_at=snapshot.created_at, created_by=snapshot.created_by,
            ready_at=snapshot.ready_at, retain_until=snapshot.retain_until, fork_id=snapshot.fork,
            ref=snapshot.ref if operator else None,
        )  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """`body` is the JSON of the answer: of this call, or of the first one when `replayed`."""

    snapshot: SnapshotId
    body: str
    replayed: bool


def take(core: Core, caller: Caller, sandbox: str, request: TakeSnapshot, key: str | None = None) -> Taken:
    """Accept a snapshot; 2 round trips with a warm catalog. Counts as use of the sandbox.

    Raises `NotFound`, `Suspended`, `InvalidState` for a sandbox in another state, `QuotaExceeded`,
    `UnsupportedOperation` where the pool offers no such snapshot, `LimitExceeded` for more retention than it may have,
    `PolicyUnreadable`, and `IdempotencyConflict` for a key that names
    another snapshot.
    """
    for _ in range(core.tuning.conflict_tries_max):
        source = find(core, caller, sandbox)
        try:
            kept = retention.of_snapshot(core, source, request.retention_seconds)
            draft = drafted(core, caller, source, request.kind, kept, name=request.name, key=key)
        except (InvalidState, LimitExceeded, PolicyUnreadable, Suspended, UnsupportedOperation):
            replayed = _named(core, source.project, request.digest(source.id), key)
            if replayed is not None:
                return replayed
            raise
        body = SnapshotView.of(draft).model_dump_json(by_alias=True, exclude_none=True)
        outcome = core.commit(_accept(core, caller, source, draft, request.digest(source.id), body))
        if isinstance(outcome, Committed):
            core.nudges.snapshot(draft.id)
            return Taken(draft.id, body, replayed=False)
        if "key" in outcome.failed:
            return _replay(outcome.failed["key"], request.digest(source.id))
        check_charged(core, draft, outcome)
    raise StoreThrottled("This sandbox is being changed by many calls right now; repeat the call in a second.")


def check_charged(core: Core, draft: Snapshot, outcome: Refused) -> None:
    """Returns where another try may go well: the sandbox changed, or a tally was missing and is there now."""
    if "pool" in outcome.failed:
        raise InvalidState(f"Pool {draft.pool} was removed; the sandbox cannot be captured any more.", pool=draft.pool)
    if tallies.make_missing(core, draft, outcome.failed):
        return
    refused = tallies.refusal(core, draft, outcome.failed)
    if refused is not None:
        raise refused


def drafted(
    core: Core, caller: Caller, source: Sandbox, kind: SnapshotKind, kept_seconds: int, *, name: str = "",
    key: str | None = None,
) -> Snapshot:  # fmt: skip
    """The record of a snapshot that may be taken now; decides only, writes nothing."""
    check_admits(core.catalog.org(source.org))
    check_admits(core.catalog.project(source.org, source.project))
    if source.status not in CAPTURED_IN[kind]:
        raise _not_now(source, kind)
    pool = core.catalog.pool(source.pool or "")
    view = core.catalog.pools().views.get(pool.name)
    if view is not None and view.features and OF_A_KIND[kind] not in view.features:
        raise UnsupportedOperation(
            f"Pool {pool.name} ({pool.adapter}) takes no {kind} snapshots.",
            operation="snapshot", pool=pool.name, adapter=pool.adapter, reason=f"no_{kind}_snapshots",
        )  # fmt: skip
    now = core.clock.now()
    return Snapshot(
        id=SnapshotId(core.ids.new("snap")), org=source.org, project=source.project, sandbox=source.id, pool=pool.name,
        source_ref=source.backend_ref, template=source.template, image=source.image, size=source.size,
        classification=source.classification, egress=source.egress, bound=traces(core, source),
        asked=kind, name=name, status=SnapshotStatus.CREATING, due_at=now,
        key_hash=None if key is None else _hash(core, source.project, key), created_at=now,
        created_by=KeyId(caller.actor), retain_until=now + timedelta(seconds=kept_seconds),
    )  # fmt: skip


def _not_now(source: Sandbox, kind: SnapshotKind) -> InvalidState:
    if source.status in GONE:
        return InvalidState(f"The sandbox is {source.status}; nothing of it is left.", status=source.status.value)
    states = " or ".join(sorted(CAPTURED_IN[kind]))
    return InvalidState(
        f"The sandbox is {source.status}; a {kind} snapshot is taken while it is {states}.", status=source.status.value
    )


def _accept(core: Core, caller: Caller, source: Sandbox, draft: Snapshot, digest: str, body: str) -> list[Action]:
    rows = [*acceptance(core, caller, draft), unmoved(core, source)]
    if draft.key_hash is not None:
        row = SnapshotKey(hash=draft.key_hash, snapshot=draft.id, digest=digest, accepted=body)
        rows.append(Put(row, (Absent(),), "key"))
    return rows


def acceptance(core: Core, caller: Caller, draft: Snapshot) -> list[Action]:
    """The record, what it counts for, and the event; on condition that the pool is still there."""
    event = core.event(
        caller, "snapshot.create", draft.id, draft.org, project=draft.project, pool=draft.pool,
        after=draft.status.value, details={"sandbox": draft.sandbox, "kind": draft.asked.value},
    )  # fmt: skip
    return [
        Put(draft, (Absent(),), "snapshot"), *tallies.charge(core, draft),
        Check(Pool, Pool.key_of(draft.pool), "pool", (Present(),)), Put(event, (Absent(),), "event"),
    ]  # fmt: skip


def unmoved(core: Core, source: Sandbox) -> Action:
    """On condition that the sandbox is as it was decided from; using it keeps it awake."""
    when = (Equals("status", source.status.value), Equals("generation", source.generation))
    if source.status is not Status.RUNNING:
        return Check(Sandbox, source.key(), "sandbox", when)
    return Update(
        Sandbox, source.key(), "sandbox", set={"last_activity_at": stamp(core.clock.now())}, add={"version": 1},
        when=when,
    )  # fmt: skip


def _hash(core: Core, project: ProjectId, key: str) -> str:
    salt = core.catalog.installation().id_salt.encode()
    return keyed_bytes(salt, "snapshot", project, key).hex()


def _named(core: Core, project: ProjectId, digest: str, key: str | None) -> Taken | None:
    """What the key names already; only for a call that would be refused."""
    if key is None:
        return None
    row = core.store.get(SnapshotKey, SnapshotKey.key_of(_hash(core, project, key)))
    return _replay(row, digest) if row is not None else None


def _replay(row: Record | None, digest: str) -> Taken:
    if not isinstance(row, SnapshotKey):
        raise StoreThrottled("The snapshot of this key is just going away; repeat the call.")
    if row.digest != digest:
        raise IdempotencyConflict(
            "This Idempotency-Key already names a snapshot that another call took. Use a new key, or repeat the first "
            "call.", snapshotId=row.snapshot,
        )  # fmt: skip
    return Taken(row.snapshot, row.accepted, replayed=True)


# Reading


def find_snapshot(core: Core, caller: Caller, snapshot: str) -> Snapshot:
    """One round trip; raises `NotFound` for what is absent and for what is another tenant's."""
    found = core.store.get(Snapshot, Snapshot.key_of(SnapshotId(snapshot))) if is_id("snap", snapshot) else None
    if found is None or not (caller.operator or (found.project == caller.project and found.org == caller.org)):
        raise no_snapshot(snapshot)
    return found


@dataclass(frozen=True)
class SnapshotQuery:
    """`sandbox`: only those taken of it. `statuses` empty means every one."""

    project: str | None = None
    sandbox: str | None = None
    statuses: frozenset[SnapshotStatus] = frozenset()
    limit: int = LIST_LIMIT_DEFAULT
    cursor: str | None = None

    def matches(self, snapshot: Snapshot) -> bool:
        if self.sandbox is not None and snapshot.sandbox != self.sandbox:
            return False
        return not self.statuses or snapshot.status in self.statuses

    def bound_to(self, project: str) -> tuple[object, ...]:
        return ("snapshots", project, self.sandbox, sorted(self.statuses))


def list_snapshots(core: Core, caller: Caller, query: SnapshotQuery) -> tuple[list[Snapshot], str | None]:
    """Newest first, and the cursor to go on with; one round trip unless a filter leaves the page short."""
    project = _list_project(core, caller, query)
    after = unseal(core, query.bound_to(project), query.cursor) if query.cursor is not None else None
    found: list[Snapshot] = []
    for _ in range(LIST_PAGES_MAX):
        page = core.store.query_list(snapshot_list(project), after=after, limit=query.limit)
        for row in cast("tuple[Snapshot, ...]", page.rows):
            after = row.id
            if query.matches(row):
                found.append(row)
            if len(found) == query.limit:
                more = page.next is not None or row is not page.rows[-1]
                return found, seal(core, query.bound_to(project), after) if more else None
        if page.next is None:
            return found, None
        after = page.next
    assert after is not None
    return found, seal(core, query.bound_to(project), after)


def _list_project(core: Core, caller: Caller, query: SnapshotQuery) -> str:
    if caller.project is not None:
        if query.project is not None and query.project != caller.project:
            raise NotFound(f"There is no project {query.project[:64]!r}.", project=query.project[:64])
        return caller.project
    if query.project is None:
        raise InvalidRequest("An operator key belongs to no project: send projectId.", field="projectId")
    core.catalog.org_of(ProjectId(query.project))
    return query.project


# Deleting


def delete(core: Core, caller: Caller, snapshot: str) -> Snapshot:
    """Accepted in every state and final: no sandbox is made from it any more, and it goes when none is being made.

    Repeating it is success as long as there is a record.
    """
    for _ in range(core.tuning.conflict_tries_max):
        found = find_snapshot(core, caller, snapshot)
        if found.status is SnapshotStatus.DELETING:
            return found
        now = core.clock.now()
        reason = Reason(code="deleted", source="caller", detail=f"by {caller.actor}", at=now)
        going = found.with_(
            status=SnapshotStatus.DELETING, reason=reason, due_at=now, version=found.version + 1, failures=0
        )
        event = core.event(
            caller, "snapshot.delete", found.id, found.org, project=found.project, pool=found.pool,
            before=found.status.value, after=going.status.value, details=told(reason),
        )  # fmt: skip
        outcome = core.commit(
            [Put(going, (Equals("version", found.version),), "snapshot"), Put(event, (Absent(),), "event")]
        )
        if isinstance(outcome, Committed):
            core.nudges.snapshot(found.id)
            return going
    raise StoreThrottled("This snapshot is being changed by many calls right now; repeat the call in a second.")
