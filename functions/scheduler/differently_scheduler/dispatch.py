"""Dispatch: the only door out of the queue. Fed by a queue of messages, of which one run serves a whole batch."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from differently_core.operations.core import Core
from differently_core.operations.dispatch import dispatch

from .messages import Dispatch, read

log = logging.getLogger(__name__)
_MESSAGE = TypeAdapter(Dispatch)


def handle(core: Core, event: Mapping[str, Any]) -> dict[str, Any]:
    """Answer which records failed, so that only they are delivered again and end among the dead letters.

    Raises for faults of the store: then the whole batch comes again.
    """
    poisoned = [failure for record in event.get("Records", []) if (failure := _poison(record)) is not None]
    if len(poisoned) < len(event.get("Records", [])):
        dispatch(core)
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in poisoned]}


def _poison(record: Mapping[str, Any]) -> str | None:
    """The record's id if it is no message of ours."""
    try:
        read(_MESSAGE, json.loads(record["body"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        identifier = str(record.get("messageId", ""))
        log.error("message refused", extra={"entry": "dispatch", "message_id": identifier, "why": type(error).__name__})
        return identifier
    return None


def batch(*identifiers: str) -> dict[str, Any]:
    """The event that the queue delivers for these message ids."""
    body = json.dumps(Dispatch().event())
    return {"Records": [{"messageId": identifier, "body": body} for identifier in identifiers]}
