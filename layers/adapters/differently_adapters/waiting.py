"""Looking again until a backend has done what it accepted to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from differently_core.errors import BackendError
from differently_core.runtime.clock import Clock

FIRST_SECONDS: Final = 0.1
POLL_SECONDS_MAX: Final = 2.0


class Waits:
    """Pauses between looks: short ones first, and none past the end."""

    def __init__(self, clock: Clock, ends: float) -> None:
        self._clock = clock
        self._ends = ends
        self._next = FIRST_SECONDS

    def again(self) -> bool:
        """Wait a little; False when the time is over."""
        left = self._ends - self._clock.monotonic()
        if left <= self._next:
            return False
        self._clock.sleep(self._next)
        self._next = min(self._next * 2, POLL_SECONDS_MAX)
        return True


@contextmanager
def begun() -> Iterator[None]:
    """What fails in here fails after something was changed, so no failure may say that nothing was."""
    try:
        yield
    except BackendError as error:
        error.settled = False
        raise
