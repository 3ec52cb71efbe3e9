"""A sandbox: its states, the one table of transitions, and the record that is the authority on it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict

from ..runtime.ids import KeyId, OrgId, ProjectId, SandboxId, SnapshotId
from .due import due_index, purge_index
from .egress import EgressLimit
from .policy import DEFAULT_CLASSIFICATION
from .record import Key, Record, Table
from .resources import Size
from .usage import Meter


class Status(StrEnum):
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTING = "starting"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"


S = Status
TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    # A resume or start that nobody waits for any more goes back to where it came from.
    S.QUEUED: frozenset({S.PROVISIONING, S.RESUMING, S.STARTING, S.PAUSED, S.STOPPED, S.TERMINATING, S.FAILED}),
    S.PROVISIONING: frozenset({S.RUNNING, S.QUEUED, S.TERMINATING, S.FAILED}),
    # A backend may stop or pause an instance by itself; then it is followed.
    S.RUNNING: frozenset({S.PAUSING, S.STOPPING, S.PAUSED, S.STOPPED, S.TERMINATING, S.FAILED}),
    # Asked to wake before it rested, it waits for room as soon as it rests.
    S.PAUSING: frozenset({S.PAUSED, S.RUNNING, S.QUEUED, S.TERMINATING, S.FAILED}),
    S.PAUSED: frozenset({S.RESUMING, S.QUEUED, S.STOPPED, S.TERMINATING, S.FAILED}),
    # One that woke without the rules that confine it is put to rest again.
    S.RESUMING: frozenset({S.RUNNING, S.PAUSED, S.PAUSING, S.QUEUED, S.TERMINATING, S.FAILED}),
    S.STOPPING: frozenset({S.STOPPED, S.RUNNING, S.QUEUED, S.TERMINATING, S.FAILED}),
    S.STOPPED: frozenset({S.STARTING, S.QUEUED, S.PAUSED, S.TERMINATING, S.FAILED}),
    S.STARTING: frozenset({S.RUNNING, S.STOPPED, S.STOPPING, S.QUEUED, S.TERMINATING, S.FAILED}),
    S.TERMINATING: frozenset({S.TERMINATED}),
    S.TERMINATED: frozenset(),
    S.FAILED: frozenset(),
}
"""Read by API, worker, reconciler and docs. A delete wins over everything, so it is reachable from every live state."""

ENDED = frozenset({S.TERMINATED, S.FAILED})
GONE = ENDED | {S.TERMINATING}
"""What reads as gone: the idempotency key is free, lists hide it, nothing runs in it any more."""
LIVE = frozenset(Status) - GONE
ACTIVE = frozenset({S.PROVISIONING, S.RUNNING, S.PAUSING, S.RESUMING, S.STOPPING, S.STARTING})
"""States that count against a concurrency quota."""
SPARE_SECONDS = 60
"""Not used for so long, a preemptible sandbox may make room for waiting work."""
USE_NOTED_SECONDS = 30
"""Use is noted at most this often, so a sandbox is idle so much later: never too early."""
AT_REST = frozenset({S.PAUSED, S.STOPPED})
"""Kept and not running: nothing is charged for concurrency."""


class MoveKind(StrEnum):
    STOP = "stop"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"


class Way(NamedTuple):
    """The states a move leads from, through and to."""

    before: Status
    during: Status
    after: Status

    @property
    def wakes(self) -> bool:
        return self.after is Status.RUNNING


WAYS: Mapping[MoveKind, Way] = {
    MoveKind.STOP: Way(S.RUNNING, S.STOPPING, S.STOPPED),
    MoveKind.START: Way(S.STOPPED, S.STARTING, S.RUNNING),
    MoveKind.PAUSE: Way(S.RUNNING, S.PAUSING, S.PAUSED),
    MoveKind.RESUME: Way(S.PAUSED, S.RESUMING, S.RUNNING),
}
BACK: Mapping[MoveKind, MoveKind] = {MoveKind.STOP: MoveKind.START, MoveKind.PAUSE: MoveKind.RESUME}
"""How one that a move leads to rest comes back."""
AGAIN: Mapping[MoveKind, MoveKind] = {wakes: rests for rests, wakes in BACK.items()}
"""How one that a move woke comes to rest again."""
ON_THE_WAY = frozenset(way.during for way in WAYS.values())


def allows(before: Status, after: Status) -> bool:
    return after in TRANSITIONS[before]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Reason(Frozen):
    """Why a sandbox is in its state: a code, who said so (`caller`, `policy`, `backend`, `timer`, `worker`), when."""

    code: str
    source: str
    detail: str = ""
    at: datetime


def told(reason: Reason | None) -> dict[str, str | int | bool | None]:
    """What an event says of a reason: its code and who said so. Its detail may quote a backend, so it stays here."""
    return {"reason": reason.code, "source": reason.source} if reason is not None else {}


class Condition(Frozen):
    """One readiness fact, with when it was seen and by what evidence."""

    at: datetime
    evidence: str


class Conditions(Frozen):
    """The four facts behind "running": ours at the backend, a command ran, set up as asked, admitted by our write."""

    seen: Condition | None = None
    reachable: Condition | None = None
    prepared: Condition | None = None
    admitted: Condition | None = None


class Reservation(Frozen):
    """What a sandbox holds in counters, so that it is given back exactly once.

    `tenant` is True while organization and project counters are charged; `pool` names the pool whose slot is held.
    """

    size: Size
    tenant: bool = True
    pool: str | None = None


class Claim(Frozen):
    """The worker that acts on a sandbox now; void after `until` or under another generation."""

    owner: str
    until: datetime
    generation: int


class Move(Frozen):
    """A stop, start, pause or resume that was asked for: written before the backend hears of it, gone when it is over.

    On a queued sandbox it is what the sandbox waits for. `operation` names this one try at the backend and
    `incarnation` what it acts on. From `called_at` on the backend may know of it, so it is only observed; after `until`
    what the backend shows is taken for the outcome.
    """

    kind: MoveKind
    operation: str
    incarnation: str = ""
    asked_at: datetime
    until: datetime
    called_at: datetime | None = None
    wanted_back: bool = False
    """Asked to run again before it rested: called off where the backend can, else woken as soon as it rests."""
    call_off_at: datetime | None = None
    """When the backend was told to call it off; from then on that is only observed."""
    unconfined: bool = False
    """It woke and what it may reach could not be set, so this move to rest is the only way: it never runs as it is."""

    @property
    def way(self) -> Way:
        return WAYS[self.kind]


class PoolRejection(Frozen):
    pool: str
    reason: str


class GivenSecret(BaseModel):
    """`version` is the one that was in force at the create."""

    model_config = ConfigDict(frozen=True)

    env: str
    secret: str
    version: int


class Sandbox(Record):
    """The record of one sandbox.

    `version` rises with every write; `generation` only when intent changes (delete, stop, start, pause, resume), and
    fences workers that act on an older intent. `due_at` is when somebody must look at it again.
    """

    kind: ClassVar[str] = "sandbox"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = (
        "status", "version", "generation", "org", "project", "due_at", "reason", "last_activity_at", "busy_until",
        "busy_with",
    )  # fmt: skip

    id: SandboxId
    org: OrgId
    project: ProjectId
    status: Status
    version: int = 1
    generation: int = 1
    reason: Reason | None = None
    due_at: datetime | None = None

    template: str
    profile: str | None = None
    image: str | None = None
    from_snapshot: SnapshotId | None = None
    """What it is made from, and held until it runs."""
    awaits_snapshot: bool = False
    """True for a fork until what it is made from is captured; it joins the queue then."""
    forked_from: SandboxId | None = None
    size: Size
    labels: dict[str, str] = {}
    capabilities: tuple[str, ...] = ()
    allowed_pools: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    preferred_pools: tuple[str, ...] = ()
    egress: EgressLimit | None = None
    """What its caller asked for."""
    egress_rules: EgressLimit | None = None
    """What it gets: decided at its last admission, within the policies of that moment. None: no limit."""
    has_env: bool = False
    secrets: tuple[GivenSecret, ...] = ()
    """What it was given, without a value."""
    masks: bool = False
    """True when it was given secrets, or was made from what had some: what its commands write is masked."""
    priority: int = 0
    preemptible: bool = False
    """May be put to rest, while nobody uses it, for work that waits."""
    classification: str = DEFAULT_CLASSIFICATION
    ttl_seconds: int
    queue_timeout_seconds: int | None = None
    idempotent: bool = False

    created_at: datetime
    created_by: KeyId
    queue_deadline: datetime | None = None
    not_before: datetime | None = None
    started_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    last_activity_at: datetime | None = None
    idle_timeout_seconds: int | None = None
    """Not used for so long it is put to rest; None is never."""
    idle_by: MoveKind | None = None
    """How its pool puts it to rest when nobody uses it; None where it cannot, or does so by itself."""
    idled: bool = False
    """Put to rest because nobody used it, by us or by its backend: its next use wakes it."""
    busy_until: datetime | None = None
    """What runs in it keeps it awake until then at the latest."""
    busy_with: str | None = None
    """What that is, parted by blanks: `command` for each call that waits, `job:<id>`, or `more`."""

    max_run_seconds: int | None = None
    """Running for so long at a stretch it is put to rest."""
    running_since: datetime | None = None
    rested_at: datetime | None = None
    """Since when it is kept without running."""
    retention_seconds: int | None = None
    """How long it is kept when it rests, decided anew each time that it comes to rest."""
    lease_ends_at: datetime | None = None
    """When its backend ends it by itself, as last told; None when it does not."""
    renew_at: datetime | None = None
    """When that is to be moved on."""
    lifetime_ends_at: datetime | None = None
    """Longer than this its pool cannot keep it, whatever is asked."""

    pool: str | None = None
    region: str | None = None
    backend_ref: str | None = None
    incarnation: str = ""
    """The backend's word for what was last seen of the instance: a new one when its memory was lost or restored."""
    attempt: int = 0
    """Number of the newest attempt; 0 before the first."""
    failures: int = 0
    """Attempts that count against the limit: a full backend is not the sandbox's fault and does not count."""
    reservation: Reservation | None = None
    backlogs: tuple[str, ...] = ()
    """Scopes (`org`, `project`) in whose bounded backlog it holds a place while it waits."""
    retained: bool = False
    """True while it holds one of its pool's places for what is kept without running."""
    meter: Meter | None = None
    """Since when its use is counted, and at what price; None while it is not."""
    counted_until: datetime | None = None
    """When the last interval of its use ended."""
    claim: Claim | None = None
    move: Move | None = None
    conditions: Conditions = Conditions()
    rejections: tuple[PoolRejection, ...] = ()
    """Why each pool was refused when it was last placed or left waiting."""

    @staticmethod
    def key_of(sandbox: SandboxId) -> Key:
        return Key(Table.STATE, f"SBX#{sandbox}", "META")

    def key(self) -> Key:
        return self.key_of(self.id)

    def index(self) -> dict[str, str | int]:
        return {
            **list_index(self.project, self.id, self.status),
            **due_index(self.id, self.due_at),
            **purge_index(self.ended_at),
        }

    def unused_at(self) -> datetime | None:
        """When nobody has used it for its timeout, if nobody does from now on; whatever may still run in it."""
        since = self.last_activity_at or self.started_at
        timeout = self.idle_timeout_seconds
        if self.status is not S.RUNNING or self.idle_by is None or timeout is None or since is None:
            return None
        return since + timedelta(seconds=timeout + USE_NOTED_SECONDS)

    def idle_at(self) -> datetime | None:
        """The same, counting what runs in it until its end: when it is put to rest if nobody uses it from now on."""
        unused = self.unused_at()
        return unused if unused is None or self.busy_until is None else max(unused, self.busy_until)

    def kept_until(self) -> datetime | None:
        """The end of what is stopped or paused, also while it waits to be woken."""
        waits = self.status is S.QUEUED and self.move is not None
        if self.rested_at is None or self.retention_seconds is None or not (self.status in AT_REST or waits):
            return None
        return self.rested_at + timedelta(seconds=self.retention_seconds)

    def spare_at(self) -> datetime | None:
        """When it may make room for waiting work if nobody uses it from now on; None when never."""
        since = self.last_activity_at or self.started_at
        if self.status is not S.RUNNING or not self.preemptible or self.idle_by is None or since is None:
            return None
        spare = since + timedelta(seconds=SPARE_SECONDS + USE_NOTED_SECONDS)
        return spare if self.busy_until is None else max(spare, self.busy_until)

    def claimed(self, now: datetime) -> bool:
        """True while a worker of this generation is at work."""
        return self.claim is not None and self.claim.generation == self.generation and now < self.claim.until


def list_index(project: ProjectId, sandbox: SandboxId, status: Status) -> dict[str, str | int]:
    """Live and gone sandboxes of a project lie in separate partitions, so a list never pages over the dead."""
    return {"list_pk": f"{'GONE' if status in GONE else 'LIVE'}#{project}", "list_sk": sandbox}


class SandboxEnv(Record):
    """The environment of a sandbox: values may be secrets, so they live beside the record and go when it ends."""

    kind: ClassVar[str] = "sandbox_env"
    table: ClassVar[Table] = Table.STATE

    id: SandboxId
    env: dict[str, str]

    @staticmethod
    def key_of(sandbox: SandboxId) -> Key:
        return Key(Table.STATE, f"SBX#{sandbox}", "ENV")

    def key(self) -> Key:
        return self.key_of(self.id)

    def __repr__(self) -> str:
        return f"SandboxEnv(id={self.id!r}, env=<{len(self.env)} values withheld>)"

    __str__ = __repr__
