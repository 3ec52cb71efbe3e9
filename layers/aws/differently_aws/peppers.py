"""The peppers of API keys, from Secrets Manager: a JSON object of versions and secrets, `{"1": "…", "2": "…"}`.

Rotation adds a version. A container that meets a key under a version it has not read yet reads again, at most once in
`REREAD_SECONDS`, so that keys made by a newer container prove everywhere and made-up ones cost nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping

from botocore.exceptions import BotoCoreError, ClientError

from differently_core.errors import Internal
from differently_core.operations.keys import Peppers
from differently_core.runtime.clock import Clock

from .clients import Clients

REREAD_SECONDS = 60.0


class Versions(Mapping[int, bytes]):
    """Read when first asked for. A read that fails raises `Internal`: without peppers no key is proved."""

    def __init__(self, read: Callable[[], Mapping[int, bytes]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._known: Mapping[int, bytes] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def __getitem__(self, version: int) -> bytes:
        known = self._current()
        if version not in known:
            known = self._current(older_than=REREAD_SECONDS)
        return known[version]

    def __iter__(self) -> Iterator[int]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())

    def _current(self, older_than: float = float("inf")) -> Mapping[int, bytes]:
        with self._lock:
            now = self._clock.monotonic()
            if not self._known or now - self._read_at > older_than:
                self._known = self._read()
                self._read_at = now
            return self._known


def parse(text: str) -> Mapping[int, bytes]:
    """Raises `ValueError`, without the text, for what is no set of peppers."""
    try:
        found = {int(version): str(secret).encode() for version, secret in json.loads(text).items()}
    except (ValueError, AttributeError):
        raise ValueError("not a JSON object of versions and secrets") from None
    Peppers(found)  # refuses an empty set and short ones
    return found


class StoredPeppers(Peppers):
    """`Peppers` whose secrets are read at their first use, so that a container starts without them."""

    def __init__(self, read: Callable[[], Mapping[int, bytes]], clock: Clock) -> None:
        object.__setattr__(self, "secrets", Versions(read, clock))


def stored(clients: Clients, secret: str | None, clock: Clock) -> Peppers:
    """The peppers in this secret. A function that is told of none can prove and make no key."""

    def read() -> Mapping[int, bytes]:
        if secret is None:
            raise Internal("This function has no peppers.")
        try:
            return parse(clients.client("secretsmanager").get_secret_value(SecretId=secret)["SecretString"])
        except (ClientError, BotoCoreError, KeyError, ValueError) as error:
            raise Internal("The peppers cannot be read.") from error

    return StoredPeppers(read, clock)
