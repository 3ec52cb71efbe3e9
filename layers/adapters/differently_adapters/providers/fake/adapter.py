"""The client of a `FakeBackend`: checks ownership, meets the planned fault, and tells outcomes apart as a
real one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Self

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    Catalog,
    CommandResult,
    CreateRequest,
    Declaration,
    EgressRules,
    ExecEvent,
    Exit,
    Exposure,
    FileContent,
    Files,
    Info,
    Instance,
    Instances,
    InstanceState,
    JobOutput,
    Observations,
    Operation,
    Output,
    Owner,
    Quiet,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Transition,
    Transitioned,
    unsupported,
)
from differently_core.errors import (
    DifferentlyError,
    InvalidRequest,
    InvalidState,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model import features
from differently_core.model.exec import EXIT_TIMEOUT, ExecRequest, FileInfo, Job, Stream
from differently_core.model.resources import Size
from differently_core.runtime.clock import Clock

from ...output import keep
from . import files, jobs, moves, network, snapshots
from .backend import FakeBackend
from .calls import CALL_SECONDS_MAX, Calls, lost
from .config import FakeConfig, shared_backend
from .faults import Duplicate, Fail, Fault, Late, Linger, LoseAnswer, Partly, Pending, Slow, Unlisted
from .instances import FakeInstance, FakeSnapshot
from .ownership import all_of, find, in_use, seen


class FakeAdapter:
    kind: ClassVar[str] = "fake"
    operations: ClassVar[Declaration] = dict.fromkeys(Operation, SUPPORTED)

    def __init__(self, context: AdapterContext, backend: FakeBackend | None = None) -> None:
        if not isinstance(context.config, FakeConfig):
            raise TypeError("a fake adapter needs a FakeConfig")
        self.backend = backend or shared_backend(context, context.config)
        self.context = context
        self._pool = context.pool
        calls = Calls(self.backend, context.credential.get("token", ""))
        self._call, self._arrive = calls.make, calls.arrive

    @classmethod
    def over(
        cls,
        backend: FakeBackend,
        *,
        pool: str = "fake",
        installation: str = "inst_fake",
        credential: Mapping[str, str] | None = None,
    ) -> Self:
        """A client of `backend`, without the registry."""
        return cls(AdapterContext(pool, installation, FakeConfig(), backend.clock, dict(credential or {})), backend)

    @property
    def _clock(self) -> Clock:
        return self.backend.clock

    def _in_use(self, target: Target) -> FakeInstance:
        return in_use(self.backend, target)

    def _seen(self, instance: FakeInstance) -> Instance:
        return seen(self.backend, instance)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=None, isolation="none",
            idempotent_create=self.backend.idempotent_create, settles_seconds=self.backend.settles_seconds,
            description="A backend in memory; it runs nothing.", backend=self.backend.name,
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        return self._call(Operation.CAPABILITIES, None, lambda _: self.backend.capabilities)

    def capacity(self) -> Capacity:
        return self._call(Operation.CAPACITY, None, lambda _: _capacity(self.backend.free()))

    def health(self) -> None:
        self._call(Operation.HEALTH, None, lambda _: None)

    def discover(self) -> Catalog:
        return self._call(Operation.DISCOVER, None, lambda _: self.backend.catalog)

    def verify_credential(self) -> None:
        self._call(Operation.VERIFY_CREDENTIAL, None, lambda _: None)

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        target = Target(request.owner)
        return self._call(Operation.CREATE, target, lambda fault: self._create(request, fault, deadline), deadline)

    def _create(self, request: CreateRequest, fault: Fault | None, deadline: float) -> Instance:
        source = self._source(request)
        if isinstance(fault, Late):
            self.backend.create_late(request, fault.seconds)
            raise lost(Operation.CREATE)
        if isinstance(fault, Slow) and fault.seconds > deadline:
            self._clock.sleep(deadline)
            self.backend.create_late(request, fault.seconds - deadline)
            raise lost(Operation.CREATE)
        if isinstance(fault, Fail) and not fault.leaves:
            raise SandboxFailed("The instance failed to start and was removed.", settled=True)
        with self.backend.lock:
            made = self.backend.create(request)
            if made.deleting:
                raise InvalidState("The sandbox's instance is being deleted.")
            self._afflict(made, request, fault)
        if source is not None and source.broken:
            raise SandboxFailed("The instance could not be restored from the snapshot.")
        return self._seen(made)

    def _source(self, request: CreateRequest) -> FakeSnapshot | None:
        if request.from_snapshot is None:
            return None
        return snapshots.source(self.backend, request.owner.installation, request.from_snapshot)

    def _afflict(self, made: FakeInstance, request: CreateRequest, fault: Fault | None) -> None:
        now = self._clock.monotonic()
        match fault:
            case Pending(seconds):
                made.runs_at = now + seconds
            case Unlisted(seconds):
                made.listed_at = now + seconds
            case Duplicate():
                self.backend.create(request, always=True)
            case Fail():
                made.state = InstanceState.ERROR
                raise SandboxFailed("The instance failed to start.")
            case _:
                pass

    def get(self, target: Target) -> Instance:
        return self._call(Operation.GET, target, lambda _: self._seen(find(self.backend, target)))

    def list(self, installation: str) -> Instances:
        return self._call(Operation.LIST, None, lambda fault: self._list(installation, fault))

    def _list(self, installation: str, fault: Fault | None) -> Instances:
        """Page by page, and whole or not at all. The filter is the backend's, so what it lets through is checked."""
        found: dict[str, Instance] = {}
        cursor, passed = "", set[str]()
        while True:
            page, cursor = self.backend.page(installation, cursor, fault)
            found |= {entry.ref: self._seen(entry) for entry in page if entry.owner.installation == installation}
            if not cursor:
                return list(found.values())
            if cursor in passed:
                raise ProviderUnavailable("The backend's list leads in a circle.")
            passed.add(cursor)

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return self._call(
            Operation.OBSERVE_MANY, None, lambda fault: [self._observed(target, fault) for target in targets]
        )

    def _observed(self, target: Target, fault: Fault | None) -> Instance | DifferentlyError:
        if isinstance(fault, Partly) and target.owner.sandbox in fault.errors:
            return fault.errors[target.owner.sandbox]
        try:
            return self._seen(find(self.backend, target))
        except DifferentlyError as error:
            return error

    def delete(self, target: Target) -> None:
        self._call(Operation.DELETE, target, lambda fault: self._delete(target, fault))

    def _delete(self, target: Target, fault: Fault | None) -> None:
        with self.backend.lock:
            for instance in all_of(self.backend, target):
                match fault:
                    case Linger(seconds, conflict):
                        self.backend.delete(instance, seconds, conflict=conflict)
                    case Late(seconds):
                        self.backend.delete(instance, seconds)
                    case _:
                        self.backend.delete(instance)
        if isinstance(fault, Late):
            raise lost(Operation.DELETE)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        if until <= self._clock.now():
            raise InvalidRequest("An instance can only be renewed into the future.", field="until")
        return self._call(
            Operation.RENEW, target, lambda _: self.backend.renew(find(self.backend, target), until)
        )  # fmt: skip

    # States.

    def stop(self, target: Target, deadline: float) -> Instance:
        return self._rest_or_rise(Operation.STOP, target, deadline)

    def start(self, target: Target, deadline: float) -> Instance:
        return self._rest_or_rise(Operation.START, target, deadline)

    def _rest_or_rise(self, operation: Operation, target: Target, deadline: float) -> Instance:
        return self._call(
            operation, target,
            lambda fault: self._seen(moves.rest_or_rise(self.backend, target, operation, fault, deadline)), deadline,
        )  # fmt: skip

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._pause_or_resume(Operation.PAUSE, target, transition, deadline)

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._pause_or_resume(Operation.RESUME, target, transition, deadline)

    def _pause_or_resume(
        self, operation: Operation, target: Target, transition: Transition, deadline: float
    ) -> Transitioned:
        return self._call(
            Operation.GET if transition.observe_only else operation, target,
            lambda fault: moves.pause_or_resume(self.backend, target, operation, transition, fault, deadline), deadline,
        )  # fmt: skip

    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._call(
            Operation.CALL_OFF, target,
            lambda fault: moves.call_off(self.backend, target, transition, fault), deadline,
        )  # fmt: skip

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        if request.kind is SnapshotKind.MEMORY and features.SNAPSHOTS_MEMORY not in self.backend.capabilities.features:
            raise unsupported(self, Operation.SNAPSHOT, self._pool, "memory_is_not_kept")
        return self._call(
            Operation.SNAPSHOT, target,
            lambda fault: snapshots.take(self.backend, target, request, fault, deadline), deadline,
        )  # fmt: skip

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return self._call(Operation.SNAPSHOT_GET, Target(owner), lambda _: snapshots.get(self.backend, owner, ref))

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        self._call(Operation.SNAPSHOT_DELETE, Target(owner), lambda _: snapshots.delete(self.backend, owner, ref))

    # Network.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        network.check_port(port)
        return self._call(
            Operation.PORT_EXPOSE, target,
            lambda fault: network.expose(self.backend, self._in_use(target), port, seconds, fault),
        )  # fmt: skip

    def port_revoke(self, target: Target, port: int) -> None:
        self._call(Operation.PORT_REVOKE, target, lambda _: find(self.backend, target).ports.pop(port, None))

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        network.check_rules(rules)
        self._call(
            Operation.EGRESS_SET, target,
            lambda fault: network.set_egress(find(self.backend, target), rules, fault),
        )  # fmt: skip

    # Commands.

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        return self._call(
            Operation.EXEC,
            target,
            lambda _: _bounded(self._execute(self._in_use(target), request), output_bytes_max),
        )

    def _execute(self, instance: FakeInstance, request: ExecRequest) -> CommandResult:
        result = self.backend.exec_function(instance, request)
        seconds = min(result.duration_ms / 1000, request.timeout_seconds)
        if seconds:
            self._clock.sleep(seconds)
            instance.used_at = self._clock.monotonic()
        return _within_timeout(result, request)

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        fault = self._arrive(Operation.EXEC_STREAM, target, CALL_SECONDS_MAX)
        instance = self._in_use(target)
        if self.backend.stream_function is None:
            events = self._replayed(
                _within_timeout(self.backend.exec_function(instance, request), request), quiet_seconds
            )
        else:
            events = self.backend.stream_function(instance, request, quiet_seconds)
        return _without_end(events) if isinstance(fault, LoseAnswer) else events

    def _replayed(self, result: CommandResult, quiet_seconds: float) -> Iterator[ExecEvent]:
        for _ in range(int(result.duration_ms / 1000 / quiet_seconds)):
            self._clock.sleep(quiet_seconds)
            yield Quiet()
        if result.stdout:
            yield Output("stdout", result.stdout)
        if result.stderr:
            yield Output("stderr", result.stderr)
        yield Exit(result.exit_code, result.duration_ms, result.timed_out)

    # Jobs.

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        return self._call(
            Operation.JOB_START,
            target,
            lambda _: jobs.start(self.backend, self._in_use(target), job, request),
        )

    def job_status(self, target: Target, job: str) -> Job:
        return self._call(Operation.JOB_STATUS, target, lambda _: jobs.status(self.backend, self._in_use(target), job))

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        return self._call(
            Operation.JOB_OUTPUT, target,
            lambda _: jobs.output(self.backend, self._in_use(target), job, stream, offset, limit),
        )  # fmt: skip

    def job_stop(self, target: Target, job: str) -> Job:
        return self._call(Operation.JOB_STOP, target, lambda _: jobs.stop(self.backend, self._in_use(target), job))

    def job_interrupt(self, target: Target, job: str) -> Job:
        return self._call(
            Operation.JOB_INTERRUPT, target, lambda _: jobs.interrupt(self.backend, self._in_use(target), job)
        )

    # Files.

    def file_read(self, target: Target, path: str) -> FileContent:
        return self._call(Operation.FILE_READ, target, lambda _: files.read(self._in_use(target), path))

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        now = self._clock.now()
        return self._call(Operation.FILE_WRITE, target, lambda _: files.write(self._in_use(target), path, data, now))

    def file_list(self, target: Target, path: str) -> Files:
        return self._call(Operation.FILE_LIST, target, lambda _: files.listing(self._in_use(target), path))

    def file_stat(self, target: Target, path: str) -> FileInfo:
        return self._call(Operation.FILE_STAT, target, lambda _: files.info(self._in_use(target), path))

    def file_delete(self, target: Target, path: str) -> None:
        self._call(Operation.FILE_DELETE, target, lambda _: files.delete(self._in_use(target), path))

    def close(self) -> None:
        """The backend goes on without this client."""


def _without_end(events: Iterator[ExecEvent]) -> Iterator[ExecEvent]:
    for event in events:
        if isinstance(event, Exit):
            raise lost(Operation.EXEC_STREAM)
        yield event


def _capacity(free: Size | None) -> Capacity:
    if free is None:
        return Capacity(bounded=False)
    cpu, memory = max(0, free.cpu_millis), max(0, free.memory_mib)
    if free.sandboxes <= 0:
        cpu = memory = 0
    return Capacity(True, cpu, memory, cpu, memory)


def _within_timeout(result: CommandResult, request: ExecRequest) -> CommandResult:
    if result.duration_ms <= request.timeout_seconds * 1000:
        return result
    return replace(result, exit_code=EXIT_TIMEOUT, timed_out=True, duration_ms=request.timeout_seconds * 1000)


def _bounded(result: CommandResult, output_bytes_max: int) -> CommandResult:
    stdout, stdout_dropped = keep(result.stdout, output_bytes_max)
    stderr, stderr_dropped = keep(result.stderr, output_bytes_max)
    return replace(
        result, stdout=stdout, stderr=stderr,
        stdout_dropped_bytes=result.stdout_dropped_bytes + stdout_dropped,
        stderr_dropped_bytes=result.stderr_dropped_bytes + stderr_dropped,
    )  # fmt: skip
