"""A plugin's server on a loopback socket whose answers can be lost, cut, dripped or replaced by a page."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from differently_adapters.remote.handler import Answer, Handler
from differently_adapters.remote.serve import Connection, PluginServer
from differently_core.contract import Adapter, Operation


class Mishap(StrEnum):
    """What befalls an answer, after the plugin has done what was asked."""

    DROPPED = "dropped"
    CUT = "cut"
    UNFINISHED = "unfinished"
    """A stream without its last line."""
    DRIPPED = "dripped"
    PAGE = "page"
    OTHER_PROTOCOL = "other protocol"
    NO_PROTOCOL = "no protocol"


ROUTES = {
    Operation.CREATE: re.compile(r"POST \S*/instances$"),
    Operation.DELETE: re.compile(r"DELETE \S*/instances(/[^/]*|\?\S*)$"),
    Operation.LIST: re.compile(r"GET \S*/instances\?"),
    Operation.EXEC: re.compile(r"POST \S*/exec"),
}


class FaultyServer(PluginServer):
    """`expect` queues mishaps for the next answers of a route; `always` befalls each of them. `down` closes on all."""

    def __init__(self, adapter: Adapter, token: str | None) -> None:
        super().__init__(Handler(adapter, token))
        self.RequestHandlerClass = FaultyConnection
        self.down = False
        self.requests: list[str] = []
        self.always: dict[Operation, Mishap] = {}
        self.released = threading.Event()
        self._expected: dict[Operation, deque[Mishap]] = {operation: deque() for operation in ROUTES}

    def expect(self, operation: Operation, *mishaps: Mishap) -> None:
        self._expected[operation].extend(mishaps)

    def mishap(self, request: str) -> Mishap | None:
        for operation, route in ROUTES.items():
            if route.match(request):
                expected = self._expected[operation]
                return expected.popleft() if expected else self.always.get(operation)
        return None


class FaultyConnection(Connection):
    server: FaultyServer

    def answer(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        if self.server.down:
            self._hang_up()
            return
        super().answer()

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def send(self, answer: Answer, body) -> None:
        match self.server.mishap(f"{self.command} {self.path}"):
            case Mishap.DROPPED:
                b"".join(answer.body)
                self._hang_up()
            case Mishap.CUT:
                whole = b"".join(answer.body)
                super().send(replace(answer, body=_cut(whole)), body)
            case Mishap.UNFINISHED:
                super().send(replace(answer, body=_without_last(answer.body)), body)
            case Mishap.DRIPPED:
                super().send(replace(answer, body=self._dripped(b"".join(answer.body))), body)
            case Mishap.PAGE:
                page = b"<html>504 Gateway Time-out</html>"
                headers = [("Content-Type", "text/html"), ("Content-Length", str(len(page)))]
                super().send(Answer(200, headers, [page]), body)
            case Mishap.OTHER_PROTOCOL:
                super().send(replace(answer, headers=_protocol(answer, "2")), body)
            case Mishap.NO_PROTOCOL:
                super().send(replace(answer, headers=_protocol(answer, None)), body)
            case None:
                super().send(answer, body)

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _dripped(self, whole: bytes) -> Iterator[bytes]:
        for at in range(len(whole)):
            yield whole[at : at + 1]
            if self.server.released.wait(0.02):
                raise ConnectionError("given up")


def _cut(whole: bytes) -> Iterator[bytes]:
    yield whole[: len(whole) // 2]
    raise ConnectionError("cut")


def _without_last(pieces) -> Iterator[bytes]:
    held: bytes | None = None
    for piece in pieces:
        if held is not None:
            yield held
        held = piece
    raise ConnectionError("cut")


def _protocol(answer: Answer, version: str | None) -> list[tuple[str, str]]:
    headers = [(name, value) for name, value in answer.headers if name != "Differently-Adapter-Protocol"]
    return headers if version is None else [*headers, ("Differently-Adapter-Protocol", version)]


@contextlib.contextmanager
def faulty(adapter: Adapter, token: str | None) -> Iterator[FaultyServer]:
    server = FaultyServer(adapter, token)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
