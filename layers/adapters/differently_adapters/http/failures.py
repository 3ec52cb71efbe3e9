"""What a failed call means: one table for statuses, one for exceptions, and whether the call may have had an effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from pydantic import JsonValue

from differently_core.errors import (
    AdapterFault,
    BackendError,
    Detail,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)

EXCERPT_CHARACTERS_MAX: Final = 300
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0


@dataclass(frozen=True)
class Status:
    """`settled`: True when such an answer means that nothing was done, None when a change may have been made."""

    error: type[DifferentlyError]
    message: str
    settled: bool | None = None


_REJECTED = Status(ProviderUnavailable, "The backend says that our credentials were rejected.", settled=True)
STATUSES: Final[Mapping[int, Status]] = {
    400: Status(InvalidRequest, "The backend refused the request as wrong."),
    401: _REJECTED,
    403: _REJECTED,
    404: Status(NotFound, "The backend does not have it."),
    408: Status(ProviderUnavailable, "The backend gave up waiting for the request."),
    409: Status(InvalidState, "The backend cannot do this in the present state."),
    410: Status(NotFound, "The backend no longer has it."),
    422: Status(InvalidRequest, "The backend refused the request as wrong."),
    429: Status(InsufficientCapacity, "The backend has no room now, or was asked too often.", settled=True),
}
"""The rows that every provider shares; one whose statuses mean something else adds its own."""
_REDIRECT = Status(ProviderUnavailable, "The backend sent us elsewhere, and redirects are not followed.", settled=True)
_SEE_OTHER = Status(ProviderUnavailable, "The backend sent us elsewhere, and redirects are not followed.")
_REFUSED = Status(ProviderUnavailable, "The backend refused the request.", settled=True)
_BROKEN = Status(ProviderUnavailable, "The backend failed.")
_ODD = Status(ProviderUnavailable, "The backend answered with a status that means nothing here.")


def status_row(status: int, rows: Mapping[int, Status]) -> Status:
    """The row of a status that is not a success."""
    if status in rows:
        return rows[status]
    match status // 100:
        case 3:
            return _SEE_OTHER if status == 303 else _REDIRECT  # 303 is sent after a POST that was carried out
        case 4:
            return _REFUSED
        case 5:
            return _BROKEN
        case _:
            return _ODD


@dataclass(frozen=True)
class Trouble:
    """`sent`: False when nothing of the request can have reached the backend."""

    message: str
    sent: bool
    ours: bool = False
    """A fault in how we used the client, not of the backend."""


_UNREACHED = Trouble("The backend could not be reached.", sent=False)
_NO_CONNECTION = Trouble("The backend could not be reached in time.", sent=False)
_BUSY = Trouble("No connection to the backend became free in time.", sent=False)
_LOST = Trouble("The connection to the backend broke before its answer was read.", sent=True)
_LATE = Trouble("The backend did not answer in time.", sent=True)
_GARBLED = Trouble("The backend's answer was cut off or is not HTTP.", sent=True)
_MISUSED = Trouble("Our adapter could not make the call.", sent=True, ours=True)
EXCEPTIONS: Final[Mapping[str, Trouble]] = {
    "HTTPError": _LOST,
    "RequestError": _LOST,
    "TransportError": _LOST,
    "TimeoutException": _LATE,
    "ConnectTimeout": _NO_CONNECTION,
    "ReadTimeout": _LATE,
    "WriteTimeout": _LATE,
    "PoolTimeout": _BUSY,
    "NetworkError": _LOST,
    "ConnectError": _UNREACHED,
    "ReadError": _LOST,
    "WriteError": _LOST,
    "CloseError": _LOST,
    "ProtocolError": _GARBLED,
    "LocalProtocolError": _MISUSED,
    "RemoteProtocolError": _GARBLED,
    "ProxyError": _UNREACHED,
    "UnsupportedProtocol": Trouble("The endpoint's protocol is not supported.", sent=False),
    "DecodingError": _GARBLED,
    "TooManyRedirects": _LOST,
    "HTTPStatusError": _LOST,
    "InvalidURL": Trouble("The call's address is not a URL.", sent=False, ours=True),
    "CookieConflict": _MISUSED,
    "StreamError": _MISUSED,
    "StreamConsumed": _MISUSED,
    "StreamClosed": _MISUSED,
    "ResponseNotRead": _MISUSED,
    "RequestNotRead": _MISUSED,
}
"""Every exception of httpx by its name, so that reading the table does not load httpx."""


def trouble(error: Exception) -> Trouble:
    return next((EXCEPTIONS[base.__name__] for base in type(error).__mro__ if base.__name__ in EXCEPTIONS), _MISUSED)


def unanswered(
    found: Trouble, *, mutates: bool, lost: type[BackendError] = ProviderUnavailable, **details: Detail
) -> BackendError:
    """The error of a call that got no answer. `lost` is what an unknown outcome is called for this operation."""
    settled = not (found.sent and mutates)
    if found.ours:
        return AdapterFault(found.message, settled=settled, **details)
    return unavailable(found.message, settled=settled, lost=lost, **details)


def unavailable(
    message: str, *, settled: bool, lost: type[BackendError] = ProviderUnavailable, **details: Detail
) -> BackendError:
    if settled:
        return ProviderUnavailable(message, settled=True, **details)
    return lost(message, settled=False, **details)


def refused(
    row: Status, *, mutates: bool, lost: type[BackendError] = ProviderUnavailable, **details: Detail
) -> DifferentlyError:
    """The error of a call that was answered with a status of failure."""
    settled = row.settled if row.settled is not None else not mutates
    if row.error is ProviderUnavailable:
        return unavailable(row.message, settled=settled, lost=lost, **details)
    if issubclass(row.error, BackendError):
        return row.error(row.message, settled=settled, **details)
    return row.error(row.message, **details)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that the backend asks us to wait: from a number or a date, under the usual name or one with a suffix."""
    names = [name for name in headers if name.lower().startswith("retry-after")]
    if not names:
        return None
    text = headers[min(names, key=len)].strip()
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text):
        seconds = float(text)
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
        seconds = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)


Told = Callable[[JsonValue], str | None]


def told_in(body: JsonValue) -> str | None:
    """What an error body says, in the places where such bodies say it."""
    match body:
        case str():
            return body
        case {"error": (dict() | str()) as inner}:
            return told_in(inner)
        case {"message": str(text)} | {"detail": str(text)} | {"title": str(text)} | {"reason": str(text)}:
            return text
        case _:
            return None


def error_inside(body: JsonValue) -> str | None:
    """What an answer with a status of success says went wrong, or None when it says nothing of the kind."""
    if isinstance(body, dict) and body.get("error"):
        return told_in(body) or "error"
    return None


def excerpt(text: str) -> str:
    """One short line without control characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= EXCERPT_CHARACTERS_MAX else f"{line[:EXCERPT_CHARACTERS_MAX]}…"
