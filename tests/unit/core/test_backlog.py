"""A long queue starves nobody, and a full backend is not asked by everybody who waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend, Refuse
from differently_core.contract import Operation
from differently_core.errors import InsufficientCapacity, QueueFull
from differently_core.model.pool import PoolPressure, PoolState, PoolView
from differently_core.model.queue import Depth, QueueRow
from differently_core.model.quota import Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import Sandbox, Status
from differently_core.model.tenancy import Org
from differently_core.operations import pools, sandboxes, worker
from differently_core.operations.backlog import ORGS_MAX, ROWS_MAX
from differently_core.operations.core import Caller
from differently_core.operations.create import create
from differently_core.operations.dispatch import dispatch
from differently_core.operations.requests import CreateSandbox
from differently_core.runtime.ids import OrgId, SandboxId
from differently_core.store.ports import Delete, Put
from tests.support.builders import a_queue_row
from tests.support.world import OPERATOR, World

HERE, THERE = {"placement": {"allowedPools": ["pool"]}}, {"placement": {"allowedPools": ["other"]}}


@pytest.fixture
def two(world: World) -> World:
    """The only slot of `pool` is taken; `other` has one, which is taken too."""
    world.add_pool("pool", concurrency=1)
    world.add_pool("other", concurrency=1)
    for body in (HERE, THERE):
        world.create(**body)
    world.deliver_all()
    return world


def queue(world: World, count: int, body: Mapping[str, Any]) -> list[SandboxId]:
    """So many that wait, one after the other."""
    made = []
    for _ in range(count):
        world.clock.advance(0.001)
        made.append(world.create(**body))
    world.lose_messages()
    return made


def free(world: World, pool: str) -> None:
    """What runs there ends, and nobody has noticed yet."""
    (running,) = [row.id for row in world.rows(Sandbox) if row.pool == pool and row.status is Status.RUNNING]
    world.delete(running)
    worker.step(world.core, running)
    world.lose_messages()


@pytest.mark.parametrize("ahead", [ROWS_MAX - 1, ROWS_MAX, ROWS_MAX + 1, 130])
def test_what_can_go_is_found_behind_many_that_cannot(two: World, ahead: int):
    """Fifty that wait for a full pool hid the one behind them that waits for another."""
    queue(two, ahead, HERE)
    (last,) = queue(two, 1, THERE)
    free(two, "other")

    dispatch(two.core)

    assert two.status(last) is Status.PROVISIONING


def test_the_deepest_row_is_reached_in_a_bounded_number_of_runs(two: World):
    """Each run goes on where the last one stopped, in whatever process."""
    queue(two, 700, HERE)
    (last,) = queue(two, 1, THERE)
    free(two, "other")

    runs = 0
    while two.status(last) is not Status.PROVISIONING:
        dispatch(two.core)
        runs += 1

    assert runs == 4


def test_nobody_overtakes_one_that_was_not_looked_at(two: World):
    """The mark on a pool stays while its waiter may be among those that a run left out."""
    queue(two, ROWS_MAX + 250, HERE)
    (last,) = queue(two, 1, THERE)
    for _ in range(2):  # the run that sees it sets the mark
        dispatch(two.core)
    assert two.counter(Scope.POOL, "other").waiting
    dispatch(two.core)
    free(two, "other")

    (newcomer,) = queue(two, 1, THERE)

    assert two.status(newcomer) is Status.QUEUED
    for _ in range(4):
        dispatch(two.core)
    assert (two.status(last), two.status(newcomer)) == (Status.PROVISIONING, Status.QUEUED)


def test_more_organizations_than_one_run_looks_at_all_get_their_turn(world: World):
    """Also a batch of as many organizations as sandboxes, whose counters would not fit into one transaction."""
    world.add_pool("pool", concurrency=1)
    world.add_pool("other", concurrency=ORGS_MAX * 2)
    world.create(**HERE)
    world.deliver_all()
    pools.set_state(world.core, OPERATOR, "other", PoolState.DRAINING)
    waiting: list[SandboxId] = []
    for number in range(ORGS_MAX + 60):
        caller = world.tenant(*world.add_tenant())
        body = HERE if number < ORGS_MAX + 20 else THERE
        made = create(world.core, caller, CreateSandbox.model_validate(body)).sandbox
        waiting += [made] if body is THERE else []
    assert {world.status(one) for one in waiting} == {Status.QUEUED}
    pools.set_state(world.core, OPERATOR, "other", PoolState.ACTIVE)
    world.lose_messages()

    for _ in range(3):
        dispatch(world.core)

    assert {world.status(one) for one in waiting} == {Status.PROVISIONING}


def test_a_row_of_an_organization_that_is_gone_holds_up_nobody(two: World):
    """reliability.md I12: one poison record never blocks the others."""
    gone = a_queue_row(org=OrgId("org_01JBM2Y0G4S8N6P2Q7T3V5X9ZB"))
    two.memory.transact([Put(gone, (), "queue")])
    waiting = two.create(**HERE)
    two.lose_messages()
    free(two, "pool")

    dispatch(two.core)

    assert two.status(waiting) is Status.PROVISIONING
    assert two.memory.get(QueueRow, gone.key()) == gone


def test_an_organization_removed_meanwhile_is_no_fault(two: World):
    org, project = two.add_tenant()
    create(two.core, two.tenant(org, project), CreateSandbox.model_validate(HERE))
    two.memory.transact([Delete(Org, Org.key_of(org.id), "org")])
    two.lose_messages()

    assert dispatch(two.core).admitted == 0


# A full backend.


def full(times: int) -> list[Refuse]:
    return [Refuse(InsufficientCapacity("No node has room."))] * times


def test_a_full_backend_is_asked_by_one_at_a_time(world: World, backend: FakeBackend):
    """Each of those who wait asked every two seconds; now one asks for all of them."""
    backend.expect(Operation.CREATE, *full(1000))
    for _ in range(20):
        world.create()
    world.deliver_all()
    before = backend.calls[Operation.CREATE]
    for _ in range(30):
        world.pass_time(1)

    assert backend.calls[Operation.CREATE] - before <= 16
    assert {row.status for row in world.rows(Sandbox)} == {Status.QUEUED}
    view = world.memory.get(PoolView, PoolView.key_of("pool"))
    assert view is not None
    assert view.healthy


def test_when_one_finds_room_the_others_follow_at_once(world: World):
    backend = world.add_pool(concurrency=30)
    backend.expect(Operation.CREATE, *full(12))
    made = [world.create() for _ in range(12)]
    world.deliver_all()
    assert {world.status(one) for one in made} == {Status.QUEUED}

    world.pass_time(2.5)

    assert {world.status(one) for one in made} == {Status.RUNNING}


def test_a_full_backend_sends_work_elsewhere_meanwhile(world: World, backend: FakeBackend):
    world.add_pool("dear", cpu_hour=1.0)
    backend.expect(Operation.CREATE, *full(1))
    first = world.create()
    world.deliver_all()

    second = world.create()

    assert world.status(first) is Status.QUEUED
    assert world.sandbox(second).pool == "dear"


# What waits for a pool.


def test_pressure_is_noted_for_each_pool_and_told_when_it_is_over(two: World):
    for _ in range(3):
        two.create(resources={"cpu": 2, "memoryMiB": 1024}, **HERE)
    two.clock.advance(5)
    two.create(**THERE)
    two.deliver_all()

    found = {row.name: row for row in two.rows(PoolPressure)}
    assert (found["pool"].waiting, found["pool"].cpu_millis, found["pool"].memory_mib) == (3, 6000, 3072)
    assert found["other"].waiting == 1
    assert found["pool"].oldest_at is not None
    assert (two.clock.now() - found["pool"].oldest_at).total_seconds() >= 5

    free(two, "other")
    two.pass_time(60)
    two.pass_time(60)
    assert {row.name: row.waiting for row in two.rows(PoolPressure)} == {"pool": 3, "other": 0}


def test_what_its_own_quota_holds_up_presses_on_no_pool(world: World, backend: FakeBackend):
    one = Limits(total=Size.unlimited().model_copy(update={"sandboxes": 1}))
    org, project = world.add_tenant(org=one)
    caller = world.tenant(org, project)
    for _ in range(3):
        create(world.core, caller, CreateSandbox())
    world.deliver_all()

    assert world.rows(PoolPressure) == []


# How long it may be.


def short(world: World, queued_max: int) -> Caller:
    """A tenant that may have so many waiting."""
    org, project = world.add_tenant(org=Limits(queued_max=queued_max))
    return world.tenant(org, project)


def test_a_backlog_is_bounded_whatever_it_waits_for(two: World):
    """What waited for a full pool was not counted, so a backlog grew without end."""
    caller = short(two, 3)
    for _ in range(3):
        create(two.core, caller, CreateSandbox.model_validate(HERE))
        two.deliver_all()

    with pytest.raises(QueueFull) as refused:
        create(two.core, caller, CreateSandbox.model_validate(HERE))

    assert refused.value.details == {"scope": "org", "waiting": 3, "limit": 3}
    assert two.status(two.create(**HERE)) is Status.QUEUED, "others are not concerned"


def test_a_backlog_longer_than_one_look_is_counted_whole(two: World):
    caller = short(two, 120)
    for _ in range(120):
        two.clock.advance(0.001)
        create(two.core, caller, CreateSandbox.model_validate(HERE))
    two.lose_messages()
    dispatch(two.core)

    with pytest.raises(QueueFull) as refused:
        create(two.core, caller, CreateSandbox.model_validate(HERE))

    assert refused.value.details == {"scope": "org", "waiting": 120, "limit": 120}


@pytest.mark.parametrize("way_out", ["admitted", "deleted"])
def test_a_backlog_that_is_gone_refuses_nobody(two: World, way_out: str):
    caller = short(two, 1)
    waiting = create(two.core, caller, CreateSandbox.model_validate(HERE)).sandbox
    two.deliver_all()
    with pytest.raises(QueueFull):
        create(two.core, caller, CreateSandbox.model_validate(HERE))

    if way_out == "admitted":
        free(two, "pool")
        dispatch(two.core)
    else:
        sandboxes.delete(two.core, caller, waiting)
    two.deliver_all()

    assert two.status(create(two.core, caller, CreateSandbox.model_validate(HERE)).sandbox) is Status.QUEUED


def test_a_count_that_dispatch_left_behind_refuses_nobody_for_long(world: World, backend: FakeBackend):
    caller = short(world, 1)
    assert caller.org is not None
    world.memory.transact([Put(Depth(org=caller.org, waiting=1, at=world.clock.now()), (), "depth")])
    pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    world.lose_messages()
    with pytest.raises(QueueFull):
        create(world.core, caller, CreateSandbox())

    world.clock.advance(121)

    assert world.status(create(world.core, caller, CreateSandbox()).sandbox) is Status.QUEUED
