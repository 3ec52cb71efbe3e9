"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import camel

MARK: Final = "differently"
STATES: Final[Mapping[str, InstanceState]] = {
    "COMPLETED": InstanceState.RUNNING,
    "FAILED": InstanceState.ERROR,
}
"""All others are on their way, or new to us: no information, which never makes a sandbox lost."""
_WORDS: Final = 3
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class DeploymentStatusRead(Read):
    status: str = ""


class StatusRead(Read):
    deployment: DeploymentStatusRead | None = None


class DeploymentRead(Read):
    instances: int | None = None


class ServiceRead(Read):
    """`deployment` is in the answer to a look and not in a list."""

    id: str
    description: str | None = None
    service_paused: bool | None = None
    status: StatusRead | None = None
    deployment: DeploymentRead | None = None

    @property
    def owner(self) -> Owner:
        words = (self.description or "").split(" ")
        if len(words) != _WORDS or words[0] != MARK:
            return Owner("", "")
        return Owner(words[1], words[2])

    @property
    def at(self) -> InstanceState:
        if self.service_paused or (self.deployment is not None and self.deployment.instances == 0):
            return InstanceState.STOPPED
        return STATES.get(self._word, InstanceState.PENDING)

    @property
    def _word(self) -> str:
        return self.status.deployment.status if self.status and self.status.deployment else ""

    def instance(self) -> Instance:
        return Instance(
            ref=self.id, owner=self.owner, state=self.at, prepared="metadata",
            message="" if self.at is InstanceState.RUNNING else self._word[:100],
        )  # fmt: skip


class ServiceAnswer(Read):
    data: ServiceRead


class ServicesRead(Read):
    services: list[ServiceRead]


class PaginationRead(Read):
    has_next_page: bool | None = None
    cursor: str | None = None

    @property
    def goes_on(self) -> bool:
        return bool(self.cursor) if self.has_next_page is None else self.has_next_page


class ServicePage(Read):
    data: ServicesRead
    pagination: PaginationRead


class ToldData(Read):
    """`auth` says what became of the token."""

    auth: str = ""


class Told(Read):
    """A message of a command's WebSocket. Whatever else an `error` or a `completion` holds is not read."""

    type: str
    data: ToldData | str | None = None

    @property
    def text(self) -> str:
        """A part of a stream."""
        return self.data if isinstance(self.data, str) else ""

    @property
    def let_in(self) -> bool:
        return isinstance(self.data, ToldData) and self.data.auth == "successful"


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which holds the environment
        pass
    raise ProviderUnavailable("Northflank answered something that is not of its API.")


def description(owner: Owner) -> str:
    """Says whose a service is. Tags would have to be made for the whole account first."""
    return f"{MARK} {owner.installation} {owner.sandbox}"
