"""What AWS answers about MicroVMs and their images, as far as we read it; times are seconds since 1970."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

T = TypeVar("T")

STATES = {
    "PENDING": InstanceState.PENDING,
    "RUNNING": InstanceState.RUNNING,
    "SUSPENDING": InstanceState.PENDING,
    "SUSPENDED": InstanceState.PAUSED,
    "TERMINATING": InstanceState.STOPPED,  # it is its owner's until it is gone
}
GONE = "TERMINATED"
ENDING = frozenset({"TERMINATING", GONE})


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class Microvm(Read):
    """`endpoint`, `maximumDurationInSeconds` and the reason are missing in a list."""

    microvm_id: str
    state: str
    image_arn: str
    started_at: datetime
    endpoint: str = ""
    maximum_duration_in_seconds: int | None = None
    state_reason: str | None = None

    def instance(self, owner: Owner, lifetime_seconds: int) -> Instance:
        state = STATES.get(self.state, InstanceState.PENDING)
        seconds = self.maximum_duration_in_seconds or lifetime_seconds
        return Instance(
            ref=self.microvm_id, owner=owner, state=state, prepared="agent",
            message="" if state is InstanceState.RUNNING else (self.state_reason or self.state),
            # Its memory is kept as long as it exists: there is one incarnation.
            incarnation=self.started_at.isoformat(), expires_at=self.started_at + timedelta(seconds=seconds),
        )  # fmt: skip


class MicrovmPage(Read):
    items: list[Microvm]
    next_token: str | None = None


class Token(Read):
    auth_token: dict[str, str]


class Image(Read):
    image_arn: str
    name: str = ""
    state: str
    latest_active_image_version: str | None = None
    tags: dict[str, str] | None = None


class ImagePage(Read):
    items: list[Image]
    next_token: str | None = None


class Guest(Read):
    """What the agent's run hook wrote down of the payload that it was given."""

    installation: str
    sandbox: str


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer
        pass
    raise ProviderUnavailable("AWS answered something that is not of its API.")
