"""A waiting sandbox, under its organization and priority class; a pool is chosen only at admission.

One that waits to be started or resumed has its pool already: what it kept is there.
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import ClassVar

from ..runtime.ids import OrgId, ProjectId, SandboxId
from .egress import EgressLimit
from .policy import DEFAULT_CLASSIFICATION
from .quota import Scope
from .record import Key, Record, Table
from .resources import Size

QUEUE_SHARDS = 2
PRIORITY_MIN, PRIORITY_MAX = 0, 9


def queue_partition(org: OrgId) -> str:
    return f"QUEUE#{zlib.crc32(org.encode()) % QUEUE_SHARDS}"


class QueueRow(Record):
    kind: ClassVar[str] = "queue"
    table: ClassVar[Table] = Table.STATE

    sandbox: SandboxId
    org: OrgId
    project: ProjectId
    priority: int
    size: Size
    template: str
    image: str | None = None
    capabilities: tuple[str, ...] = ()
    allowed_pools: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    preferred_pools: tuple[str, ...] = ()
    egress: EgressLimit | None = None
    classification: str = DEFAULT_CLASSIFICATION
    attempt: int = 0
    ttl_seconds: int = 0
    wakes_on: str | None = None
    """The pool that keeps it, for one that was stopped or paused."""
    backlogs: tuple[str, ...] = ()
    """As on its sandbox."""
    not_before: datetime | None = None
    since: datetime | None = None
    """When it was created, or asked to wake."""

    @staticmethod
    def key_of(org: OrgId, priority: int, sandbox: SandboxId) -> Key:
        """Higher priority first, then the older sandbox: the class counts down, the ULID counts up."""
        return Key(Table.STATE, queue_partition(org), f"{org}#{PRIORITY_MAX - priority}#{sandbox}")

    def key(self) -> Key:
        return self.key_of(self.org, self.priority, self.sandbox)


class Backlog(Record):
    """Places in the queue of an organization or project with a bounded backlog; no row where no bound was ever set."""

    kind: ClassVar[str] = "backlog"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("free", "limit", "moves")

    scope: Scope
    name: str
    free: int
    limit: int
    moves: int = 0
    """Rises with every place that is taken or given back, so that whoever counts can tell that nothing moved."""

    @property
    def waiting(self) -> int:
        return self.limit - self.free

    @staticmethod
    def key_of(scope: Scope, name: str) -> Key:
        return Key(Table.STATE, f"BACKLOG#{scope}#{name}", "META")

    def key(self) -> Key:
        return self.key_of(self.scope, self.name)


class DispatchCursor(Record):
    """Where dispatch goes on in one shard of the queue, so that no depth of it is never looked at.

    `after_org` is the position behind the last organization of a run that did not get to all; `deep` is, for each with
    more rows than one look takes, how far behind its oldest ones it was read. A lost cursor costs a look, no more.
    """

    kind: ClassVar[str] = "dispatch_cursor"
    table: ClassVar[Table] = Table.STATE

    shard: int
    after_org: str | None = None
    deep: dict[str, str] = {}

    @staticmethod
    def key_of(shard: int) -> Key:
        return Key(Table.STATE, "DISPATCH", str(shard))

    def key(self) -> Key:
        return self.key_of(self.shard)


class Depth(Record):
    """How many of an organization's sandboxes were in the queue when dispatch last counted.

    Kept only for one whose backlog is at least half as long as it may be; void when `at` is old.
    """

    kind: ClassVar[str] = "queue_depth"
    table: ClassVar[Table] = Table.STATE

    org: OrgId
    waiting: int
    at: datetime

    @staticmethod
    def key_of(org: OrgId) -> Key:
        return Key(Table.STATE, "DEPTHS", org)

    def key(self) -> Key:
        return self.key_of(self.org)
