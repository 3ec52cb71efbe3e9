"""Real time, without the waits between looks: a stand-in has done what it was asked for before it answers."""

from __future__ import annotations

from differently_core.runtime.clock import SystemClock


class QuickClock(SystemClock):
    """Waiting takes no time and counts as time; what really takes time, such as a command, still does."""

    def __init__(self) -> None:
        self.waited = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.waited

    def sleep(self, seconds: float) -> None:
        self.waited += seconds
