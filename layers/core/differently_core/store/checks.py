"""What a transaction may say: checked the same way by both stores, before any row is looked at.

A misspelt field would make a condition that never holds or an attribute that nobody reads, so it is a `ValueError` in
the first unit test that meets it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.record import Key, Native, Record
from .codec import KINDS
from .ports import (
    ACTIONS_MAX,
    Absent,
    Action,
    AnyOf,
    AtLeast,
    AtMost,
    Check,
    Condition,
    Equals,
    Missing,
    OneOf,
    Present,
    Put,
    Update,
)

OPTIONS_MAX = 100
"""DynamoDB's own bound on the values of one IN."""


def record_of(action: Action) -> type[Record]:
    return type(action.record) if isinstance(action, Put) else action.record


def key_of(action: Action) -> Key:
    return action.record.key() if isinstance(action, Put) else action.key


def is_plain(actions: Sequence[Action]) -> bool:
    """Whether this is one conditional write rather than a transaction: half the price, and it conflicts with fewer."""
    return len(actions) == 1 and not isinstance(actions[0], Check)


def check(actions: Sequence[Action]) -> None:
    """Refuse what DynamoDB refuses before it looks at any row, and every field that the record does not have."""
    if not 0 < len(actions) <= ACTIONS_MAX:
        raise ValueError(f"a transaction has 1 to {ACTIONS_MAX} actions, not {len(actions)}")
    if len({key_of(action) for action in actions}) < len(actions):
        raise ValueError("a transaction names one row twice")
    if len({action.name for action in actions}) < len(actions):
        raise ValueError("two actions of a transaction share a name")
    for action in actions:
        _check_action(action)


def _check_action(action: Action) -> None:
    record = record_of(action)
    if not isinstance(action, Put) and action.key.table is not record.table:
        raise ValueError(f"a {record.kind} lives in the table {record.table}, not in {action.key.table}")
    if isinstance(action, Check) and not action.when:
        raise ValueError(f"the check {action.name} has no condition")
    for condition in action.when:
        _check_condition(record, condition)
    if isinstance(action, Update):
        _check_changes(action)


def _check_condition(record: type[Record], condition: Condition) -> None:
    match condition:
        case Absent() | Present():
            pass
        case Equals(field, value):
            _check_values(record, field, value)
        case AtLeast(field, value) | AtMost(field, value):
            _check_number(record, field)
            _check_values(record, field, value)
        case OneOf(field, values):
            if not 0 < len(values) <= OPTIONS_MAX:
                raise ValueError(f"{field} can be one of 1 to {OPTIONS_MAX} values, not of {len(values)}")
            _check_values(record, field, *values)
        case Missing(field):
            _type_of(record, field)
        case AnyOf(options):
            if not options:
                raise ValueError("any of no conditions can never hold")
            for option in options:
                _check_condition(record, option)


def _check_changes(action: Update) -> None:
    touched = [*action.set, *action.add, *action.remove]
    if not touched:
        raise ValueError(f"the update {action.name} changes nothing")
    if len(set(touched)) < len(touched):
        raise ValueError(f"the update {action.name} touches one field twice")
    for field, value in action.set.items():
        _check_values(action.record, field, value)
    for field, amount in action.add.items():
        _check_number(action.record, field)
        _check_values(action.record, field, amount)
    for field in action.remove:
        _type_of(action.record, field)
        if field in KINDS[action.record.kind].required:
            raise ValueError(f"a {action.record.kind} cannot be without {field}")


def _type_of(record: type[Record], field: str) -> type[Native]:
    stored_as = KINDS[record.kind].fields.get(field)
    if stored_as is None:
        raise ValueError(f"{field} is not a native or index field of {record.kind}")
    return stored_as


def _check_number(record: type[Record], field: str) -> None:
    if _type_of(record, field) is not int:
        raise ValueError(f"{field} of {record.kind} is not a number")


def _check_values(record: type[Record], field: str, *values: Native) -> None:
    """DynamoDB compares a text with a number as unequal, silently."""
    stored_as = _type_of(record, field)
    for value in values:
        if not isinstance(value, stored_as) or (stored_as is int and isinstance(value, bool)):
            raise ValueError(f"{field} of {record.kind} is {stored_as.__name__}, not {value!r}")
