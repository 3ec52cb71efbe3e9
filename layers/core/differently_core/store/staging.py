"""Staging: where large files lie between the client that sends them and the sandbox that gets them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from ..errors import DifferentlyError

CHUNK_BYTES: Final = 1_048_576


class StagingUnavailable(DifferentlyError):
    """The bucket did not answer, or refused for its load; a repeat may succeed."""

    code = "provider_unavailable"


class NothingStaged(DifferentlyError):
    """There are no bytes under that name: they were not sent yet, or the bucket has forgotten them."""

    code = "invalid_state"


@dataclass(frozen=True)
class Address:
    """A PUT that whoever has it may send, without a key: it is for the caller and never for a log.

    It takes exactly the bytes it was made for; the headers are part of what was signed and must be sent as they are.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


class Staging(Protocol):
    """Safe to share between threads. Every method may raise `StagingUnavailable`."""

    def address(self, name: str, size: int, sha256: str, seconds: int) -> Address:
        """Where `size` bytes with that hash (hexadecimal) can be sent for so many seconds. No round trip."""
        ...

    def size(self, name: str) -> int:
        """How many bytes are there; raises `NothingStaged`."""
        ...

    def chunks(self, name: str) -> Iterator[bytes]:
        """All of them, in pieces of at most `CHUNK_BYTES`, or an error; raises `NothingStaged`."""
        ...

    def delete(self, name: str) -> None:
        """Missing is success."""
        ...


class NoStaging:
    """An installation without a bucket: it takes no large files."""

    def address(self, name: str, size: int, sha256: str, seconds: int) -> Address:
        raise StagingUnavailable("This installation has no staging bucket, so it takes no uploads; deploy one first.")

    def size(self, name: str) -> int:
        raise _nothing()

    def chunks(self, name: str) -> Iterator[bytes]:
        raise _nothing()

    def delete(self, name: str) -> None:
        """Nothing is there."""


class MemoryStaging:
    """For tests and simulation. `send` is what a client does with an address."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self._awaited: dict[str, tuple[str, int, str]] = {}
        self._lock = threading.Lock()
        self.up = True
        """False refuses every call, as a bucket that cannot be reached does."""

    def address(self, name: str, size: int, sha256: str, seconds: int) -> Address:
        url = f"https://staging.example/{name}"
        with self._lock:
            self._awaited[url] = (name, size, sha256)
        return Address(url, {"x-hash": sha256})

    def send(self, address: Mapping[str, object], data: bytes) -> bool:
        """Whether the bucket took it: only the very bytes that the address was made for."""
        with self._lock:
            name, size, sha256 = self._awaited[str(address["url"])]
            taken = len(data) == size and hashlib.sha256(data).hexdigest() == sha256
            if taken:
                self.kept[name] = data
            return taken

    def size(self, name: str) -> int:
        return len(self._found(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        data = self._found(name)
        return (data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES))

    def delete(self, name: str) -> None:
        self._check_up()
        with self._lock:
            self.kept.pop(name, None)

    def _found(self, name: str) -> bytes:
        self._check_up()
        with self._lock:
            data = self.kept.get(name)
        if data is None:
            raise _nothing()
        return data

    def _check_up(self) -> None:
        if not self.up:
            raise StagingUnavailable("The staging bucket does not answer right now; repeat the call in a second.")


def _nothing() -> NothingStaged:
    return NothingStaged("Nothing was sent to this upload's address yet; PUT the file there first.")
