"""What commands are and what they give: requests, results, and the events of a stream."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from ._answer import of_document
from ._failure import CommandFailed, ConfigurationError, StreamCut, UnexpectedAnswer
from ._request import given

Command = Union[str, "Sequence[str]"]
"""A text is run by `/bin/sh -c`; a list of words without a shell."""
BUFFERED_SECONDS_MAX = 240
STREAM_SECONDS_MAX = 870
JOB_SECONDS_MAX = 8100
STDIN_CHARACTERS_MAX = 1_048_576
LINE_BYTES_MAX = 8 * 1024 * 1024
OK = 0


@dataclass(frozen=True)
class Output:
    """Something that a command wrote, as soon as it is known."""

    stream: str
    """`stdout` or `stderr`."""
    data: bytes
    text: str = field(repr=False)
    """The same as text: whole characters, with U+FFFD for bytes that are none."""


@dataclass(frozen=True)
class Exit:
    """The end of a command, and the last event of its stream."""

    exit_code: int
    duration_ms: int = 0
    timed_out: bool = False
    truncated: bool = False
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0


Event = Union[Output, Exit]


@dataclass(frozen=True)
class Result:
    """A finished command. A non-zero exit code is a result, not an error."""

    exit_code: int
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    duration_ms: int = 0
    timed_out: bool = False
    truncated: bool = False
    """The middle of long output was dropped, as many bytes as the next two say."""
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == OK

    def checked(self) -> Result:
        """Itself, or a CommandFailed for an exit code other than 0."""
        if self.ok:
            return self
        why = "timed out" if self.timed_out else f"exited with {self.exit_code}"
        said = self.stderr.strip() or self.stdout.strip()
        last = said.splitlines()[-1] if said else "and said nothing"
        raise CommandFailed(f"The command {why}: {last}", self)


def exec_body(
    command: Command, *, env: Mapping[str, str] | None, cwd: str | None, stdin: str | bytes | None,
    timeout_seconds: int,
) -> dict[str, Any]:  # fmt: skip
    """Output is asked for as base64, so that every byte comes as it was written."""
    what = {"command": command} if isinstance(command, str) else {"args": list(command)}
    return {
        **what,
        **given(env=dict(env) if env else None, cwd=cwd, stdin=_text(stdin), timeout_seconds=timeout_seconds),
        "encoding": "base64",
    }


def fits_in_a_call(stdin: str | bytes) -> bool:
    """Whether input can go with its command: text, and not too much of it."""
    try:
        text = stdin.decode() if isinstance(stdin, bytes) else stdin
    except UnicodeDecodeError:
        return False
    return len(text) <= STDIN_CHARACTERS_MAX and "\0" not in text


def _text(stdin: str | bytes | None) -> str | None:
    if stdin is None:
        return None
    if not fits_in_a_call(stdin):
        raise ConfigurationError(
            f"Input of a job is text of at most {STDIN_CHARACTERS_MAX} characters; write more, or bytes, to a file of "
            "the sandbox and read it from there."
        )
    return stdin.decode() if isinstance(stdin, bytes) else stdin


def result_of(found: Mapping[str, Any]) -> Result:
    """From the document of a buffered command."""
    return Result(
        stdout_bytes=_bytes(found.get("stdout", ""), found), stderr_bytes=_bytes(found.get("stderr", ""), found),
        **_end(found),
    )  # fmt: skip


def collected(outputs: Mapping[str, bytearray], end: Exit) -> Result:
    """From the pieces of a stream and its end."""
    return Result(
        end.exit_code, bytes(outputs["stdout"]), bytes(outputs["stderr"]), end.duration_ms, end.timed_out,
        end.truncated, end.stdout_dropped_bytes, end.stderr_dropped_bytes,
    )  # fmt: skip


def _end(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "exit_code": int(found["exitCode"]),
        "duration_ms": int(found.get("durationMs", 0)),
        "timed_out": bool(found.get("timedOut", False)),
        "truncated": bool(found.get("truncated", False)),
        "stdout_dropped_bytes": int(found.get("stdoutDroppedBytes", 0)),
        "stderr_dropped_bytes": int(found.get("stderrDroppedBytes", 0)),
    }


def _bytes(text: str, found: Mapping[str, Any]) -> bytes:
    if found.get("encoding", "base64") != "base64":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnexpectedAnswer("The output of the command is no base64.", 200) from None


class Text:
    """Bytes of the two streams as text, each cut anywhere."""

    def __init__(self) -> None:
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def output(self, stream: str, data: bytes) -> Output:
        decoder = self._decoders.setdefault(stream, codecs.getincrementaldecoder("utf-8")("replace"))
        return Output(stream, data, decoder.decode(data))


class Lines:
    """The lines of a streamed command, from chunks cut anywhere; after the last one `ended` must hold.

    Exactly one line ends a stream. An end that is an error is raised; a line of a kind that this version does not know
    is passed over.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._text = Text()
        self.ended = False

    def events(self, chunk: bytes) -> Iterator[Event]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise UnexpectedAnswer(f"A line of the stream is longer than {LINE_BYTES_MAX} bytes.", 200)
        for line in lines:
            if line.strip() and not self.ended:
                yield from self._event(line)

    def _event(self, line: bytes) -> Iterator[Event]:
        try:
            found = json.loads(line)
        except ValueError:
            raise UnexpectedAnswer("A line of the stream is no JSON.", 200) from None
        if not isinstance(found, dict):
            return
        if "error" in found:
            self.ended = True
            raise of_document(found["error"], 200)
        if "exitCode" in found:
            self.ended = True
            yield Exit(**_end(found))
        elif "stream" in found:
            yield self._text.output(str(found["stream"]), _bytes(found.get("data", ""), {}))

    def close(self) -> None:
        """The connection ended; without an end of the command that is an error, never a success."""
        if not self.ended:
            raise StreamCut("The stream broke off before the command's end was told.")
