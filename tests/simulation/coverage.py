"""What runs have hit, as a table: every kind of fault, every transition, every answer."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping

from differently_core.model.sandbox import TRANSITIONS
from differently_core.model.snapshot import TRANSITIONS as SNAPSHOT_TRANSITIONS

from .weather import KINDS

EXPECTED = (
    *(f"fault {kind}" for kind in KINDS),
    "transition new -> queued",
    "transition new -> provisioning",
    *(
        f"transition {before.value} -> {after.value}"
        for before, targets in TRANSITIONS.items()
        for after in sorted(targets)
    ),
    "snapshot new -> creating",
    *(
        f"snapshot {before.value} -> {after.value}"
        for before, targets in SNAPSHOT_TRANSITIONS.items()
        for after in sorted(targets)
    ),
    "snapshot deleting -> gone",
    "attempt new -> calling",
    "attempt calling -> live",
    "attempt calling -> debt",
    "attempt calling -> settled",
    "attempt live -> settled",
    "attempt live -> debt",
    "attempt debt -> settled",
)
"""What runs together should hit."""


def together(tallies: Iterable[Mapping[str, int]]) -> Tally[str]:
    total: Tally[str] = Tally()
    for tally in tallies:
        total.update(tally)
    return total


def missed(tally: Mapping[str, int]) -> list[str]:
    return [name for name in EXPECTED if not tally.get(name)]


def table(tally: Mapping[str, int]) -> str:
    shown = {**dict.fromkeys(EXPECTED, 0), **tally}
    return "\n".join(f"{count:>10,}  {name}" for name, count in sorted(shown.items()))
