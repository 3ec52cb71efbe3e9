"""The sealer: follows the log's stream and appends what was written to the chains of its organizations."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from differently_core.operations import sealing
from differently_core.operations.core import Core
from differently_core.store import stream
from differently_core.store.stream import Delivered

log = logging.getLogger(__name__)


def handle(core: Core, event: Mapping[str, Any]) -> dict[str, Any]:
    """Answer from where on the batch has to come again; what is sealed by then is known to be.

    A fault with one organization's events holds up no other's. What cannot be read is passed over: its row stays in the
    table, where the comparison with the chain finds it.
    """
    batch = stream.read(event)
    for unreadable in batch.unreadable:
        log.error("event unreadable", extra={"entry": "sealer", "sequence": unreadable.sequence, "why": unreadable.why})
    for touched in batch.touched:
        log.error("event touched", extra={"entry": "sealer", "org": touched.org, "event": touched.event,
                                          "why": touched.how})  # fmt: skip
    failed = [again for org, events in _by_org(batch).items() if (again := _seal(core, org, events)) is not None]
    return stream.failures(failed)


def _by_org(batch: stream.Batch) -> dict[str, list[Delivered]]:
    grouped: dict[str, list[Delivered]] = {}
    for delivered in batch.events:
        grouped.setdefault(delivered.event.org, []).append(delivered)
    return grouped


def _seal(core: Core, org: str, delivered: list[Delivered]) -> str | None:
    """The sequence number to come again from, if this failed."""
    try:
        done = sealing.seal(core, org, (entry.event for entry in delivered))
    except Exception:
        log.exception("not sealed", extra={"entry": "sealer", "org": org, "events": len(delivered)})
        return delivered[0].sequence
    if done.events:
        log.info("sealed", extra={"org": org, "events": done.events, "lagSeconds": done.lag_seconds})
    return None
