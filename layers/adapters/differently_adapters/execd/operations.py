"""The operations of the contract that an execd answers, for adapters that can reach one in a sandbox."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from differently_core.contract import CommandResult, ExecEvent, FileContent, JobOutput, Target
from differently_core.contract import Files as FileInfos
from differently_core.model.exec import ExecRequest, FileInfo, Job, Stream

from ..jobs import ShellJobs
from .client import Execd
from .files import Files


class ThroughExecd(ABC):
    """Commands, jobs and files. The adapter says how a running sandbox's execd is reached, having checked its owner."""

    @abstractmethod
    def _reach(self, target: Target) -> Execd:
        """Raises `NotFound` for what is not the owner's, `InvalidState` for what does not run."""

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        return self._reach(target).exec(request, output_bytes_max)

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        return self._reach(target).exec_stream(request, quiet_seconds)

    def _jobs(self, target: Target) -> ShellJobs:
        execd = self._reach(target)
        directory = f"{execd.place().tmp.rstrip('/')}/.differently-jobs"
        return ShellJobs(lambda _, request, bytes_max: execd.exec_exactly(request, bytes_max), lambda _: directory)

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        place = self._reach(target).place()
        cwd = place.at(request.cwd) if request.cwd is not None else None
        return self._jobs(target).start(target, job, request.model_copy(update={"cwd": cwd}))

    def job_status(self, target: Target, job: str) -> Job:
        return self._jobs(target).status(target, job)

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        return self._jobs(target).output(target, job, stream, offset, limit)

    def job_stop(self, target: Target, job: str) -> Job:
        return self._jobs(target).stop(target, job)

    def job_interrupt(self, target: Target, job: str) -> Job:
        return self._jobs(target).interrupt(target, job)

    def file_read(self, target: Target, path: str) -> FileContent:
        return Files(self._reach(target)).read(path)

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        return Files(self._reach(target)).write(path, data)

    def file_list(self, target: Target, path: str) -> FileInfos:
        return Files(self._reach(target)).listing(path)

    def file_stat(self, target: Target, path: str) -> FileInfo:
        return Files(self._reach(target)).stat(path)

    def file_delete(self, target: Target, path: str) -> None:
        Files(self._reach(target)).delete(path)
