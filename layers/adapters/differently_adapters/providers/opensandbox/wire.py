"""Their JSON: what OpenSandbox's lifecycle server answers, as far as we read it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

KEY_SANDBOX = "differently-sandbox-id"
KEY_INSTALLATION = "differently-installation"
"""Metadata that says whose a sandbox is. Plain DNS labels, which every runtime takes, Fast Sandbox too."""
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class StatusRead(Read):
    state: str
    reason: str | None = None
    message: str | None = None


class SandboxRead(Read):
    id: str
    status: StatusRead
    metadata: dict[str, str] | None = None
    snapshot_id: str | None = None
    created_at: datetime
    expires_at: datetime | None = None

    @property
    def owner(self) -> Owner:
        labels = self.metadata or {}
        return Owner(labels.get(KEY_INSTALLATION, ""), labels.get(KEY_SANDBOX, ""))

    @property
    def state(self) -> str:
        return self.status.state.lower()

    @property
    def told(self) -> str:
        return ": ".join(part for part in (self.status.reason, self.status.message) if part)


class PaginationRead(Read):
    total_items: int
    has_next_page: bool


class SandboxPage(Read):
    items: list[SandboxRead]
    pagination: PaginationRead


class SnapshotRead(Read):
    id: str
    sandbox_id: str
    name: str | None = None
    status: StatusRead
    created_at: datetime


class SnapshotPage(Read):
    items: list[SnapshotRead]
    pagination: PaginationRead


class EndpointRead(Read):
    endpoint: str
    headers: dict[str, str] | None = None


class RenewalRead(Read):
    expires_at: datetime | None = None


class PoolSpecRead(Read):
    pool_max: int


class PoolStatusRead(Read):
    allocated: int


class PoolRead(Read):
    name: str
    capacity_spec: PoolSpecRead
    status: PoolStatusRead | None = None


class PoolList(Read):
    items: list[PoolRead]


class TemplateRead(Read):
    id: str | None = None
    name: str | None = None
    image: str | None = None


class TemplatePage(Read):
    items: list[TemplateRead]


class RuleRead(Read):
    action: str
    target: str


class RulesRead(Read):
    default_action: str = "deny"
    egress: list[RuleRead] = []


class PolicyRead(Read):
    enforcement_mode: str = ""
    policy: RulesRead


class VersionRead(Read):
    version: str


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which may hold secrets
        pass
    raise ProviderUnavailable("The backend answered something that is not of its API.")


def ids(items: Sequence[SandboxRead]) -> set[str]:
    return {item.id for item in items}
