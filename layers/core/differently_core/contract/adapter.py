"""The adapter itself, and what it is built from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel

from ..model.exec import ExecRequest, FileInfo, Job, Stream
from ..runtime.clock import Clock
from .operations import Declaration
from .values import (
    Capabilities,
    Capacity,
    Catalog,
    CommandResult,
    CreateRequest,
    EgressRules,
    ExecEvent,
    Exposure,
    FileContent,
    Info,
    Instance,
    JobOutput,
    Observation,
    Owner,
    SnapshotInfo,
    SnapshotRequest,
    Target,
    Transition,
    Transitioned,
)

Instances = list[Instance]
Files = list[FileInfo]
Observations = list[Observation]


@runtime_checkable
class Adapter(Protocol):
    """One backend, behind the operations of the contract.

    `deadline` is seconds from now in which the call must end. Unless said otherwise a call raises `NotFound` when the
    instance (or the file, or the job) does not exist or is not the owner's, `InvalidState` when it exists in another
    state, `InvalidRequest` when it can never succeed, and a `BackendError` when the backend is the cause.
    """

    kind: ClassVar[str]
    operations: ClassVar[Declaration]

    def __init__(self, context: AdapterContext) -> None:
        """Keep the configuration; no I/O, so a pool whose backend is down can still be built and probed."""
        ...

    def info(self) -> Info: ...

    def capabilities(self) -> Capabilities: ...

    def capacity(self) -> Capacity: ...

    def health(self) -> None:
        """Raise `ProviderUnavailable` when the backend cannot accept work."""
        ...

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        """Make the instance, stamped with its owner; return it running, or pending when it will take longer.

        `InsufficientCapacity`: no room, nothing was made. `SandboxFailed`: this one failed. `InvalidRequest`: it can
        never start. `NotFound`: its snapshot is gone or another installation's. Any `BackendError` with
        `settled=False`: an instance may exist or may still appear.
        """
        ...

    def get(self, target: Target) -> Instance:
        """Observe, never renew or start. Without a ref the instance is found by its owner."""
        ...

    def list(self, installation: str) -> Instances:
        """Every instance of the installation, whole or an error."""
        ...

    def delete(self, target: Target) -> None:
        """Remove the instance and all it kept. Missing is success; a foreign one is `NotFound` and stays.

        Without a ref everything that carries the owner goes, which is how a lost create is cleaned up.
        """
        ...

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        """Run and wait. Of each stream the first and last half of `output_bytes_max` are kept, the rest is counted."""
        ...

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        """Output as it is written; a `Quiet` at least every `quiet_seconds` without any."""
        ...

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        """Start in the background. The same id with the same command returns the first; another is `InvalidState`."""
        ...

    def job_status(self, target: Target, job: str) -> Job: ...

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput: ...

    def job_stop(self, target: Target, job: str) -> Job:
        """Stop the job's process group; a job that has ended stays as it ended."""
        ...

    def job_interrupt(self, target: Target, job: str) -> Job:
        """Ask the job's process group to end (SIGINT), and leave it the time to do so."""
        ...

    def file_read(self, target: Target, path: str) -> FileContent: ...

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        """Write the whole file or leave the old one; parents are made."""
        ...

    def file_list(self, target: Target, path: str) -> Files: ...

    def file_stat(self, target: Target, path: str) -> FileInfo: ...

    def file_delete(self, target: Target, path: str) -> None:
        """Delete a file, or a directory with all in it. Missing is success."""
        ...

    def renew(self, target: Target, until: datetime) -> datetime | None:
        """Move the backend's own expiry to `until` or as far as it goes, and say where it is now.

        Never starts, resumes or revives anything. After an unknown outcome the caller observes.
        """
        ...

    def stop(self, target: Target, deadline: float) -> Instance:
        """Keep the disk, give back the rest. Stopped already is success."""
        ...

    def start(self, target: Target, deadline: float) -> Instance:
        """Start again from the kept disk. Running already is success."""
        ...

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        """Keep memory and disk. `InvalidState` when the instance is another incarnation than the named one."""
        ...

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        """Go on where it was paused; never a cold start."""
        ...

    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        """Give up a pause under way and thaw the same incarnation; `FAILED` when it is too late for that."""
        ...

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        """Capture it, and wait for the snapshot until the deadline; it outlives the instance.

        `UnsupportedOperation`, before any I/O, for memory where the capabilities do not offer it.
        """
        ...

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        """`NotFound` for a snapshot that is gone, also where the backend says so in other words."""
        ...

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        """Missing is success; a foreign one is `NotFound` and stays."""
        ...

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """Make a port reachable for about `seconds`; called again it may return the same address."""
        ...

    def port_revoke(self, target: Target, port: int) -> None:
        """Missing is success."""
        ...

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        """Replace the rules; returns only when the backend confirms that they are in force."""
        ...

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        """`get` for many, in the order asked, each with its own outcome; raises when the backend answers nothing."""
        ...

    def discover(self) -> Catalog:
        """What could be configured; reads only."""
        ...

    def verify_credential(self) -> None:
        """Raise `ProviderUnavailable` when the credential does not give access; reads only."""
        ...

    def close(self) -> None:
        """Give back connections and threads; what runs in instances goes on."""
        ...


@dataclass(frozen=True)
class AdapterContext:
    """What an adapter is built with: its pool, its parsed configuration, and the installation that owns instances."""

    pool: str
    installation: str
    config: BaseModel
    clock: Clock
    credential: Mapping[str, str] = field(default_factory=dict, repr=False)
    retired: tuple[str, ...] = field(default=(), repr=False)
    """Values that this credential replaced, as long as a call with one of them may still be under way."""

    @property
    def untold(self) -> tuple[str, ...]:
        """Every value that no message of this pool may repeat."""
        return (*self.credential.values(), *self.retired)
