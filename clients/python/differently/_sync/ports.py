"""Ports of a running sandbox, reachable from outside for a while."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

from .._request import at, given, request
from ..models import ExposedPort, PortClosed, PortView
from .transport import Transport

Listing = list[PortView]


class Ports:
    """The ports of one sandbox."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def open(self, port: int, *, ttl_seconds: int | None = None) -> ExposedPort:
        """Its `url` leads there until `expires_at`. Whoever has it can reach the port, so treat it as a secret."""
        body = given(port=port, ttl_seconds=ttl_seconds)
        return ExposedPort.from_dict(self._transport.document(request("POST", self._path(), body=body)))

    def list(self) -> Listing:
        """Open ports, without their addresses; open one again to be told that."""
        found = self._transport.document(request("GET", self._path()))
        return [PortView.from_dict(item) for item in found["items"]]

    def close(self, port: int) -> PortClosed:
        """Its address leads nowhere from then on. Closing one that is not open is success."""
        return PortClosed.from_dict(self._transport.document(request("DELETE", f"{self._path()}/{port:d}")))

    def _path(self) -> str:
        return at("/v1/sandboxes/{}/ports", self._sandbox)
