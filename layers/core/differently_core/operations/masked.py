"""What commands of a sandbox with secrets write, without the secrets: buffered, streamed, and as a job's output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ..contract import CommandResult, ExecEvent, Exit, JobOutput, Output
from ..errors import DifferentlyError
from ..model.exec import JOB_OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX, Stream
from .masking import Flow, Mask

Read = Callable[[int, int], JobOutput]
"""A job's output from an offset on, at most so many bytes."""


@contextmanager
def telling_nothing(mask: Mask | None) -> Iterator[None]:
    """An error may carry output that was seen before it."""
    try:
        yield
    except DifferentlyError as error:
        if mask is not None:
            error.message = mask.text(error.message)
            error.args = (error.message,)
            error.details = {
                name: mask.text(value) if isinstance(value, str) else value for name, value in error.details.items()
            }
        raise


def masked_result(mask: Mask | None, result: CommandResult) -> CommandResult:
    if mask is None:
        return result
    return replace(
        result,
        stdout=_halves(mask, result.stdout, result.stdout_dropped_bytes),
        stderr=_halves(mask, result.stderr, result.stderr_dropped_bytes),
    )


def _halves(mask: Mask, data: bytes, dropped: int) -> bytes:
    return mask.halves(data, OUTPUT_BYTES_MAX // 2) if dropped else mask.whole(data)


def masked_events(mask: Mask, events: Iterator[ExecEvent]) -> Iterator[ExecEvent]:
    """The same stream. What may be the beginning of a value waits for the next piece, or for the end."""
    flows: dict[Stream, Flow] = {"stdout": Flow(mask), "stderr": Flow(mask)}
    try:
        with telling_nothing(mask):
            for event in events:
                match event:
                    case Output(stream, data):
                        ready = flows[stream].feed(data)
                        if ready:
                            yield Output(stream, ready)
                    case Exit():
                        yield from _rest(flows)
                        yield event
                    case _:
                        yield event
    except DifferentlyError:
        yield from _rest(flows)
        raise
    finally:
        leave = getattr(events, "close", None)
        if leave is not None:
            leave()


def _rest(flows: dict[Stream, Flow]) -> Iterator[ExecEvent]:
    for stream, flow in flows.items():
        rest = flow.finish()
        if rest:
            yield Output(stream, rest)


def masked_output(mask: Mask, read: Read, offset: int, limit: int) -> JobOutput:
    """A part of a job's output. A value may begin before it and end after it, so a little more is read on both sides.

    What may be the beginning of a value at the end of what was written so far is left for the next read.
    """
    around = max(0, mask.longest - 1)
    start = max(0, offset - around)
    found = read(start, min(limit + (offset - start) + around, JOB_OUTPUT_BYTES_MAX))
    written = start + len(found.data)
    known = written if found.ended else written - mask.unfinished(found.data)
    end = max(offset, min(offset + limit, known))
    data = mask.whole(found.data)[offset - start : end - start]
    return JobOutput(data, offset + len(data), found.ended and end >= written)
