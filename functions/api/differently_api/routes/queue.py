"""The queue: who waits, for what and since when."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from differently_core.model.record import Wire
from differently_core.operations import waiting
from differently_core.operations.core import Core

from ..route import Access, Call, Group, Method, NoBody, Route
from .paging import PageQuery, next_cursor


class QueueEntry(Wire):
    sandbox: str
    org: str
    project: str
    position: int
    """From 1, within the organization: higher priorities first, then the older. It is not the order between
    organizations, which take turns by what each holds."""
    priority: int
    wakes: bool
    """True for one that was stopped or paused and is to run again."""
    since: datetime | None = None
    age_seconds: float
    not_before: datetime | None = None
    reason: waiting.Why
    detail: str | None = None
    """Such as the pools that have no room: `main: full`."""

    @classmethod
    def of(cls, core: Core, entry: waiting.Waiter) -> Self:
        row = entry.row
        return cls(
            sandbox=row.sandbox, org=row.org, project=row.project, position=entry.position, priority=row.priority,
            wakes=row.wakes_on is not None, since=row.since, age_seconds=waiting.age_seconds(row, core.clock.now()),
            not_before=row.not_before, reason=entry.why, detail=entry.detail or None,
        )  # fmt: skip


class QueuePage(Wire):
    items: list[QueueEntry]
    next_cursor: str | None = None
    """Absent on the last page. A page may be short, even empty, and still have one."""


def list_queue(call: Call[NoBody, PageQuery]) -> QueuePage:
    who = call.caller.project or "operator"
    after = call.query.after(call.core, "queue", who)
    found, position = waiting.list_waiting(call.core, call.caller, after, call.query.limit)
    return QueuePage(
        items=[QueueEntry.of(call.core, entry) for entry in found],
        next_cursor=next_cursor(call.core, position, "queue", who),
    )


ROUTES = (
    Route(
        Method.GET, "/v1/queue", Group.CONTROL, Access.ANY, list_queue,
        "List what waits", NoBody, PageQuery, QueuePage,
        description="With a tenant's key: its project's own. With an operator's key: everybody's, one organization "
        "after the other.",
    ),
)  # fmt: skip
