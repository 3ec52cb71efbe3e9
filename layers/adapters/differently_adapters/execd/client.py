"""execd, the agent in every sandbox: commands that are waited for or followed.

Nothing here knows how the sandbox was made: an `Http` at its execd, with the headers that it wants, is enough. A
command's time is told to execd, which then ends it even when nobody listens any more, and is kept here as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Final

from pydantic import JsonValue

from differently_core.contract import CommandResult, ExecEvent, Exit, Output, Quiet
from differently_core.errors import BackendError, DifferentlyError, ExecUnconfirmed, NotFound, ProviderUnavailable
from differently_core.model.exec import EXIT_TIMEOUT, ExecRequest, Stream
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from ..http import Answer, Call, Deadlines, Http
from ..output import Kept
from .scripts import PLACE_LINE, STREAMS, Line, Place, Told, command_line, place_told, understand
from .stream import Event, EventPump, Silence
from .upload import multipart
from .wire import FileRead, read

PORT: Final = 44772
CALL_SECONDS: Final = 30.0
IDLE_SECONDS: Final = 20.0
"""execd tells every 3 s that a command lives; a stream that is silent for longer is dead."""
KILL_SECONDS_MAX: Final = 10.0
"""How long an interrupted command may take to be gone before we say that we do not know."""
EDGE_SECONDS: Final = 0.1
"""execd's own timer may be so much ahead of ours: a line killed that near the end of its time was killed by it."""
PROBE_SECONDS: Final = 15
BYTES: Final = "application/octet-stream"
READ_BYTES_MAX: Final = 16 * 1024 * 1024
STREAM_BYTES_MAX: Final = 16 * 1024**3
SLOW_SECONDS: Final = 60.0
"""How much longer than the command its events may be read, by somebody who reads slowly."""
SIGNALS: Final[Mapping[str, int]] = {
    "hangup": 1, "interrupt": 2, "quit": 3, "illegal instruction": 4, "aborted": 6, "killed": 9,
    "segmentation fault": 11, "broken pipe": 13, "terminated": 15,
}  # fmt: skip
"""As Go spells them in `signal: killed`."""


class LineEndings(StrEnum):
    """execd sends output line by line and drops what ended a line; this says what is done about it."""

    EXACT = "exact"
    """Output goes through files in the sandbox and arrives byte for byte."""
    RESTORED = "restored"
    """Every line gets a newline again. Cheaper; a last line without one gains one, and bytes that are no text are
    lost."""
    KEPT = "kept"
    """For an execd that keeps line ends: output is taken as it comes."""


@dataclass(frozen=True)
class _Text:
    stream: Stream
    text: str


@dataclass(frozen=True)
class _End:
    """`code` is None when a signal ended the line; `late`: its time was over."""

    code: int | None
    signal: int
    late: bool
    seconds: float

    def exit_code(self) -> int:
        return self.code if self.code is not None else 128 + self.signal


class Execd:
    """`http` leads to execd and gives the headers that it wants."""

    def __init__(
        self,
        http: Http,
        clock: Clock,
        place: Place | None = None,
        line_endings: LineEndings = LineEndings.EXACT,
    ) -> None:
        self._http = http
        self._clock = clock
        self._ids = SystemIds(clock)
        self._place = place
        self._line_endings = line_endings

    # Readiness.

    def ping(self, seconds: float = 5.0) -> None:
        self.send("GET", "/ping", seconds=seconds)

    def place(self) -> Place:
        """Learn where commands start; that it can be told also proves that commands run, which a ping does not."""
        if self._place is None:
            text = ""
            for event in self._lines(PLACE_LINE, {}, PROBE_SECONDS, inf):
                if isinstance(event, _Text) and event.stream == "stdout":
                    text += event.text.rstrip("\n") + "\n"
            self._place = place_told(text)
        if self._place is None:
            raise ProviderUnavailable("The sandbox did not tell where its commands start.", settled=True)
        return self._place

    def tag(self) -> str:
        """A name that was never used and cannot be guessed."""
        return self._ids.new("run").lower()

    # Commands.

    def exec(self, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        if self._line_endings is LineEndings.EXACT:
            return self.exec_exactly(request, output_bytes_max)
        kept = {stream: Kept(output_bytes_max) for stream in STREAMS}
        return _result(self._exec_plain(request, kept), kept)

    def exec_exactly(self, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        kept = {stream: Kept(output_bytes_max) for stream in STREAMS}
        return _result(self._exec_exact(request, kept, output_bytes_max), kept)

    def exec_stream(self, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        if self._line_endings is LineEndings.EXACT:
            return self._follow_exact(request, quiet_seconds)
        return self._follow_plain(request, quiet_seconds)

    def _exec_plain(self, request: ExecRequest, kept: Mapping[Stream, Kept]) -> Exit:
        for event in self._follow_plain(request, inf):
            if isinstance(event, Output):
                kept[event.stream].add(event.data)
            elif isinstance(event, Exit):
                return event
        raise ExecUnconfirmed("The command's end was not seen.")

    def _follow_plain(self, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        line = self._ready(request, exact=False, follow=False)
        for event in self._lines(line.text, request.env, request.timeout_seconds, quiet_seconds):
            if isinstance(event, _End):
                code = EXIT_TIMEOUT if event.late else event.exit_code()
                yield Exit(code, int(event.seconds * 1000), event.late)
                return
            if isinstance(event, Quiet):
                yield event
            elif understand(event.text, line.tag) is None:
                ending = "\n" if self._line_endings is LineEndings.RESTORED and not event.text.endswith("\n") else ""
                yield Output(event.stream, (event.text + ending).encode(errors="replace"))

    def _exec_exact(self, request: ExecRequest, kept: Mapping[Stream, Kept], output_bytes_max: int) -> Exit:
        """One call for most commands: the line itself tells short output. Of longer, head and tail are fetched."""
        line = self._ready(request, exact=True, follow=False)
        told: Told | None = None
        inline: set[Stream] = set()
        for event in self._lines(line.text, request.env, request.timeout_seconds, inf):
            if isinstance(event, _Text) and event.stream == "stdout":
                news = understand(event.text, line.tag)
                if isinstance(news, Told):
                    told = news
                elif news is not None:
                    inline.add(news[0])
                    kept[news[0]].add(news[1])
            elif isinstance(event, _End):
                sizes = told.sizes if told is not None else self._sizes(line)
                left = {stream: size for stream, size in sizes.items() if size and stream not in inline}
                dropped = {s: self._fetch_ends(line, s, size, kept[s], output_bytes_max) for s, size in left.items()}
                if left or told is None:
                    self._remove(line)
                return _exit(told, event, dropped)
        raise ExecUnconfirmed("The command's end was not seen.")

    def _follow_exact(self, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        line = self._ready(request, exact=True, follow=True)
        told: Told | None = None
        had: dict[Stream, int] = dict.fromkeys(STREAMS, 0)
        for event in self._lines(line.text, request.env, request.timeout_seconds, quiet_seconds):
            if isinstance(event, Quiet):
                yield event
            elif isinstance(event, _End):
                sizes = told.sizes if told is not None else self._sizes(line)
                left = [stream for stream in STREAMS if sizes.get(stream, 0) > had[stream]]
                for stream in left:
                    for chunk in self._ranges(line, stream, had[stream], sizes[stream]):
                        yield Output(stream, chunk)
                if left or told is None:
                    self._remove(line)
                yield _exit(told, event, {})
                return
            elif event.stream == "stdout":
                news = understand(event.text, line.tag)
                if isinstance(news, Told):
                    told = news
                elif news is not None:
                    had[news[0]] += len(news[1])
                    yield Output(*news)

    def _ready(self, request: ExecRequest, *, exact: bool, follow: bool) -> Line:
        """The line for a command, with what it reads already in the sandbox."""
        line = command_line(request, self.place(), self.tag(), exact=exact, follow=follow)
        if line.files:
            self.upload({f"{line.directory}/{name}": data for name, data in line.files.items()})
        return line

    # What a command left in its directory.

    def _sizes(self, line: Line) -> dict[Stream, int]:
        """Of output whose line was ended before it could tell."""
        try:
            return {stream: self.info(f"{line.directory}/{stream}").size for stream in STREAMS}
        except NotFound:
            return {}
        except BackendError:  # it would say that nothing was done, and the command was
            raise ExecUnconfirmed("The command ended and how much it wrote could not be read.") from None

    def _fetch_ends(self, line: Line, stream: Stream, size: int, kept: Kept, bytes_max: int) -> int:
        """Put the first and the last half of `bytes_max` into `kept`; says how much lies between."""
        if size <= bytes_max:
            for chunk in self._ranges(line, stream, 0, size):
                kept.add(chunk)
            return 0
        head, tail = (bytes_max + 1) // 2, bytes_max // 2
        for start, end in ((0, head), (size - tail, size)):
            for chunk in self._ranges(line, stream, start, end):
                kept.add(chunk)
        return size - head - tail

    def _ranges(self, line: Line, stream: Stream, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            stop = min(end, start + READ_BYTES_MAX // 4)
            yield self._range(f"{line.directory}/{stream}", start, stop)
            start = stop

    def _range(self, path: str, start: int, stop: int) -> bytes:
        data = b""
        try:
            wanted = {"range": f"bytes={start}-{stop - 1}"}
            answer = self.send("GET", "/files/download", {"path": path}, headers=wanted, accept=BYTES)
            # A server that ignores ranges answers with the whole file and 200.
            data = answer.body if answer.status == 206 else answer.body[start:stop]
        except DifferentlyError:  # whatever kept us from it, the command is not to be thought unstarted
            pass
        if len(data) != stop - start:
            raise ExecUnconfirmed("The command ended and its output could not be read whole.")
        return data

    def _remove(self, line: Line) -> None:
        """Best effort: the command is over and its result known."""
        try:
            self.send("DELETE", "/directories", {"path": line.directory})
        except DifferentlyError:
            return

    # One line, and its time.

    def run(self, text: str, seconds: int = PROBE_SECONDS) -> bytes:
        """A command of ours whose output matters byte for byte."""
        return self.exec_exactly(ExecRequest(command=text, timeout_seconds=seconds), READ_BYTES_MAX // 4).stdout

    def _lines(
        self, text: str, env: Mapping[str, str], seconds: int, quiet_seconds: float
    ) -> Iterator[_Text | Quiet | _End]:
        """Start a line and give its events; ends in exactly one `_End`, or raises."""
        body: dict[str, JsonValue] = {"command": text, "timeout": seconds * 1000, "envs": dict(env)}
        call = Call(
            "POST", "/command", Deadlines(seconds + KILL_SECONDS_MAX + SLOW_SECONDS, read=IDLE_SECONDS), body=body,
            lost=ExecUnconfirmed, answer_bytes_max=STREAM_BYTES_MAX, accept="text/event-stream",
            secrets=tuple(env.values()),
        )  # fmt: skip
        pump = EventPump(lambda: self._http.stream(call))
        running = _Running(self, pump, self._clock, seconds)
        try:
            while True:
                event = running.next(quiet_seconds)
                if isinstance(event, _Text | Quiet | _End):
                    yield event
                if isinstance(event, _End):
                    return
        finally:
            pump.leave()

    def interrupt(self, command: str) -> None:
        """Best effort: execd ends it at its timeout by itself, and then no longer knows it."""
        try:
            self.send("DELETE", "/command", {"id": command}, seconds=5.0)
        except DifferentlyError:
            return

    # Calls.

    def info(self, path: str) -> FileRead:
        """Of a file, a directory or a link itself. Raises `NotFound`."""
        found = read(dict[str, FileRead], self.told("/files/info", {"path": path}))
        if len(found) != 1:
            raise ProviderUnavailable("execd told about another file than the one asked for.")
        return next(iter(found.values()))

    def upload(self, files: Mapping[str, bytes], mode: int = 600) -> None:
        """Small files of ours, in one call."""
        content_type, body = multipart([(path, mode, [data]) for path, data in files.items()], self.tag())
        self.send("POST", "/files/upload", headers={"content-type": content_type}, content=body)
        if any(self.arrived(path) != len(data) for path, data in files.items()):
            raise ProviderUnavailable("The command's input arrived cut off; it was not started.", settled=True)

    def arrived(self, path: str) -> int:
        """The size of what was uploaded: a proxy between was seen to say yes and to swallow it."""
        try:
            return self.info(path).size
        except NotFound:
            return -1

    def told(self, path: str, query: Mapping[str, str]) -> JsonValue:
        """What a route tells, as JSON."""
        return self._http.json(Call("GET", path, Deadlines(CALL_SECONDS), query=query, answer_bytes_max=READ_BYTES_MAX))

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        content: Iterable[bytes] | None = None,
        seconds: float = CALL_SECONDS,
        accept: str = "*/*",
    ) -> Answer:
        call = Call(
            method, path, Deadlines(seconds), query=query or {}, headers=headers or {}, content=content,
            answer_bytes_max=READ_BYTES_MAX, accept=accept,
        )  # fmt: skip
        return self._http.answer(call)

    @property
    def http(self) -> Http:
        return self._http

    def now(self) -> datetime:
        return self._clock.now()


class _Running:
    """One command between its start and its end, and the time that it has."""

    def __init__(self, execd: Execd, pump: EventPump, clock: Clock, seconds: int) -> None:
        self._execd = execd
        self._pump = pump
        self._clock = clock
        self._began = clock.monotonic()
        self._ends = self._began + seconds
        self._heard = self._began
        self._command = ""
        self._interrupted = False

    def next(self, quiet_seconds: float) -> _Text | Quiet | _End | None:
        """None for an event that is nobody's business."""
        now = self._clock.monotonic()
        if now >= self._ends:
            self._expire(now)
        ends = self._ends + (KILL_SECONDS_MAX if self._interrupted else 0.0)
        quiet = self._heard + quiet_seconds
        try:
            event = self._pump.next(min(ends, quiet) - now)
        except Silence:
            if self._clock.monotonic() < quiet:
                return None
            self._heard = self._clock.monotonic()
            return Quiet()
        return self._understood(event)

    def _expire(self, now: float) -> None:
        if not self._interrupted:
            self._interrupted = True
            if self._command:
                self._execd.interrupt(self._command)
        elif now >= self._ends + KILL_SECONDS_MAX:
            raise ExecUnconfirmed("The command was stopped at its timeout and its end was not seen.")

    def _understood(self, event: Event) -> _Text | _End | None:
        match event.kind:
            case "init":
                self._command = event.text
                if self._interrupted:  # its time was over before it had begun
                    self._execd.interrupt(self._command)
            case "stdout" | "stderr":
                self._heard = self._clock.monotonic()
                return _Text("stdout" if event.kind == "stdout" else "stderr", event.text)
            case "execution_complete":
                return self._end(0, 0)
            case "error":
                return self._failed(event)
        return None

    def _failed(self, event: Event) -> _End:
        if event.error.isascii() and event.error.isdigit():
            return self._end(int(event.error), 0)
        name = event.trace.rpartition("signal: ")[2].removesuffix(" (core dumped)")
        if "signal: " in event.trace and event.error == "-1":
            return self._end(None, SIGNALS.get(name, 9))
        raise ProviderUnavailable("execd could not start the command.", settled=True)

    def _end(self, code: int | None, signal: int) -> _End:
        now = self._clock.monotonic()
        late = (self._interrupted and code != 0) or (code is None and now >= self._ends - EDGE_SECONDS)
        return _End(code, signal, late, now - self._began)


def _result(ending: Exit, kept: Mapping[Stream, Kept]) -> CommandResult:
    stdout, stdout_dropped = kept["stdout"].result()
    stderr, stderr_dropped = kept["stderr"].result()
    return CommandResult(
        exit_code=ending.exit_code, stdout=stdout, stderr=stderr, duration_ms=ending.duration_ms,
        stdout_dropped_bytes=stdout_dropped + ending.stdout_dropped_bytes,
        stderr_dropped_bytes=stderr_dropped + ending.stderr_dropped_bytes, timed_out=ending.timed_out,
    )  # fmt: skip


def _exit(told: Told | None, end: _End, dropped: Mapping[Stream, int]) -> Exit:
    """A line that could not tell its end was ended with its command: by its time, or by something in the sandbox."""
    if told is not None:
        code, late = told.code, False
    elif end.late or end.code is None:
        code, late = (EXIT_TIMEOUT if end.late else end.exit_code()), end.late
    else:
        raise ExecUnconfirmed("The command's shell ended without telling how the command did.")
    return Exit(code, int(end.seconds * 1000), late, dropped.get("stdout", 0), dropped.get("stderr", 0))
