"""The workflow `wait`, walked through with the real step: Wait, settle, Choice."""

from __future__ import annotations

import json
from typing import Any

from differently_adapters.providers.fake import FakeBackend
from differently_core.model.sandbox import Status
from differently_infra.stacks.workflow import states
from differently_scheduler import settle, worker
from differently_scheduler.messages import Step
from tests.infrastructure.conftest import Deployed
from tests.support.world import World

WORKER = "arn:aws:lambda:us-east-1:000000000000:function:differently-worker"


def run(world: World, given: dict[str, Any]) -> list[int]:
    """Follow the definition as Step Functions would; the seconds that it waited."""
    definition = states(WORKER)["States"]
    waited: list[int] = []
    at = "Wait"
    while definition[at]["Type"] != "Succeed":
        state = definition[at]
        if state["Type"] == "Wait":
            seconds = given[state["SecondsPath"].removeprefix("$.")]
            waited.append(seconds)
            world.clock.advance(seconds)
            at = state["Next"]
        elif state["Type"] == "Task":
            assert state["Resource"] == WORKER
            event = {
                name.removesuffix(".$"): given[value.removeprefix("$.")] if name.endswith(".$") else value
                for name, value in state["Parameters"].items()
            }
            answer = worker.handle(world.core, event)
            assert answer is not None
            given = json.loads(json.dumps(answer))
            at = state["Next"]
        else:
            (choice,) = state["Choices"]
            matches = given[choice["Variable"].removeprefix("$.")] is choice["BooleanEquals"]
            at = choice["Next"] if matches else state["Default"]
    return waited


def test_it_follows_a_slow_create_until_it_runs() -> None:
    world = World()
    world.add_pool(backend=FakeBackend(world.clock, pending_seconds=25.0))
    sandbox = world.create()
    started: list[dict[str, Any]] = []
    worker.handle(
        world.core, Step(sandbox=sandbox).event(),
        lambda sandbox, generation, seconds: started.append(
            {"sandbox": sandbox, "generation": generation, "seconds": seconds}
        ),
    )  # fmt: skip

    waited = run(world, started[0])

    assert world.status(sandbox) is Status.RUNNING
    assert 2 <= len(waited) <= 20
    assert all(settle.SECONDS_MIN <= seconds <= settle.SECONDS_MAX for seconds in waited)


def test_it_stays_below_the_events_that_an_execution_may_have() -> None:
    events_a_loop = 9
    loops = states(WORKER)["TimeoutSeconds"] / settle.SECONDS_MIN
    assert loops * events_a_loop < 25_000


def test_the_machine_invokes_the_worker_and_nothing_else(deployed: Deployed) -> None:
    (machine,) = deployed.resources("AWS::StepFunctions::StateMachine").values()
    assert machine["Properties"]["StateMachineName"] == "differently-wait"
    (statements,) = [entry for key, entry in deployed.statements().items() if key.startswith("workflow.")]
    (statement,) = statements
    assert statement["Action"] == "lambda:InvokeFunction"
