"""The list of planted faults is kept up with the code, and leaves no past fault out."""

from __future__ import annotations

import re
from pathlib import Path

from .mutants import MUTANTS, planted
from .past_faults import ELSEWHERE, NOT_PLANTED, PAST

FEATURES = Path(__file__).parents[2] / "docs/reference/features.md"


STALE_MAX = 3
"""So many may have lost their text to changes that met each other; running the list names them, and fails."""


def test_nearly_all_can_be_planted() -> None:
    """One whose text has changed finds nothing: write it anew, for the fault that it stands for."""
    stale = [mutant.what for mutant in (*MUTANTS, *PAST.values()) if not planted(mutant)]
    assert len(stale) <= STALE_MAX, stale
    assert all(mutant.new != mutant.old for mutant in (*MUTANTS, *PAST.values()))


def test_every_fault_of_the_past_is_planted_or_said_not_to_be() -> None:
    _, _, rest = FEATURES.read_text().partition("## Faults that became rules")
    told = set(re.findall(r"^\| ([0-9, ]+) \|", rest.partition("\n## ")[0], re.MULTILINE))
    known = {re.sub(r", [a-z]+$", "", fault) for fault in (*PAST, *ELSEWHERE, *NOT_PLANTED)} - {"ours"}
    assert {row.strip() for row in told} == known


def test_what_is_said_to_stand_elsewhere_does() -> None:
    assert set(ELSEWHERE.values()) <= {mutant.what for mutant in MUTANTS}
    assert len(MUTANTS) + len(PAST) >= 25
