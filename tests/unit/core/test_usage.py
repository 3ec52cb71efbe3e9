"""Sums, reports and what is between: every interval once, whoever dies or hurries, and no report without a bound."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from differently_core.errors import LimitExceeded
from differently_core.model.pool import CostModel
from differently_core.model.sandbox import Sandbox
from differently_core.model.usage import Amounts, DaySum, Interval, LabelSum, MonthSum, Price, RolledUp, UsageRound
from differently_core.operations import pool_changes, rollups, tenants, usage
from differently_core.operations.usage import Ask, GroupBy, Line
from differently_core.runtime.ids import KeyId, OrgId, SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import ACTIONS_MAX, Action, Outcome, Put, StoreUnavailable
from tests.support.world import OPERATOR, World

CALLS = frozenset({"get", "batch_get", "query", "transact"})
DAY = timedelta(days=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CHEAP = Price(currency="USD", cpu_hour=36_000)


def keep(world: World, number: int, since: datetime, seconds: float, **facts: object) -> Interval:
    made = Interval.model_validate(
        {
            "org": world.org.id, "project": world.project.id, "sandbox": SandboxId(f"sbx_{number}"), "pool": "pool",
            "key_id": KeyId("key_1"), "since": since, "until": since + timedelta(seconds=seconds), "cpu_millis": 1000,
            "memory_mib": 512, "price": CHEAP, **facts,
        }
    )  # fmt: skip
    world.core.store.transact([Put(made, (), "it")])
    return made


def ask(by: GroupBy, first: date = date(2026, 1, 1), end: date = date(2026, 2, 1), label: str = "") -> Ask:
    return Ask(first, end, by, label)


def report(world: World, by: GroupBy, label: str = "", **bounds: date) -> dict[str | None, tuple[float, int]]:
    """Seconds and cost of each group, all currencies together."""
    found: dict[str | None, tuple[float, int]] = {}
    for line in usage.of_owner(world.core, world.org, ask(by, label=label, **bounds)).lines:
        seconds, cost = found.get(line.group, (0.0, 0))
        found[line.group] = (seconds + line.amounts.sandbox_ms / 1000, cost + line.amounts.cost)
    return found


def fill(world: World, count: int = 250) -> None:
    """Two projects, three pools, labels, and some that last over midnight."""
    other = tenants.create_project(world.core, OPERATOR, world.org.id, "other").id
    for number in range(count):
        keep(
            world, number, NOON + timedelta(minutes=10 * number), 3 * 3600.0,
            project=(world.project.id, other)[number % 2], pool=f"pool{number % 3}", key_id=KeyId(f"key_{number % 4}"),
            labels={"team": f"t{number % 5}"} if number % 3 else {},
            price=CHEAP if number % 7 else None,
        )  # fmt: skip


def test_reports_are_the_same_before_while_and_after_intervals_are_added_up(world: World):
    fill(world)
    world.clock.advance(3 * 86_400)
    groups = [(by, "team" if by is GroupBy.LABEL else "") for by in GroupBy]
    before = {by: report(world, by, label) for by, label in groups}
    assert sum(seconds for seconds, _ in before[GroupBy.DAY].values()) == 250 * 3 * 3600
    assert set(before[GroupBy.LABEL]) == {"t0", "t1", "t2", "t3", "t4", None}
    for _ in range(20):
        at = rollups.position(world.core, world.org.id)
        settled = [row for row in world.rows(Interval) if at.after is None or row.key().sk > at.after]
        if not settled:
            break
        _, after, sums = rollups._taken(at, sorted(settled, key=lambda row: row.key().sk))
        assert rollups._add(world.core, at, after, sums)
        assert {by: report(world, by, label) for by, label in groups} == before, "in the middle of it"
    assert rollups.roll(world.core, world.org.id) == 0
    assert sum(row.sandbox_ms for row in world.rows(DaySum)) == 250 * 3 * 3_600_000
    assert sum(row.sandbox_ms for row in world.rows(LabelSum)) == sum(row.sandbox_ms for row in world.rows(MonthSum))


def test_the_last_minutes_are_left_to_the_report(world: World):
    keep(world, 1, NOON, 60)
    keep(world, 2, NOON, 3600)
    world.clock.advance((NOON + timedelta(minutes=60) - world.clock.now()).total_seconds())
    assert rollups.roll(world.core, world.org.id) == 1, "a slow process may still write one that sorts before"
    assert report(world, GroupBy.POOL) == {"pool": (3660.0, 10 * 3660)}


def test_a_pass_that_dies_anywhere_adds_nothing_twice():
    for fatal in range(1, 40):
        world = World(wrap=partial(_Dying, fatal=fatal))
        fill(world, 60)
        world.clock.advance(3 * 86_400)
        world.core.store.armed = True  # type: ignore[attr-defined]
        try:
            rollups.roll(world.core, world.org.id)
            died = False
        except StoreUnavailable:
            died = True
        world.core.store.armed = False  # type: ignore[attr-defined]
        rollups.roll(world.core, world.org.id)
        assert sum(row.sandbox_ms for row in world.rows(DaySum)) == 60 * 3 * 3_600_000
        if not died:
            assert fatal > 4
            return
    raise AssertionError("it never came to its end")


class _Dying(MemoryStore):
    """A store behind which the process dies, right after the n-th of its calls took effect."""

    def __init__(self, inner: MemoryStore, fatal: int) -> None:
        self.inner, self.left, self.armed = inner, fatal, False

    def __getattribute__(self, name: str) -> Any:
        mine = object.__getattribute__(self, "__dict__")
        if name in mine or name.startswith("__"):
            return object.__getattribute__(self, name)
        found = getattr(mine["inner"], name)
        if not mine["armed"] or name not in CALLS:
            return found

        def call(*args: Any, **named: Any) -> Any:
            answer = found(*args, **named)
            self.left -= 1
            if self.left == 0:
                raise StoreUnavailable("the process is gone")
            return answer

        return call


def test_of_two_passes_at_once_one_is_refused(world: World):
    fill(world, 20)
    world.clock.advance(3 * 86_400)
    at = rollups.position(world.core, world.org.id)
    whole, after, sums = rollups._taken(at, sorted(world.rows(Interval), key=lambda row: row.key().sk))
    assert rollups._add(world.core, at, after, sums)
    assert not rollups._add(world.core, at, after, sums)
    assert whole == 20
    assert sum(row.sandbox_ms for row in world.rows(DaySum)) == 20 * 3 * 3_600_000


def test_one_that_lasted_a_year_is_added_in_parts(world: World, monkeypatch: pytest.MonkeyPatch):
    year = keep(world, 1, NOON - 365 * DAY, 365 * 86_400)
    sizes: list[int] = []
    plain = world.memory.transact

    def noted(actions: Sequence[Action]) -> Outcome:
        sizes.append(len(actions))
        return plain(actions)

    monkeypatch.setattr(world.memory, "transact", noted)
    world.clock.advance(2 * 86_400)
    assert rollups.roll(world.core, world.org.id) == 1
    assert max(sizes) <= ACTIONS_MAX
    assert len(world.rows(DaySum)) == 366
    assert sum((row.amounts for row in world.rows(DaySum)), Amounts()) == year.within(year.since, year.until)


def test_what_runs_is_counted_until_now_and_what_waits_is_not(world: World):
    world.add_pool()
    pool_changes.change(world.core, OPERATOR, "pool", {"cost_model": CostModel(cpu_hour=0.036)})
    sandbox = world.create(resources={"cpu": 1}, labels={"team": "red"})
    world.deliver_all()
    world.clock.advance(90)
    assert report(world, GroupBy.LABEL, "team") == {"red": (90.0, 900)}
    assert report(world, GroupBy.KEY) == {world.caller.actor: (90.0, 900)}
    world.delete(sandbox)
    world.deliver_all()
    world.clock.advance(90)
    assert report(world, GroupBy.LABEL, "team") == {"red": (90.0, 900)}, "and not twice"


def test_one_that_ends_while_the_report_reads_is_counted_once(world: World, monkeypatch: pytest.MonkeyPatch):
    world.add_pool()
    sandbox = world.create()
    world.deliver_all()
    world.clock.advance(90)
    plain = rollups.position

    def meanwhile(core: object, org: OrgId) -> RolledUp:
        if world.sandbox(sandbox).meter is not None:
            world.delete(sandbox)
            world.deliver_all()
        return plain(world.core, org)

    monkeypatch.setattr(usage, "position", meanwhile)
    assert report(world, GroupBy.PROJECT) == {world.project.id: (90.0, 0)}
    assert world.sandbox(sandbox).meter is None


def test_a_period_takes_what_lies_in_it(world: World):
    keep(world, 1, NOON - DAY, 2 * 86_400)
    found = report(world, GroupBy.DAY, first=date(2026, 1, 1), end=date(2026, 1, 2))
    assert found == {"2026-01-01": (86_400.0, 864_000)}
    world.clock.advance(5 * 86_400)
    rollups.roll(world.core, world.org.id)
    assert report(world, GroupBy.DAY, first=date(2026, 1, 1), end=date(2026, 1, 2)) == found


def test_an_unknown_price_is_a_line_of_its_own_and_currencies_are_not_added(world: World):
    keep(world, 1, NOON, 3600)
    keep(world, 2, NOON, 3600, price=None)
    keep(world, 3, NOON, 3600, price=Price(currency="EUR", cpu_hour=1_000_000))
    hour = Amounts(sandbox_ms=3_600_000, cpu_ms=3_600_000, memory_mib_ms=512 * 3_600_000)
    lines = usage.of_owner(world.core, world.org, ask(GroupBy.POOL)).lines
    assert lines == (
        Line("pool", "EUR", hour + Amounts(cost=1_000_000)),
        Line("pool", "USD", hour + Amounts(cost=36_000)),
        Line("pool", None, hour),
    )


def test_a_report_that_would_read_too_much_says_what_to_narrow(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage, "PAGES_MAX", 2)
    fill(world, 450)
    with pytest.raises(LimitExceeded, match="projectId, or from and to"):
        usage.of_owner(world.core, world.org, ask(GroupBy.POOL))
    with pytest.raises(LimitExceeded, match="orgId"):
        usage.of_everybody(world.core, ask(GroupBy.POOL), None)


def test_everybody_by_organization_comes_in_pages(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage, "PAGE_OF_ORGS", 2)
    owners = [world.org, *(world.add_tenant()[0] for _ in range(4))]
    for number, owner in enumerate(owners):
        keep(world, number, NOON, 60, org=owner.id)
    found: list[str | None] = []
    after: str | None = None
    for _ in range(10):
        page = usage.of_everybody(world.core, ask(GroupBy.ORG), after)
        found += [line.group for line in page.lines]
        after = page.next
        if after is None:
            break
    assert sorted(map(str, found)) == sorted(owner.id for owner in owners)


def test_the_round_goes_over_all_organizations_and_rests(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rollups, "ORGS_MAX", 2)
    owners = [world.org, *(world.add_tenant()[0] for _ in range(4))]
    for number, owner in enumerate(owners):
        keep(world, number, NOON, 60, org=owner.id)
    world.clock.advance(2 * 86_400)
    assert [rollups.roll_all(world.core) for _ in range(3)] == [2, 2, 1]
    with world.memory.ledger.measure() as cost:
        assert rollups.roll_all(world.core) == 0
    assert cost.trips == 1, "a round that is over is looked at once"
    world.clock.advance(601)
    rollups.roll_all(world.core)
    (seen,) = world.rows(UsageRound)
    assert seen.began == world.clock.now()


def test_a_project_sees_its_own_alone(world: World):
    fill(world, 20)
    found = usage.of_owner(world.core, world.project, ask(GroupBy.PROJECT)).lines
    assert {line.group for line in found} == {world.project.id}
    assert sum(line.amounts.sandbox_ms for line in found) == 10 * 3 * 3_600_000
    assert not world.rows(Sandbox)
