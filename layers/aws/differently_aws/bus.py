"""The event bus of EventBridge: lifecycle events for whatever else runs in the account."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from differently_core.model.lifecycle import Lifecycle

from .clients import Clients

log = logging.getLogger(__name__)
SOURCE: Final = "differently"
ENTRIES_MAX: Final = 10
"""Of one call; EventBridge takes no more."""
ROUNDS_MAX: Final = 2
"""A call may take a part of its entries; the rest is sent once more, and then comes again with the stream."""


class Bus:
    def __init__(self, clients: Clients, name: str) -> None:
        self._clients = clients
        self._name = name

    def publish(self, events: Sequence[Lifecycle]) -> frozenset[str]:
        """The ids of those that the bus did not take. Never raises."""
        left = list(events)
        for _ in range(ROUNDS_MAX):
            chunks = [left[at : at + ENTRIES_MAX] for at in range(0, len(left), ENTRIES_MAX)]
            left = [event for chunk in chunks for event in self._put(chunk)]
        return frozenset(event.id for event in left)

    def _put(self, chunk: Sequence[Lifecycle]) -> list[Lifecycle]:
        """Those that were not taken, in order: the answer has one result for each entry."""
        try:
            answer = self._clients.client("events").put_events(Entries=[self._entry(event) for event in chunk])
        except (BotoCoreError, ClientError) as error:
            log.warning("bus did not answer", extra={"why": type(error).__name__})
            return list(chunk)
        results = answer.get("Entries", [])
        refused = [event for event, result in zip(chunk, results, strict=False) if result.get("ErrorCode") is not None]
        return [*refused, *chunk[len(results) :]]

    def _entry(self, event: Lifecycle) -> dict[str, Any]:
        return {
            "EventBusName": self._name, "Source": SOURCE, "DetailType": event.type, "Detail": event.text(),
            "Time": event.time, "Resources": [event.subject],
        }  # fmt: skip
