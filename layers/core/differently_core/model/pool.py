"""A pool is one configured backend; its view is what the last probe saw of it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, NewType

from pydantic import Field, JsonValue

from .record import Key, Record, Table, Wire

PoolName = NewType("PoolName", str)
POOL_NAME_PATTERN = r"^[a-z][a-z0-9-]{0,62}$"


PRICE_MAX = 1_000_000


class Trust(StrEnum):
    PRIVATE = "private"
    EXTERNAL = "external"


class CostModel(Wire):
    """Prices of an hour, for estimates only. Without a price for processors and one for memory the cost is unknown;
    with one of the two, the other is taken for free.

    A change counts for what is admitted, put to rest or woken from then on.
    """

    cpu_hour: Annotated[float, Field(ge=0, le=PRICE_MAX)] | None = None
    """Of one virtual CPU that was asked for, whether it is used or not."""
    memory_gib_hour: Annotated[float, Field(ge=0, le=PRICE_MAX)] | None = None
    kept_hour: Annotated[float, Field(ge=0, le=PRICE_MAX)] | None = None
    """Of one sandbox at rest, whatever its size. Absent: nothing is counted while it is stopped or paused."""
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    """ISO 4217. Costs in different currencies are never added; placement compares prices as they stand."""

    @property
    def known(self) -> bool:
        return self.cpu_hour is not None or self.memory_gib_hour is not None


class PoolState(StrEnum):
    ACTIVE = "active"
    DRAINING = "draining"
    """Takes nothing new; what runs in it goes on."""


class Pool(Record):
    """`config` is the adapter's public configuration; `credential` refers to a credential and never holds one.

    `credential_revision` is the revision of the stored secret that is in force here. It changes in the transaction that
    replaces the secret, so whoever reads the pool learns of a rotation without reading anything else.
    """

    kind: ClassVar[str] = "pool"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version",)

    name: str
    adapter: str
    trust: Trust
    region: str | None = None
    max_concurrency: int
    max_retained: int | None = None
    """So many stopped or paused sandboxes it keeps; None is any number."""
    cost_model: CostModel = CostModel()
    config: dict[str, JsonValue] = {}
    credential: str | None = None
    credential_revision: str | None = None
    state: PoolState = PoolState.ACTIVE
    version: int = 1
    created_at: datetime

    @staticmethod
    def key_of(name: str) -> Key:
        return Key(Table.CONFIG, "POOLS", name)

    def key(self) -> Key:
        return self.key_of(self.name)


class PoolView(Record):
    """What the last probe saw. Placement reads it from a short cache; a probe never changes what runs."""

    kind: ClassVar[str] = "pool_view"
    table: ClassVar[Table] = Table.STATE

    name: str
    at: datetime
    healthy: bool
    message: str = ""
    version: str = ""
    isolation: str = ""
    """As the backend, its kind or the pool's configuration says; empty before the first good probe."""
    warnings: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    max_cpu_millis: int = 0
    max_memory_mib: int = 0
    max_disk_gib: int = 0
    templates: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    idles_by_itself: bool = False
    max_lifetime_seconds: int = 0
    lease_seconds: int = 0
    renews: bool = True
    bounded: bool = False
    free_cpu_millis: int = 0
    free_memory_mib: int = 0
    largest_free_cpu_millis: int = 0
    largest_free_memory_mib: int = 0
    full_until: datetime | None = None
    """Set when the backend said that it is full: until then nothing is sent there, then one at a time. None again when
    one of them runs, or after a good probe."""

    def lifetime_seconds(self) -> int:
        """How long it keeps an instance at most; 0 for as long as is asked."""
        lease = 0 if self.renews else self.lease_seconds
        return min((seconds for seconds in (self.max_lifetime_seconds, lease) if seconds), default=0)

    @staticmethod
    def key_of(name: str) -> Key:
        return Key(Table.STATE, "POOLVIEWS", name)

    def key(self) -> Key:
        return self.key_of(self.name)


class PoolPressure(Record):
    """What waits for room in a pool, as the last run of dispatch saw it; sums of what it looked at."""

    kind: ClassVar[str] = "pool_pressure"
    table: ClassVar[Table] = Table.STATE

    name: str
    at: datetime
    waiting: int = 0
    cpu_millis: int = 0
    memory_mib: int = 0
    oldest_at: datetime | None = None

    @staticmethod
    def key_of(name: str) -> Key:
        return Key(Table.STATE, "POOLPRESSURES", name)

    def key(self) -> Key:
        return self.key_of(self.name)


class PoolCount(Record):
    """When what a pool holds was last counted again, so that one of those that come by does it."""

    kind: ClassVar[str] = "pool_count"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("at",)

    pool: str
    at: datetime

    @staticmethod
    def key_of(pool: str) -> Key:
        return Key(Table.STATE, "POOLCOUNTS", pool)

    def key(self) -> Key:
        return self.key_of(self.pool)


class Template(Record):
    """A named starting point. With `images`, only the pools listed there can run it."""

    kind: ClassVar[str] = "template"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version",)

    name: str
    images: dict[str, str] = {}
    cpu_millis: int = 1000
    memory_mib: int = 512
    disk_gib: int = 1
    version: int = 1
    created_at: datetime

    @staticmethod
    def key_of(name: str) -> Key:
        return Key(Table.CONFIG, "TEMPLATES", name)

    def key(self) -> Key:
        return self.key_of(self.name)
