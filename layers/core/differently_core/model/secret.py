"""Provider credentials as they are kept: what may be told of one, and its sealed fields in a row of their own."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from .record import Key, Record, Table

SECRET_NAME_PATTERN = r"^[a-z][a-z0-9-]{0,62}$"
STORED = "secret:"
"""How a pool refers to a stored secret: this, and its name."""
POOLS_MAX = 50
"""Of one secret: they all take up a new revision in one transaction."""


class Secret(Record):
    """What may be told. `revision` names the sealed fields that are in force; `version` counts the replacements.

    `users` is how many pools refer to it, and `moves` rises with each that begins or ends to. They change in the same
    transaction as the pool, so that a secret in use is not removed and a new revision reaches every pool that uses it.
    """

    kind: ClassVar[str] = "secret"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version", "revision", "users", "moves")

    name: str
    revision: str
    version: int = 1
    fields: tuple[str, ...]
    users: int = 0
    moves: int = 0
    created_at: datetime
    updated_at: datetime
    updated_by: str

    @staticmethod
    def key_of(name: str) -> Key:
        return Key(Table.CONFIG, "SECRETS", name)

    def key(self) -> Key:
        return self.key_of(self.name)


class SealedFields(Record):
    """One revision: each field sealed by itself. Written once, read when an adapter is built, gone when replaced."""

    kind: ClassVar[str] = "sealed_fields"
    table: ClassVar[Table] = Table.CONFIG

    name: str
    revision: str
    fields: dict[str, str]

    @staticmethod
    def key_of(name: str, revision: str) -> Key:
        return Key(Table.CONFIG, f"SECRET#{name}", revision)

    def key(self) -> Key:
        return self.key_of(self.name, self.revision)
