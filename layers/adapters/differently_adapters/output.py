"""Output in bounded memory: the start and the end of a stream, and how much fell between them."""

from __future__ import annotations

from collections import deque


class Kept:
    """The first and the last half of `bytes_max`; the rest is counted and forgotten as it comes."""

    def __init__(self, bytes_max: int) -> None:
        self._head_max = (bytes_max + 1) // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = self._head_max - len(self._head)
        self._head += data[:room]
        rest = data[room:] if room else data
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
            self._shrink()

    def _shrink(self) -> None:
        while self._tail_size > self._tail_max:
            oldest = self._tail.popleft()
            cut = min(len(oldest), self._tail_size - self._tail_max)
            self._tail_size -= cut
            self._dropped += cut
            if cut < len(oldest):
                self._tail.appendleft(oldest[cut:])

    def result(self) -> tuple[bytes, int]:
        """What was kept, and how many bytes were dropped."""
        return bytes(self._head) + b"".join(self._tail), self._dropped


def keep(data: bytes, bytes_max: int) -> tuple[bytes, int]:
    """The same, of output that is already in memory."""
    kept = Kept(bytes_max)
    kept.add(data)
    return kept.result()
