"""The devhost adapter: the contract's operations over directories and processes of this machine.

Nothing confines a command: it runs as the control plane's user and sees the whole host. What is kept from it is the
control plane's environment and open files. An absolute `cwd` is the host's; a relative one starts at the home.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from differently_core import errors
from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    CommandResult,
    CreateRequest,
    Declaration,
    ExecEvent,
    FileContent,
    Files,
    Info,
    Instance,
    Instances,
    InstanceState,
    JobOutput,
    NotOffered,
    Observations,
    Operation,
    Owner,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Unsupported,
    unsupported,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest, FileInfo, Job, Stream
from differently_core.model.pool import Trust

from ...jobs import ShellJobs
from ...processes import Command, EventStream, NotStarted, Running, run, start
from . import files, tracking
from .config import DevhostConfig
from .directory import Meta, Root, SandboxDirectory, base_env
from .snapshots import Snapshots

FEATURES = frozenset(
    {
        features.EXEC, features.EXEC_STREAM, features.FILES, features.STOP_START, features.PERSISTENCE_DISK,
        features.SNAPSHOTS_DISK, features.FORK, features.ISOLATION_NONE,
    }
)  # fmt: skip


class DevhostAdapter(NotOffered):
    kind: ClassVar[str] = "devhost"
    operations: ClassVar[Declaration] = {
        **dict.fromkeys(Operation, SUPPORTED),
        Operation.RENEW: Unsupported("no_lease"),
        Operation.PAUSE: Unsupported("memory_is_not_kept"),
        Operation.RESUME: Unsupported("memory_is_not_kept"),
        Operation.CALL_OFF: Unsupported("memory_is_not_kept"),
        Operation.PORT_EXPOSE: Unsupported("ports_are_the_hosts"),
        Operation.PORT_REVOKE: Unsupported("ports_are_the_hosts"),
        Operation.EGRESS_SET: Unsupported("no_isolation"),
        Operation.DISCOVER: Unsupported("nothing_to_choose_from"),
        Operation.VERIFY_CREDENTIAL: Unsupported("no_credential"),
    }

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, DevhostConfig):
            raise TypeError("a devhost adapter needs a DevhostConfig")
        self._clock = context.clock
        self._pool = context.pool
        self._path = context.config.path
        self._backend = str(context.config.root)
        self._root = Root(context.config.root, context.clock)
        self._snapshots = Snapshots(self._root, context.clock)
        self._jobs = ShellJobs(self.exec, lambda target: str(self._root.at(target.owner).jobs))

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=Trust.PRIVATE, isolation="none", idempotent_create=True,
            settles_seconds=0.0, description="Directories and processes of this machine; no isolation.",
            backend=self._backend,
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        return Capabilities(features=FEATURES)

    def capacity(self) -> Capacity:
        return Capacity(bounded=False)

    def health(self) -> None:
        self._root.check()

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        home = None
        if request.from_snapshot is not None:
            home = self._snapshots.home(request.owner.installation, request.from_snapshot)
        directory = self._root.create(request, home)
        directory.check_kept()
        return self._found(Target(request.owner), directory)

    def get(self, target: Target) -> Instance:
        return self._found(target, self._root.find(target))

    def _found(self, target: Target, directory: SandboxDirectory) -> Instance:
        meta = directory.meta()
        if meta is None or meta.owner != target.owner:
            raise errors.NotFound(f"Sandbox {target.owner.sandbox} does not exist on this host.")
        return _instance(meta, directory)

    def list(self, installation: str) -> Instances:
        return [_instance(meta, directory) for meta, directory in self._root.all(installation)]

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        observed: Observations = []
        for target in targets:
            try:
                observed.append(self.get(target))
            except errors.DifferentlyError as error:
                observed.append(error)
        return observed

    def delete(self, target: Target) -> None:
        directory = self._root.at(target.owner)
        if directory.meta() is None:
            self._root.refuse_foreign(target)
            if not self._root.is_elsewhere(target.owner):
                # A command may have removed its own sandbox's directory, and go on.
                tracking.end_all(directory.processes, target.owner.sandbox, self._clock)
            self._root.sweep(directory)
            return
        directory = self._root.find(target)
        with contextlib.suppress(errors.NotFound):  # another delete was faster
            directory.forbid_commands()
        tracking.end_all(directory.processes, target.owner.sandbox, self._clock)
        self._root.remove(directory)

    def stop(self, target: Target, deadline: float) -> Instance:
        directory = self._root.find(target)
        directory.stop()
        tracking.end_all(directory.processes, target.owner.sandbox, self._clock)
        return self._found(target, directory)

    def start(self, target: Target, deadline: float) -> Instance:
        directory = self._root.find(target)
        directory.start()
        return self._found(target, directory)

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        directory, started = self._start(target, request)
        try:
            return run(started, output_bytes_max)
        finally:
            _forget(directory, started)

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        directory, started = self._start(target, request)
        return EventStream(started, quiet_seconds, lambda: _forget(directory, started))

    def _start(self, target: Target, request: ExecRequest) -> tuple[SandboxDirectory, Running | NotStarted]:
        directory = self._root.find(target)
        with directory.starting():
            started = start(self._command(directory, target, request), self._clock)
            if isinstance(started, Running):
                with contextlib.suppress(OSError):  # a full disk; the mark in its environment still finds it
                    tracking.record(directory.processes, started.pid)
        return directory, started

    def _command(self, directory: SandboxDirectory, target: Target, request: ExecRequest) -> Command:
        with contextlib.suppress(OSError):  # a command may have removed its own home
            directory.home.mkdir(exist_ok=True)
        env = {
            **base_env(directory, self._path), **directory.env(), **request.env,
            tracking.MARKER: target.owner.sandbox,
        }  # fmt: skip
        return Command(
            argv=request.argv(),
            env=env,
            cwd=str(directory.home / (request.cwd or ".")),
            stdin=None if request.stdin is None else request.stdin.encode(),
            timeout_seconds=request.timeout_seconds,
        )

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        env = {name: value for name, value in request.env.items() if name != tracking.MARKER}
        return self._jobs.start(target, job, request.model_copy(update={"env": env}))

    def job_status(self, target: Target, job: str) -> Job:
        return self._jobs.status(target, job)

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        return self._jobs.output(target, job, stream, offset, limit)

    def job_stop(self, target: Target, job: str) -> Job:
        return self._jobs.stop(target, job)

    def job_interrupt(self, target: Target, job: str) -> Job:
        return self._jobs.interrupt(target, job)

    def file_read(self, target: Target, path: str) -> FileContent:
        return files.read(self._running(target).home, path)

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        directory = self._running(target)
        return files.write(directory.home, directory.parts, path, data, directory.starting)

    def file_list(self, target: Target, path: str) -> Files:
        return files.listing(self._running(target).home, path)

    def file_stat(self, target: Target, path: str) -> FileInfo:
        return files.info(self._running(target).home, path)

    def file_delete(self, target: Target, path: str) -> None:
        files.delete(self._running(target).home, path)

    def _running(self, target: Target) -> SandboxDirectory:
        directory = self._root.find(target)
        directory.check_running()
        return directory

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        if request.kind is SnapshotKind.MEMORY:
            raise unsupported(self, Operation.SNAPSHOT, self._pool, "memory_is_not_kept")
        return self._snapshots.take(target.owner, self._root.find(target), request)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return self._snapshots.get(owner, ref)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        self._snapshots.delete(owner, ref)

    def end_commands(self, installation: str) -> None:
        """End every command and job of this installation's sandboxes, which stay as they are. Raises nothing."""
        with contextlib.suppress(errors.DifferentlyError):
            for meta, directory in self._root.all(installation):
                with contextlib.suppress(errors.DifferentlyError):
                    tracking.end_all(directory.processes, meta.sandbox, self._clock)

    def close(self) -> None:
        """Nothing is held: every call opens and closes what it needs."""


def _instance(meta: Meta, directory: SandboxDirectory) -> Instance:
    resting = directory.is_deleting() or directory.is_stopped()
    return Instance(
        ref=meta.sandbox, owner=meta.owner, state=InstanceState.STOPPED if resting else InstanceState.RUNNING,
        prepared="meta.json", incarnation=directory.incarnation(),
    )  # fmt: skip


def _forget(directory: SandboxDirectory, started: Running | NotStarted) -> None:
    if isinstance(started, Running):
        tracking.forget(directory.processes, started.pid)
