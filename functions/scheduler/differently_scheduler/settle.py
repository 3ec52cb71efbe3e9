"""The workflow's step: one look at a sandbox that is on its way somewhere, and when to look again.

The workflow only keeps time. It ends as soon as the sandbox rests or its intent has changed; whoever changed it has a
workflow of his own. If the workflow is lost, the due index brings the sandbox to the same step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from pydantic import BaseModel, ConfigDict

from differently_core.model.sandbox import Sandbox, Status
from differently_core.operations import worker
from differently_core.operations.core import Core
from differently_core.runtime.ids import SandboxId

from .messages import Settle

Wait = Callable[[str, int, int], None]
"""Start the workflow: sandbox, generation, seconds until its first look. May be called twice for one generation."""
MOVING: Final = frozenset({Status.PROVISIONING, Status.PAUSING, Status.RESUMING, Status.STOPPING, Status.STARTING})
SECONDS_MIN: Final = 2
SECONDS_MAX: Final = 300


class Look(BaseModel):
    """What the workflow is told; its names are those that the state machine reads."""

    model_config = ConfigDict(frozen=True)

    sandbox: SandboxId
    generation: int
    settled: bool
    seconds: int
    """Until the next look; of no meaning once it is settled."""

    def event(self) -> dict[str, str | int | bool]:
        return self.model_dump(mode="json")


def look(core: Core, message: Settle) -> Look:
    """Raises only for faults of the store."""
    if _moving(core, message.sandbox, message.generation) is not None:
        worker.step(core, message.sandbox)
    found = _moving(core, message.sandbox, message.generation)
    return Look(
        sandbox=message.sandbox, generation=message.generation, settled=found is None,
        seconds=SECONDS_MIN if found is None else _seconds(core, found),
    )  # fmt: skip


def wait_if_moving(core: Core, sandbox: SandboxId, wait: Wait) -> None:
    found = _moving(core, sandbox, None)
    if found is not None:
        wait(found.id, found.generation, _seconds(core, found))


def _moving(core: Core, sandbox: SandboxId, generation: int | None) -> Sandbox | None:
    found = core.store.get(Sandbox, Sandbox.key_of(sandbox))
    if found is None or found.status not in MOVING or generation not in (None, found.generation):
        return None
    return found


def _seconds(core: Core, sandbox: Sandbox) -> int:
    left = (sandbox.due_at - core.clock.now()).total_seconds() if sandbox.due_at is not None else SECONDS_MIN
    return min(SECONDS_MAX, max(SECONDS_MIN, math.ceil(left)))
