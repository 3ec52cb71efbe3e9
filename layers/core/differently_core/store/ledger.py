"""Counts what an operation costs the store: round trips, and read and write units by DynamoDB's rounding rules.

A strong read costs one unit per 4 KB, an eventual one half; a write one unit per 1 KB, in a transaction two, and one
for each index entry it makes, changes or removes. The in-memory store estimates; DynamoDB's report is taken as it is,
except that a refused write is charged and not reported, so both stores estimate it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from .checks import is_plain
from .codec import DUE_PROJECTION, LIST_PROJECTION, POOL_PROJECTION, Row, row_bytes, to_row
from .ports import Action, Refused


@dataclass
class Cost:
    """What the calls between the start and the end of a `measure` block cost.

    `calls` names DynamoDB's operation of each trip, in order.
    """

    trips: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    calls: list[str] = field(default_factory=list)


_OPEN: ContextVar[tuple[tuple[Ledger, Cost], ...]] = ContextVar("differently_store_costs", default=())
"""In the context, so that a block counts the calls of its own thread or task and nobody else's."""


class Ledger:
    """One for each store."""

    @property
    def measuring(self) -> bool:
        return bool(_OPEN.get()) and any(ledger is self for ledger, _ in _OPEN.get())

    @contextmanager
    def measure(self) -> Iterator[Cost]:
        cost = Cost()
        token = _OPEN.set((*_OPEN.get(), (self, cost)))
        try:
            yield cost
        finally:
            _OPEN.reset(token)

    def count(self, call: str, *, read_units: float = 0.0, write_units: float = 0.0) -> None:
        for ledger, cost in _OPEN.get():
            if ledger is self:
                cost.trips += 1
                cost.read_units += read_units
                cost.write_units += write_units
                cost.calls.append(call)

    def charge(self, write_units: float) -> None:
        """Units of a call that was counted already."""
        for ledger, cost in _OPEN.get():
            if ledger is self:
                cost.write_units += write_units

    def received(self, event_name: str = "", parsed_response: Mapping[str, Any] | None = None, **_: object) -> None:
        """botocore's `response-received` hook: once for every send, also one that is sent again."""
        if not self.measuring:
            return
        operation = event_name.rpartition(".")[2]
        consumed = (parsed_response or {}).get("ConsumedCapacity") or []
        parts = consumed if isinstance(consumed, list) else [consumed]
        units = float(sum(part.get("CapacityUnits", 0.0) for part in parts))
        reads = operation in ("GetItem", "BatchGetItem", "Query")
        self.count(operation, read_units=units if reads else 0.0, write_units=0.0 if reads else units)


def read_units(rows: Sequence[Row], *, consistent: bool = True) -> float:
    """What one read of all these rows together costs; a row that was not there costs as much as the smallest."""
    units = max(1, math.ceil(sum(row_bytes(row) for row in rows) / 4096))
    return float(units) if consistent else units / 2


def write_units(before: Row | None, after: Row | None, *, transaction: bool) -> float:
    """What one write costs. Indexes follow after the commit, so their share is not doubled by a transaction."""
    larger = max(row_bytes(before or {}), row_bytes(after or {}))
    indexes = sum(
        _index_units(_view(before, keys, projection), _view(after, keys, projection), keys)
        for keys, projection in _INDEXES
    )
    return _kilobytes(larger) * (2.0 if transaction else 1.0) + indexes


def refused_units(actions: Sequence[Action], refused: Refused) -> float:
    """What a write costs that did nothing: the rows that refused it, and the smallest for those nothing is known of."""
    found = [refused.failed.get(action.name) for action in actions]
    units = sum(_kilobytes(row_bytes(to_row(record)) if record is not None else 0) for record in found)
    return units if is_plain(actions) else 2 * units


_INDEXES = (
    (("list_pk", "list_sk"), LIST_PROJECTION),
    (("due_pk", "due_sk"), DUE_PROJECTION),
    (("pool_pk", "pool_sk"), POOL_PROJECTION),
)


def _kilobytes(size: int) -> float:
    return float(max(1, math.ceil(size / 1024)))


def _view(row: Row | None, keys: tuple[str, str], projection: Sequence[str]) -> Row:
    if row is None or any(key not in row for key in keys):
        return {}
    return {name: row[name] for name in ("pk", "sk", *keys, *projection) if name in row}


def _index_units(before: Row, after: Row, keys: tuple[str, str]) -> float:
    """Nothing for an entry that stays as it is, one write for one that is made, changed or removed, two if it moves."""
    if before == after:
        return 0.0
    if before and after and [before[key] for key in keys] == [after[key] for key in keys]:
        return _kilobytes(max(row_bytes(before), row_bytes(after)))
    return sum(_kilobytes(row_bytes(view)) for view in (before, after) if view)
