"""What an adapter inherits for all that its backend does not offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar, Protocol

from ..errors import UnsupportedOperation
from ..model.exec import ExecRequest, FileInfo, Job, Stream
from .adapter import Files, Observations
from .operations import Declaration, Operation, Unsupported
from .values import (
    Catalog,
    EgressRules,
    ExecEvent,
    Exposure,
    FileContent,
    Instance,
    JobOutput,
    Owner,
    SnapshotInfo,
    SnapshotRequest,
    Target,
    Transition,
    Transitioned,
)


class Declaring(Protocol):
    kind: ClassVar[str]
    operations: ClassVar[Declaration]


def unsupported(adapter: Declaring, operation: Operation, pool: str, reason: str | None = None) -> UnsupportedOperation:
    """The error that an undeclared operation raises before any I/O.

    A declared operation gives a `reason` of its own for what it does not do, such as a snapshot of memory.
    """
    support = adapter.operations[operation]
    if reason is None:
        reason = support.reason if isinstance(support, Unsupported) else "unsupported"
    return UnsupportedOperation(
        f"Pool {pool} ({adapter.kind}) does not offer {operation}: {reason}.",
        operation=operation.value, pool=pool, adapter=adapter.kind, reason=reason,
    )  # fmt: skip


class NotOffered:
    """Every operation that may be declared unsupported, refused before any I/O with the declared reason.

    The last base of an adapter: what the class or another base implements comes first. `validate` refuses a class
    that declares an operation supported and would refuse it here.
    """

    kind: ClassVar[str]
    operations: ClassVar[Declaration]
    _pool: str

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        raise unsupported(self, Operation.EXEC_STREAM, self._pool)

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        raise unsupported(self, Operation.JOB_START, self._pool)

    def job_status(self, target: Target, job: str) -> Job:
        raise unsupported(self, Operation.JOB_STATUS, self._pool)

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        raise unsupported(self, Operation.JOB_OUTPUT, self._pool)

    def job_stop(self, target: Target, job: str) -> Job:
        raise unsupported(self, Operation.JOB_STOP, self._pool)

    def job_interrupt(self, target: Target, job: str) -> Job:
        raise unsupported(self, Operation.JOB_INTERRUPT, self._pool)

    def file_read(self, target: Target, path: str) -> FileContent:
        raise unsupported(self, Operation.FILE_READ, self._pool)

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        raise unsupported(self, Operation.FILE_WRITE, self._pool)

    def file_list(self, target: Target, path: str) -> Files:
        raise unsupported(self, Operation.FILE_LIST, self._pool)

    def file_stat(self, target: Target, path: str) -> FileInfo:
        raise unsupported(self, Operation.FILE_STAT, self._pool)

    def file_delete(self, target: Target, path: str) -> None:
        raise unsupported(self, Operation.FILE_DELETE, self._pool)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        raise unsupported(self, Operation.RENEW, self._pool)

    def stop(self, target: Target, deadline: float) -> Instance:
        raise unsupported(self, Operation.STOP, self._pool)

    def start(self, target: Target, deadline: float) -> Instance:
        raise unsupported(self, Operation.START, self._pool)

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        raise unsupported(self, Operation.PAUSE, self._pool)

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        raise unsupported(self, Operation.RESUME, self._pool)

    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        raise unsupported(self, Operation.CALL_OFF, self._pool)

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        raise unsupported(self, Operation.SNAPSHOT, self._pool)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        raise unsupported(self, Operation.SNAPSHOT_GET, self._pool)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        raise unsupported(self, Operation.SNAPSHOT_DELETE, self._pool)

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        raise unsupported(self, Operation.PORT_EXPOSE, self._pool)

    def port_revoke(self, target: Target, port: int) -> None:
        raise unsupported(self, Operation.PORT_REVOKE, self._pool)

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        raise unsupported(self, Operation.EGRESS_SET, self._pool)

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        raise unsupported(self, Operation.OBSERVE_MANY, self._pool)

    def discover(self) -> Catalog:
        raise unsupported(self, Operation.DISCOVER, self._pool)

    def verify_credential(self) -> None:
        raise unsupported(self, Operation.VERIFY_CREDENTIAL, self._pool)
