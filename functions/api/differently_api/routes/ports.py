"""Ports of a running sandbox, made reachable from outside for a while."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field

from differently_core.errors import LimitExceeded, NotFound
from differently_core.model.port import (
    PORT_MAX,
    PORT_SECONDS_DEFAULT,
    PORT_SECONDS_MAX,
    PORT_SECONDS_MIN,
    OpenPort,
    PortStatus,
)
from differently_core.model.record import Wire
from differently_core.operations import ports

from ..route import Access, Call, Group, Method, NoBody, NoQuery, Route
from .commands import RUNNING_ERRORS


class ExposePort(Wire):
    port: Annotated[int, Field(ge=1, le=PORT_MAX)]
    ttl_seconds: Annotated[int, Field(ge=PORT_SECONDS_MIN, le=PORT_SECONDS_MAX)] = PORT_SECONDS_DEFAULT
    """How long it may be reached, from now; never longer than the sandbox lives."""


class ExposedPort(Wire):
    port: int
    url: str
    """Whoever has it can reach the port, so treat it as a secret. It is told here and kept nowhere."""
    expires_at: datetime


class PortView(Wire):
    """An open port, without its address; open it again to be told that."""

    port: int
    status: PortStatus
    opened_at: datetime
    expires_at: datetime

    @classmethod
    def of(cls, row: OpenPort) -> Self:
        return cls(port=row.port, status=row.status, opened_at=row.opened_at, expires_at=row.expires_at)


class PortList(Wire):
    items: list[PortView]


class PortClosed(Wire):
    port: int
    status: Literal["closed", "closing"]
    """`closing` while the backend has not confirmed it; it is asked until it does."""


def expose_port(call: Call[ExposePort, NoQuery]) -> ExposedPort:
    asked = call.body
    row, url = ports.expose(call.core, call.caller, call.params["id"], asked.port, asked.ttl_seconds)
    return ExposedPort(port=row.port, url=url, expires_at=row.expires_at)


def list_ports(call: Call[NoBody, NoQuery]) -> PortList:
    return PortList(items=[PortView.of(row) for row in ports.list_ports(call.core, call.caller, call.params["id"])])


def get_port(call: Call[NoBody, NoQuery]) -> PortView:
    port = _port(call.params["port"])
    for row in ports.list_ports(call.core, call.caller, call.params["id"]):
        if row.port == port:
            return PortView.of(row)
    raise NotFound(f"Port {port} of this sandbox is not open.", port=port)


def close_port(call: Call[NoBody, NoQuery]) -> PortClosed:
    port = _port(call.params["port"])
    left = ports.close(call.core, call.caller, call.params["id"], port)
    return PortClosed(port=port, status="closed" if left is None else "closing")


def _port(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 5 and 1 <= int(text) <= PORT_MAX:
        return int(text)
    raise NotFound(f"There is no port {text[:16]!r}; ports are numbers from 1 to {PORT_MAX}.")


ROUTES = (
    Route(
        Method.POST, "/v1/sandboxes/{id}/ports", Group.DATA, Access.TENANT, expose_port,
        "Open a port", ExposePort, NoQuery, ExposedPort, errors=(*RUNNING_ERRORS, LimitExceeded),
        description="Answers with an address that leads to the port until `expiresAt`, or until the sandbox no longer "
        "runs. Opening an open port again prolongs it and may give the same address.",
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}/ports", Group.CONTROL, Access.TENANT, list_ports,
        "List open ports", NoBody, NoQuery, PortList,
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}/ports/{port}", Group.CONTROL, Access.TENANT, get_port,
        "Read an open port", NoBody, NoQuery, PortView,
    ),
    Route(
        Method.DELETE, "/v1/sandboxes/{id}/ports/{port}", Group.DATA, Access.TENANT, close_port,
        "Close a port", NoBody, NoQuery, PortClosed, errors=RUNNING_ERRORS,
        description="Its address leads nowhere from then on. Closing a port that is not open is success.",
    ),
)  # fmt: skip
