"""What an adapter promises. One adapter drives one backend; a pool is an adapter with a configuration.

Calls are synchronous and bounded by the deadline they are given. Three outcomes are told apart: confirmed (a value),
refused (an error with `settled=True`), and unknown (a `BackendError` with `settled=False`): after an unknown outcome
the caller observes and never replays. Every read, mutation and cleanup checks on the instance itself that it belongs
to the `Owner`; a backend's own filter is not trusted. Sources: the adapter specification (operations, features, error
classes) and the sandbox provider guide (declarations, outcomes, ownership).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel, JsonValue

from .errors import UnsupportedOperation
from .model.exec import ExecRequest, FileInfo, Job, Stream
from .model.pool import Trust
from .model.resources import Size
from .runtime.clock import Clock

PROTOCOL_VERSION = "1"
LABEL_PREFIX = "differently.dev/"
"""Tenants cannot set labels under it."""
LABEL_SANDBOX = "differently.dev/sandbox-id"
LABEL_INSTALLATION = "differently.dev/installation"


class Operation(StrEnum):
    """Every operation of the contract; each adapter declares each one."""

    INFO = "info"
    CAPABILITIES = "capabilities"
    CAPACITY = "capacity"
    HEALTH = "health"
    CREATE = "create"
    GET = "get"
    LIST = "list"
    DELETE = "delete"
    EXEC = "exec"
    EXEC_STREAM = "exec_stream"
    JOB_START = "job_start"
    JOB_STATUS = "job_status"
    JOB_OUTPUT = "job_output"
    JOB_STOP = "job_stop"
    FILE_READ = "file_read"
    FILE_WRITE = "file_write"
    FILE_LIST = "file_list"
    FILE_STAT = "file_stat"
    FILE_DELETE = "file_delete"


REQUIRED = frozenset(
    {
        Operation.INFO, Operation.CAPABILITIES, Operation.CAPACITY, Operation.HEALTH, Operation.CREATE, Operation.GET,
        Operation.LIST, Operation.DELETE, Operation.EXEC,
    }
)  # fmt: skip
TOGETHER: tuple[frozenset[Operation], ...] = (
    frozenset({Operation.JOB_START, Operation.JOB_STATUS, Operation.JOB_OUTPUT, Operation.JOB_STOP}),
    frozenset(
        {
            Operation.FILE_READ, Operation.FILE_WRITE, Operation.FILE_LIST, Operation.FILE_STAT, Operation.FILE_DELETE,
        }
    ),
)  # fmt: skip
"""Operations that only make sense together are declared together."""


@dataclass(frozen=True)
class Supported:
    pass


@dataclass(frozen=True)
class Unsupported:
    """`reason` is an authored code such as `no_background_commands`, safe to show to a caller."""

    reason: str


Declaration = Mapping[Operation, Supported | Unsupported]
SUPPORTED = Supported()


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    ERROR = "error"


@dataclass(frozen=True)
class Owner:
    """Whose instance it is: both ids are stamped on the instance and checked there."""

    installation: str
    sandbox: str


@dataclass(frozen=True)
class Target:
    """One instance. `ref` is the backend's own id; None when the answer to the create was lost."""

    owner: Owner
    ref: str | None = None


@dataclass(frozen=True)
class Instance:
    """What the backend says of an instance. `prepared` is the evidence that it was set up as asked, if it gives any."""

    ref: str
    owner: Owner
    state: InstanceState
    region: str | None = None
    message: str = ""
    prepared: str = ""


@dataclass(frozen=True)
class CreateRequest:
    """`env` values may be secrets: they are for the backend only and never for a log."""

    owner: Owner
    org: str
    project: str
    template: str
    image: str | None
    size: Size
    ttl_seconds: int
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Info:
    """`settles_seconds`: how long after a create call ended a late instance may still turn up at the backend.

    `idempotent_create`: True when a repeated create under one sandbox id returns the first instance, never a second.
    """

    kind: str
    version: str
    trust: Trust | None
    isolation: str
    idempotent_create: bool
    settles_seconds: float
    create_seconds: float = 60.0
    """The deadline a create is given; the worker's claim lasts a little longer."""
    description: str = ""
    protocol: str = PROTOCOL_VERSION
    backend: str = ""
    """What pools on one backend have in common and no others: its address and account, say; never a secret.

    A cleanup of one pool must know whether what it finds may be in use through another. Empty: it may, by every pool
    of the kind; then a ref must be unlike those of other backends, or cleanups there wait for each other.
    """


@dataclass(frozen=True)
class Capabilities:
    """Limits of one sandbox; 0 and empty mean none."""

    features: frozenset[str]
    max_cpu_millis: int = 0
    max_memory_mib: int = 0
    max_disk_gib: int = 0
    templates: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Capacity:
    """Free room now. Unbounded: the pool's maxConcurrency alone governs. `largest_*`: on the roomiest single node."""

    bounded: bool
    free_cpu_millis: int = 0
    free_memory_mib: int = 0
    largest_free_cpu_millis: int = 0
    largest_free_memory_mib: int = 0


@dataclass(frozen=True)
class CommandResult:
    """Bytes as the command wrote them; the edge that speaks JSON decodes them."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_ms: int
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0
    timed_out: bool = False


@dataclass(frozen=True)
class Output:
    stream: Stream
    data: bytes


@dataclass(frozen=True)
class Quiet:
    """Nothing was written for a while; the caller keeps its connection alive."""


@dataclass(frozen=True)
class Exit:
    """`*_dropped_bytes`: output that was cut on the way because it was over a bound."""

    exit_code: int
    duration_ms: int
    timed_out: bool = False
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0


ExecEvent = Output | Quiet | Exit
"""A stream ends in exactly one `Exit`, or raises `ExecUnconfirmed`."""


@dataclass(frozen=True)
class JobOutput:
    """`next` is the byte offset to read from next; `ended` is True when nothing more can come."""

    data: bytes
    next: int
    ended: bool


@dataclass(frozen=True)
class FileContent:
    """`size` bytes in `chunks`; a chunk iterator that ends early raises, it never passes for a whole file."""

    size: int
    chunks: Iterator[bytes]


Instances = list[Instance]
Files = list[FileInfo]


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
        never start. Any `BackendError` with `settled=False`: an instance may exist or may still appear.
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

    def file_read(self, target: Target, path: str) -> FileContent: ...

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        """Write the whole file or leave the old one; parents are made."""
        ...

    def file_list(self, target: Target, path: str) -> Files: ...

    def file_stat(self, target: Target, path: str) -> FileInfo: ...

    def file_delete(self, target: Target, path: str) -> None:
        """Delete a file, or a directory with all in it. Missing is success."""
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


@dataclass(frozen=True)
class Registration:
    """One kind. `config` is its typed configuration; `trust` is None where the operator must declare it."""

    kind: str
    config: type[BaseModel]
    trust: Trust | None
    dev_only: bool
    summary: str

    def schema(self) -> dict[str, JsonValue]:
        return self.config.model_json_schema()


class ContractError(TypeError):
    """An adapter's declaration contradicts its class; raised when the kind is loaded, before anything is called."""


def validate(adapter: type[Adapter]) -> None:
    """Check a class against its own declaration; raises `ContractError` naming the first wrong entry."""
    name = adapter.__name__
    declared = adapter.operations
    for operation in Operation:
        if operation not in declared:
            raise ContractError(f"{name} does not declare {operation}")
        if not callable(inspect.getattr_static(adapter, operation.value, None)):
            raise ContractError(f"{name} has no method {operation}")
        support = declared[operation]
        if isinstance(support, Unsupported):
            if operation in REQUIRED:
                raise ContractError(f"{name} declares the required operation {operation} unsupported")
            if not support.reason.isidentifier() or support.reason != support.reason.lower():
                raise ContractError(f"{name} declares {operation} unsupported without a reason code")
        elif not isinstance(support, Supported):
            raise ContractError(f"{name} declares {operation} as {support!r}")
    unknown = [str(entry) for entry in declared if entry not in list(Operation)]
    if unknown:
        raise ContractError(f"{name} declares unknown operations: {', '.join(unknown)}")
    for group in TOGETHER:
        if len({type(declared[operation]) for operation in group}) > 1:
            raise ContractError(f"{name} must declare together: {', '.join(sorted(group))}")


def supports(adapter: Adapter, operation: Operation) -> bool:
    return isinstance(adapter.operations[operation], Supported)


def unsupported(adapter: Adapter, operation: Operation, pool: str) -> UnsupportedOperation:
    """The error that an undeclared operation raises before any I/O."""
    support = adapter.operations[operation]
    reason = support.reason if isinstance(support, Unsupported) else "unsupported"
    return UnsupportedOperation(
        f"Pool {pool} ({adapter.kind}) does not offer {operation}: {reason}.",
        operation=operation.value, pool=pool, adapter=adapter.kind, reason=reason,
    )  # fmt: skip
