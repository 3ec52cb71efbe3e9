"""Pools: register, drain, undrain, remove, and the probe that keeps placement's view of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..contract import Adapter, Operation, StoredSecret, parse_reference, supports
from ..errors import DifferentlyError, InvalidRequest, InvalidState, NotFound
from ..model.pool import Pool, PoolPressure, PoolState, PoolView
from ..model.quota import Counter, Scope
from ..model.resources import UNLIMITED, Size
from ..model.secret import POOLS_MAX, Secret
from ..model.tenancy import OPERATOR_ORG
from ..policy.placement import Candidate, permitted
from ..store.ports import (
    ACTIONS_MAX,
    Absent,
    Action,
    Check,
    Committed,
    Equals,
    Present,
    Put,
    StoreThrottled,
    StoreUnavailable,
    Update,
)  # fmt: skip
from . import pressure
from .backends import adapter_of, calling
from .core import Caller, Core
from .trials import trial

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolDetail:
    pool: Pool
    view: PoolView | None
    counter: Counter | None
    pressure: PoolPressure | None = None


def register(core: Core, caller: Caller, pool: Pool) -> PoolDetail:
    """Store a pool whose adapter can be built from its configuration and credential, and probe it once.

    Raises `InvalidRequest` when the adapter refuses either, `InvalidState` when the name is taken.
    """
    for _ in range(core.tuning.conflict_tries_max):
        pool = with_credential(core, pool)
        with trial(core, pool):
            counter = _insert(core, caller, pool)
        if counter is not None:
            core.catalog.forget()
            return PoolDetail(pool, probe(core, pool), counter)
    raise StoreThrottled("The credential of this pool is being changed by others right now; repeat the call.")


def checked(core: Core, pool: Pool) -> PoolDetail:
    """What `register` would store, after all its checks; nothing is written."""
    pool = with_credential(core, pool)
    with trial(core, pool):
        if core.store.get(Pool, pool.key()) is not None:
            raise _taken(pool.name)
    return PoolDetail(pool, None, None)


def _taken(name: str) -> InvalidState:
    return InvalidState(f"There is a pool {name!r} already; choose another name.", pool=name)


def _insert(core: Core, caller: Caller, pool: Pool) -> Counter | None:
    """None when its secret changed meanwhile."""
    limit = Size(sandboxes=pool.max_concurrency, cpu_millis=UNLIMITED, memory_mib=UNLIMITED, disk_gib=UNLIMITED)
    counter = Counter.of(Scope.POOL, pool.name, limit, pool.max_retained)
    event = core.event(caller, "pool.create", pool.name, OPERATOR_ORG, pool=pool.name)
    actions: list[Action] = [
        Put(pool, (Absent(),), "pool"), Put(counter, (Absent(),), "counter"), Put(event, (Absent(),), "event"),
        *uses(pool, 1),
    ]  # fmt: skip
    outcome = core.commit(actions)
    if isinstance(outcome, Committed):
        return counter
    if "pool" in outcome.failed:
        raise _taken(pool.name)
    return None


def with_credential(core: Core, pool: Pool) -> Pool:
    """The pool with the revision of its stored secret that is in force now, if it has one."""
    name = secret_of(pool)
    if name is None:
        return pool.with_(credential_revision=None)
    secret = core.store.get(Secret, Secret.key_of(name))
    if secret is None:
        raise InvalidRequest(
            f"There is no secret {name!r}: put it first, at /v1/admin/secrets/{name}.", field="credential", secret=name
        )
    if secret.users >= POOLS_MAX:
        raise InvalidState(
            f"{secret.users} pools use the secret {name!r}, and {POOLS_MAX} may: put it under a second name too.",
            secret=name, limit=POOLS_MAX,
        )  # fmt: skip
    return pool.with_(credential_revision=secret.revision)


def secret_of(pool: Pool) -> str | None:
    """The name of the stored secret that it refers to. Raises `InvalidRequest` for what is no reference."""
    reference = parse_reference(pool.credential) if pool.credential is not None else None
    return reference.name if isinstance(reference, StoredSecret) else None


def uses(pool: Pool, by: int) -> list[Action]:
    """Count the pool among the users of its secret, or no more; refused when the revision is not in force any more.

    A pool whose secret was removed by force is counted nowhere.
    """
    name = secret_of(pool)
    if name is None or pool.credential_revision is None:
        return []
    current = (Equals("revision", pool.credential_revision),)
    return [Update(Secret, Secret.key_of(name), f"secret {name}", add={"users": by, "moves": 1}, when=current)]


def every(core: Core) -> list[Pool]:
    """All of them, as stored; one round trip for two hundred."""
    table, pk, _ = Pool.key_of("")
    found: list[Pool] = []
    after: str | None = None
    while True:
        page = core.store.query(table, pk, after=after)
        found += [row for row in page.rows if isinstance(row, Pool)]
        after = page.next
        if after is None:
            return found


def detail(core: Core, name: str) -> PoolDetail:
    """The pool as stored, not as cached; one round trip."""
    keys = [
        (Pool, Pool.key_of(name)), (PoolView, PoolView.key_of(name)), (Counter, Counter.key_of(Scope.POOL, name)),
        (PoolPressure, PoolPressure.key_of(name)),
    ]  # fmt: skip
    pool, view, counter, waiting = core.store.batch_get(keys)  # type: ignore[arg-type]  # a list of mixed record types
    if not isinstance(pool, Pool):
        raise NotFound(f"There is no pool {name!r}.", pool=name)
    return PoolDetail(
        pool,
        view if isinstance(view, PoolView) else None,
        counter if isinstance(counter, Counter) else None,
        pressure.current(core, waiting if isinstance(waiting, PoolPressure) else None),
    )


def list_pools(core: Core, after: str | None, limit: int) -> tuple[list[PoolDetail], str | None]:
    """By name, as stored; two round trips."""
    table, pk, _ = Pool.key_of("")
    page = core.store.query(table, pk, after=after, limit=min(limit, ACTIONS_MAX // 2))
    found = [row for row in page.rows if isinstance(row, Pool)]
    views = [(PoolView, PoolView.key_of(pool.name)) for pool in found]
    counters = [(Counter, Counter.key_of(Scope.POOL, pool.name)) for pool in found]
    rows = core.store.batch_get([*views, *counters]) if found else []
    seen = {row.name: row for row in rows if isinstance(row, PoolView)}
    counted = {row.name: row for row in rows if isinstance(row, Counter)}
    return [PoolDetail(pool, seen.get(pool.name), counted.get(pool.name)) for pool in found], page.next


def visible(core: Core, caller: Caller) -> list[Candidate]:
    """The pools a caller may know of: an operator every one, a tenant those that its policies allow; warm, no trip."""
    candidates = sorted(core.catalog.pools().candidates(core.clock.now()), key=lambda entry: entry.pool.name)
    if caller.operator or caller.org is None or caller.project is None:
        return candidates if caller.operator else []
    rules = core.catalog.rules(caller.org, caller.project)
    return [entry for entry in candidates if permitted(entry, rules)]


def set_state(core: Core, caller: Caller, name: str, state: PoolState) -> PoolDetail:
    """Drain or undrain. A draining pool is closed in its counter by the same write, so nothing slips in."""
    for _ in range(core.tuning.conflict_tries_max):
        pool = detail(core, name).pool
        if pool.state is state:
            return detail(core, name)
        changed = pool.with_(state=state, version=pool.version + 1)
        key = Counter.key_of(Scope.POOL, name)
        closing = state is PoolState.DRAINING
        event = core.event(caller, f"pool.{state.value}", name, OPERATOR_ORG, pool=name)
        actions: list[Action] = [
            Put(changed, (Equals("version", pool.version),), "pool"),
            Update(
                Counter, key, "counter", set={"closed": "draining"} if closing else {},
                remove=() if closing else ("closed",),
            ),
            Put(event, (Absent(),), "event"),
        ]  # fmt: skip
        if isinstance(core.commit(actions), Committed):
            core.catalog.forget()
            core.nudges.dispatch()
            return detail(core, name)
    raise StoreThrottled("This pool is being changed by others right now; repeat the call.")


def probe_all(core: Core) -> None:
    """Probe every pool; one pool's failure never keeps another from being looked at."""
    for pool in core.catalog.pools().pools.values():
        probe(core, pool)


def probe(core: Core, pool: Pool) -> PoolView:
    """Ask a pool how it is and keep the answer; an error makes it unhealthy until the next good probe.

    What was known of it before stays known: a pool that is down can still do what it could.
    """
    before = core.store.get(PoolView, PoolView.key_of(pool.name))
    try:
        adapter = adapter_of(core, pool.name)
        calling(adapter, adapter.health)
        view = _look(core, pool, adapter)
    except (StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        last = before or PoolView(name=pool.name, at=core.clock.now(), healthy=False)
        view = last.with_(healthy=False, message=error.message, at=core.clock.now())
    _save(core, view)
    _tell(core, view)
    if view.healthy and before is not None and not before.healthy:
        core.nudges.dispatch()
    return view


def _look(core: Core, pool: Pool, adapter: Adapter) -> PoolView:
    can = calling(adapter, adapter.capabilities)
    room = calling(adapter, adapter.capacity)
    about = calling(adapter, adapter.info)
    return PoolView(
        name=pool.name, at=core.clock.now(), healthy=True, version=about.version, isolation=about.isolation,
        warnings=about.warnings,
        features=tuple(sorted(can.features)),
        max_cpu_millis=can.max_cpu_millis, max_memory_mib=can.max_memory_mib, max_disk_gib=can.max_disk_gib,
        idles_by_itself=can.idles_by_itself, max_lifetime_seconds=can.max_lifetime_seconds,
        lease_seconds=can.lease_seconds, renews=supports(adapter, Operation.RENEW),
        templates=can.templates, regions=can.regions, bounded=room.bounded,
        free_cpu_millis=room.free_cpu_millis, free_memory_mib=room.free_memory_mib,
        largest_free_cpu_millis=room.largest_free_cpu_millis, largest_free_memory_mib=room.largest_free_memory_mib,
    )  # fmt: skip


def _tell(core: Core, view: PoolView) -> None:
    """The line that is the metric of what the pool holds and keeps."""
    counter = core.store.get(Counter, Counter.key_of(Scope.POOL, view.name))
    if counter is not None:
        held, kept = counter.held.sandboxes, counter.retained
        log.info("pool probed", extra={"pool": view.name, "healthy": view.healthy, "held": held, "retained": kept})


def _save(core: Core, view: PoolView) -> None:
    """Only for a pool that still exists: a probe that ends late must not bring a removed one back."""
    exists = Check(Pool, Pool.key_of(view.name), "pool", (Present(),))
    outcome = core.store.transact([Put(view, (), "view"), exists])
    if isinstance(outcome, Committed):
        core.catalog.forget_pools()
