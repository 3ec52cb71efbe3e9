"""How much waits for room in each pool: for whoever makes pools larger, a person or a program."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from ..model.pool import PoolPressure
from ..model.queue import QueueRow
from ..model.quota import Counter, Scope
from ..store.ports import Put
from .core import Core

log = logging.getLogger(__name__)


def note(
    core: Core, held_up: Mapping[str, Sequence[QueueRow]], counters: Mapping[tuple[Scope, str], Counter]
) -> None:  # fmt: skip
    """Keep and log what waits for each pool; one that nobody waits for any more is told so once."""
    for name in core.catalog.pools().pools:
        rows = held_up.get(name, ())
        counter = counters.get((Scope.POOL, name))
        if not rows and (counter is None or counter.waiting is None):
            continue
        found = _of(core, name, rows)
        core.store.transact([Put(found, (), "pressure")])
        oldest = (found.at - found.oldest_at).total_seconds() if found.oldest_at is not None else 0
        log.info(
            "queue pressure",
            extra={
                "pool": name, "waiting": found.waiting, "oldestSeconds": round(oldest, 1),
                "cpu": found.cpu_millis / 1000, "memoryMiB": found.memory_mib,
            },
        )  # fmt: skip


def current(core: Core, found: PoolPressure | None) -> PoolPressure | None:
    """None when it is old: dispatch looks at least this often while anything waits, so nothing does."""
    age_max = timedelta(seconds=2 * core.tuning.queue_look_seconds)
    return found if found is not None and found.waiting and core.clock.now() - found.at <= age_max else None


def _of(core: Core, name: str, rows: Sequence[QueueRow]) -> PoolPressure:
    return PoolPressure(
        name=name, at=core.clock.now(), waiting=len(rows),
        cpu_millis=sum(row.size.cpu_millis for row in rows), memory_mib=sum(row.size.memory_mib for row in rows),
        oldest_at=min((row.since for row in rows if row.since is not None), default=None),
    )  # fmt: skip
