"""Budgets: set by operators, looked at each minute, acted on.

A look adds up what the month has cost so far and what may still come of what runs, and writes in one transaction how
the budget stands, what its counter has left, and an event for each threshold that is newly reached; so each is told
once, whoever dies or hurries. What admissions took from the counter since the look began stays taken.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from ..contract import supports
from ..errors import BackendError, InvalidState, LimitExceeded, NotFound, QuotaExceeded
from ..model.budget import Budget, BudgetAction, Spend, crossed, month_of
from ..model.event import Event
from ..model.quota import Counter
from ..model.record import Native, Table
from ..model.sandbox import MoveKind, Reason, Sandbox, Status
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import (
    Absent,
    Action,
    Committed,
    Condition,
    Delete,
    Equals,
    Missing,
    Present,
    Put,
    Refused,
    StoreThrottled,
    Update,
)
from . import moves, standing, usage, worker
from .backends import adapter_of
from .core import Caller, Core, system
from .standing import Owner, org_of, scope_of

log = logging.getLogger(__name__)
BUDGETS: Final = system("budgets")
GOOD_FOR: Final = timedelta(minutes=15)
"""How long a hard stop is held by one look."""
BUDGETS_MAX: Final = 2_000
RESTED_MAX: Final = 50
"""Sandboxes put to rest by one look at one budget; the next one goes on."""
_WAYS: Final[Mapping[BudgetAction, tuple[MoveKind, ...]]] = {
    BudgetAction.PAUSE: (MoveKind.PAUSE, MoveKind.STOP),
    BudgetAction.STOP: (MoveKind.STOP, MoveKind.PAUSE),
}


@dataclass(frozen=True)
class Standing:
    """`spend` is None before the first look."""

    budget: Budget
    spend: Spend | None


def get(core: Core, org: OrgId, project: ProjectId | None) -> Standing:
    """Raises `NotFound` where there is none."""
    scope = standing.read(core, org, project).id
    rows = core.store.batch_get([(Budget, Budget.key_of(scope)), (Spend, Spend.key_of(scope))])
    budget, spend = rows
    if not isinstance(budget, Budget):
        raise NotFound(f"There is no budget of {scope}; without one nothing limits what it spends.")
    return Standing(budget, spend if isinstance(spend, Spend) else None)


def put(
    core: Core, caller: Caller, org: OrgId, project: ProjectId | None, *, limit: int, currency: str,
    thresholds: tuple[int, ...], action: BudgetAction,
) -> Standing:  # fmt: skip
    """Set or change a budget and look at it at once, so that what waits for it goes on."""
    owner = standing.read(core, org, project)
    for _ in range(core.tuning.conflict_tries_max):
        before = core.store.get(Budget, Budget.key_of(owner.id))
        after = Budget(
            scope=owner.id, org=org, project=project, limit=limit, currency=currency, thresholds=thresholds,
            action=action, version=(before.version if before is not None else 0) + 1, updated_at=core.clock.now(),
            updated_by=caller.actor,
        )  # fmt: skip
        was: Condition = Absent() if before is None else Equals("version", before.version)
        event = core.event(caller, "budget.update", owner.id, org, project=project, details={"version": after.version})
        if isinstance(core.commit([Put(after, (was,), "budget"), Put(event, (Absent(),), "event")]), Committed):
            core.catalog.forget()
            look(core, after)
            core.nudges.dispatch()
            return get(core, org, project)
    raise StoreThrottled("This budget is being changed by others right now; repeat the call.")


def delete(core: Core, caller: Caller, org: OrgId, project: ProjectId | None) -> None:
    """From now on nothing limits what it spends. Raises `NotFound` where there is none."""
    owner = standing.read(core, org, project)
    found = get(core, org, project).budget
    event = core.event(caller, "budget.delete", owner.id, org, project=project)
    actions: list[Action] = [
        Delete(Budget, found.key(), "budget", (Present(),)), Delete(Spend, Spend.key_of(owner.id), "spend"),
        _freed(owner), Put(event, (Absent(),), "event"),
    ]  # fmt: skip
    outcome = core.commit(actions)
    if isinstance(outcome, Refused) and "counter" in outcome.failed:
        raise InvalidState(f"The counter of {owner.id} is missing; repair its quota first.", id=owner.id)
    core.catalog.forget()
    core.nudges.dispatch()


def _freed(owner: Owner) -> Update:
    key = Counter.key_of(scope_of(owner), owner.id)
    return Update(Counter, key, "counter", remove=("spend_free", "spend_until"))


def look_at_all(core: Core) -> int:
    """Look at every budget; how many there are. One that fails leaves the others alone."""
    done = 0
    after: str | None = None
    while done < BUDGETS_MAX:
        page = core.store.query(Table.CONFIG, "BUDGETS", after=after)
        for row in page.rows:
            if isinstance(row, Budget):
                done += 1
                _look_safely(core, row)
        after = page.next
        if after is None:
            break
    return done


def _look_safely(core: Core, budget: Budget) -> None:
    try:
        look(core, budget)
    except (LimitExceeded, NotFound, StoreThrottled) as error:
        log.error("budget not looked at", extra={"scope": budget.scope, "error": error.message})


def look(core: Core, budget: Budget) -> Spend | None:
    """How the budget stands now; None when somebody else looked at it, or changed it, meanwhile."""
    owner = standing.read(core, budget.org, budget.project)
    key = Counter.key_of(scope_of(owner), owner.id)
    counter = core.store.get(Counter, key)  # before what runs is read: what is taken from now on stays taken
    seen = core.store.get(Spend, Spend.key_of(budget.scope))
    begin, end = month_of(core.clock.now())
    costs = usage.of_month(core, owner, begin, end, budget.currency)
    month = f"{begin:%Y-%m}"
    told = seen.told if seen is not None and seen.month == month else ()
    new = crossed(budget, costs.projected, told)
    spend = Spend(
        scope=budget.scope, month=month, spent=costs.spent, projected=costs.projected, told=(*told, *new),
        uncounted=costs.uncounted, at=core.clock.now(), version=(seen.version if seen is not None else 0) + 1,
    )  # fmt: skip
    was: Condition = Absent() if seen is None else Equals("version", seen.version)
    actions: list[Action] = [Put(spend, (was,), "spend"), *_left(core, owner, budget, spend, counter)]
    actions += [Put(_reached(core, owner, budget, spend, level), (Absent(),), f"event {level}") for level in new]
    if not isinstance(core.commit(actions), Committed):
        return None
    if new:
        log.info("budget reached", extra={"scope": budget.scope, "threshold": max(new), "action": budget.action.value})
    if costs.spent >= budget.limit and budget.action in _WAYS:
        _rest(core, owner, budget)
    return spend


def _left(core: Core, owner: Owner, budget: Budget, spend: Spend, counter: Counter | None) -> list[Action]:
    """What its counter has left, as a difference where it has the field, so that nothing taken meanwhile is lost."""
    if counter is None:
        return []
    if budget.action is BudgetAction.ALERT:
        return [_freed(owner)] if counter.spend_free is not None else []
    free = budget.limit - spend.projected
    set_: dict[str, Native] = {}
    remove: tuple[str, ...] = ("spend_until",)
    if budget.action is BudgetAction.STOP:
        set_, remove = {"spend_until": int((core.clock.now() + GOOD_FOR).timestamp())}, ()
    key = counter.key()
    if counter.spend_free is None:
        when: Condition = Missing("spend_free")
        return [Update(Counter, key, "counter", set={**set_, "spend_free": free}, remove=remove, when=(when,))]
    add = {"spend_free": free - counter.spend_free}
    return [Update(Counter, key, "counter", set=set_, add=add, remove=remove, when=(Present(),))]


def _reached(core: Core, owner: Owner, budget: Budget, spend: Spend, level: int) -> Event:
    return core.event(
        BUDGETS, "budget.threshold", budget.scope, org_of(owner), project=budget.project,
        details={
            "threshold": level, "limit": budget.limit, "spent": spend.spent, "projected": spend.projected,
            "currency": budget.currency, "month": spend.month, "does": budget.action.value,
        },
    )  # fmt: skip


def _rest(core: Core, owner: Owner, budget: Budget) -> None:
    """Put what runs to rest, by what its pool can; one that cannot be is ended by a hard stop, and else left alone."""
    rested = 0
    for sandbox in usage.running(core, owner):
        if rested >= RESTED_MAX:
            return
        if sandbox.status is Status.RUNNING and sandbox.meter is not None and _costs(sandbox, budget):
            rested += _rest_one(core, sandbox, budget.action)


def _costs(sandbox: Sandbox, budget: Budget) -> bool:
    price = sandbox.meter.price if sandbox.meter is not None else None
    return price is not None and price.currency == budget.currency


def _rest_one(core: Core, sandbox: Sandbox, action: BudgetAction) -> bool:
    try:
        adapter = adapter_of(core, sandbox.pool or "")
        kind = next((kind for kind in _WAYS[action] if supports(adapter, moves.OPERATIONS[kind])), None)
        if kind is not None:
            return moves.rest_for_budget(core, BUDGETS, sandbox, kind) is not None
    except (BackendError, QuotaExceeded) as error:
        log.warning("not put to rest", extra={"sandbox": sandbox.id, "error": error.message})
        if isinstance(error, BackendError):
            return False
    if action is not BudgetAction.STOP:
        return False
    reason = Reason(
        code="budget", source="policy", detail="the budget of this month is spent", at=core.clock.now()
    )  # fmt: skip
    worker.end_of_time(core, sandbox, reason)
    return True
