"""The three tables as PynamoDB models: keys, typed attributes, indexes.

Made by a function, because a model's table name is state of its class and several stores may live in one process. The
models describe; `dynamo` sends, over one connection for all three tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pynamodb.attributes import Attribute, BooleanAttribute, NumberAttribute, UnicodeAttribute
from pynamodb.indexes import GlobalSecondaryIndex, IncludeProjection
from pynamodb.models import Model

from ..model.record import Native, Table
from .codec import DUE_PROJECTION, INDEX_FIELDS, KINDS, LIST_PROJECTION, POOL_PROJECTION, STORED_NAMES

_ATTRIBUTES: Mapping[type[Native], type[Attribute[Any]]] = {
    str: UnicodeAttribute, int: NumberAttribute, bool: BooleanAttribute,
}  # fmt: skip


class Item(Model):
    """What every row has."""

    pk = UnicodeAttribute(hash_key=True)
    sk = UnicodeAttribute(range_key=True)
    kind = UnicodeAttribute()
    doc = UnicodeAttribute(null=True)


# PynamoDB does not annotate the hook that runs when an index class is made.
class ListIndex(GlobalSecondaryIndex[Item]):  # type: ignore[no-untyped-call]
    class Meta:
        index_name = "list"
        projection = IncludeProjection(list(LIST_PROJECTION))

    list_pk = UnicodeAttribute(attr_name=STORED_NAMES["list_pk"], hash_key=True)
    list_sk = UnicodeAttribute(attr_name=STORED_NAMES["list_sk"], range_key=True)


class DueIndex(GlobalSecondaryIndex[Item]):  # type: ignore[no-untyped-call]
    class Meta:
        index_name = "due"
        projection = IncludeProjection(list(DUE_PROJECTION))

    due_pk = UnicodeAttribute(attr_name=STORED_NAMES["due_pk"], hash_key=True)
    due_sk = UnicodeAttribute(attr_name=STORED_NAMES["due_sk"], range_key=True)


class PoolIndex(GlobalSecondaryIndex[Item]):  # type: ignore[no-untyped-call]
    class Meta:
        index_name = "pool"
        projection = IncludeProjection(list(POOL_PROJECTION))

    pool_pk = UnicodeAttribute(attr_name=STORED_NAMES["pool_pk"], hash_key=True)
    pool_sk = UnicodeAttribute(attr_name=STORED_NAMES["pool_sk"], range_key=True)


def models(names: Mapping[Table, str]) -> Mapping[Table, type[Item]]:
    """A model for each table, with every native field of every kind that lives there."""
    return {table: _model(table, name) for table, name in names.items()}


def _model(table: Table, name: str) -> type[Item]:
    fields: dict[str, type[Native]] = dict(INDEX_FIELDS) if table is Table.STATE else {}
    for kind in KINDS.values():
        if kind.record.table is table:
            fields.update(kind.fields)
    body: dict[str, object] = {
        field: _ATTRIBUTES[stored_as](attr_name=STORED_NAMES.get(field, field), null=True)
        for field, stored_as in fields.items()
    }
    if table is Table.STATE:
        body.update(list_index=ListIndex(), due_index=DueIndex(), pool_index=PoolIndex())
    body["Meta"] = type("Meta", (), {"table_name": name})
    return cast(type[Item], type(f"{table.capitalize()}Item", (Item,), body))
