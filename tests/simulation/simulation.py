"""One run: a drawn world, a drawn schedule with faults, then healing, and at last everything must have ended well."""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from differently_adapters.providers.fake import FakeInstance
from differently_core.contract import InstanceState
from differently_core.errors import NotFound
from differently_core.model.policy import GLOBAL, External, PolicyRules
from differently_core.model.pool import Pool, PoolState
from differently_core.model.quota import Limits
from differently_core.operations import pool_release, pools, reconcile, sandboxes, snapshots, sweep, tenants
from differently_core.operations.core import Core
from differently_core.operations.create import create
from differently_core.operations.requests import CreateSandbox
from differently_core.store.ports import StoreThrottled, StoreUnavailable
from tests.support.world import OPERATOR, Close, Dispatch, LookAtPort, Message, Settle, Step, StepSnapshot, deliver

from .clients import Calls, Client, Job
from .installation import Installation
from .liveness import remains, strays, unrest
from .processes import Violation
from .seams import SimBackend

PROCESSES_MAX = 5
SWEEPS_MAX = 40
"""So many sweeps, a minute apart, may everything take to come right after the last fault."""
DELIVERIES_MAX = 10_000
EVENTS_SHOWN = 40
CHECK_EVERYTHING_EVERY = 500


class Failed(AssertionError):
    """A violation, told so that it can be repeated."""


@dataclass(frozen=True)
class Result:
    seed: int
    steps: int
    digest: str
    tally: Mapping[str, int]


def run(seed: int, steps: int, kind: type[Simulation] | None = None) -> Result:
    """Run one seed; raises `Failed` with the seed, the step, the invariant and the last events."""
    log = logging.getLogger("differently_core")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # a run logs millions of lines that nobody reads
    simulation = (kind or Simulation)(seed)
    try:
        simulation.run(steps)
    except (Violation, Exception) as violation:
        raise Failed(simulation.story(violation)) from violation
    finally:
        simulation.world.conductor.close()
        log.setLevel(level)
    return Result(seed, steps, simulation.digest(), dict(sorted(simulation.tally.items())))


Happening = Callable[[Core], Job | None]
"""Something that the schedule can choose: a job for a new process, or a thing that just happens."""


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = 0
        self.tally: Tally[str] = Tally()
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._hash = hashlib.sha256()
        self.rng = random.Random(seed)
        self.world = Installation(seed, self.rng, self.tally, self._tell)
        self._happenings, self._weights = self._drawn_schedule()

    def _drawn_schedule(self) -> tuple[list[Happening], list[int]]:
        """What happens, with how much weight; one seed stresses other things than the next."""
        world = self.world
        names = [pool.name for pool in world.known_pools]
        calls = self._calls = Calls(self.rng, world.clients, names, world.roominess, world.monitor, self.tally)
        weights: dict[Happening, tuple[int, ...]] = {
            calls.create: (8, 16),
            calls.update: (2, 6),
            calls.delete: (2, 8),
            calls.get: (1,),
            calls.listing: (1,),
            calls.execute: (1, 5),
            calls.move: (0, 10, 25),
            calls.snapshot: (0, 2, 8),
            calls.delete_snapshot: (1, 4),
            calls.fork: (0, 1, 5),
            calls.expose: (0, 0, 3),
            calls.close_port: (1,),
            calls.keep_alive: (0, 3),
            calls.quota: (0, 1),
            calls.drain: (0, 1),
            self._deliver: (60, 120),
            self._sweep: (3, 8),
            self._probe: (4, 8),
            self._lets_time_pass: (4, 12),
            self._change_policy: (0, 1),
            self._break: (0, 1),
            self._mend: (4,),
            self._vanish: (0, 1),
            self._lose_snapshot: (0, 0, 1),
            self._stop_behind_our_back: (0, 1, 2),
            self._reconcile: (0, 2, 4),
            self._remove_pool: (0, 0, 1),
            self._restore_pool: (4,),
        }
        drawn = {happening: self.rng.choice(options) for happening, options in weights.items()}
        if calls.patient:
            drawn[calls.move], drawn[calls.delete] = max(drawn[calls.move], 80), 1
        self._has_reconciler = drawn[self._reconcile] > 0
        return list(drawn), list(drawn.values())

    def run(self, steps: int) -> None:
        """Faults on, then off; after the last fault everything must come right by itself."""
        for self.step in range(1, steps + 1):
            self._take_step()
            if self.step % CHECK_EVERYTHING_EVERY == 0:
                self.world.monitor.check_everything()
        self._heal()
        self._come_to_rest("all that waits and fits runs", unrest, 60.0)
        if self._has_reconciler:
            self._come_to_rest("what runs has exactly one instance", strays, 60.0)
        self._delete_half()
        self._delete_half_of_the_snapshots()
        self._come_to_rest("everything ends", remains, 8 * 24 * 3600 / SWEEPS_MAX)
        self._create_at_once()
        self.world.monitor.check_everything()

    # Faults on.

    def _take_step(self) -> None:
        conductor = self.world.conductor
        conductor.pass_time(self.rng.uniform(0.001, 0.02))
        parked = conductor.parked
        if parked and (len(parked) >= PROCESSES_MAX or self.rng.random() < 0.5):
            process = self.rng.choice(parked)
            if self.rng.random() < 0.01:
                self._tell(f"{process} dies")
                self.world.weather.note("crash_of_frozen")
                conductor.kill(process)
            else:
                self._tell(f"{process} goes on")
                conductor.resume(process)
            return
        happening = self.rng.choices(self._happenings, self._weights)[0]
        job = happening(self.rng.choice(self.world.cores))
        if job is not None:
            self._start(job)

    def _start(self, job: Job) -> None:
        self._tell(job.name)
        kind = job.name.split()[0]
        self.tally[f"step {kind}"] += 1
        process = self.world.conductor.start(kind, job.run)
        if process in self.world.conductor.parked:
            self._tell(f"  is {process} and pauses")

    def _deliver(self, core: Core) -> Job | None:
        bag = self.world.nudges.bag
        if not bag:
            return None
        index = self.rng.randrange(len(bag))
        message = bag[index]
        if not self.world.weather.strike("message_doubled"):
            bag.pop(index)
        return Job(_named(message), lambda: _in_background(lambda: deliver(core, message)))

    def _sweep(self, core: Core) -> Job:
        return Job("sweep", lambda: _in_background(lambda: sweep.sweep(core)))

    def _probe(self, core: Core) -> Job:
        return Job("probe", lambda: _in_background(lambda: pools.probe_all(core)))

    def _reconcile(self, core: Core) -> Job:
        return Job("reconcile", lambda: _in_background(lambda: reconcile.reconcile_all(core)))

    def _lets_time_pass(self, core: Core) -> None:
        jumps, weights = (0.5, 2.0, 5.0, 10.0, 30.0, 65.0, 200.0, 900.0, 3600.0), (8, 8, 8, 6, 4, 3, 1, 1, 1)
        jump = self.rng.choices(jumps, weights)[0]
        self._tell(f"{jump} s pass")
        if jump >= 900.0:
            self.world.weather.note("clock_jump")
        if self.rng.random() < 0.02:
            self.world.weather.note("clock_set_back")
            self.world.clock.shift(-self.rng.choice((0.5, 3.0)))
        self.world.conductor.pass_time(jump)

    def _change_policy(self, core: Core) -> None:
        self._tell("the policy changes")
        self.world.set_policy(GLOBAL, self.world.drawn_rules())

    def _break(self, core: Core) -> None:
        """A backend goes down, or the way to a pool is lost."""
        if self.rng.random() < 0.3:
            pool = self.rng.choice(self.world.known_pools).name
            self._tell(f"{pool} cannot be reached")
            self.world.weather.note("pool_unbuildable")
            self.world.pools.unbuildable.add(pool)
            return
        backend = self.rng.choice(self.world.backends)
        if backend.up:
            backend.up = False
            self._tell(f"{backend.name} goes down")
            self.world.weather.note("pool_down")

    def _mend(self, core: Core) -> None:
        backend = self.rng.choice(self.world.backends)
        if self.rng.random() < 0.5:
            return
        self.world.pools.unbuildable.clear()
        if not backend.up:
            backend.up = True
            self._tell(f"{backend.name} is up")

    def _vanish(self, core: Core) -> None:
        found = self._one_of_ours()
        if found is not None:
            backend, instance = found
            self._tell(f"{instance.ref} vanishes")
            self.world.weather.note("instance_vanished")
            backend.vanish(instance.ref)

    def _lose_snapshot(self, core: Core) -> None:
        kept = [
            (backend, snapshot)
            for backend in self.world.backends
            for snapshot in backend.snapshots()
            if snapshot.owner.installation == self.world.monitor.ours
        ]
        if kept:
            backend, snapshot = self.rng.choice(kept)
            self._tell(f"{snapshot.ref} is lost")
            self.world.weather.note("snapshot_lost")
            backend.lose_snapshot(snapshot)

    def _stop_behind_our_back(self, core: Core) -> None:
        instance = self._one_of_ours()
        if instance is None or instance[1].move is not None:
            return
        if instance[1].state in (InstanceState.STOPPED, InstanceState.PAUSED) and self.rng.random() < 0.3:
            other = {InstanceState.STOPPED: InstanceState.PAUSED, InstanceState.PAUSED: InstanceState.STOPPED}
            instance[1].state = other[instance[1].state]
            self._tell(f"{instance[1].ref} is {instance[1].state} now")
        elif instance[1].state in (InstanceState.STOPPED, InstanceState.PAUSED):
            self._tell(f"{instance[1].ref} runs again")
            self.world.weather.note("instance_woken")
            instance[1].state = InstanceState.RUNNING
        elif instance[1].state is InstanceState.RUNNING:
            state = self.rng.choice((InstanceState.STOPPED, InstanceState.PAUSED, InstanceState.ERROR))
            self._tell(f"{instance[1].ref} is {state}")
            self.world.weather.note(f"instance_{state.value}")
            instance[1].state = state

    def _one_of_ours(self) -> tuple[SimBackend, FakeInstance] | None:
        ours = [
            (backend, instance)
            for backend in self.world.backends
            for instance in backend.instances()
            if instance.owner.installation == self.world.monitor.ours
        ]
        return self.rng.choice(ours) if ours else None

    def _remove_pool(self, core: Core) -> Job:
        name = self.rng.choice(self.world.known_pools).name
        return Job(f"remove {name}", lambda: self._calls.answered(lambda: pool_release.remove(core, OPERATOR, name)))

    def _restore_pool(self, core: Core) -> Job | None:
        gone = self._removed_pools()
        if not gone:
            return None
        fresh = self.rng.choice(gone).with_(created_at=self.world.clock.now())
        return Job(
            f"register {fresh.name}", lambda: self._calls.answered(lambda: pools.register(core, OPERATOR, fresh))
        )

    def _removed_pools(self) -> list[Pool]:
        return [pool for pool in self.world.known_pools if pool.key() not in self.world.monitor.rows]

    # Faults off.

    def _heal(self) -> None:
        self._tell("the faults end")
        self.world.weather.calm = True
        self.world.conductor.finish_all()
        self.world.pools.unbuildable.clear()
        for backend in self.world.backends:
            backend.heal()
        for pool in self._removed_pools():
            pools.register(self.world.core, OPERATOR, pool)
        for pool in self.world.known_pools:
            pools.set_state(self.world.core, OPERATOR, pool.name, PoolState.ACTIVE)

    def _come_to_rest(self, what: str, left: Callable[[Installation], list[str]], seconds: float) -> None:
        for _ in range(SWEEPS_MAX):
            self._round(seconds)
            if not left(self.world):
                return
        raise Violation(f"I4: {what}, after {SWEEPS_MAX} sweeps: {'; '.join(left(self.world)[:10])}")

    def _round(self, seconds: float) -> None:
        """A probe, a sweep and every message, the messages in any order."""
        self.world.conductor.pass_time(seconds)
        core = self.rng.choice(self.world.cores)
        pools.probe_all(core)
        sweep.sweep(core)
        if self._has_reconciler:
            reconcile.reconcile_all(core)
        bag = self.world.nudges.bag
        for _ in range(DELIVERIES_MAX):
            if not bag:
                return
            message = bag.pop(self.rng.randrange(len(bag)))
            self._tell(_named(message))
            deliver(core, message)
            self.world.clock.advance(0.01)
        raise Violation("I4: messages never end")

    def _delete_half(self) -> None:
        """The other half ends by its time to live."""
        for client in self.world.clients:
            for identity in client.sandboxes[::2]:
                sandboxes.delete(self.world.core, client.caller, identity)

    def _delete_half_of_the_snapshots(self) -> None:
        """The other half ends by its retention."""
        for client in self.world.clients:
            for identity in client.snapshots[::2]:
                with suppress(NotFound):
                    snapshots.delete(self.world.core, client.caller, identity)

    def _create_at_once(self) -> None:
        """In an empty world with room, one who does not want to wait need not."""
        names = tuple(pool.name for pool in self.world.known_pools)
        self.world.set_policy(GLOBAL, PolicyRules(external=External.ALLOWED, external_pools=names))
        for client in self._open_clients():
            caller = client.caller
            assert caller.org is not None
            for project in (None, caller.project):
                tenants.set_quota(self.world.core, OPERATOR, caller.org, project, Limits())
            self._round(10.0)
            created = create(self.world.core, caller, CreateSandbox(queue_timeout_seconds=0))
            sandboxes.delete(self.world.core, caller, created.sandbox)
            self._round(10.0)

    def _open_clients(self) -> list[Client]:
        return self.world.clients

    # The story.

    def _tell(self, line: str) -> None:
        told = f"{self.step:>6} {self.world.clock.monotonic() if self.step else 0.0:>11.3f} {line}"
        self._events.append(told)
        self._hash.update(told.encode() + b"\n")

    def digest(self) -> str:
        """Equal for equal stories: whatever happened, in which order, to which sandbox."""
        return self._hash.hexdigest()

    def story(self, violation: BaseException) -> str:
        lines = "\n".join(self._events)
        again = f"python -m tests.simulation --seeds {self.seed} --steps {self.step}"
        what = f"{type(violation).__name__} {violation}"
        return f"seed {self.seed}, step {self.step}: {what}\n{lines}\nRepeat it with: {again}"


def _in_background(run: Callable[[], object]) -> None:
    """A part that acts by itself raises only for faults of the store."""
    with suppress(StoreThrottled, StoreUnavailable):
        run()


def _named(message: Message) -> str:
    match message:
        case Step(sandbox):
            return f"step {sandbox[-6:]}"
        case Settle(sandbox, attempt):
            return f"settle {sandbox[-6:]} attempt {attempt}"
        case LookAtPort(sandbox, port):
            return f"look at port {port} of {sandbox[-6:]}"
        case StepSnapshot(snapshot):
            return f"step snapshot {snapshot[-6:]}"
        case Dispatch():
            return "dispatch"
        case Close(tenant):
            return f"close {tenant[-6:]}"
