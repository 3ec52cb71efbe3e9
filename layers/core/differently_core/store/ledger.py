"""Counts what an operation costs the store: round trips, and read and write units by DynamoDB's rounding rules.

A strong read costs one unit per 4 KB, an eventual one half; a write one unit per 1 KB; transactions cost double. The
in-memory store estimates from the rows; the DynamoDB store takes the units that the service reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model.record import Native
    from .ports import Action


@dataclass
class Cost:
    """What was counted between the start and the end of a `measure` block."""

    trips: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    calls: list[str] = field(default_factory=list)


class Ledger:
    def __init__(self) -> None:
        self._open: list[Cost] = []

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        cost = Cost()
        self._open.append(cost)
        try:
            yield cost
        finally:
            self._open.remove(cost)

    def count(self, call: str, read_units: float = 0.0, write_units: float = 0.0) -> None:
        for cost in self._open:
            cost.trips += 1
            cost.read_units += read_units
            cost.write_units += write_units
            cost.calls.append(call)

    def read(self, call: str, rows: Sequence[Mapping[str, Native] | None], *, consistent: bool = True) -> None:
        if self._open:
            units = sum(max(1, math.ceil(_bytes(row) / 4096)) for row in rows) or 1
            self.count(call, read_units=units if consistent else units / 2)

    def write(self, actions: Sequence[Action]) -> None:
        if self._open:
            self.count("transact", write_units=sum(2 * _write_units(action) for action in actions))


def _bytes(row: Mapping[str, Native] | None) -> int:
    return sum(len(name) + len(str(value).encode()) for name, value in row.items()) if row else 0


def _write_units(action: Action) -> int:
    from .codec import to_row
    from .ports import Put

    return max(1, math.ceil(_bytes(to_row(action.record)) / 1024)) if isinstance(action, Put) else 1
