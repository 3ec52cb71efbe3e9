"""Commands on this host: a clean start, output in bounded memory, and a timeout that ends the whole process group.

`devhost` runs sandbox commands with it, and so do test backends that stand in for a machine with a real shell.
A command ends when the process we started ends, so children that it left in the background cannot hold up the answer.
They go on; as nobody reads our pipe any more, writing to it ends them, unless their output goes elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final

from differently_core.contract import CommandResult, ExecEvent, Exit, Output, Quiet
from differently_core.errors import (
    DifferentlyError,
    ExecUnconfirmed,
    InvalidRequest,
    PayloadTooLarge,
    ProviderUnavailable,
)
from differently_core.model.exec import EXIT_TIMEOUT, Stream
from differently_core.runtime.clock import Clock

from .output import Kept

EXIT_NOT_FOUND: Final = 127
EXIT_NOT_EXECUTABLE: Final = 126
"""What a shell answers for a command it cannot find, and for one it cannot run."""
READ_BYTES: Final = 65_536
DRAIN_BYTES_MAX: Final = 1_048_576
"""Read of one pipe once its command has ended: a full pipe fits, a child that writes for ever cannot hold us."""
KILL_SECONDS_MAX: Final = 10.0
"""How long a killed process may take to be gone before we say that we do not know."""
POLL_SECONDS: Final = 0.02
"""Only where the system cannot tell us of an exit through a file descriptor (macOS)."""
STREAM_EVENTS_MAX: Final = 64
"""Chunks held for a slow reader before the command has to wait, about 4 MiB."""


@dataclass(frozen=True)
class Command:
    """`env` is the whole environment: nothing of ours is inherited."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdin: bytes | None
    timeout_seconds: float

    def __repr__(self) -> str:
        return f"Command(timeout_seconds={self.timeout_seconds}, <argv, env and stdin withheld>)"


@dataclass(frozen=True)
class NotStarted:
    """The command could not be found or executed: a result for its caller, as from a shell."""

    exit_code: int
    message: str


class Running:
    """A started command. Exactly one thread pumps it to its end."""

    def __init__(self, process: subprocess.Popen[bytes], command: Command, clock: Clock) -> None:
        self._process = process
        self._clock = clock
        self._stdin = memoryview(command.stdin or b"")
        self._started = clock.monotonic()
        self._deadline = self._started + command.timeout_seconds
        self._pidfd = _open_pidfd(process.pid)
        self._timed_out = False
        self.pid = process.pid

    def remaining(self) -> float:
        return max(0.0, self._deadline - self._clock.monotonic())

    def expire(self) -> None:
        """End the whole process group because the command's time is up."""
        self._timed_out = True
        if self._process.returncode is None:  # not reaped, so the number still names our group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def pump(self, quiet_seconds: float | None) -> Iterator[ExecEvent]:
        """Output as it is written, `Quiet` while there is none, then `Exit`."""
        with selectors.DefaultSelector() as selector:
            try:
                self._register(selector)
                yield from self._until_exit(selector, quiet_seconds)
                yield from self._left_in_pipes()
            finally:
                self._close()
        yield Exit(
            exit_code=EXIT_TIMEOUT if self._timed_out else _exit_code(self._process.returncode),
            duration_ms=int((self._clock.monotonic() - self._started) * 1000),
            timed_out=self._timed_out,
        )

    def _register(self, selector: selectors.BaseSelector) -> None:
        for pipe, stream in self._outputs():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, stream)
        if self._process.stdin is not None:
            os.set_blocking(self._process.stdin.fileno(), False)
            selector.register(self._process.stdin, selectors.EVENT_WRITE, None)
        if self._pidfd is not None:
            selector.register(self._pidfd, selectors.EVENT_READ, None)

    def _outputs(self) -> list[tuple[IO[bytes], Stream]]:
        out, err = self._process.stdout, self._process.stderr
        return [(pipe, stream) for pipe, stream in _named(out, err) if not pipe.closed]

    def _until_exit(self, selector: selectors.BaseSelector, quiet_seconds: float | None) -> Iterator[ExecEvent]:
        last_event = self._clock.monotonic()
        while not self._has_ended():
            self._enforce()
            quiet_left = None if quiet_seconds is None else last_event + quiet_seconds - self._clock.monotonic()
            ready = selector.select(self._wait_seconds(quiet_left))
            for key, _ in ready:
                if key.fileobj is self._process.stdin:
                    self._feed(selector)
                elif key.data is not None and (data := self._read(selector, key)):
                    last_event = self._clock.monotonic()
                    yield Output(key.data, data)
            if not ready and quiet_left is not None and quiet_left <= 0:
                last_event = self._clock.monotonic()
                yield Quiet()

    def _wait_seconds(self, quiet_left: float | None) -> float:
        bounds = [POLL_SECONDS if self._pidfd is None else KILL_SECONDS_MAX]
        if not self._timed_out:
            bounds.append(self.remaining())
        if quiet_left is not None:
            bounds.append(max(0.0, quiet_left))
        return min(bounds)

    def _enforce(self) -> None:
        late = self._clock.monotonic() - self._deadline
        if late >= 0 and not self._timed_out:
            self.expire()
        if late > KILL_SECONDS_MAX:
            raise ExecUnconfirmed("The command was killed at its timeout and has not ended yet.")

    def _has_ended(self) -> bool:
        if self._process.returncode is not None:
            return True
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            # Somebody else in this process reaped it (or SIGCHLD is ignored). Popen would call that exit code 0.
            self._process.returncode = -1
            raise ExecUnconfirmed("The command ended and its exit code was lost.") from None
        if pid:
            self._process.returncode = os.waitstatus_to_exitcode(status)
        return pid != 0

    def _feed(self, selector: selectors.BaseSelector) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        try:
            sent = os.write(pipe.fileno(), self._stdin[:READ_BYTES])
            self._stdin = self._stdin[sent:]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not read its input; that is its business
            self._stdin = self._stdin[:0]
        if not self._stdin:
            selector.unregister(pipe)
            pipe.close()

    def _read(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> bytes:
        try:
            data = os.read(key.fd, READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            selector.unregister(key.fileobj)
        return data

    def _left_in_pipes(self) -> Iterator[Output]:
        """What the command wrote just before it ended; never waits for a child that still holds the pipe."""
        for pipe, stream in self._outputs():
            left = DRAIN_BYTES_MAX
            while left > 0:
                try:
                    data = os.read(pipe.fileno(), READ_BYTES)
                except BlockingIOError:
                    break
                if not data:
                    break
                left -= len(data)
                yield Output(stream, data)

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


def _named(out: IO[bytes] | None, err: IO[bytes] | None) -> list[tuple[IO[bytes], Stream]]:
    pairs: list[tuple[IO[bytes] | None, Stream]] = [(out, "stdout"), (err, "stderr")]
    return [(pipe, stream) for pipe, stream in pairs if pipe is not None]


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, an old kernel, or already gone
        return None


def _exit_code(returncode: int) -> int:
    """A signal becomes 128 + its number, as shells have it."""
    return returncode if returncode >= 0 else 128 - returncode


def start(command: Command, clock: Clock) -> Running | NotStarted:
    """Start in a session and process group of its own. Raises `InvalidRequest` where no process can ever come of it."""
    if not os.path.isdir(command.cwd):
        raise InvalidRequest("cwd is not a directory in the sandbox.", field="cwd")
    try:
        process = subprocess.Popen(
            list(command.argv),
            env=dict(command.env),
            cwd=command.cwd,
            stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        return _not_started(command, error)
    return Running(process, command, clock)


def _not_started(command: Command, error: OSError) -> NotStarted:
    name = command.argv[0]
    if error.filename == command.cwd and error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
        raise InvalidRequest("cwd cannot be entered.", field="cwd") from None
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return NotStarted(EXIT_NOT_FOUND, f"{name}: not found\n")
        case errno.EACCES | errno.ENOEXEC | errno.EISDIR:
            return NotStarted(EXIT_NOT_EXECUTABLE, f"{name}: cannot be executed\n")
        case errno.E2BIG:
            raise PayloadTooLarge(
                "The command with its environment is longer than the host takes; pass it as stdin or as a file."
            ) from None
        case _:
            raise ProviderUnavailable(
                f"The host could not start a process ({errno.errorcode.get(error.errno or 0, 'unknown')}).",
                settled=True,
            ) from None


def run(started: Running | NotStarted, output_bytes_max: int) -> CommandResult:
    """Wait for the end, keeping the first and the last half of `output_bytes_max` of each stream."""
    kept: dict[Stream, Kept] = {"stdout": Kept(output_bytes_max), "stderr": Kept(output_bytes_max)}
    for event in events(started, None):
        if isinstance(event, Output):
            kept[event.stream].add(event.data)
        elif isinstance(event, Exit):
            return _result(event, kept)
    raise ExecUnconfirmed("The command's end was not seen.")


def _result(ending: Exit, kept: Mapping[Stream, Kept]) -> CommandResult:
    stdout, stdout_dropped = kept["stdout"].result()
    stderr, stderr_dropped = kept["stderr"].result()
    return CommandResult(
        exit_code=ending.exit_code, stdout=stdout, stderr=stderr, duration_ms=ending.duration_ms,
        stdout_dropped_bytes=stdout_dropped, stderr_dropped_bytes=stderr_dropped, timed_out=ending.timed_out,
    )  # fmt: skip


def events(started: Running | NotStarted, quiet_seconds: float | None) -> Iterator[ExecEvent]:
    """A started command's events, pumped by whoever reads them."""
    if isinstance(started, Running):
        return started.pump(quiet_seconds)
    return iter([Output("stderr", started.message.encode(errors="replace")), Exit(started.exit_code, 0)])


class _Channel:
    """Between the thread that pumps a command and a reader that may be slow or go away."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: deque[ExecEvent | DifferentlyError] = deque()
        self._abandoned = False
        self._ended = False

    def offer(self, event: ExecEvent | DifferentlyError, seconds: float | None) -> bool:
        """Hand an event on, or drop it when nobody reads any more; False if the reader had no room in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._abandoned or len(self._held) < STREAM_EVENTS_MAX, seconds):
                return False
            if not self._abandoned:
                self._held.append(event)
                self._changed.notify_all()
            return True

    def take(self) -> ExecEvent | DifferentlyError | None:
        with self._changed:
            self._changed.wait_for(lambda: self._held or self._ended or self._abandoned)
            event = self._held.popleft() if self._held else None
            self._changed.notify_all()
            return event

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self) -> None:
        with self._changed:
            self._abandoned = True
            self._held.clear()
            self._changed.notify_all()


class EventStream(Iterator[ExecEvent]):
    """A command's events, pumped by a thread of their own so that its timeout holds while nobody reads.

    A slow reader makes the command wait on its full pipe. When the reader goes away the command goes on; what it
    still writes is read and thrown away, and it is reaped when it ends.
    """

    def __init__(self, started: Running | NotStarted, quiet_seconds: float, ended: Callable[[], None]) -> None:
        # The thread holds the channel and not this object, so a reader that is merely forgotten also goes away.
        self._channel = _Channel()
        threading.Thread(
            target=_pump_into,
            args=(self._channel, started, quiet_seconds, ended),
            name="exec-stream",
            daemon=True,
        ).start()

    def __next__(self) -> ExecEvent:
        event = self._channel.take()
        if event is None:
            raise StopIteration
        if isinstance(event, DifferentlyError):
            raise event
        return event

    def close(self) -> None:
        """The reader goes away; the command does not."""
        self._channel.abandon()

    def __del__(self) -> None:
        self.close()


def _pump_into(
    channel: _Channel, started: Running | NotStarted, quiet_seconds: float, ended: Callable[[], None]
) -> None:
    last: ExecEvent | DifferentlyError = ExecUnconfirmed("The command's end was not seen.")
    try:
        for event in events(started, quiet_seconds):
            if isinstance(event, Exit):
                last = event
            else:
                _hand_on(channel, started, event)
    except DifferentlyError as error:
        last = error
    finally:  # also when a bug of ours ends the thread: a stream that just stops would pass for a whole one
        channel.offer(last, None)
        channel.end()
        ended()


def _hand_on(channel: _Channel, started: Running | NotStarted, event: ExecEvent) -> None:
    seconds = started.remaining() if isinstance(started, Running) else None
    if not channel.offer(event, seconds):
        if isinstance(started, Running):
            started.expire()
        channel.offer(event, None)
