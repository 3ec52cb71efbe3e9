"""Bodies that are sent as they come: command output as NDJSON, a wait that keeps its connection, a file.

Output is bytes that commands wrote, cut anywhere: each stream has its own decoder, so a character split over two chunks
arrives whole. A stream of lines ends in exactly one line with `exitCode` or `error`; one without that line was cut.
"""

from __future__ import annotations

import base64
import codecs
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from differently_core.contract import ExecEvent, Exit, FileContent, Output
from differently_core.errors import DifferentlyError, ExecUnconfirmed, Internal, ProviderUnavailable
from differently_core.model.exec import Encoding, Stream
from differently_core.model.sandbox import Sandbox
from differently_core.runtime.clock import Clock

from .failures import envelope

log = logging.getLogger(__name__)
KEEP_ALIVE_SECONDS: Final = 15.0
LINE_BYTES_MAX: Final = 262_144
"""Of output in one line. Escaped, it grows at most sixfold, far below the 8 MiB that readers of a line accept."""
STREAM_BYTES_MAX: Final = 100 * 1024 * 1024
"""Of output in one answer, below what the gateway sends; what comes after it is counted and dropped."""


class Decoder(Protocol):
    def text(self, data: bytes, *, final: bool = False) -> str: ...


class Utf8:
    """Bytes that are no UTF-8 become U+FFFD; the beginning of a character waits for its rest."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes, *, final: bool = False) -> str:
        return self._decoder.decode(data, final)

    @property
    def held_back(self) -> int:
        """Bytes of a character that is not whole yet."""
        return len(self._decoder.getstate()[0])


class Base64:
    """Each piece is whole base64 of its own."""

    def text(self, data: bytes, *, final: bool = False) -> str:
        return base64.b64encode(data).decode()


def decoder(encoding: Encoding) -> Decoder:
    return Base64() if encoding is Encoding.BASE64 else Utf8()


def command_lines(events: Iterator[ExecEvent], encoding: Encoding, request_id: str) -> Iterator[bytes]:
    """A running command as NDJSON; an empty line while it is quiet."""
    lines = _Lines(encoding)
    try:
        for event in events:
            yield from lines.of(event)
            if isinstance(event, Exit):
                return
        raise ExecUnconfirmed("The stream ended before the command's end was seen. The command may still run.")
    except Exception as error:
        yield from lines.flushed()
        yield _failed(error, request_id)


class _Lines:
    def __init__(self, encoding: Encoding) -> None:
        self._decoders: dict[Stream, Decoder] = {"stdout": decoder(encoding), "stderr": decoder(encoding)}
        self._dropped: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._sent = 0

    def of(self, event: ExecEvent) -> Iterator[bytes]:
        match event:
            case Output(stream, data):
                for start in range(0, len(data), LINE_BYTES_MAX):
                    yield from self._output(stream, data[start : start + LINE_BYTES_MAX])
            case Exit():
                yield from self.flushed()
                yield _line(self._ended(event))
            case _:
                yield b"\n"

    def _output(self, stream: Stream, data: bytes) -> Iterator[bytes]:
        kept = data[: max(0, STREAM_BYTES_MAX - self._sent)]
        self._sent += len(kept)
        self._dropped[stream] += len(data) - len(kept)
        text = self._decoders[stream].text(kept) if kept else ""
        # A character that is not whole yet makes no line; the next chunk of its stream will.
        yield _line({"stream": stream, "data": text}) if text else b"\n"

    def flushed(self) -> Iterator[bytes]:
        for stream, decode in self._decoders.items():
            rest = decode.text(b"", final=True)
            if rest:
                yield _line({"stream": stream, "data": rest})

    def _ended(self, event: Exit) -> dict[str, Any]:
        stdout = event.stdout_dropped_bytes + self._dropped["stdout"]
        stderr = event.stderr_dropped_bytes + self._dropped["stderr"]
        return {
            "exitCode": event.exit_code, "durationMs": event.duration_ms, "timedOut": event.timed_out,
            "truncated": bool(stdout or stderr), "stdoutDroppedBytes": stdout, "stderrDroppedBytes": stderr,
        }  # fmt: skip


def _failed(error: Exception, request_id: str) -> bytes:
    known = error if isinstance(error, DifferentlyError) else Internal("Something went wrong on our side.")
    log.warning("stream ended in an error", exc_info=error, extra={"requestId": request_id, "code": known.code})
    said = envelope(known, request_id)
    said["error"]["details"] = {**said["error"]["details"], "partial": True}
    return _line(said)


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def first_then(chunks: Iterator[Any]) -> Iterator[Any]:
    """Take the first item now, so that what goes wrong before it is an answer with a status, not a broken stream."""
    first = next(chunks, None)
    return _chained(first, chunks)


def _chained(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
    yield from rest


LOOK_SECONDS_MAX: Final = 5.0
"""Longer than two looks are ever apart, so that the connection is never silent for longer than it may be."""


def waited(looks: Iterator[Sandbox], clock: Clock, show: Callable[[Sandbox], str], request_id: str) -> Iterator[bytes]:
    """White space while the sandbox is looked at again, then the document: one JSON text all the same."""
    last_sent = clock.monotonic()
    found: Sandbox | None = None
    try:
        for look in looks:
            found = look
            if clock.monotonic() - last_sent >= KEEP_ALIVE_SECONDS - LOOK_SECONDS_MAX:
                last_sent = clock.monotonic()
                yield b" "
        assert found is not None
        yield show(found).encode()
    except DifferentlyError as error:
        yield json.dumps(envelope(error, request_id)).encode()


def exact(content: FileContent) -> Iterator[bytes]:
    """The file, or an error: neither a cut file nor one that grew passes for the one whose size was told."""
    left = content.size
    for chunk in content.chunks:
        left -= len(chunk)
        if left < 0:
            break
        yield chunk
    if left != 0:
        raise ProviderUnavailable("The file changed while it was read; read it again.")
