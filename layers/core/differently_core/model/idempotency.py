"""The row behind an `Idempotency-Key`: it names one live sandbox, and is removed by the write that ends it.

Its key comes from the sandbox id's random bits, which a keyed create takes from the key itself. `accepted` is the
answer the first call got, so a replay needs no second read (docs/decisions/0004-idempotency-row-from-the-id.md).
"""

from __future__ import annotations

from typing import ClassVar

from ..runtime.ids import SandboxId, random_part
from .record import Key, Record, Table


class IdempotencyRow(Record):
    kind: ClassVar[str] = "idempotency"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("sandbox", "digest")

    sandbox: SandboxId
    digest: str
    accepted: str

    @staticmethod
    def key_of(sandbox: SandboxId) -> Key:
        return Key(Table.STATE, f"IDEM#{random_part(sandbox)}", "META")

    def key(self) -> Key:
        return self.key_of(self.sandbox)
