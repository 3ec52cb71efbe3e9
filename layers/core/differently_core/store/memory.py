"""The store in memory: for simulation, unit tests and benchmarks.

It answers like DynamoDB where it matters: conditions see the row as it stands, a transaction commits whole, and two
transactions that overlap on a row cancel each other's later one with a conflict. Transactions overlap when `during`
(called between taking rows and writing them) runs another operation, or when another thread does.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from ..model.record import Key, Record, Table
from .codec import Row, from_row, to_row
from .ledger import Ledger
from .ports import (
    ACTIONS_MAX, PAGE_ROWS_MAX, Absent, Action, AnyOf, AtLeast, Check, Committed, Condition, Delete, DueRow, Equals,
    Missing, OneOf, Outcome, Page, Present, Put, R, Refused, Update,
)  # fmt: skip

Slot = tuple[Table, str, str]


def holds(condition: Condition, row: Row | None) -> bool:
    """Whether a condition holds on a row (None: no row), as DynamoDB would say."""
    match condition:
        case Absent():
            return row is None
        case Present():
            return row is not None
        case AnyOf(options):
            return any(holds(option, row) for option in options)
        case Equals(name, value):
            return row is not None and row.get(name) == value
        case OneOf(name, values):
            return row is not None and row.get(name) in values
        case AtLeast(name, value):
            return row is not None and isinstance(row.get(name), int) and cast(int, row[name]) >= value
        case Missing(name):
            return row is not None and name not in row


def check_shape(actions: Sequence[Action]) -> None:
    """Refuse what DynamoDB refuses before it looks at any row."""
    if not 0 < len(actions) <= ACTIONS_MAX:
        raise ValueError(f"a transaction has 1 to {ACTIONS_MAX} actions, not {len(actions)}")
    keys = [key_of(action) for action in actions]
    if len(set(keys)) < len(keys):
        raise ValueError("a transaction names one row twice")
    if len({action.name for action in actions}) < len(actions):
        raise ValueError("two actions of a transaction share a name")


def key_of(action: Action) -> Key:
    return action.record.key() if isinstance(action, Put) else action.key


class MemoryStore:
    def __init__(self, during: Callable[[Sequence[Action]], None] | None = None, ledger: Ledger | None = None) -> None:
        self._rows: dict[Slot, Row] = {}
        self._partitions: dict[tuple[Table, str], list[str]] = {}
        self._lists: dict[str, list[tuple[str, Slot]]] = {}
        self._due: dict[str, list[tuple[str, Slot]]] = {}
        self._busy: set[Slot] = set()
        self._lock = threading.Lock()
        self._during = during
        self.ledger = ledger or Ledger()

    def get(self, record: type[R], key: Key) -> R | None:
        with self._lock:
            row = self._rows.get(key)
            self.ledger.read("get", [row])
        return cast(R, from_row(row)) if row is not None else None

    def batch_get(self, keys: Sequence[tuple[type[Record], Key]]) -> list[Record | None]:
        if len(keys) > ACTIONS_MAX:
            raise ValueError(f"batch_get takes at most {ACTIONS_MAX} keys")
        with self._lock:
            rows = [self._rows.get(key) for _, key in keys]
            self.ledger.read("batch_get", rows)
        return [from_row(row) if row is not None else None for row in rows]

    def query(
        self, table: Table, pk: str, *, prefix: str = "", after: str | None = None, limit: int = PAGE_ROWS_MAX,
        reverse: bool = False,
    ) -> Page:  # fmt: skip
        with self._lock:
            keys = self._partitions.get((table, pk), [])
            low = bisect_left(keys, prefix)
            high = bisect_left(keys, prefix + "\U0010ffff") if prefix else len(keys)
            if after is not None:
                low, high = (low, min(high, bisect_left(keys, after))) if reverse else (
                    max(low, bisect_right(keys, after)), high,
                )  # fmt: skip
            span = keys[max(low, high - limit) : high][::-1] if reverse else keys[low : low + limit][: max(0, high - low)]
            more = high - low > limit
            rows = [self._rows[(table, pk, sk)] for sk in span]
            self.ledger.read("query", rows)
        return Page(tuple(from_row(row) for row in rows), span[-1] if more else None)

    def query_list(self, pk: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        with self._lock:
            entries = self._lists.get(pk, [])
            high = len(entries) if after is None else bisect_left(entries, (after, cast(Slot, ())))
            span = entries[max(0, high - limit) : high][::-1]
            rows = [self._rows[slot] for _, slot in span]
            self.ledger.read("query_list", rows, consistent=False)
        return Page(tuple(from_row(row) for row in rows), span[-1][0] if high > limit else None)

    def query_due(
        self, shard: str, *, until: str, after: str | None = None, limit: int = PAGE_ROWS_MAX
    ) -> tuple[tuple[DueRow, ...], str | None]:
        with self._lock:
            entries = self._due.get(shard, [])
            low = 0 if after is None else bisect_left(entries, (after + "\x00", cast(Slot, ())))
            high = bisect_left(entries, (until + "\U0010ffff", cast(Slot, ())))
            span = entries[low : min(high, low + limit)]
            rows = [
                DueRow(str(self._rows[slot]["kind"]), Key(*slot), str(self._rows[slot].get("status", "")), due)
                for due, slot in span
            ]
            self.ledger.read("query_due", [self._rows[slot] for _, slot in span], consistent=False)
        return tuple(rows), span[-1][0] if high - low > limit else None

    def transact(self, actions: Sequence[Action]) -> Outcome:
        check_shape(actions)
        slots = {action.name: cast(Slot, tuple(key_of(action))) for action in actions}
        with self._lock:
            self.ledger.write(actions)
            conflicts = frozenset(name for name, slot in slots.items() if slot in self._busy)
            if conflicts:
                return Refused(conflicts=conflicts)
            failed = {
                action.name: self._record(slots[action.name])
                for action in actions
                if not self._permits(action, self._rows.get(slots[action.name]))
            }
            if failed:
                return Refused(failed=failed)
            self._busy.update(slots.values())
        try:
            if self._during is not None:
                self._during(actions)
        finally:
            with self._lock:
                self._busy.difference_update(slots.values())
        with self._lock:
            for action in actions:
                self._apply(action, slots[action.name])
        return Committed()

    def rows(self) -> Mapping[Slot, Record]:
        """Everything, for invariant checks; not part of the port."""
        with self._lock:
            return {slot: from_row(row) for slot, row in self._rows.items()}

    def _record(self, slot: Slot) -> Record | None:
        row = self._rows.get(slot)
        return from_row(row) if row is not None else None

    @staticmethod
    def _permits(action: Action, row: Row | None) -> bool:
        if isinstance(action, Update) and row is None:
            return False
        return all(holds(condition, row) for condition in action.when)

    def _apply(self, action: Action, slot: Slot) -> None:
        match action:
            case Put(record):
                self._write(slot, to_row(record))
            case Update():
                row = {name: value for name, value in self._rows[slot].items() if name not in action.remove}
                row.update(action.set)
                for name, amount in action.add.items():
                    row[name] = int(row.get(name, 0)) + amount
                self._write(slot, row)
            case Delete():
                self._write(slot, None)
            case Check():
                pass

    def _write(self, slot: Slot, row: Row | None) -> None:
        old = self._rows.get(slot)
        if old is not None:
            self._unindex(slot, old)
        if row is None:
            if old is not None:
                del self._rows[slot]
                keys = self._partitions[slot[:2]]
                del keys[bisect_left(keys, slot[2])]
            return
        if old is None:
            insort(self._partitions.setdefault(slot[:2], []), slot[2])
        self._rows[slot] = row
        for index, pk, sk in self._index_entries(row):
            insort(index.setdefault(pk, []), (sk, slot))

    def _unindex(self, slot: Slot, row: Row) -> None:
        for index, pk, sk in self._index_entries(row):
            index[pk].remove((sk, slot))

    def _index_entries(self, row: Row) -> list[tuple[dict[str, list[tuple[str, Slot]]], str, str]]:
        found = []
        for index, pk, sk in ((self._lists, "list_pk", "list_sk"), (self._due, "due_pk", "due_sk")):
            if pk in row and sk in row:
                found.append((index, str(row[pk]), str(row[sk])))
        return found


