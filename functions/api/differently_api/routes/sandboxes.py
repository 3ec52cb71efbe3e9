"""Sandboxes: create, list, read, change, delete, and wait for one."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from differently_core.errors import (
    BudgetExceeded,
    IdempotencyConflict,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    LimitExceeded,
    NoEligiblePool,
    NotFound,
    QueueFull,
    QuotaExceeded,
    Suspended,
    UnsupportedCapability,
    UnsupportedOperation,
)
from differently_core.model.record import Wire
from differently_core.model.sandbox import Sandbox, Status
from differently_core.operations import sandboxes
from differently_core.operations.create import IDEMPOTENCY_KEY_MAX, Created
from differently_core.operations.create import create as create_operation
from differently_core.operations.forking import ForkSandbox
from differently_core.operations.forking import fork as fork_operation
from differently_core.operations.requests import CreateSandbox, Deletion, SandboxView, UpdateSandbox

from ..failures import JSON
from ..proxy import Request
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from ..streams import first_then, waited

WAIT_SECONDS_DEFAULT = 60
DEADLINE_MARGIN_SECONDS = 10.0
LABEL_FILTERS_MAX = 32
_VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")


def idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and (len(key) > IDEMPOTENCY_KEY_MAX or not _VISIBLE_ASCII.fullmatch(key)):
        raise InvalidRequest(
            f"Idempotency-Key must be 1 to {IDEMPOTENCY_KEY_MAX} visible ASCII characters.", field="Idempotency-Key"
        )
    return key


def create_sandbox(call: Call[CreateSandbox, NoQuery]) -> Answer:
    key = idempotency_key(call.request)
    return _created(create_operation(call.core, call.caller, call.body, key))


def _created(made: Created) -> Answer:
    headers = {"Content-Type": JSON, "Location": f"/v1/sandboxes/{made.sandbox}"}
    if made.replayed:
        headers["Idempotent-Replayed"] = "true"
    facts: dict[str, str | int | bool] = {"sandboxId": made.sandbox, "replayed": made.replayed}
    return Answer(200 if made.replayed else 202, made.body, headers, facts)


def fork_sandbox(call: Call[ForkSandbox, NoQuery]) -> Answer:
    key = idempotency_key(call.request)
    return _created(fork_operation(call.core, call.caller, call.params["id"], call.body, key))


def _label_filter(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not key or not equals:
        raise ValueError("a label filter is key=value")
    return text


class ListSandboxes(Wire):
    project_id: str | None = None
    """Needed with an operator's key."""
    status: Annotated[list[Status], Field(max_length=len(Status))] = []
    """Repeatable. Without it every live sandbox is listed."""
    label: Annotated[list[Annotated[str, AfterValidator(_label_filter)]], Field(max_length=LABEL_FILTERS_MAX)] = []
    """`key=value`, repeatable; all must match."""
    ended: bool = False
    """Also those that are going or gone, after the live ones."""
    idempotency_key: Annotated[str, Field(min_length=1, max_length=IDEMPOTENCY_KEY_MAX)] | None = None
    """The one live sandbox that this `Idempotency-Key` names, if there is one."""
    limit: Annotated[int, Field(ge=1, le=sandboxes.LIST_LIMIT_MAX)] = sandboxes.LIST_LIMIT_DEFAULT
    cursor: str | None = None
    """`nextCursor` of the page before, with the same filters."""


class SandboxPage(Wire):
    items: list[SandboxView]
    next_cursor: str | None = None
    """Absent on the last page. A page may be short, even empty, and still have one."""


def list_sandboxes(call: Call[NoBody, ListSandboxes]) -> SandboxPage:
    asked = call.query
    query = sandboxes.ListQuery(
        project=asked.project_id,
        statuses=frozenset(asked.status),
        labels=_labels(asked.label),
        ended=asked.ended,
        key=asked.idempotency_key,
        limit=asked.limit,
        cursor=asked.cursor,
    )
    page = sandboxes.list_sandboxes(call.core, call.caller, query)
    return SandboxPage(
        items=[sandboxes.view(call.caller, sandbox) for sandbox in page.items], next_cursor=page.next_cursor
    )


def _labels(filters: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in filters:
        key, _, value = text.partition("=")
        if found.setdefault(key, value) != value:
            raise InvalidRequest(f"label: asks two values of {key[:64]}; no sandbox has both.", field="label")
    return found


def get_sandbox(call: Call[NoBody, NoQuery]) -> SandboxView:
    return sandboxes.view(call.caller, sandboxes.find(call.core, call.caller, call.params["id"]))


def update_sandbox(call: Call[UpdateSandbox, NoQuery]) -> SandboxView:
    return sandboxes.view(call.caller, sandboxes.update(call.core, call.caller, call.params["id"], call.body))


def delete_sandbox(call: Call[NoBody, NoQuery]) -> Deletion:
    return sandboxes.delete(call.core, call.caller, call.params["id"])


class WaitQuery(Wire):
    target: Annotated[list[Status], Field(alias="for", min_length=1, max_length=len(Status))] = [Status.RUNNING]
    """Repeatable: any of them ends the wait. A sandbox that is gone ends it too."""
    timeout_seconds: Annotated[int, Field(ge=0, le=sandboxes.WAIT_SECONDS_MAX)] = WAIT_SECONDS_DEFAULT


def wait_for_sandbox(call: Call[NoBody, WaitQuery]) -> Answer:
    seconds = float(call.query.timeout_seconds)
    if call.request.seconds_left is not None:
        seconds = min(seconds, max(0.0, call.request.seconds_left - DEADLINE_MARGIN_SECONDS))
    looks = first_then(sandboxes.wait(call.core, call.caller, call.params["id"], frozenset(call.query.target), seconds))

    def show(found: Sandbox) -> str:
        return sandboxes.view(call.caller, found).model_dump_json(by_alias=True, exclude_none=True)

    return Answer(200, waited(looks, call.core.clock, show, call.request.id), {"Content-Type": JSON})


ROUTES = (
    Route(
        Method.POST, "/v1/sandboxes", Group.CONTROL, Access.TENANT, create_sandbox,
        "Create a sandbox", CreateSandbox, NoQuery, SandboxView, 202, also=(200,),
        errors=(
            NotFound, Suspended, BudgetExceeded, LimitExceeded, NoEligiblePool, UnsupportedCapability, QuotaExceeded,
            QueueFull,
            InsufficientCapacity, IdempotencyConflict, InvalidState,
        ),
        request_headers={
            "Idempotency-Key": "1 to 255 visible ASCII characters that name this sandbox while it lives. A repeat with "
            "the same body answers 200 with the first answer and `Idempotent-Replayed: true`; with another body 409."
        },
        description="Accepted sandboxes start at once or wait in the queue; wait for `running` to use one. With "
        "`queueTimeoutSeconds: 0` what cannot start now is refused instead.",
    ),
    Route(
        Method.GET, "/v1/sandboxes", Group.CONTROL, Access.TENANT, list_sandboxes,
        "List sandboxes, newest first", NoBody, ListSandboxes, SandboxPage, errors=(NotFound,),
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}", Group.CONTROL, Access.TENANT, get_sandbox,
        "Read a sandbox", NoBody, NoQuery, SandboxView,
        description="One that has ended stays readable for 30 days.",
    ),
    Route(
        Method.PATCH, "/v1/sandboxes/{id}", Group.CONTROL, Access.TENANT, update_sandbox,
        "Change labels or lifetime", UpdateSandbox, NoQuery, SandboxView, errors=(InvalidState, LimitExceeded),
        description="A new `ttlSeconds` counts from now. Labels are replaced as a whole.",
    ),
    Route(
        Method.DELETE, "/v1/sandboxes/{id}", Group.CONTROL, Access.TENANT, delete_sandbox,
        "Delete a sandbox", NoBody, NoQuery, Deletion, 202,
        description="Accepted in every state and final; repeating it is success.",
    ),
    Route(
        Method.POST, "/v1/sandboxes/{id}/fork", Group.CONTROL, Access.TENANT, fork_sandbox,
        "Fork a sandbox", ForkSandbox, NoQuery, SandboxView, 202, also=(200,),
        errors=(
            Suspended, BudgetExceeded, InvalidState, LimitExceeded, NoEligiblePool, UnsupportedCapability,
            UnsupportedOperation, QuotaExceeded, IdempotencyConflict,
        ),
        request_headers={
            "Idempotency-Key": "1 to 255 visible ASCII characters that name the new sandbox while it lives. A repeat "
            "answers 200 with the first answer and `Idempotent-Replayed: true`."
        },
        description="A new sandbox that starts from what this one is now, on the same pool. It is `queued` until that "
        "is captured and there is room, and `failed` when it cannot be captured. The snapshot behind it counts against "
        "quotas as long as it is there, and goes by itself.",
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}/wait", Group.DATA, Access.TENANT, wait_for_sandbox,
        "Wait until a sandbox is in a state", NoBody, WaitQuery, SandboxView, waits=True,
        description="Answers with the sandbox when it is in the state, gone, or time is up: look at `status`. Until "
        "then the body begins with white space, a blank at least every 15 seconds.",
    ),
)  # fmt: skip
