"""Looking again until a backend has done what it accepted to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from differently_core.errors import BackendError, DifferentlyError, InvalidState, ProviderUnavailable
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


def ordered_once(act: Callable[[], None]) -> None:
    """Ask for a change of state, once. An answer that was lost, and a state that it was in already, are seen by
    looking; only what certainly had no effect is raised.
    """
    try:
        act()
    except InvalidState:
        return
    except BackendError as error:
        if error.settled:
            raise


def as_outage(look: Callable[[], None]) -> None:
    """A look at the service itself: whatever it refuses, it is the service that cannot be used."""
    try:
        look()
    except BackendError:
        raise
    except DifferentlyError as error:
        raise ProviderUnavailable(error.message, settled=True) from None
