"""Identifiers: a prefix that tells the kind, and a ULID that sorts by time.

A sandbox made with an `Idempotency-Key` takes its 80 random bits from a keyed hash of project and key. So the row
that guards the key can be found from the sandbox id alone, and a delete needs no read to free it
(docs/decisions/0004-idempotency-row-from-the-id.md).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime
from typing import NewType, Protocol

from .clock import Clock

SandboxId = NewType("SandboxId", str)
SnapshotId = NewType("SnapshotId", str)
OrgId = NewType("OrgId", str)
ProjectId = NewType("ProjectId", str)
KeyId = NewType("KeyId", str)
InstallationId = NewType("InstallationId", str)
WebhookId = NewType("WebhookId", str)

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford base 32, as the ULID specification has it
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
RANDOM_BYTES = 10


def _base32(value: int, length: int) -> str:
    digits = []
    for _ in range(length):
        value, rest = divmod(value, 32)
        digits.append(_ALPHABET[rest])
    return "".join(reversed(digits))


def ulid(at: datetime, randomness: bytes) -> str:
    """26 characters: 48 bits of milliseconds, then the 80 bits of `randomness` (exactly 10 bytes)."""
    if len(randomness) != RANDOM_BYTES:
        raise ValueError(f"a ULID needs {RANDOM_BYTES} random bytes, not {len(randomness)}")
    milliseconds = int(at.timestamp() * 1000)
    return _base32(milliseconds, 10) + _base32(int.from_bytes(randomness, "big"), 16)


def is_id(prefix: str, text: str) -> bool:
    """True if `text` is `prefix_` and a ULID, nothing else."""
    head, _, tail = text.partition("_")
    return head == prefix and _ULID.fullmatch(tail) is not None


def random_part(identifier: str) -> str:
    """The last 16 characters of an id: its random bits."""
    return identifier[-16:]


def keyed_bytes(secret: bytes, *parts: str) -> bytes:
    """10 bytes that only the holder of `secret` can compute; parts are length-prefixed, so none runs into the next."""
    message = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
    return hmac.new(secret, message, hashlib.sha256).digest()[:RANDOM_BYTES]


class IdSource(Protocol):
    def new(self, prefix: str, randomness: bytes | None = None) -> str:
        """A fresh id; `randomness` (10 bytes) replaces the random bits."""
        ...

    def secret(self) -> str:
        """A fresh 256-bit secret, URL-safe."""
        ...


class SystemIds:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def new(self, prefix: str, randomness: bytes | None = None) -> str:
        return f"{prefix}_{ulid(self._clock.now(), randomness or secrets.token_bytes(RANDOM_BYTES))}"

    def secret(self) -> str:
        return secrets.token_urlsafe(32)


class SeededIds:
    """Ids that repeat exactly for a seed: simulation and tests."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock = clock
        self._seed = seed
        self._count = 0

    def _next(self, size: int) -> bytes:
        self._count += 1
        return hashlib.sha256(f"{self._seed}:{self._count}".encode()).digest()[:size]

    def new(self, prefix: str, randomness: bytes | None = None) -> str:
        return f"{prefix}_{ulid(self._clock.now(), randomness or self._next(RANDOM_BYTES))}"

    def secret(self) -> str:
        return self._next(32).hex()
