"""The Merkle tree of RFC 6962 over a list that only grows.

A tree of `size` leaves is kept as its frontier: the roots of its complete subtrees, largest first, one for each 1 in
the binary form of `size`. That is all that is needed to append and to know the root.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(data: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True)
class Frontier:
    size: int = 0
    hashes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if len(self.hashes) != self.size.bit_count():
            raise ValueError(f"a tree of {self.size} leaves has not {len(self.hashes)} complete subtrees")

    def append(self, leaf: bytes) -> Frontier:
        """One more leaf, given as its hash."""
        hashes = [*self.hashes, leaf]
        rest = self.size
        while rest & 1:
            right = hashes.pop()
            hashes.append(node_hash(hashes.pop(), right))
            rest >>= 1
        return Frontier(self.size + 1, tuple(hashes))

    def extend(self, leaves: Iterable[bytes]) -> Frontier:
        grown = self
        for leaf in leaves:
            grown = grown.append(leaf)
        return grown

    def root(self) -> bytes:
        if not self.hashes:
            return EMPTY_ROOT
        *rest, root = self.hashes
        for left in reversed(rest):
            root = node_hash(left, root)
        return root
