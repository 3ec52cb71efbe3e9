"""execd's refusals as our errors: mostly by the status, with its code and its words beside them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from differently_core.errors import Detail, DifferentlyError

from ..http import STATUSES, Call
from ..http.failures import refused, status_row

CODE_CHARACTERS_MAX = 100


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """None where execd said nothing of its own; then the status alone decides."""
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        return None
    row = status_row(status, STATUSES)
    return refused(row, mutates=call.changes, lost=call.lost, status=status, **said(call, body))


def said(call: Call, body: Mapping[str, JsonValue]) -> dict[str, Detail]:
    """The details of `{"code": …, "message": …}`, without what the request holds of secrets."""
    details: dict[str, Detail] = {}
    code, message = body.get("code"), body.get("message")
    if isinstance(code, str) and 0 < len(code) <= CODE_CHARACTERS_MAX and call.hide(code) == code:
        details["reason"] = code
    if isinstance(message, str) and call.hide(message):
        details["provider_message"] = call.hide(message)
    return details
