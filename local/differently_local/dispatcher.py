"""What Lambda, the queue and the schedule are when deployed: threads that hand messages to the same entry points.

A nudge may be lost, doubled or late by contract, so a stop abandons what has not begun: the due index brings it back at
the next start. Worker steps may overlap on one sandbox, as they may when deployed; only a nudge that still waits
is not queued twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from differently_core.operations.core import Core
from differently_core.runtime.ids import SandboxId, SnapshotId
from differently_reconciler import reconcile
from differently_reconciler.reconcile import Reconcile
from differently_scheduler import deliver, dispatch, tick, worker
from differently_scheduler.messages import Account, Cleanup, Close, LookAtPort, Probe, Step, StepSnapshot, Sweep

log = logging.getLogger(__name__)
STEP_THREADS = 16
CLEANUP_THREADS = 4
WAITING_MAX = 100_000
"""Nudges that wait; more are dropped, and the sweep finds what they were about."""
SWEEP_SECONDS = 1.0
IDLE_SWEEP_SECONDS = 5.0
"""How often to look when nothing was due and nobody asked for anything in a while."""
BUSY_SECONDS = 30.0
PROBE_SECONDS = 5.0
ACCOUNT_SECONDS = 60.0
RECONCILE_THREADS = 4
RECONCILE_SECONDS = 30.0
DELIVER_THREADS = 8
"""As many webhooks are served at one time; one that hangs takes one of them, for a while."""
STOP_SECONDS = 3.0

Entry = Callable[[Core, Mapping[str, Any]], object]


def attempt(entry: Entry, core: Core, event: Mapping[str, Any]) -> object:
    """Run an entry point as Lambda would: what it raises is logged and ends nothing else."""
    try:
        return entry(core, event)
    except Exception:
        log.exception("entry point failed", extra={"entry": entry.__module__.rpartition(".")[2]})
        return None


class Lane:
    """A bounded number of threads working off messages, each of which waits at most once."""

    def __init__(self, name: str, threads: int, work: Callable[[Mapping[str, Any]], object]) -> None:
        self._work = work
        self._waiting: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def put(self, key: str, event: Mapping[str, Any]) -> None:
        with self._changed:
            if self._stopping or key in self._waiting:
                return
            if len(self._waiting) >= WAITING_MAX:
                log.warning("nudge dropped, the sweep will find it", extra={"nudge": key})
                return
            self._waiting[key] = event
            self._changed.notify()

    def halt(self) -> None:
        """Begin nothing new."""
        with self._changed:
            self._stopping = True
            self._waiting.clear()
            self._changed.notify_all()

    def ended(self, end: float) -> bool:
        """Wait until `end` (monotonic) for what runs; True when all of it has ended."""
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (event := self._next()) is not None:
            self._work(event)

    def _next(self) -> Mapping[str, Any] | None:
        with self._changed:
            while not self._waiting and not self._stopping:
                self._changed.wait()
            return None if self._stopping else self._waiting.popitem(last=False)[1]


class Pulse:
    """One thread that does the same thing again and again, with the pause that the last round answered."""

    def __init__(self, name: str, beat: Callable[[], float]) -> None:
        self._beat = beat
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def halt(self) -> None:
        self._stopping.set()

    def ended(self, end: float) -> bool:
        self._thread.join(max(0.0, end - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            pause = self._beat()


@dataclass
class _Activity:
    """When somebody last asked for something; threads may race on it, and any of their values is right."""

    at: float = 0.0

    def note(self) -> None:
        self.at = time.monotonic()

    def recent(self) -> bool:
        return time.monotonic() - self.at < BUSY_SECONDS


class Dispatcher:
    """The `Nudges` of this process. It works only between `start` and `stop`; before that, nudges wait."""

    def __init__(self) -> None:
        self._core: Core | None = None
        self._activity = _Activity()
        self._steps = Lane("worker", STEP_THREADS, lambda event: attempt(worker.handle, self._given(), event))
        self._cleanups = Lane("cleanup", CLEANUP_THREADS, lambda event: attempt(worker.handle, self._given(), event))
        # One thread and one waiting message are single flight with a flag for "again".
        self._dispatches = Lane("dispatch", 1, lambda event: attempt(dispatch.handle, self._given(), event))
        self._passes = Lane(
            "reconcile", RECONCILE_THREADS, lambda event: attempt(reconcile.handle, self._given(), event)
        )
        self._deliveries = Lane("deliver", DELIVER_THREADS, lambda event: attempt(deliver.handle, self._given(), event))
        self._parts: Sequence[Lane | Pulse] = (
            self._steps, self._cleanups, self._dispatches, self._passes, self._deliveries, Pulse("sweep", self._sweep),
            Pulse("probe", self._probe), Pulse("reconcile-all", self._reconcile), Pulse("account", self._account),
        )  # fmt: skip

    def _given(self) -> Core:
        assert self._core is not None
        return self._core

    def worker(self, sandbox: str) -> None:
        self._activity.note()
        self._steps.put(sandbox, Step(sandbox=SandboxId(sandbox)).event())

    def cleanup(self, sandbox: str, attempt: int) -> None:
        self._activity.note()
        self._cleanups.put(f"{sandbox}#{attempt}", Cleanup(sandbox=SandboxId(sandbox), attempt=attempt).event())

    def snapshot(self, snapshot: str) -> None:
        self._activity.note()
        self._steps.put(snapshot, StepSnapshot(snapshot=SnapshotId(snapshot)).event())

    def port(self, sandbox: str, port: int) -> None:
        self._activity.note()
        self._cleanups.put(f"{sandbox}:{port}", LookAtPort(sandbox=SandboxId(sandbox), port=port).event())

    def dispatch(self) -> None:
        self._activity.note()
        self._dispatches.put("dispatch", dispatch.batch("local"))

    def closing(self, tenant: str) -> None:
        self._activity.note()
        self._cleanups.put(tenant, Close(tenant=tenant).event())

    def deliver(self, webhook: str) -> None:
        self._activity.note()
        self._deliveries.put(webhook, deliver.batch(webhook))

    def reconcile(self, pool: str) -> None:
        self._passes.put(pool, Reconcile(pool=pool).event())

    def start(self, core: Core) -> None:
        self._core = core
        for part in self._parts:
            part.start()
        # What waited when the last run ended has no message any more.
        self.dispatch()

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """True when everything that ran has ended; else its claims run out and the next start takes over."""
        end = time.monotonic() + seconds
        for part in self._parts:
            part.halt()
        ended = all(part.ended(end) for part in self._parts)
        if not ended:
            log.warning("stopped with work under way; the next start takes it up")
        return ended

    def _sweep(self) -> float:
        answer = attempt(tick.handle, self._given(), Sweep().event())
        due = answer.get("due", 0) if isinstance(answer, dict) else 0
        return SWEEP_SECONDS if due or self._activity.recent() else IDLE_SWEEP_SECONDS

    def _probe(self) -> float:
        attempt(tick.handle, self._given(), Probe().event())
        return PROBE_SECONDS

    def _account(self) -> float:
        attempt(tick.handle, self._given(), Account().event())
        return ACCOUNT_SECONDS

    def _reconcile(self) -> float:
        """One message for each pool, so that a backend that hangs delays no other."""
        try:
            names = list(self._given().catalog.pools().pools)
        except Exception:
            log.exception("pools could not be read")
            names = []
        for name in names:
            self.reconcile(name)
        return RECONCILE_SECONDS
