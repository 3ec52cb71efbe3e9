"""Counters of free tokens, and the limits they come from.

A counter holds what is *free*, so one condition (`free >= need`) admits exactly. Lowering a limit may push it below
zero: that blocks admission and ends nothing. `waiting` is set by dispatch while somebody waits for this counter, and
makes later creates queue behind instead of overtaking.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from .record import Key, Record, Table
from .resources import DIMENSIONS, UNLIMITED, Size


class Scope(StrEnum):
    ORG = "org"
    PROJECT = "project"
    POOL = "pool"


class Counter(Record):
    kind: ClassVar[str] = "counter"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = (
        *(f"free_{name}" for name in DIMENSIONS), *(f"limit_{name}" for name in DIMENSIONS), "free_retained",
        "limit_retained", "waiting", "closed", "moves", "spend_free", "spend_until",
    )  # fmt: skip

    scope: Scope
    name: str
    free_sandboxes: int
    free_cpu_millis: int = UNLIMITED
    free_memory_mib: int = UNLIMITED
    free_disk_gib: int = UNLIMITED
    limit_sandboxes: int
    limit_cpu_millis: int = UNLIMITED
    limit_memory_mib: int = UNLIMITED
    limit_disk_gib: int = UNLIMITED
    free_retained: int = UNLIMITED
    """Of a pool alone: places for what is kept there without running, from the moment it is asked to rest until it runs
    again or is gone."""
    limit_retained: int = UNLIMITED
    waiting: int | None = None
    """Set, to how many, while somebody waits for this counter."""
    closed: str | None = None
    """Set (to why) while nothing new may be admitted: a draining pool, a suspended organization."""

    spend_free: int | None = None
    """What its budget has left to promise this month, in millionths; None where no budget holds anything back."""
    spend_until: int | None = None
    """Seconds since 1970 until which that holds; only where the budget is a hard stop."""
    moves: int = 0
    """Rises with every charge and every giving back, so that whoever counts can tell that nothing moved."""

    @staticmethod
    def key_of(scope: Scope, name: str) -> Key:
        return Key(Table.STATE, f"COUNTER#{scope}#{name}", "META")

    def key(self) -> Key:
        return self.key_of(self.scope, self.name)

    @property
    def free(self) -> Size:
        return Size(**{name: getattr(self, f"free_{name}") for name in DIMENSIONS})

    @property
    def limit(self) -> Size:
        return Size(**{name: getattr(self, f"limit_{name}") for name in DIMENSIONS})

    @property
    def held(self) -> Size:
        return self.limit - self.free

    @property
    def retained(self) -> int:
        return self.limit_retained - self.free_retained

    @classmethod
    def of(cls, scope: Scope, name: str, limit: Size, retained: int | None = None) -> Counter:
        """One of which nothing is held; `retained` None is any number."""
        amounts = {f"{side}_{key}": getattr(limit, key) for side in ("free", "limit") for key in DIMENSIONS}
        places = UNLIMITED if retained is None else retained
        return cls.model_validate(
            {"scope": scope, "name": name, "free_retained": places, "limit_retained": places, **amounts}
        )


class Limits(BaseModel):
    """What an organization or project may hold at once (`total`) and ask for one sandbox (`each`)."""

    model_config = ConfigDict(frozen=True)

    total: Size = Size(sandboxes=100, cpu_millis=UNLIMITED, memory_mib=UNLIMITED, disk_gib=UNLIMITED)
    each: Size = Size(sandboxes=1, cpu_millis=64_000, memory_mib=262_144, disk_gib=2_048)
    ttl_seconds_max: int = 7 * 24 * 3600
    queued_max: int = 10_000
    """Of an organization without `backlog_max`: a guard, at which it begins to be refused."""
    snapshots_max: int = 100
    snapshot_gib_max: int = UNLIMITED
    backlog_max: int | None = None
    """So many may wait, exactly; None sets no bound."""
