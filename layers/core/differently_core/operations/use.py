"""The use of a sandbox: it wakes one that was put to rest for not being used, and keeps one awake while it lasts.

Use is noted at most every half minute, before the call, on condition that the sandbox still runs. So a call and the
decision to put it to rest are told apart by the store: one of the two writes is refused, and decides again. What may
outlast the idle moment is leased: the sandbox is busy until the call ends, or its time is over. Reading, listing and
waiting are no use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..model.due import due_index, stamp
from ..model.sandbox import AT_REST, GONE, USE_NOTED_SECONDS, Sandbox, Status
from ..store.ports import Committed, Condition, Equals, StoreThrottled, StoreUnavailable, Update
from . import moves, times, worker
from .core import Caller, Core
from .sandboxes import find, not_running

WAKE_POLL_SECONDS = 0.25
ENTRIES_MAX = 16
"""Things at once of which each is told; more are counted as one, until their time is over."""
COMMAND = "command"


def awake(core: Core, caller: Caller, sandbox: str) -> Sandbox:
    """The sandbox, running; one that was put to rest for not being used is woken and waited for.

    One round trip for one that runs. Raises `NotFound`, `InvalidState`, and what admission raises.
    """
    found = find(core, caller, sandbox)
    end = core.clock.monotonic() + core.tuning.wake_seconds
    asked = False
    while found.status is not Status.RUNNING:
        refused = asked and found.status in AT_REST
        if found.status in GONE or not found.idled or refused or core.clock.monotonic() >= end:
            raise not_running(found)
        if found.status in AT_REST:
            asked = moves.use(core, caller, found) is not None
        elif found.move is not None and not found.move.way.wakes and not found.move.wanted_back:
            moves.want_back(core, caller, found)
        else:
            # What a worker would do is done here too, so that nobody waits for a message.
            worker.step(core, found.id)
        found = find(core, caller, sandbox)
        if found.status is not Status.RUNNING:
            core.clock.sleep(WAKE_POLL_SECONDS)
    return found


def keep_alive(core: Core, caller: Caller, sandbox: str) -> Sandbox:
    """Count as use what the control plane does not see; does not wait for one that it wakes."""
    for _ in range(core.tuning.conflict_tries_max):
        found = find(core, caller, sandbox)
        if found.status is Status.RUNNING:
            if note(core, found):
                return found
        elif found.status in GONE or not found.idled:
            raise not_running(found)
        elif found.status in AT_REST:
            moves.use(core, caller, found)
        elif found.move is not None and not found.move.way.wakes and not found.move.wanted_back:
            moves.want_back(core, caller, found)
        else:
            return found
    raise StoreThrottled("This sandbox is being changed by many calls right now; repeat the call in a second.")


def note(core: Core, sandbox: Sandbox) -> bool:
    """Note use of a running sandbox, if it was not noted lately; False when it does not run any more."""
    now = core.clock.now()
    last = sandbox.last_activity_at
    if last is not None and now - last < timedelta(seconds=USE_NOTED_SECONDS):
        return True
    return _write(core, sandbox, {"last_activity_at": stamp(now)}, ())


def _write(
    core: Core, sandbox: Sandbox, changes: dict[str, str], when: tuple[Condition, ...], remove: tuple[str, ...] = ()
) -> bool:
    update = Update(
        Sandbox, sandbox.key(), "sandbox", set=changes, add={"version": 1}, remove=remove,
        when=(Equals("status", Status.RUNNING.value), *when),
    )  # fmt: skip
    return isinstance(core.commit([update]), Committed)


# What lasts


@dataclass(frozen=True)
class Lease:
    """Until when something keeps the sandbox awake; None when it ends before that matters."""

    until: datetime | None = None


BRIEF = Lease()


def lease(core: Core, sandbox: Sandbox, seconds: float, entry: str) -> Lease | None:
    """Note something that may last `seconds`, before it begins; None when the sandbox was changed meanwhile."""
    ends, first = core.after(seconds), _first_rest(sandbox)
    if first is None or (ends < first and not is_job(entry)):
        return BRIEF if note(core, sandbox) else None
    now = core.clock.now()
    entries = _entries(sandbox, now)
    if entry not in entries or not is_job(entry):
        entries = [*entries, entry] if len(entries) < ENTRIES_MAX else ["more"]
    until = max(ends, sandbox.busy_until or ends)
    changes = {"last_activity_at": stamp(now), "busy_until": stamp(until), "busy_with": " ".join(entries)}
    return Lease(until) if _write(core, sandbox, changes, (Equals("version", sandbox.version),)) else None


def _first_rest(sandbox: Sandbox) -> datetime | None:
    """The earliest moment at which it could be put to rest if nobody uses it from now on."""
    moments = (sandbox.unused_at(), sandbox.spare_at())
    return min((moment for moment in moments if moment is not None), default=None)


def is_job(entry: str) -> bool:
    return entry.startswith("job:")


def _entries(sandbox: Sandbox, now: datetime) -> list[str]:
    is_over = sandbox.busy_until is None or sandbox.busy_until <= now
    return [] if is_over else (sandbox.busy_with or "").split()


def release(core: Core, read: Callable[[], Sandbox | None], entry: str) -> None:
    """It has ended. Losing this is fine: then its time is over later."""
    for _ in range(core.tuning.conflict_tries_max):
        found = read()
        if found is None or found.status is not Status.RUNNING:
            return
        now = core.clock.now()
        entries = _entries(found, now)
        if entry not in entries:
            return
        entries.remove(entry)
        after = found.with_(
            last_activity_at=now, busy_with=" ".join(entries) or None, busy_until=found.busy_until if entries else None
        )
        due = times.due(core, after)
        changes = {"last_activity_at": stamp(now), **({"busy_with": " ".join(entries)} if entries else {})}
        if due is not None:
            # It may have been put off until the end of what has ended.
            changes |= {"due_at": stamp(due), **{name: str(value) for name, value in due_index(found.id, due).items()}}
        unchanged = (Equals("version", found.version),)
        if _write(core, found, changes, unchanged, () if entries else ("busy_until", "busy_with")):
            return


@contextmanager
def during(core: Core, sandbox: Sandbox, lease: Lease) -> Iterator[None]:
    """Around a call that waits for a command: its use goes on until it ends."""
    try:
        yield
    finally:
        # With the store out of reach its time is over later; what the call has to say comes first.
        with suppress(StoreThrottled, StoreUnavailable):
            if lease.until is not None:
                release(core, lambda: core.store.get(Sandbox, sandbox.key()), COMMAND)
            elif _first_rest(sandbox) is not None:
                note(core, sandbox)
