"""What goes in and out of an adapter: owners, targets, instances, requests and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from ..errors import DifferentlyError
from ..model.exec import Stream
from ..model.pool import Trust
from ..model.resources import Size
from ..model.snapshot import SnapshotKind

PROTOCOL_VERSION = "1"
LABEL_PREFIX = "differently.dev/"
"""Tenants cannot set labels under it."""
LABEL_SANDBOX = "differently.dev/sandbox-id"
LABEL_INSTALLATION = "differently.dev/installation"


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
    incarnation: str = ""
    """Changes whenever its memory is lost or restored: a pause or resume names exactly one. Empty if it never does."""
    expires_at: datetime | None = None
    """When the backend ends it by itself; None when it does not."""
    idle: bool = False
    """True when the backend itself put it to sleep and wakes it on use; `state` is then what the backend says."""


class EgressAction(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True)
class EgressRules:
    """`default` applies to what no rule names, and a denial wins over an allowance.

    A rule is a host name, a wildcard such as `*.example.com` (every name below it), an address or a CIDR block.
    """

    default: EgressAction
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


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
    from_snapshot: str | None = None
    """A snapshot's ref on this same adapter."""
    egress: EgressRules | None = None
    """From the first moment on, where the backend can be told so at the create; they are set again, and confirmed,
    before the sandbox is used. None: no limit. Only given to an adapter that supports `egress_set`."""


@dataclass(frozen=True)
class Info:
    """`version` is the backend's own, empty where it tells none.

    `settles_seconds`: how long after a create call ended a late instance may still turn up at the backend.
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
    warnings: tuple[str, ...] = ()
    """What an operator should know about this backend although it works: whole sentences."""


@dataclass(frozen=True)
class Capabilities:
    """Limits of one sandbox; 0 and empty mean none."""

    features: frozenset[str]
    max_cpu_millis: int = 0
    max_memory_mib: int = 0
    max_disk_gib: int = 0
    templates: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    max_lifetime_seconds: int = 0
    """The backend ends an instance after that, whatever is asked."""
    lease_seconds: int = 0
    """An instance must be renewed this often; 0 means that it has no lease."""
    snapshot_stops: bool = False
    """Taking a snapshot stops the instance."""
    idles_by_itself: bool = False
    """An instance that nobody uses is put to sleep by the backend, and wakes on use."""


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


@dataclass(frozen=True)
class Transition:
    """A pause or resume of exactly one incarnation.

    The caller stores `operation` before the call. Called again with `observe_only`, the adapter reports how that
    attempt stands and never begins another.
    """

    operation: str
    incarnation: str
    observe_only: bool = False


class Progress(StrEnum):
    DONE = "done"
    UNDERWAY = "underway"
    FAILED = "failed"
    """It did not happen, and the instance is as it was before."""


@dataclass(frozen=True)
class Transitioned:
    progress: Progress
    instance: Instance
    message: str = ""


class SnapshotState(StrEnum):
    CREATING = "creating"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class SnapshotRequest:
    """`operation` names this one capture: repeated with it, the call returns the first snapshot, never a second."""

    kind: SnapshotKind
    operation: str
    name: str = ""


@dataclass(frozen=True)
class SnapshotInfo:
    """`kind` is what was really captured, which may be more than was asked for. `size_bytes` is None if unknown."""

    ref: str
    owner: Owner
    kind: SnapshotKind
    state: SnapshotState
    size_bytes: int | None = None
    message: str = ""


@dataclass(frozen=True)
class Exposure:
    """A reachable address of one port. `url` may carry a token, so it is for the caller only and never for a log."""

    port: int
    url: str = field(repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True)
class Catalog:
    """What a backend offers for configuration, such as templates and regions: names with a short description."""

    templates: Mapping[str, str] = field(default_factory=dict)
    regions: Mapping[str, str] = field(default_factory=dict)


Observation = Instance | DifferentlyError
"""What a batch says of one target: the instance, or why it could not be told."""
