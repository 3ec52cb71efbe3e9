"""Commands, jobs and files in a running sandbox: one read, the call, and at most one coalesced trace of use.

Nobody repeats a command: an end that was not seen is `ExecUnconfirmed`, with what was seen of the output. Command text,
stdin and env values go to the backend and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ..contract import (
    Adapter,
    CommandResult,
    ExecEvent,
    FileContent,
    JobOutput,
    Operation,
    Output,
    Quiet,
    Target,
    supports,
    unsupported,
)  # fmt: skip
from ..contract import Exit as CommandExit
from ..errors import ExecUnconfirmed, InvalidRequest, InvalidState, NotFound
from ..model.exec import (
    EXEC_SECONDS_MAX_BUFFERED,
    EXEC_SECONDS_MAX_STREAMED,
    OUTPUT_BYTES_MAX,
    ExecRequest,
    FileInfo,
    Job,
    Stream,
)  # fmt: skip
from ..model.sandbox import Sandbox
from ..runtime.waiting import Beat, beating
from .backends import adapter_of, calling
from .core import Caller, Core
from .giving import mask_of
from .masked import masked_events, masked_output, masked_result, telling_nothing
from .sandboxes import running, touch

KEEP_ALIVE_SECONDS = 15.0
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A running sandbox and the adapter that reaches it."""

    sandbox: Sandbox
    adapter: Adapter
    target: Target

    @property
    def pool(self) -> str:
        return self.sandbox.pool or ""

    def need(self, operation: Operation) -> None:
        """Raise `UnsupportedOperation` before any I/O when the pool does not offer it."""
        if not supports(self.adapter, operation):
            raise unsupported(self.adapter, operation, self.pool)


def reach(core: Core, caller: Caller, sandbox: str, operation: Operation) -> Place:
    """The sandbox, ready for `operation`; notes its use. Raises `NotFound`, `InvalidState`, `UnsupportedOperation`."""
    found = running(core, caller, sandbox)
    adapter = adapter_of(core, found.pool or "")
    place = Place(found, adapter, Target(core.owner(found.id), found.backend_ref))
    place.need(operation)
    touch(core, found)
    return place


def _calling(core: Core, place: Place, call: Callable[[], T]) -> T:
    """Call the backend. What it does not find is a file or a job, unless it does not find the instance either."""
    try:
        return calling(place.adapter, call)
    except NotFound:
        _check_is_there(core, place)
        raise


def _check_is_there(core: Core, place: Place) -> None:
    """Raises `InvalidState` when the backend knows no such instance; whether it is lost is the reconciler's to say."""
    try:
        calling(place.adapter, lambda: place.adapter.get(place.target))
    except NotFound:
        core.nudges.reconcile(place.pool)
        raise InvalidState(
            f"The instance of sandbox {place.sandbox.id} is not to be found on its pool. It is being looked for; if it "
            "stays away the sandbox fails as instance_lost. GET the sandbox in a minute, or create a new one.",
            status=place.sandbox.status.value,
            sandboxId=place.sandbox.id,
        ) from None


def run(core: Core, caller: Caller, sandbox: str, request: ExecRequest) -> CommandResult:
    """Run and wait, up to `EXEC_SECONDS_MAX_BUFFERED`."""
    _check_seconds(request, EXEC_SECONDS_MAX_BUFFERED, "a buffered command; stream it or start a job for longer")
    place = reach(core, caller, sandbox, Operation.EXEC)
    mask = mask_of(core, place.sandbox)
    with telling_nothing(mask):
        result = _calling(core, place, lambda: place.adapter.exec(place.target, request, OUTPUT_BYTES_MAX))
    return masked_result(mask, result)


def stream(core: Core, caller: Caller, sandbox: str, request: ExecRequest) -> Iterator[ExecEvent]:
    """Start at once and yield output as it is written; ends in exactly one `Exit`, or raises.

    A pool without streaming runs the command buffered and yields what it wrote in one piece for each stream.
    """
    _check_seconds(request, EXEC_SECONDS_MAX_STREAMED, "a streamed command; start a job for longer")
    place = reach(core, caller, sandbox, Operation.EXEC)
    mask = mask_of(core, place.sandbox)
    streams = supports(place.adapter, Operation.EXEC_STREAM)
    events = _whole(core, place, request) if streams else _buffered(core, place, request)
    return events if mask is None else masked_events(mask, events)


def _check_seconds(request: ExecRequest, limit: int, what: str) -> None:
    if request.timeout_seconds > limit:
        raise InvalidRequest(
            f"timeoutSeconds {request.timeout_seconds} is over the {limit} s of {what}.", field="timeoutSeconds"
        )


def _buffered(core: Core, place: Place, request: ExecRequest) -> Iterator[ExecEvent]:
    """The call may block for as long as the command runs, so it runs beside us while we keep the connection alive."""
    ending = beating(
        lambda: _calling(core, place, lambda: place.adapter.exec(place.target, request, OUTPUT_BYTES_MAX)),
        KEEP_ALIVE_SECONDS,
    )
    result: CommandResult | None = None
    for news in ending:
        if isinstance(news, Beat):
            yield Quiet()
        else:
            result = news
    assert result is not None
    if result.stdout:
        yield Output("stdout", result.stdout)
    if result.stderr:
        yield Output("stderr", result.stderr)
    yield CommandExit(
        result.exit_code, result.duration_ms, result.timed_out, result.stdout_dropped_bytes,
        result.stderr_dropped_bytes,
    )  # fmt: skip


def _whole(core: Core, place: Place, request: ExecRequest) -> Iterator[ExecEvent]:
    """Pass events on and make sure that a stream never just stops."""
    events = _calling(core, place, lambda: place.adapter.exec_stream(place.target, request, KEEP_ALIVE_SECONDS))
    try:
        while True:
            event = calling(place.adapter, lambda: next(events, None))
            if event is None:
                raise ExecUnconfirmed(
                    "The backend closed the stream before the command's end was seen. The command may still run."
                )
            yield event
            if isinstance(event, CommandExit):
                return
    finally:
        leave = getattr(events, "close", None)
        if leave is not None:
            leave()


def start_job(core: Core, caller: Caller, sandbox: str, request: ExecRequest, job: str | None) -> Job:
    place = reach(core, caller, sandbox, Operation.JOB_START)
    identity = job if job is not None else core.ids.new("job")
    return _calling(core, place, lambda: place.adapter.job_start(place.target, identity, request))


def job_status(core: Core, caller: Caller, sandbox: str, job: str) -> Job:
    place = reach(core, caller, sandbox, Operation.JOB_STATUS)
    return _calling(core, place, lambda: place.adapter.job_status(place.target, job))


def job_output(core: Core, caller: Caller, sandbox: str, job: str, which: Stream, offset: int, limit: int) -> JobOutput:
    place = reach(core, caller, sandbox, Operation.JOB_OUTPUT)

    def read(start: int, size: int) -> JobOutput:
        return _calling(core, place, lambda: place.adapter.job_output(place.target, job, which, start, size))

    mask = mask_of(core, place.sandbox)
    return read(offset, limit) if mask is None else masked_output(mask, read, offset, limit)


def stop_job(core: Core, caller: Caller, sandbox: str, job: str) -> Job:
    place = reach(core, caller, sandbox, Operation.JOB_STOP)
    return _calling(core, place, lambda: place.adapter.job_stop(place.target, job))


def read_file(core: Core, caller: Caller, sandbox: str, path: str) -> FileContent:
    place = reach(core, caller, sandbox, Operation.FILE_READ)
    return _calling(core, place, lambda: place.adapter.file_read(place.target, path))


def write_file(core: Core, caller: Caller, sandbox: str, path: str, data: Iterable[bytes]) -> FileInfo:
    return _file(core, caller, sandbox, Operation.FILE_WRITE, lambda a, t: a.file_write(t, path, data))


def list_files(core: Core, caller: Caller, sandbox: str, path: str) -> list[FileInfo]:
    place = reach(core, caller, sandbox, Operation.FILE_LIST)
    return _calling(core, place, lambda: place.adapter.file_list(place.target, path))


def stat_file(core: Core, caller: Caller, sandbox: str, path: str) -> FileInfo:
    return _file(core, caller, sandbox, Operation.FILE_STAT, lambda a, t: a.file_stat(t, path))


def delete_file(core: Core, caller: Caller, sandbox: str, path: str) -> None:
    place = reach(core, caller, sandbox, Operation.FILE_DELETE)
    _calling(core, place, lambda: place.adapter.file_delete(place.target, path))


def _file(
    core: Core, caller: Caller, sandbox: str, operation: Operation, call: Callable[[Adapter, Target], FileInfo]
) -> FileInfo:
    place = reach(core, caller, sandbox, operation)
    return _calling(core, place, lambda: call(place.adapter, place.target))
