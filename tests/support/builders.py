"""Records with every field filled in: a test names only what matters to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.pool import Pool, PoolView, Template, Trust
from differently_core.model.queue import QueueRow
from differently_core.model.resources import UNLIMITED, Size
from differently_core.model.sandbox import Sandbox, Status
from differently_core.runtime.ids import KeyId, OrgId, ProjectId, SandboxId, ulid

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORG = OrgId("org_01KDVDNA000000000000000001")
PROJECT = ProjectId("proj_01KDVDNA000000000000000001")


def a_size(sandboxes: int = 1, cpu_millis: int = 1000, memory_mib: int = 512, disk_gib: int = 1) -> Size:
    return Size(sandboxes=sandboxes, cpu_millis=cpu_millis, memory_mib=memory_mib, disk_gib=disk_gib)


def room_for(sandboxes: int) -> Size:
    """Room that is bounded by count alone."""
    return Size(sandboxes=sandboxes, cpu_millis=UNLIMITED, memory_mib=UNLIMITED, disk_gib=UNLIMITED)


def an_id(number: int = 1) -> SandboxId:
    """Later numbers are later ids."""
    return SandboxId(f"sbx_{ulid(NOON + timedelta(milliseconds=number), number.to_bytes(10, 'big'))}")


def a_sandbox(number: int = 1, status: Status = Status.RUNNING, **fields: object) -> Sandbox:
    defaults: dict[str, object] = {
        "id": an_id(number),
        "org": ORG,
        "project": PROJECT,
        "status": status,
        "template": "default",
        "size": a_size(),
        "ttl_seconds": 3600,
        "created_at": NOON,
        "created_by": KeyId("key_01KDVDNA000000000000000001"),
    }
    return Sandbox.model_validate({**defaults, **fields})


def an_attempt(number: int = 1, status: AttemptState = AttemptState.CALLING, **fields: object) -> Attempt:
    defaults: dict[str, object] = {
        "sandbox": an_id(),
        "number": number,
        "org": ORG,
        "project": PROJECT,
        "pool": "pool",
        "size": a_size(),
        "generation": 1,
        "status": status,
        "started_at": NOON,
        "call_until": NOON + timedelta(seconds=60),
        "settles_at": NOON + timedelta(seconds=120),
    }
    return Attempt.model_validate({**defaults, **fields})


def a_pool(name: str = "pool", *, trust: Trust = Trust.PRIVATE, **fields: object) -> Pool:
    defaults: dict[str, object] = {
        "name": name,
        "adapter": "fake",
        "trust": trust,
        "max_concurrency": 10,
        "created_at": NOON,
    }
    return Pool.model_validate({**defaults, **fields})


def a_view(name: str = "pool", *, features: Sequence[str] = ("exec", "files"), **fields: object) -> PoolView:
    defaults: dict[str, object] = {"name": name, "at": NOON, "healthy": True, "features": tuple(features)}
    return PoolView.model_validate({**defaults, **fields})


def a_template(name: str = "default", **fields: object) -> Template:
    return Template.model_validate({"name": name, "created_at": NOON, **fields})


def a_queue_row(number: int = 1, *, org: str = ORG, project: str = PROJECT, **fields: object) -> QueueRow:
    defaults: dict[str, object] = {
        "sandbox": an_id(number),
        "org": org,
        "project": project,
        "priority": 0,
        "size": a_size(),
        "template": "default",
    }
    return QueueRow.model_validate({**defaults, **fields})
