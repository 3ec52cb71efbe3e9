"""What a deployment's configuration declared, as last written: by it the next deployment knows what is its own."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from .record import Key, Record, Table


class Declarable(StrEnum):
    POOL = "pool"
    TEMPLATE = "template"
    POLICY = "policy"
    QUOTA = "quota"


class Declaration(Record):
    kind: ClassVar[str] = "declaration"
    table: ClassVar[Table] = Table.CONFIG

    what: Declarable
    name: str
    digest: str
    """Of what was written: another one means that it was changed by the API since."""
    at: datetime

    @staticmethod
    def key_of(what: Declarable | None, name: str) -> Key:
        """Without `what` and name the partition of all of them."""
        return Key(Table.CONFIG, "DECLARED", f"{what.value}#{name}" if what is not None else "")

    def key(self) -> Key:
        return self.key_of(self.what, self.name)
