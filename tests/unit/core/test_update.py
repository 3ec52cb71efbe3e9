"""Changing a sandbox: what is asked happens, what is not asked leaves no trace."""

from __future__ import annotations

import pytest

from differently_core.contract import InstanceState
from differently_core.model.event import Event
from differently_core.model.sandbox import Status
from differently_core.operations.reconcile import GRACE, reconcile
from differently_core.operations.requests import UpdateSandbox
from differently_core.operations.sandboxes import update
from tests.support.world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.add_pool()
    return made


def test_a_change_that_asks_for_nothing_writes_nothing(world: World) -> None:
    sandbox = world.create()
    world.deliver_all()
    before, events = world.sandbox(sandbox), len(world.rows(Event))

    assert update(world.core, world.caller, sandbox, UpdateSandbox()) == before

    assert world.sandbox(sandbox) == before
    assert len(world.rows(Event)) == events


def test_a_longer_life_counts_also_for_a_sandbox_that_its_backend_stopped(world: World) -> None:
    sandbox = world.create(ttlSeconds=100)
    world.deliver_all()
    world.pools.backend("pool").instances()[0].state = InstanceState.STOPPED
    for _ in range(2):
        reconcile(world.core, "pool")
        world.clock.advance(GRACE.total_seconds() + 1)
    assert world.status(sandbox) is Status.STOPPED

    update(world.core, world.caller, sandbox, UpdateSandbox(ttl_seconds=1000))
    world.pass_time(100)
    assert world.status(sandbox) is Status.STOPPED

    world.pass_time(900)
    assert world.status(sandbox) is Status.TERMINATED
