"""Pools: the backends that operators configure."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, StringConstraints

from differently_adapters.pools import trust_of
from differently_adapters.registry import fingerprint
from differently_core.errors import InvalidRequest, InvalidState, NotFound, ProviderUnavailable, UnsupportedOperation
from differently_core.model.pool import POOL_NAME_PATTERN, CostModel, Pool, PoolPressure, PoolState, PoolView, Trust
from differently_core.model.quota import Counter
from differently_core.model.record import Wire
from differently_core.operations import pool_changes, pool_recount, pool_release, pools, reconcile

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .paging import LIMIT_MAX, PageQuery, next_cursor

CONCURRENCY_MAX = 1_000_000


Region = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[\x21-\x7e]+$")]
Concurrency = Annotated[int, Field(ge=1, le=CONCURRENCY_MAX)]
Retained = Annotated[int, Field(ge=0, le=CONCURRENCY_MAX)]
Credential = Annotated[str, StringConstraints(max_length=1024)]


class CreatePool(Wire):
    name: Annotated[str, Field(pattern=POOL_NAME_PATTERN)]
    adapter: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    """The kind of backend."""
    trust: Trust | None = None
    """Whose machines it runs on; needed for the kinds that can be either."""
    region: Region | None = None
    max_concurrency: Concurrency
    """Sandboxes it holds at once."""
    max_retained: Retained | None = None
    """Stopped and paused sandboxes it keeps at once; absent is any number."""
    cost_model: CostModel = CostModel()
    config: dict[str, JsonValue] = {}
    """What its kind asks for; never a secret."""
    credential: Credential | None = None
    """Where its credential is kept: `secret:NAME`, `env:DIFFERENTLY_CREDENTIAL_NAME`, or the ARN of a secret of Secrets
    Manager or a parameter of SSM."""

    def __repr__(self) -> str:
        return f"CreatePool(name={self.name!r}, adapter={self.adapter!r}, <config withheld>)"

    __str__ = __repr__


class UpdatePool(Wire):
    """What is left out stays as it is. `region`, `maxRetained` and `credential` go with null."""

    region: Region | None = None
    max_concurrency: Concurrency | None = None
    max_retained: Retained | None = None
    cost_model: CostModel | None = None
    config: dict[str, JsonValue] | None = None
    """The whole of it: what is left out of `config` gets its default."""
    credential: Credential | None = None
    """Where its credential is kept."""

    def __repr__(self) -> str:
        return "UpdatePool(<withheld>)"

    __str__ = __repr__

    def changes(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for name in ("max_concurrency", "cost_model", "config"):
            if name in given and given[name] is None:
                field = str(UpdatePool.model_fields[name].alias)
                raise InvalidRequest(f"{field}: must not be null; leave it out to keep it.", field=field)
        return given


class PoolHealth(Wire):
    """What the last probe saw."""

    healthy: bool
    message: str = ""
    version: str | None = None
    """Of the backend, where it tells."""
    warnings: list[str] = []
    """What an operator should know although the pool works."""
    at: datetime

    @classmethod
    def of(cls, view: PoolView) -> Self:
        return cls(
            healthy=view.healthy, message=view.message, version=view.version or None, warnings=list(view.warnings),
            at=view.at,
        )  # fmt: skip


class SizeLimit(Wire):
    """Of one sandbox; what is absent is not limited."""

    cpu: float | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None

    @classmethod
    def of(cls, view: PoolView) -> Self:
        return cls(
            cpu=view.max_cpu_millis / 1000 or None, memory_mib=view.max_memory_mib or None,
            disk_gib=view.max_disk_gib or None,
        )  # fmt: skip


class Offer(Wire):
    """What a pool can do. No templates means any."""

    features: list[str]
    limits: SizeLimit
    templates: list[str]
    regions: list[str]

    @classmethod
    def of(cls, view: PoolView) -> Self:
        return cls(
            features=list(view.features), limits=SizeLimit.of(view), templates=list(view.templates),
            regions=list(view.regions),
        )  # fmt: skip


class Room(Wire):
    """Free room at the backend, where it tells."""

    free_cpu: float
    free_memory_mib: int
    largest_free_cpu: float
    largest_free_memory_mib: int

    @classmethod
    def of(cls, view: PoolView) -> Self:
        return cls(
            free_cpu=view.free_cpu_millis / 1000, free_memory_mib=view.free_memory_mib,
            largest_free_cpu=view.largest_free_cpu_millis / 1000, largest_free_memory_mib=view.largest_free_memory_mib,
        )  # fmt: skip


class PoolQueue(Wire):
    """What waits for room in the pool, as dispatch last saw it; in a very long queue of what it looked at."""

    waiting: int
    cpu: float
    memory_mib: int
    oldest_at: datetime | None = None
    at: datetime

    @classmethod
    def of(cls, seen: PoolPressure) -> Self:
        return cls(
            waiting=seen.waiting, cpu=seen.cpu_millis / 1000, memory_mib=seen.memory_mib, oldest_at=seen.oldest_at,
            at=seen.at,
        )  # fmt: skip


class PoolDetailView(Wire):
    name: str
    adapter: str
    trust: Trust
    region: str | None = None
    state: PoolState
    max_concurrency: int
    max_retained: int | None = None
    """Absent where any number of stopped and paused sandboxes is kept."""
    cost_model: CostModel
    config: dict[str, JsonValue]
    credential: str | None = None
    """Where it is kept; never what it is."""
    created_at: datetime
    generation: int
    """Rises with every change of the pool."""
    fingerprint: str | None = None
    """The same for pools that lead to one backend; absent when the kind is not built."""
    held: int = 0
    """Sandboxes, and cleanups not finished yet, that hold a place."""
    retained: int = 0
    """Sandboxes that are kept without running, or on their way there or back, and cleanups of such."""
    health: PoolHealth | None = None
    capabilities: Offer | None = None
    capacity: Room | None = None
    queue: PoolQueue | None = None
    """Absent while nothing waits for it; not in the list of pools."""

    @classmethod
    def of(cls, detail: pools.PoolDetail) -> Self:
        pool, view = detail.pool, detail.view
        facts: dict[str, Any] = pool.model_dump(include=set(cls.model_fields) & set(Pool.model_fields))
        return cls(
            **facts,
            generation=pool.version,
            fingerprint=_fingerprint(pool),
            held=_held(detail.counter),
            retained=detail.counter.retained if detail.counter is not None else 0,
            health=PoolHealth.of(view) if view else None,
            capabilities=Offer.of(view) if view else None,
            capacity=Room.of(view) if view and view.bounded else None,
            queue=PoolQueue.of(detail.pressure) if detail.pressure else None,
        )


def _fingerprint(pool: Pool) -> str | None:
    try:
        return fingerprint(pool.adapter, pool.config)
    except InvalidRequest:
        return None


def _held(counter: Counter | None) -> int:
    return counter.held.sandboxes if counter is not None else 0


class PoolPage(Wire):
    items: list[PoolDetailView]
    next_cursor: str | None = None


class CheckOptions(Wire):
    dry_run: bool = False
    """Check everything and write nothing."""


class ChangeOptions(CheckOptions):
    verify: bool = True
    """Try it against the backend first; false also changes a pool whose backend is down."""


class DeletePoolOptions(Wire):
    force: bool = False
    """End what it holds without a look at its backend: what runs there stays there."""


class UsePool(Wire):
    approve_external: bool = False
    """Needed for a pool on somebody else's machines."""


class Verified(Wire):
    pool: str
    verified: Literal[True] = True


class RepairPool(Wire):
    dry_run: bool = False
    """Only count."""


class PoolHeld(Wire):
    slots: int
    cpu: float
    memory_mib: int
    disk_gib: int
    retained: int

    @classmethod
    def of(cls, held: pool_recount.Held) -> Self:
        size = held.slots
        return cls(
            slots=size.sandboxes, cpu=size.cpu_millis / 1000, memory_mib=size.memory_mib, disk_gib=size.disk_gib,
            retained=held.retained,
        )  # fmt: skip


class PoolRepair(Wire):
    """`held`: what sandboxes and cleanups really hold. `drift`: what the counter said beyond that before the repair."""

    held: PoolHeld
    drift: PoolHeld
    repaired: bool


class Discovered(Wire):
    """Names, each with a short description."""

    templates: dict[str, str]
    regions: dict[str, str]


def pool_of(asked: CreatePool, now: datetime) -> Pool:
    return Pool(
        name=asked.name, adapter=asked.adapter, trust=trust_of(asked.adapter, asked.trust), region=asked.region,
        max_concurrency=asked.max_concurrency, max_retained=asked.max_retained,
        cost_model=asked.cost_model, config=asked.config, credential=asked.credential, created_at=now,
    )  # fmt: skip


def create_pool(call: Call[CreatePool, CheckOptions]) -> PoolDetailView | Answer:
    pool = pool_of(call.body, call.core.clock.now())
    if call.query.dry_run:
        view = PoolDetailView.of(pools.checked(call.core, pool))
        return Answer(200, view.model_dump_json(by_alias=True, exclude_none=True), {"Content-Type": JSON})
    return PoolDetailView.of(pools.register(call.core, call.caller, pool))


def list_pools(call: Call[NoBody, PageQuery]) -> PoolPage:
    after = call.query.after(call.core, "pools")
    found, position = pools.list_pools(call.core, after, call.query.limit)
    return PoolPage(
        items=[PoolDetailView.of(detail) for detail in found], next_cursor=next_cursor(call.core, position, "pools")
    )


def get_pool(call: Call[NoBody, NoQuery]) -> PoolDetailView:
    return PoolDetailView.of(pools.detail(call.core, call.params["name"]))


def update_pool(call: Call[UpdatePool, ChangeOptions]) -> PoolDetailView:
    options = call.query
    detail = pool_changes.change(
        call.core, call.caller, call.params["name"], call.body.changes(), verify=options.verify, dry_run=options.dry_run
    )
    return PoolDetailView.of(detail)


def use_pool(call: Call[UsePool, NoQuery]) -> PoolPage:
    pool_changes.use(call.core, call.caller, call.params["name"], approve_external=call.body.approve_external)
    found, position = pools.list_pools(call.core, None, LIMIT_MAX)
    return PoolPage(
        items=[PoolDetailView.of(detail) for detail in found], next_cursor=next_cursor(call.core, position, "pools")
    )


def verify_pool(call: Call[NoBody, NoQuery]) -> Verified:
    pool_changes.verify(call.core, call.params["name"])
    return Verified(pool=call.params["name"])


def discover_pool(call: Call[NoBody, NoQuery]) -> Discovered:
    found = pool_changes.discover(call.core, call.params["name"])
    return Discovered(templates=dict(found.templates), regions=dict(found.regions))


def repair_pool(call: Call[RepairPool, NoQuery]) -> PoolRepair:
    done = pool_recount.recount(call.core, call.caller, call.params["name"], correct=not call.body.dry_run)
    return PoolRepair(held=PoolHeld.of(done.held), drift=PoolHeld.of(done.drift), repaired=done.corrected)


def delete_pool(call: Call[NoBody, DeletePoolOptions]) -> Answer:
    pool_release.remove(call.core, call.caller, call.params["name"], force=call.query.force)
    return Answer(204)


def drain_pool(call: Call[NoBody, NoQuery]) -> PoolDetailView:
    return PoolDetailView.of(pools.set_state(call.core, call.caller, call.params["name"], PoolState.DRAINING))


def undrain_pool(call: Call[NoBody, NoQuery]) -> PoolDetailView:
    return PoolDetailView.of(pools.set_state(call.core, call.caller, call.params["name"], PoolState.ACTIVE))


class PoolOffer(Wire):
    name: str
    trust: Trust
    region: str | None = None
    accepting: bool
    """False while it drains or its backend does not answer: new sandboxes wait or go elsewhere."""
    features: list[str]
    limits: SizeLimit
    templates: list[str]
    regions: list[str]


class Capabilities(Wire):
    pools: list[PoolOffer]


def get_capabilities(call: Call[NoBody, NoQuery]) -> Capabilities:
    offers = []
    for entry in pools.visible(call.core, call.caller):
        pool = entry.pool
        view = entry.view or PoolView(name=pool.name, at=call.core.clock.now(), healthy=False)
        offers.append(
            PoolOffer(
                name=pool.name,
                trust=pool.trust,
                region=pool.region,
                accepting=view.healthy and pool.state is PoolState.ACTIVE,
                **dict(Offer.of(view)),
            )
        )
    return Capabilities(pools=offers)


class ReconcileRequest(Wire):
    pool: Annotated[str, Field(pattern=POOL_NAME_PATTERN)] | None = None
    """One pool; every pool when absent."""


class ReconcileReport(Wire):
    """One pass over one pool. What is found once is a suspect; it is acted on when a later pass finds it again."""

    pool: str
    instances: int
    attempts: int
    orphans_deleted: int
    lost: int
    followed: int
    nudged: int
    """Attempts under way past their time: looked at again, then adopted, repeated or given up."""
    suspects: int
    unowned_skipped: int
    """Instances that are not provably ours: never touched."""
    error: str | None = None
    """Why the pool was left out of this pass."""


class ReconcileReports(Wire):
    items: list[ReconcileReport]


def run_reconcile(call: Call[ReconcileRequest, NoQuery]) -> ReconcileReports:
    name = call.body.pool
    if name is None:
        reports = reconcile.reconcile_all(call.core)
    else:
        reports = [reconcile.reconcile(call.core, pools.detail(call.core, name).pool.name)]
    return ReconcileReports(items=[ReconcileReport.model_validate(asdict(report)) for report in reports])


ROUTES = (
    Route(
        Method.GET, "/v1/capabilities", Group.CONTROL, Access.ANY, get_capabilities,
        "List what can be asked for", NoBody, NoQuery, Capabilities, errors=(ProviderUnavailable,),
        description="With a tenant's key: the pools that its policies allow. With an operator's key: every pool.",
    ),
    Route(
        Method.POST, "/v1/admin/pools", Group.ADMIN, Access.OPERATOR, create_pool,
        "Register a pool", CreatePool, CheckOptions, PoolDetailView, 201, also=(200,),
        errors=(InvalidState, ProviderUnavailable),
        description="Its configuration is checked and its backend is probed once. A pool whose backend does not answer "
        "is kept and takes work when it does. A dry run answers 200 and keeps nothing.",
    ),
    Route(
        Method.GET, "/v1/admin/pools", Group.ADMIN, Access.OPERATOR, list_pools,
        "List pools by name", NoBody, PageQuery, PoolPage,
    ),
    Route(
        Method.GET, "/v1/admin/pools/{name}", Group.ADMIN, Access.OPERATOR, get_pool,
        "Read a pool", NoBody, NoQuery, PoolDetailView, errors=(NotFound,),
    ),
    Route(
        Method.DELETE, "/v1/admin/pools/{name}", Group.ADMIN, Access.OPERATOR, delete_pool,
        "Remove a pool", NoBody, DeletePoolOptions, status=204, errors=(InvalidState,),
        description="Only one that holds nothing: drain it and delete its sandboxes first. By force its sandboxes end "
        "as `pool_removed`, also where its kind does not exist any more; what runs at the backend stays there.",
    ),
    Route(
        Method.PATCH, "/v1/admin/pools/{name}", Group.ADMIN, Access.OPERATOR, update_pool,
        "Change a pool", UpdatePool, ChangeOptions, PoolDetailView, errors=(InvalidState, ProviderUnavailable),
        description="Checked whole before anything is written: the configuration is parsed, an adapter is built, and "
        "the backend must show what the pool holds. A pool that holds anything is not led to another backend.",
    ),
    Route(
        Method.POST, "/v1/admin/pools/{name}/use", Group.ADMIN, Access.OPERATOR, use_pool,
        "Send everything new to one pool", UsePool, NoQuery, PoolPage, errors=(InvalidState,),
        description="The others drain; what runs in them goes on. Refused while its backend does not answer well.",
    ),
    Route(
        Method.POST, "/v1/admin/pools/{name}/verify", Group.ADMIN, Access.OPERATOR, verify_pool,
        "Try a pool's credential", NoBody, NoQuery, Verified, errors=(InvalidState, ProviderUnavailable),
        description="Reads only: the backend must take it, and show something of what the pool holds.",
    ),
    Route(
        Method.POST, "/v1/admin/pools/{name}/repair", Group.ADMIN, Access.OPERATOR, repair_pool,
        "Count again what a pool holds", RepairPool, NoQuery, PoolRepair, errors=(InvalidState,),
        description="And put its counter right. It is done once an hour by itself.",
    ),
    Route(
        Method.GET, "/v1/admin/pools/{name}/discover", Group.ADMIN, Access.OPERATOR, discover_pool,
        "List what a backend offers for configuration", NoBody, NoQuery, Discovered,
        errors=(ProviderUnavailable, UnsupportedOperation),
    ),
    Route(
        Method.POST, "/v1/admin/pools/{name}/drain", Group.ADMIN, Access.OPERATOR, drain_pool,
        "Send nothing new to a pool", NoBody, NoQuery, PoolDetailView, description="What runs in it goes on.",
    ),
    Route(
        Method.POST, "/v1/admin/pools/{name}/undrain", Group.ADMIN, Access.OPERATOR, undrain_pool,
        "Take new work again", NoBody, NoQuery, PoolDetailView,
    ),
    Route(
        Method.POST, "/v1/admin/reconcile", Group.ADMIN, Access.OPERATOR, run_reconcile,
        "Compare the backends with the records now", ReconcileRequest, NoQuery, ReconcileReports,
        errors=(NotFound,),
        description="The same pass that runs by itself every half minute.",
    ),
)  # fmt: skip
