"""Budgets: how much an organization or project may spend in a calendar month (UTC), and what happens near the end.

Money is in millionths of the budget's currency. What runs on pools with prices in another currency, or without any, is
not counted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from ..runtime.ids import OrgId, ProjectId
from .record import Key, Record, Table

THRESHOLDS = (50, 80, 100)


class BudgetAction(StrEnum):
    ALERT = "alert"
    """Events alone."""
    QUEUE = "queue"
    """What would go beyond it waits in the queue."""
    PAUSE = "pause"
    """The same; and once it is spent, what runs is put to rest."""
    STOP = "stop"
    """What would go beyond it is refused; and once it is spent, what runs is stopped, or ended where it cannot be."""


class Budget(Record):
    """`scope` is the id of the organization or project."""

    kind: ClassVar[str] = "budget"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version",)

    scope: str
    org: OrgId
    project: ProjectId | None = None
    limit: int
    currency: str = "USD"
    thresholds: tuple[int, ...] = THRESHOLDS
    """In percent of the limit; each is told once a month when what is projected reaches it."""
    action: BudgetAction = BudgetAction.ALERT
    version: int = 1
    updated_at: datetime
    updated_by: str = ""

    @staticmethod
    def key_of(scope: str) -> Key:
        return Key(Table.CONFIG, "BUDGETS", scope)

    def key(self) -> Key:
        return self.key_of(self.scope)


class Spend(Record):
    """How a budget stood when it was last looked at. `projected` is what is spent, and what runs may still cost."""

    kind: ClassVar[str] = "spend"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("version",)

    scope: str
    month: str
    spent: int = 0
    projected: int = 0
    told: tuple[int, ...] = ()
    """Thresholds of this month that were told."""
    uncounted: bool = False
    """Something ran, or runs, at a price that is unknown or in another currency."""
    at: datetime
    version: int = 1

    @staticmethod
    def key_of(scope: str) -> Key:
        return Key(Table.STATE, "SPENDS", scope)

    def key(self) -> Key:
        return self.key_of(self.scope)


def month_of(at: datetime) -> tuple[datetime, datetime]:
    """The calendar month in UTC that a moment lies in: its beginning, and that of the next."""
    begin = at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return begin, (begin + timedelta(days=32)).replace(day=1)


def crossed(budget: Budget, projected: int, told: tuple[int, ...]) -> tuple[int, ...]:
    """Thresholds that are reached and were not told yet."""
    return tuple(level for level in budget.thresholds if level not in told and projected * 100 >= level * budget.limit)
