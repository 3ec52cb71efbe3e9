"""When somebody must look at a sandbox that runs or rests: the earliest of everything that time alone brings about."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..model.sandbox import Sandbox, Status
from .core import Core


def due(core: Core, sandbox: Sandbox) -> datetime | None:
    moments = (
        sandbox.expires_at,
        sandbox.kept_until(),
        runs_until(sandbox),
        sandbox.renew_at,
        _lapse_look(core, sandbox),
        _idle_look(core, sandbox),
    )
    return min((moment for moment in moments if moment is not None), default=None)


def at_large(core: Core, sandbox: Sandbox) -> Sandbox:
    """Due when time brings something about."""
    return sandbox.with_(due_at=due(core, sandbox))


def is_over(core: Core, sandbox: Sandbox) -> bool:
    """Whether its end is due, and only not written yet: nothing begins any more."""
    ends = [moment for moment in (sandbox.expires_at, sandbox.kept_until()) if moment is not None]
    return bool(ends) and min(ends) <= core.clock.now()


def runs_until(sandbox: Sandbox) -> datetime | None:
    if sandbox.status is not Status.RUNNING or sandbox.max_run_seconds is None or sandbox.running_since is None:
        return None
    return sandbox.running_since + timedelta(seconds=sandbox.max_run_seconds)


def expiry(sandbox: Sandbox, now: datetime, ttl_seconds: int) -> datetime:
    """From now on, but no longer than its pool can keep it."""
    wanted = now + timedelta(seconds=ttl_seconds)
    return wanted if sandbox.lifetime_ends_at is None else min(wanted, sandbox.lifetime_ends_at)


def _lapse_look(core: Core, sandbox: Sandbox) -> datetime | None:
    """The backend's own end, where it comes before ours."""
    lapse = sandbox.lease_ends_at
    if lapse is None or lapse <= core.clock.now() or sandbox.expires_at is None or lapse >= sandbox.expires_at:
        return None
    return lapse


def renewal(core: Core, sandbox: Sandbox) -> datetime | None:
    """When the backend's end is to be moved on: with half of the rest still left. None while it is behind ours."""
    ends, ours, now = sandbox.lease_ends_at, sandbox.expires_at, core.clock.now()
    if ends is None or ours is None or ends >= ours + timedelta(seconds=core.tuning.backstop_seconds_min):
        return None
    return now + max((ends - now) / 2, timedelta(seconds=core.tuning.renew_seconds_min))


def extended(core: Core, sandbox: Sandbox) -> Sandbox:
    """Our own end was moved: the backend's is to follow, now if it is not behind ours any more."""
    due = renewal(core, sandbox) is not None
    return sandbox.with_(renew_at=core.clock.now()) if due else sandbox


def _idle_look(core: Core, sandbox: Sandbox) -> datetime | None:
    """One that only jobs keep awake is looked at from time to time: they may end long before they must."""
    unused, ends = sandbox.unused_at(), sandbox.idle_at()
    if unused is None or ends is None or not only_jobs(sandbox):
        return ends
    return min(ends, max(unused, core.after(core.tuning.job_look_seconds)))


def only_jobs(sandbox: Sandbox) -> list[str]:
    """The jobs that keep it awake, if nothing else does."""
    entries = (sandbox.busy_with or "").split()
    jobs = [entry.removeprefix("job:") for entry in entries if entry.startswith("job:")]
    return jobs if len(jobs) == len(entries) else []
