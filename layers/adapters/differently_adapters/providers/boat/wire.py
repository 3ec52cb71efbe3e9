"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner, SnapshotState
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

from .names import owner_in

CANCELLED: Final = "cancelled"
"""No machine could be got; told once, and gone after that."""
STATES: Final[Mapping[str, InstanceState]] = {
    "ready": InstanceState.RUNNING,
    "idle": InstanceState.RUNNING,
    "running": InstanceState.RUNNING,
    "archived": InstanceState.STOPPED,
    "error": InstanceState.ERROR,
    CANCELLED: InstanceState.ERROR,
}
SNAPSHOT_STATES: Final[Mapping[str, SnapshotState]] = {
    "saving": SnapshotState.CREATING,
    "ready": SnapshotState.READY,
}
NOBODY: Final = Owner("", "")
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class MachineRead(Read):
    """`access` is `owner` for what our own account made; a colleague can give any name to his."""

    id: str
    name: str = ""
    state: str
    access: str | None = None
    created_at: datetime | None = None
    archive_after: datetime | None = None

    @property
    def owner(self) -> Owner:
        return (owner_in(self.name) if self.access in {None, "owner"} else None) or NOBODY

    @property
    def at(self) -> InstanceState:
        return STATES.get(self.state, InstanceState.PENDING)

    def instance(self) -> Instance:
        return Instance(
            ref=self.id, owner=self.owner, state=self.at, prepared="name", expires_at=self.archive_after,
            message="" if self.at is InstanceState.RUNNING else self.state,
        )  # fmt: skip


class MachineTold(Read):
    sandbox: MachineRead


class PageInfo(Read):
    next_cursor: str | None
    has_more: bool


class MachinePage(Read):
    sandboxes: list[MachineRead]
    page_info: PageInfo


class SnapshotRead(Read):
    name: str
    status: str


class SnapshotTold(Read):
    snapshot: SnapshotRead


class SnapshotsTold(Read):
    snapshots: list[SnapshotRead]


class MachineType(Read):
    type: str
    available: bool


class LimitsRead(Read):
    can_start: bool
    active_sandboxes: int
    max_active_sandboxes: int
    machine_types: list[MachineType] | None = None

    def room(self, machine_type: str) -> int:
        """How many more machines of the type may be started now."""
        kinds = self.machine_types or []
        if not self.can_start or any(kind.type == machine_type and not kind.available for kind in kinds):
            return 0
        return max(0, self.max_active_sandboxes - self.active_sandboxes)


class StartedRead(Read):
    process_id: int


class FrameRead(Read):
    """A line of a command's output as it comes. Offsets count bytes of the stream."""

    type: str
    data: str = ""
    next_offset: int | None = None
    stdout_offset: int | None = None


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer
        pass
    raise ProviderUnavailable("Boat answered something that is not of its API.")
