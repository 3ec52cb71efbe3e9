"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

KEY_SANDBOX: Final = "differently-sandbox-id"
KEY_INSTALLATION: Final = "differently-installation"
STATES: Final[Mapping[str, InstanceState]] = {"running": InstanceState.RUNNING, "paused": InstanceState.PAUSED}
"""What is on its way to be paused is told as running by some releases, and by its own word by others."""
T = TypeVar("T")


def _named(name: str) -> str:
    """Their names: camel case with `ID` in capitals."""
    camelled = camel(name)
    return f"{camelled[:-2]}ID" if camelled.endswith("Id") else camelled


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=_named, populate_by_name=True)


class SandboxRead(Read):
    """An entry of a list, or what is told of one sandbox."""

    sandbox_id: str
    state: str
    started_at: datetime
    end_at: datetime | None = None
    metadata: dict[str, str] | None = None
    envd_access_token: str | None = Field(default=None, repr=False)

    @property
    def owner(self) -> Owner:
        metadata = self.metadata or {}
        return Owner(metadata.get(KEY_INSTALLATION, ""), metadata.get(KEY_SANDBOX, ""))

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.state.lower(), InstanceState.PENDING)

    @property
    def expires_at(self) -> datetime | None:
        """The end is told as the start where CubeSandbox does not know it."""
        if self.at is not InstanceState.RUNNING or self.end_at is None or self.end_at <= self.started_at:
            return None
        return self.end_at

    def instance(self) -> Instance:
        return Instance(
            ref=self.sandbox_id, owner=self.owner, state=self.at, prepared="metadata", expires_at=self.expires_at,
            message="" if self.at is InstanceState.RUNNING else self.state[:100],
        )  # fmt: skip


class CreatedRead(Read):
    sandbox_id: str


class SnapshotRead(Read):
    snapshot_id: str
    names: tuple[str, ...] = ()


class TemplateRead(Read):
    template_id: str
    names: tuple[str, ...] | None = None
    aliases: tuple[str, ...] | None = None


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which may hold a token
        pass
    raise ProviderUnavailable("CubeSandbox answered something that is not of its API.")


def labels(owner: Owner) -> dict[str, JsonValue]:
    return {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}


def oldest_first(found: Sequence[SandboxRead]) -> list[SandboxRead]:
    return sorted(found, key=lambda seen: (seen.started_at, seen.sandbox_id))
