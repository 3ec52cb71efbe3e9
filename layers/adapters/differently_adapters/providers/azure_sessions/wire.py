"""Their JSON, as far as we read it, and what it means to us."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from differently_core.contract import Instance, InstanceState, Owner
from differently_core.errors import NotFound, ProviderUnavailable
from differently_core.model.record import camel

_PREFIX: Final = "differently"
_PART: Final = re.compile("[A-Za-z0-9_]{1,120}")
T = TypeVar("T")


class Read(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)


class SessionRead(Read):
    """`etag` names the container: it is another one when the session was made anew."""

    identifier: str
    etag: str = ""
    expire_at: datetime | None = None

    @property
    def owner(self) -> Owner:
        return owner_in(self.identifier)

    def instance(self) -> Instance:
        return Instance(
            ref=self.identifier, owner=self.owner, state=InstanceState.RUNNING, prepared="metadata",
            incarnation=self.etag, expires_at=self.expire_at,
        )  # fmt: skip


class SessionsRead(Read):
    sessions: list[SessionRead]
    next_link: str | None = None

    @property
    def next_skip(self) -> str | None:
        """How many entries lie before the next page; None on the last one."""
        if not self.next_link:
            return None
        found = parse_qs(urlsplit(self.next_link).query).get("skip", [""])[0]
        if not found.isdecimal():
            raise ProviderUnavailable("Azure tells of a next page and not where it is.", settled=True)
        return found


class ResultRead(Read):
    stdout: str | None = None


class ExecutionRead(Read):
    id: str = ""
    status: str = ""
    result: ResultRead | None = None

    @property
    def is_over(self) -> bool:
        return self.status not in {"NotStarted", "Running"}


class TokenRead(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    access_token: str = Field(repr=False)
    expires_in: float = 0.0


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is the backend's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which may hold a token or what a command printed
        pass
    raise ProviderUnavailable("Azure answered something that is not of its API.")


def identifier(owner: Owner) -> str:
    """All that Azure keeps of us: a session is whose its identifier says. `NotFound` for whom none can be of."""
    if not _PART.fullmatch(owner.installation) or not _PART.fullmatch(owner.sandbox):
        raise NotFound("No session can have the identifier of such a sandbox.")
    return f"{_PREFIX}-{owner.installation}-{owner.sandbox}"


def owner_in(name: str) -> Owner:
    """Of nobody for a session that is not one of ours."""
    match name.split("-"):
        case [prefix, installation, sandbox] if prefix == _PREFIX:
            return Owner(installation, sandbox)
        case _:
            return Owner("", "")
