"""Their JSON, as far as we read it, and what it means to us. Times and durations are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

TAG_SANDBOX: Final = "differently-sandbox-id"
TAG_INSTALLATION: Final = "differently-installation"
STATES: Final[Mapping[str, InstanceState]] = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "snapshotting": InstanceState.RUNNING,
    "stopping": InstanceState.PENDING,
    "stopped": InstanceState.STOPPED,
    "failed": InstanceState.ERROR,
    "aborted": InstanceState.ERROR,
}
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class RouteRead(Read):
    url: str
    port: int


class SessionRead(Read):
    id: str
    status: str = ""
    started_at: int | None = None
    timeout: int | None = None
    network_policy: JsonValue = None


class NamedRead(Read):
    name: str
    status: str | None = None
    current_session_id: str = ""
    tags: dict[str, str] | None = None
    network_policy: JsonValue = None


class SandboxRead(Read):
    """One sandbox; an entry of a list has no session and no routes."""

    sandbox: NamedRead
    session: SessionRead | None = None
    routes: tuple[RouteRead, ...] = ()

    @property
    def name(self) -> str:
        return self.sandbox.name

    @property
    def owner(self) -> Owner:
        tags = self.sandbox.tags or {}
        return Owner(tags.get(TAG_INSTALLATION, ""), tags.get(TAG_SANDBOX, ""))

    @property
    def status(self) -> str:
        return self.sandbox.status or (self.session.status if self.session else "")

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.status, InstanceState.PENDING)

    @property
    def stops_at(self) -> datetime | None:
        """When Vercel stops the session that runs."""
        session = self.session
        if session is None or session.started_at is None or session.timeout is None:
            return None
        return datetime.fromtimestamp((session.started_at + session.timeout) / 1000, UTC)


class PaginationRead(Read):
    next: str | None = None


class PageRead(Read):
    sandboxes: list[NamedRead]
    pagination: PaginationRead | None = None


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer
        pass
    raise ProviderUnavailable("Vercel answered something that is not of its API.")


def tags(owner: Owner) -> dict[str, JsonValue]:
    return {TAG_INSTALLATION: owner.installation, TAG_SANDBOX: owner.sandbox}


def instance(seen: SandboxRead) -> Instance:
    """Its name is its ref: a session is one boot of it, and names its incarnation."""
    return Instance(
        ref=seen.name, owner=seen.owner, state=seen.at,
        message="" if seen.at is InstanceState.RUNNING else seen.status, prepared="tags",
        incarnation=seen.sandbox.current_session_id,
        expires_at=seen.stops_at if seen.at is InstanceState.RUNNING else None,
    )  # fmt: skip
