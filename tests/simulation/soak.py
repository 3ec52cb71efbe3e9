"""A month of an installation that is always full, and an hour in which every backend is down.

    python -m tests.simulation.soak                    # 30 days, 2,000 live sandboxes, 5 % faults
    python -m tests.simulation.soak --days 1 --live 200
    python -m tests.simulation.soak --recovery         # all pools down for an hour, 10,000 wait

One process at a time here: what meets whom is the simulation's business, and how much is left after a long while is
this one's. Each call of a backend meets a drawn fault with that chance, each write of the store loses its answer with a
fifth of it, and each message is lost with it.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from typing import Any

from differently_adapters.providers.fake import Call, Fault
from differently_core.contract import Operation
from differently_core.errors import DifferentlyError
from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.exec import ExecRequest
from differently_core.model.queue import QueueRow
from differently_core.model.quota import Counter, Limits
from differently_core.model.record import Table
from differently_core.model.resources import Size
from differently_core.model.sandbox import ENDED, LIVE, MoveKind, Sandbox, Status
from differently_core.operations import execution, moves, pools, reconcile, sandboxes, sweep, tenants
from differently_core.operations.create import create
from differently_core.operations.requests import CreateSandbox
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome, StoreUnavailable
from tests.support.world import OPERATOR, World, deliver

from .weather import CALLS

TICK_SECONDS = 60
RECONCILE_TICKS = 60
"""An hour between two passes here: a list of thousands is most of what a tick costs."""
DAY_TICKS = 24 * 60
NEVER = frozenset({"delete_never_ends"})
"""What only an operator ends: a month of them would fill a pool with what nobody can remove."""
HOUR_TICKS = 60


class Losing:
    """A store that loses answers, before its write and after it."""

    def __init__(self, memory: MemoryStore, rng: random.Random) -> None:
        self._memory = memory
        self._rng = rng
        self.rate = 0.0

    def transact(self, actions: Sequence[Action]) -> Outcome:
        drawn = self._rng.random()
        if drawn < self.rate / 2:
            raise StoreUnavailable("No answer.")
        outcome = self._memory.transact(actions)
        if drawn < self.rate:
            raise StoreUnavailable("No answer.")
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


class Plant:
    """Two pools over two backends, one organization without a limit, and what befalls them."""

    def __init__(self, seed: int, live: int, faults: float) -> None:
        self.rng = random.Random(seed)
        self.faults = faults
        self.met: Tally[str] = Tally()
        stores: list[Losing] = []

        def wrap(memory: MemoryStore) -> Losing:
            stores.append(Losing(memory, self.rng))
            return stores[0]

        self.world = World(wrap=wrap, seed=seed)
        self.store = stores[0]
        self.backends = [self.world.add_pool(name, concurrency=live * 2) for name in ("one", "two")]
        everything = Limits(total=Size.unlimited(), queued_max=live * 10)
        for project in (None, self.world.project.id):
            tenants.set_quota(self.world.core, OPERATOR, self.world.org.id, project, everything)
        self.live: list[SandboxId] = []

    def begin(self) -> None:
        self.store.rate = self.faults / 5
        for backend in self.backends:
            backend.plan = lambda call, backend=backend: self._fault(call, backend)

    def _fault(self, call: Call, backend: Any) -> Fault | None:
        kinds = [kind for kind in CALLS.get(call.operation, {}) if kind not in NEVER]
        if not kinds or self.rng.random() >= self.faults:
            return None
        kind = self.rng.choice(kinds)
        self.met[kind] += 1
        return CALLS[call.operation][kind](self.rng, backend)

    def heal(self) -> None:
        self.store.rate, self.faults = 0.0, 0.0
        for backend in self.backends:
            backend.heal()

    def attempt(self, run: Callable[[], object]) -> object:
        """A call of a client or a message; an error is an answer."""
        try:
            return run()
        except DifferentlyError as error:
            self.met[f"answer {error.code}"] += 1
            return None

    def create(self, **asked: Any) -> None:
        made = self.attempt(lambda: create(self.world.core, self.world.caller, CreateSandbox.model_validate(asked)))
        if made is not None:
            self.live.append(made.sandbox)  # type: ignore[attr-defined]

    def tick(self, number: int) -> None:
        """A minute: what is due, every message, and now and then a pass over the pools."""
        world = self.world
        world.clock.advance(TICK_SECONDS)
        self.attempt(lambda: pools.probe_all(world.core))
        self.attempt(lambda: sweep.sweep(world.core))
        if number % RECONCILE_TICKS == 0:
            self.attempt(lambda: reconcile.reconcile_all(world.core))
        for _ in range(100_000):
            if not world.bag.messages:
                break
            message = world.bag.messages.pop(0)
            if self.rng.random() >= self.faults:
                self.attempt(lambda message=message: deliver(world.core, message))  # type: ignore[misc]
        self.purge()

    def purge(self) -> None:
        """As DynamoDB does with rows whose time is over."""
        now = self.world.clock.now().timestamp()
        if self.world.clock.now().minute:
            return
        for slot, kept in list(self.world.memory._rows.items()):
            if float(str(kept.row.get("purge_at", now + 1))) < now:
                self.world.memory._write(slot, None)

    def left(self) -> list[str]:
        """What is still there after the end of everything."""
        rows = list(self.world.memory.rows().values())
        found = [f"{row.id} is {row.status}" for row in rows if isinstance(row, Sandbox) and row.status not in ENDED]
        found += [
            f"attempt {row.number} of {row.sandbox} is {row.status}"
            for row in rows
            if isinstance(row, Attempt) and row.status is not AttemptState.SETTLED
        ]
        found += [f"{row.sandbox} is in the queue" for row in rows if isinstance(row, QueueRow)]
        found += [
            f"{row.scope} {row.name} holds {row.held.sandboxes}"
            for row in rows
            if isinstance(row, Counter) and row.held.sandboxes
        ]
        found += [f"{instance.ref} is there" for backend in self.backends for instance in backend.instances()]
        return found

    def end(self) -> list[str]:
        """Faults off, everything deleted: what is left after forty minutes."""
        self.heal()
        for row in list(self.world.rows(Sandbox)):
            if row.status in LIVE:
                sandboxes.delete(self.world.core, OPERATOR, row.id)
        for number in range(2 * HOUR_TICKS + 1):
            self.tick(number)
        return self.left()

    def rows(self) -> int:
        """Of the table that says what is; the log grows, for it is kept."""
        return sum(slot[0] is Table.STATE for slot in self.world.memory._rows)


def soak(seed: int, days: int, live: int, faults: float) -> int:
    plant = Plant(seed, live, faults)
    plant.begin()
    sizes: list[int] = []
    began = time.process_time()
    made = 0
    for number in range(1, days * DAY_TICKS + 1):
        made += minute(plant, live, number)
        if number % DAY_TICKS == 0:
            sizes.append(plant.rows())
            day, seconds = number // DAY_TICKS, time.process_time() - began
            print(
                f"day {day:>2}: {len(plant.live):,} live, {made:,} made, {sizes[-1]:,} rows, {seconds:,.0f} s of CPU",
                flush=True,
            )
    left = plant.end()
    _told(plant)
    spread = _spread(sizes[3:])
    print(f"{made:,} sandboxes in {days} days; the store kept its size within {spread:.1%}; left behind: {len(left)}")
    for line in left[:20]:
        print(f"  {line}")
    return 1 if left else 0


def minute(plant: Plant, live: int, number: int) -> int:
    """As many as there should be are made, some are used, and the minute goes by; how many were made."""
    before = len(plant.live)
    for _ in range(min(live - len(plant.live), 100)):
        plant.create(ttlSeconds=plant.rng.choice((12, 24, 36)) * 3600, idleTimeoutSeconds=0)
    made = len(plant.live) - before
    _use(plant)
    plant.tick(number)
    if number % 10 == 0:
        plant.live = [each for each in plant.live if plant.world.sandbox(each).status in LIVE]
    return made


def _spread(sizes: Sequence[int]) -> float:
    return (max(sizes) - min(sizes)) / (2 * min(sizes)) if sizes else 0.0


def _use(plant: Plant) -> None:
    """A delete, a command, and one that is put to rest or woken."""
    world, rng = plant.world, plant.rng
    if not plant.live:
        return
    one, other, third = (rng.choice(plant.live) for _ in range(3))
    if rng.random() < 0.5:
        plant.attempt(lambda: sandboxes.delete(world.core, world.caller, one))
    request = ExecRequest(command="true", timeout_seconds=5)
    plant.attempt(lambda: execution.run(world.core, world.caller, other, request))
    kinds = {
        Status.RUNNING: (MoveKind.STOP, MoveKind.PAUSE), Status.STOPPED: (MoveKind.START,),
        Status.PAUSED: (MoveKind.RESUME,),
    }.get(world.status(third))  # fmt: skip
    if kinds:
        plant.attempt(lambda: moves.ask(world.core, world.caller, third, rng.choice(kinds)))


def recovery(seed: int, waiting: int) -> int:
    """Everything waits for an hour; then it comes back, and all of it runs, without a rush at the backends."""
    plant = Plant(seed, waiting, 0.0)
    for number in range(3):
        plant.tick(number)
    for backend in plant.backends:
        backend.up = False
    began = time.process_time()
    plant.tick(0)
    for _ in range(waiting):
        plant.create(queueTimeoutSeconds=12 * 3600, ttlSeconds=48 * 3600, idleTimeoutSeconds=0)
    down = _calls(plant, HOUR_TICKS)
    for backend in plant.backends:
        backend.up = True
    ticks, first, calls = 0, None, []
    while plant.world.rows(QueueRow) or any(row.status is not Status.RUNNING for row in plant.world.rows(Sandbox)):
        ticks += 1
        calls += _calls(plant, 1)
        running = sum(row.status is Status.RUNNING for row in plant.world.rows(Sandbox))
        first = ticks if first is None and running else first
        print(f"minute {ticks}: {running:,} run, {calls[-1]:,} calls", flush=True)
        if ticks > 12 * 60:
            break
    left = plant.end()
    per_sandbox = sum(calls) / waiting
    print(f"down: at most {max(down):,} calls a minute; first placed in minute {first}, all in {ticks}")
    print(f"{per_sandbox:.2f} calls for each sandbox; {time.process_time() - began:,.0f} s of CPU; left: {len(left)}")
    return 1 if left or first is None or first > 1 else 0


def _calls(plant: Plant, ticks: int) -> list[int]:
    counts = []
    for number in range(1, ticks + 1):
        before = sum(sum(backend.calls.values()) for backend in plant.backends)
        plant.tick(number)
        counts.append(sum(sum(backend.calls.values()) for backend in plant.backends) - before)
    return counts


def _told(plant: Plant) -> None:
    calls: Tally[Operation] = sum((backend.calls for backend in plant.backends), Tally())
    print(f"{sum(calls.values()):,} calls of backends, {sum(plant.met.values()):,} faults and refusals:")
    for what, count in sorted(plant.met.items()):
        print(f"  {count:>8,}  {what}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.soak", description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--live", type=int, default=2_000)
    parser.add_argument("--faults", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recovery", action="store_true")
    parser.add_argument("--waiting", type=int, default=10_000)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    if options.recovery:
        return recovery(options.seed, options.waiting)
    return soak(options.seed, options.days, options.live, options.faults)


if __name__ == "__main__":
    sys.exit(main())
