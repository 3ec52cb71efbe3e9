"""Waiting ends when what was waited for is there, cannot come any more, or time is up."""

from __future__ import annotations

import logging

import pytest

from differently_core.model.sandbox import Status
from differently_core.operations import worker
from differently_core.operations.sandboxes import wait
from tests.support.world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.add_pool()
    return made


def looks(world: World, sandbox: str, *targets: Status, seconds: float = 60) -> list[Status]:
    """Each status that a wait sees, while messages are delivered between two looks."""
    seen = []
    for found in wait(world.core, world.caller, sandbox, frozenset(targets), seconds):
        seen.append(found.status)
        world.deliver_all()
    return seen


def test_it_ends_with_the_state_that_was_waited_for(world: World) -> None:
    assert looks(world, world.create(), Status.RUNNING) == [Status.PROVISIONING, Status.RUNNING]


def test_a_sandbox_that_is_going_will_not_run_any_more(world: World) -> None:
    sandbox = world.create()
    world.delete(sandbox)
    assert looks(world, sandbox, Status.RUNNING) == [Status.TERMINATING]


def test_the_end_itself_can_be_waited_for(world: World) -> None:
    sandbox = world.create()
    world.delete(sandbox)
    assert looks(world, sandbox, Status.TERMINATED) == [Status.TERMINATING, Status.TERMINATED]


def test_it_ends_when_time_is_up(world: World) -> None:
    sandbox = world.create()
    world.lose_messages()
    began = world.clock.monotonic()
    assert set(looks(world, sandbox, Status.RUNNING, seconds=1)) == {Status.PROVISIONING}
    assert world.clock.monotonic() - began == pytest.approx(1)


def test_a_message_about_a_sandbox_that_has_ended_is_nothing_to_warn_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = world.create()
    world.delete(sandbox)
    world.deliver_all()
    assert world.status(sandbox) is Status.TERMINATED
    worker.step(world.core, sandbox)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
