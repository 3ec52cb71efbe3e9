"""Their refusals as our errors: by error code where one means more than its HTTP status, else by the status."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)

from .transport import Answer, Transport

EXCERPT_CHARACTERS = 300
RETRY_SECONDS_MAX = 3600


@dataclass(frozen=True)
class Row:
    """`settled` matters for backend errors only: whether the refused call can have had no effect."""

    error: type[DifferentlyError]
    settled: bool = True


BY_CODE: Mapping[str, Row] = {
    # Create. The server removes what it could not bring up, but its word for that is only the status.
    "SANDBOX_IMAGE_PULL_FAILED": Row(SandboxFailed),
    "POD_READY_TIMEOUT": Row(SandboxFailed, settled=False),
    "POD_FAILED": Row(SandboxFailed, settled=False),
    "QUOTA_EXCEEDED": Row(InsufficientCapacity),
    "POOL_CAPACITY_EXHAUSTED": Row(InsufficientCapacity),
    # The pool's own configuration names something that is not there: no sandbox is to blame.
    "POOL_NOT_FOUND": Row(ProviderUnavailable),
    "TEMPLATE_NOT_FOUND": Row(ProviderUnavailable),
    "UNSUPPORTED_POOL_REF": Row(ProviderUnavailable),
    # "Not found" that does not say that the sandbox is gone.
    "POD_IP_NOT_AVAILABLE": Row(ProviderUnavailable),
    # What this installation of OpenSandbox cannot do, in the words of several services.
    "API_NOT_SUPPORTED": Row(UnsupportedOperation),
    "POOL_NOT_SUPPORTED": Row(UnsupportedOperation),
    "UNSUPPORTED_RUNTIME": Row(UnsupportedOperation),
    "NOT_IMPLEMENTED": Row(UnsupportedOperation),
    "RUNTIME_PREFLIGHT_FAILED": Row(SandboxFailed),
}
"""Keyed by what follows `::`; what precedes it names the runtime and differs between them."""

BY_STATUS: Mapping[int, Row] = {
    400: Row(InvalidRequest),
    401: Row(ProviderUnavailable),
    403: Row(ProviderUnavailable),
    404: Row(NotFound),
    405: Row(UnsupportedOperation),
    409: Row(InvalidState),
    413: Row(InvalidRequest),
    415: Row(InvalidRequest),
    422: Row(InvalidRequest),
    429: Row(InsufficientCapacity),
    501: Row(UnsupportedOperation),
}


def failure(
    answer: Answer, doing: str, transport: Transport, now: datetime, secrets: Iterable[str] = ()
) -> DifferentlyError:
    """The error for a refused call; `doing` completes "OpenSandbox could not ...". `secrets` were in the request."""
    code, excerpt = _told(answer)
    row = BY_CODE.get(code.rpartition("::")[2]) or BY_STATUS.get(answer.status)
    if row is None:
        row = Row(ProviderUnavailable, settled=answer.status < 500)
    if answer.status in (401, 403) and row.error is ProviderUnavailable:
        excerpt = "the API key was refused"
    said = transport.redact(excerpt, secrets)[:EXCERPT_CHARACTERS]
    message = f"OpenSandbox could not {doing}" + (f": {said.rstrip('.')}" if said else "") + f" ({answer.status})."
    details: dict[str, str | int] = {"status": answer.status}
    if code and transport.redact(code, secrets) == code and len(code) < 100:
        details["reason"] = code
    retry = retry_after(answer, now)
    if retry is not None:
        details["retry_after_seconds"] = retry
    if issubclass(row.error, BackendError):
        return row.error(message, settled=row.settled, **details)
    return row.error(message, **details)


def code_of(answer: Answer) -> str:
    """The error code without the runtime's name."""
    return _told(answer)[0].rpartition("::")[2]


def retry_after(answer: Answer, now: datetime) -> int | None:
    """Whole seconds to wait, from either form of the header; nonsense is no advice."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), RETRY_SECONDS_MAX)
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0, min(round((at - now).total_seconds()), RETRY_SECONDS_MAX))


def _told(answer: Answer) -> tuple[str, str]:
    """The error code and a text for people. Of a validation error only the rule is told: it quotes the request."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        return "", _phrase(answer.status)
    if not isinstance(body, dict):
        return "", _phrase(answer.status)
    detail = body.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        place = ".".join(str(part) for part in detail[0].get("loc", ()))
        return "", f"{place}: {detail[0].get('msg', '')}"
    code, message = body.get("code"), body.get("message")
    return (code if isinstance(code, str) else ""), (message if isinstance(message, str) else _phrase(answer.status))


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
