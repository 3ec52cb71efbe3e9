"""Changing a pool: checked whole before anything is written, and never to another backend under what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..contract import Catalog, Operation, supports, unsupported
from ..errors import InvalidRequest, InvalidState
from ..model.pool import Pool, PoolState, Trust
from ..model.quota import Counter, Scope
from ..model.resources import UNLIMITED
from ..model.tenancy import OPERATOR_ORG
from ..store.ports import Absent, Action, Committed, Equals, Put, StoreThrottled, Update
from . import trials
from .backends import adapter_of, calling
from .core import Caller, Core
from .pool_release import held
from .pools import PoolDetail, detail, every, probe, set_state, uses, with_credential


def change(
    core: Core, caller: Caller, name: str, changes: Mapping[str, Any], *, verify: bool = True, dry_run: bool = False
) -> PoolDetail:  # fmt: skip
    """Change what a PATCH of a pool may name; what is left out stays.

    An adapter is built from the whole first, and with `verify` it must reach the backend and show what the pool holds.
    Raises `InvalidRequest` naming a field that cannot be used, `InvalidState` where the pool would lead elsewhere.
    With `dry_run` nothing is written.
    """
    for _ in range(core.tuning.conflict_tries_max):
        found = detail(core, name)
        before = found.pool
        after = before.with_(**changes)
        if "credential" in changes and after.credential != before.credential:
            after = with_credential(core, after)
        if after == before:
            return found
        after = after.with_(version=before.version + 1)
        if (after.config, after.credential) != (before.config, before.credential):
            _check(core, before, after, verify=verify)
        if dry_run:
            return PoolDetail(after, found.view, found.counter)
        if isinstance(core.commit(_writes(core, caller, before, after)), Committed):
            core.catalog.forget()
            core.nudges.dispatch()
            probe(core, after)
            return detail(core, name)
    raise StoreThrottled("This pool is being changed by others right now; repeat the call.")


def _check(core: Core, before: Pool, after: Pool, *, verify: bool) -> None:
    with trials.trial(core, after) as adapter:
        leads_elsewhere = core.backends.fingerprint(after) != core.backends.fingerprint(before)
        if leads_elsewhere and held(core, before.name).anything:
            raise InvalidState(
                f"Pool {before.name!r} would lead to another backend, and still holds something at this one. Register "
                "the other as a pool of its own, and drain this one.",
                pool=before.name, reason="another_backend",
            )  # fmt: skip
        if verify:
            trials.verify(core, after, adapter)


def _writes(core: Core, caller: Caller, before: Pool, after: Pool) -> list[Action]:
    changed = sorted(field for field in Pool.model_fields if getattr(before, field) != getattr(after, field))
    event = core.event(
        caller, "pool.update", after.name, OPERATOR_ORG, pool=after.name, details={"changed": ", ".join(changed)}
    )
    actions: list[Action] = [
        Put(after, (Equals("version", before.version),), "pool"), Put(event, (Absent(),), "event"),
    ]  # fmt: skip
    actions += _room(before, after)
    if before.credential != after.credential:
        actions += [*uses(before, -1), *uses(after, 1)]
    return actions


def _room(before: Pool, after: Pool) -> list[Update]:
    """The change of the counter: below what is held nothing ends, and nothing more is let in, or to rest."""
    kept_before, kept_after = (
        UNLIMITED if pool.max_retained is None else pool.max_retained for pool in (before, after)
    )
    limits = {"sandboxes": (before.max_concurrency, after.max_concurrency), "retained": (kept_before, kept_after)}
    changed = {what: limit for what, limit in limits.items() if limit[0] != limit[1]}
    if not changed:
        return []
    return [
        Update(
            Counter, Counter.key_of(Scope.POOL, after.name), "counter",
            add={**{f"free_{what}": new - old for what, (old, new) in changed.items()}, "moves": 1},
            set={f"limit_{what}": new for what, (_, new) in changed.items()},
            when=tuple(Equals(f"limit_{what}", old) for what, (old, _) in changed.items()),
        )
    ]  # fmt: skip


def use(core: Core, caller: Caller, name: str, *, approve_external: bool) -> None:
    """Send what is new to this pool, and nothing new to the others; what runs in them goes on. Safe to repeat.

    Raises `InvalidState` for a pool whose backend does not answer well: nothing new would start anywhere.
    """
    pool = detail(core, name).pool
    if pool.trust is Trust.EXTERNAL and not approve_external:
        raise InvalidRequest(
            f"Pool {name!r} runs on somebody else's machines: say approveExternal to send everything new there. The "
            "policies must allow it too.",
            field="approveExternal", pool=name,
        )  # fmt: skip
    view = probe(core, pool)
    if not view.healthy:
        raise InvalidState(
            f"Pool {name!r} cannot take everything now, so nothing was changed. Its backend says: {view.message}",
            pool=name, reason="unhealthy",
        )  # fmt: skip
    set_state(core, caller, name, PoolState.ACTIVE)
    for other in every(core):
        if other.name != name and other.state is PoolState.ACTIVE:
            set_state(core, caller, other.name, PoolState.DRAINING)


def verify(core: Core, name: str) -> None:
    """Try the pool's credential as it stands. Raises `InvalidState` with what is wrong."""
    pool = detail(core, name).pool
    trials.verify(core, pool, adapter_of(core, pool.name))


def discover(core: Core, name: str) -> Catalog:
    """What its backend offers for configuration; reads only."""
    adapter = adapter_of(core, detail(core, name).pool.name)
    if not supports(adapter, Operation.DISCOVER):
        raise unsupported(adapter, Operation.DISCOVER, name)
    return calling(adapter, adapter.discover)
