"""Whose turn it is: exact weighted dominant share over what each organization holds.

An organization's dominant share is the largest fraction it holds of any resource. Repeatedly the organization with
the lowest share divided by its weight is served with its oldest admissible sandbox, and charged for it, until nobody
can be served (dominant resource fairness; Ghodsi and others, NSDI 2011). Pure and replayable: ties go by name.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..model.queue import QueueRow
from ..model.resources import DIMENSIONS, UNLIMITED, Size


@dataclass(frozen=True)
class Waiting:
    """One organization's backlog, oldest first inside each priority class."""

    org: str
    weight: int
    held: Size
    free: Size
    rows: Sequence[QueueRow]


@dataclass(frozen=True)
class Admission:
    row: QueueRow
    pool: str


@dataclass(frozen=True)
class Plan:
    """`blocked` tells for each row that stays: which counter it waits for, as (scope, name)."""

    admissions: tuple[Admission, ...]
    blocked: Mapping[str, tuple[str, str]]


Eligible = Callable[[QueueRow, Mapping[str, Size]], tuple[str | None, str | None]]
"""Given a row and the free room of each pool: the pool to take, or the pool it waits for (or neither)."""


def dominant_share(held: Size, total: Size, weight: int) -> float:
    """Largest held fraction of a bounded resource, by weight."""
    shares = [
        getattr(held, name) / getattr(total, name)
        for name in DIMENSIONS
        if 0 < getattr(total, name) < UNLIMITED
    ]  # fmt: skip
    return max(shares, default=0.0) / max(1, weight)


def plan(
    waiting: Sequence[Waiting], projects: Mapping[str, Size], pools: Mapping[str, Size], total: Size,
    eligible: Eligible, limit: int,
) -> Plan:  # fmt: skip
    """Choose up to `limit` admissions. `projects` and `pools` give free room by name; `total` is the installation."""
    room = {"org": {entry.org: entry.free for entry in waiting}, "project": dict(projects)}
    pool_room = dict(pools)
    backlog = {entry.org: list(entry.rows) for entry in waiting}
    held = {entry.org: entry.held for entry in waiting}
    weight = {entry.org: entry.weight for entry in waiting}
    turns = [(dominant_share(held[org], total, weight[org]), org) for org in backlog]
    heapq.heapify(turns)
    admissions: list[Admission] = []
    blocked: dict[str, tuple[str, str]] = {}
    while turns and len(admissions) < limit:
        _, org = heapq.heappop(turns)
        admission = _oldest_admissible(backlog[org], room, pool_room, eligible, blocked)
        if admission is None:
            continue
        row = admission.row
        admissions.append(admission)
        blocked.pop(row.sandbox, None)
        room["org"][org] -= row.size
        room["project"][row.project] -= row.size
        pool_room[admission.pool] -= row.size
        held[org] += row.size
        if backlog[org]:
            heapq.heappush(turns, (dominant_share(held[org], total, weight[org]), org))
    return Plan(tuple(admissions), blocked)


def _oldest_admissible(
    rows: list[QueueRow], room: Mapping[str, Mapping[str, Size]], pools: Mapping[str, Size], eligible: Eligible,
    blocked: dict[str, tuple[str, str]],
) -> Admission | None:  # fmt: skip
    """Take the first row that can go, and note what the ones before it wait for."""
    for position, row in enumerate(rows):
        scope = next(
            (
                (scope, name)
                for scope, name in (("org", row.org), ("project", row.project))
                if not row.size.fits_in(room[scope].get(name, Size()))
            ),
            None,
        )
        if scope is not None:
            blocked[row.sandbox] = scope
            if scope[0] == "org" and row.size.sandboxes > room["org"][row.org].sandboxes:
                # No slot left in the organization: nothing behind this row can go either.
                blocked.update({later.sandbox: scope for later in rows[position:]})
                return None
            continue
        pool, waits_for = eligible(row, pools)
        if pool is not None:
            del rows[: position + 1]  # those before it wait: within one plan room only shrinks
            return Admission(row, pool)
        if waits_for is not None:
            blocked[row.sandbox] = ("pool", waits_for)
    return None
