"""The store's promise in its plainest words: a dictionary of facts. What the real stores are compared with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from differently_core.model.record import Key, Record, Table
from differently_core.store.ports import (
    Absent,
    Action,
    AnyOf,
    AtLeast,
    AtMost,
    Committed,
    Condition,
    Delete,
    Equals,
    Missing,
    OneOf,
    Outcome,
    Present,
    Put,
    Refused,
    Update,
)

Facts = dict[str, Any]


def holds(condition: Condition, facts: Facts | None) -> bool:
    if isinstance(condition, AnyOf):
        return any(holds(option, facts) for option in condition.options)
    if isinstance(condition, Absent):
        return facts is None
    if facts is None:
        return False
    if isinstance(condition, Present):
        return True
    value = facts.get(condition.field)
    if isinstance(condition, Missing):
        return value is None
    if value is None:
        return False
    if isinstance(condition, Equals):
        return bool(value == condition.value)
    if isinstance(condition, OneOf):
        return value in condition.values
    if isinstance(condition, AtMost):
        return bool(value <= condition.value)
    assert isinstance(condition, AtLeast)
    return bool(value >= condition.value)


class PlainStore:
    def __init__(self) -> None:
        self.rows: dict[Key, tuple[type[Record], Facts]] = {}

    def transact(self, actions: Sequence[Action], taken: Collection[Key] = ()) -> Outcome:
        """`taken` are rows that another transaction is writing."""
        conflicts = frozenset(action.name for action in actions if _key(action) in taken)
        failed = {
            action.name: self.get(_key(action))
            for action in actions
            if action.name not in conflicts and not self._permits(action)
        }
        if failed or conflicts:
            return Refused(failed, conflicts)
        for action in actions:
            self.apply(action)
        return Committed()

    def apply(self, action: Action) -> None:
        if isinstance(action, Put):
            record = action.record
            self.rows[record.key()] = (type(record), {**record.model_dump(), **record.index()})
        elif isinstance(action, Delete):
            self.rows.pop(action.key, None)
        elif isinstance(action, Update):
            facts = self.rows[action.key][1]
            for field, amount in action.add.items():
                facts[field] = (facts.get(field) or 0) + amount
            facts.update(action.set)
            facts.update(dict.fromkeys(action.remove))

    def get(self, key: Key) -> Record | None:
        if key not in self.rows:
            return None
        record, facts = self.rows[key]
        return record.model_validate({name: facts[name] for name in record.model_fields})

    def partition(self, table: Table, pk: str) -> list[Record | None]:
        return [self.get(key) for key in sorted(self.rows) if key[:2] == (table, pk)]

    def index(self, pk_name: str, sk_name: str, pk: str) -> list[tuple[str, Key]]:
        return sorted(
            (facts[sk_name], key)
            for key, (_, facts) in self.rows.items()
            if facts.get(pk_name) == pk and facts.get(sk_name) is not None
        )

    def _permits(self, action: Action) -> bool:
        facts = self.rows[_key(action)][1] if _key(action) in self.rows else None
        conditions = (*action.when, Present()) if isinstance(action, Update) else action.when
        return all(holds(condition, facts) for condition in conditions)


def _key(action: Action) -> Key:
    return action.record.key() if isinstance(action, Put) else action.key
