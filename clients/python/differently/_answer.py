"""From bytes to a document or an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ._codes import BY_CODE
from ._failure import ApiError, DifferentlyError, UnexpectedAnswer

TOLD_CHARACTERS_MAX = 200


def document(status: int, body: bytes) -> Any:
    """The JSON of a good answer; None for one without a body. White space around it is how a wait keeps its line."""
    text = body.strip()
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        raise UnexpectedAnswer(f"The answer ({status}) is no JSON: {_shown(body)}", status) from None
    # A wait that fails after its first byte has status 200 and the error as its document.
    if isinstance(found, dict) and set(found) == {"error"} and isinstance(found["error"], dict):
        raise of_document(found["error"], status)
    return found


def failure(status: int, headers: Mapping[str, str], body: bytes) -> DifferentlyError:
    """What an answer other than a good one means. `headers` are found in lower case."""
    if 300 <= status < 400:
        return UnexpectedAnswer(
            f"The server redirects to {headers.get('location', 'nowhere')!r}; redirects are not followed, so that the "
            "key goes to the address that you gave and no other.", status,
        )  # fmt: skip
    try:
        error = json.loads(body)["error"]
        known = of_document(error, status, _seconds(headers.get("retry-after")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return UnexpectedAnswer(f"Status {status} without an error of this API: {_shown(body)}", status)
    if known.request_id is None:
        known.request_id = headers.get("x-request-id")
    return known


def of_document(error: Mapping[str, Any], status: int, retry_after_seconds: float | None = None) -> ApiError:
    """The error whose envelope this is."""
    code = str(error["code"])
    kind = BY_CODE.get(code)
    return (kind or ApiError)(
        str(error.get("message", "")), details=error.get("details"), request_id=error.get("requestId"),
        retry_after_seconds=retry_after_seconds, code=None if kind else code, status=None if kind else status,
    )  # fmt: skip


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None


def _shown(body: bytes) -> str:
    text = " ".join(body.decode("utf-8", "replace").split())
    return repr(text[:TOLD_CHARACTERS_MAX]) if text else "empty"
