"""Errors on the wire, `{"error": {"code", "message", "details"}}`, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue, ValidationError

from differently_core.errors import (
    REACTIONS,
    BackendError,
    Detail,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)

from ..http import Call
from ..http.failures import unavailable
from .wire import ToldFailure

DETAILS_MAX: Final = 20
RESERVED: Final = frozenset({"self", "message", "lost"})
"""Names that our constructors use themselves."""
_PLAIN: Final[Mapping[str, Callable[..., DifferentlyError]]] = {
    error.code: error for error in (InvalidRequest, PayloadTooLarge, NotFound, InvalidState, UnsupportedOperation)
}


def status_of(error: DifferentlyError) -> int:
    """The status that goes with an error; the backend codes have the one that version 1 gives them."""
    return REACTIONS[error.code].http_status


def failure_json(error: DifferentlyError) -> dict[str, JsonValue]:
    """The inside of an envelope. `settled` is told in the details, where version 1 clients do not mind it."""
    details: dict[str, JsonValue] = {name: _json(detail) for name, detail in error.details.items()}
    if isinstance(error, BackendError):
        details["settled"] = error.settled
    return {"code": error.code, "message": error.message, "details": details}


def _json(detail: Detail) -> JsonValue:
    return list(detail) if isinstance(detail, list) else detail


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError:
    """What a plugin's refusal means. Without an envelope it is not the plugin's word on anything."""
    inside = body.get("error") if isinstance(body, dict) else None
    try:
        told = ToldFailure.model_validate(inside)
    except ValidationError:
        return unavailable(
            f"The plugin answered with status {status} and no error envelope.",
            settled=not call.changes, lost=call.lost, status=status,
        )  # fmt: skip
    return error_of(told, mutates=call.changes, lost=call.lost)


def error_of(told: ToldFailure, *, mutates: bool, lost: type[BackendError] = ProviderUnavailable) -> DifferentlyError:
    """The error that an envelope tells of."""
    details = _details(told.details)
    message = told.message or "The plugin gave no reason."
    settled = details.pop("settled", None)
    if told.code in _PLAIN:
        return _PLAIN[told.code](message, **details)
    known = settled if isinstance(settled, bool) else None
    match told.code:
        case "insufficient_capacity":
            return InsufficientCapacity(message, settled=known is not False, **details)
        case "sandbox_failed":
            return SandboxFailed(message, settled=known is True, **details)
        case "exec_unconfirmed":
            return ExecUnconfirmed(message, settled=known is True, **details)
        case "unauthenticated" | "forbidden":
            return ProviderUnavailable("The plugin says that our credentials were rejected.", settled=True)
        case _:
            return unavailable(message, settled=known if known is not None else not mutates, lost=lost, **details)


def _details(told: Mapping[str, JsonValue]) -> dict[str, Detail]:
    """What is plain among the details: they are shown to callers, so nothing of unknown shape goes on."""
    found: dict[str, Detail] = {}
    for name, value in list(told.items())[:DETAILS_MAX]:
        if not name.isidentifier() or name in RESERVED:
            continue
        if value is None or isinstance(value, str | int | float):
            found[name] = value
        elif isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            found[name] = [str(entry) for entry in value[:DETAILS_MAX]]
    return found
