"""Pause and resume, as OpenSandbox has them: accepted at once, and then watched, for they may never happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from differently_core.contract import Instance, InstanceState, Target
from differently_core.errors import BackendError, InvalidState, SandboxFailed
from differently_core.runtime.clock import Clock

from ...waiting import Waits, begun
from .config import Runtime
from .lifecycle import Lifecycle
from .states import instance, not_ready, phase
from .wire import SandboxRead

UNMOVED_SECONDS: Final = 20.0
"""A pause that has not begun after that never will."""


class Mover:
    """`find` gives the sandbox as it is now, checked for its owner; `never_began` raises the error for its kind."""

    def __init__(
        self,
        api: Lifecycle,
        clock: Clock,
        runtime: Runtime,
        find: Callable[[Target], SandboxRead],
        runs_commands: Callable[[SandboxRead], bool],
        never_began: Callable[[], NoReturn],
    ) -> None:
        self._api = api
        self._clock = clock
        self._runtime = runtime
        self._find = find
        self._runs_commands = runs_commands
        self._never_began = never_began

    def paused(self, target: Target, seen: SandboxRead, ends: float) -> SandboxRead:
        """Ask for it and watch it happen. A failed one goes back to Running without a word, one that is not offered
        never leaves it.
        """
        try:
            self._api.pause(seen.id)
        except (InvalidState, BackendError) as error:
            if isinstance(error, BackendError) and error.settled:
                raise
        moved = False
        unmoved_until = self._clock.monotonic() + UNMOVED_SECONDS
        waits = Waits(self._clock, ends)
        while True:
            with begun():
                seen = self._find(target)
            now = self._clock.monotonic()
            if phase(seen) == "pausing":
                moved = True
            elif phase(seen) != "running":
                return seen
            elif moved:
                raise SandboxFailed("The sandbox could not be paused; it runs as before.", settled=True)
            elif now >= unmoved_until:
                self._never_began()
            if not waits.again():
                return seen

    def resumed(self, target: Target, deadline: float) -> Instance:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._find(target)
        if phase(seen) == "paused":
            try:
                self._api.resume(seen.id)
            except (InvalidState, BackendError) as error:
                if isinstance(error, BackendError) and error.settled:
                    raise
        while True:
            with begun():
                seen = self._find(target)
            made = instance(seen, self._runtime)
            if made.state is InstanceState.ERROR:
                raise SandboxFailed(f"The sandbox did not come back: {made.message}.", settled=True)
            if made.state is InstanceState.RUNNING and self._runs_commands(seen):
                return made
            if not waits.again():
                return made if made.state is not InstanceState.RUNNING else not_ready(made)
