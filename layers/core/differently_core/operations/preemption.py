"""Making room: idle sandboxes that may be preempted are put to rest for work that waits, one for each that waits.

Only one that nobody has used for a minute, and in which nothing runs; each by one write, on condition that nobody used
it since. It counts as idled: its next use wakes it, in its turn.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence

from ..errors import QuotaExceeded
from ..model.attempt import Attempt, AttemptState
from ..model.queue import QueueRow
from ..model.quota import Scope
from ..model.sandbox import ON_THE_WAY, Sandbox
from ..store.ports import ACTIONS_MAX
from . import moves
from .core import Core, system

log = logging.getLogger(__name__)
PREEMPTION = system("preemption")


def make_room(core: Core, rows: Iterable[QueueRow], blocked: Mapping[str, tuple[str, str]]) -> int:
    """`blocked` tells for each waiting row which counter it waits for; how many were put to rest for them.

    For a full pool on that pool, whoever's they are; for a quota in the project of who waits. One page of each: who
    finds none comes by again.
    """
    places: Tally[tuple[bool, str]] = Tally()
    for row in rows:
        if row.sandbox in blocked:
            scope, name = blocked[row.sandbox]
            places[(True, name) if scope == Scope.POOL else (False, row.project)] += 1
    return sum(
        _preempt(core, _on_pool(core, name) if is_pool else _of_project(core, name), wanted)
        for (is_pool, name), wanted in sorted(places.items())
    )


def _on_pool(core: Core, pool: str) -> list[Sandbox]:
    page = core.store.query_pool(pool)
    attempts = [row for row in page.rows if isinstance(row, Attempt) and row.preemptible and row.rests is None]
    keys = [(Sandbox, Sandbox.key_of(row.sandbox)) for row in attempts if row.status is AttemptState.LIVE]
    rows = core.store.batch_get(keys[:ACTIONS_MAX]) if keys else []
    return [row for row in rows if isinstance(row, Sandbox) and row.pool == pool]


def _of_project(core: Core, project: str) -> list[Sandbox]:
    page = core.store.query_list(f"LIVE#{project}")
    return [row for row in page.rows if isinstance(row, Sandbox) and row.preemptible]


def _preempt(core: Core, found: Sequence[Sandbox], wanted: int) -> int:
    """The longest unused first; those that are on their way to rest already are counted."""
    leaving = sum(1 for row in found if row.status in ON_THE_WAY and row.move is not None and not row.move.way.wakes)
    now = core.clock.now()
    spare = [row for row in found if (at := row.spare_at()) is not None and at <= now]
    rested = 0
    for sandbox in sorted(spare, key=_last_used)[: max(0, wanted - leaving)]:
        assert sandbox.idle_by is not None
        try:
            preempted = moves.preempt(core, PREEMPTION, sandbox, sandbox.idle_by)
        except QuotaExceeded:
            continue  # its pool keeps no more; another one's may
        if preempted is not None:
            rested += 1
            log.info("preempted", extra={"pool": sandbox.pool, "sandbox": sandbox.id})
    return rested


def _last_used(sandbox: Sandbox) -> tuple[float, str]:
    last = sandbox.last_activity_at or sandbox.started_at
    return (last.timestamp() if last is not None else 0.0, sandbox.id)
