"""When a sandbox is counted, and the interval that is written when that ends or changes.

Counted is what the quota counts: from admission until the organization has its quota back. At rest it is counted where
its pool has a price for that. Pure: who writes a sandbox asks here what to write beside it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from ..model.sandbox import ENDED, Sandbox
from ..model.usage import Interval, Meter, Price


class Counting(StrEnum):
    NOT = "not"
    ACTIVE = "active"
    """It holds quota of its organization."""
    KEPT = "kept"
    """Its pool keeps it, at rest, waiting to be woken or being removed from there."""


def counting(sandbox: Sandbox) -> Counting:
    held = sandbox.reservation
    if held is not None:
        return Counting.ACTIVE if held.tenant else Counting.NOT
    kept = sandbox.pool is not None and sandbox.status not in ENDED
    return Counting.KEPT if kept else Counting.NOT


def changes_counting(before: Sandbox, after: Sandbox) -> bool:
    return counting(before) is not counting(after) or (
        counting(after) is not Counting.NOT and before.pool != after.pool
    )


def metered(before: Sandbox, after: Sandbox, price: Price | None, now: datetime) -> tuple[Sandbox, Interval | None]:
    """`after` with its meter, and the interval that ends with it; `price` is that of the pool it is now on.

    No interval begins before the one before it ended, even if the clock went back in between.
    """
    running = before.meter
    since = before.counted_until if running is None else running.since
    at = now if since is None else max(now, since)
    ended = None if running is None or at == running.since else _interval(before, running, at)
    counted_until = before.counted_until if running is None else at
    return after.with_(meter=_meter(after, price, at), counted_until=counted_until), ended


def _meter(sandbox: Sandbox, price: Price | None, at: datetime) -> Meter | None:
    state = counting(sandbox)
    if state is Counting.NOT or sandbox.pool is None:
        return None
    if state is Counting.ACTIVE:
        return Meter(since=at, pool=sandbox.pool, price=price)
    if price is None or price.kept_hour is None:
        return None
    return Meter(since=at, pool=sandbox.pool, kept=True, price=price)


def _interval(sandbox: Sandbox, meter: Meter, until: datetime) -> Interval:
    return Interval(
        org=sandbox.org, project=sandbox.project, sandbox=sandbox.id, pool=meter.pool, key_id=sandbox.created_by,
        labels=sandbox.labels, cpu_millis=sandbox.size.cpu_millis, memory_mib=sandbox.size.memory_mib,
        since=meter.since, until=until, kept=meter.kept, price=meter.price,
    )  # fmt: skip


def open_interval(sandbox: Sandbox, until: datetime) -> Interval | None:
    """What it has used since its meter began, as if it ended now."""
    meter = sandbox.meter
    return None if meter is None or until <= meter.since else _interval(sandbox, meter, until)
