"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable

KEY_SANDBOX: Final = "differently_sandbox_id"
KEY_INSTALLATION: Final = "differently_installation"
"""Plain names: a dot or a slash would be part of a path in some calls."""
STATES: Final[Mapping[str, InstanceState]] = {
    "started": InstanceState.RUNNING,
    "stopped": InstanceState.STOPPED,
    "suspended": InstanceState.PAUSED,
    "destroying": InstanceState.STOPPED,  # it is its owner's until it is gone
    "failed": InstanceState.ERROR,
    "launch_failed": InstanceState.ERROR,
}
"""All others are on their way somewhere, or new to us: no information, which never makes a sandbox lost."""
GONE: Final = frozenset({"destroyed", "replaced", "migrated"})
"""Told of a machine for a while after it is gone."""
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ConfigRead(Read):
    metadata: dict[str, str] | None = None


class MachineRead(Read):
    id: str
    name: str = ""
    state: str = ""
    region: str | None = None
    created_at: str = ""
    config: ConfigRead | None = None

    @property
    def owner(self) -> Owner:
        metadata = (self.config.metadata if self.config else None) or {}
        return Owner(metadata.get(KEY_INSTALLATION, ""), metadata.get(KEY_SANDBOX, ""))

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.state, InstanceState.PENDING)


class ExecRead(Read):
    """`exit_code` is left out when it is 0."""

    exit_code: int = 0
    stdout: str | None = None


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which holds the environment
        pass
    raise ProviderUnavailable("Fly answered something that is not of its API.")


def metadata(owner: Owner) -> dict[str, JsonValue]:
    return {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}


def instance(seen: MachineRead) -> Instance:
    return Instance(
        ref=seen.id, owner=seen.owner, state=seen.at, region=seen.region,
        message="" if seen.at is InstanceState.RUNNING else seen.state, prepared="metadata",
    )  # fmt: skip


def oldest_first(found: Sequence[MachineRead]) -> list[MachineRead]:
    return sorted(found, key=lambda seen: (seen.state == "destroying", seen.created_at, seen.id))
