"""Pools: the backends that operators configure."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, JsonValue, StringConstraints

from differently_adapters.pools import trust_of
from differently_core.errors import InvalidState, NotFound, ProviderUnavailable
from differently_core.model.pool import POOL_NAME_PATTERN, CostModel, Pool, PoolState, PoolView, Trust
from differently_core.model.quota import Counter
from differently_core.model.record import Wire
from differently_core.operations import pools, reconcile

from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .paging import PageQuery, next_cursor

CONCURRENCY_MAX = 1_000_000


class CreatePool(Wire):
    name: Annotated[str, Field(pattern=POOL_NAME_PATTERN)]
    adapter: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    """The kind of backend."""
    trust: Trust | None = None
    """Whose machines it runs on; needed for the kinds that can be either."""
    region: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[\x21-\x7e]+$")] | None = None
    max_concurrency: Annotated[int, Field(ge=1, le=CONCURRENCY_MAX)]
    """Sandboxes it holds at once."""
    cost_model: CostModel = CostModel()
    config: dict[str, JsonValue] = {}
    """What its kind asks for; never a secret."""
    credential: Annotated[str, StringConstraints(max_length=1024)] | None = None
    """Where its credential is kept: `secret:NAME`, `env:DIFFERENTLY_CREDENTIAL_NAME`, or the ARN of a secret of Secrets
    Manager or a parameter of SSM."""

    def __repr__(self) -> str:
        return f"CreatePool(name={self.name!r}, adapter={self.adapter!r}, <config withheld>)"

    __str__ = __repr__


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


class PoolDetailView(Wire):
    name: str
    adapter: str
    trust: Trust
    region: str | None = None
    state: PoolState
    max_concurrency: int
    cost_model: CostModel
    config: dict[str, JsonValue]
    credential: str | None = None
    """Where it is kept; never what it is."""
    created_at: datetime
    held: int = 0
    """Sandboxes, and cleanups not finished yet, that hold a place."""
    health: PoolHealth | None = None
    capabilities: Offer | None = None
    capacity: Room | None = None

    @classmethod
    def of(cls, detail: pools.PoolDetail) -> Self:
        pool, view = detail.pool, detail.view
        facts: dict[str, Any] = pool.model_dump(include=set(cls.model_fields) & set(Pool.model_fields))
        return cls(
            **facts,
            held=_held(detail.counter),
            health=PoolHealth.of(view) if view else None,
            capabilities=Offer.of(view) if view else None,
            capacity=Room.of(view) if view and view.bounded else None,
        )


def _held(counter: Counter | None) -> int:
    return counter.held.sandboxes if counter is not None else 0


class PoolPage(Wire):
    items: list[PoolDetailView]
    next_cursor: str | None = None


def create_pool(call: Call[CreatePool, NoQuery]) -> PoolDetailView:
    asked = call.body
    pool = Pool(
        name=asked.name, adapter=asked.adapter, trust=trust_of(asked.adapter, asked.trust), region=asked.region,
        max_concurrency=asked.max_concurrency, cost_model=asked.cost_model, config=asked.config,
        credential=asked.credential, created_at=call.core.clock.now(),
    )  # fmt: skip
    return PoolDetailView.of(pools.register(call.core, call.caller, pool))


def list_pools(call: Call[NoBody, PageQuery]) -> PoolPage:
    after = call.query.after(call.core, "pools")
    found, position = pools.list_pools(call.core, after, call.query.limit)
    return PoolPage(
        items=[PoolDetailView.of(detail) for detail in found], next_cursor=next_cursor(call.core, position, "pools")
    )


def get_pool(call: Call[NoBody, NoQuery]) -> PoolDetailView:
    return PoolDetailView.of(pools.detail(call.core, call.params["name"]))


def delete_pool(call: Call[NoBody, NoQuery]) -> Answer:
    pools.remove(call.core, call.caller, call.params["name"])
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
        "Register a pool", CreatePool, NoQuery, PoolDetailView, 201, errors=(InvalidState, ProviderUnavailable),
        description="Its configuration is checked and its backend is probed once. A pool whose backend does not answer "
        "is kept and takes work when it does.",
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
        "Remove a pool", NoBody, NoQuery, status=204, errors=(InvalidState,),
        description="Only an empty one: drain it and delete its sandboxes first.",
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
