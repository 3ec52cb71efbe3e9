"""The production operations hold every invariant under faults, and come to rest when the faults end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .coverage import EXPECTED, missed, table
from .regressions import REGRESSIONS
from .simulation import Failed, Simulation, run

SEEDS = 50
STEPS = 2000
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_invariants_hold_and_everything_ends(seed: int):
    run(seed, STEPS)


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


def test_the_table_names_what_was_never_hit():
    assert missed({}) == list(EXPECTED)
    assert missed(dict.fromkeys(EXPECTED, 1)) == []
    assert "         0  fault pool_down" in table({})
