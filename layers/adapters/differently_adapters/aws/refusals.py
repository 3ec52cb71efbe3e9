"""AWS's refusals by their code: the same status means one thing here and another there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.errors import (
    Detail,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)

from ..http import STATUSES, Call, Status
from ..http.failures import refused, status_row

_NO_ROOM: Final = Status(InsufficientCapacity, "AWS has no room for it at present.", settled=True)
_QUOTA: Final = Status(InsufficientCapacity, "The account's quota at AWS is used up.", settled=True)
_TOO_FAST: Final = Status(InsufficientCapacity, "AWS was asked too often.", settled=True)
_REJECTED: Final = Status(ProviderUnavailable, "AWS rejected our credentials.", settled=True)
_WRONG: Final = Status(InvalidRequest, "AWS refused the request as wrong.")

BY_CODE: Final[Mapping[str, Status]] = {
    "InsufficientCapacityException": _NO_ROOM,  # comes with status 500
    "ServiceQuotaExceededException": _QUOTA,  # comes with status 402
    "ThrottlingException": _TOO_FAST,
    "TooManyRequestsException": _TOO_FAST,
    "RequestLimitExceeded": _TOO_FAST,
    "AccessDeniedException": Status(ProviderUnavailable, "AWS does not permit this to our role.", settled=True),
    "UnrecognizedClientException": _REJECTED,
    "InvalidClientTokenId": _REJECTED,
    "InvalidSignatureException": _REJECTED,
    "MissingAuthenticationTokenException": _REJECTED,
    "ExpiredTokenException": _REJECTED,
    "ExpiredToken": _REJECTED,
    "ValidationException": _WRONG,
    "InvalidParameterValueException": _WRONG,
    "ResourceNotFoundException": Status(NotFound, "AWS does not have it."),
    "ConflictException": Status(InvalidState, "AWS cannot do this in the present state."),
    "ResourceConflictException": Status(InvalidState, "AWS cannot do this in the present state."),
    "InternalServerException": Status(ProviderUnavailable, "AWS failed."),
    "ServiceException": Status(ProviderUnavailable, "AWS failed."),
}


def code_of(headers: Mapping[str, str], body: JsonValue) -> str:
    """The error's code, without the namespace before it and the address behind it."""
    told: JsonValue = headers.get("x-amzn-errortype")
    if not told and isinstance(body, dict):
        told = body.get("__type") or body.get("code")
    if not isinstance(told, str):
        return ""
    return told.partition(":")[0].rpartition("#")[2][:100]


def refusal(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError:
    """The error of a refused call. `details` keep AWS's code as `reason`."""
    code = code_of(headers, body)
    row = BY_CODE.get(code) or status_row(status, STATUSES)
    details: dict[str, Detail] = {"status": status}
    if code:
        details["reason"] = code
    message = body.get("message") or body.get("Message") if isinstance(body, dict) else None
    # What is said of credentials is likely to quote one.
    if isinstance(message, str) and row is not _REJECTED and call.hide(message):
        details["provider_message"] = call.hide(message)
    return refused(row, mutates=call.changes, lost=call.lost, **details)
