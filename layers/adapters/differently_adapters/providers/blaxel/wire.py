"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

KEY_SANDBOX: Final = "differently-sandbox-id"
KEY_INSTALLATION: Final = "differently-installation"
STATES: Final[Mapping[str, InstanceState]] = {
    "DEPLOYED": InstanceState.RUNNING,
    "DEACTIVATED": InstanceState.STOPPED,
    "ARCHIVED": InstanceState.STOPPED,
    "DELETING": InstanceState.STOPPED,  # it is its owner's until it is gone
    "FAILED": InstanceState.ERROR,
}
"""All others are on their way somewhere, or new to us: no information, which never makes a sandbox lost."""
GONE: Final = "TERMINATED"
"""Told of a sandbox for a while after it is gone."""
ASLEEP: Final = "STANDBY"
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class MetadataRead(Read):
    name: str
    labels: dict[str, str] | None = None
    url: str | None = None


class SandboxRead(Read):
    metadata: MetadataRead
    status: str = ""
    state: str | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def owner(self) -> Owner:
        labels = self.metadata.labels or {}
        return Owner(labels.get(KEY_INSTALLATION, ""), labels.get(KEY_SANDBOX, ""))

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.status, InstanceState.PENDING)


class MetaRead(Read):
    has_more: bool = False
    next_cursor: str | None = None


class PageRead(Read):
    data: list[SandboxRead]
    meta: MetaRead


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which holds the environment
        pass
    raise ProviderUnavailable("Blaxel answered something that is not of its API.")


def labels(owner: Owner) -> dict[str, JsonValue]:
    return {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}


def instance(seen: SandboxRead) -> Instance:
    """Its name is its ref. One that sleeps runs as far as anybody can tell who uses it."""
    running = seen.at is InstanceState.RUNNING
    return Instance(
        ref=seen.name, owner=seen.owner, state=seen.at, message="" if running else seen.status, prepared="labels",
        idle=running and seen.state == ASLEEP,
    )  # fmt: skip
