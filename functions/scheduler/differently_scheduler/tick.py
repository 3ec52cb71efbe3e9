"""The tick: nudges what is due and looks at the pools. Runs each minute and loops only while something is due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from differently_core.model.due import DUE_SHARDS, stamp
from differently_core.operations import budgets, pools, rollups
from differently_core.operations.core import Core
from differently_core.operations.sweep import sweep

from .messages import TICK, Account, Passes, Poison, Probe, Sweep, read

log = logging.getLogger(__name__)
PAUSE_SECONDS = 1.0


def handle(core: Core, event: Mapping[str, Any], reconcile: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Answer how much was due. Raises only for faults of the store; a poison message is dropped.

    `reconcile` sends the message that reconciles one pool, for whoever lets the tick do that.
    """
    try:
        message = read(TICK, event)
    except Poison as poison:
        log.error("message dropped", extra={"entry": "tick", "why": str(poison)})
        return {"due": 0}
    match message:
        case Probe():
            pools.probe_all(core)
            return {"due": 0}
        case Passes():
            if reconcile is not None:
                for name in core.catalog.pools().pools:
                    reconcile(name)
            return {"due": 0}
        case Account():
            budgets.look_at_all(core)
            rollups.roll_all(core)
            return {"due": 0}
        case Sweep():
            return {"due": _sweep_for(core, message.seconds)}


def _sweep_for(core: Core, seconds: float) -> int:
    end = core.clock.monotonic() + seconds
    due = 0
    while True:
        due += sweep(core).due
        left = end - core.clock.monotonic()
        if left <= 0 or not _is_due_within(core, left):
            return due
        core.clock.sleep(min(PAUSE_SECONDS, left))


def _is_due_within(core: Core, seconds: float) -> bool:
    until = stamp(core.clock.now() + timedelta(seconds=seconds))
    return any(core.store.query_due(f"DUE#{shard}", until=until, limit=1)[0] for shard in range(DUE_SHARDS))
