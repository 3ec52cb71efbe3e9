"""Secrets of a sandbox taken out of what its commands write: every byte of a value becomes `*`.

The length of the output stays as it is, so the offsets of a job's output and the numbers of dropped bytes stay right.
Values are looked for as they are: one that a command encodes or takes apart is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

MASK: Final = b"*"
PART_BYTES_MIN: Final = 8
"""Where output was cut in a value, what is left of it is masked from this length on."""
Place = tuple[int, int]


class Mask:
    def __init__(self, values: Iterable[str]) -> None:
        self._values = tuple(sorted({value.encode() for value in values if value}, key=len, reverse=True))
        self.longest = len(self._values[0]) if self._values else 0

    def __repr__(self) -> str:
        return f"Mask(<{len(self._values)} values withheld>)"

    def whole(self, data: bytes) -> bytes:
        """Output that is all there."""
        return masked(data, self.places(data))

    def halves(self, data: bytes, cut: int) -> bytes:
        """Output whose middle was dropped at `cut`: what is left of a value there is masked too."""
        head, tail = data[:cut], data[cut:]
        end = _long_enough(self.unfinished(head))
        begin = _long_enough(max((_overlap(value, tail) for value in self._values), default=0))
        head = masked(head, [*self.places(head), (len(head) - end, len(head))])
        return head + masked(tail, [*self.places(tail), (0, begin)])

    def text(self, text: str) -> str:
        return self.whole(text.encode()).decode(errors="replace")

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a value."""
        return max((_overlap(data, value) for value in self._values), default=0)

    def places(self, data: bytes) -> Iterator[Place]:
        """Where values stand, also those that run into each other."""
        for value in self._values:
            at = data.find(value)
            while at >= 0:
                yield at, at + len(value)
                at = data.find(value, at + 1)


class Flow:
    """One stream of a running command. Only what may be the beginning of a value waits for what comes after it."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""
        self._covered = 0
        """So many of the held bytes belong to a value that was found already."""

    def feed(self, data: bytes) -> bytes:
        data = self._held + data
        return self._advance(data, len(data) - self._mask.unfinished(data))

    def finish(self) -> bytes:
        """What waited. Its stream has ended, so it is no whole value; a long part of one is masked all the same."""
        self._covered = max(self._covered, _long_enough(len(self._held)))
        return self._advance(self._held, len(self._held))

    def _advance(self, data: bytes, upto: int) -> bytes:
        places = [(0, self._covered), *self._mask.places(data)]
        self._covered = max((end - upto for start, end in places if start <= upto < end), default=0)
        self._held = data[upto:]
        return masked(data, places)[:upto]


def masked(data: bytes, places: Iterable[Place]) -> bytes:
    changed: bytearray | None = None
    for start, end in places:
        if start < end:
            changed = changed if changed is not None else bytearray(data)
            changed[start:end] = MASK * (end - start)
    return data if changed is None else bytes(changed)


def _long_enough(part: int) -> int:
    return part if part >= PART_BYTES_MIN else 0


def _overlap(left: bytes, right: bytes) -> int:
    """The longest end of `left` that is a beginning of `right`, and not the whole of the value that is cut."""
    tail = left[max(0, len(left) - len(right) + 1) :] if len(right) <= len(left) else left
    at = tail.find(right[:1])
    while at >= 0:
        if right.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(right[:1], at + 1)
    return 0
