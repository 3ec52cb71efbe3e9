"""The list of planted faults is kept up with the code, and leaves no past fault out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant, planted
from .past_faults import ELSEWHERE, NOT_PLANTED, PAST

FEATURES = Path(__file__).parents[2] / "docs/reference/features.md"


@pytest.mark.parametrize("mutant", [*MUTANTS, *PAST.values()], ids=lambda mutant: mutant.what)
def test_each_can_be_planted(mutant: Mutant) -> None:
    """One whose text has changed finds nothing: write it anew, for the fault that it stands for."""
    assert planted(mutant), f"{mutant.file} does not hold {mutant.old!r}"
    assert mutant.new != mutant.old


def test_every_fault_of_the_past_is_planted_or_said_not_to_be() -> None:
    _, _, rest = FEATURES.read_text().partition("## Faults that became rules")
    told = set(re.findall(r"^\| ([0-9, ]+) \|", rest.partition("\n## ")[0], re.MULTILINE))
    known = {re.sub(r", [a-z]+$", "", fault) for fault in (*PAST, *ELSEWHERE, *NOT_PLANTED)} - {"ours"}
    assert {row.strip() for row in told} == known


def test_what_is_said_to_stand_elsewhere_does() -> None:
    assert set(ELSEWHERE.values()) <= {mutant.what for mutant in MUTANTS}
    assert len(MUTANTS) + len(PAST) >= 25
