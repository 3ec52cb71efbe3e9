"""Commands on a backend where only short ones are safe: started as jobs, and heard of by looking again and again.

Each look waits in the sandbox for news, so an idle command costs a call now and then and a short one is told at once.
A look changes nothing and may fail; only so many in a row mean that the command's end was not seen. The time limit is
held in the sandbox, whatever becomes of us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from differently_core.contract import CommandResult, ExecEvent, Exit, Output, Quiet, Target
from differently_core.errors import BackendError, DifferentlyError, ExecUnconfirmed, NotFound
from differently_core.model.exec import EXIT_TIMEOUT, ExecRequest, Job, JobState, Stream
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from .jobs import READ_BYTES_MAX, Followed, ShellJobs

_Look = Callable[[], Followed]
LOOK_SECONDS: Final = 15.0
"""The longest that one look waits; backends end what takes much longer."""
FAILURES_MAX: Final = 3
PAUSE_SECONDS: Final = 1.0
"""After a look that failed."""
SPARE_SECONDS: Final = 30.0
"""How much longer than its limit a command may go on before its end counts as unseen."""


class Polled:
    def __init__(self, jobs: ShellJobs, clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock
        self._ids = SystemIds(clock)

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        began = self._clock.monotonic()
        job = self._started(target, request)
        until = began + request.timeout_seconds + SPARE_SECONDS
        for told in self._looks(lambda: self._jobs.finish(target, job, output_bytes_max, LOOK_SECONDS), until):
            if told.job.state is not JobState.RUNNING:
                stdout, stderr = told.written["stdout"], told.written["stderr"]
                kept = [min(size, output_bytes_max) for size in (told.job.stdout_bytes, told.job.stderr_bytes)]
                if [len(stdout), len(stderr)] != kept:
                    raise ExecUnconfirmed("The command has ended, and not all of its output arrived.")
                return CommandResult(
                    _code(told.job), stdout, stderr, self._since(began), told.job.stdout_bytes - len(stdout),
                    told.job.stderr_bytes - len(stderr), told.job.state is JobState.TIMED_OUT,
                )  # fmt: skip
        raise ExecUnconfirmed("The command did not end in its time.")

    def stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        began = self._clock.monotonic()
        job = self._started(target, request)
        until = began + request.timeout_seconds + SPARE_SECONDS
        sizes: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        seconds = min(LOOK_SECONDS, quiet_seconds)
        for told in self._looks(lambda: self._jobs.follow(target, job, sizes, READ_BYTES_MAX, seconds), until):
            for stream, data in told.written.items():
                if data:
                    sizes[stream] += len(data)
                    yield Output(stream, data)
            if told.job.state is JobState.RUNNING:
                if not any(told.written.values()):
                    yield Quiet()
            elif sizes["stdout"] >= told.job.stdout_bytes and sizes["stderr"] >= told.job.stderr_bytes:
                code = _code(told.job)
                self._forget(target, job)
                yield Exit(code, self._since(began), told.job.state is JobState.TIMED_OUT)
                return
        raise ExecUnconfirmed("The command did not end in its time.")

    def _started(self, target: Target, request: ExecRequest) -> str:
        job = self._ids.new("x").replace("_", "-")
        try:
            self._jobs.start(target, job, request)
        except BackendError as error:
            if error.settled or isinstance(error, ExecUnconfirmed):
                raise
            raise ExecUnconfirmed(f"The command's end was not seen. {error.message}") from None
        return job

    def _looks(self, look: _Look, until: float) -> Iterator[Followed]:
        """Looks until nobody wants any more, or the time is up."""
        failures = 0
        while self._clock.monotonic() < until:
            try:
                told = look()
            except NotFound:
                raise ExecUnconfirmed("The sandbox, or the command in it, is gone; its end was not seen.") from None
            except BackendError as error:
                failures += 1
                if failures >= FAILURES_MAX:
                    raise ExecUnconfirmed(f"The command's end was not seen. {error.message}") from None
                self._clock.sleep(PAUSE_SECONDS)
                continue
            failures = 0
            yield told

    def _forget(self, target: Target, job: str) -> None:
        """Best effort: what stays is small, and goes with the sandbox."""
        try:
            self._jobs.finish(target, job, 0, 0.0)
        except DifferentlyError:
            return

    def _since(self, began: float) -> int:
        return int((self._clock.monotonic() - began) * 1000)


def _code(job: Job) -> int:
    if job.state is JobState.TIMED_OUT:
        return EXIT_TIMEOUT
    if job.state is not JobState.EXITED or job.exit_code is None:
        raise ExecUnconfirmed("The command's processes are gone, and how it ended was not recorded.")
    return job.exit_code
