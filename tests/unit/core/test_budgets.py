"""Budgets: held inside admission, told once, acted on, and never in the way of those that have none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from differently_core.contract import Operation, Unsupported
from differently_core.errors import BudgetExceeded, InvalidState, NotFound
from differently_core.model.budget import Budget, BudgetAction, Spend, crossed, month_of
from differently_core.model.event import Event
from differently_core.model.lifecycle import type_of
from differently_core.model.pool import CostModel
from differently_core.model.quota import Counter, Scope
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.operations import budgets, dispatch, moves, pool_changes, usage
from differently_core.runtime.ids import SandboxId
from differently_core.store.ports import Delete, Update
from tests.support.world import OPERATOR, World

EURO = 1_000_000
HOUR = {"resources": {"cpu": 1}, "ttlSeconds": 3600}
"""Costs one euro."""
pytestmark = pytest.mark.usefixtures("priced")


@pytest.fixture
def priced(world: World) -> None:
    world.add_pool()
    pool_changes.change(world.core, OPERATOR, "pool", {"cost_model": CostModel(cpu_hour=1.0, currency="EUR")})


def budget(world: World, euros: float, action: BudgetAction = BudgetAction.STOP, *, of_org: bool = False) -> None:
    project = None if of_org else world.project.id
    budgets.put(
        world.core, OPERATOR, world.org.id, project, limit=round(euros * EURO), currency="EUR",
        thresholds=(50, 80, 100), action=action,
    )  # fmt: skip


def minute(world: World, seconds: float = 60) -> None:
    world.pass_time(seconds)
    budgets.look_at_all(world.core)
    world.deliver_all()


def spend(world: World) -> Spend:
    (found,) = world.rows(Spend)
    return found


def told(world: World) -> list[int]:
    rows = [row for row in world.rows(Event) if row.action == "budget.threshold"]
    found = sorted((row.at, int(row.details["threshold"] or 0)) for row in rows)
    return [threshold for _, threshold in found]


def left(world: World, scope: Scope = Scope.PROJECT) -> int | None:
    return world.counter(scope, world.project.id if scope is Scope.PROJECT else world.org.id).spend_free


@pytest.mark.parametrize("of_org", [False, True])
def test_a_hard_stop_refuses_what_would_go_beyond_it(world: World, of_org: bool):
    budget(world, 2.5, of_org=of_org)
    for _ in range(2):
        world.create(**HOUR)
    with pytest.raises(BudgetExceeded, match=r"until 2026-02-01") as refused:
        world.create(**HOUR)
    details = refused.value.details
    assert (details["limit"], details["scope"], details["currency"]) == (
        2.5, "organization" if of_org else "project", "EUR",
    )  # fmt: skip
    assert details["periodEnd"] == "2026-02-01T00:00:00Z"
    world.create(resources={"cpu": 0.5}, ttlSeconds=3600)
    assert len(world.rows(Sandbox)) == 3


def test_creates_between_two_looks_cannot_go_beyond_it_together(world: World):
    budget(world, 5)
    made = 0
    for _ in range(9):
        try:
            world.create(**HOUR)
            made += 1
        except BudgetExceeded:
            pass
    assert (made, left(world)) == (5, 0)


def test_no_budget_and_no_price_are_in_nobody_s_way(world: World):
    for _ in range(3):
        world.create(**HOUR)
    assert left(world) is None
    budget(world, 0.0, BudgetAction.ALERT)
    world.create(**HOUR)
    assert left(world) is None
    pool_changes.change(world.core, OPERATOR, "pool", {"cost_model": CostModel()})
    budget(world, 0.0)
    world.create(**HOUR)
    minute(world)
    assert spend(world).uncounted


def test_what_ended_early_is_given_back_at_the_next_look(world: World):
    budget(world, 1)
    sandbox = world.create(**HOUR)
    world.deliver_all()
    with pytest.raises(BudgetExceeded):
        world.create(**HOUR)
    world.clock.advance(360)
    world.delete(sandbox)
    world.deliver_all()
    minute(world, 0)
    assert (spend(world).spent, left(world)) == (EURO // 10, EURO - EURO // 10)
    world.create(resources={"cpu": 0.9}, ttlSeconds=3600)


def test_a_create_while_it_is_looked_at_stays_taken(world: World, monkeypatch: pytest.MonkeyPatch):
    budget(world, 2)
    plain = usage.of_month

    def meanwhile(*args: Any) -> usage.MonthCosts:
        seen = plain(*args)
        world.create(**HOUR)
        return seen

    monkeypatch.setattr(usage, "of_month", meanwhile)
    budgets.look_at_all(world.core)
    monkeypatch.undo()
    assert left(world) == EURO
    budgets.look_at_all(world.core)
    assert left(world) == EURO


def test_with_queue_it_waits_until_the_budget_is_raised(world: World):
    budget(world, 1, BudgetAction.QUEUE)
    first, second = world.create(**HOUR), world.create(**HOUR)
    world.deliver_all()
    assert (world.status(first), world.status(second)) == (Status.RUNNING, Status.QUEUED)
    dispatch.dispatch(world.core)
    assert world.status(second) is Status.QUEUED
    with pytest.raises(BudgetExceeded):
        world.create(**HOUR, queueTimeoutSeconds=0)
    budget(world, 3, BudgetAction.QUEUE)
    world.deliver_all()
    assert world.status(second) is Status.RUNNING
    assert left(world) == EURO


def test_one_that_cannot_afford_holds_up_nobody(world: World):
    budget(world, 0, BudgetAction.QUEUE)
    poor = [world.create(**HOUR) for _ in range(dispatch.BATCH_MAX + 5)]
    other = world.add_tenant()
    world.caller = world.tenant(*other)
    counter = world.counter(Scope.ORG, other[0].id)
    world.core.store.transact([Update(Counter, counter.key(), "c", set={"waiting": 1})])
    rich = world.create(**HOUR)
    assert world.status(rich) is Status.QUEUED
    world.deliver_all()
    assert world.status(rich) is Status.RUNNING
    assert {world.status(sandbox) for sandbox in poor} == {Status.QUEUED}


def test_thresholds_are_told_once_a_month(world: World):
    budget(world, 4, BudgetAction.ALERT)
    assert told(world) == []
    world.create(**HOUR)
    world.create(**HOUR)
    for _ in range(3):
        minute(world, 0)
    assert told(world) == [50]
    for _ in range(2):
        world.create(**HOUR)
    minute(world, 0)
    minute(world, 0)
    assert told(world) == [50, 80, 100]
    row = next(row for row in world.rows(Event) if row.action == "budget.threshold")
    assert type_of(row) == "budget.threshold"
    assert (row.project, row.details["limit"], row.details["month"]) == (world.project.id, 4 * EURO, "2026-01")
    world.deliver_all()
    world.pass_time(3601)
    world.clock.advance(40 * 86_400)
    world.create(**HOUR, labels={"n": "5"})
    world.create(**HOUR, labels={"n": "6"})
    minute(world, 0)
    assert told(world) == [50, 80, 100, 50]


def test_pause_puts_to_rest_what_runs_and_what_waits_goes_on_when_it_is_raised(world: World):
    budget(world, 0.5, BudgetAction.PAUSE)
    assert left(world) == EURO // 2
    sandbox = world.create(resources={"cpu": 1}, ttlSeconds=1800)
    world.deliver_all()
    world.clock.advance(1799)
    budget(world, 0.4, BudgetAction.PAUSE)
    world.deliver_all()
    assert world.status(sandbox) is Status.PAUSED
    reason = world.sandbox(sandbox).reason
    assert reason is not None
    assert (reason.code, reason.source) == ("budget", "policy")


def test_stop_stops_and_ends_where_that_cannot_be(world: World):
    sandbox = world.create(**HOUR)
    world.deliver_all()
    world.clock.advance(1800)
    budget(world, 0.1)
    world.deliver_all()
    assert world.status(sandbox) is Status.STOPPED
    with pytest.raises(BudgetExceeded):
        moves.ask(world.core, world.caller, sandbox, MoveKind.START)
    assert world.status(sandbox) is Status.STOPPED


def test_a_hard_stop_ends_what_its_pool_cannot_stop(world: World, monkeypatch: pytest.MonkeyPatch):
    sandbox = world.create(**HOUR)
    world.deliver_all()
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    never = dict.fromkeys((Operation.STOP, Operation.PAUSE), Unsupported("no_isolation"))
    monkeypatch.setattr(type(adapter), "operations", {**adapter.operations, **never})
    world.clock.advance(1800)
    budget(world, 0.1)
    world.deliver_all()
    assert world.status(sandbox) is Status.TERMINATED
    reason = world.sandbox(sandbox).reason
    assert reason is not None
    assert reason.code == "budget"


@pytest.mark.parametrize("action", [BudgetAction.STOP, BudgetAction.QUEUE])
def test_only_a_hard_stop_that_nobody_looked_at_lets_nothing_in(world: World, action: BudgetAction):
    budget(world, 100, action)
    world.clock.advance(budgets.GOOD_FOR.total_seconds() + 2)
    if action is BudgetAction.STOP:
        with pytest.raises(BudgetExceeded, match="not be looked at lately"):
            world.create(**HOUR)
    assert world.status(world.create(**HOUR) if action is BudgetAction.QUEUE else _after_a_look(world)) is (
        Status.PROVISIONING
    )


def _after_a_look(world: World) -> SandboxId:
    budgets.look_at_all(world.core)
    return world.create(**HOUR)


def test_a_budget_that_cannot_be_read_holds_where_it_is_a_hard_stop(world: World, monkeypatch: pytest.MonkeyPatch):
    budget(world, 1.5)
    monkeypatch.setattr(type(world.core.catalog), "_whole", _unreadable(type(world.core.catalog)._whole))
    world.create(**HOUR)
    world.clock.advance(budgets.GOOD_FOR.total_seconds() + 2)
    with pytest.raises(BudgetExceeded):
        world.create(**HOUR)


def _unreadable(plain: object) -> object:
    def read(self: object, table: object, pk: str, record: object) -> object:
        if pk == "BUDGETS":
            raise ValueError("a row of another version")
        return plain(self, table, pk, record)  # type: ignore[operator]

    return read


def test_a_removed_budget_holds_nothing_back(world: World):
    budget(world, 0)
    with pytest.raises(BudgetExceeded):
        world.create(**HOUR)
    budgets.delete(world.core, OPERATOR, world.org.id, world.project.id)
    assert (left(world), world.rows(Budget), world.rows(Spend)) == (None, [], [])
    world.create(**HOUR)
    with pytest.raises(NotFound):
        budgets.get(world.core, world.org.id, world.project.id)


def test_a_budget_costs_a_create_no_trip(world: World):
    def trips() -> int:
        with world.memory.ledger.measure() as cost:
            world.create(**HOUR)
        return sum(call in ("TransactWriteItems", "PutItem", "UpdateItem") for call in cost.calls)

    before = trips()
    budget(world, 100)
    assert trips() == before == 1


def test_of_two_looks_at_once_one_is_refused(world: World, monkeypatch: pytest.MonkeyPatch):
    """Otherwise each would add its difference to what is left, and a threshold would be told twice."""
    budget(world, 2)
    world.create(**HOUR)
    (found,) = world.rows(Budget)
    plain = usage.of_month

    def meanwhile(*args: Any) -> usage.MonthCosts:
        monkeypatch.setattr(usage, "of_month", plain)
        assert budgets.look(world.core, found) is not None
        return plain(*args)

    monkeypatch.setattr(usage, "of_month", meanwhile)
    assert budgets.look(world.core, found) is None
    assert (left(world), told(world)) == (EURO, [50])


def test_months_and_thresholds():
    begin, end = month_of(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC))
    assert (begin, end) == (datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert month_of(end)[0] == end
    assert month_of(end - timedelta(microseconds=1))[1] == end
    made = Budget.model_validate({"scope": "org_1", "org": "org_1", "limit": 1000, "updated_at": begin})
    assert crossed(made, 499, ()) == ()
    assert crossed(made, 500, ()) == (50,)
    assert crossed(made, 5000, (50,)) == (80, 100)


def test_a_budget_whose_counter_is_missing_is_not_said_to_be_gone(world: World) -> None:
    """The write was refused and its answer was not looked at: the caller was told of a success that was none."""
    budget(world, 5)
    world.core.store.transact([Delete(Counter, Counter.key_of(Scope.PROJECT, world.project.id), "counter")])
    with pytest.raises(InvalidState, match="repair its quota"):
        budgets.delete(world.core, OPERATOR, world.org.id, world.project.id)
    assert len(world.rows(Budget)) == 1
