"""A drawn installation: pools over fake backends, organizations with their limits, and computers to run on."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from functools import partial

from differently_adapters.providers.fake import FakeInstance
from differently_adapters.providers.fake.backend import FEATURES
from differently_core.contract import Adapter, Capabilities, CommandResult, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.exec import ExecRequest
from differently_core.model.policy import GLOBAL, External, Policy, PolicyRules
from differently_core.model.pool import CostModel, Pool, Template, Trust
from differently_core.model.resources import Size
from differently_core.model.tenancy import KeyScope
from differently_core.operations import pools, tenants
from differently_core.operations.catalog import Catalog
from differently_core.operations.core import Caller, Core
from differently_core.runtime.ids import SeededIds
from differently_core.store.ports import Put
from tests.support.world import OPERATOR

from .clients import Client, drawn_limits
from .monitor import Monitor
from .processes import Conductor, SharedClock
from .seams import SimAdapter, SimBackend, SimNudges, SimStore
from .weather import Weather

COMPUTERS = 3
"""Processes share what their computer has cached, as warm functions do."""
ANOTHER = "inst_another"
"""An installation that uses the same backends."""


class Installation:
    """The production code over the ports of the simulation, and everything that a seed draws for it."""

    def __init__(self, seed: int, rng: random.Random, tally: Tally[str], tell: Callable[[str], None]) -> None:
        self.rng = rng
        self.places = random.Random(f"places {seed}")
        """Drawn apart, so that what else a seed means stays as it was."""
        self.clock = SharedClock()
        self.conductor = Conductor(self.clock)
        self.weather = Weather(rng, tally)
        self.conductor.note = self.weather.note
        self.store = SimStore(self.conductor, self.weather)
        self.monitor = Monitor(self.store.memory, self.clock, tally)
        self.store.watcher = self.monitor
        self.monitor.process = lambda: self.conductor.current
        self.monitor.tell = tell
        self.nudges = SimNudges(self.weather)
        self.backends: list[SimBackend] = []
        self.pools = SimPools()
        self.known_pools: list[Pool] = []
        """Every pool that there ever was; one that was removed can come back."""
        ids = SeededIds(self.clock, seed)
        self.cores = [
            Core(
                store=self.store,
                clock=self.clock,
                ids=ids,
                nudges=self.nudges,
                catalog=Catalog(self.store, self.clock),
                backends=self.pools,
                worker_name=f"worker{number}",
            )
            for number in range(COMPUTERS)
        ]
        self.core = self.cores[0]
        self.roominess = rng.choice((1, 1, 4, 10))
        """Worlds are tight, so that queues form, or roomy, so that much happens."""
        self.monitor.ours = tenants.bootstrap(self.core).id
        self._add_backends()
        for number in range(rng.randint(1, 4)):
            self._add_pool(f"pool{number}")
        self._add_templates()
        self.clients = [client for _ in range(rng.randint(1, 4)) for client in self._add_org()]
        self.set_policy(GLOBAL, self.drawn_rules())
        self.clock.advance(1.0)

    def set_policy(self, scope: str, rules: PolicyRules) -> None:
        if scope == GLOBAL:
            self.monitor.policies.append((self.clock.monotonic(), rules))
        self.store.transact([Put(Policy(scope=scope, rules=rules), (), "policy")])

    def drawn_rules(self) -> PolicyRules:
        outside = [pool.name for pool in self.known_pools if pool.trust is Trust.EXTERNAL]
        named = self.rng.sample(outside, self.rng.randint(0, len(outside)))
        external = self.rng.choice((External.NEVER, External.ALLOWED, External.ALLOWED))
        return PolicyRules(external=external, external_pools=tuple(named))

    def _add_backends(self) -> None:
        rng = self.rng
        for number in range(rng.choice((1, 1, 2, 3))):
            bounded = Size.unlimited().model_copy(update={"sandboxes": rng.randint(2, 8)})
            backend = SimBackend(
                self.clock,
                idempotent_create=rng.random() < 0.5,
                settles_seconds=rng.choice((5.0, 30.0, 60.0)),
                room=rng.choice((None, None, bounded)),
                pending_seconds=rng.choice((0.0, 0.0, 3.0, 30.0)),
                exec_function=whoami,
                name=f"backend{number}",
            )
            backend.move_seconds = rng.choice((0.0, 0.0, 20.0, 150.0))
            backend.resume_restores = rng.random() < 0.5
            backend.keeps_egress = rng.random() < 0.3
            backend.create_seconds = rng.choice((15.0, 60.0, 300.0))
            backend.watcher = self.monitor
            backend.plan = partial(self.weather.plan, backend)
            features = FEATURES | ({"gpu"} if rng.random() < 0.5 else set())
            backend.capabilities = Capabilities(
                frozenset(features), max_cpu_millis=rng.choice((0, 0, 2000)), lease_seconds=rng.choice((0, 120, 600)),
                max_lifetime_seconds=rng.choice((0, 0, 7200)),
            )  # fmt: skip
            backend.plant(Owner(ANOTHER, "sbx_theirs"))
            self.backends.append(backend)
        self.monitor.backends = self.backends
        self.monitor.backend_of = lambda pool: self.pools.adapters[pool].sim_backend

    def _add_pool(self, name: str) -> None:
        """The first pool is private, so that no policy stops everything; two pools may lead to one backend."""
        rng = self.rng
        backend = rng.choice(self.backends)
        self.pools.adapters[name] = SimAdapter(name, self.monitor.ours, backend, self.conductor, self.weather)
        trust = rng.choice((Trust.PRIVATE, Trust.PRIVATE, Trust.EXTERNAL)) if self.known_pools else Trust.PRIVATE
        pool = Pool(
            name=name,
            adapter="fake",
            trust=trust,
            max_concurrency=rng.choice((1, 2, 3, 5)) * self.roominess,
            max_retained=self.places.choice((None, None, 1, 3)),
            cost_model=CostModel(
                cpu_hour=rng.choice((0.0, 1.0)), kept_hour=0.01 if len(self.known_pools) % 2 else None
            ),
            created_at=self.clock.now(),
        )
        self.known_pools.append(pool)
        pools.register(self.core, OPERATOR, pool)

    def _add_templates(self) -> None:
        somewhere = self.rng.choice(self.known_pools).name
        for name, images in (("picky", {somewhere: "image"}), ("nowhere", {"no-such-pool": "image"})):
            template = Template(name=name, images=images, created_at=self.clock.now())
            self.store.transact([Put(template, (), "template")])

    def _add_org(self) -> list[Client]:
        rng = self.rng
        limits = drawn_limits(rng, self.roominess)
        org = tenants.create_org(self.core, OPERATOR, "org", limits, weight=rng.randint(1, 3))
        clients = []
        for _ in range(rng.randint(1, 2)):
            limits = drawn_limits(rng, self.roominess)
            project = tenants.create_project(self.core, OPERATOR, org.id, "project", limits)
            clients.append(Client(Caller(f"key_{project.id}", "req", KeyScope.TENANT, org.id, project.id)))
        if len(self.known_pools) > 1 and rng.random() < 0.3:
            denied = rng.choice(self.known_pools).name
            names = tuple(pool.name for pool in self.known_pools)
            self.monitor.denied[org.id] = denied
            rules = PolicyRules(external=External.ALLOWED, external_pools=names, denied_pools=(denied,))
            self.set_policy(org.id, rules)
        return clients


class SimPools:
    """`Backends` over the drawn pools; a pool that is `unbuildable` cannot be reached at all, say for a credential."""

    def __init__(self) -> None:
        self.adapters: dict[str, SimAdapter] = {}
        self.unbuildable: set[str] = set()

    def adapter(self, pool: Pool) -> Adapter:
        if pool.name in self.unbuildable:
            raise ProviderUnavailable(f"The credential of pool {pool.name} cannot be read.", settled=True)
        return self.adapters[pool.name]

    def fingerprint(self, pool: Pool) -> str:
        return pool.name

    def trial(self, pool: Pool, credential: Mapping[str, str] | None = None) -> Adapter:
        return self.adapter(pool)


def whoami(instance: FakeInstance, request: ExecRequest) -> CommandResult:
    return CommandResult(0, f"{instance.owner.sandbox} {instance.ref}".encode(), b"", 0)
