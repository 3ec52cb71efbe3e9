"""The workflow's step: it follows one intent of one sandbox until that is settled, and no longer."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import FakeBackend
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.operations import moves
from differently_core.runtime.ids import SandboxId
from differently_scheduler import tick, worker
from differently_scheduler.messages import Passes, Settle, Step
from tests.support.world import World

NOBODY = SandboxId("sbx_" + "0" * 26)


@pytest.fixture
def world() -> World:
    made = World()
    made.add_pool()
    return made


def look(world: World, sandbox: SandboxId, generation: int) -> dict[str, object]:
    answer = worker.handle(world.core, Settle(sandbox=sandbox, generation=generation).event())
    assert answer is not None
    return answer


def provisioning(world: World) -> Sandbox:
    """A sandbox that a worker has not taken up yet."""
    found = world.core.store.get(Sandbox, Sandbox.key_of(world.create()))
    assert found is not None
    assert found.status is Status.PROVISIONING
    return found


def test_a_look_steps_the_sandbox_and_tells_that_it_is_settled(world: World) -> None:
    made = provisioning(world)
    assert look(world, made.id, made.generation) == {
        "sandbox": made.id, "generation": made.generation, "settled": True, "seconds": 2,
    }  # fmt: skip
    assert world.status(made.id) is Status.RUNNING


def test_a_look_of_an_older_generation_does_nothing_and_ends(world: World) -> None:
    made = provisioning(world)
    assert look(world, made.id, made.generation + 1)["settled"] is True
    assert world.status(made.id) is Status.PROVISIONING


def test_a_sandbox_that_is_gone_or_rests_is_settled(world: World) -> None:
    assert look(world, NOBODY, 1)["settled"] is True
    made = provisioning(world)
    worker.handle(world.core, Step(sandbox=made.id).event())
    assert look(world, made.id, made.generation)["settled"] is True


def test_a_step_that_leaves_a_sandbox_on_its_way_starts_the_workflow() -> None:
    started: list[tuple[str, int, int]] = []
    world = World()
    world.add_pool(backend=FakeBackend(world.clock, pending_seconds=5.0))
    made = provisioning(world)
    worker.handle(world.core, Step(sandbox=made.id).event(), lambda *given: started.append(given))
    ((sandbox, generation, seconds),) = started
    assert (sandbox, generation) == (made.id, made.generation)
    assert 2 <= seconds <= 300
    assert look(world, made.id, made.generation)["settled"] is False
    world.clock.advance(6)
    assert look(world, made.id, made.generation)["settled"] is True
    assert world.status(made.id) is Status.RUNNING


def test_a_pause_that_takes_long_is_waited_for_under_its_own_generation_and_a_resume_ends_that() -> None:
    """DESIGN.md 5: whoever changes the intent has a workflow of their own; the one before sees it and ends."""
    started: list[tuple[str, int, int]] = []
    world = World()
    world.add_pool(backend=FakeBackend(world.clock, move_seconds=120.0))
    made = provisioning(world)
    worker.handle(world.core, Step(sandbox=made.id).event())
    pausing = moves.ask(world.core, world.caller, made.id, MoveKind.PAUSE)
    for _ in range(2):  # a message that came twice asks again under the same name
        worker.handle(world.core, Step(sandbox=made.id).event(), lambda *given: started.append(given))
    assert {given[:2] for given in started} == {(made.id, pausing.generation)}
    assert pausing.generation > made.generation
    assert look(world, made.id, pausing.generation)["settled"] is False

    moves.ask(world.core, world.caller, made.id, MoveKind.RESUME)
    assert look(world, made.id, pausing.generation)["settled"] is True
    assert world.status(made.id) is Status.PAUSING, "it looked at nothing: the intent is another one"


def test_the_workflow_alone_brings_a_long_pause_to_its_end() -> None:
    """As the machine does: wait as told, look, until it is settled; every other message is lost."""
    world = World()
    world.add_pool(backend=FakeBackend(world.clock, move_seconds=120.0))
    made = provisioning(world)
    worker.handle(world.core, Step(sandbox=made.id).event())
    pausing = moves.ask(world.core, world.caller, made.id, MoveKind.PAUSE)
    world.lose_messages()
    told: dict[str, object] = {"settled": False, "seconds": 2}
    looks = 0
    while not told["settled"]:
        world.clock.advance(float(str(told["seconds"])))
        told = look(world, made.id, pausing.generation)
        looks += 1
    assert world.status(made.id) is Status.PAUSED
    assert looks <= 70, "far from what one execution may do"


def test_a_step_that_settles_starts_none(world: World) -> None:
    started: list[object] = []
    made = provisioning(world)
    worker.handle(world.core, Step(sandbox=made.id).event(), lambda *given: started.append(given))
    assert not started


def test_the_tick_has_each_pool_reconciled_by_a_message_of_its_own(world: World) -> None:
    world.add_pool("second")
    sent: list[str] = []
    tick.handle(world.core, Passes().event(), sent.append)
    assert sorted(sent) == sorted(world.core.catalog.pools().pools)
    assert len(sent) == 2
