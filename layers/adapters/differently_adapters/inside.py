"""All that is done inside one sandbox whose backend runs shell lines: commands, jobs and files over one `Shell`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from differently_core.contract import CommandResult, ExecEvent, FileContent, Files, JobOutput, Target
from differently_core.model.exec import ExecRequest, FileInfo, Job, Stream
from differently_core.runtime.clock import Clock

from .jobs import IN_TMPDIR, ShellJobs
from .shell_files import Carriers, ShellFiles
from .supervised import Shell, Supervised


class Inside:
    """Made for one call or many; it keeps nothing of the sandbox."""

    def __init__(self, shell: Shell, clock: Clock, carriers: Carriers | None = None) -> None:
        self.commands = Supervised(shell, clock)
        self.jobs = ShellJobs(lambda _, request, most: self.commands.exec(request, most), lambda _: IN_TMPDIR)
        self.files = ShellFiles(self.commands.exec, clock, carriers)


class ThroughInside(ABC):
    """The contract's commands, jobs and files. The adapter says how a running sandbox is reached, having checked its
    owner, and replaces what its backend does in another way.
    """

    @abstractmethod
    def _inside(self, target: Target) -> Inside:
        """Raises `NotFound` for what is not the owner's, `InvalidState` for what does not run."""

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        return self._inside(target).commands.exec(request, output_bytes_max)

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        return self._inside(target).commands.stream(request, quiet_seconds)

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        return self._inside(target).jobs.start(target, job, request)

    def job_status(self, target: Target, job: str) -> Job:
        return self._inside(target).jobs.status(target, job)

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        return self._inside(target).jobs.output(target, job, stream, offset, limit)

    def job_stop(self, target: Target, job: str) -> Job:
        return self._inside(target).jobs.stop(target, job)

    def job_interrupt(self, target: Target, job: str) -> Job:
        return self._inside(target).jobs.interrupt(target, job)

    def file_read(self, target: Target, path: str) -> FileContent:
        return self._inside(target).files.read(path)

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        return self._inside(target).files.write(path, data)

    def file_list(self, target: Target, path: str) -> Files:
        return self._inside(target).files.list(path)

    def file_stat(self, target: Target, path: str) -> FileInfo:
        return self._inside(target).files.stat(path)

    def file_delete(self, target: Target, path: str) -> None:
        self._inside(target).files.delete(path)
