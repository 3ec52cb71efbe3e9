"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

KEY_SANDBOX: Final = "differently-sandbox-id"
KEY_INSTALLATION: Final = "differently-installation"
STATES: Final[Mapping[str, InstanceState]] = {
    "started": InstanceState.RUNNING,
    "snapshotting": InstanceState.RUNNING,
    "stopped": InstanceState.STOPPED,
    "archived": InstanceState.STOPPED,
    "destroying": InstanceState.STOPPED,  # it is its owner's, and counts against the organization, until it is gone
    "paused": InstanceState.PAUSED,
    "error": InstanceState.ERROR,
    "build_failed": InstanceState.ERROR,
}
"""All others are on their way somewhere, or new to us: no information, which never makes a sandbox lost."""
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class SandboxRead(Read):
    id: str
    name: str = ""
    state: str = "unknown"
    desired_state: str | None = None
    error_reason: str | None = None
    labels: dict[str, str] | None = None
    created_at: datetime | None = None
    auto_destroy_at: datetime | None = None
    toolbox_proxy_url: str | None = None
    network_block_all: bool = False
    network_allow_list: str | None = None
    domain_allow_list: str | None = None

    @property
    def owner(self) -> Owner:
        labels = self.labels or {}
        return Owner(labels.get(KEY_INSTALLATION, ""), labels.get(KEY_SANDBOX, ""))

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.state, InstanceState.PENDING)


class SandboxPage(Read):
    items: list[SandboxRead]
    next_cursor: str | None = None


class SnapshotRead(Read):
    id: str
    name: str
    state: str
    size: float | None = None
    error_reason: str | None = None


class PreviewRead(Read):
    url: str


class ExecuteRead(Read):
    exit_code: int = 0
    result: str


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which holds the environment
        pass
    raise ProviderUnavailable("Daytona answered something that is not of its API.")


def labels(owner: Owner) -> dict[str, JsonValue]:
    return {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}


def instance(seen: SandboxRead) -> Instance:
    message = "" if seen.at is InstanceState.RUNNING else (seen.error_reason or seen.state)
    return Instance(
        ref=seen.id, owner=seen.owner, state=seen.at, message=message, prepared="labels",
        expires_at=seen.auto_destroy_at,
    )  # fmt: skip
