"""SIGINT, SIGTERM and SIGHUP as a request to stop that a waiting thread notices at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType

from .failure import Interrupted

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """A handler may run between any two steps of the main thread, so it takes no lock: it writes one byte to a pipe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self.count = 0

    def listen(self) -> None:
        for number in STOPPING:
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b".")

    def wait(self, seconds: float | None = None) -> bool:
        """True as soon as a stop was asked for."""
        return bool(select.select([self._read], [], [], seconds)[0])

    def pause(self, seconds: float) -> None:
        """Wait during the start; raises `Interrupted` when a stop was asked for."""
        if self.wait(seconds):
            raise Interrupted
