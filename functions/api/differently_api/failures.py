"""From an error to an answer: the envelope, the status and `Retry-After`, all read from the one table of reactions."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from differently_core.errors import REACTIONS, DifferentlyError, MethodNotAllowed
from differently_core.model.record import Wire

from .route import Answer

log = logging.getLogger(__name__)
JSON: Final = "application/json"
RETRY_AFTER_SECONDS: Final[Mapping[str, int]] = {"soon": 2, "backoff": 5, "later": 10}
"""How soon a repeat can help, by the table's word for it. Told with 429 and 503 alone: repeating a 500 may not help."""
UNAUTHENTICATED: Final = "Send an API key as `Authorization: Bearer dk_…`; this one is missing or not valid."


class ErrorDetail(Wire):
    code: str
    """For programs: stable, listed in the reference of errors."""
    message: str
    """For people: what was wrong and what to do."""
    details: dict[str, Any] = Field(default={}, json_schema_extra={"additionalProperties": True})
    request_id: str


class ErrorBody(Wire):
    error: ErrorDetail


def failure(error: Exception, request_id: str) -> Answer:
    """Any exception as an answer; one from outside our tree is a fault of ours, logged and told without detail."""
    if not isinstance(error, DifferentlyError):
        log.error("unhandled", exc_info=error, extra={"requestId": request_id})
        return _answer("internal", "Something went wrong on our side; the request id tells us what.", {}, request_id)
    if error.reaction.http_status == 500:
        log.error("internal", exc_info=error, extra={"requestId": request_id, "code": error.code})
    answer = _answer(error.code, error.message, error.details, request_id)
    if isinstance(error, MethodNotAllowed):
        allowed = error.details.get("allowed")
        return _with_headers(answer, Allow=", ".join(allowed) if isinstance(allowed, list) else "")
    return answer


def unauthorized(request_id: str) -> Answer:
    """What the gateway says where the authorizer refused; a front that stands in for it says the same."""
    return _answer("unauthenticated", UNAUTHENTICATED, {}, request_id)


def envelope(error: DifferentlyError, request_id: str) -> dict[str, Any]:
    return {
        "error": {
            "code": error.reaction.public, "message": error.message, "details": error.details, "requestId": request_id
        }
    }  # fmt: skip


def _answer(code: str, message: str, details: Mapping[str, Any], request_id: str) -> Answer:
    reaction = REACTIONS[code]
    body = {"error": {"code": reaction.public, "message": message, "details": details, "requestId": request_id}}
    headers = {"Content-Type": JSON}
    if reaction.http_status in (429, 503):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS[reaction.retry])
    if reaction.http_status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Answer(reaction.http_status, json.dumps(body), headers, {"code": reaction.public})


def _with_headers(answer: Answer, **headers: str) -> Answer:
    return Answer(answer.status, answer.body, {**answer.headers, **headers}, answer.facts)
