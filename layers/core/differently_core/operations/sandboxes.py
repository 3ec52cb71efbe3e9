"""Reading and changing sandboxes: get, list, wait, patch, delete, and the trace that use leaves.

Another tenant's sandbox is not found, whatever is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from ..errors import InvalidRequest, InvalidState, LimitExceeded, NotFound
from ..model.due import due_index, stamp
from ..model.idempotency import IdempotencyRow
from ..model.sandbox import ENDED, GONE, LIVE, Reason, Sandbox, Status, list_index, told
from ..runtime.ids import ProjectId, SandboxId, is_id, keyed_bytes
from ..store.ports import Absent, AnyOf, Committed, Delete, Equals, OneOf, Put, Refused, StoreThrottled, Update
from . import times
from .core import Caller, Core
from .cursors import seal, unseal
from .requests import Deletion, SandboxView, UpdateSandbox

AT_LARGE = frozenset({Status.RUNNING, Status.PAUSED, Status.STOPPED})
"""States in which only time brings something about."""
LIST_LIMIT_DEFAULT = 50
LIST_LIMIT_MAX = 200
LIST_PAGES_MAX = 5
"""Store pages that one list call may read to fill its page; a filter that finds little answers a short page."""
WAIT_SECONDS_MAX = 840
REVISIONS_MAX = 24
BACKOFF_DOUBLINGS_MAX = 5
"""As many writers of one sandbox at once as come through, each at most some seconds late."""
WAIT_POLL_SECONDS = 0.25
WAIT_POLL_SECONDS_MAX = 2.0


def find(core: Core, caller: Caller, sandbox: str) -> Sandbox:
    """One round trip; raises `NotFound` for what is absent and for what is another tenant's."""
    found = core.store.get(Sandbox, Sandbox.key_of(_id(sandbox)))
    if found is None or not _visible(caller, found):
        raise _not_found(sandbox)
    return found


def _id(sandbox: str) -> SandboxId:
    if not is_id("sbx", sandbox):
        raise _not_found(sandbox)
    return SandboxId(sandbox)


def _not_found(sandbox: str) -> NotFound:
    return NotFound(f"There is no sandbox {sandbox[:64]!r}.", sandboxId=sandbox[:64])


def _visible(caller: Caller, sandbox: Sandbox) -> bool:
    return caller.operator or (sandbox.project == caller.project and sandbox.org == caller.org)


def not_running(found: Sandbox) -> InvalidState:
    """Why nothing can run in it now, and what to do."""
    if found.status in GONE:
        why = f": {found.reason.code}" if found.reason else ""
        return InvalidState(f"The sandbox is {found.status}{why}. Create a new one.", status=found.status.value)
    here = f"/v1/sandboxes/{found.id}"
    wake = {Status.STOPPED: f"POST {here}/start", Status.PAUSED: f"POST {here}/resume"}.get(found.status)
    return InvalidState(
        f"The sandbox is {found.status}, not running; {wake or f'GET {here}/wait?for=running'} first.",
        status=found.status.value,
    )


@dataclass(frozen=True)
class ListQuery:
    """`statuses` empty means every live one; `ended` adds those that are gone, after the live ones."""

    project: str | None = None
    statuses: frozenset[Status] = frozenset()
    labels: Mapping[str, str] | None = None
    ended: bool = False
    key: str | None = None
    """An Idempotency-Key: at most one live sandbox has it."""
    limit: int = LIST_LIMIT_DEFAULT
    cursor: str | None = None

    def partitions(self) -> tuple[str, ...]:
        live = not self.statuses or bool(self.statuses & LIVE)
        gone = bool(self.statuses & GONE) or (self.ended and not self.statuses)
        return tuple(name for name, wanted in (("LIVE", live), ("GONE", gone)) if wanted)

    def matches(self, sandbox: Sandbox) -> bool:
        if self.statuses and sandbox.status not in self.statuses:
            return False
        return all(sandbox.labels.get(key) == value for key, value in (self.labels or {}).items())

    def bound_to(self, project: str) -> tuple[object, ...]:
        """What a cursor of this list belongs to."""
        labels = sorted((self.labels or {}).items())
        return ("sandboxes", project, sorted(self.statuses), labels, self.ended)


@dataclass(frozen=True)
class Listing:
    items: tuple[Sandbox, ...]
    next_cursor: str | None


def list_sandboxes(core: Core, caller: Caller, query: ListQuery) -> Listing:
    """Newest first, live before gone; one round trip unless a filter leaves the page short."""
    project = _list_project(core, caller, query)
    if query.key is not None:
        named = _named(core, project, query.key)
        return Listing((named,) if named is not None and query.matches(named) else (), None)
    partitions = query.partitions()
    position, after = _open_cursor(core, query, project)
    found: list[Sandbox] = []
    pages = 0
    while position < len(partitions):
        partition = f"{partitions[position]}#{project}"
        page = core.store.query_list(partition, after=after, limit=max(query.limit, 1))
        pages += 1
        for row in cast("tuple[Sandbox, ...]", page.rows):
            after = row.id
            if query.matches(row):
                found.append(row)
            if len(found) == query.limit:
                more = page.next is not None or row is not page.rows[-1]
                last = not more and position + 1 == len(partitions)
                return Listing(tuple(found), None if last else _cursor(core, query, project, position, after))
        if page.next is None:
            position, after = position + 1, None
        else:
            after = page.next
        if pages >= LIST_PAGES_MAX and position < len(partitions):
            return Listing(tuple(found), _cursor(core, query, project, position, after))
    return Listing(tuple(found), None)


def _list_project(core: Core, caller: Caller, query: ListQuery) -> ProjectId:
    if caller.project is not None:
        if query.project is not None and query.project != caller.project:
            raise NotFound(f"There is no project {query.project[:64]!r}.", project=query.project[:64])
        return caller.project
    if query.project is None:
        raise InvalidRequest("An operator key belongs to no project: send projectId.", field="projectId")
    core.catalog.org_of(ProjectId(query.project))
    return ProjectId(query.project)


def _named(core: Core, project: ProjectId, key: str) -> Sandbox | None:
    """The live sandbox that a key names; two round trips, strongly consistent."""
    row = core.store.get(IdempotencyRow, IdempotencyRow.key_of(keyed_id(core, project, key)))
    return core.store.get(Sandbox, Sandbox.key_of(row.sandbox)) if row is not None else None


def keyed_id(core: Core, project: ProjectId, key: str) -> SandboxId:
    """A fresh id whose random bits are those of every sandbox that this key names."""
    salt = core.catalog.installation().id_salt.encode()
    return SandboxId(core.ids.new("sbx", keyed_bytes(salt, project, key)))


def _cursor(core: Core, query: ListQuery, project: str, position: int, after: str | None) -> str:
    return seal(core, query.bound_to(project), f"{position}.{after or ''}")


def _open_cursor(core: Core, query: ListQuery, project: str) -> tuple[int, str | None]:
    if query.cursor is None:
        return 0, None
    position, _, after = unseal(core, query.bound_to(project), query.cursor).partition(".")
    return int(position), after or None


def wait(core: Core, caller: Caller, sandbox: str, targets: frozenset[Status], seconds: float) -> Iterator[Sandbox]:
    """Yield the sandbox each time it is looked at, last of all when it is in `targets`, gone, or time is up.

    One that is terminating counts as gone, unless its end itself is waited for.
    """
    over = ENDED if targets & ENDED else GONE
    end = core.clock.monotonic() + min(seconds, WAIT_SECONDS_MAX)
    pause = WAIT_POLL_SECONDS
    while True:
        found = find(core, caller, sandbox)
        yield found
        left = end - core.clock.monotonic()
        if found.status in targets or found.status in over or left <= 0:
            return
        core.clock.sleep(min(pause, left))
        pause = min(pause * 1.5, WAIT_POLL_SECONDS_MAX)


def update(core: Core, caller: Caller, sandbox: str, change: UpdateSandbox) -> Sandbox:
    """Change labels and lifetime; the new lifetime counts from now and wins over an expiry decided on the old one."""
    if change == UpdateSandbox():
        return find(core, caller, sandbox)  # nothing is asked, so nothing is written and nothing is logged
    after = revise(core, lambda: find(core, caller, sandbox), lambda found: _updated(core, caller, found, change))
    if after.renew_at is not None and after.renew_at <= core.clock.now():
        core.nudges.worker(after.id)
    return after


def _updated(core: Core, caller: Caller, found: Sandbox, change: UpdateSandbox) -> tuple[Sandbox, list[Put]]:
    if found.status in GONE:
        raise InvalidState(f"The sandbox is {found.status}; it cannot be changed.", status=found.status.value)
    changes: dict[str, object] = {}
    if change.labels is not None:
        changes["labels"] = dict(change.labels)
    if change.idle_timeout_seconds is not None:
        changes["idle_timeout_seconds"] = change.idle_timeout_seconds or None
        if found.status is Status.RUNNING:
            changes["last_activity_at"] = core.clock.now()
    if change.ttl_seconds is not None:
        _check_ttl(core, found, change.ttl_seconds)
        changes["ttl_seconds"] = change.ttl_seconds
        if found.expires_at is not None:
            now = core.clock.now()
            expires = times.expiry(found, now, change.ttl_seconds)
            if expires < now + timedelta(seconds=change.ttl_seconds):
                _check_shorter(core, found, expires - now, change.ttl_seconds)
            changes["expires_at"] = expires
    after = found.with_(**changes)
    if change.ttl_seconds is not None:
        after = times.extended(core, after)
    if after.status in AT_LARGE:
        after = times.at_large(core, after)
    elif after.due_at is not None and after.expires_at is not None:
        after = after.with_(due_at=min(after.due_at, after.expires_at))
    event = core.event(
        caller, "sandbox.update", found.id, found.org, project=found.project,
        details={
            "ttlSeconds": change.ttl_seconds, "idleTimeoutSeconds": change.idle_timeout_seconds,
            "labels": change.labels is not None,
        },
    )  # fmt: skip
    return after, [Put(event, (Absent(),), "event")]


def _check_ttl(core: Core, sandbox: Sandbox, seconds: int) -> None:
    limits = (core.catalog.org(sandbox.org).limits, core.catalog.project(sandbox.org, sandbox.project).limits)
    limit = min(entry.ttl_seconds_max for entry in limits)
    if seconds > limit:
        raise LimitExceeded(
            f"ttlSeconds {seconds} is over the limit of {limit}; ask for less.",
            resource="ttlSeconds", requested=seconds, limit=limit,
        )  # fmt: skip


def _check_shorter(core: Core, sandbox: Sandbox, most: timedelta, seconds: int) -> None:
    """Its pool cannot keep it for so long: refused, unless policy permits the shorter life that it then shows."""
    if not core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification).shorter_lifetime:
        limit = max(0, int(most.total_seconds()))
        raise LimitExceeded(
            f"ttlSeconds {seconds} is longer than its pool can keep it: {limit} s from now at most.",
            resource="ttlSeconds", requested=seconds, limit=limit,
        )  # fmt: skip


def revise(
    core: Core, read: Callable[[], Sandbox], decide: Callable[[Sandbox], tuple[Sandbox, Sequence[Put]]]
) -> Sandbox:
    """Read, decide, write on the version decided from; again from the top when somebody was faster."""
    for attempt in range(REVISIONS_MAX):
        if attempt:
            core.back_off(min(attempt - 1, BACKOFF_DOUBLINGS_MAX))
        found = read()
        changed, others = decide(found)
        after = changed.with_(version=found.version + 1)
        outcome = core.commit([Put(after, (Equals("version", found.version),), "sandbox"), *others])
        if isinstance(outcome, Committed):
            return after
    raise StoreThrottled("This sandbox is being changed by many calls right now; repeat the call in a second.")


def delete(core: Core, caller: Caller, sandbox: str) -> Deletion:
    """Accepted in every state and final: one round trip that needs to have read nothing.

    The write moves the sandbox to terminating under a new generation, frees its Idempotency-Key and wakes the worker.
    Repeating it is success.
    """
    identity = _id(sandbox)
    if caller.project is None:
        found = find(core, caller, sandbox)
        org, project = found.org, found.project
    else:
        assert caller.org is not None
        org, project = caller.org, caller.project
    now = core.clock.now()
    reason = Reason(code="deleted", source="caller", detail=f"by {caller.actor}", at=now)
    mark = Update(
        Sandbox, Sandbox.key_of(identity), "sandbox",
        set={
            "status": Status.TERMINATING.value, "reason": reason.model_dump_json(), "due_at": stamp(now),
            **list_index(project, identity, Status.TERMINATING), **due_index(identity, now),
        },
        add={"version": 1, "generation": 1},
        when=(Equals("project", project), OneOf("status", tuple(sorted(LIVE)))),
    )  # fmt: skip
    event = core.event(
        caller, "sandbox.delete", identity, org, project=project, after=Status.TERMINATING.value, details=told(reason)
    )
    outcome = core.commit([mark, free_key(identity), Put(event, (Absent(),), "event")])
    if isinstance(outcome, Refused):
        return _already_gone(sandbox, project, outcome)
    core.nudges.worker(identity)
    return Deletion(id=identity, status=Status.TERMINATING, requested_at=now)


def free_key(sandbox: SandboxId) -> Delete:
    """Remove the idempotency row of a sandbox, if it has one."""
    return Delete(
        IdempotencyRow, IdempotencyRow.key_of(sandbox), "idempotency", (AnyOf((Absent(), Equals("sandbox", sandbox))),)
    )


def _already_gone(sandbox: str, project: str, outcome: Refused) -> Deletion:
    row = outcome.failed.get("sandbox")
    if not isinstance(row, Sandbox) or row.project != project:
        raise _not_found(sandbox)
    at = row.reason.at if row.reason is not None else row.created_at
    return Deletion(id=row.id, status=row.status, requested_at=at)


def view(caller: Caller, sandbox: Sandbox) -> SandboxView:
    return SandboxView.of(sandbox, operator=caller.operator)
