"""What sandboxes used: intervals of counted time, each with the price that was in force when it began.

A sandbox is counted from its admission until its organization's quota has it back, and at rest while its pool has a
price for that. The record says since when (`Meter`); the write that ends or changes the counting puts one immutable
`Interval` beside it. So nothing has to run while a sandbox runs, and an interval begins at the very instant at which
the one before it ended. Amounts are whole numbers: money in millionths of the currency, never a float.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict

from ..runtime.ids import KeyId, OrgId, ProjectId, SandboxId
from .due import stamp
from .pool import CostModel
from .record import Key, Record, Table
from .resources import Size

MICRO = 1_000_000
_HOUR_MICROSECONDS = 3_600_000_000


class Price(BaseModel):
    """A pool's prices in force when counting began: millionths of the currency for an hour."""

    model_config = ConfigDict(frozen=True)

    currency: str
    cpu_hour: int = 0
    memory_gib_hour: int = 0
    kept_hour: int | None = None
    """For one sandbox at rest; None: that is not counted."""

    @classmethod
    def of(cls, cost: CostModel) -> Self | None:
        """None where nothing is known of what the pool costs."""
        if not cost.known:
            return None
        return cls(
            currency=cost.currency, cpu_hour=_micros(cost.cpu_hour), memory_gib_hour=_micros(cost.memory_gib_hour),
            kept_hour=None if cost.kept_hour is None else _micros(cost.kept_hour),
        )  # fmt: skip


def _micros(amount: float | None) -> int:
    return round((amount or 0.0) * MICRO)


class Meter(BaseModel):
    """Since when a sandbox is counted, where, and at what price (None: unknown)."""

    model_config = ConfigDict(frozen=True)

    since: datetime
    pool: str
    kept: bool = False
    """Counted as one at rest: for its price alone, no processor and no memory."""
    price: Price | None = None


@dataclass(frozen=True)
class Amounts:
    """Sums over intervals. Times are milliseconds of a sandbox, of a CPU, of a MiB; `cost` is millionths."""

    sandbox_ms: int = 0
    cpu_ms: int = 0
    memory_mib_ms: int = 0
    kept_ms: int = 0
    cost: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(*(getattr(self, name) + getattr(other, name) for name in AMOUNTS))

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(*(getattr(self, name) - getattr(other, name) for name in AMOUNTS))


AMOUNTS = tuple(field.name for field in fields(Amounts))


class Interval(Record):
    """Counted time of one sandbox, from `since` to `until`, with everything that usage can be asked by.

    `labels` are those of its end.
    """

    kind: ClassVar[str] = "interval"
    table: ClassVar[Table] = Table.LOG
    native: ClassVar[tuple[str, ...]] = ("org",)

    org: OrgId
    project: ProjectId
    sandbox: SandboxId
    pool: str
    key_id: KeyId
    labels: dict[str, str] = {}
    cpu_millis: int = 0
    memory_mib: int = 0
    since: datetime
    until: datetime
    kept: bool = False
    price: Price | None = None

    def key(self) -> Key:
        """By its end: two of one sandbox never end at the same time, as an empty one is not written."""
        return Key(Table.LOG, interval_partition(self.org), f"{stamp(self.until)}#{self.sandbox}")

    @property
    def currency(self) -> str | None:
        return None if self.price is None else self.price.currency

    def within(self, begin: datetime, end: datetime) -> Amounts:
        """What of it lies between the two. Parts that meet add up to the whole, to the last millionth."""
        begin, end = max(begin, self.since), min(end, self.until)
        return self._up_to(end) - self._up_to(begin) if begin < end else Amounts()

    def days(self) -> list[date]:
        """The days, in UTC, that it touches."""
        last = (self.until - timedelta(microseconds=1)).date()
        return [self.since.date() + timedelta(days=n) for n in range((last - self.since.date()).days + 1)]

    def _up_to(self, end: datetime) -> Amounts:
        elapsed = (end - self.since) // timedelta(microseconds=1)
        if self.kept:
            return Amounts(kept_ms=elapsed // 1000, cost=elapsed * self._kept_hour // _HOUR_MICROSECONDS)
        return Amounts(
            sandbox_ms=elapsed // 1000,
            cpu_ms=elapsed * self.cpu_millis // 1_000_000,
            memory_mib_ms=elapsed * self.memory_mib // 1000,
            cost=elapsed * scaled_hour(self.price, self.cpu_millis, self.memory_mib) // (SCALE * _HOUR_MICROSECONDS),
        )

    @property
    def _kept_hour(self) -> int:
        return 0 if self.price is None else self.price.kept_hour or 0


SCALE = 1000 * 1024
"""Thousandths of a processor and MiB of a GiB, so that an hour's price stays a whole number."""


def scaled_hour(price: Price | None, cpu_millis: int, memory_mib: int) -> int:
    """What an hour of this size costs, in millionths of the currency times `SCALE`."""
    if price is None:
        return 0
    return price.cpu_hour * cpu_millis * 1024 + price.memory_gib_hour * memory_mib * 1000


def cost_of(price: Price | None, size: Size, time: timedelta) -> int:
    """What this size costs for so long, rounded up to a millionth: for what is promised, not for what was used."""
    elapsed = time // timedelta(microseconds=1)
    return -(-elapsed * scaled_hour(price, size.cpu_millis, size.memory_mib) // (SCALE * _HOUR_MICROSECONDS))


def interval_partition(org: str) -> str:
    return f"USE#{org}"


class Sums(Record):
    """What a family of roll-ups shares: amounts, and what they are sums of. Times are as in `Amounts`."""

    table: ClassVar[Table] = Table.STATE

    org: OrgId
    project: ProjectId
    currency: str | None = None
    """None: of pools without prices, so `cost` says nothing."""
    sandbox_ms: int = 0
    cpu_ms: int = 0
    memory_mib_ms: int = 0
    kept_ms: int = 0
    cost: int = 0

    @property
    def amounts(self) -> Amounts:
        return Amounts(*(getattr(self, name) for name in AMOUNTS))

    def plus(self, amounts: Amounts) -> Self:
        return self.with_(**{name: getattr(self, name) + getattr(amounts, name) for name in AMOUNTS})


class DaySum(Sums):
    """A day (`2026-11-01`, UTC) of one project, pool and key."""

    kind: ClassVar[str] = "usage_day"

    day: str
    pool: str
    key_id: KeyId

    def key(self) -> Key:
        name = f"{self.day}#{self.project}#{self.pool}#{self.key_id}#{self.currency or ''}"
        return Key(Table.STATE, sum_partition(self.org), f"{DAYS}{name}")


class LabelSum(Sums):
    """A day of one project and set of labels."""

    kind: ClassVar[str] = "usage_labels"

    day: str
    labels: dict[str, str] = {}

    def key(self) -> Key:
        text = json.dumps(self.labels, sort_keys=True, separators=(",", ":"))
        name = f"{self.project}#{self.day}#{hashlib.sha256(text.encode()).hexdigest()[:32]}#{self.currency or ''}"
        return Key(Table.STATE, sum_partition(self.org), f"{LABELS}{name}")


class MonthSum(Sums):
    """A month of one project, for budgets; `month` is as in `2026-11`."""

    kind: ClassVar[str] = "usage_month"

    month: str

    def key(self) -> Key:
        name = f"{self.month}#{self.project}#{self.currency or ''}"
        return Key(Table.STATE, sum_partition(self.org), f"{MONTHS}{name}")


DAYS, LABELS, MONTHS = "D#", "L#", "M#"
"""The families of an organization's sums, one after the other in one partition."""


def sum_partition(org: str) -> str:
    return f"USAGE#{org}"


class RolledUp(Record):
    """How far an organization's intervals are in its sums: each of them exactly once.

    Everything up to the interval `after`, and of the one behind it the days up to `days_until`.
    """

    kind: ClassVar[str] = "rolled_up"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("version",)

    org: OrgId
    after: str | None = None
    days_until: str | None = None
    version: int = 0

    @staticmethod
    def key_of(org: str) -> Key:
        return Key(Table.STATE, "ROLLEDUP", org)

    def key(self) -> Key:
        return self.key_of(self.org)


class UsageRound(Record):
    """Where the pass over organizations is that adds up intervals, and when its round began."""

    kind: ClassVar[str] = "usage_round"
    table: ClassVar[Table] = Table.STATE

    began: datetime
    after: str | None = None
    """The organization that was done last; None once the round is over."""

    @staticmethod
    def key_of() -> Key:
        return Key(Table.STATE, "USAGEROUND", "META")

    def key(self) -> Key:
        return self.key_of()
