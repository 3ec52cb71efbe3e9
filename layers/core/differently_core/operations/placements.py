"""Where an organization's sandboxes ran, and by which decision: read off the log, which nobody can change later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ..model.event import Event
from ..model.record import Table
from ..model.sandbox import ACTIVE
from ..runtime.ids import RANDOM_BYTES, OrgId, ProjectId, ulid
from ..store.ports import PAGE_ROWS_MAX
from .core import Core

PAGES_MAX: Final = 20
"""Read for one answer; one that found little has a cursor all the same."""
ADMITS: Final = frozenset({"sandbox.create", "sandbox.admit", "sandbox.start", "sandbox.resume"})
_ACTIVE: Final = frozenset(status.value for status in ACTIVE)


@dataclass(frozen=True)
class Placement:
    """`event` is the row of the log that holds the decision: who made it, when, and at whose request."""

    event: Event

    @property
    def decision(self) -> str:
        """`create`: at once; `admit`: out of the queue; `start` and `resume`: woken, to the pool that kept it."""
        return self.event.action.partition(".")[2]


@dataclass(frozen=True)
class Page:
    items: tuple[Placement, ...]
    next: str | None


def placements(
    core: Core, org: OrgId, project: ProjectId | None, begin: datetime, end: datetime, after: str | None, limit: int
) -> Page:  # fmt: skip
    """Admissions to pools from `begin` and before `end`, oldest first; `after` is the id of an event."""
    found: list[Placement] = []
    position = after or f"evt_{ulid(max(begin, _EPOCH), bytes(RANDOM_BYTES))}"
    last = f"evt_{ulid(max(end, _EPOCH), bytes(RANDOM_BYTES))}"
    for _ in range(PAGES_MAX):
        page = core.store.query(Table.LOG, f"EVT#{org}", after=position, limit=PAGE_ROWS_MAX)
        for row in page.rows:
            if not isinstance(row, Event) or row.id >= last:
                return Page(tuple(found), None)
            position = row.id
            if _is_admission(row) and project in (None, row.project):
                found.append(Placement(row))
                if len(found) == limit:
                    return Page(tuple(found), position)
        if page.next is None:
            return Page(tuple(found), None)
    return Page(tuple(found), position)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _is_admission(event: Event) -> bool:
    return event.action in ADMITS and event.pool is not None and event.after in _ACTIVE
