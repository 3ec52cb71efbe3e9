"""Reaching a pool's backend: its adapter, a call with its outcome told apart, and finding and removing an instance."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..contract import Adapter, Instance, Target
from ..errors import AdapterFault, BackendError, DifferentlyError, NotFound, ProviderUnavailable
from ..model.exec import ExecRequest
from ..model.pool import PoolView
from ..model.sandbox import Condition
from ..store.ports import Put, StoreThrottled, StoreUnavailable
from .core import Core

log = logging.getLogger(__name__)
T = TypeVar("T")
PROBE = ExecRequest(command="true", timeout_seconds=10)


def adapter_of(core: Core, pool: str) -> Adapter:
    """The pool's adapter; a pool that is gone or cannot be built is a backend that cannot be used."""
    try:
        return core.backends.adapter(core.catalog.pool(pool))
    except (BackendError, StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        raise ProviderUnavailable(error.message, settled=True, pool=pool) from error


def calling(adapter: Adapter, call: Callable[[], T]) -> T:
    """Call the backend; what an adapter raises outside our error tree is its bug, and the outcome is unknown."""
    try:
        return call()
    except DifferentlyError:
        raise
    except Exception as error:
        log.exception("adapter bug", extra={"adapter": adapter.kind})
        raise AdapterFault(f"The {adapter.kind} adapter failed: {type(error).__name__}.") from error


def reachable(core: Core, adapter: Adapter, target: Target) -> Condition | None:
    """Whether a command really runs in it."""
    try:
        result = calling(adapter, lambda: adapter.exec(target, PROBE, 1024))
    except DifferentlyError as error:
        log.info("not reachable yet", extra={"sandbox": target.owner.sandbox, "error": error.message})
        return None
    if result.exit_code != 0:
        return None
    return Condition(at=core.clock.now(), evidence="exec `true` exited 0")


def share_a_backend(core: Core, one: str, other: str) -> bool:
    """Whether an instance that one pool sees may be the other's. What cannot be told is taken to be so."""
    if one == other:
        return True
    pools = core.catalog.pools().pools
    if one in pools and other in pools and pools[one].adapter != pools[other].adapter:
        return False
    try:
        names = {calling(adapter, adapter.info).backend for adapter in (adapter_of(core, one), adapter_of(core, other))}
    except BackendError:
        return True
    return "" in names or len(names) == 1


def mark_unhealthy(core: Core, pool: str, message: str) -> None:
    """Until its next good probe the pool gets nothing new."""
    view = core.store.get(PoolView, PoolView.key_of(pool))
    if view is not None and view.healthy:
        down = view.model_copy(update={"healthy": False, "message": message, "at": core.clock.now()})
        core.store.transact([Put(down, (), "view")])
        core.catalog.forget()


def rest(core: Core, pool: str) -> float:
    """Its backend is full: send it nothing new for a while; returns how many seconds that lasts.

    Everybody who waits for it would else try again by himself. Several who hear of it at once rest together.
    """
    seconds = core.tuning.capacity_requeue_seconds
    now = core.clock.now()
    view = core.store.get(PoolView, PoolView.key_of(pool))
    if view is None:
        return seconds
    if view.full_until is not None and now < view.full_until:
        return float((view.full_until - now).total_seconds())
    core.store.transact([Put(view.with_(full_until=core.after(seconds)), (), "view")])
    core.catalog.forget_pools()
    return seconds


def has_room_again(core: Core, pool: str) -> None:
    """Something came up there: whoever waits may follow, all at once. No trip for a pool that was never full."""
    known = core.catalog.pools().views.get(pool)
    if known is None or known.full_until is None:
        return
    view = core.store.get(PoolView, PoolView.key_of(pool))
    if view is not None and view.full_until is not None:
        core.store.transact([Put(view.with_(full_until=None), (), "view")])
        core.catalog.forget_pools()
        core.nudges.dispatch()


def delete_instance(adapter: Adapter, target: Target) -> bool:
    """Delete, then look: a backend may accept a delete long before the instance is gone."""
    with suppress(NotFound):  # of a ref that belongs to somebody else by now
        adapter.delete(target)
    return find_instance(adapter, target) is None


def find_instance(adapter: Adapter, target: Target) -> Instance | None:
    try:
        return adapter.get(target)
    except NotFound:
        return None
