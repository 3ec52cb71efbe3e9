"""Settling a debt: an attempt that may have left an instance behind on a pool its sandbox has left.

The pool's slot comes back only when absence and the end of the attempt are both proved. A cleanup never removes what
the sandbox uses now: two pools may lead to one backend, so what is found there under our label may belong to a newer
attempt, and a newer attempt may be given the instance of an older one. Two rules keep them apart. A cleanup deletes
only the instance that the debt names, and names one only after it has seen it and then read, from attempts written
before their calls, that it is nobody else's. And a worker admits no instance that a debt names, on condition that no
debt has changed (`worker._admit`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from ..contract import Adapter, Target
from ..errors import DifferentlyError
from ..model.attempt import Attempt, AttemptState
from ..runtime.ids import SandboxId
from ..store.ports import Action, Committed, StoreThrottled, StoreUnavailable
from .accounts import left_by
from .attempts import unsettled
from .backends import adapter_of, calling, delete_instance, find_instance, share_a_backend
from .core import Core
from .ending import settled, write_attempt
from .worker import finished, next_try

log = logging.getLogger(__name__)


def settle(core: Core, sandbox: SandboxId, number: int) -> None:
    """Try to settle one attempt in debt; raises only for faults of the store."""
    attempts = {attempt.number: attempt for attempt in unsettled(core, sandbox)}
    debt = attempts.get(number)
    if debt is None or debt.status is not AttemptState.DEBT:
        return
    in_use = _in_use(core, debt, attempts.values())
    over = finished(core, debt)
    try:
        adapter = adapter_of(core, debt.pool)
        left = calling(adapter, lambda: _left(core, adapter, debt, in_use))
    except (StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        log.info("cleanup waits", extra={"sandbox": sandbox, "pool": debt.pool, "error": error.message})
        _later(core, debt)
        return
    if left is None and over:
        _settle(core, debt)
    elif left is None or left == debt.ref:
        _later(core, debt)
    else:
        _name(core, debt, left)


def _left(core: Core, adapter: Adapter, debt: Attempt, in_use: Collection[str | None]) -> str | None:
    """Delete what the debt names; the ref of an instance that is still there and that the sandbox does not use."""
    owner = core.owner(debt.sandbox)
    if debt.ref is not None and debt.ref not in in_use and not delete_instance(adapter, Target(owner, debt.ref)):
        return debt.ref
    found = find_instance(adapter, Target(owner))
    if found is None or found.ref not in in_use:
        return found.ref if found is not None else None
    ours = (entry.ref for entry in adapter.list(owner.installation) if entry.owner == owner)
    return next((ref for ref in ours if ref not in in_use), None)


def _name(core: Core, debt: Attempt, ref: str) -> None:
    """The instance is nobody's: write down that this debt means it, and come back to delete it."""
    others = [attempt for attempt in unsettled(core, debt.sandbox) if attempt.number != debt.number]
    calling_now = [attempt for attempt in others if attempt.status is AttemptState.CALLING]
    if ref in _in_use(core, debt, others) or any(share_a_backend(core, debt.pool, one.pool) for one in calling_now):
        _later(core, debt)
    elif isinstance(core.commit([write_attempt(debt, debt.with_(ref=ref, due_at=core.clock.now()))]), Committed):
        core.nudges.cleanup(debt.sandbox, debt.number)


def _in_use(core: Core, debt: Attempt, attempts: Iterable[Attempt]) -> set[str | None]:
    """Refs that the sandbox uses at the debt's backend; another backend may call another instance the same."""
    live = (attempt for attempt in attempts if attempt.status is AttemptState.LIVE)
    return {attempt.ref for attempt in live if share_a_backend(core, debt.pool, attempt.pool)}


def _settle(core: Core, debt: Attempt) -> None:
    actions: list[Action] = [write_attempt(debt, settled(core, debt)), *left_by(debt)]
    if isinstance(core.commit(actions), Committed):
        core.nudges.dispatch()


def _later(core: Core, debt: Attempt) -> None:
    later = debt.with_(cleanup_failures=debt.cleanup_failures + 1, due_at=next_try(core, debt))
    core.commit([write_attempt(debt, later)])
