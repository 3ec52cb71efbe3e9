"""Waits as the person at the terminal sees them: one line that changes, on stderr, and nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from ..progress import Progress
from .output import plain

WIDTH = 100
LEAST_SECONDS = 0.1


class Line:
    """A line that is written over. It is gone when its block ends, so that results stand alone."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._told_at = 0.0
        self._shows = sys.stderr.isatty()

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self._write("")

    def progress(self, progress: Progress) -> None:
        self.tell(str(progress))

    def moved(self, total: int | None) -> Moved:
        return Moved(self, total)

    def tell(self, text: str) -> None:
        seconds = time.monotonic() - self._began
        self._write(plain(f"{self._what}: {text} ({seconds:.0f} s)")[:WIDTH])

    def tell_sometimes(self, text: str) -> None:
        now = time.monotonic()
        if now - self._told_at >= LEAST_SECONDS:
            self._told_at = now
            self.tell(text)

    def _write(self, text: str) -> None:
        if self._shows:
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()


class Moved:
    """Bytes of a transfer, of a total where that is known."""

    def __init__(self, line: Line, total: int | None) -> None:
        self._line = line
        self._total = total

    def __call__(self, count: int) -> None:
        share = f" of {size(self._total)}, {100 * count // self._total} %" if self._total else ""
        self._line.tell_sometimes(f"{size(count)}{share}")


def size(count: int) -> str:
    """Bytes in the largest unit that keeps two digits or more."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 10 * 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.0f} GiB"
