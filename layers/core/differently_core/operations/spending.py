"""Budgets inside admission: what a sandbox may cost until the month is over is taken from its budgets, as its size is
from its quotas, by the same update of the same counters.

`budgets` sets each minute what a counter has left (`spend_free`); admissions in between take from that, so they
cannot go beyond it together. A counter without the field has no budget that holds anything back. Where a budget is a
hard stop the figure is good for a while only (`spend_until`): what was not looked at for so long lets nothing in.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from ..errors import BudgetExceeded
from ..model.budget import Budget, BudgetAction, Spend, month_of
from ..model.quota import Counter, Scope
from ..model.resources import Size
from ..model.sandbox import Sandbox
from ..model.usage import MICRO, Price, cost_of
from ..store.ports import AnyOf, AtLeast, Condition, Missing, Refused
from .accounts import Spending
from .core import Core


def promised(price: Price | None, size: Size, seconds: float, now: datetime) -> int:
    """The most that it can cost until it ends, or until the month does."""
    left = min(timedelta(seconds=max(0.0, seconds)), month_of(now)[1] - now)
    return cost_of(price, size, left)


def seconds_left(sandbox: Sandbox, now: datetime) -> float:
    return sandbox.ttl_seconds if sandbox.expires_at is None else (sandbox.expires_at - now).total_seconds()


def of(core: Core, sandbox: Sandbox, scope: str, pool: str | None) -> Spending | None:
    """What its admission to the pool takes from the budget of one scope; None where it costs nothing."""
    now = core.clock.now()
    price = core.catalog.price(pool)
    budget = core.catalog.budget(scope)
    if budget is not None and (price is None or price.currency != budget.currency):
        return None
    amount = promised(price, sandbox.size, seconds_left(sandbox, now), now)
    return spending(amount, now, known=budget is not None and budget.action is not BudgetAction.ALERT)


def spending(amount: int, now: datetime, *, known: bool) -> Spending | None:
    """`known`: the budget is there, so the amount is taken; otherwise it is only held against what is left."""
    if not amount:
        return None
    when: tuple[Condition, ...] = (
        AnyOf((Missing("spend_free"), AtLeast("spend_free", amount))),
        AnyOf((Missing("spend_until"), AtLeast("spend_until", int(now.timestamp())))),
    )
    return Spending(amount if known else 0, when)


def left(counter: Counter | None, now: datetime) -> int | None:
    """What may still be promised; None for as much as one likes."""
    if counter is None or counter.spend_free is None:
        return None
    stale = counter.spend_until is not None and counter.spend_until < int(now.timestamp())
    return 0 if stale else counter.spend_free


def check(core: Core, sandbox: Sandbox, pool: str | None, refusal: Refused) -> None:
    """Raise `BudgetExceeded` where a budget refused it that is a hard stop, or its caller does not want to wait."""
    for counter in _over(core, sandbox, pool, refusal):
        budget, spend = core.store.batch_get(
            [(Budget, Budget.key_of(counter.name)), (Spend, Spend.key_of(counter.name))]
        )
        assert budget is None or isinstance(budget, Budget)
        assert spend is None or isinstance(spend, Spend)
        waits = budget is not None and budget.action is not BudgetAction.STOP and sandbox.queue_timeout_seconds != 0
        if not waits:
            raise exceeded(core, counter, budget, spend)


def _over(core: Core, sandbox: Sandbox, pool: str | None, refusal: Refused) -> Iterable[Counter]:
    now = core.clock.now()
    for row in refusal.failed.values():
        if isinstance(row, Counter) and row.scope is not Scope.POOL:
            room = left(row, now)
            need = promised(core.catalog.price(pool), sandbox.size, seconds_left(sandbox, now), now)
            if room is not None and need > room:
                yield row


def exceeded(core: Core, counter: Counter, budget: Budget | None, spend: Spend | None) -> BudgetExceeded:
    ends = month_of(core.clock.now())[1]
    whose = "organization" if counter.scope is Scope.ORG else "project"
    if budget is None or spend is None or left(counter, core.clock.now()) != counter.spend_free:
        return BudgetExceeded(
            f"The budget of this {whose} could not be looked at lately, and it is a hard stop, so nothing new starts. "
            "An operator must look at the clock of this installation.",
            scope=whose, periodEnd=f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        )  # fmt: skip
    return BudgetExceeded(
        f"This would go beyond the budget of the {whose}: {_money(spend.projected)} of {_money(budget.limit)} "
        f"{budget.currency} are spent or promised until {ends:%Y-%m-%d}. End something, ask for less or for a shorter "
        "ttlSeconds, or have an operator raise the budget.",
        scope=whose, limit=budget.limit / MICRO, spent=spend.spent / MICRO, projected=spend.projected / MICRO,
        currency=budget.currency, periodEnd=f"{ends:%Y-%m-%dT%H:%M:%SZ}",
    )  # fmt: skip


def _money(amount: int) -> str:
    return f"{amount / MICRO:.2f}"
