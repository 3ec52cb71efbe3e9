"""Events of a running command, off the wire: read by a thread of their own, so our clock holds while nothing comes.

execd sends one bare JSON object and an empty line for each event. Its specification speaks of server-sent events, so
`data:` in front is understood too. After the last event it holds the connection for another second; nobody waits for
that.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from differently_core.errors import DifferentlyError, ExecUnconfirmed

from ..http import Streamed

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
EVENTS_HELD_MAX: Final = 64
OFFER_SECONDS: Final = 0.5
"""How often a reader that is slow is checked for being gone."""
TERMINAL: Final = frozenset({"execution_complete", "error"})


@dataclass(frozen=True)
class Event:
    kind: str
    text: str = ""
    error: str = ""
    trace: str = ""


class Silence(Exception):
    """Nothing came for the asked time."""


Open = Callable[[], AbstractContextManager[Streamed]]


class EventPump:
    """`next` gives events in their order; the end of the stream is always an event or an exception."""

    def __init__(self, open_stream: Open) -> None:
        self._held: queue.Queue[Event | DifferentlyError] = queue.Queue(EVENTS_HELD_MAX)
        self._left = threading.Event()
        self._lock = threading.Lock()
        self._read: Streamed | None = None
        threading.Thread(target=self._run, args=(open_stream,), name="execd-events", daemon=True).start()

    def next(self, seconds: float) -> Event:
        """Raises `Silence` when nothing comes, `ExecUnconfirmed` when nothing will."""
        try:
            held = self._held.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise Silence from None
        if isinstance(held, DifferentlyError):
            raise held
        return held

    def leave(self) -> None:
        """The reader goes away; the command does not."""
        self._left.set()
        with self._lock:
            if self._read is not None:
                self._read.interrupt()

    def _run(self, open_stream: Open) -> None:
        try:
            with open_stream() as streamed:
                self._reads(streamed)
                try:
                    if self._pump(streamed):
                        return
                finally:
                    self._reads(None)
        except DifferentlyError as error:
            self._offer(error)
        except Exception as error:  # a bug of ours must not look like a command that goes on for ever
            self._offer(ExecUnconfirmed(f"The command's events could not be read ({type(error).__name__})."))
        else:
            self._offer(ExecUnconfirmed("The connection ended before the command's end was seen."))

    def _pump(self, streamed: Streamed) -> bool:
        """True when the command's end was read, or nobody listens any more."""
        for event in events(streamed.chunks()):
            self._offer(event)
            if self._left.is_set() or event.kind in TERMINAL:
                return True
        return self._left.is_set()

    def _reads(self, streamed: Streamed | None) -> None:
        """Note what could be woken. After its end a connection may be another call's already."""
        with self._lock:
            self._read = streamed

    def _offer(self, event: Event | DifferentlyError) -> None:
        while not self._left.is_set():
            try:
                self._held.put(event, timeout=OFFER_SECONDS)
            except queue.Full:
                continue
            return


def events(chunks: Iterator[bytes]) -> Iterator[Event]:
    """Whole lines only: a line that the connection cut is no event."""
    left: list[bytes] = []
    size = 0
    for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            event = _event(b"".join([*left, line]))
            left, size = [], 0
            if event is not None:
                yield event
        left.append(rest)
        size += len(rest)
        if size > LINE_BYTES_MAX:
            raise ExecUnconfirmed(f"The command wrote a line of more than {LINE_BYTES_MAX} bytes.")


def _event(line: bytes) -> Event | None:
    line = line.strip().removeprefix(b"data:").strip()
    if not line.startswith(b"{"):
        return None  # an empty line, or another field of a server-sent event
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise ExecUnconfirmed("execd sent an event that is no JSON.") from None
    kind, text, error = told.get("type"), told.get("text"), told.get("error")
    error = error if isinstance(error, dict) else {}
    trace = error.get("traceback")
    return Event(
        kind=kind if isinstance(kind, str) else "",
        text=text if isinstance(text, str) else "",
        error=str(error.get("evalue", "")),
        trace=" ".join(str(part) for part in trace) if isinstance(trace, list) else "",
    )
