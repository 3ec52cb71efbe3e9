"""Between records and rows. A row is a flat set of attributes, the same in both stores.

`pk`, `sk`, `kind`; the record's native fields by name; index attributes; the rest as one JSON document in `doc`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime

from pydantic import BaseModel

from ..model import attempt, due, event, idempotency, pool, queue, quota, sandbox, tenancy
from ..model.record import Native, Record

Row = dict[str, Native]

INDEX_FIELDS = ("list_pk", "list_sk", "due_pk", "due_sk", "purge_at")


def _records() -> Iterator[type[Record]]:
    for module in (attempt, due, event, idempotency, pool, queue, quota, sandbox, tenancy):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Record) and value is not Record:
                yield value


KINDS: Mapping[str, type[Record]] = {record.kind: record for record in _records()}


def _native(value: object) -> Native | None:
    """Times become sortable text, nested models JSON text: a native attribute is always a scalar."""
    if value is None or isinstance(value, str | int | bool):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, datetime):
        return due.stamp(value)
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    raise TypeError(f"{value!r} cannot be a native attribute")


def to_row(record: Record) -> Row:
    key = record.key()
    row: Row = {"pk": key.pk, "sk": key.sk, "kind": record.kind}
    for name in record.native:
        value = _native(getattr(record, name))
        if value is not None:
            row[name] = value
    row.update(record.index())
    document = record.model_dump_json(exclude=set(record.native), exclude_defaults=True)
    if document != "{}":
        row["doc"] = document
    return row


def from_row(row: Mapping[str, Native]) -> Record:
    record = KINDS[str(row["kind"])]
    data: dict[str, object] = json.loads(str(row["doc"])) if "doc" in row else {}
    for name in record.native:
        if name in row:
            value = row[name]
            is_model = isinstance(value, str) and value.startswith("{") and name in _MODELS.get(record.kind, ())
            data[name] = json.loads(str(value)) if is_model else value
    return record.model_validate(data)


_MODELS: Mapping[str, tuple[str, ...]] = {
    record.kind: tuple(
        name for name in record.native if "Reason" in str(record.model_fields[name].annotation)
    )
    for record in KINDS.values()
}  # fmt: skip
"""Native fields that hold a model as JSON text (today only `Sandbox.reason`)."""
