"""A profile: named defaults for creates, so that callers need not repeat them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import JsonValue

from .record import Key, Record, Table


class Profile(Record):
    """`defaults` is the part of a create's body that it stands for, as sent; it never holds an environment."""

    kind: ClassVar[str] = "profile"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version",)

    name: str
    description: str = ""
    defaults: dict[str, JsonValue] = {}
    version: int = 1
    created_at: datetime

    @staticmethod
    def key_of(name: str) -> Key:
        return Key(Table.CONFIG, "PROFILES", name)

    def key(self) -> Key:
        return self.key_of(self.name)
