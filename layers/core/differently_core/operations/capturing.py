"""One step of one snapshot: capture it, look whether it is still there, remove it.

Like a sandbox's step it decides from the record alone and writes on the version it read, so it may come twice, late, or
after a crash. A capture has the record's id for its name at the backend: asked for again after a lost answer it gives
the first one, never another. A call that may capture is written down before it is made (`unsettled`), and nothing is
taken for gone while one is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from ..contract import Adapter, Operation, SnapshotInfo, SnapshotRequest, SnapshotState, Target, supports
from ..errors import BackendError, DifferentlyError, NotFound, ProviderUnavailable, SandboxFailed
from ..model.sandbox import Reason, Sandbox, Status, told
from ..model.snapshot import TRANSITIONS, Snapshot, SnapshotKey, SnapshotStatus
from ..runtime.ids import SnapshotId
from ..store.ports import (
    Absent,
    Action,
    Committed,
    Delete,
    Equals,
    Put,
    Refused,
    StoreThrottled,
    StoreUnavailable,
)
from . import tallies
from .backends import adapter_of, calling
from .core import Core, system
from .reconcile import follow
from .restoring import in_use
from .snapshots import CAPTURED_IN
from .use import note

log = logging.getLogger(__name__)
SNAPSHOTS = system("snapshots")
CALL_SECONDS = 60.0
"""The deadline of one call. A capture that takes longer is looked at again and again."""
CAPTURE_SECONDS_MAX = 900.0
"""A snapshot that is not ready after that has failed."""
LOOK_SECONDS = 6 * 3600.0
"""How often it is looked whether a backend still has a snapshot."""
LOOK_AGAIN_SECONDS = 60.0
"""How long a backend must not know a snapshot before it has lost it."""
RETENTION = ("retention_over", "kept as long as was asked")
USE_SECONDS = 30.0
"""How often it is looked whether a snapshot that is to go is still in use."""


def step(core: Core, snapshot: SnapshotId) -> None:
    """Do what is due for this snapshot; raises only for faults of the store."""
    found = core.store.get(Snapshot, Snapshot.key_of(snapshot))
    if found is None or found.claimed(core.clock.now()):
        return
    match found.status:
        case SnapshotStatus.CREATING:
            _capture(core, found)
        case SnapshotStatus.READY:
            _look(core, found)
        case SnapshotStatus.FAILED | SnapshotStatus.BROKEN:
            _rest(core, found)
        case SnapshotStatus.DELETING:
            _remove(core, found)


# Capturing


def _capture(core: Core, snapshot: Snapshot) -> None:
    """Ask for it, or look how it comes along."""
    if snapshot.fork is not None and not in_use(core, snapshot.id):
        _retire(core, snapshot, "fork_ended", "the sandbox that it was for has ended")
        return
    if core.clock.now() >= snapshot.created_at + timedelta(seconds=CAPTURE_SECONDS_MAX):
        _fail(core, snapshot, "timed_out", f"not ready after {CAPTURE_SECONDS_MAX:.0f} s")
        return
    source = core.store.get(Sandbox, Sandbox.key_of(snapshot.sandbox))
    begun = snapshot.ref is not None or snapshot.unsettled
    if not begun and (source is None or source.status not in CAPTURED_IN[snapshot.asked]):
        state = "gone" if source is None else source.status.value
        _fail(core, snapshot, "source_unavailable", f"the sandbox was {state} when it was to be captured")
        return
    if source is not None and source.status is Status.RUNNING:
        note(core, source)  # being captured is being used: nobody puts it to sleep in the middle
    _call(core, snapshot, lambda adapter, claimed: _captured(core, claimed, adapter, snapshot.unsettled))


def _captured(core: Core, snapshot: Snapshot, adapter: Adapter, before: bool) -> None:
    """`before`: whether an earlier call may have captured it."""
    try:
        info = calling(adapter, lambda: _asked(core, snapshot, adapter))
    except DifferentlyError as error:
        _not_captured(core, snapshot, error, before)
        return
    seen = snapshot.with_(ref=info.ref, unsettled=False, captured=info.kind)
    match info.state:
        case SnapshotState.READY:
            _ready(core, seen, info, adapter)
        case SnapshotState.CREATING:
            _write_or_note(core, seen, due_at=core.after(core.tuning.observe_seconds))
        case SnapshotState.FAILED:
            _fail(core, seen, "capture_failed", info.message or "the backend reports that it failed")


def _asked(core: Core, snapshot: Snapshot, adapter: Adapter) -> SnapshotInfo:
    owner = core.owner(snapshot.sandbox)
    if snapshot.ref is not None:
        return adapter.snapshot_get(owner, snapshot.ref)
    request = SnapshotRequest(snapshot.asked, snapshot.id, snapshot.name)
    return adapter.snapshot(Target(owner, snapshot.source_ref), request, CALL_SECONDS)


def _not_captured(core: Core, snapshot: Snapshot, error: DifferentlyError, before: bool) -> None:
    """What was refused did not happen; what was not answered is asked for again, under the same name."""
    log.info("not captured", extra={"snapshot": snapshot.id, "pool": snapshot.pool, "code": error.code})
    unknown = isinstance(error, BackendError) and not error.settled
    if not unknown:
        # One that was reached would have told of what an earlier call had captured; one that was not says nothing.
        snapshot = snapshot.with_(unsettled=before and isinstance(error, BackendError))
    again = isinstance(error, BackendError) and not isinstance(error, SandboxFailed)
    if unknown or again:
        _later(core, snapshot)
    else:
        code = "source_unavailable" if isinstance(error, NotFound) and snapshot.ref is None else error.code
        _fail(core, snapshot.with_(ref=None) if isinstance(error, NotFound) else snapshot, code, error.message)


def _ready(core: Core, snapshot: Snapshot, info: SnapshotInfo, adapter: Adapter) -> None:
    now = core.clock.now()
    size = info.size_bytes or 0
    ready = snapshot.with_(
        status=SnapshotStatus.READY, reason=None, size_bytes=info.size_bytes, charged_bytes=size, ready_at=now,
        claim_until=None, failures=0, due_at=_next_look(core, snapshot),
    )  # fmt: skip
    _move(core, snapshot, ready, tallies.charge_bytes(snapshot, size))
    if _stops(adapter):
        follow(core, snapshot.pool, adapter, snapshot.sandbox)


def _stops(adapter: Adapter) -> bool:
    """Whether taking a snapshot stops what it is taken of; where that cannot be told a later pass finds out."""
    try:
        return calling(adapter, adapter.capabilities).snapshot_stops
    except BackendError:
        return False


def _next_look(core: Core, snapshot: Snapshot) -> datetime:
    return min(core.after(LOOK_SECONDS if snapshot.fork is None else USE_SECONDS), snapshot.retain_until)


def _fail(core: Core, snapshot: Snapshot, code: str, detail: str) -> None:
    """Final; what may be left of it is removed, and counts until it is."""
    left = snapshot.ref is not None or snapshot.unsettled
    reason = Reason(code=code, source="backend", detail=detail, at=core.clock.now())
    failed = snapshot.with_(
        status=SnapshotStatus.FAILED, reason=reason, claim_until=None, failures=0,
        due_at=core.clock.now() if left or snapshot.fork is not None else snapshot.retain_until, holds=left,
    )  # fmt: skip
    _move(core, snapshot, failed, [] if left else tallies.give_back(snapshot))


# Keeping


def _look(core: Core, snapshot: Snapshot) -> None:
    """Its time may be over; the backend may have lost it, which one look alone does not prove."""
    now = core.clock.now()
    if now >= snapshot.retain_until:
        _retire(core, snapshot, *RETENTION)
    elif snapshot.fork is not None and not in_use(core, snapshot.id):
        _retire(core, snapshot, "fork_made", "the sandbox that it was for is made")
    elif snapshot.due_at is not None and now >= snapshot.due_at:
        _call(core, snapshot, lambda adapter, claimed: _seen(core, claimed, adapter))


def _seen(core: Core, snapshot: Snapshot, adapter: Adapter) -> None:
    now = core.clock.now()
    try:
        info = calling(adapter, lambda: adapter.snapshot_get(core.owner(snapshot.sandbox), snapshot.ref or ""))
    except NotFound:
        first = snapshot.missed_at or now
        if now - first < timedelta(seconds=LOOK_AGAIN_SECONDS):
            _write_or_note(core, snapshot, missed_at=first, due_at=core.after(LOOK_AGAIN_SECONDS))
        else:
            _break(core, snapshot.with_(ref=None), "snapshot_lost", "the backend does not know it any more")
    except DifferentlyError as error:
        log.info("snapshot not seen", extra={"snapshot": snapshot.id, "pool": snapshot.pool, "code": error.code})
        _later(core, snapshot)
    else:
        if info.state is SnapshotState.FAILED:
            _break(core, snapshot, "snapshot_failed", info.message or "the backend reports that it failed")
        else:
            _write_or_note(core, snapshot, missed_at=None, failures=0, due_at=_next_look(core, snapshot))


def _break(core: Core, snapshot: Snapshot, code: str, detail: str) -> None:
    """Nothing can be made from it any more, and nobody asks the backend for it again until it is deleted."""
    left = snapshot.ref is not None
    reason = Reason(code=code, source="backend", detail=detail, at=core.clock.now())
    broken = snapshot.with_(
        status=SnapshotStatus.BROKEN, reason=reason, claim_until=None, due_at=snapshot.retain_until, holds=left,
        failures=0,
    )  # fmt: skip
    _move(core, snapshot, broken, [] if left else tallies.give_back(snapshot))


def _rest(core: Core, snapshot: Snapshot) -> None:
    if core.clock.now() >= snapshot.retain_until or (snapshot.fork is not None and not snapshot.holds):
        _retire(core, snapshot, *RETENTION)
    elif snapshot.status is SnapshotStatus.FAILED and snapshot.holds:
        _call(core, snapshot, lambda adapter, claimed: _cleaned(core, claimed, adapter))


def _retire(core: Core, snapshot: Snapshot, code: str, detail: str) -> None:
    now = core.clock.now()
    reason = Reason(code=code, source="timer", detail=detail, at=now)
    going = snapshot.with_(status=SnapshotStatus.DELETING, reason=reason, due_at=now, failures=0)
    if isinstance(_move(core, snapshot, going, []), Committed):
        core.nudges.snapshot(snapshot.id)


# Removing


def _remove(core: Core, snapshot: Snapshot) -> None:
    """Asked for until the backend says that it is gone; a sandbox that is being made from it comes first."""
    if in_use(core, snapshot.id):
        _write_or_note(core, snapshot, due_at=core.after(USE_SECONDS))
    elif not snapshot.holds or (snapshot.ref is None and not snapshot.unsettled):
        _forget(core, snapshot)
    else:
        _call(core, snapshot, lambda adapter, claimed: _cleaned(core, claimed, adapter))


def _cleaned(core: Core, snapshot: Snapshot, adapter: Adapter) -> None:
    """Remove what is at the backend; first find out what that is, where the answer to the capture was lost."""
    owner = core.owner(snapshot.sandbox)
    if snapshot.ref is None:
        try:
            info = calling(adapter, lambda: _asked(core, snapshot, adapter))
        except DifferentlyError as error:
            if isinstance(error, BackendError) and not (error.settled and isinstance(error, SandboxFailed)):
                _later(core, snapshot)
                return
            # Refused: neither was anything captured before, nor is it now.
            _gone(core, snapshot.with_(unsettled=False))
            return
        _write_or_note(core, snapshot.with_(ref=info.ref, unsettled=False), due_at=core.clock.now())
        core.nudges.snapshot(snapshot.id)
        return
    ref = snapshot.ref
    try:
        calling(adapter, lambda: adapter.snapshot_delete(owner, ref))
        calling(adapter, lambda: adapter.snapshot_get(owner, ref))
    except NotFound:
        _gone(core, snapshot)
    except DifferentlyError as error:
        log.info("snapshot not removed", extra={"snapshot": snapshot.id, "pool": snapshot.pool, "code": error.code})
        _later(core, snapshot)
    else:
        _later(core, snapshot)


def _gone(core: Core, snapshot: Snapshot) -> None:
    if snapshot.status is SnapshotStatus.DELETING:
        _forget(core, snapshot)
        return
    rests = snapshot.with_(
        ref=None, holds=False, unsettled=False, claim_until=None, charged_bytes=0,
        due_at=snapshot.retain_until if snapshot.fork is None else core.clock.now(),
    )  # fmt: skip
    core.commit([_put(snapshot, rests), *tallies.give_back(snapshot)])


def _forget(core: Core, snapshot: Snapshot) -> None:
    """The last write: the record goes, and with it what it counted for and its key."""
    actions: list[Action] = [
        Delete(Snapshot, snapshot.key(), "snapshot", (Equals("version", snapshot.version),)),
        *tallies.give_back(snapshot), _event(core, "snapshot.deleted", snapshot, None),
    ]  # fmt: skip
    if snapshot.key_hash is not None:
        actions.append(Delete(SnapshotKey, SnapshotKey.key_of(snapshot.key_hash), "key"))
    core.commit(actions)


def let_go(core: Core, snapshot: Snapshot) -> None:
    """Its pool is removed by force: what the backend keeps stays there, and counts no more."""
    abandoned = snapshot.with_(ref=None, unsettled=False)
    detail = f"pool {snapshot.pool} was removed by force"
    match snapshot.status:
        case SnapshotStatus.CREATING:
            _fail(core, abandoned, "pool_removed", detail)
        case SnapshotStatus.READY:
            _break(core, abandoned, "pool_removed", detail)
        case _:
            _gone(core, abandoned)


# Calls and writes


def _call(core: Core, snapshot: Snapshot, call: Callable[[Adapter, Snapshot], None]) -> None:
    """Write down that a worker calls the backend until a moment, then let it."""
    try:
        adapter = adapter_of(core, snapshot.pool)
        if not supports(adapter, Operation.SNAPSHOT):
            raise ProviderUnavailable("The pool takes no snapshots any more.", settled=True)
    except (StoreThrottled, StoreUnavailable):
        raise
    except BackendError as error:
        log.info("pool unusable", extra={"snapshot": snapshot.id, "pool": snapshot.pool, "error": error.message})
        _later(core, snapshot)
        return
    until = core.after(CALL_SECONDS + core.tuning.claim_margin_seconds)
    captures = snapshot.ref is None and snapshot.holds
    claimed = snapshot.with_(claim_until=until, due_at=until, unsettled=snapshot.unsettled or captures)
    if isinstance(core.commit([_put(snapshot, claimed)]), Committed):
        call(adapter, claimed.with_(version=snapshot.version + 1))


def _later(core: Core, snapshot: Snapshot) -> None:
    tuning = core.tuning
    seconds = min(tuning.terminate_retry_seconds * 2 ** min(snapshot.failures, 10), tuning.terminate_retry_seconds_max)
    _write_or_note(core, snapshot, failures=snapshot.failures + 1, due_at=core.after(seconds))


def _write_or_note(core: Core, snapshot: Snapshot, **changes: object) -> None:
    """The claim is over; whoever changed the record meanwhile still learns what was seen."""
    if isinstance(core.commit([_put(snapshot, snapshot.with_(claim_until=None, **changes))]), Refused):
        _note(core, snapshot)


def _move(core: Core, before: Snapshot, after: Snapshot, more: Sequence[Action]) -> Committed | Refused:
    assert after.status in TRANSITIONS[before.status]
    event = _event(core, f"snapshot.{after.status.value}", before, after)
    outcome = core.commit([_put(before, after), *more, event])
    if isinstance(outcome, Refused):
        _note(core, before)
        return outcome
    _tell(core, after)
    if after.fork is not None:
        core.nudges.worker(after.fork)
    return outcome


def _tell(core: Core, snapshot: Snapshot) -> None:
    """The lines that are the metrics of snapshots."""
    facts: dict[str, object] = {"snapshot": snapshot.id, "pool": snapshot.pool}
    match snapshot.status:
        case SnapshotStatus.READY:
            seconds = round((core.clock.now() - snapshot.created_at).total_seconds(), 3)
            log.info("snapshot taken", extra={**facts, "seconds": seconds, "bytes": snapshot.size_bytes})
        case SnapshotStatus.FAILED:
            log.warning("snapshot failed", extra={**facts, "why": snapshot.reason.code if snapshot.reason else None})
        case SnapshotStatus.BROKEN:
            log.warning("snapshot lost", extra={**facts, "why": snapshot.reason.code if snapshot.reason else None})
        case _:
            pass


def _note(core: Core, seen: Snapshot) -> None:
    """Add the ref and the end of the call to the record as it stands now; a delete came in between."""
    for _ in range(core.tuning.conflict_tries_max):
        stored = core.store.get(Snapshot, seen.key())
        if stored is None or stored.claim_until != seen.claim_until:
            return
        noted = stored.with_(
            ref=seen.ref or stored.ref, unsettled=seen.unsettled, claim_until=None, due_at=core.clock.now()
        )
        if isinstance(core.commit([_put(stored, noted)]), Committed):
            core.nudges.snapshot(seen.id)
            return


def _put(before: Snapshot, after: Snapshot) -> Put:
    return Put(after.with_(version=before.version + 1), (Equals("version", before.version),), "snapshot")


def _event(core: Core, action: str, before: Snapshot, after: Snapshot | None) -> Put:
    event = core.event(
        SNAPSHOTS, action, before.id, before.org, project=before.project, pool=before.pool, before=before.status.value,
        after=after.status.value if after is not None else None,
        details=told(after.reason if after is not None else None),
    )  # fmt: skip
    return Put(event, (Absent(),), "event")
