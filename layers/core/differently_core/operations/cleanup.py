"""Settling a debt: an attempt that may have left an instance behind on a pool its sandbox has left.

The pool's slot comes back only when absence and the end of the attempt are both proved. A cleanup never removes what
the sandbox uses now: two pools may lead to one backend, so the instance found under our label may be the newer one.
"""

from __future__ import annotations

import logging

from ..contract import Target
from ..errors import BackendError, NotFound
from ..model.attempt import Attempt, AttemptState
from ..model.quota import Scope
from ..model.record import Table
from ..runtime.ids import SandboxId
from ..store.ports import Action, Committed
from .accounts import give
from .core import Core
from .ending import settled, write_attempt
from .worker import adapter_of, calling, finished, remove

log = logging.getLogger(__name__)
ATTEMPTS_MAX = 200


def settle(core: Core, sandbox: SandboxId, number: int) -> None:
    """Try to settle one attempt in debt; raises only for faults of the store."""
    attempts = _attempts(core, sandbox)
    debt = attempts.get(number)
    if debt is None or debt.status is not AttemptState.DEBT:
        return
    others = [attempt for attempt in attempts.values() if attempt.number != number]
    in_use = {attempt.ref for attempt in others if attempt.status is AttemptState.LIVE}
    if any(attempt.status is AttemptState.CALLING for attempt in others):
        _later(core, debt)  # an instance may be coming up elsewhere; wait until it is known which one is whose
        return
    try:
        adapter = adapter_of(core, debt.pool)
        ref = debt.ref or calling(adapter, lambda: adapter.get(Target(core.owner(sandbox)))).ref
        gone = ref in in_use or remove(core, adapter, debt.with_(ref=ref))
    except NotFound:
        gone = True
    except BackendError as error:
        log.info("cleanup waits", extra={"sandbox": sandbox, "pool": debt.pool, "error": error.message})
        gone = False
    if gone and finished(core, debt):
        _settle(core, debt)
    else:
        _later(core, debt)


def _attempts(core: Core, sandbox: SandboxId) -> dict[int, Attempt]:
    page = core.store.query(Table.STATE, f"SBX#{sandbox}", prefix="ATTEMPT#", limit=ATTEMPTS_MAX)
    return {row.number: row for row in page.rows if isinstance(row, Attempt)}


def _settle(core: Core, debt: Attempt) -> None:
    actions: list[Action] = [write_attempt(debt, settled(core, debt)), give(Scope.POOL, debt.pool, debt.size)]
    if isinstance(core.commit(actions), Committed):
        core.nudges.dispatch()


def _later(core: Core, debt: Attempt) -> None:
    tuning = core.tuning
    tries = debt.cleanup_failures + 1
    seconds = min(tuning.terminate_retry_seconds * 2 ** min(tries - 1, 10), tuning.terminate_retry_seconds_max)
    core.commit([write_attempt(debt, debt.with_(cleanup_failures=tries, due_at=core.after(seconds)))])
