"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

KEY_SANDBOX: Final = "differently-sandbox-id"
KEY_INSTALLATION: Final = "differently-installation"
FOREVER: Final = -1
STATES: Final[Mapping[str, InstanceState]] = {
    "starting": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "pausing": InstanceState.PENDING,
    "paused": InstanceState.PAUSED,
    "stopped": InstanceState.STOPPED,
}
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class VmRead(Read):
    id: str
    state: str
    slug: str | None = None
    metadata: dict[str, str] | None = None
    ttl_seconds: int | None = None
    created_at: datetime

    @property
    def owner(self) -> Owner:
        metadata = self.metadata or {}
        return Owner(metadata.get(KEY_INSTALLATION, ""), metadata.get(KEY_SANDBOX, ""))

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.state, InstanceState.PENDING)

    @property
    def expires_at(self) -> datetime | None:
        """The time to live counts from the creation, whatever the state."""
        if self.ttl_seconds is None or self.ttl_seconds < 0:
            return None
        return self.created_at + timedelta(seconds=self.ttl_seconds)

    def instance(self) -> Instance:
        return Instance(
            ref=self.id, owner=self.owner, state=self.at, prepared="metadata", expires_at=self.expires_at,
            message="" if self.at is InstanceState.RUNNING else self.state,
        )  # fmt: skip


class VmPage(Read):
    vms: list[VmRead]
    total_count: int


class SnapshotRead(Read):
    id: str
    slug: str | None = None
    display_name: str | None = None
    source_vm_id: str | None = None


class SnapshotPage(Read):
    snapshots: list[SnapshotRead]
    total_count: int


class SnapshotMade(Read):
    snapshot_id: str


class RanRead(Read):
    """`status_code` is None when Freestyle's own time limit ended the command."""

    stdout: str = ""
    stderr: str = ""
    status_code: int | None = None


class TlsRead(Read):
    id: str
    domain: str


class TlsPage(Read):
    rules: list[TlsRead]


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer
        pass
    raise ProviderUnavailable("Freestyle answered something that is not of its API.")


def labels(owner: Owner) -> dict[str, JsonValue]:
    return {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}


def slug(*names: str) -> str:
    """A name that Freestyle gives to one thing of an account only, made of characters that it takes."""
    return f"dfy-{hashlib.sha256(chr(0).join(names).encode()).hexdigest()[:48]}"
