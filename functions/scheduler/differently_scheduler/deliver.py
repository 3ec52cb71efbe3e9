"""Deliver: serves the lanes of webhooks. Fed by a queue, one message a run: a slow receiver holds up its own alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from differently_core.errors import DifferentlyError
from differently_core.operations import delivering
from differently_core.operations.core import Core

from .messages import Deliver, read

log = logging.getLogger(__name__)
_MESSAGE = TypeAdapter(Deliver)


def handle(core: Core, event: Mapping[str, Any]) -> dict[str, Any]:
    """Answer which records failed, so that only they are delivered again and end among the dead letters."""
    failed = [str(record.get("messageId", "")) for record in event.get("Records", []) if not _served(core, record)]
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in failed]}


def _served(core: Core, record: Mapping[str, Any]) -> bool:
    try:
        message = read(_MESSAGE, json.loads(record["body"]))
        delivering.step(core, message.webhook)
    except DifferentlyError as error:
        log.warning("lane not served", extra={"entry": "deliver", "code": error.code})
        return False
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        log.error("message refused", extra={"entry": "deliver", "why": type(error).__name__})
        return False
    return True


def batch(*webhooks: str) -> dict[str, Any]:
    """The event that the queue delivers for these webhooks."""
    return {
        "Records": [
            {"messageId": webhook, "body": json.dumps({"kind": "deliver", "webhook": webhook})} for webhook in webhooks
        ]
    }
