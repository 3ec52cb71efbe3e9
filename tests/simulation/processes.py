"""Many processes on one thread of time: each operation runs in a thread of its own, and exactly one runs at a moment.

A process goes on until it parks, which it does at the seams: store calls, backend calls, sleeps. Who goes on next is
drawn from the seed, so that every interleaving can happen and each repeats exactly. The machinery is threads only
because operations are ordinary functions that cannot be stopped in the middle in any other way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from differently_core.runtime.clock import VirtualClock

LIFE_SECONDS = 900.0
"""How long a process may live, frozen or not: the platform ends it then."""


class Killed(BaseException):
    """The process died here: nothing after this line happened. Not an `Exception`: nobody may catch it."""


class Violation(BaseException):
    """An invariant does not hold. Not an `Exception`: no operation may take it for a fault of a backend."""


class Process:
    """One running operation. All moments are of the monotonic clock."""

    def __init__(self, number: int, name: str, job: Callable[[], None], now: float) -> None:
        self.number = number
        self.name = name
        self.job = job
        self.dies_at = now + LIFE_SECONDS
        self.wakes_at: float | None = None
        """Asleep until then."""
        self.expires_at: float | None = None
        """The backend call that it waits in gives up then."""
        self.expired = False
        self.doomed = False
        self.hand: _Hand | None = None
        self.creates: list[str] = []
        """Sandboxes that this process made; the monitor keeps it."""

    def __str__(self) -> str:
        return f"{self.name}#{self.number}"

    def next_at(self) -> float:
        """When time alone makes it go on."""
        return min(moment for moment in (self.wakes_at, self.expires_at, self.dies_at) if moment is not None)


def _held() -> threading.Lock:
    """A lock that is released by one thread to let another go on."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class _Hand:
    """A thread that carries one process at a time."""

    def __init__(self, turn: threading.Lock) -> None:
        self.go = _held()
        self.job: Callable[[], None] | None = None
        self._turn = turn
        self._thread = threading.Thread(target=self._run, name="process", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self.go.acquire()
            if self.job is None:
                return
            self.job()
            self.job = None
            self._turn.release()

    def close(self) -> None:
        self.go.release()
        self._thread.join()


class SharedClock(VirtualClock):
    """Moves when the conductor says so; who sleeps, waits."""

    def __init__(self) -> None:
        super().__init__()
        self.conductor: Conductor | None = None

    def sleep(self, seconds: float) -> None:
        if self.conductor is None or self.conductor.current is None:
            self.advance(seconds)
        elif seconds > 0:
            self.conductor.park(seconds)

    def shift(self, seconds: float) -> None:
        """Set the wall clock right; durations do not notice."""
        self._now += timedelta(seconds=seconds)


class Conductor:
    """Says who runs. `current` is None while no process does."""

    def __init__(self, clock: SharedClock) -> None:
        self.clock = clock
        clock.conductor = self
        self.current: Process | None = None
        self.parked: list[Process] = []
        self.violation: Violation | None = None
        self.note: Callable[[str], None] = lambda moment: None
        self._turn = _held()
        self._idle: list[_Hand] = []
        self._hands: list[_Hand] = []
        self._count = 0

    # For the scheduler.

    def start(self, name: str, job: Callable[[], None]) -> Process:
        """Run a new process until it parks or ends."""
        self._count += 1
        process = Process(self._count, name, job, self.clock.monotonic())
        process.hand = self._idle.pop() if self._idle else self._new_hand()
        process.hand.job = lambda: self._live(process)
        self._switch_to(process)
        return process

    def resume(self, process: Process) -> None:
        """Let it go on until it parks again or ends; one that sleeps is first let sleep."""
        if process.wakes_at is not None:
            self.pass_time(process.wakes_at - self.clock.monotonic())
            return
        self.parked.remove(process)
        self._switch_to(process)

    def kill(self, process: Process) -> None:
        process.doomed = True
        self.parked.remove(process)
        self._switch_to(process)

    def pass_time(self, seconds: float) -> None:
        """Move the clock; whoever wakes, is timed out or reaches the end of its life on the way does so on time."""
        target = self.clock.monotonic() + seconds
        while self.parked:
            process = min(self.parked, key=lambda entry: (entry.next_at(), entry.number))
            at = process.next_at()
            if at > target:
                break
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            self._ring(process)
        self.clock.advance(max(0.0, target - self.clock.monotonic()))

    def finish_all(self) -> None:
        while self.parked:
            self.resume(self.parked[0])

    def close(self) -> None:
        """End every process, whatever it still has to say."""
        while self.parked:
            with suppress(Violation):
                self.kill(self.parked[0])
        for hand in self._hands:
            hand.close()

    # For processes.

    def park(self, seconds: float | None = None) -> None:
        """Wait for one's turn; `seconds` sleeps. Raises `Killed` when the process does not live that long."""
        process = self.current
        assert process is not None
        assert process.hand is not None
        process.wakes_at = None if seconds is None else self.clock.monotonic() + seconds
        self.parked.append(process)
        self.current = None
        self._turn.release()
        process.hand.go.acquire()
        self.current = process
        process.wakes_at = None
        if process.doomed:
            raise Killed

    # Inside.

    def _ring(self, process: Process) -> None:
        """Its moment has come: wake it, time out its call, or end it."""
        now = self.clock.monotonic()
        if process.wakes_at is not None and process.wakes_at <= now:
            process.wakes_at = None
        elif process.expires_at is not None and process.expires_at <= now:
            process.expired = True
            process.expires_at = None
            self.note("call_timed_out")
        else:
            process.doomed = True
            self.note("life_over")
        self.parked.remove(process)
        self._switch_to(process)

    def _switch_to(self, process: Process) -> None:
        assert self.current is None
        assert process.hand is not None
        self.current = process
        process.hand.go.release()
        self._turn.acquire()
        self.current = None
        if self.violation is not None:
            raise self.violation

    def _live(self, process: Process) -> None:
        try:
            process.job()
        except Killed:
            pass
        except Violation as violation:
            self.violation = violation
        except BaseException as error:
            self.violation = Violation(f"{process} raised {type(error).__name__}: {error}")
            self.violation.__cause__ = error
        finally:
            self.current = None
            assert process.hand is not None
            self._idle.append(process.hand)

    def _new_hand(self) -> _Hand:
        hand = _Hand(self._turn)
        self._hands.append(hand)
        return hand
