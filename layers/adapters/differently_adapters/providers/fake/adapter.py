"""The client of a `FakeBackend`: checks ownership, meets the planned fault, and tells outcomes apart as a
real one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    CommandResult,
    CreateRequest,
    Declaration,
    ExecEvent,
    Exit,
    FileContent,
    Files,
    Info,
    Instance,
    Instances,
    InstanceState,
    JobOutput,
    Operation,
    Output,
    Quiet,
    Target,
)
from differently_core.errors import (
    BackendError,
    ExecUnconfirmed,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model.exec import EXIT_TIMEOUT, ExecRequest, FileInfo, Job, Stream
from differently_core.model.resources import Size
from differently_core.runtime.clock import Clock

from ...output import keep
from . import files, jobs
from .backend import FakeBackend, FakeInstance
from .faults import (
    Duplicate,
    Fail,
    Fault,
    Late,
    Linger,
    LoseAnswer,
    LoseCall,
    Pending,
    Refuse,
    Slow,
    Unlisted,
    Vanish,
)

CALL_SECONDS_MAX = 30.0
"""How long a call waits for an answer when its caller gave no deadline."""
COMMANDS = frozenset({Operation.EXEC, Operation.EXEC_STREAM})
T = TypeVar("T")


class FakeConfig(BaseModel):
    """`backend` names the backend that adapters of one process share; by default each pool has its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    idempotent_create: bool = True
    settles_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0
    sandboxes: Annotated[int, Field(ge=0)] | None = None
    """Room for so many sandboxes; unbounded when absent."""


_shared: dict[tuple[str, str], FakeBackend] = {}
_shared_lock = threading.Lock()


def _shared_backend(context: AdapterContext, config: FakeConfig) -> FakeBackend:
    key = (context.installation, config.backend or f"pool {context.pool}")
    with _shared_lock:
        if key not in _shared:
            room = None
            if config.sandboxes is not None:
                room = Size.unlimited().model_copy(update={"sandboxes": config.sandboxes})
            _shared[key] = FakeBackend(
                context.clock, idempotent_create=config.idempotent_create,
                settles_seconds=config.settles_seconds, room=room,
            )  # fmt: skip
        return _shared[key]


class FakeAdapter:
    kind: ClassVar[str] = "fake"
    operations: ClassVar[Declaration] = dict.fromkeys(Operation, SUPPORTED)

    def __init__(self, context: AdapterContext, backend: FakeBackend | None = None) -> None:
        if not isinstance(context.config, FakeConfig):
            raise TypeError("a fake adapter needs a FakeConfig")
        self.backend = backend or _shared_backend(context, context.config)

    @classmethod
    def over(cls, backend: FakeBackend, *, pool: str = "fake", installation: str = "inst_fake") -> FakeAdapter:
        """A client of `backend`, without the registry."""
        return cls(AdapterContext(pool, installation, FakeConfig(), backend.clock), backend)

    @property
    def _clock(self) -> Clock:
        return self.backend.clock

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

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        target = Target(request.owner)
        return self._call(Operation.CREATE, target, lambda fault: self._create(request, fault, deadline), deadline)

    def _create(self, request: CreateRequest, fault: Fault | None, deadline: float) -> Instance:
        if isinstance(fault, Late):
            self.backend.create_late(request, fault.seconds)
            raise _lost(Operation.CREATE)
        if isinstance(fault, Slow) and fault.seconds > deadline:
            self._clock.sleep(deadline)
            self.backend.create_late(request, fault.seconds - deadline)
            raise _lost(Operation.CREATE)
        if isinstance(fault, Fail) and not fault.leaves:
            raise SandboxFailed("The instance failed to start and was removed.", settled=True)
        with self.backend.lock:
            made = self.backend.create(request)
            if made.deleting:
                raise InvalidState("The sandbox's instance is being deleted.")
            self._afflict(made, request, fault)
        return self._seen(made)

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
        return self._call(Operation.GET, target, lambda _: self._seen(self._find(target)))

    def list(self, installation: str) -> Instances:
        return self._call(Operation.LIST, None, lambda _: self._list(installation))

    def _list(self, installation: str) -> Instances:
        now = self._clock.monotonic()
        everything = self.backend.instances()
        return [
            self._seen(instance)
            for instance in everything
            if instance.owner.installation == installation and instance.listed_at <= now
        ]

    def delete(self, target: Target) -> None:
        self._call(Operation.DELETE, target, lambda fault: self._delete(target, fault))

    def _delete(self, target: Target, fault: Fault | None) -> None:
        with self.backend.lock:
            for instance in self._all_of(target):
                match fault:
                    case Linger(seconds, conflict):
                        self.backend.delete(instance, seconds, conflict=conflict)
                    case Late(seconds):
                        self.backend.delete(instance, seconds)
                    case _:
                        self.backend.delete(instance)
        if isinstance(fault, Late):
            raise _lost(Operation.DELETE)

    def _all_of(self, target: Target) -> _FakeInstances:
        """What a delete means: one instance by its ref, else everything that carries the owner."""
        if target.ref is None:
            return self.backend.owned(target.owner)
        found = self.backend.find(target.ref)
        if found is None:
            return []
        if found.owner != target.owner:
            raise _missing(target)
        return [found]

    def _find(self, target: Target) -> FakeInstance:
        """The instance, checked on itself; without a ref the oldest that lists show, a living one before a
        leaving one.
        """
        if target.ref is not None:
            found = self.backend.find(target.ref)
            if found is None or found.owner != target.owner:
                raise _missing(target)
            return found
        now = self._clock.monotonic()
        listed = [instance for instance in self.backend.owned(target.owner) if instance.listed_at <= now]
        if not listed:
            raise _missing(target)
        return min(listed, key=lambda instance: instance.deleting)

    def _running(self, target: Target) -> FakeInstance:
        found = self._find(target)
        state = found.state_at(self._clock.monotonic())
        if state is not InstanceState.RUNNING:
            raise InvalidState(f"The instance is {state}.")
        return found

    def _seen(self, instance: FakeInstance) -> Instance:
        state = instance.state_at(self._clock.monotonic())
        return Instance(instance.ref, instance.owner, state, prepared="labels")

    # Commands.

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        return self._call(
            Operation.EXEC,
            target,
            lambda _: _bounded(self._execute(self._running(target), request), output_bytes_max),
        )

    def _execute(self, instance: FakeInstance, request: ExecRequest) -> CommandResult:
        result = self.backend.exec_function(instance, request)
        seconds = min(result.duration_ms / 1000, request.timeout_seconds)
        if seconds:
            self._clock.sleep(seconds)
        return _within_timeout(result, request)

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        fault = self._arrive(Operation.EXEC_STREAM, target, CALL_SECONDS_MAX)
        instance = self._running(target)
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
            lambda _: jobs.start(self.backend, self._running(target), job, request),
        )

    def job_status(self, target: Target, job: str) -> Job:
        return self._call(Operation.JOB_STATUS, target, lambda _: jobs.status(self.backend, self._running(target), job))

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        return self._call(
            Operation.JOB_OUTPUT, target,
            lambda _: jobs.output(self.backend, self._running(target), job, stream, offset, limit),
        )  # fmt: skip

    def job_stop(self, target: Target, job: str) -> Job:
        return self._call(Operation.JOB_STOP, target, lambda _: jobs.stop(self.backend, self._running(target), job))

    # Files.

    def file_read(self, target: Target, path: str) -> FileContent:
        return self._call(Operation.FILE_READ, target, lambda _: files.read(self._running(target), path))

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        now = self._clock.now()
        return self._call(Operation.FILE_WRITE, target, lambda _: files.write(self._running(target), path, data, now))

    def file_list(self, target: Target, path: str) -> Files:
        return self._call(Operation.FILE_LIST, target, lambda _: files.listing(self._running(target), path))

    def file_stat(self, target: Target, path: str) -> FileInfo:
        return self._call(Operation.FILE_STAT, target, lambda _: files.info(self._running(target), path))

    def file_delete(self, target: Target, path: str) -> None:
        self._call(Operation.FILE_DELETE, target, lambda _: files.delete(self._running(target), path))

    def close(self) -> None:
        """The backend goes on without this client."""

    # One call.

    def _call(
        self,
        operation: Operation,
        target: Target | None,
        act: Callable[[Fault | None], T],
        deadline: float = CALL_SECONDS_MAX,
    ) -> T:
        fault = self._arrive(operation, target, deadline)
        result = act(fault)
        if isinstance(fault, (LoseAnswer, Slow)):
            self._clock.sleep(min(fault.seconds, deadline))
            if isinstance(fault, LoseAnswer) or fault.seconds > deadline:
                raise _lost(operation)
        return result

    def _arrive(self, operation: Operation, target: Target | None, deadline: float) -> Fault | None:
        fault = self.backend.arrive(operation, target.owner if target else None)
        if self.backend.latency_seconds:
            self._clock.sleep(self.backend.latency_seconds)
        match fault:
            case Refuse(error):
                raise error
            case LoseCall(seconds):
                self._clock.sleep(min(seconds, deadline))
                raise _lost(operation)
            case Vanish() if target is not None:
                for instance in self._all_of(target):
                    self.backend.vanish(instance.ref)
            case _:
                pass
        return fault


_FakeInstances = list[FakeInstance]


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} has no such instance.")


def _lost(operation: Operation) -> BackendError:
    if operation in COMMANDS:
        return ExecUnconfirmed("The backend did not tell how the command ended.")
    return ProviderUnavailable(f"The backend did not answer {operation}.")


def _without_end(events: Iterator[ExecEvent]) -> Iterator[ExecEvent]:
    for event in events:
        if isinstance(event, Exit):
            raise _lost(Operation.EXEC_STREAM)
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
