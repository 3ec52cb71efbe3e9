"""The store in memory: for simulation, unit tests and benchmarks.

It answers like DynamoDB where it matters: conditions see the rows as they stand, a transaction commits whole, and one
that meets a row which another is writing is cancelled with a conflict. Transactions overlap when `during`, called
between the judging and the writing of each transaction, runs another one or lets another thread do so. A transaction
of one action is a plain write, as in the DynamoDB store: it has no such moment, but can meet another's.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from ..model.attempt import pool_partition
from ..model.record import Key, Record, Table
from . import checks
from .codec import Row, check_size, detached, from_row, of_kind, to_row
from .ledger import Ledger, read_units, refused_units, write_units
from .ports import (
    ACTIONS_MAX,
    PAGE_ROWS_MAX,
    Absent,
    Action,
    AnyOf,
    AtLeast,
    AtMost,
    Check,
    Committed,
    Condition,
    DueRow,
    Equals,
    Missing,
    OneOf,
    Outcome,
    Page,
    Present,
    Put,
    R,
    Refused,
    Update,
)

T = TypeVar("T")
Slot = tuple[Table, str, str]
Entry = tuple[str, Slot]


def holds(condition: Condition, row: Row | None) -> bool:
    """Whether a condition holds on a row (None: no row), as DynamoDB would say."""
    match condition:
        case Absent():
            return row is None
        case Present():
            return row is not None
        case Equals(field, value):
            return row is not None and row.get(field) == value
        case OneOf(field, values):
            return row is not None and row.get(field) in values
        case AtLeast(field, value):
            return row is not None and field in row and cast(int, row[field]) >= value
        case AtMost(field, value):
            return row is not None and field in row and cast(int, row[field]) <= value
        case Missing(field):
            return row is not None and field not in row
        case AnyOf(options):
            return any(holds(option, row) for option in options)


class _Kept:
    """A row and, once somebody read it, the record it stands for. Replaced by a write, never changed."""

    __slots__ = ("record", "row")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.record: Record | None = None

    def read(self) -> Record:
        """The reader's own: what was decoded once is shared only as far as nobody can change it."""
        if self.record is None:
            self.record = from_row(self.row)
        return detached(self.record)


class MemoryStore:
    def __init__(self, during: Callable[[Sequence[Action]], None] | None = None, ledger: Ledger | None = None) -> None:
        self._rows: dict[Slot, _Kept] = {}
        self._partitions: dict[tuple[Table, str], list[str]] = {}
        self._list = _Index("list_pk", "list_sk")
        self._due = _Index("due_pk", "due_sk")
        self._pool = _Index("pool_pk", "pool_sk")
        self._busy: set[Slot] = set()
        self._lock = threading.Lock()
        self._during = during
        self.ledger = ledger or Ledger()

    # Reads

    def get(self, record: type[R], key: Key) -> R | None:
        kept = self._rows.get(key)
        if self.ledger.measuring:
            self.ledger.count("GetItem", read_units=read_units([kept.row if kept else {}]))
        return of_kind(record, kept.read()) if kept is not None else None

    def batch_get(self, keys: Sequence[tuple[type[Record], Key]]) -> list[Record | None]:
        if len(keys) > ACTIONS_MAX:
            raise ValueError(f"batch_get takes at most {ACTIONS_MAX} keys")
        with self._lock:
            found = [(record, self._rows.get(key)) for record, key in keys]
        if self.ledger.measuring and keys:
            units = sum(read_units([kept.row if kept else {}]) for _, kept in found)
            self.ledger.count("BatchGetItem", read_units=units)
        return [of_kind(record, kept.read()) if kept is not None else None for record, kept in found]

    def query(
        self, table: Table, pk: str, *, prefix: str = "", after: str | None = None, limit: int = PAGE_ROWS_MAX,
        reverse: bool = False,
    ) -> Page:  # fmt: skip
        with self._lock:
            keys = self._partitions.get((table, pk), [])
            low = bisect_left(keys, prefix)
            high = bisect_right(keys, prefix, key=lambda sk: sk[: len(prefix)])
            if after is not None and reverse:
                high = min(high, bisect_left(keys, after))
            elif after is not None:
                low = max(low, bisect_right(keys, after))
            span, more = _page(keys, low, high, limit, reverse)
            found = [self._rows[(table, pk, sk)] for sk in span]
        self._count_query(found)
        return Page(tuple(kept.read() for kept in found), span[-1] if more else None)

    def query_list(self, pk: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        with self._lock:
            entries = self._list.entries(pk)
            high = len(entries) if after is None else bisect_left(entries, (after, _FIRST_SLOT))
            span, more = _page(entries, 0, high, limit, reverse=True)
            found = [self._rows[slot] for _, slot in span]
        self._count_query(found, consistent=False)
        return Page(tuple(kept.read() for kept in found), span[-1][0] if more else None)

    def query_pool(self, pool: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        with self._lock:
            entries = self._pool.entries(pool_partition(pool))
            low = 0 if after is None else bisect_left(entries, (after + "\x00", _FIRST_SLOT))
            span, more = _page(entries, low, len(entries), limit, reverse=False)
            found = [self._rows[slot] for _, slot in span]
        self._count_query(found, consistent=False)
        return Page(tuple(kept.read() for kept in found), span[-1][0] if more else None)

    def query_due(
        self, shard: str, *, until: str, after: str | None = None, limit: int = PAGE_ROWS_MAX
    ) -> tuple[tuple[DueRow, ...], str | None]:
        with self._lock:
            entries = self._due.entries(shard)
            low = 0 if after is None else bisect_left(entries, (after + "\x00", _FIRST_SLOT))
            high = bisect_right(entries, (until + _LAST, _FIRST_SLOT))
            span, more = _page(entries, low, high, limit, reverse=False)
            found = [self._rows[slot] for _, slot in span]
        self._count_query(found, consistent=False)
        rows = tuple(
            DueRow(str(kept.row["kind"]), Key(*slot), str(kept.row.get("status", "")), due)
            for kept, (due, slot) in zip(found, span, strict=True)
        )
        return rows, span[-1][0] if more else None

    def rows(self) -> Mapping[Key, Record]:
        """Everything, for invariant checks; not part of the port."""
        with self._lock:
            return {Key(*slot): kept.read() for slot, kept in self._rows.items()}

    def _count_query(self, found: Sequence[_Kept], *, consistent: bool = True) -> None:
        if self.ledger.measuring:
            units = read_units([kept.row for kept in found], consistent=consistent)
            self.ledger.count("Query", read_units=units)

    # Writes

    def transact(self, actions: Sequence[Action]) -> Outcome:
        checks.check(actions)
        planned = [_Planned(action) for action in actions]
        with self._lock:
            refused = self._judge(planned)
            self._count_write(planned, refused)
            if refused is not None:
                return refused
            if self._during is None or checks.is_plain(actions):
                self._apply(planned)
                return Committed()
            self._busy.update(plan.slot for plan in planned)
        committed = False
        try:
            self._during(actions)
            committed = True
        finally:
            # Written and freed in one step, or another could slip in between.
            with self._lock:
                if committed:
                    self._apply(planned)
                self._busy.difference_update(plan.slot for plan in planned)
        return Committed()

    def _judge(self, planned: Sequence[_Planned]) -> Refused | None:
        """Evaluate every condition and work out every change; nothing is written yet."""
        failed: dict[str, Record | None] = {}
        conflicts: list[str] = []
        for plan in planned:
            kept = self._rows.get(plan.slot)
            if plan.slot in self._busy:
                conflicts.append(plan.action.name)
            elif not plan.permitted(kept.row if kept else None):
                failed[plan.action.name] = kept.read() if kept else None
        if failed or conflicts:
            return Refused(failed, frozenset(conflicts))
        for plan in planned:
            if isinstance(plan.action, Update) and plan.row is not None:
                check_size(plan.row)
        return None

    def _apply(self, planned: Sequence[_Planned]) -> None:
        for plan in planned:
            if not isinstance(plan.action, Check):
                self._write(plan.slot, plan.row)

    def _write(self, slot: Slot, row: Row | None) -> None:
        old = self._rows.get(slot)
        before = old.row if old is not None else None
        if row is not None:
            self._rows[slot] = _Kept(row)
        elif before is not None:
            del self._rows[slot]
        if (before is None) is not (row is None):
            keys = self._partitions.setdefault(slot[:2], [])
            if before is None:
                insort(keys, slot[2])
            else:
                del keys[bisect_left(keys, slot[2])]
        for index in (self._list, self._due, self._pool):
            index.follow(slot, before, row)

    def _count_write(self, planned: Sequence[_Planned], refused: Refused | None) -> None:
        if not self.ledger.measuring:
            return
        actions = [plan.action for plan in planned]
        plain = checks.is_plain(actions)
        call = f"{type(actions[0]).__name__}Item" if plain else "TransactWriteItems"
        if refused is not None:
            units = refused_units(actions, refused)
        else:
            units = sum(write_units(plan.before, plan.row, transaction=not plain) for plan in planned)
        self.ledger.count(call, write_units=units)


class _Planned:
    """An action on its way: the row it found, and the row it leaves."""

    __slots__ = ("action", "before", "row", "slot")

    def __init__(self, action: Action) -> None:
        self.action = action
        self.slot = _slot(checks.key_of(action))
        self.before: Row | None = None
        self.row = to_row(action.record) if isinstance(action, Put) else None

    def permitted(self, row: Row | None) -> bool:
        self.before = row
        action = self.action
        if isinstance(action, Update):
            if row is None:
                return False
            self.row = _changed(row, action)
        elif isinstance(action, Check):
            self.row = row
        return all(holds(condition, row) for condition in action.when)


class _Index:
    """A sparse index: rows that have both of its attributes, in key order."""

    def __init__(self, pk: str, sk: str) -> None:
        self._names = (pk, sk)
        self._entries: dict[str, list[Entry]] = {}

    def entries(self, pk: str) -> list[Entry]:
        return self._entries.get(pk, [])

    def follow(self, slot: Slot, before: Row | None, after: Row | None) -> None:
        old, new = self._entry(before), self._entry(after)
        if old == new:
            return
        if old is not None:
            entries = self._entries[old[0]]
            del entries[bisect_left(entries, (old[1], slot))]
        if new is not None:
            insort(self._entries.setdefault(new[0], []), (new[1], slot))

    def _entry(self, row: Row | None) -> tuple[str, str] | None:
        pk, sk = self._names
        return (str(row[pk]), str(row[sk])) if row is not None and pk in row and sk in row else None


def _slot(key: Key) -> Slot:
    return key.table, key.pk, key.sk


_LAST = "\U0010ffff"
_FIRST_SLOT = cast(Slot, ())


def _page(keys: list[T], low: int, high: int, limit: int, reverse: bool) -> tuple[list[T], bool]:
    high = max(low, high)
    span = keys[max(low, high - limit) : high][::-1] if reverse else keys[low : min(high, low + limit)]
    return span, high - low > limit


def _changed(row: Row, action: Update) -> Row:
    changed = {name: value for name, value in row.items() if name not in action.remove}
    changed.update(action.set)
    for name, amount in action.add.items():
        changed[name] = cast(int, changed.get(name, 0)) + amount
    return changed
