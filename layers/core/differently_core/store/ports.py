"""The store as operations see it: reads, and one conditional transaction.

A transaction is a list of actions, each with a condition and, where a refusal must be told apart, a name. It commits
whole or not at all; the answer names every action whose condition failed, and whether somebody else was writing the
same rows at that moment. A refusal is an expected outcome, so it is a value. Exceptions mean the store itself failed:
`StoreThrottled` (nothing was written) and `StoreUnavailable` (it may or may not have been written).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ..errors import DifferentlyError
from ..model.record import Key, Native, Record, Table

R = TypeVar("R", bound=Record)

ACTIONS_MAX = 100
"""DynamoDB's own bound on one transaction."""
PAGE_ROWS_MAX = 200


# Conditions are data, so that two stores can evaluate the same ones.


@dataclass(frozen=True)
class Absent:
    """The row does not exist."""


@dataclass(frozen=True)
class Present:
    """The row exists."""


@dataclass(frozen=True)
class Equals:
    field: str
    value: Native


@dataclass(frozen=True)
class OneOf:
    field: str
    values: tuple[Native, ...]


@dataclass(frozen=True)
class AtLeast:
    field: str
    value: int


@dataclass(frozen=True)
class AtMost:
    field: str
    value: int


@dataclass(frozen=True)
class Missing:
    """The row exists and does not have the field."""

    field: str


@dataclass(frozen=True)
class AnyOf:
    options: tuple[Condition, ...]


Condition = Absent | Present | Equals | OneOf | AtLeast | AtMost | Missing | AnyOf
"""Fields named in conditions and updates are `native` fields of the record, or its index attributes."""


@dataclass(frozen=True)
class Put:
    """Write the whole record over whatever the condition permits."""

    record: Record
    when: tuple[Condition, ...]
    name: str


@dataclass(frozen=True)
class Update:
    """Change native fields of an existing row in place, without having read it.

    A row that does not exist is never made by an update: existence is part of every condition.
    """

    record: type[Record]
    key: Key
    name: str
    set: Mapping[str, Native] = field(default_factory=dict)
    add: Mapping[str, int] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Delete:
    """Remove the row; with no condition, absence is success."""

    record: type[Record]
    key: Key
    name: str
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class Check:
    record: type[Record]
    key: Key
    name: str
    when: tuple[Condition, ...]


Action = Put | Update | Delete | Check


@dataclass(frozen=True)
class Committed:
    pass


@dataclass(frozen=True)
class Refused:
    """`failed` maps the name of each action whose condition failed to the row as it stood (None: no row).

    `conflicts` names actions on rows that another transaction was writing at that moment; nothing is known of their
    conditions. One of the two is not empty.
    """

    failed: Mapping[str, Record | None] = field(default_factory=dict)
    conflicts: frozenset[str] = frozenset()


Outcome = Committed | Refused


@dataclass(frozen=True)
class Page:
    """Rows in key order; `next` is the position to go on from, or None when this was the last page."""

    rows: tuple[Record, ...]
    next: str | None


@dataclass(frozen=True)
class DueRow:
    """An entry of the due index: which row, of which kind and status, and since when it is due."""

    kind: str
    key: Key
    status: str
    due: str


class StoreThrottled(DifferentlyError):
    """The store refused for its load; nothing was written."""

    code = "provider_unavailable"


class StoreUnavailable(DifferentlyError):
    """The store did not answer; a write may or may not have happened."""

    code = "provider_unavailable"


class Store(Protocol):
    """Every method is one round trip, except that `batch_get` may need more when the store hands rows back."""

    def get(self, record: type[R], key: Key) -> R | None:
        """One row, strongly consistent."""
        ...

    def batch_get(self, keys: Sequence[tuple[type[Record], Key]]) -> list[Record | None]:
        """Up to 100 rows, strongly consistent, in the order asked."""
        ...

    def query(
        self, table: Table, pk: str, *, prefix: str = "", after: str | None = None, limit: int = PAGE_ROWS_MAX,
        reverse: bool = False,
    ) -> Page:  # fmt: skip
        """Rows of one partition whose sort key starts with `prefix`, strongly consistent.

        `after` is exclusive: a sort key or the `next` of the page before.
        """
        ...

    def query_list(self, pk: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        """Sandboxes of one `list` partition, newest first, eventually consistent; `after` as in `query`."""
        ...

    def query_pool(self, pool: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        """Attempts of one pool that are not settled, in the order of their sandboxes, eventually consistent."""
        ...

    def query_due(self, shard: str, *, until: str, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> tuple[
        tuple[DueRow, ...], str | None
    ]:  # fmt: skip
        """Entries of one due shard not later than `until` (a `stamp`), oldest first, eventually consistent."""
        ...

    def transact(self, actions: Sequence[Action]) -> Outcome:
        """All or nothing; at most `ACTIONS_MAX` actions, no two on one row, names unique (both `ValueError`)."""
        ...
