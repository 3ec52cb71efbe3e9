"""What callers send and see of a sandbox: strict on the way in, complete on the way out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from ..contract import LABEL_PREFIX
from ..model.egress import NAME_CHARACTERS_MAX, EgressLimit, read_peer
from ..model.exec import EnvName, EnvValue
from ..model.features import KNOWN, REQUESTABLE
from ..model.policy import DEFAULT_CLASSIFICATION
from ..model.queue import PRIORITY_MAX, PRIORITY_MIN
from ..model.record import Wire
from ..model.resources import Resources
from ..model.sandbox import ON_THE_WAY, Conditions, MoveKind, Sandbox, Status
from ..model.secret import SECRET_NAME_PATTERN

LABELS_MAX = 32
EGRESS_PEERS_MAX = 64
ENV_MAX = 128
SECRETS_MAX = 16
ENV_BYTES_MAX = 65_536
TTL_SECONDS_CEILING = 10 * 365 * 24 * 3600


def _not_reserved(key: str) -> str:
    """Case and look-alike tricks do not help: only plain ASCII is allowed in a label key at all."""
    if key.lower().startswith(LABEL_PREFIX):
        raise ValueError(f"labels under {LABEL_PREFIX} are reserved")
    return key


_TURNS_TEXT = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\x80-\x9f\ufeff]")
"""Characters that reorder or break the line they are shown in, so that it reads as another one."""


def _reads_as_written(value: str) -> str:
    if _TURNS_TEXT.search(value):
        raise ValueError("cannot hold control characters, nor those that change the direction of text")
    return value


def _never_or_a_while(seconds: int) -> int:
    if 0 < seconds < IDLE_SECONDS_MIN:
        raise ValueError(f"use 0 for never, or at least {IDLE_SECONDS_MIN}")
    return seconds


def _known_capability(name: str) -> str:
    if name not in KNOWN:
        raise ValueError(f"unknown capability; known are {', '.join(sorted(REQUESTABLE))}")
    if name not in REQUESTABLE:
        raise ValueError(f"{name} cannot be requested")
    return name


LabelKey = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$"), AfterValidator(_not_reserved)
]
LabelValue = Annotated[
    str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$"), AfterValidator(_reads_as_written)
]
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=LABELS_MAX)]
Capability = Annotated[str, AfterValidator(_known_capability)]
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Image = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]
TtlSeconds = Annotated[int, Field(ge=0, le=TTL_SECONDS_CEILING)]
IDLE_SECONDS_MIN = 10
IdleSeconds = Annotated[int, Field(ge=0, le=TTL_SECONDS_CEILING), AfterValidator(_never_or_a_while)]


def env_size(env: dict[str, str]) -> dict[str, str]:
    if sum(len(key) + len(value.encode()) for key, value in env.items()) > ENV_BYTES_MAX:
        raise ValueError(f"names and values are over {ENV_BYTES_MAX} bytes together")
    return env


Region = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[\x21-\x7e]+$")]
PlacementNames = Annotated[list[Name], Field(max_length=64)]


class Placement(Wire):
    """Where it may and should run, within what policies permit. Private pools come before external ones."""

    allowed_pools: PlacementNames = []
    """Only these pools; any when empty."""
    regions: Annotated[list[Region], Field(max_length=64)] = []
    """Only pools of these regions, the first named first; any when empty."""
    preferred_pools: PlacementNames = []
    """These first and in this order; when none of them can take it, any other."""


def _peer(text: str) -> str:
    return read_peer(text)


Peer = Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARACTERS_MAX), AfterValidator(_peer)]
"""A host name, a wildcard such as `*.example.com`, an address or a CIDR block."""


class Egress(Wire):
    """What it may reach. A denial always wins; the policies that apply may take more away."""

    allow: Annotated[list[Peer], Field(max_length=EGRESS_PEERS_MAX)] | None = None
    """Host names, wildcards such as `*.example.com`, addresses and CIDR blocks: only these. An empty list means
    nothing, absent means what the policies permit."""
    deny: Annotated[list[Peer], Field(max_length=EGRESS_PEERS_MAX)] = []
    """Never these."""

    def limit(self) -> EgressLimit:
        return EgressLimit(allow=None if self.allow is None else tuple(self.allow), deny=tuple(self.deny))

    @classmethod
    def of(cls, limit: EgressLimit) -> Self:
        return cls(allow=None if limit.allow is None else list(limit.allow), deny=list(limit.deny))


class GiveSecret(Wire):
    """The value that a secret of the project has now becomes this environment variable."""

    env: EnvName
    secret: Annotated[str, StringConstraints(pattern=SECRET_NAME_PATTERN)]


def one_each(given: list[GiveSecret]) -> list[GiveSecret]:
    if len({entry.env for entry in given}) < len(given):
        raise ValueError("name every environment variable once")
    return given


def check_differ(env: Mapping[str, str], secrets: Sequence[GiveSecret]) -> None:
    if any(entry.env in env for entry in secrets):
        raise ValueError("an environment variable cannot be in env and in secrets")


class CreateSandbox(Wire):
    """Body of a create. Everything has a default, so `{}` works."""

    project_id: str | None = None
    profile: Name | None = None
    """Named defaults for what this body leaves out."""
    template: Name = "default"
    image: Image | None = None
    """Instead of the template's, on the pools that take any."""
    snapshot_id: Annotated[str, StringConstraints(max_length=64)] | None = None
    """Made from this snapshot, on the pool that keeps it; what is left out is as it was when that was taken."""
    resources: Resources = Resources()
    env: Annotated[dict[EnvName, EnvValue], Field(max_length=ENV_MAX), AfterValidator(env_size)] = {}
    secrets: Annotated[list[GiveSecret], Field(max_length=SECRETS_MAX), AfterValidator(one_each)] = []
    """Secrets of the project, if policies allow them in an environment. Their values are masked in what commands write.
    """
    labels: Labels = {}
    capabilities: Annotated[list[Capability], Field(max_length=32)] = []
    placement: Placement = Placement()
    ttl_seconds: TtlSeconds = 0
    """0 means the operator's default."""
    max_run_seconds: Annotated[int, Field(ge=0, le=TTL_SECONDS_CEILING)] | None = None
    """Running for so long at a stretch it is paused, or stopped, or where its pool can do neither ended. 0 is never."""
    idle_timeout_seconds: IdleSeconds | None = None
    """Not used for so long it is paused, or stopped where the pool cannot pause, and wakes on its next use. 0 is never,
    else at least 10; absent means the operator's default."""
    queue_timeout_seconds: Annotated[int, Field(ge=0, le=86_400)] | None = None
    """0 refuses at once what cannot start now."""
    priority: Annotated[int, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = 0
    egress: Egress | None = None
    """A pool that cannot hold it to this is not chosen."""
    preemptible: bool = False
    """Nobody having used it for a minute, it may be paused for work that waits; its next use wakes it."""
    classification: Name = DEFAULT_CLASSIFICATION
    """Of the work in it: policies may restrict some classifications to some pools."""

    @model_validator(mode="after")
    def _secrets_and_env_differ(self) -> Self:
        check_differ(self.env, self.secrets)
        return self

    def digest(self) -> str:
        """Same request, same digest, however its JSON was written: order and spelled-out defaults do not count."""
        asked = self.model_dump(mode="json", exclude={"project_id"}, exclude_defaults=True)
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"CreateSandbox(template={self.template!r}, <env withheld>)"

    __str__ = __repr__


class UpdateSandbox(Wire):
    """Body of a PATCH; what is left out stays."""

    ttl_seconds: Annotated[int, Field(ge=1, le=TTL_SECONDS_CEILING)] | None = None
    """Counted from now."""
    idle_timeout_seconds: IdleSeconds | None = None
    """0 is never, else at least 10. Counted from now."""
    labels: Labels | None = None


class ResourcesView(Wire):
    cpu: float
    memory_mib: int
    disk_gib: int


class StatusReason(Wire):
    code: str
    source: str
    detail: str
    at: datetime


class ConditionView(Wire):
    at: datetime
    evidence: str


class ConditionsView(Wire):
    seen: ConditionView | None = None
    reachable: ConditionView | None = None
    prepared: ConditionView | None = None
    admitted: ConditionView | None = None


class PoolReason(Wire):
    pool: str
    reason: str


class GivenSecretView(Wire):
    env: str
    secret: str
    version: int
    """Of the secret, as it was at the create; a replacement does not reach this sandbox."""


class MoveView(Wire):
    kind: MoveKind
    asked_at: datetime
    wanted_back: bool | None = None
    """`true` while a stop or pause is under way and it was asked to run again since."""
    deadline: datetime
    """By then it is over, one way or the other."""


class Effective(Wire):
    """What was asked for, as it is in force where the sandbox is."""

    ttl_seconds: int
    idle_timeout_seconds: int | None = None
    """Absent where it is never put to rest for not being used."""
    expires_at: datetime | None = None
    """Sooner than was asked for where its pool cannot keep it for so long, and policy permits that."""
    retention_seconds: int | None = None
    """How long it is kept while it is stopped or paused."""
    egress: Egress | None = None
    """Absent while nothing is restricted."""


class SandboxView(Wire):
    """A sandbox as callers see it; `backendRef` is for operators only."""

    id: str
    org: str
    project: str
    status: Status
    status_reason: StatusReason | None = None
    move: MoveView | None = None
    """The stop, start, pause or resume that it is in the middle of; on a queued sandbox what it waits for."""
    conditions: ConditionsView = ConditionsView()
    template: str
    profile: str | None = None
    image: str | None = None
    snapshot_id: str | None = None
    """What it was made from."""
    forked_from: str | None = None
    resources: ResourcesView
    secrets: list[GivenSecretView] = []
    """What it was given; never a value."""
    labels: dict[str, str] = {}
    capabilities: list[str] = []
    priority: int = 0
    preemptible: bool | None = None
    classification: str = DEFAULT_CLASSIFICATION
    egress: Egress | None = None
    pool: str | None = None
    region: str | None = None
    ttl_seconds: int
    idle_timeout_seconds: int | None = None
    max_run_seconds: int | None = None
    effective: Effective
    attempts: int = 0
    waiting_for: list[PoolReason] = []
    created_at: datetime
    created_by: str
    queue_deadline: datetime | None = None
    started_at: datetime | None = None
    expires_at: datetime | None = None
    kept_until: datetime | None = None
    """While it is stopped or paused: it ends then, if it is not awake again."""
    ended_at: datetime | None = None
    last_activity_at: datetime | None = None
    """Noted at most every 30 seconds. Reading a sandbox is no use of it."""
    idled: bool | None = None
    """`true` for one that was put to rest because nobody used it: its next use wakes it."""
    idle_at: datetime | None = None
    """When it is put to rest if nobody uses it."""
    busy_with: list[str] | None = None
    """What keeps it awake: calls that wait for their command, and jobs."""
    busy_until: datetime | None = None
    """Until then at the latest."""
    backend_ref: str | None = None

    @classmethod
    def of(cls, sandbox: Sandbox, *, operator: bool = False) -> SandboxView:
        size = sandbox.size
        busy = sandbox.busy_until is not None and sandbox.busy_until == sandbox.idle_at()
        return cls(
            id=sandbox.id,
            org=sandbox.org,
            project=sandbox.project,
            status=sandbox.status,
            status_reason=StatusReason(**sandbox.reason.model_dump()) if sandbox.reason else None,
            move=_move(sandbox),
            conditions=_conditions(sandbox.conditions),
            template=sandbox.template,
            profile=sandbox.profile,
            image=sandbox.image,
            snapshot_id=sandbox.from_snapshot,
            forked_from=sandbox.forked_from,
            resources=ResourcesView(cpu=size.cpu_millis / 1000, memory_mib=size.memory_mib, disk_gib=size.disk_gib),
            secrets=[GivenSecretView(**given.model_dump()) for given in sandbox.secrets],
            labels=dict(sandbox.labels),
            capabilities=list(sandbox.capabilities),
            priority=sandbox.priority,
            preemptible=sandbox.preemptible or None,
            classification=sandbox.classification,
            egress=Egress.of(sandbox.egress) if sandbox.egress is not None else None,
            pool=sandbox.pool,
            region=sandbox.region,
            ttl_seconds=sandbox.ttl_seconds,
            idle_timeout_seconds=sandbox.idle_timeout_seconds,
            max_run_seconds=sandbox.max_run_seconds,
            effective=Effective(
                egress=Egress.of(sandbox.egress_rules) if sandbox.egress_rules is not None else None,
                expires_at=sandbox.expires_at,
                retention_seconds=sandbox.retention_seconds,
                ttl_seconds=sandbox.ttl_seconds,
                idle_timeout_seconds=sandbox.idle_timeout_seconds if sandbox.idle_by is not None else None,
            ),
            attempts=sandbox.attempt,
            waiting_for=[PoolReason(pool=entry.pool, reason=entry.reason) for entry in sandbox.rejections]
            if sandbox.status is Status.QUEUED
            else [],
            created_at=sandbox.created_at,
            created_by=sandbox.created_by,
            queue_deadline=sandbox.queue_deadline if sandbox.status is Status.QUEUED else None,
            started_at=sandbox.started_at,
            expires_at=sandbox.expires_at,
            kept_until=sandbox.kept_until(),
            ended_at=sandbox.ended_at,
            last_activity_at=sandbox.last_activity_at,
            idled=sandbox.idled or None,
            idle_at=sandbox.idle_at(),
            busy_with=sandbox.busy_with.split() if busy and sandbox.busy_with else None,
            busy_until=sandbox.busy_until if busy else None,
            backend_ref=sandbox.backend_ref if operator else None,
        )


def _move(sandbox: Sandbox) -> MoveView | None:
    move = sandbox.move
    if move is None or sandbox.status not in ON_THE_WAY | {Status.QUEUED}:
        return None
    waits = sandbox.status is Status.QUEUED and sandbox.queue_deadline is not None
    deadline = sandbox.queue_deadline if waits else move.until
    return MoveView(
        kind=move.kind, wanted_back=move.wanted_back or None, asked_at=move.asked_at, deadline=deadline or move.until
    )


def _conditions(conditions: Conditions) -> ConditionsView:
    found: dict[str, Any] = conditions.model_dump()
    return ConditionsView(**{name: ConditionView(**fact) for name, fact in found.items() if fact is not None})


class Deletion(Wire):
    """Answer to a delete: accepted, and where it stands. The record itself stays readable."""

    id: str
    status: Status
    requested_at: datetime
