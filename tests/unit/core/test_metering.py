"""What is counted and what is not, and intervals that meet exactly, whatever happens between them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_adapters.providers.fake import Refuse
from differently_core.contract import Operation
from differently_core.errors import InsufficientCapacity, ProviderUnavailable, SandboxFailed
from differently_core.model.pool import CostModel, Pool
from differently_core.model.quota import Limits, Scope
from differently_core.model.record import Key
from differently_core.model.resources import UNLIMITED, Size
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.model.usage import Amounts, Interval, Price, cost_of
from differently_core.operations import dispatch, moves, pool_changes
from differently_core.operations.ending import write
from differently_core.runtime.ids import KeyId, OrgId, ProjectId, SandboxId
from differently_core.store.ports import ACTIONS_MAX, Action, Outcome, Update
from tests.support.world import OPERATOR, World

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
pytestmark = pytest.mark.usefixtures("backend")
PRICED = CostModel(cpu_hour=0.05, memory_gib_hour=0.006, kept_hour=0.001, currency="EUR")


def priced(world: World, cost: CostModel = PRICED) -> None:
    pool = world.memory.get(Pool, Pool.key_of("pool"))
    assert pool is not None
    pool_changes.change(world.core, OPERATOR, "pool", {"cost_model": cost})


def intervals(world: World, sandbox: SandboxId) -> list[Interval]:
    return sorted((row for row in world.rows(Interval) if row.sandbox == sandbox), key=lambda row: row.since)


def seconds(interval: Interval) -> float:
    return (interval.until - interval.since).total_seconds()


def test_a_life_is_one_interval_from_its_admission_to_the_quota_s_return(world: World):
    priced(world)
    sandbox = world.create(resources={"cpu": 2, "memoryMiB": 1024}, labels={"team": "red"}, ttlSeconds=600)
    began = world.clock.now()
    world.pass_time(90)
    assert intervals(world, sandbox) == []
    world.delete(sandbox)
    world.clock.advance(5)
    world.deliver_all()
    (only,) = intervals(world, sandbox)
    assert (only.since, seconds(only)) == (began, 95.0)
    assert (only.pool, only.key_id, only.labels) == ("pool", world.caller.actor, {"team": "red"})
    assert only.price == Price(currency="EUR", cpu_hour=50_000, memory_gib_hour=6_000, kept_hour=1_000)
    assert only.within(only.since, only.until) == Amounts(
        sandbox_ms=95_000, cpu_ms=190_000, memory_mib_ms=95_000 * 1024, cost=95 * (2 * 50_000 + 6_000) // 3600
    )
    assert world.sandbox(sandbox).meter is None


def test_at_rest_it_is_counted_for_the_price_of_that_alone(world: World):
    priced(world)
    sandbox = world.create(ttlSeconds=36_000)
    world.deliver_all()
    world.clock.advance(60)
    moves.ask(world.core, world.caller, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    world.clock.advance(3600)
    moves.ask(world.core, world.caller, sandbox, MoveKind.RESUME)
    world.deliver_all()
    world.clock.advance(60)
    world.delete(sandbox)
    world.deliver_all()
    ran, kept, again = intervals(world, sandbox)
    assert [entry.kept for entry in (ran, kept, again)] == [False, True, False]
    assert (ran.until, kept.until) == (kept.since, again.since), "no gap and no overlap"
    assert kept.within(kept.since, kept.until) == Amounts(kept_ms=3_600_000, cost=1_000)


def test_without_a_price_for_it_rest_is_not_counted(world: World):
    priced(world, CostModel(cpu_hour=1.0))
    sandbox = world.create()
    world.deliver_all()
    world.clock.advance(60)
    moves.ask(world.core, world.caller, sandbox, MoveKind.STOP)
    world.deliver_all()
    assert world.status(sandbox) is Status.STOPPED
    assert world.sandbox(sandbox).meter is None
    world.pass_time(3600)
    world.delete(sandbox)
    world.deliver_all()
    assert [seconds(entry) for entry in intervals(world, sandbox)] == [60.0]


def test_waiting_costs_nothing_and_each_try_is_counted_apart(world: World):
    """daytonaio/daytona#5142: what failed to start was billed on."""
    priced(world)
    world.pools.backend("pool").expect(Operation.CREATE, Refuse(InsufficientCapacity("full", settled=True)))
    sandbox = world.create()
    world.deliver_all()
    assert world.status(sandbox) is Status.QUEUED
    assert world.sandbox(sandbox).meter is None
    tried = [seconds(entry) for entry in intervals(world, sandbox)]
    for _ in range(5):
        world.pass_time(30)
    assert world.status(sandbox) is Status.RUNNING
    assert [seconds(entry) for entry in intervals(world, sandbox)] == tried
    meter = world.sandbox(sandbox).meter
    assert meter is not None
    assert meter.since > world.sandbox(sandbox).created_at


def test_a_failed_sandbox_is_counted_until_it_failed(world: World):
    priced(world)
    backend = world.pools.backend("pool")
    sandbox = world.create()
    world.clock.advance(7)
    backend.expect(Operation.CREATE, *[Refuse(SandboxFailed("no such image", settled=True))] * 3)
    world.deliver_all()
    for _ in range(10):
        world.pass_time(30)
    total = sum(seconds(entry) for entry in intervals(world, sandbox))
    assert world.status(sandbox) is Status.FAILED
    assert 7 <= total < 120
    world.pass_time(3600)
    assert sum(seconds(entry) for entry in intervals(world, sandbox)) == total


def test_a_backend_that_cannot_remove_it_is_not_at_its_tenant_s_expense(world: World):
    priced(world)
    sandbox = world.create()
    world.deliver_all()
    world.clock.advance(60)
    world.pools.backend("pool").expect(Operation.DELETE, *[Refuse(ProviderUnavailable("down", settled=True))] * 9)
    world.delete(sandbox)
    world.deliver_all()
    assert world.status(sandbox) is Status.TERMINATING
    for _ in range(5):
        world.pass_time(300)
    assert [seconds(entry) for entry in intervals(world, sandbox)] == [60.0]


def test_a_new_price_counts_from_the_next_admission_on(world: World):
    priced(world)
    first = world.create()
    priced(world, CostModel())
    second = world.create()
    world.deliver_all()
    world.clock.advance(10)
    for sandbox in (first, second):
        world.delete(sandbox)
    world.deliver_all()
    assert [entry.currency for sandbox in (first, second) for entry in intervals(world, sandbox)] == ["EUR", None]


def test_a_clock_that_goes_back_leaves_neither_gap_nor_overlap(world: World):
    priced(world)
    sandbox = world.create()
    world.deliver_all()
    world.clock.advance(60)
    moves.ask(world.core, world.caller, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    world.clock.advance(-30)
    moves.ask(world.core, world.caller, sandbox, MoveKind.RESUME)
    world.deliver_all()
    world.clock.advance(100)
    world.delete(sandbox)
    world.deliver_all()
    ran, again = intervals(world, sandbox)
    assert ran.until == again.since
    assert seconds(ran) + seconds(again) == 130.0


def test_a_clock_that_goes_back_while_it_is_not_counted_counts_nothing_twice(world: World):
    """Found by the simulator (seed 2018): woken by a clock that was behind the end of its last interval."""
    priced(world, CostModel(cpu_hour=1.0))
    sandbox = world.create()
    world.deliver_all()
    world.clock.advance(60)
    moves.ask(world.core, world.caller, sandbox, MoveKind.STOP)
    world.deliver_all()
    world.clock.advance(-3)
    moves.ask(world.core, world.caller, sandbox, MoveKind.START)
    world.deliver_all()
    world.clock.advance(100)
    world.delete(sandbox)
    world.deliver_all()
    ran, again = intervals(world, sandbox)
    assert again.since == ran.until


def test_what_changes_the_count_cannot_be_written_without_its_interval(world: World):
    sandbox = world.create()
    world.deliver_all()
    found = world.sandbox(sandbox)
    with pytest.raises(ValueError, match="changes what is counted"):
        write(found, found.with_(reservation=None))


def test_a_batch_that_wakes_priced_sandboxes_fits_one_transaction(monkeypatch: pytest.MonkeyPatch):
    """Each of them has one row more, so fewer go at once; none is left out."""
    roomy = Limits(total=Size(sandboxes=1000, cpu_millis=UNLIMITED, memory_mib=UNLIMITED, disk_gib=UNLIMITED))
    world = World()
    world.add_pool(concurrency=100)
    priced(world)
    tenants = [world.add_tenant(org=roomy, project=roomy) for _ in range(13)]
    sleepers: list[SandboxId] = []
    for number in range(dispatch.BATCH_MAX):
        world.caller = world.tenant(*tenants[number % len(tenants)])
        sleepers.append(world.create())
    world.deliver_all()
    callers = [world.tenant(*tenants[number % len(tenants)]) for number in range(dispatch.BATCH_MAX)]
    for sandbox, caller in zip(sleepers, callers, strict=True):
        moves.ask(world.core, caller, sandbox, MoveKind.STOP)
    world.deliver_all()
    world.clock.advance(60)
    blocker = world.counter(Scope.POOL, "pool")
    world.core.store.transact([Update(type(blocker), blocker.key(), "c", set={"waiting": 1})])
    for sandbox, caller in zip(sleepers, callers, strict=True):
        moves.ask(world.core, caller, sandbox, MoveKind.START)
    assert {world.status(sandbox) for sandbox in sleepers} == {Status.QUEUED}
    sizes: list[int] = []
    plain = world.memory.transact

    def noted(actions: Sequence[Action]) -> Outcome:
        sizes.append(len(actions))
        return plain(actions)

    monkeypatch.setattr(world.memory, "transact", noted)
    assert dispatch.dispatch(world.core).admitted == dispatch.BATCH_MAX
    assert max(sizes) <= ACTIONS_MAX
    assert max(sizes) > ACTIONS_MAX - 5


def _interval(since: datetime, until: datetime, **facts: object) -> Interval:
    return Interval.model_validate(
        {
            "org": OrgId("org_1"), "project": ProjectId("proj_1"), "sandbox": SandboxId("sbx_1"), "pool": "pool",
            "key_id": KeyId("key_1"), "since": since, "until": until, **facts,
        }
    )  # fmt: skip


@given(
    cuts=st.lists(st.integers(0, 10**9), min_size=1, max_size=6), cpu=st.integers(1, 64_000),
    memory=st.integers(0, 10**6), price=st.integers(0, 10**9), kept=st.booleans(),
)  # fmt: skip
def test_parts_add_up_to_the_whole_to_the_last_millionth(
    cuts: list[int], cpu: int, memory: int, price: int, kept: bool
):
    whole = _interval(
        NOON, NOON + timedelta(microseconds=10**9), cpu_millis=cpu, memory_mib=memory, kept=kept,
        price=Price(currency="USD", cpu_hour=price, memory_gib_hour=price // 7, kept_hour=price),
    )  # fmt: skip
    edges = [NOON + timedelta(microseconds=cut) for cut in sorted({0, *cuts, 10**9})]
    parts = [whole.within(begin, end) for begin, end in itertools.pairwise(edges)]
    assert sum(parts, Amounts()) == whole.within(whole.since, whole.until)


def test_the_days_of_an_interval_end_with_its_last_microsecond():
    midnight = datetime(2026, 3, 2, tzinfo=UTC)
    assert _interval(NOON, midnight).days() == [date(2026, 3, 1)]
    assert _interval(NOON, midnight + timedelta(microseconds=1)).days() == [date(2026, 3, 1), date(2026, 3, 2)]


def test_a_promise_is_rounded_up_and_the_unknown_is_no_price():
    price = Price.of(CostModel(cpu_hour=0.05))
    assert price is not None
    assert price.memory_gib_hour == 0
    assert cost_of(price, Size(cpu_millis=1000), timedelta(hours=1)) == 50_000
    assert cost_of(price, Size(cpu_millis=1), timedelta(microseconds=1)) == 1
    assert cost_of(None, Size(cpu_millis=1000), timedelta(hours=1)) == 0
    assert Price.of(CostModel()) is None
    assert Price.of(CostModel(cpu_hour=0.0)) is not None, "for free is known"


def test_an_interval_lies_in_its_organization_by_its_end():
    key = _interval(NOON, NOON + timedelta(seconds=1)).key()
    assert key == Key(Interval.table, "USE#org_1", "2026-03-01T12:00:01.000000Z#sbx_1")
    assert Sandbox.key_of(SandboxId("sbx_1")) != key
