"""The worker: one message, one look at one sandbox, debt, port or snapshot.

Invoked asynchronously, and by the workflow `wait`, which asks to settle and is told when to come again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from differently_core.operations import capturing, cleanup, closing, ports, worker
from differently_core.operations.core import Core

from . import settle
from .messages import WORK, Cleanup, Close, LookAtPort, Poison, Settle, Step, StepSnapshot, read
from .settle import Wait

log = logging.getLogger(__name__)


def handle(core: Core, event: Mapping[str, Any], wait: Wait | None = None) -> dict[str, Any] | None:
    """Answers a `Settle` alone. Raises only for faults of the store, which another delivery may not meet.

    A poison message is dropped. `wait` starts the workflow for a sandbox that a step leaves on its way; without one the
    due index alone paces it.
    """
    try:
        message = read(WORK, event)
    except Poison as poison:
        log.error("message dropped", extra={"entry": "worker", "why": str(poison)})
        return None
    match message:
        case Step():
            worker.step(core, message.sandbox)
            if wait is not None:
                settle.wait_if_moving(core, message.sandbox, wait)
        case Cleanup():
            cleanup.settle(core, message.sandbox, message.attempt)
        case LookAtPort():
            ports.step(core, message.sandbox, message.port)
        case StepSnapshot():
            capturing.step(core, message.snapshot)
        case Close():
            closing.step(core, message.tenant)
        case Settle():
            return settle.look(core, message).event()
    return None
