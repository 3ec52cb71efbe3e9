"""The production operations hold every invariant under faults, and come to rest when the faults end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from differently_adapters.providers.fake import Refuse
from differently_core.contract import Operation
from differently_core.errors import InvalidRequest
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.operations import moves, moving
from differently_core.operations.create import create
from differently_core.operations.requests import CreateSandbox

from .closings import ClosingSimulation
from .coverage import EXPECTED, missed, table
from .processes import Violation
from .regressions import REGRESSIONS
from .simulation import Failed, Simulation, run

SEEDS = 50
CLOSING_SEEDS = 8
STEPS = 2000
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_invariants_hold_and_everything_ends(seed: int):
    run(seed, STEPS)


@pytest.mark.parametrize("seed", range(1, CLOSING_SEEDS + 1))
def test_what_is_closed_ends_and_holds_nothing(seed: int):
    run(seed, STEPS, ClosingSimulation)


@pytest.mark.parametrize(("seed", "steps"), REGRESSIONS, ids=lambda value: str(value))
def test_what_was_wrong_once_stays_right(seed: int, steps: int):
    run(seed, steps)


def test_a_seed_repeats_exactly_in_another_process_with_another_hash_seed():
    told = [_digests(hash_seed) for hash_seed in ("1", "2")]
    assert told[0] == told[1]
    assert len(set(told[0])) == 3, "three seeds tell three stories"


def _digests(hash_seed: str) -> list[str]:
    code = "from tests.simulation.simulation import run\nfor seed in (1, 2, 3): print(run(seed, 400).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


def test_a_violation_is_told_with_seed_step_and_story():
    """A store that forgets to charge a counter is found at once, and the report says how to repeat it."""
    with pytest.raises(Failed, match=r"(?s)seed 1, step \d+: .*I5.*--seeds 1 --steps"):
        _run_with_a_counter_that_drifts()


def _run_with_a_counter_that_drifts() -> None:
    simulation = Simulation(1)
    held = simulation.world.monitor.held
    try:
        for name in held:
            held[name] = tuple(amount + 1 for amount in held[name])
        simulation.run(50)
    except BaseException as violation:
        raise Failed(simulation.story(violation)) from violation
    finally:
        simulation.world.conductor.close()


@pytest.mark.parametrize(
    ("name", "instead"), [("confined", lambda *_: ""), ("_rest_again", moving._back)], ids=["as running", "at rest"]
)
def test_one_that_wakes_unconfined_is_a_violation(monkeypatch: pytest.MonkeyPatch, name: str, instead: object):
    """The fault that was: its rules could not be set, and it was shown at rest while it ran."""
    simulation = Simulation(1)
    world, client = simulation.world, simulation.world.clients[0]
    simulation._heal()
    for backend in world.backends:
        backend.keeps_egress, backend.move_seconds = False, 0.0
    try:
        asked = CreateSandbox.model_validate({"ttl_seconds": 3000, "egress": {"allow": ["example.com"]}})
        sandbox = create(world.core, client.caller, asked, None).sandbox
        for kind, status in (
            (None, Status.RUNNING),
            (MoveKind.STOP, Status.STOPPED),
            (MoveKind.START, Status.STARTING),
        ):
            if kind is not None:
                moves.ask(world.core, client.caller, sandbox, kind)
            if kind is not MoveKind.START:
                for _ in range(5):
                    simulation._round(1.0)
            row = world.monitor.rows[Sandbox.key_of(sandbox)]
            assert isinstance(row, Sandbox)
            assert row.status is status
        for backend in world.backends:
            backend.expect(Operation.EGRESS_SET, Refuse(InvalidRequest("There is no such rule.")))
        monkeypatch.setattr(moving, name, instead)
        with pytest.raises(Violation, match="I16"):
            simulation._round(1.0)
    finally:
        world.conductor.close()


def test_the_table_names_what_was_never_hit():
    assert missed({}) == list(EXPECTED)
    assert missed(dict.fromkeys(EXPECTED, 1)) == []
    assert "         0  fault pool_down" in table({})
