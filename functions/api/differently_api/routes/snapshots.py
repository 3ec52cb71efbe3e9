"""Snapshots: copies of sandboxes that outlive them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from differently_core.errors import (
    IdempotencyConflict,
    InvalidState,
    NotFound,
    QuotaExceeded,
    Suspended,
    UnsupportedOperation,
)
from differently_core.model.record import Wire
from differently_core.model.snapshot import SnapshotStatus
from differently_core.operations import snapshots
from differently_core.operations.snapshots import SnapshotView, TakeSnapshot

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .sandboxes import idempotency_key


def take_snapshot(call: Call[TakeSnapshot, NoQuery]) -> Answer:
    taken = snapshots.take(call.core, call.caller, call.params["id"], call.body, idempotency_key(call.request))
    headers = {"Content-Type": JSON, "Location": f"/v1/snapshots/{taken.snapshot}"}
    if taken.replayed:
        headers["Idempotent-Replayed"] = "true"
    facts: dict[str, str | int | bool] = {"snapshotId": taken.snapshot, "replayed": taken.replayed}
    return Answer(200 if taken.replayed else 202, taken.body, headers, facts)


class ListSnapshots(Wire):
    project_id: str | None = None
    """Needed with an operator's key."""
    sandbox_id: str | None = None
    """Only those taken of it, also after it has ended."""
    status: Annotated[list[SnapshotStatus], Field(max_length=len(SnapshotStatus))] = []
    """Repeatable. Without it every one is listed."""
    limit: Annotated[int, Field(ge=1, le=snapshots.LIST_LIMIT_MAX)] = snapshots.LIST_LIMIT_DEFAULT
    cursor: str | None = None
    """`nextCursor` of the page before, with the same filters."""


class SnapshotPage(Wire):
    items: list[SnapshotView]
    next_cursor: str | None = None
    """Absent on the last page. A page may be short, even empty, and still have one."""


def list_snapshots(call: Call[NoBody, ListSnapshots]) -> SnapshotPage:
    asked = call.query
    query = snapshots.SnapshotQuery(
        asked.project_id, asked.sandbox_id, frozenset(asked.status), asked.limit, asked.cursor
    )
    found, cursor = snapshots.list_snapshots(call.core, call.caller, query)
    operator = call.caller.operator
    return SnapshotPage(items=[SnapshotView.of(entry, operator=operator) for entry in found], next_cursor=cursor)


def get_snapshot(call: Call[NoBody, NoQuery]) -> SnapshotView:
    found = snapshots.find_snapshot(call.core, call.caller, call.params["snapshot"])
    return SnapshotView.of(found, operator=call.caller.operator)


def delete_snapshot(call: Call[NoBody, NoQuery]) -> SnapshotView:
    going = snapshots.delete(call.core, call.caller, call.params["snapshot"])
    return SnapshotView.of(going, operator=call.caller.operator)


ROUTES = (
    Route(
        Method.POST, "/v1/sandboxes/{id}/snapshots", Group.CONTROL, Access.TENANT, take_snapshot,
        "Take a snapshot", TakeSnapshot, NoQuery, SnapshotView, 202, also=(200,),
        errors=(Suspended, InvalidState, QuotaExceeded, UnsupportedOperation, IdempotencyConflict),
        request_headers={
            "Idempotency-Key": "1 to 255 visible ASCII characters that name this snapshot as long as it can be read. A "
            "repeat of the call answers 200 with the first answer and `Idempotent-Replayed: true`."
        },
        description="Accepted while the sandbox is running, and a disk snapshot also while it is stopped. It is "
        "`creating` until the pool has it; then it is `ready`, or `failed` with the reason.",
    ),
    Route(
        Method.GET, "/v1/snapshots", Group.CONTROL, Access.TENANT, list_snapshots,
        "List snapshots, newest first", NoBody, ListSnapshots, SnapshotPage, errors=(NotFound,),
    ),
    Route(
        Method.GET, "/v1/snapshots/{snapshot}", Group.CONTROL, Access.TENANT, get_snapshot,
        "Read a snapshot", NoBody, NoQuery, SnapshotView,
        description="`broken`: the pool lost it, and nothing can be made from it any more.",
    ),
    Route(
        Method.DELETE, "/v1/snapshots/{snapshot}", Group.CONTROL, Access.TENANT, delete_snapshot,
        "Delete a snapshot", NoBody, NoQuery, SnapshotView, 202,
        description="Accepted in every state and final. It counts against quotas until the pool has removed it, which "
        "is asked for until it has; then it cannot be read any more. What is being made from it is finished first.",
    ),
)  # fmt: skip
