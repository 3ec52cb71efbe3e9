"""The sweep: everything whose time has come is nudged again, whatever became of the message about it.

This is the sure half of the rule of two: what happens after a commit happens because of a message, which may be lost,
or because of a due time written in that commit, which is found here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..model.due import DUE_SHARDS, stamp
from ..model.sandbox import Status
from ..runtime.ids import SandboxId
from .core import Core

log = logging.getLogger(__name__)
PAGES_MAX = 10
"""Pages of one shard that one sweep reads; the oldest come first, so the rest is first next time."""


@dataclass(frozen=True)
class Swept:
    """How many rows were due; `more` is True when a shard held more than one sweep reads."""

    due: int
    more: bool


def sweep(core: Core) -> Swept:
    until = stamp(core.clock.now())
    due, more, waiting = 0, False, False
    for shard in range(DUE_SHARDS):
        after: str | None = None
        for _ in range(PAGES_MAX):
            rows, after = core.store.query_due(f"DUE#{shard}", until=until, after=after)
            for row in rows:
                _nudge(core, row.kind, row.key.pk, row.key.sk)
                waiting = waiting or (row.kind == "sandbox" and row.status == Status.QUEUED)
            due += len(rows)
            if after is None:
                break
        more = more or after is not None
    if waiting:
        core.nudges.dispatch()  # one look at the queue for all who wait: each of them asking would be a herd
    if due:
        log.info("swept", extra={"due": due, "more": more})
    return Swept(due, more)


def _nudge(core: Core, kind: str, pk: str, sk: str) -> None:
    if kind == "snapshot":
        core.nudges.snapshot(pk.removeprefix("SNAP#"))
        return
    if kind == "closing":
        core.nudges.closing(pk.removeprefix("CLOSING#"))
        return
    if kind == "webhook_lane":
        core.nudges.deliver(pk.removeprefix("WEBHOOK#"))
        return
    sandbox = SandboxId(pk.removeprefix("SBX#"))
    if kind == "attempt":
        core.nudges.cleanup(sandbox, int(sk.removeprefix("ATTEMPT#")))
    elif kind == "port":
        core.nudges.port(sandbox, int(sk.removeprefix("PORT#")))
    else:
        core.nudges.worker(sandbox)
