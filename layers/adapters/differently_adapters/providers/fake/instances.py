"""What the fake backend holds: instances with their files, jobs and ports, and snapshots of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from math import inf

from differently_core.contract import (
    LABEL_INSTALLATION,
    LABEL_SANDBOX,
    CommandResult,
    EgressRules,
    Exposure,
    InstanceState,
    Operation,
    Owner,
    Progress,
    SnapshotKind,
    SnapshotState,
)
from differently_core.model.exec import ExecRequest
from differently_core.model.resources import Size


@dataclass
class FakeFile:
    data: bytes
    modified_at: datetime


@dataclass
class FakeJob:
    """Its command ran when it was started; what it wrote and how it ends are known, and time reveals the end."""

    request: ExecRequest
    result: CommandResult
    started_at: datetime
    ends: float
    timed_out: bool
    stopped: float = inf
    interrupted: float = inf
    ignores_interrupt: bool = False
    lost: bool = False


@dataclass
class Move:
    """A stop, start, pause or resume that was accepted. One that is not `begun` leaves the instance in use."""

    operation: Operation
    begun: bool = True
    progress: Progress = Progress.UNDERWAY


@dataclass
class FakeSnapshot:
    """A copy of the files. Memory is a word here: nothing runs that could be kept."""

    ref: str
    owner: Owner
    operation: str
    kind: SnapshotKind
    files: dict[str, FakeFile]
    folders: set[str]
    state: SnapshotState = SnapshotState.CREATING
    broken: bool = False


@dataclass
class FakeInstance:
    """Moments (`runs_at`, `listed_at`, `gone_at` and so on) are of the backend's monotonic clock."""

    ref: str
    labels: dict[str, str]
    size: Size
    env: dict[str, str]
    runs_at: float
    image: str | None = None
    listed_at: float = 0.0
    gone_at: float = inf
    deleting: bool = False
    resting: bool = False
    """Only its disk takes room."""
    conflict: bool = False
    state: InstanceState = InstanceState.RUNNING
    files: dict[str, FakeFile] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    incarnation: int = 1
    made_at: float = 0.0
    used_at: float = 0.0
    idle_seconds: float = inf
    ends_at: float = inf
    expires_at: datetime | None = None
    """The same moment as `ends_at`, as it is told."""
    paused_at: float = 0.0
    move: Move | None = None
    """What it is in the middle of."""
    moves: dict[str, Move] = field(default_factory=dict)
    """Pauses and resumes by the caller's name for them."""
    ports: dict[int, Exposure] = field(default_factory=dict)
    egress: EgressRules | None = None

    @property
    def owner(self) -> Owner:
        return Owner(self.labels.get(LABEL_INSTALLATION, ""), self.labels.get(LABEL_SANDBOX, ""))

    def state_at(self, now: float) -> InstanceState:
        if self.deleting:
            return InstanceState.STOPPED
        if self.state is InstanceState.RUNNING and now < self.runs_at:
            return InstanceState.PENDING
        return InstanceState.PAUSED if self.is_idle(now) else self.state

    def is_idle(self, now: float) -> bool:
        """Nobody used it for a while, so the backend put it to sleep by itself; its next use wakes it."""
        return self.state is InstanceState.RUNNING and not self.deleting and now - self.used_at >= self.idle_seconds
