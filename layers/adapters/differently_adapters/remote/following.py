"""A command's output from a plugin's stream, with signs of life while nothing comes.

A thread reads the lines: a read that waits cannot say meanwhile that it is waiting. Whoever follows may leave at any
time; the thread is then woken and gives the connection back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from pydantic import ValidationError

from differently_core.contract import ExecEvent, Exit, Output, Quiet
from differently_core.errors import BackendError, DifferentlyError, ExecUnconfirmed
from differently_core.model.exec import EXIT_TIMEOUT

from ..http import Streamed
from .envelope import error_of
from .wire import ToldEvent, ToldFailure, from_text

LINES_AHEAD: Final = 64
"""Read before they are asked for; a slow follower slows the plugin down."""


class Following(Iterator[ExecEvent]):
    """The events of one stream: ends in exactly one `Exit`, or raises.

    `elapsed_ms` is asked for the duration where the plugin does not tell it, `redact` for what it says went wrong.
    """

    def __init__(
        self,
        opened: AbstractContextManager[Streamed],
        quiet_seconds: float,
        timeout_ms: int,
        elapsed_ms: Callable[[], int],
        redact: Callable[[str], str],
    ) -> None:
        self._reader = _Reader(opened)
        self._quiet_seconds = quiet_seconds
        self._timeout_ms = timeout_ms
        self._elapsed_ms = elapsed_ms
        self._redact = redact
        self._ended = False

    def __next__(self) -> ExecEvent:
        if self._ended:
            raise StopIteration
        try:
            line = self._reader.lines.get(timeout=self._quiet_seconds)
        except queue.Empty:
            return Quiet()
        return self._event(line)

    def close(self) -> None:
        """Stop following; the command goes on."""
        self._ended = True
        self._reader.leave()

    def __del__(self) -> None:
        reader = getattr(self, "_reader", None)  # there is none when the plugin refused the command
        if reader is not None:
            reader.leave()

    def _event(self, line: bytes | BaseException | None) -> ExecEvent:
        """What a line says; one that says nothing that matters here is a sign of life. An ending leaves the stream."""
        if isinstance(line, bytes) and not line.strip():
            return Quiet()
        try:
            if line is None:
                raise ExecUnconfirmed("The plugin's stream ended before the command's end was seen.")
            if isinstance(line, BaseException):
                raise line
            event = self._told(line)
        except BaseException:
            self.close()
            raise
        if isinstance(event, Exit):
            self.close()
        return event

    def _told(self, line: bytes) -> ExecEvent:
        try:
            told = ToldEvent.model_validate_json(line)
            if told.stream is not None:
                return Output(told.stream, from_text(told.data, told.encoding)) if told.data else Quiet()
        except (ValidationError, ValueError):
            failure: DifferentlyError = ExecUnconfirmed("The plugin's stream holds a line that is no event.")
        else:
            if told.exit_code is not None:
                return self._exit(told, told.exit_code)
            if told.error is None:
                return Quiet()
            failure = self._failure(told, told.error)
        raise failure

    def _exit(self, told: ToldEvent, code: int) -> Exit:
        duration = self._elapsed_ms() if told.duration_ms is None else told.duration_ms
        timed_out = told.timed_out
        if timed_out is None:  # version 1 tells it by the code alone, which a command may also give by itself
            timed_out = code == EXIT_TIMEOUT and duration >= self._timeout_ms
        return Exit(code, duration, timed_out, told.stdout_dropped_bytes, told.stderr_dropped_bytes)

    def _failure(self, told: ToldEvent, text: str) -> DifferentlyError:
        """A plain string, as version 1 has it, tells only that the end of the command is not known."""
        failure = ToldFailure(code=told.code or "exec_unconfirmed", message=self._redact(text) or "No reason given.")
        error = error_of(failure, mutates=True, lost=ExecUnconfirmed)
        if isinstance(error, BackendError) and told.settled is not None:
            error.settled = told.settled
        return error


class _Reader:
    """The thread's side. It does not know who follows, so that one who was forgotten can be noticed."""

    def __init__(self, opened: AbstractContextManager[Streamed]) -> None:
        self.lines: queue.Queue[bytes | BaseException | None] = queue.Queue(LINES_AHEAD)
        self._opened = opened
        self._streamed = opened.__enter__()
        self._left = threading.Event()
        threading.Thread(target=self._read, name="following", daemon=True).start()

    def leave(self) -> None:
        if not self._left.is_set():
            self._left.set()
            self._streamed.interrupt()

    def _read(self) -> None:
        ending: BaseException | None = None
        try:
            for line in self._streamed.lines():
                if not self._put(line):
                    break
        except BaseException as error:
            ending = error
        finally:
            self._opened.__exit__(None, None, None)
        self._put(ending)

    def _put(self, line: bytes | BaseException | None) -> bool:
        """False when nobody follows any more."""
        while not self._left.is_set():
            try:
                self.lines.put(line, timeout=1.0)
            except queue.Full:
                continue
            return True
        return False
