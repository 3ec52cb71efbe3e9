"""What operators permit: where sandboxes may run, by scope and by classification of the work.

There is a policy for the whole installation (`global`) and there may be one for each organization and project. A
sandbox needs the permission of every scope above it, so a narrower scope can only take away.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from .egress import EgressLimit
from .record import Key, Record, Table

GLOBAL = "global"
RETENTION_SECONDS_MIN, RETENTION_SECONDS_MAX = 3_600, 366 * 86_400
DEFAULT_CLASSIFICATION = "default"
"""Of a sandbox that names none."""


class External(StrEnum):
    NEVER = "never"
    ALLOWED = "allowed"


class Strategy(StrEnum):
    """Which of several pools that can take a sandbox is tried first; private ones always come before external ones."""

    CHEAPEST = "cheapest"
    SPREAD = "spread"
    """Each in proportion to how many it holds at once, whatever it costs."""
    PACK = "pack"
    """The first by name that has room, so that the last ones stay empty."""


class CommandLog(StrEnum):
    """How much of a command or a path the log keeps; each keeps more than the one before."""

    NONE = "none"
    """No event at all."""
    HASH = "hash"
    """A keyed hash: it tells if two were equal."""
    TEXT = "text"
    """What was asked for, without the values of the sandbox's secrets."""


class ClassRules(BaseModel):
    """What one classification takes away from its scope's rules; what is None takes nothing away.

    Tenants choose the classification of their work, so it can never give more than the scope does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    external: External | None = None
    external_pools: tuple[str, ...] | None = None
    allowed_pools: tuple[str, ...] | None = None
    denied_pools: tuple[str, ...] = ()
    egress: EgressLimit | None = None
    secrets_in_env: bool | None = None


class PolicyRules(BaseModel):
    """What one scope permits. A rule that this version does not know makes the policy unreadable, never wider.

    An external pool must be allowed and named. `allowed_pools` None means any. `egress` is the most that a sandbox may
    reach, `pool_egress` in one pool.
    With `secrets_in_env` a sandbox may be given secrets of its project as environment variables.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    external: External = External.NEVER
    external_pools: tuple[str, ...] = ()
    allowed_pools: tuple[str, ...] | None = None
    denied_pools: tuple[str, ...] = ()
    egress: EgressLimit | None = None
    pool_egress: dict[str, EgressLimit] = {}
    secrets_in_env: bool = False
    shorter_lifetime: bool | None = None
    """True permits pools that cannot keep a sandbox for its whole time to live; None says nothing."""
    retention_seconds: int | None = None
    """How long what is stopped or paused is kept; None says nothing."""
    strategy: Strategy | None = None
    """Of several scopes the narrowest that says one counts; None everywhere is `cheapest`."""
    snapshot_retention_seconds: int | None = None
    """How long a snapshot is kept at most, and if its caller does not say it."""
    command_log: CommandLog | None = None
    """None says nothing."""
    classifications: dict[str, ClassRules] = {}

    def for_classification(self, name: str) -> PolicyRules:
        """The rules for work of this classification; one that is not listed is treated as `default` is."""
        entry = self.classifications.get(name) or self.classifications.get(DEFAULT_CLASSIFICATION)
        if entry is None:
            return self
        return PolicyRules(
            external=External.NEVER if External.NEVER in (self.external, entry.external) else External.ALLOWED,
            external_pools=_both(self.external_pools, entry.external_pools) or (),
            allowed_pools=_both(self.allowed_pools, entry.allowed_pools),
            denied_pools=(*self.denied_pools, *entry.denied_pools),
            egress=_narrower(self.egress, entry.egress),
            pool_egress=self.pool_egress,
            secrets_in_env=self.secrets_in_env and entry.secrets_in_env is not False,
            shorter_lifetime=self.shorter_lifetime,
            command_log=self.command_log,
            retention_seconds=self.retention_seconds,
            strategy=self.strategy,
            snapshot_retention_seconds=self.snapshot_retention_seconds,
        )

    def named_pools(self) -> set[str]:
        names = set(self.pool_egress)
        parts: list[PolicyRules | ClassRules] = [self, *self.classifications.values()]
        for part in parts:
            names.update(part.external_pools or (), part.allowed_pools or (), part.denied_pools)
        return names


def _narrower(wider: EgressLimit | None, entry: EgressLimit | None) -> EgressLimit | None:
    if wider is None or entry is None:
        return wider if entry is None else entry
    return entry.within(wider)


def _both(wider: tuple[str, ...] | None, narrower: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """What both name; None names everything."""
    if wider is None or narrower is None:
        return wider if narrower is None else narrower
    return tuple(name for name in wider if name in narrower)


class Policy(Record):
    """`scope` is `global`, an organization id or a project id."""

    kind: ClassVar[str] = "policy"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version",)

    scope: str
    rules: PolicyRules = PolicyRules()
    version: int = 1
    updated_at: datetime | None = None
    """None for the one that the installation began with."""
    updated_by: str = ""

    @staticmethod
    def key_of(scope: str) -> Key:
        return Key(Table.CONFIG, "POLICIES", scope)

    def key(self) -> Key:
        return self.key_of(self.scope)
