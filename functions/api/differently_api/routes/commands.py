"""Commands: run one and answer with its result, or stream its output as it is written."""

from __future__ import annotations

from differently_core.contract import CommandResult
from differently_core.errors import (
    BudgetExceeded,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidState,
    PayloadTooLarge,
    ProviderUnavailable,
    QueueFull,
    QuotaExceeded,
    Suspended,
    UnsupportedOperation,
)
from differently_core.model.exec import Encoding, ExecRequest, ExecResult
from differently_core.model.record import Wire
from differently_core.operations import execution

from ..failures import JSON, ErrorBody
from ..route import Access, Answer, Call, Group, Method, Route
from ..streams import command_lines, decoder, first_then

NDJSON = "application/x-ndjson"
RUNNING_ERRORS = (
    InvalidState, UnsupportedOperation, ProviderUnavailable, Suspended, BudgetExceeded, QuotaExceeded, QueueFull,
    InsufficientCapacity,
)  # fmt: skip
"""What every call into a sandbox can meet: it has to run, and one that nobody used is woken first."""


class ExecQuery(Wire):
    stream: bool = False
    """Same as `Accept: application/x-ndjson`."""


class OutputLine(Wire):
    """One piece of output. With `encoding: base64` each `data` is whole base64 of its own."""

    stream: str
    data: str


class EndLine(Wire):
    """The last line of a command whose end was seen."""

    exit_code: int
    duration_ms: int
    timed_out: bool
    truncated: bool
    stdout_dropped_bytes: int
    stderr_dropped_bytes: int


LINES: tuple[type[Wire], ...] = (OutputLine, EndLine, ErrorBody)
"""What the lines of a stream can be; exactly one of the last two ends it."""


def exec_command(call: Call[ExecRequest, ExecQuery]) -> Answer:
    sandbox, request = call.params["id"], call.body
    if call.query.stream or NDJSON in call.request.headers.get("accept", ""):
        events = first_then(execution.stream(call.core, call.caller, sandbox, request))
        return Answer(200, command_lines(events, request.encoding, call.request.id), {"Content-Type": NDJSON})
    result = result_of(execution.run(call.core, call.caller, sandbox, request), request.encoding)
    return Answer(200, result.model_dump_json(by_alias=True), {"Content-Type": JSON}, {"truncated": result.truncated})


def result_of(result: CommandResult, encoding: Encoding) -> ExecResult:
    return ExecResult(
        exit_code=result.exit_code,
        stdout=decoder(encoding).text(result.stdout, final=True),
        stderr=decoder(encoding).text(result.stderr, final=True),
        duration_ms=result.duration_ms,
        truncated=bool(result.stdout_dropped_bytes or result.stderr_dropped_bytes),
        stdout_dropped_bytes=result.stdout_dropped_bytes,
        stderr_dropped_bytes=result.stderr_dropped_bytes,
        timed_out=result.timed_out,
        encoding=encoding,
    )


ROUTES = (
    Route(
        Method.POST, "/v1/sandboxes/{id}/exec", Group.DATA, Access.TENANT, exec_command,
        "Run a command", ExecRequest, ExecQuery, ExecResult, media=NDJSON,
        errors=(*RUNNING_ERRORS, ExecUnconfirmed, PayloadTooLarge),
        description="Answers when the command has ended, within 240 seconds. With `stream=true` the answer is one JSON "
        "object a line as output is written, for up to 870 seconds: lines with `stream` and `data`, an empty line at "
        "least every 15 seconds, and exactly one last line with `exitCode` or `error`. A stream without that last line "
        "was cut. A command is never repeated by us: when its end was not seen the code is `exec_unconfirmed`.",
    ),
)  # fmt: skip
