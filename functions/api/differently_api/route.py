"""What a route is. Everything about one is declared once: dispatch, access checks, the OpenAPI document, the written
reference and the authorization tests are all read from the same declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from differently_core.errors import DifferentlyError
from differently_core.model.record import Wire
from differently_core.operations.core import Caller, Core

if TYPE_CHECKING:
    from .proxy import Request
    from .service import Service

B = TypeVar("B")
Q = TypeVar("Q", bound=BaseModel)


class Group(StrEnum):
    """The function that serves a route: by privilege, and by how long an answer may take."""

    CONTROL = "control"
    """Sandboxes as records. Answers within 29 s."""
    ADMIN = "admin"
    """What operators decide. The key is read again on each call, so that a revocation acts at once."""
    DATA = "data"
    """Commands, files, moves and waiting: what reaches backends. Answers may be streamed for up to 15 minutes."""


class Access(StrEnum):
    PUBLIC = "public"
    """No key."""
    TENANT = "tenant"
    """A project's key, within its project; an operator's key, which names the project where one is needed."""
    ANY = "any"
    """Any key; the answer depends on whose it is."""
    OPERATOR = "operator"


class Method(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class NoBody(Wire):
    """Nothing is read from the body."""


class NoQuery(Wire):
    """No query parameter is known."""


Body = str | bytes | Iterator[bytes] | None


@dataclass(frozen=True)
class Answer:
    """An HTTP answer. `body` is JSON text, raw bytes, or an iterator of bytes that is sent as it comes.

    `facts` go to the request's log line; they are ids and sizes, never content.
    """

    status: int
    body: Body = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str | int | bool] = field(default_factory=dict)


Reply = BaseModel | Answer
"""A handler answers with a model, which is sent with the route's own status, or with a whole answer."""


@dataclass(frozen=True)
class Call(Generic[B, Q]):
    """One checked call: the caller may make it, body and query are what the route declares."""

    service: Service
    caller: Caller
    request: Request
    params: Mapping[str, str]
    body: B
    query: Q

    @property
    def core(self) -> Core:
        return self.service.core


@dataclass(frozen=True)
class Route(Generic[B, Q]):
    """`path` holds `{names}`. `answer` is the JSON model of a success, `media` the type of a success that is bytes.

    A route with both answers with either. Without any the answer has no body. `errors` lists what the operation itself
    raises; what every route of its sort can raise is added from the declaration.
    """

    method: Method
    path: str
    group: Group
    access: Access
    handle: Callable[[Call[B, Q]], Reply]
    summary: str
    body: type[B]
    query: type[Q]
    answer: type[BaseModel] | None = None
    status: int = 200
    media: str | None = None
    also: tuple[int, ...] = ()
    """Other statuses of a success, with the same model."""
    waits: bool = False
    """The JSON answer is streamed: white space first, to keep the connection."""
    errors: tuple[type[DifferentlyError], ...] = ()
    description: str = ""
    request_headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.path.strip("/").split("/"))

    @property
    def params(self) -> tuple[str, ...]:
        return tuple(segment[1:-1] for segment in self.segments if segment.startswith("{"))

    @property
    def streamed(self) -> bool:
        """Whether an answer may be an iterator of bytes."""
        return self.media is not None or self.waits

    @property
    def name(self) -> str:
        """How logs and documents call it: `POST /v1/sandboxes`."""
        return f"{self.method} {self.path}"

    @property
    def operation_id(self) -> str:
        return self.handle.__name__


AnyRoute = Route[Any, Any]
