"""Background jobs of the fake backend. A command runs when its job starts; the clock reveals that it has ended."""

from __future__ import annotations

import re

from differently_core.contract import JobOutput
from differently_core.errors import InvalidRequest, InvalidState, NotFound
from differently_core.model.exec import EXIT_TIMEOUT, JOB_ID_PATTERN, ExecRequest, Job, JobState, Stream

from .backend import FakeBackend
from .instances import FakeInstance, FakeJob

EXIT_STOPPED = 143
"""128 + SIGTERM, as a shell reports it."""
EXIT_INTERRUPTED = 130
"""128 + SIGINT."""


def start(backend: FakeBackend, instance: FakeInstance, job: str, request: ExecRequest) -> Job:
    if not re.fullmatch(JOB_ID_PATTERN, job):
        raise InvalidRequest("The job id is not valid.", field="job")
    with backend.lock:
        first = instance.jobs.get(job)
        if first is None:
            instance.jobs[job] = _run(backend, instance, request)
        elif first.request != request:
            raise InvalidState(f"Job {job} is another command.")
    return status(backend, instance, job)


def _run(backend: FakeBackend, instance: FakeInstance, request: ExecRequest) -> FakeJob:
    started_at, started = backend.clock.now(), backend.clock.monotonic()
    result = backend.exec_function(instance, request)
    seconds = result.duration_ms / 1000
    timed_out = seconds > request.timeout_seconds
    return FakeJob(request, result, started_at, started + min(seconds, request.timeout_seconds), timed_out)


def status(backend: FakeBackend, instance: FakeInstance, job: str) -> Job:
    found = _find(instance, job)
    state, exit_code = _ending(found, backend.clock.monotonic())
    return Job(
        id=job, state=state, exit_code=exit_code, started_at=found.started_at,
        stdout_bytes=len(found.result.stdout), stderr_bytes=len(found.result.stderr),
    )  # fmt: skip


def output(
    backend: FakeBackend, instance: FakeInstance, job: str, stream: Stream, offset: int, limit: int
) -> JobOutput:
    found = _find(instance, job)
    written = found.result.stdout if stream == "stdout" else found.result.stderr
    data = written[offset : offset + limit]
    ended = _ending(found, backend.clock.monotonic())[0] is not JobState.RUNNING
    return JobOutput(data, offset + len(data), ended and offset + len(data) >= len(written))


def stop(backend: FakeBackend, instance: FakeInstance, job: str) -> Job:
    found = _find(instance, job)
    now = backend.clock.monotonic()
    if _ending(found, now)[0] is JobState.RUNNING:
        found.stopped = now
    return status(backend, instance, job)


def interrupt(backend: FakeBackend, instance: FakeInstance, job: str) -> Job:
    found = _find(instance, job)
    now = backend.clock.monotonic()
    if _ending(found, now)[0] is JobState.RUNNING and not found.ignores_interrupt:
        found.interrupted = now
    return status(backend, instance, job)


def end_all(backend: FakeBackend, instance: FakeInstance) -> None:
    """Their processes are gone, and nobody wrote down how they ended."""
    now = backend.clock.monotonic()
    for job in instance.jobs.values():
        job.lost = job.lost or _ending(job, now)[0] is JobState.RUNNING


def hold(instance: FakeInstance, since: float, until: float) -> None:
    """The instance stood still meanwhile, and so did they."""
    for job in instance.jobs.values():
        if job.ends > since:
            job.ends += until - since


def _find(instance: FakeInstance, job: str) -> FakeJob:
    found = instance.jobs.get(job)
    if found is None:
        raise NotFound(f"There is no job {job!r} in the sandbox.")
    return found


def _ending(job: FakeJob, now: float) -> tuple[JobState, int | None]:
    if job.lost:
        return JobState.LOST, None
    if job.stopped <= now:
        return JobState.STOPPED, EXIT_STOPPED
    if job.interrupted <= now:
        return JobState.EXITED, EXIT_INTERRUPTED
    if now < job.ends:
        return JobState.RUNNING, None
    if job.timed_out:
        return JobState.TIMED_OUT, EXIT_TIMEOUT
    return JobState.EXITED, job.result.exit_code
