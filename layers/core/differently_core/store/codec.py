"""Between records and rows. A row is a flat set of attributes, the same in both stores.

`pk`, `sk`, `kind`; the record's native fields by name; index attributes; the rest as one JSON document in `doc`. What
equals its default is left out, which keeps most rows under one write unit; so the defaults of stored models are part
of the row format, and changing one is a migration.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property
from typing import Any, TypeVar

from pydantic import BaseModel

from ..errors import Internal, PayloadTooLarge
from ..model import (
    attempt,
    audit,
    budget,
    closing,
    declaration,
    due,
    event,
    idempotency,
    policy,
    pool,
    port,
    profile,
    queue,
    quota,
    reconciliation,
    sandbox,
    secret,
    snapshot,
    tenancy,
    upload,
    usage,
    webhook,
)
from ..model.record import Native, Record, Table

R = TypeVar("R", bound=Record)
Row = dict[str, Native]

INDEX_FIELDS: Mapping[str, type[Native]] = {
    "list_pk": str, "list_sk": str, "due_pk": str, "due_sk": str, "pool_pk": str, "pool_sk": str, "purge_at": int,
}  # fmt: skip
STORED_NAMES: Mapping[str, str] = {
    "list_pk": "listPk", "list_sk": "listSk", "due_pk": "duePk", "due_sk": "dueSk", "pool_pk": "poolPk",
    "pool_sk": "poolSk", "purge_at": "purgeAt",
}  # fmt: skip
"""How index attributes are called in DynamoDB; every other attribute is called as in the row."""
LIST_PROJECTION = ("kind", "doc", *sandbox.Sandbox.native)
"""Whole records: `version` changes with every write, so the index is written each time whatever else it carries."""
DUE_PROJECTION = ("kind", "status")
POOL_PROJECTION = ("kind", "doc", *attempt.Attempt.native)
"""Whole attempts: the reconciler decides from them, and they change only a few times each."""
ROW_BYTES_MAX = 400 * 1024
"""DynamoDB's own bound on one item."""


@dataclass(frozen=True)
class Kind:
    """What the store knows of a kind of record, read off its model once."""

    record: type[Record]

    @cached_property
    def fields(self) -> Mapping[str, type[Native]]:
        """What conditions and updates may name: native and index fields, with the type each has as an attribute."""
        native = {name: _stored_as(self._annotation(name)) for name in self.record.native}
        return {**native, **(INDEX_FIELDS if self.record.table is Table.STATE else {})}

    @cached_property
    def required(self) -> frozenset[str]:
        """Native fields without which the row could not be read again."""
        return frozenset(name for name in self.record.native if self.record.model_fields[name].is_required())

    @cached_property
    def encoders(self) -> tuple[tuple[str, Callable[[Any], Native]], ...]:
        return tuple((name, _encoder(self._annotation(name))) for name in self.record.native)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Native fields that hold a model, as JSON text."""
        return tuple(name for name in self.record.native if _member(self._annotation(name), BaseModel))

    @cached_property
    def mutable(self) -> tuple[str, ...]:
        """Fields that hold something a reader could change, frozen as the record is."""
        return tuple(name for name in self.record.model_fields if not _immutable(self._annotation(name)))

    @cached_property
    def excluded(self) -> set[str]:
        return set(self.record.native)

    def _annotation(self, name: str) -> object:
        return self.record.model_fields[name].annotation


MODULES = (
    attempt,
    audit,
    budget,
    closing,
    declaration,
    due,
    event,
    idempotency,
    policy,
    pool,
    port,
    profile,
    queue,
    quota,
    reconciliation,
    sandbox,
    secret,
    snapshot,
    tenancy,
    upload,
    usage,
    webhook,
)
"""Where records are declared; one a line, so that they are easily added to."""


def _records() -> Iterator[type[Record]]:
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Record) and hasattr(value, "kind"):
                yield value


def _member(annotation: object, base: type) -> bool:
    """Whether an annotation is the class, or a union with a member of the class."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_member(option, base) for option in typing.get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, base)


def _stored_as(annotation: object) -> type[Native]:
    if _member(annotation, bool):
        return bool
    return int if _member(annotation, int) else str


def _immutable(annotation: object) -> bool:
    if annotation is Ellipsis or isinstance(annotation, typing.NewType):
        return annotation is Ellipsis or _immutable(annotation.__supertype__)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, tuple, typing.Literal):
        return all(_immutable(part) for part in typing.get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return all(_immutable(field.annotation) for field in annotation.model_fields.values())
    return annotation in (str, int, float, bool, bytes, datetime, types.NoneType) or (
        isinstance(annotation, type) and issubclass(annotation, Enum)
    )


KINDS: Mapping[str, Kind] = {record.kind: Kind(record) for record in _records()}


def _encoder(annotation: object) -> Callable[[Any], Native]:
    """Times become sortable text, models JSON text, enumerations their value: a native attribute is a plain scalar."""
    if _member(annotation, datetime):
        return due.stamp
    if _member(annotation, BaseModel):
        return lambda model: str(model.model_dump_json())
    return str if _stored_as(annotation) is str else _stored_as(annotation)


def to_row(record: Record) -> Row:
    """Raises `PayloadTooLarge` for a record that no store could keep."""
    kind = KINDS[record.kind]
    key = record.key()
    row: Row = {"pk": key.pk, "sk": key.sk, "kind": record.kind}
    for name, encode in kind.encoders:
        value = getattr(record, name)
        if value is not None:
            row[name] = encode(value)
    row.update(record.index())
    document = record.model_dump_json(exclude=kind.excluded, exclude_defaults=True)
    if document != "{}":
        row["doc"] = document
    check_size(row)
    return row


def from_row(row: Mapping[str, Native]) -> Record:
    kind = KINDS.get(str(row["kind"]))
    if kind is None:
        raise Internal(f"A stored row is of the kind {row['kind']!r}, which this version does not know.")
    data: dict[str, object] = json.loads(str(row["doc"])) if "doc" in row else {}
    for name in kind.record.native:
        if name in row:
            data[name] = row[name]
    for name in kind.models:
        if name in data:
            data[name] = json.loads(str(data[name]))
    return kind.record.model_validate(data)


def of_kind(record: type[R], found: Record) -> R:
    """What a reader asked for: a key holds one kind of record, and asking for another is a mistake of the code."""
    if not isinstance(found, record):
        raise ValueError(f"{found.key()} holds a {found.kind}, not a {record.kind}")
    return found


def detached(record: Record) -> Record:
    """The record itself, or a copy if it holds something that its reader could change."""
    loose = {name: copied(value) for name in KINDS[record.kind].mutable if (value := getattr(record, name))}
    return record.model_copy(update=loose) if loose else record


def copied(value: object) -> object:
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copied(inner) for inner in value]
    return value.model_copy(deep=True) if isinstance(value, BaseModel) else value


def row_bytes(row: Mapping[str, Native]) -> int:
    """The size DynamoDB bills: names and values, a number at about half a byte a digit."""
    return sum(len(STORED_NAMES.get(name, name)) + _value_bytes(value) for name, value in row.items())


def _value_bytes(value: Native) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return 1 if isinstance(value, bool) else (len(str(abs(value))) + 1) // 2 + 1


def check_size(row: Mapping[str, Native]) -> None:
    # Four bytes is the most that a character takes, so most rows are cleared without encoding anything.
    if sum([len(value) for value in row.values() if isinstance(value, str)]) * 4 < ROW_BYTES_MAX // 2:
        return
    size = row_bytes(row)
    if size > ROW_BYTES_MAX:
        raise PayloadTooLarge(
            f"This {row.get('kind', 'row')} would take {size} bytes in the store; the most is {ROW_BYTES_MAX}.",
            bytes=size, limit=ROW_BYTES_MAX,
        )  # fmt: skip
