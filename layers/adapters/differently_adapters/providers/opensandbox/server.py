"""Which OpenSandbox it is: the server's version, read now and then, and whether our tests ran against it.

execd tells its own version nowhere, so nothing is known of that one.
"""

from __future__ import annotations

from typing import Final

from differently_core.errors import DifferentlyError
from differently_core.runtime.clock import Clock

from .lifecycle import Lifecycle

TESTED_VERSIONS: Final = ("1.1.1",)
BELIEVED_SECONDS: Final = 600.0


class Server:
    """What is known of the server; `version` is empty until it was seen."""

    def __init__(self, api: Lifecycle, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._seen_at: float | None = None
        self.version = ""

    def look(self) -> None:
        """Best effort: a server that does not tell its version works as well as it does."""
        now = self._clock.monotonic()
        if self._seen_at is not None and now - self._seen_at < BELIEVED_SECONDS:
            return
        try:
            self.version = self._api.version()
        except DifferentlyError:
            self.version = ""
        self._seen_at = now

    def warnings(self) -> tuple[str, ...]:
        if self._seen_at is None or self.version in TESTED_VERSIONS:
            return ()
        which = f"OpenSandbox {self.version}" if self.version else "This OpenSandbox does not tell its version and"
        return (f"{which} was not tested with this adapter; tested: {', '.join(TESTED_VERSIONS)}.",)
