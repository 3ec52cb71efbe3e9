"""One run: a drawn world, a drawn schedule with faults, then healing, and at last everything must have ended well."""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from differently_adapters.providers.fake import FakeInstance
from differently_adapters.providers.fake.backend import FEATURES
from differently_core.contract import Adapter, Capabilities, CommandResult, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.exec import ExecRequest
from differently_core.model.pool import (
    CostModel,
    External,
    Policy,
    PolicyRules,
    Pool,
    PoolState,
    PoolView,
    Template,
    Trust,
)  # fmt: skip
from differently_core.model.queue import QueueRow
from differently_core.model.quota import Counter, Limits, Scope
from differently_core.model.record import Key, Record
from differently_core.model.resources import DIMENSIONS, Size
from differently_core.model.sandbox import ENDED, Sandbox, Status
from differently_core.model.tenancy import KeyScope
from differently_core.operations import pools, sandboxes, sweep, tenants
from differently_core.operations.catalog import GLOBAL, Catalog
from differently_core.operations.core import Caller, Core
from differently_core.operations.create import create
from differently_core.operations.requests import CreateSandbox
from differently_core.policy.placement import Candidate, Rules, Wish, place
from differently_core.runtime.ids import SeededIds
from differently_core.store.ports import Put, StoreThrottled, StoreUnavailable
from tests.support.world import OPERATOR, Dispatch, Message, Settle, Step, deliver

from .clients import Calls, Client, Job, drawn_limits
from .monitor import Monitor, must
from .processes import Conductor, SharedClock, Violation
from .seams import SimAdapter, SimBackend, SimNudges, SimStore
from .weather import Weather

PROCESSES_MAX = 5
COMPUTERS = 3
"""Processes share what their computer has cached, as warm functions do."""
SWEEPS_MAX = 40
"""So many sweeps, a minute apart, may everything take to come right after the last fault."""
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


def run(seed: int, steps: int) -> Result:
    """Run one seed; raises `Failed` with the seed, the step, the invariant and the last events."""
    logging.getLogger("differently_core").setLevel(logging.CRITICAL + 1)
    simulation = Simulation(seed)
    try:
        simulation.run(steps)
    except (Violation, Exception) as violation:
        raise Failed(simulation.story(violation)) from violation
    finally:
        simulation.conductor.close()
    return Result(seed, steps, simulation.digest(), dict(sorted(simulation.tally.items())))


class SimPools:
    """`Backends` over the drawn pools."""

    def __init__(self, adapters: Mapping[str, SimAdapter]) -> None:
        self._adapters = adapters

    def adapter(self, pool: Pool) -> Adapter:
        if pool.name not in self._adapters:
            raise ProviderUnavailable(f"Pool {pool.name} has no backend.", settled=True)
        return self._adapters[pool.name]


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.step = 0
        self.rng = random.Random(seed)
        self.tally: Tally[str] = Tally()
        self.clock = SharedClock()
        self.conductor = Conductor(self.clock)
        self.weather = Weather(self.rng, self.tally)
        self.conductor.note = self.weather.note
        self.store = SimStore(self.conductor, self.weather)
        self.monitor = Monitor(self.store.memory, self.clock, self.tally)
        self.store.watcher = self.monitor
        self.monitor.process = lambda: self.conductor.current
        self.monitor.tell = self._tell
        self.nudges = SimNudges(self.weather)
        self.backends: list[SimBackend] = []
        self.adapters: dict[str, SimAdapter] = {}
        self.pools: list[Pool] = []
        ids = SeededIds(self.clock, seed)
        self.cores = [
            Core(
                store=self.store, clock=self.clock, ids=ids, nudges=self.nudges,
                catalog=Catalog(self.store, self.clock), backends=SimPools(self.adapters), worker_name=f"worker{number}",
            )
            for number in range(COMPUTERS)
        ]  # fmt: skip
        self.core = self.cores[0]
        self.roominess = self.rng.choice((1, 1, 4, 10))
        """Worlds are tight, so that queues form, or roomy, so that much happens."""
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._hash = hashlib.sha256()
        self._build()

    # The world.

    def _build(self) -> None:
        installation = tenants.bootstrap(self.core)
        self.monitor.ours = installation.id
        self._add_backends()
        for number in range(self.rng.randint(1, 4)):
            self._add_pool(f"pool{number}", installation.id)
        self._add_templates()
        self.clients = [client for _ in range(self.rng.randint(1, 4)) for client in self._add_org()]
        self.calls = Calls(self.rng, self.clients, [pool.name for pool in self.pools], self.roominess, self.monitor, self.tally)
        self._set_policy(GLOBAL, self._drawn_rules())
        self._jobs = self._drawn_jobs()
        self.clock.advance(1.0)

    def _add_backends(self) -> None:
        for number in range(self.rng.randint(1, 3)):
            room = self.rng.choice((None, None, Size.unlimited().model_copy(update={"sandboxes": self.rng.randint(2, 8)})))
            backend = SimBackend(
                self.clock, idempotent_create=self.rng.random() < 0.5, settles_seconds=self.rng.choice((5.0, 30.0, 60.0)),
                room=room, pending_seconds=self.rng.choice((0.0, 0.0, 3.0, 30.0)), exec_function=whoami,
            )  # fmt: skip
            backend.name = f"backend{number}"
            backend.create_seconds = self.rng.choice((15.0, 60.0, 300.0))
            backend.watcher = self.monitor
            backend.plan = lambda call, backend=backend: self.weather.plan(backend, call)
            features = FEATURES | ({"gpu"} if self.rng.random() < 0.5 else set())
            backend.capabilities = Capabilities(frozenset(features), max_cpu_millis=self.rng.choice((0, 0, 2000)))
            backend.plant(Owner("inst_another", "sbx_theirs"))
            self.backends.append(backend)

    def _add_pool(self, name: str, installation: str) -> None:
        backend = self.rng.choice(self.backends)
        self.adapters[name] = SimAdapter(name, installation, backend, self.conductor, self.weather)
        pool = Pool(
            name=name, adapter="fake", trust=self.rng.choice((Trust.PRIVATE, Trust.PRIVATE, Trust.EXTERNAL)[: 3 if self.pools else 2]),
            max_concurrency=self.rng.choice((1, 2, 3, 5)) * self.roominess, cost_model=CostModel(cpu_hour=self.rng.choice((0.0, 1.0))),
            created_at=self.clock.now(),
        )  # fmt: skip
        self.pools.append(pool)
        pools.register(self.core, OPERATOR, pool)

    def _add_templates(self) -> None:
        somewhere = self.rng.choice(self.pools).name
        for name, images in (("picky", {somewhere: "image"}), ("nowhere", {"no-such-pool": "image"})):
            template = Template(name=name, images=images, created_at=self.clock.now())
            self.store.transact([Put(template, (), "template")])

    def _add_org(self) -> list[Client]:
        org = tenants.create_org(self.core, OPERATOR, "org", drawn_limits(self.rng, self.roominess), weight=self.rng.randint(1, 3))
        clients = []
        for _ in range(self.rng.randint(1, 2)):
            project = tenants.create_project(self.core, OPERATOR, org.id, "project", drawn_limits(self.rng, self.roominess))
            caller = Caller(f"key_{project.id}", "req", KeyScope.TENANT, org.id, project.id)
            clients.append(Client(caller))
        if len(self.pools) > 1 and self.rng.random() < 0.3:
            refused = self.rng.choice(self.pools).name
            names = tuple(pool.name for pool in self.pools)
            rules = PolicyRules(external=External.ALLOWED, external_pools=names, denied_pools=(refused,))
            self.monitor.denied[org.id] = refused
            self._set_policy(org.id, rules)
        return clients

    def _drawn_rules(self) -> PolicyRules:
        outside = [pool.name for pool in self.pools if pool.trust is Trust.EXTERNAL]
        named = self.rng.sample(outside, self.rng.randint(0, len(outside)))
        return PolicyRules(external=self.rng.choice((External.NEVER, External.ALLOWED, External.ALLOWED)), external_pools=tuple(named))

    def _set_policy(self, scope: str, rules: PolicyRules) -> None:
        if scope == GLOBAL:
            self.monitor.policies.append((self.clock.monotonic(), rules))
        self.store.transact([Put(Policy(scope=scope, rules=rules), (), "policy")])

    # The schedule.

    def _drawn_jobs(self) -> tuple[list[Callable[[Core], Job | None]], list[int]]:
        """What happens, with how much weight; the weights of one seed stress other things than those of the next."""
        weights: dict[Callable[[Core], Job | None], tuple[int, ...]] = {
            self.calls.create: (8, 16), self.calls.update: (2, 6), self.calls.delete: (2, 8),
            self.calls.get: (1,), self.calls.listing: (1,), self.calls.execute: (1, 5),
            self.calls.quota: (0, 1), self.calls.drain: (0, 1),
            self._deliver: (60, 120), self._sweep: (3, 8), self._probe: (4, 8), self._lets_time_pass: (4, 12),
            self._change_policy: (0, 1), self._break: (0, 1), self._mend: (4,), self._vanish: (0, 1),
        }  # fmt: skip
        return list(weights), [self.rng.choice(options) for options in weights.values()]

    def run(self, steps: int) -> None:
        """Faults on, then off; after the last fault everything must come right by itself."""
        for self.step in range(1, steps + 1):
            self._take_step()
            if self.step % CHECK_EVERYTHING_EVERY == 0:
                self.monitor.check_everything()
        self._heal()
        self._come_to_rest("all that waits and fits runs", self._unrest)
        self._delete_half()
        self._come_to_rest("everything ends", self._remains, seconds=8 * 24 * 3600 / SWEEPS_MAX)
        self._create_at_once()
        self.monitor.check_everything()

    def _take_step(self) -> None:
        self.clock.advance(self.rng.uniform(0.001, 0.02))
        parked = self.conductor.parked
        if parked and (len(parked) >= PROCESSES_MAX or self.rng.random() < 0.5):
            process = self.rng.choice(parked)
            if self.rng.random() < 0.01:
                self._tell(f"{process} dies")
                self.weather.note("crash_of_frozen")
                self.conductor.kill(process)
                return
            self._tell(f"{process} goes on")
            self.conductor.resume(process)
            return
        kinds, weights = self._jobs
        job = self.rng.choices(kinds, weights)[0](self.rng.choice(self.cores))
        if job is not None:
            self._start(job)

    def _start(self, job: Job) -> None:
        self._tell(job.name)
        self.tally[f"step {job.name.split()[0]}"] += 1
        process = self.conductor.start(job.name.split()[0], job.run)
        if process in self.conductor.parked:
            self._tell(f"  is {process} and pauses")

    def _deliver(self, core: Core) -> Job | None:
        bag = self.nudges.bag
        if not bag:
            return None
        index = self.rng.randrange(len(bag))
        message = bag[index]
        if not self.weather.strike("message_doubled"):
            bag.pop(index)
        return Job(_named(message), lambda: _background(lambda: deliver(core, message)))

    def _sweep(self, core: Core) -> Job:
        return Job("sweep", lambda: _background(lambda: sweep.sweep(core)))

    def _probe(self, core: Core) -> Job:
        return Job("probe", lambda: _background(lambda: pools.probe_all(core)))

    def _lets_time_pass(self, core: Core) -> None:
        jump = self.rng.choices((0.5, 2.0, 5.0, 10.0, 30.0, 65.0, 200.0, 900.0, 3600.0), (8, 8, 8, 6, 4, 3, 1, 1, 1))[0]
        self._tell(f"{jump} s pass")
        if jump >= 900.0:
            self.weather.note("clock_jump")
        if self.rng.random() < 0.02:
            self.weather.note("clock_set_back")
            self.clock.shift(-self.rng.choice((0.5, 3.0)))
        self.conductor.pass_time(jump)

    def _change_policy(self, core: Core) -> None:
        self._tell("the policy changes")
        self._set_policy(GLOBAL, self._drawn_rules())

    def _break(self, core: Core) -> None:
        backend = self.rng.choice(self.backends)
        if backend.up:
            backend.up = False
            self._tell(f"{backend.name} goes down")
            self.weather.note("pool_down")

    def _mend(self, core: Core) -> None:
        backend = self.rng.choice(self.backends)
        if not backend.up and self.rng.random() < 0.5:
            backend.up = True
            self._tell(f"{backend.name} is up")

    def _vanish(self, core: Core) -> None:
        ours = [
            (backend, instance)
            for backend in self.backends
            for instance in backend.instances()
            if instance.owner.installation == self.monitor.ours
        ]
        if ours:
            backend, instance = self.rng.choice(ours)
            self._tell(f"{instance.ref} vanishes")
            self.weather.note("instance_vanished")
            backend.vanish(instance.ref)

    # After the faults.

    def _heal(self) -> None:
        self._tell("the faults end")
        self.weather.calm = True
        self.conductor.finish_all()
        for backend in self.backends:
            backend.heal()
        for pool in self.pools:
            pools.set_state(self.core, OPERATOR, pool.name, PoolState.ACTIVE)

    def _come_to_rest(self, what: str, left: Callable[[], list[str]], seconds: float = 60.0) -> None:
        for _ in range(SWEEPS_MAX):
            self._round(seconds)
            if not left():
                return
        raise Violation(f"I4: {what}, after {SWEEPS_MAX} sweeps: {'; '.join(left()[:10])}")

    def _round(self, seconds: float) -> None:
        """A sweep, a probe and every message, the messages in any order."""
        self.conductor.pass_time(seconds)
        core = self.rng.choice(self.cores)
        pools.probe_all(core)
        sweep.sweep(core)
        for _ in range(10_000):
            if not self.nudges.bag:
                return
            message = self.nudges.bag.pop(self.rng.randrange(len(self.nudges.bag)))
            self._tell(_named(message))
            deliver(core, message)
            self.clock.advance(0.01)
        raise Violation("I4: messages never end")

    def _unrest(self) -> list[str]:
        """What should have come right by now, although sandboxes still run."""
        found: list[str] = []
        for row in self.monitor.rows.values():
            if isinstance(row, Sandbox) and row.status in (Status.PROVISIONING, Status.TERMINATING):
                found.append(f"{row.id} is still {row.status}")
            elif isinstance(row, Attempt) and row.status in (AttemptState.CALLING, AttemptState.DEBT):
                found.append(f"attempt {row.number} of {row.sandbox} is still {row.status}")
            elif isinstance(row, Sandbox) and row.status is Status.QUEUED and self._fits(row):
                found.append(f"{row.id} waits, and {self._fits(row)} has room")
        return found

    def _fits(self, sandbox: Sandbox) -> str | None:
        tenant = (self._counter(Scope.ORG, sandbox.org), self._counter(Scope.PROJECT, sandbox.project))
        if not all(sandbox.size.fits_in(counter.free) for counter in tenant):
            return None
        policies = [self._row(Policy.key_of(scope)) for scope in (GLOBAL, sandbox.org, sandbox.project)]
        rules = Rules([policy.rules for policy in policies if isinstance(policy, Policy)])
        template = self._row(Template.key_of(sandbox.template))
        candidates = []
        for pool in self.pools:
            view = self._row(PoolView.key_of(pool.name))
            assert isinstance(view, PoolView)
            candidates.append(Candidate(pool, view, self._counter(Scope.POOL, pool.name).free))
        wish = Wish(sandbox.id, sandbox.size, sandbox.template, sandbox.capabilities, sandbox.allowed_pools)
        return place(wish, candidates, rules, template if isinstance(template, Template) else None).chosen

    def _delete_half(self) -> None:
        for client in self.clients:
            for identity in client.sandboxes[::2]:
                sandboxes.delete(self.core, client.caller, identity)

    def _remains(self) -> list[str]:
        """What must be gone when everything has ended."""
        found = [
            f"{row.id} is {row.status}"
            for row in self.monitor.rows.values()
            if isinstance(row, Sandbox) and row.status not in ENDED
        ]
        for row in self.monitor.rows.values():
            if isinstance(row, Attempt) and row.status is not AttemptState.SETTLED:
                found.append(f"attempt {row.number} of {row.sandbox} is {row.status}")
            elif isinstance(row, QueueRow):
                found.append(f"{row.sandbox} is in the queue")
            elif isinstance(row, Counter) and any(getattr(row.held, name) for name in DIMENSIONS):
                found.append(f"{row.scope} {row.name} counts {row.held} as held")
        for backend in self.backends:
            found += [
                f"{instance.ref} of {instance.owner.sandbox} is left on {backend.name}"
                for instance in backend.instances()
                if instance.owner.installation == self.monitor.ours
            ]
            foreign = [instance for instance in backend.instances() if instance.owner.installation == "inst_another"]
            must(len(foreign) == 1, "I2", f"another installation's instance is gone from {backend.name}")
        return found

    def _create_at_once(self) -> None:
        """In an empty world with room, one who does not want to wait need not."""
        for client in self.clients:
            caller = client.caller
            assert caller.org is not None
            for project in (None, caller.project):
                tenants.set_quota(self.core, OPERATOR, caller.org, project, Limits())
            self._set_policy(GLOBAL, PolicyRules(external=External.ALLOWED, external_pools=tuple(self.adapters)))
            self._round(10.0)
            created = create(self.core, caller, CreateSandbox(queue_timeout_seconds=0))
            sandboxes.delete(self.core, caller, created.sandbox)
            self._round(10.0)

    # What is.

    def _row(self, key: Key) -> Record | None:
        return self.monitor.rows.get(key)

    def _counter(self, scope: Scope, name: str) -> Counter:
        found = self._row(Counter.key_of(scope, name))
        assert isinstance(found, Counter)
        return found

    # The story.

    def _tell(self, line: str) -> None:
        told = f"{self.step:>6} {self.clock.monotonic():>11.3f} {line}"
        self._events.append(told)
        self._hash.update(told.encode() + b"\n")

    def digest(self) -> str:
        return self._hash.hexdigest()

    def story(self, violation: BaseException) -> str:
        lines = "\n".join(self._events)
        again = f"python -m tests.simulation --seeds {self.seed} --steps {self.step}"
        return f"seed {self.seed}, step {self.step}: {type(violation).__name__} {violation}\n{lines}\nRepeat it with: {again}"


def whoami(instance: FakeInstance, request: ExecRequest) -> CommandResult:
    return CommandResult(0, f"{instance.owner.sandbox} {instance.ref}".encode(), b"", 0)


def _background(run: Callable[[], object]) -> None:
    """A part that acts by itself raises only for faults of the store."""
    try:
        run()
    except (StoreThrottled, StoreUnavailable):
        pass


def _named(message: Message) -> str:
    match message:
        case Step(sandbox):
            return f"step {sandbox[-6:]}"
        case Settle(sandbox, attempt):
            return f"settle {sandbox[-6:]} attempt {attempt}"
        case Dispatch():
            return "dispatch"

