"""Their refusals as our errors: by error code where one means more than its HTTP status, else by the status."""

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
    SandboxFailed,
    UnsupportedOperation,
)

from ...execd.refusals import said
from ...http import STATUSES, BadAnswer, Call, Status
from ...http.failures import refused, status_row

_NOT_OFFERED: Final = Status(UnsupportedOperation, "This installation of OpenSandbox does not offer that.")

BY_CODE: Final[Mapping[str, Status]] = {
    # Create. The server removes what it could not bring up, but its word for that is only the status.
    "SANDBOX_IMAGE_PULL_FAILED": Status(SandboxFailed, "The image could not be pulled.", settled=True),
    "POD_READY_TIMEOUT": Status(SandboxFailed, "The sandbox was not ready in time.", settled=False),
    "POD_FAILED": Status(SandboxFailed, "The sandbox's pod failed.", settled=False),
    "QUOTA_EXCEEDED": Status(InsufficientCapacity, "The quota of OpenSandbox's namespace is used up.", settled=True),
    "POOL_CAPACITY_EXHAUSTED": Status(InsufficientCapacity, "The pool of warm pods is empty.", settled=True),
    # The pool's own configuration names something that is not there: no sandbox is to blame.
    "POOL_NOT_FOUND": Status(ProviderUnavailable, "OpenSandbox has no pool of the name in poolRef.", settled=True),
    "TEMPLATE_NOT_FOUND": Status(ProviderUnavailable, "OpenSandbox has no template as in templateId.", settled=True),
    "UNSUPPORTED_POOL_REF": Status(ProviderUnavailable, "This runtime of OpenSandbox has no pools.", settled=True),
    # "Not found" that does not say that the sandbox is gone.
    "POD_IP_NOT_AVAILABLE": Status(ProviderUnavailable, "The sandbox has no address at present.", settled=True),
    # What this installation of OpenSandbox cannot do, in the words of several services.
    "API_NOT_SUPPORTED": _NOT_OFFERED,
    "POOL_NOT_SUPPORTED": _NOT_OFFERED,
    "UNSUPPORTED_RUNTIME": _NOT_OFFERED,
    "NOT_IMPLEMENTED": _NOT_OFFERED,
    "RUNTIME_PREFLIGHT_FAILED": Status(SandboxFailed, "The sandbox has no pod to be captured from.", settled=True),
}
"""Keyed by what follows `::`; what precedes it names the runtime and differs between them."""

_KEY_REFUSED: Final = Status(ProviderUnavailable, "OpenSandbox refused the API key.", settled=True)
BY_STATUS: Final[Mapping[int, Status]] = {
    **STATUSES,
    400: Status(InvalidRequest, "OpenSandbox refused the request as wrong."),
    401: _KEY_REFUSED,
    403: _KEY_REFUSED,
    404: Status(NotFound, "OpenSandbox does not have it."),
    405: _NOT_OFFERED,
    409: Status(InvalidState, "OpenSandbox cannot do this in the present state."),
    413: Status(InvalidRequest, "OpenSandbox refused the request as too large."),
    415: Status(InvalidRequest, "OpenSandbox refused the request as wrong."),
    422: Status(InvalidRequest, "OpenSandbox refused the request as wrong."),
    501: _NOT_OFFERED,
}


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError:
    """The error for a refused call, to the lifecycle server or through it."""
    told = body if isinstance(body, dict) else {}
    row = BY_CODE.get(_code(told)) or status_row(status, BY_STATUS)
    details = {"status": status, **said(call, told), **_rule_broken(told)}
    if status in {401, 403}:
        details.pop("provider_message", None)  # it is likely to quote the key
    if _code(told) == "NOT_FOUND" and call.method == "POST":  # a snapshot to restore, perhaps on another replica
        details["missing"] = "snapshot"
    return refused(row, mutates=call.changes, lost=call.lost, **details)


def _code(told: Mapping[str, JsonValue]) -> str:
    """The error code without the runtime's name."""
    code = told.get("code")
    return code.rpartition("::")[2] if isinstance(code, str) else ""


def _rule_broken(told: Mapping[str, JsonValue]) -> dict[str, Detail]:
    """Of a validation error the place and the rule; what else it holds is a copy of the request."""
    match told.get("detail"):
        case [{"loc": list(place), "msg": str(rule)}, *_]:
            return {"provider_message": f"{'.'.join(str(part) for part in place)}: {rule}"}
        case _:
            return {}


def not_a_page(headers: Mapping[str, str]) -> None:
    """Raise for what is meant for people: a gateway's page says nothing about a sandbox, whatever its status."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() == "text/html":
        raise BadAnswer("OpenSandbox answered with a page instead of data; something stands in front of it.")
