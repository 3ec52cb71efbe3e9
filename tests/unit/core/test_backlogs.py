"""A bound that an operator set on who waits is exact: also for many at once, and every place comes back once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from differently_adapters.providers.fake import FakeBackend
from differently_core.errors import QueueFull
from differently_core.model.queue import Backlog
from differently_core.model.quota import Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import MoveKind, Status
from differently_core.operations import moves, recount, sandboxes, tenants
from differently_core.operations.core import Caller
from differently_core.operations.create import create
from differently_core.operations.requests import CreateSandbox
from differently_core.runtime.ids import SandboxId
from differently_core.store.ports import Update
from tests.support.world import OPERATOR, World

ONE = Size.unlimited().model_copy(update={"sandboxes": 1})


@pytest.fixture
def world() -> World:
    """One place to run; two may wait in the project."""
    made = World()
    made.add_pool(backend=FakeBackend(made.clock))
    tenants.set_quota(made.core, OPERATOR, made.org.id, None, Limits(total=ONE))
    bound(made, 2)
    return made


def bound(world: World, most: int | None, scope: Scope = Scope.PROJECT) -> None:
    project = world.project.id if scope is Scope.PROJECT else None
    total = Limits().total if project is not None else ONE
    tenants.set_quota(world.core, OPERATOR, world.org.id, project, Limits(total=total, backlog_max=most))


def backlog(world: World, scope: Scope = Scope.PROJECT) -> Backlog:
    name = world.project.id if scope is Scope.PROJECT else world.org.id
    found = world.memory.get(Backlog, Backlog.key_of(scope, name))
    assert found is not None
    return found


def full(world: World, **request: object) -> list[SandboxId]:
    """One that runs, and as many that wait as may."""
    made = [world.create(**request) for _ in range(3)]
    world.deliver_all()
    assert [world.status(sandbox) for sandbox in made] == [Status.RUNNING, Status.QUEUED, Status.QUEUED]
    assert backlog(world).waiting == 2
    return made


@pytest.mark.parametrize("scope", [Scope.PROJECT, Scope.ORG])
def test_one_more_is_refused_with_what_to_do(world: World, scope: Scope):
    if scope is Scope.ORG:
        bound(world, None)
        bound(world, 2, Scope.ORG)
    for _ in range(3):
        world.create()
    with pytest.raises(QueueFull) as refused:
        world.create()
    assert refused.value.details == {"scope": scope.value, "waiting": 2, "limit": 2}
    assert "maxQueued" in refused.value.message
    assert refused.value.reaction.retry == "later"
    other = world.tenant(*world.add_tenant())
    assert create(world.core, other, CreateSandbox()).sandbox, "others are not concerned"


def test_many_at_once_never_pass_it(world: World):
    """Sixteen threads over the store that cancels transactions that overlap."""
    bound(world, 5)

    def attempt(number: int) -> str:
        try:
            return world.status(world.create())
        except QueueFull as error:
            return error.code

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(attempt, range(40)))
    assert answers.count(Status.QUEUED) == 5
    assert answers.count("queue_full") == 40 - 5 - answers.count(Status.PROVISIONING)
    assert answers.count(Status.PROVISIONING) <= 1
    assert backlog(world).waiting == 5


@pytest.mark.parametrize("way_out", ["admitted", "deleted", "out of patience"])
def test_a_place_comes_back_once(world: World, way_out: str):
    running, first, _ = full(world, queueTimeoutSeconds=600)
    if way_out == "admitted":
        world.delete(running)
    elif way_out == "deleted":
        world.delete(first)
    else:
        world.clock.advance(601)
    world.deliver_all()
    for _ in range(3):
        world.pass_time(60)
        for sandbox in (running, first):
            sandboxes.delete(world.core, world.caller, sandbox) if way_out == "deleted" and sandbox is first else None
    waiting = [row for row in world.memory.rows().values() if getattr(row, "status", None) is Status.QUEUED]
    assert backlog(world).waiting == len(waiting) == (0 if way_out == "out of patience" else 1)
    assert world.status(world.create()) in (Status.QUEUED, Status.PROVISIONING)


def test_a_wake_takes_a_place_and_is_refused_without_one(world: World):
    sandbox = world.create()
    world.deliver_all()
    moves.ask(world.core, world.caller, sandbox, MoveKind.STOP)
    world.deliver_all()
    full(world)
    with pytest.raises(QueueFull):
        moves.ask(world.core, world.caller, sandbox, MoveKind.START)
    assert (world.status(sandbox), backlog(world).waiting) == (Status.STOPPED, 2)
    bound(world, 3)
    assert moves.ask(world.core, world.caller, sandbox, MoveKind.START).status is Status.QUEUED
    assert backlog(world).waiting == 3
    assert moves.ask(world.core, world.caller, sandbox, MoveKind.STOP).status is Status.STOPPED
    assert backlog(world).waiting == 2


def test_where_nobody_may_wait_what_has_room_starts(world: World):
    bound(world, 0)
    assert world.status(world.create()) is Status.PROVISIONING
    with pytest.raises(QueueFull) as refused:
        world.create()
    assert refused.value.details == {"scope": "project", "waiting": 0, "limit": 0}


def test_a_lower_bound_ends_nobodys_wait_and_none_lets_everybody_in(world: World):
    full(world)
    bound(world, 1)
    assert backlog(world).free == -1
    with pytest.raises(QueueFull):
        world.create()
    bound(world, None)
    made = world.create()
    assert world.sandbox(made).backlogs == ()
    world.delete(made)
    world.deliver_all()
    assert backlog(world).waiting == 2


def test_without_a_bound_nothing_shared_is_written(world: World):
    bound(world, None)
    other = world.tenant(*world.add_tenant(org=Limits(total=ONE)))
    for _ in range(3):
        create(world.core, other, CreateSandbox())
    assert [row.name for row in world.rows(Backlog)] == [world.project.id]


def owner_drift(world: World, caller: Caller) -> int:
    return recount.recount(world.core, OPERATOR, world.org.id, world.project.id).queued_drift


def test_a_recount_puts_it_right(world: World):
    full(world)
    assert owner_drift(world, world.caller) == 0
    world.memory.transact([Update(Backlog, backlog(world).key(), "backlog", add={"free": 2, "moves": 1})])
    assert owner_drift(world, world.caller) == -2
    assert backlog(world).waiting == 2
    assert owner_drift(world, world.caller) == 0
