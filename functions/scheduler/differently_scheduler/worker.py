"""The worker: one message, one step of one sandbox or one try at one debt. Invoked asynchronously."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from differently_core.operations import cleanup, worker
from differently_core.operations.core import Core

from .messages import WORK, Cleanup, Poison, Step, read

log = logging.getLogger(__name__)


def handle(core: Core, event: Mapping[str, Any]) -> None:
    """Raises only for faults of the store, which another delivery may not meet. A poison message is dropped."""
    try:
        message = read(WORK, event)
    except Poison as poison:
        log.error("message dropped", extra={"entry": "worker", "why": str(poison)})
        return
    match message:
        case Step():
            worker.step(core, message.sandbox)
        case Cleanup():
            cleanup.settle(core, message.sandbox, message.attempt)
