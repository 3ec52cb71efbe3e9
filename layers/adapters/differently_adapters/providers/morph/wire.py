"""Their JSON, as far as we read it, and what it means to us; times are seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner, SnapshotState
from differently_core.errors import ProviderUnavailable

KEY_SANDBOX: Final = "differently-sandbox-id"
KEY_INSTALLATION: Final = "differently-installation"
KEY_OPERATION: Final = "differently-operation"
STATES: Final[Mapping[str, InstanceState]] = {
    "pending": InstanceState.PENDING,
    "ready": InstanceState.RUNNING,
    "saving": InstanceState.PENDING,
    "paused": InstanceState.PAUSED,
    "error": InstanceState.ERROR,
}
SNAPSHOT_STATES: Final[Mapping[str, SnapshotState]] = {
    "pending": SnapshotState.CREATING,
    "ready": SnapshotState.READY,
}
T = TypeVar("T")


class Read(BaseModel):
    """In snake case, as Morph has it."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Owned(Read):
    metadata: dict[str, str] | None = None

    @property
    def owner(self) -> Owner:
        metadata = self.metadata or {}
        return Owner(metadata.get(KEY_INSTALLATION, ""), metadata.get(KEY_SANDBOX, ""))


class ServiceRead(Read):
    name: str
    port: int
    url: str


class NetworkingRead(Read):
    http_services: list[ServiceRead] = []


class TtlRead(Read):
    ttl_expire_at: datetime | None = None


class InstanceRead(Owned):
    id: str
    created: datetime
    status: str
    networking: NetworkingRead = NetworkingRead()
    ttl: TtlRead | None = None

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.status, InstanceState.PENDING)

    def instance(self) -> Instance:
        return Instance(
            ref=self.id, owner=self.owner, state=self.at, prepared="metadata",
            message="" if self.at is InstanceState.RUNNING else self.status,
            expires_at=self.ttl.ttl_expire_at if self.ttl is not None else None,
        )  # fmt: skip


class InstancePage(Read):
    instances: list[InstanceRead]
    total: int


class SnapshotRead(Owned):
    id: str
    status: str
    created: datetime | None = None


class Snapshots(Read):
    data: list[SnapshotRead]


class StreamRead(Read):
    type: str
    content: str | int | None = None


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer
        pass
    raise ProviderUnavailable("Morph answered something that is not of its API.")


def labels(owner: Owner) -> dict[str, JsonValue]:
    return {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}
