"""Commands, jobs and files in a sandbox: one read, at most one coalesced trace of use, and the call.

Nobody repeats a command: an end that was not seen is `ExecUnconfirmed`, with what was seen of the output. Command text,
stdin and env values go to the backend and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
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
    JobState,
    Stream,
)  # fmt: skip
from ..model.sandbox import Sandbox
from ..runtime.waiting import Beat, beating
from ..store.ports import StoreThrottled
from . import command_log, use
from .backends import adapter_of, calling
from .core import Caller, Core
from .giving import mask_of
from .masked import masked_events, masked_output, masked_result, telling_nothing
from .masking import Mask

KEEP_ALIVE_SECONDS = 15.0
USES_AT_ONCE_MAX = 40
BACK_OFFS_MAX = 4
"""Doublings of the pause between two tries: at most about a quarter of a second."""
ENDS_WITHIN_SECONDS = 15.0
"""So long after its timeout a command may still be on its way to an end."""
T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A running sandbox and the adapter that reaches it."""

    sandbox: Sandbox
    adapter: Adapter
    target: Target
    lease: use.Lease = use.BRIEF

    @property
    def pool(self) -> str:
        return self.sandbox.pool or ""

    def need(self, operation: Operation) -> None:
        """Raise `UnsupportedOperation` before any I/O when the pool does not offer it."""
        if not supports(self.adapter, operation):
            raise unsupported(self.adapter, operation, self.pool)


def reach(
    core: Core, caller: Caller, sandbox: str, operation: Operation, seconds: float = 0.0, entry: str = use.COMMAND
) -> Place:  # fmt: skip
    """The sandbox, awake and ready for `operation`; notes its use, which may last `seconds`.

    Raises `NotFound`, `InvalidState`, `UnsupportedOperation`, and for one that has to be woken what admission raises.
    """
    # Many commands that begin at once write one record, one after another; each of them gets its turn.
    for attempt in range(USES_AT_ONCE_MAX):
        if attempt:
            core.back_off(min(attempt, BACK_OFFS_MAX))
        found = use.awake(core, caller, sandbox)
        place = Place(found, adapter_of(core, found.pool or ""), Target(core.owner(found.id), found.backend_ref))
        place.need(operation)
        lease = use.lease(core, found, seconds, entry)
        if lease is not None:
            return replace(place, lease=lease)
    raise StoreThrottled("This sandbox is being changed by many calls right now; repeat the call in a second.")


def call_backend(core: Core, place: Place, call: Callable[[], T]) -> T:
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
    place = reach(core, caller, sandbox, Operation.EXEC, request.timeout_seconds + ENDS_WITHIN_SECONDS)
    with use.during(core, place.sandbox, place.lease):
        mask = mask_of(core, place.sandbox)
        begun = _begin(core, caller, place, request, mask)
        with telling_nothing(mask):
            result = command_log.failing(
                begun,
                lambda: call_backend(core, place, lambda: place.adapter.exec(place.target, request, OUTPUT_BYTES_MAX)),
            )
    command_log.ended(begun, result)
    return masked_result(mask, result)


def stream(core: Core, caller: Caller, sandbox: str, request: ExecRequest) -> Iterator[ExecEvent]:
    """Start at once and yield output as it is written; ends in exactly one `Exit`, or raises.

    A pool without streaming runs the command buffered and yields what it wrote in one piece for each stream.
    """
    _check_seconds(request, EXEC_SECONDS_MAX_STREAMED, "a streamed command; start a job for longer")
    place = reach(core, caller, sandbox, Operation.EXEC, request.timeout_seconds + ENDS_WITHIN_SECONDS)
    mask = mask_of(core, place.sandbox)
    events = _in_use(core, caller, place, request, mask)
    return events if mask is None else masked_events(mask, events)


def _in_use(core: Core, caller: Caller, place: Place, request: ExecRequest, mask: Mask | None) -> Iterator[ExecEvent]:
    with use.during(core, place.sandbox, place.lease):
        begun = _begin(core, caller, place, request, mask)
        streams = supports(place.adapter, Operation.EXEC_STREAM)
        events = _whole(core, place, request) if streams else _buffered(core, place, request)
        yield from command_log.followed(begun, events)


def _begin(
    core: Core, caller: Caller, place: Place, request: ExecRequest, mask: Mask | None
) -> command_log.Begun | None:
    subject, facts = command_log.command_of(request), command_log.command_facts(request)
    return command_log.begin(core, caller, place.sandbox, "sandbox.exec", subject, mask, **facts)


def _check_seconds(request: ExecRequest, limit: int, what: str) -> None:
    if request.timeout_seconds > limit:
        raise InvalidRequest(
            f"timeoutSeconds {request.timeout_seconds} is over the {limit} s of {what}.", field="timeoutSeconds"
        )


def _buffered(core: Core, place: Place, request: ExecRequest) -> Iterator[ExecEvent]:
    """The call may block for as long as the command runs, so it runs beside us while we keep the connection alive."""
    ending = beating(
        lambda: call_backend(core, place, lambda: place.adapter.exec(place.target, request, OUTPUT_BYTES_MAX)),
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
    events = call_backend(core, place, lambda: place.adapter.exec_stream(place.target, request, KEEP_ALIVE_SECONDS))
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
    identity = job if job is not None else core.ids.new("job")
    lasts = request.timeout_seconds + ENDS_WITHIN_SECONDS
    place = reach(core, caller, sandbox, Operation.JOB_START, lasts, _entry(identity))
    facts = {"job": identity, **command_log.command_facts(request)}
    subject, mask = command_log.command_of(request), mask_of(core, place.sandbox)
    begun = command_log.begin(core, caller, place.sandbox, "sandbox.job", subject, mask, **facts)
    return command_log.failing(
        begun, lambda: call_backend(core, place, lambda: place.adapter.job_start(place.target, identity, request))
    )


def job_status(core: Core, caller: Caller, sandbox: str, job: str) -> Job:
    place = reach(core, caller, sandbox, Operation.JOB_STATUS)
    found = call_backend(core, place, lambda: place.adapter.job_status(place.target, job))
    _seen(core, caller, place, found)
    return found


def job_output(core: Core, caller: Caller, sandbox: str, job: str, which: Stream, offset: int, limit: int) -> JobOutput:
    place = reach(core, caller, sandbox, Operation.JOB_OUTPUT)

    def read(start: int, size: int) -> JobOutput:
        return call_backend(core, place, lambda: place.adapter.job_output(place.target, job, which, start, size))

    mask = mask_of(core, place.sandbox)
    return read(offset, limit) if mask is None else masked_output(mask, read, offset, limit)


def stop_job(core: Core, caller: Caller, sandbox: str, job: str) -> Job:
    place = reach(core, caller, sandbox, Operation.JOB_STOP)
    begun = command_log.begin(core, caller, place.sandbox, "sandbox.job.stop", None, None, job=job)
    stop = partial(call_backend, core, place, lambda: place.adapter.job_stop(place.target, job))
    found = command_log.failing(begun, stop)
    _seen(core, caller, place, found)
    return found


def _entry(job: str) -> str:
    return f"job:{job}"


def _seen(core: Core, caller: Caller, place: Place, job: Job) -> None:
    """A job that has ended keeps nothing awake any more; its end is logged when it is seen first."""
    if job.state is not JobState.RUNNING and _entry(job.id) in (place.sandbox.busy_with or "").split():
        command_log.job_ended(core, caller, place.sandbox, job)
        use.release(core, lambda: core.store.get(Sandbox, place.sandbox.key()), _entry(job.id))


def read_file(core: Core, caller: Caller, sandbox: str, path: str) -> FileContent:
    place = reach(core, caller, sandbox, Operation.FILE_READ)
    note_file(core, caller, place, "read", path)
    return call_backend(core, place, lambda: place.adapter.file_read(place.target, path))


def write_file(core: Core, caller: Caller, sandbox: str, path: str, data: Iterable[bytes]) -> FileInfo:
    place = reach(core, caller, sandbox, Operation.FILE_WRITE)
    note_file(core, caller, place, "write", path)
    return call_backend(core, place, lambda: place.adapter.file_write(place.target, path, data))


def list_files(core: Core, caller: Caller, sandbox: str, path: str) -> list[FileInfo]:
    place = reach(core, caller, sandbox, Operation.FILE_LIST)
    return call_backend(core, place, lambda: place.adapter.file_list(place.target, path))


def stat_file(core: Core, caller: Caller, sandbox: str, path: str) -> FileInfo:
    place = reach(core, caller, sandbox, Operation.FILE_STAT)
    return call_backend(core, place, lambda: place.adapter.file_stat(place.target, path))


def delete_file(core: Core, caller: Caller, sandbox: str, path: str) -> None:
    place = reach(core, caller, sandbox, Operation.FILE_DELETE)
    note_file(core, caller, place, "delete", path)
    call_backend(core, place, lambda: place.adapter.file_delete(place.target, path))


def note_file(core: Core, caller: Caller, place: Place, what: str, path: str) -> None:
    """Log a call that reads or changes what is in a file, before it is made."""
    command_log.begin(core, caller, place.sandbox, f"sandbox.file.{what}", path, mask_of(core, place.sandbox))
