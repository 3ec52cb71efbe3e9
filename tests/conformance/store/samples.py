"""Records to store, each complete; a test names only what matters to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.event import Event
from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.quota import Counter, Scope
from differently_core.model.record import Key, Record
from differently_core.model.resources import Size
from differently_core.model.sandbox import Reason, Reservation, Sandbox, SandboxEnv, Status
from differently_core.runtime.ids import KeyId, OrgId, ProjectId, SandboxId
from differently_core.store.ports import Absent, Committed, Put, Refused, Store

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


class Samples:
    """Every name carries the number, so that two of these never meet on a row, a list or a queue."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.org = OrgId(f"org_{number:026d}")
        self.project = ProjectId(f"prj_{number:026d}")

    def id(self, n: int = 0) -> SandboxId:
        return SandboxId(f"sbx_{self.number:013d}{n:013d}")

    def sandbox(self, n: int = 0, **changes: Any) -> Sandbox:
        facts: dict[str, Any] = {
            "id": self.id(n), "org": self.org, "project": self.project, "status": Status.RUNNING, "template": "python",
            "size": Size(sandboxes=1, cpu_millis=1000, memory_mib=512), "labels": {"team": "blue"},
            "ttl_seconds": 3600, "created_at": NOW, "created_by": KeyId("key_1"), "pool": "p1",
            "reason": Reason(code="started", source="worker", at=NOW),
            "reservation": Reservation(size=Size(sandboxes=1), pool="p1"),
        }  # fmt: skip
        return Sandbox(**{**facts, **changes})

    def attempt(self, n: int = 0, **changes: Any) -> Attempt:
        facts: dict[str, Any] = {
            "sandbox": self.id(n), "number": 1, "org": self.org, "project": self.project, "pool": f"p1-{self.number}",
            "size": Size(sandboxes=1), "generation": 1, "status": AttemptState.LIVE, "started_at": NOW,
            "call_until": NOW, "settles_at": NOW, "ref": f"ref-{n}",
        }  # fmt: skip
        return Attempt(**{**facts, **changes})

    def key(self, n: int = 0) -> Key:
        return Sandbox.key_of(self.id(n))

    def counter(self, name: str = "one", free: int = 7, **changes: Any) -> Counter:
        facts = {"scope": Scope.ORG, "name": f"{name}-{self.number}", "free_sandboxes": free, "limit_sandboxes": free}
        return Counter.model_validate({**facts, **changes})

    def counter_key(self, name: str = "one") -> Key:
        return self.counter(name).key()

    def idempotency(self, n: int = 0, digest: str = "d1") -> IdempotencyRow:
        return IdempotencyRow(sandbox=self.id(n), digest=digest, accepted='{"id":"x"}')

    def env(self, n: int = 0, value: str = "t") -> SandboxEnv:
        return SandboxEnv(id=self.id(n), env={"A": value})

    def event(self, n: int = 0, **changes: Any) -> Event:
        facts = {
            "id": f"evt_{n:026d}", "org": self.org, "at": NOW + timedelta(seconds=n), "actor": "key_1",
            "request_id": "r1", "action": "sandbox.create", "target": self.id(n),
        }  # fmt: skip
        return Event.model_validate({**facts, **changes})


def keep(store: Store, *records: Record) -> None:
    """Store what the test starts from."""
    for record in records:
        committed(store.transact([Put(record, (Absent(),), "start")]))


def committed(outcome: Committed | Refused) -> None:
    assert outcome == Committed()


def refused(outcome: Committed | Refused) -> Refused:
    assert isinstance(outcome, Refused), "it was committed"
    return outcome
