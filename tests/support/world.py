"""A whole installation in memory: the production operations over `MemoryStore`, fake backends and a virtual clock.

Messages are kept until a test delivers them, so that a test decides what is lost, late or doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from differently_adapters.providers.fake import FakeAdapter, FakeBackend
from differently_core.contract import Adapter
from differently_core.errors import ProviderUnavailable
from differently_core.model.attempt import Attempt
from differently_core.model.policy import External, Policy, PolicyRules
from differently_core.model.pool import CostModel, Pool, Trust
from differently_core.model.quota import Counter, Limits, Scope
from differently_core.model.record import Record
from differently_core.model.sandbox import Sandbox, Status
from differently_core.model.tenancy import KeyScope, Org, Project
from differently_core.operations import capturing, cleanup, closing, pools, ports, sandboxes, sweep, tenants, worker
from differently_core.operations.catalog import Catalog
from differently_core.operations.core import Caller, Core, Tuning
from differently_core.operations.create import Created, create
from differently_core.operations.dispatch import dispatch
from differently_core.operations.requests import CreateSandbox
from differently_core.runtime.clock import VirtualClock
from differently_core.runtime.ids import SandboxId, SeededIds, SnapshotId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Put, Store

Rec = TypeVar("Rec", bound=Record)
OPERATOR = Caller("key_operator", "req_operator", KeyScope.OPERATOR)
DELIVERIES_MAX = 10_000
"""A world that sends itself messages for ever is a bug, not a reason to wait."""


@dataclass(frozen=True)
class Step:
    """Step this sandbox."""

    sandbox: SandboxId


@dataclass(frozen=True)
class Settle:
    """Settle this attempt's debt."""

    sandbox: SandboxId
    attempt: int


@dataclass(frozen=True)
class Dispatch:
    """Look at the queue."""


@dataclass(frozen=True)
class LookAtPort:
    """Take this port back, if it is not wanted any more."""

    sandbox: SandboxId
    port: int


@dataclass(frozen=True)
class StepSnapshot:
    """Do what is due for this snapshot."""

    snapshot: SnapshotId


@dataclass(frozen=True)
class Close:
    """Go on removing what this organization or project holds."""

    tenant: str


Message = Step | Settle | LookAtPort | StepSnapshot | Dispatch | Close


@dataclass
class Bag:
    """The messages that were sent and not delivered."""

    messages: list[Message] = field(default_factory=list)

    def worker(self, sandbox: str) -> None:
        self.messages.append(Step(SandboxId(sandbox)))

    def cleanup(self, sandbox: str, attempt: int) -> None:
        self.messages.append(Settle(SandboxId(sandbox), attempt))

    def snapshot(self, snapshot: str) -> None:
        self.messages.append(StepSnapshot(SnapshotId(snapshot)))

    def port(self, sandbox: str, port: int) -> None:
        self.messages.append(LookAtPort(SandboxId(sandbox), port))

    def dispatch(self) -> None:
        self.messages.append(Dispatch())

    def closing(self, tenant: str) -> None:
        """Lost: a test of closing makes its steps itself."""

    def deliver(self, webhook: str) -> None:
        """Lost: a test of webhooks serves their lanes itself."""

    def reconcile(self, pool: str) -> None:
        """Lost: a test of passes makes them itself."""


def deliver(core: Core, message: Message) -> None:
    match message:
        case Step(sandbox):
            worker.step(core, sandbox)
        case Settle(sandbox, attempt):
            cleanup.settle(core, sandbox, attempt)
        case LookAtPort(sandbox, port):
            ports.step(core, sandbox, port)
        case StepSnapshot(snapshot):
            capturing.step(core, snapshot)
        case Dispatch():
            dispatch(core)
        case Close(tenant):
            closing.step(core, tenant)


class FakePools:
    """`Backends` over fakes: which backend a pool leads to is said when it is added, and two may lead to one."""

    def __init__(self, installation: Callable[[], str]) -> None:
        self._installation = installation
        self._backends: dict[str, FakeBackend] = {}
        self._adapters: dict[str, Adapter] = {}

    def lead(self, pool: str, backend: FakeBackend) -> None:
        self._backends[pool] = backend
        self._adapters.pop(pool, None)

    def serve(self, pool: str, adapter: Adapter) -> None:
        """Use this adapter for the pool, whatever it leads to."""
        self._adapters[pool] = adapter

    def backend(self, pool: str) -> FakeBackend:
        return self._backends[pool]

    def fingerprint(self, pool: Pool) -> str:
        return self._backends[pool.name].name

    def trial(self, pool: Pool, credential: Mapping[str, str] | None = None) -> Adapter:
        if pool.name not in self._backends:
            raise ProviderUnavailable(f"Pool {pool.name} has no backend.", settled=True)
        return FakeAdapter.over(
            self._backends[pool.name], pool=pool.name, installation=self._installation(), credential=credential
        )

    def adapter(self, pool: Pool) -> Adapter:
        if pool.name not in self._backends:
            raise ProviderUnavailable(f"Pool {pool.name} has no backend.", settled=True)
        if pool.name not in self._adapters:
            self._adapters[pool.name] = FakeAdapter.over(
                self._backends[pool.name], pool=pool.name, installation=self._installation()
            )
        return self._adapters[pool.name]


class World:
    """One organization with one project and one pool, unless a test asks for more."""

    def __init__(
        self, *, wrap: Callable[[MemoryStore], Store] | None = None, seed: int = 1, tuning: Tuning | None = None
    ) -> None:
        """`wrap` puts something between the operations and the store."""
        self.clock = VirtualClock()
        self.memory = MemoryStore()
        self.bag = Bag()
        used = self.memory if wrap is None else wrap(self.memory)
        catalog = Catalog(used, self.clock, seconds=0.0)
        self.pools = FakePools(lambda: catalog.installation().id)
        self.core = Core(
            store=used, clock=self.clock, ids=SeededIds(self.clock, seed), nudges=self.bag, catalog=catalog,
            backends=self.pools, tuning=tuning or Tuning(),
        )  # fmt: skip
        tenants.bootstrap(self.core)
        self.org, self.project = self.add_tenant()
        self.caller = self.tenant(self.org, self.project)

    # Who and where.

    def add_tenant(self, *, org: Limits | None = None, project: Limits | None = None) -> tuple[Org, Project]:
        made = tenants.create_org(self.core, OPERATOR, "org", org)
        return made, tenants.create_project(self.core, OPERATOR, made.id, "project", project)

    def tenant(self, org: Org, project: Project) -> Caller:
        return Caller(f"key_{project.id}", "req_tenant", KeyScope.TENANT, org.id, project.id)

    def add_pool(
        self, name: str = "pool", backend: FakeBackend | None = None, *, concurrency: int = 10,
        trust: Trust = Trust.PRIVATE, cpu_hour: float = 0.0,
    ) -> FakeBackend:  # fmt: skip
        """Of equal pools the cheaper one is chosen: `cpu_hour` says which."""
        used = backend or FakeBackend(self.clock)
        self.pools.lead(name, used)
        pool = Pool(
            name=name, adapter="fake", trust=trust, max_concurrency=concurrency,
            cost_model=CostModel(cpu_hour=cpu_hour), created_at=self.clock.now(),
        )  # fmt: skip
        pools.register(self.core, OPERATOR, pool)
        return used

    def allow_external(self, *names: str) -> None:
        rules = PolicyRules(external=External.ALLOWED, external_pools=names)
        self.core.store.transact([Put(Policy(scope="global", rules=rules), (), "policy")])

    # What happens.

    def create(self, key: str | None = None, /, **request: Any) -> SandboxId:
        return self.created(key, **request).sandbox

    def created(self, key: str | None = None, /, **request: Any) -> Created:
        return create(self.core, self.caller, CreateSandbox.model_validate(request), key)

    def delete(self, sandbox: SandboxId) -> None:
        sandboxes.delete(self.core, self.caller, sandbox)

    def deliver_all(self) -> None:
        """Every message, in order, those that deliveries send too."""
        for _ in range(DELIVERIES_MAX):
            if not self.bag.messages:
                return
            deliver(self.core, self.bag.messages.pop(0))
        raise AssertionError("the world never comes to rest")

    def lose_messages(self) -> None:
        self.bag.messages.clear()

    def pass_time(self, seconds: float) -> None:
        """Move the clock, find what is due, do it."""
        self.clock.advance(seconds)
        sweep.sweep(self.core)
        self.deliver_all()

    # What is.

    def sandbox(self, sandbox: SandboxId) -> Sandbox:
        found = self.memory.get(Sandbox, Sandbox.key_of(sandbox))
        assert found is not None
        return found

    def status(self, sandbox: SandboxId) -> Status:
        return self.sandbox(sandbox).status

    def attempts(self, sandbox: SandboxId) -> list[Attempt]:
        return sorted((row for row in self.rows(Attempt) if row.sandbox == sandbox), key=lambda attempt: attempt.number)

    def rows(self, kind: type[Rec]) -> list[Rec]:
        return [row for row in self.memory.rows().values() if isinstance(row, kind)]

    def counter(self, scope: Scope, name: str) -> Counter:
        found = self.memory.get(Counter, Counter.key_of(scope, name))
        assert found is not None
        return found

    def held(self, scope: Scope, name: str) -> int:
        """Sandboxes that a counter has given out."""
        return self.counter(scope, name).held.sandboxes
