"""Which hashes prove something of a tree (RFC 6962, 2.1): that a leaf is in it, or that it grew from an earlier one.

A proof is a list of ranges of leaves, each of which stands for the root over just these leaves. Only complete subtrees
have a hash that never changes; the root over any other range is made of theirs.
"""

from __future__ import annotations

from collections.abc import Callable

from .tree import Frontier, node_hash

Range = tuple[int, int]
"""From the first leaf up to, and without, the second."""
Complete = Callable[[int, int], bytes]
"""The root over a complete subtree: as many leaves as a power of two, beginning at a multiple of it."""


def inclusion(place: int, size: int) -> list[Range]:
    """PATH of RFC 6962: what `place` must be hashed with, from the leaf up, to come to the root of `size` leaves."""
    if not 0 <= place < size:
        raise ValueError(f"{place} is no place in a tree of {size}")
    low, high = 0, size
    found: list[Range] = []
    while high - low > 1:
        middle = low + _split(high - low)
        if place < middle:
            found.append((middle, high))
            high = middle
        else:
            found.append((low, middle))
            low = middle
    return found[::-1]


def consistency(old: int, new: int) -> list[Range]:
    """PROOF of RFC 6962: what shows that the tree of `new` leaves begins with that of `old`."""
    if not 0 < old <= new:
        raise ValueError(f"a tree of {new} does not begin with one of {old}")
    low, high, whole = 0, new, True
    found: list[Range] = []
    while old < high:
        middle = low + _split(high - low)
        if old <= middle:
            found.append((middle, high))
            high = middle
        else:
            found.append((low, middle))
            low, whole = middle, False
    if not whole:
        found.append((low, high))
    return found[::-1]


def root_over(span: Range, complete: Complete) -> bytes:
    low, high = span
    parts: list[bytes] = []
    while low < high:
        # The largest complete subtree that begins here and does not pass the end.
        length = 1 << (high - low).bit_length() - 1
        parts.append(complete(low, low + length))
        low += length
    root = parts.pop()
    for left in reversed(parts):
        root = node_hash(left, root)
    return root


def completed(before: Frontier, leaf: bytes, length: int) -> bytes:
    """The root over the complete subtree of `length` leaves that this leaf ends, told by the tree before it."""
    root = leaf
    for number in range(1, length.bit_length()):
        root = node_hash(before.hashes[-number], root)
    return root


def _split(length: int) -> int:
    """The largest power of two below `length`."""
    return 1 << (length - 1).bit_length() - 1
