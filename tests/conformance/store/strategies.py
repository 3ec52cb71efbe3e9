"""Hypothesis strategies for records, read off their models: every field drawn, from all that its type allows."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from annotated_types import Ge, Le
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from differently_core.model.record import Record

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEY_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
NUMBERS = st.integers(-(10**15), 10**15)
MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
_PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: TEXT, int: NUMBERS, bool: st.booleans(), datetime: MOMENTS, types.NoneType: st.none(),
    float: st.floats(allow_nan=False, allow_infinity=False), JsonValue: JSON,
}  # fmt: skip


def records(record: type[Record]) -> st.SearchStrategy[Record]:
    return _models(record).filter(lambda made: all(made.key()) and "" not in made.index().values())


def _models(model: type[Any]) -> st.SearchStrategy[Any]:
    # Not `builds`: where a field has another name on the wire, it would draw that one too.
    drawn = {name: _ruled(field.annotation, field.metadata) for name, field in model.model_fields.items()}
    return st.fixed_dictionaries(drawn).map(lambda fields: model(**fields))


def _ruled(annotation: object, rules: Sequence[Any]) -> st.SearchStrategy[Any]:
    floors = [float(str(rule.ge)) for rule in rules if isinstance(rule, Ge)]
    ceilings = [float(str(rule.le)) for rule in rules if isinstance(rule, Le)]
    if floors and annotation is float:
        highest = ceilings[0] if ceilings else None
        return st.floats(floors[0], highest, allow_nan=False, allow_infinity=False)
    patterns = [rule.pattern for rule in rules if getattr(rule, "pattern", None)]
    return st.from_regex(patterns[0], fullmatch=True) if patterns else _values(annotation)


def _values(annotation: object) -> st.SearchStrategy[Any]:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, typing.NewType):
        return KEY_TEXT
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from(list(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _models(annotation)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        rules = [rule for told in parts[1:] for rule in (told.metadata if isinstance(told, FieldInfo) else [told])]
        return _ruled(parts[0], rules)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_values(part) for part in parts])
    if origin is tuple:
        return st.lists(_values(parts[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXT, _values(parts[1]), max_size=3)
    raise TypeError(f"no strategy for {annotation!r}: add one")
