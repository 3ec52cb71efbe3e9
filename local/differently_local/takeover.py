"""After a kill: sandboxes whose worker died are worked on at once, not when its claim would have run out.

A claim guards against a second live worker. The lock on the data directory proves that there is none: every worker of
an earlier run died with its process. What it had called at a backend is observed like any lost answer.
"""

from __future__ import annotations

from datetime import timedelta

from differently_core.model.due import DUE_SHARDS, stamp
from differently_core.model.sandbox import Sandbox, Status
from differently_core.operations.core import Core
from differently_core.operations.ending import write

HORIZON = timedelta(hours=1)
"""No claim lasts longer than this."""
_CLAIMED = {Status.PROVISIONING.value, Status.TERMINATING.value}


def release_claims(core: Core) -> int:
    """How many claims of dead workers were dropped."""
    until = stamp(core.clock.now() + HORIZON)
    released = 0
    for shard in range(DUE_SHARDS):
        after: str | None = None
        while True:
            rows, after = core.store.query_due(f"DUE#{shard}", until=until, after=after)
            for row in rows:
                if row.kind == Sandbox.kind and row.status in _CLAIMED:
                    found = core.store.get(Sandbox, row.key)
                    released += _release(core, found) if found is not None else 0
            if after is None:
                break
    return released


def _release(core: Core, sandbox: Sandbox) -> int:
    if sandbox.claim is None or sandbox.claim.owner == core.worker_name:
        return 0
    free = sandbox.with_(claim=None, due_at=core.clock.now())
    core.commit([write(sandbox, free)[1]])
    return 1
