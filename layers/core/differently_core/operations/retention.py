"""How long what does not run is kept: stopped and paused sandboxes, and snapshots.

The installation has a default and a maximum. A policy may say something else, shorter or longer, within the maximum; of
several scopes the shortest counts. It is decided when a sandbox comes to rest or a snapshot is asked for, and written
down there: a policy that is changed later ends nothing sooner than its owner was told.
"""

from __future__ import annotations

from ..errors import LimitExceeded, PolicyUnreadable
from ..model.sandbox import Sandbox
from .core import Core


def of_sandbox(core: Core, sandbox: Sandbox) -> int:
    """In seconds, by the policies of now; what was decided before where they cannot be read. Warm, no trip."""
    tuning = core.tuning
    try:
        said = core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification).retention_seconds
    except PolicyUnreadable:
        said = sandbox.retention_seconds
    return min(tuning.retention_seconds if said is None else said, tuning.retention_seconds_max)


def at_rest(core: Core, sandbox: Sandbox) -> Sandbox:
    """It rests from now on, and is kept for so long."""
    return sandbox.with_(
        rested_at=core.clock.now(), running_since=None, retained=True, retention_seconds=of_sandbox(core, sandbox)
    )


def of_snapshot(core: Core, source: Sandbox, asked: int | None) -> int:
    """In seconds. Raises `LimitExceeded` for more than policy or installation permit, and `PolicyUnreadable`."""
    tuning = core.tuning
    said = core.catalog.rules(source.org, source.project, source.classification).snapshot_retention_seconds
    most = min(tuning.retention_seconds_max if said is None else said, tuning.retention_seconds_max)
    if asked is None:
        return min(tuning.snapshot_retention_seconds if said is None else said, most)
    if asked > most:
        raise LimitExceeded(
            f"retentionSeconds {asked} is over the limit of {most}; ask for less, or leave it out.",
            resource="retentionSeconds", requested=asked, limit=most,
        )  # fmt: skip
    return asked
