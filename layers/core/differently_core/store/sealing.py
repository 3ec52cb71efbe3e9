"""Sealing: how a secret is kept in a row that proves nothing to whoever copies it.

A sealed text opens only under the context it was sealed with, so it is worth nothing in another row.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, Protocol

from ..errors import DifferentlyError

SEALED_BYTES_MAX: Final = 4096
"""What KMS encrypts in one call."""
Context = Mapping[str, str]


class SealingUnavailable(DifferentlyError):
    """The sealer did not answer, or refused for its load; a repeat may succeed."""

    code = "provider_unavailable"


class Unsealable(DifferentlyError):
    """This text does not open under this context and never will: another key sealed it, or it was moved or damaged."""

    code = "provider_unavailable"


class Sealer(Protocol):
    """No error of a sealer ever quotes what it was given. Safe to share between threads."""

    def seal(self, text: str, context: Context) -> str:
        """At most `SEALED_BYTES_MAX` bytes; raises `SealingUnavailable`."""
        ...

    def unseal(self, sealed: str, context: Context) -> str:
        """Raises `Unsealable`, or `SealingUnavailable` when it cannot be told now."""
        ...


class NoSealer:
    """An installation that was given no key: it keeps no secrets, rather than keeping them in clear."""

    def seal(self, text: str, context: Context) -> str:
        raise SealingUnavailable("This installation has no key to seal secrets with; set one up first.")

    def unseal(self, sealed: str, context: Context) -> str:
        raise SealingUnavailable("This installation has no key to open secrets with; set one up first.")


class MemorySealer:
    """For tests and simulation: rows hold a number, and the text stays here."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, Context]] = {}
        self._lock = threading.Lock()
        self.up = True
        """False refuses every call, as a KMS that cannot be reached does."""

    def seal(self, text: str, context: Context) -> str:
        self._check_up()
        with self._lock:
            sealed = f"sealed-{len(self._kept) + 1}"
            self._kept[sealed] = (text, dict(context))
        return sealed

    def unseal(self, sealed: str, context: Context) -> str:
        self._check_up()
        with self._lock:
            text, bound_to = self._kept.get(sealed, ("", None))
        if bound_to != dict(context):
            raise Unsealable("A sealed secret does not open under its own name; set it again.")
        return text

    def _check_up(self) -> None:
        if not self.up:
            raise SealingUnavailable("Secrets cannot be sealed or opened right now; repeat the call in a second.")
