"""Waiting: who gets in when, who gives up when, and that nobody overtakes."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend
from differently_core.errors import InsufficientCapacity, QueueFull, QuotaExceeded
from differently_core.model.pool import PoolState
from differently_core.model.queue import QueueRow
from differently_core.model.quota import Counter, Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import Status
from differently_core.operations import pool_release, pools, sandboxes, tenants, worker
from differently_core.operations.core import Caller
from differently_core.operations.create import create
from differently_core.operations.dispatch import _drop_strays, dispatch
from differently_core.operations.requests import CreateSandbox, UpdateSandbox
from differently_core.quotas.fairness import Admission
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Update
from tests.support.interruptions import Interrupted
from tests.support.world import OPERATOR, World


def up_to(sandboxes: int, **limits: Any) -> Limits:
    return Limits(total=Size.unlimited().model_copy(update={"sandboxes": sandboxes}), **limits)


def created(world: World, caller: Caller, **request: Any) -> SandboxId:
    return create(world.core, caller, CreateSandbox.model_validate(request)).sandbox


@pytest.fixture
def full(world: World) -> SandboxId:
    """The only slot of the only pool is taken by this one."""
    world.add_pool(concurrency=1)
    sandbox = world.create()
    world.deliver_all()
    return sandbox


# The way in.


def test_without_room_a_create_waits_and_holds_nothing(world: World, full: SandboxId):
    waiting = world.create()
    world.deliver_all()

    found = world.sandbox(waiting)
    assert (found.status, found.reservation) == (Status.QUEUED, None)
    assert world.held(Scope.ORG, world.org.id) == 1
    assert [row.sandbox for row in world.rows(QueueRow)] == [waiting]


def test_what_is_freed_goes_to_the_one_that_waits(world: World, full: SandboxId):
    waiting = world.create()
    world.delete(full)
    world.deliver_all()

    assert (world.status(full), world.status(waiting)) == (Status.TERMINATED, Status.RUNNING)
    assert world.rows(QueueRow) == []


def test_a_lost_message_costs_a_sweep_and_no_more(world: World, full: SandboxId):
    waiting = world.create()
    world.delete(full)
    world.deliver_all()
    world.lose_messages()
    later = world.create()
    world.delete(waiting)
    world.lose_messages()

    world.pass_time(60)

    assert world.status(later) is Status.RUNNING


def test_the_oldest_of_the_highest_priority_goes_first(world: World, full: SandboxId):
    low = world.create(priority=0)
    world.clock.advance(1)
    high = world.create(priority=9)
    world.clock.advance(1)
    also_high = world.create(priority=9)

    order = []
    for leaving in (full, high, also_high):
        world.delete(leaving)
        world.deliver_all()
        order.append(next(one for one in (low, high, also_high) if world.status(one) is Status.RUNNING))

    assert order == [high, also_high, low]


def test_organizations_take_turns(world: World):
    """One that has three waiting does not keep out one that came last with one."""
    world.add_pool(concurrency=2)
    taken = [world.create(), world.create()]
    busy = [world.create() for _ in range(3)]
    other = created(world, world.tenant(*world.add_tenant()))
    for leaving in taken:
        world.delete(leaving)
    world.deliver_all()

    assert [world.status(one) for one in (*busy, other)] == [
        Status.RUNNING, Status.QUEUED, Status.QUEUED, Status.RUNNING,
    ]  # fmt: skip


def test_one_run_admits_everything_that_fits(world: World, backend: FakeBackend):
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    waiting = [world.create() for _ in range(10)]
    world.lose_messages()
    pools.set_state(world.core, OPERATOR, "pool", PoolState.ACTIVE)
    world.lose_messages()

    report = dispatch(world.core)

    assert (report.admitted, report.waiting) == (10, 0)
    world.deliver_all()
    assert {world.status(one) for one in waiting} == {Status.RUNNING}


def test_a_long_backlog_hides_no_other_organization(world: World, backend: FakeBackend):
    """Its first fifty rows fill a page; the next organization is found behind them all the same."""
    for _ in range(3):
        busy = world.tenant(*world.add_tenant(org=up_to(1)))
        for _ in range(121):
            created(world, busy)
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    others = [created(world, world.tenant(*world.add_tenant())) for _ in range(4)]
    pools.set_state(world.core, OPERATOR, "pool", PoolState.ACTIVE)

    dispatch(world.core)

    assert {world.status(one) for one in others} == {Status.PROVISIONING}


def test_more_than_a_batch_goes_in_several_transactions(world: World):
    world.add_pool(concurrency=100)
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    for _ in range(60):
        world.create()
    pools.set_state(world.core, OPERATOR, "pool", PoolState.ACTIVE)

    assert dispatch(world.core).admitted == 60


@pytest.mark.parametrize("whose", ["org", "project"])
def test_a_raised_limit_lets_in_who_waits(world: World, backend: FakeBackend, whose: str):
    limits = {whose: up_to(1)}
    org, project = world.add_tenant(**limits)
    caller = world.tenant(org, project)
    created(world, caller)
    waiting = created(world, caller)
    world.deliver_all()
    assert world.status(waiting) is Status.QUEUED

    tenants.set_quota(world.core, OPERATOR, org.id, project.id if whose == "project" else None, up_to(2))
    world.deliver_all()

    assert world.status(waiting) is Status.RUNNING


def test_a_lowered_limit_ends_nothing_and_admits_nothing(world: World, backend: FakeBackend):
    running = [world.create() for _ in range(3)]
    world.deliver_all()
    tenants.set_quota(world.core, OPERATOR, world.org.id, None, up_to(1))
    waiting = world.create()
    world.deliver_all()

    assert {world.status(one) for one in running} == {Status.RUNNING}
    assert world.counter(Scope.ORG, world.org.id).free_sandboxes == -2
    for leaving in running:
        assert world.status(waiting) is Status.QUEUED
        world.delete(leaving)
        world.deliver_all()
    assert world.status(waiting) is Status.RUNNING


def test_a_draining_pool_takes_nothing_and_keeps_what_runs(world: World, backend: FakeBackend):
    running = world.create()
    world.deliver_all()
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    waiting = world.create()
    world.deliver_all()
    assert (world.status(running), world.status(waiting)) == (Status.RUNNING, Status.QUEUED)

    pools.set_state(world.core, OPERATOR, "pool", PoolState.ACTIVE)
    world.deliver_all()

    assert world.status(waiting) is Status.RUNNING


# Patience.


@pytest.mark.parametrize(
    ("asked", "given_up_after"),
    [(5, 5), (60, 60), (None, 3600)],
    ids=["five seconds", "a minute", "an hour unless said otherwise"],
)
def test_patience_ends_at_its_time(world: World, full: SandboxId, asked: int | None, given_up_after: int):
    waiting = world.create(queueTimeoutSeconds=asked)

    world.pass_time(given_up_after - 1)
    assert world.status(waiting) is Status.QUEUED
    world.pass_time(1)

    found = world.sandbox(waiting)
    assert found.status is Status.FAILED
    assert found.reason is not None
    assert (found.reason.code, found.reason.source) == ("queue_timeout", "timer")
    assert world.rows(QueueRow) == []


def test_a_delete_takes_it_out_of_the_queue(world: World, full: SandboxId):
    waiting = world.create()
    world.delete(waiting)
    world.deliver_all()

    assert world.status(waiting) is Status.TERMINATED
    assert world.rows(QueueRow) == []


@pytest.mark.parametrize("whose", ["org", "project"])
def test_one_who_does_not_want_to_wait_is_told_which_quota_is_used_up(world: World, backend: FakeBackend, whose: str):
    limits = {whose: up_to(1)}
    caller = world.tenant(*world.add_tenant(**limits))
    created(world, caller)

    with pytest.raises(QuotaExceeded) as refused:
        created(world, caller, queueTimeoutSeconds=0)

    assert refused.value.details == {"scope": whose, "resource": "sandboxes", "limit": 1, "held": 1}


def test_one_who_does_not_want_to_wait_is_told_that_the_pool_is_full(world: World, full: SandboxId):
    with pytest.raises(InsufficientCapacity, match="pool pool is full"):
        world.create(queueTimeoutSeconds=0)


def test_one_who_does_not_want_to_wait_is_offered_every_pool(world: World, full: SandboxId):
    """The cheaper pool is full, the dearer one has room: that is no reason to refuse."""
    world.add_pool("dear", cpu_hour=1.0)

    sandbox = world.create(queueTimeoutSeconds=0)

    assert world.sandbox(sandbox).pool == "dear"


def test_a_pool_that_was_removed_meanwhile_is_no_fault(world: World, backend: FakeBackend):
    """The catalog still names it, its counter is gone."""
    world.core.catalog._seconds = 5.0
    world.core.catalog.pools()
    catalog = world.core.catalog
    cached = dict(catalog._cache)
    pool_release.remove(world.core, OPERATOR, "pool")
    catalog._cache.update(cached)

    waiting = world.create()

    assert world.status(waiting) is Status.QUEUED
    assert catalog.pools().pools == {}


# Nobody overtakes, and nobody is held up by nobody.


def test_a_later_create_does_not_overtake_one_that_waits(world: World, full: SandboxId):
    """A slot is free for a moment, but somebody waits for the pool: the newcomer goes behind."""
    waiting = world.create()
    world.deliver_all()
    assert world.counter(Scope.POOL, "pool").waiting == 1
    world.delete(full)
    worker.step(world.core, full)
    world.lose_messages()

    newcomer = world.create()

    assert world.status(newcomer) is Status.QUEUED
    world.deliver_all()
    assert (world.status(waiting), world.status(newcomer)) == (Status.RUNNING, Status.QUEUED)


def test_marks_go_when_nobody_waits_any_more(world: World, full: SandboxId):
    waiting = world.create()
    world.deliver_all()
    world.delete(full)
    world.deliver_all()

    assert world.status(waiting) is Status.RUNNING
    marks = [world.counter(scope, name).waiting for scope, name in _scopes(world)]
    assert marks == [None, None, None]


@pytest.mark.parametrize("way_out", ["deleted", "lost patience"])
def test_marks_go_with_the_last_one_that_waited_for_them(world: World, backend: FakeBackend, way_out: str):
    """Nobody of this organization is in the queue any more, so dispatch does not look at its counters."""
    org, project = world.add_tenant(org=up_to(1))
    caller = world.tenant(org, project)
    created(world, caller)
    waiting = created(world, caller, queueTimeoutSeconds=50)
    world.deliver_all()
    assert world.counter(Scope.ORG, org.id).waiting == 1
    tenants.set_quota(world.core, OPERATOR, org.id, None, up_to(2))
    world.lose_messages()

    if way_out == "deleted":
        sandboxes.delete(world.core, caller, waiting)
        world.deliver_all()
    else:
        world.pass_time(50)

    assert world.counter(Scope.ORG, org.id).waiting is None
    assert world.status(created(world, caller, queueTimeoutSeconds=0)) is Status.PROVISIONING


def test_a_mark_that_a_crash_left_behind_refuses_nobody(world: World, backend: FakeBackend):
    for scope, name in _scopes(world)[:2]:
        key = Counter.key_of(scope, name)
        world.memory.transact([Update(Counter, key, "mark", set={"waiting": 10_000})])

    sandbox = world.create(queueTimeoutSeconds=0)

    assert world.status(sandbox) is Status.PROVISIONING


def test_a_mark_that_a_crash_left_behind_is_no_full_backlog(world: World, backend: FakeBackend):
    key = Counter.key_of(Scope.ORG, world.org.id)
    world.memory.transact([Update(Counter, key, "mark", set={"waiting": 10_000})])

    assert world.status(world.create()) is Status.PROVISIONING


def test_a_full_backlog_refuses(world: World, backend: FakeBackend):
    org, project = world.add_tenant(org=up_to(1, queued_max=2))
    caller = world.tenant(org, project)
    for _ in range(3):
        created(world, caller)
    world.deliver_all()

    with pytest.raises(QueueFull) as refused:
        created(world, caller)

    assert refused.value.details == {"scope": "org", "waiting": 2, "limit": 2}


# Races that dispatch must survive.


def test_a_stray_row_is_dropped(world: World, full: SandboxId):
    waiting = world.create()
    world.delete(waiting)
    world.delete(full)
    worker.step(world.core, full)

    dispatch(world.core)

    assert world.rows(QueueRow) == []


def test_a_row_is_no_stray_when_its_sandbox_is_back_in_the_queue(world: World, full: SandboxId):
    """Dispatch saw it admitted by another run; since then it has come back, under the same row."""
    waiting = world.create()
    (row,) = world.rows(QueueRow)

    _drop_strays(world.core, [Admission(row, "pool")])

    assert world.rows(QueueRow) == [row]
    assert world.status(waiting) is Status.QUEUED


def test_an_update_just_before_an_admission_costs_another_round(interrupted: tuple[World, Interrupted]):
    world, store = interrupted
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    waiting = world.create()
    pools.set_state(world.core, OPERATOR, "pool", PoolState.ACTIVE)
    change = UpdateSandbox(labels={"n": "1"})
    store.before(f"sandbox:{waiting}", lambda: sandboxes.update(world.core, world.caller, waiting, change))

    assert dispatch(world.core).admitted == 1

    assert (world.status(waiting), world.sandbox(waiting).labels) == (Status.PROVISIONING, {"n": "1"})


def test_a_delete_just_before_an_admission_wins(interrupted: tuple[World, Interrupted]):
    world, store = interrupted
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    waiting, other = world.create(), world.create()
    pools.set_state(world.core, OPERATOR, "pool", PoolState.ACTIVE)
    store.before(f"sandbox:{waiting}", lambda: world.delete(waiting))

    assert dispatch(world.core).admitted == 1

    assert (world.status(waiting), world.status(other)) == (Status.TERMINATING, Status.PROVISIONING)
    assert [row.sandbox for row in world.rows(QueueRow)] == [], "its row was a stray"


@pytest.fixture
def interrupted() -> tuple[World, Interrupted]:
    stores: list[Interrupted] = []

    def wrap(memory: MemoryStore) -> Interrupted:
        stores.append(Interrupted(memory))
        return stores[0]

    world = World(wrap=wrap)
    world.add_pool()
    return world, stores[0]


def _scopes(world: World) -> list[tuple[Scope, str]]:
    return [(Scope.ORG, world.org.id), (Scope.PROJECT, world.project.id), (Scope.POOL, "pool")]
