"""The two bases of all data: what travels as JSON, and what is stored as a row.

A stored record knows its own key. Fields listed in `native` become attributes that conditions, counters and indexes
can name; the rest travels as one JSON document, which a page of code can read and write without a mapping per field
(docs/decisions/0003-rows.md).
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict


def camel(name: str) -> str:
    """`memory_mib` -> `memoryMiB`, `ttl_seconds` -> `ttlSeconds`: the one alias rule of the wire."""
    head, *tail = name.split("_")
    units = {"mib": "MiB", "gib": "GiB", "kib": "KiB"}
    return head + "".join(units.get(word, word.capitalize()) for word in tail)


class Wire(BaseModel):
    """JSON with a caller: camelCase, frozen, unknown fields refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True, use_enum_values=False
    )


class Table(StrEnum):
    CONFIG = "config"
    STATE = "state"
    LOG = "log"


class Key(NamedTuple):
    table: Table
    pk: str
    sk: str


Native = str | int | bool


class Record(BaseModel):
    """A stored row. Frozen: a change is a copy and a conditional write."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: ClassVar[str]
    table: ClassVar[Table]
    native: ClassVar[tuple[str, ...]] = ()

    def key(self) -> Key:
        raise TypeError(f"{type(self).__name__} has no key")

    def index(self) -> dict[str, str | int]:
        """Index attributes: `list_pk`, `list_sk`, also of `due` and `pool`, `purge_at`; never an absent one."""
        return {}

    def with_(self, **changes: object) -> Self:
        return self.model_copy(update=changes)
