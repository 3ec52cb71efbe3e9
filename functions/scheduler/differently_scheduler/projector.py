"""The projector: follows the log's stream and tells what was written to webhooks and to the event bus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from differently_core.model.lifecycle import Lifecycle, published
from differently_core.operations import offering
from differently_core.operations.core import Core
from differently_core.store import stream
from differently_core.store.stream import Delivered

log = logging.getLogger(__name__)
Publish = Callable[[Sequence[Lifecycle]], frozenset[str]]
"""Sends events to the bus and answers the ids of those that it did not take. Never raises."""


def handle(core: Core, event: Mapping[str, Any], publish: Publish | None = None) -> dict[str, Any]:
    """Answer from where on the batch has to come again: a repeat adds what is missing, and the bus may hear twice.

    A fault with one organization's events holds up no other's, and the bus holds up no webhook.
    """
    batch = stream.read(event)
    for unreadable in batch.unreadable:
        log.error("event unreadable", extra={"entry": "projector", "sequence": unreadable.sequence,
                                             "why": unreadable.why})  # fmt: skip
    failed = [again for org, found in _by_org(batch).items() if (again := _offer(core, org, found)) is not None]
    if publish is not None and batch.events:
        failed += _publish(core, batch.events, publish)
    return stream.failures(failed)


def _by_org(batch: stream.Batch) -> dict[str, list[Delivered]]:
    grouped: dict[str, list[Delivered]] = {}
    for delivered in batch.events:
        grouped.setdefault(delivered.event.org, []).append(delivered)
    return grouped


def _offer(core: Core, org: str, found: Sequence[Delivered]) -> str | None:
    """The sequence number to come again from, if this failed."""
    try:
        added = offering.offer(core, (entry.event for entry in found))
    except Exception:
        log.exception("not offered", extra={"entry": "projector", "org": org, "events": len(found)})
        return found[0].sequence
    if added:
        log.info("offered", extra={"org": org, "events": len(found), "deliveries": added})
    return None


def _publish(core: Core, found: Sequence[Delivered], publish: Publish) -> list[str]:
    installation = core.catalog.installation().id
    told = {entry.sequence: shown for entry in found if (shown := published(entry.event, installation)) is not None}
    if not told:
        return []
    refused = publish(list(told.values()))
    if refused:
        log.warning("not published", extra={"entry": "projector", "events": len(refused)})
    return [sequence for sequence, shown in told.items() if shown.id in refused]
