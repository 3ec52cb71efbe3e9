"""Their states as ours. What they do not know is no information: it never makes a sandbox lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from differently_core.contract import Instance, InstanceState

from .config import Runtime
from .wire import SandboxRead

STATES: Final[Mapping[str, InstanceState]] = {
    "pending": InstanceState.PENDING,
    "allocated": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "pausing": InstanceState.PENDING,
    "paused": InstanceState.PAUSED,
    "resuming": InstanceState.PENDING,
    "stopping": InstanceState.STOPPED,  # being deleted; it is its owner's until it is gone
    "terminated": InstanceState.ERROR,  # over, and still to be removed
    "failed": InstanceState.ERROR,
}


def phase(seen: SandboxRead) -> str:
    return seen.state


def instance(seen: SandboxRead, runtime: Runtime) -> Instance:
    state = STATES.get(seen.state, InstanceState.PENDING)
    if state is InstanceState.PAUSED and runtime is Runtime.KUBERNETES:
        state = InstanceState.STOPPED
    return Instance(
        ref=seen.id,
        owner=seen.owner,
        state=state,
        message="" if state is InstanceState.RUNNING else (seen.told or seen.status.state),
        prepared="metadata",
        # Docker keeps one container from create to delete and never starts it again by itself; the Kubernetes runtime
        # has no pause that keeps memory, so there is nothing to name.
        incarnation=seen.created_at.isoformat() if runtime is Runtime.DOCKER else "",
        expires_at=seen.expires_at,
    )


def not_ready(made: Instance) -> Instance:
    """The server calls it running, and no command runs in it."""
    return Instance(made.ref, made.owner, InstanceState.PENDING, message="commands do not run in it yet")
