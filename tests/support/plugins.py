"""A plugin's server on a loopback socket whose answers can be lost, cut, dripped or replaced by a page."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import StrEnum

from differently_adapters.remote.handler import Answer, Handler
from differently_adapters.remote.serve import Connection, PluginServer
from differently_core.contract import Adapter, Operation


class Spoiled(StrEnum):
    """What befalls an answer, after the plugin has done what was asked."""

    DROPPED = "dropped"
    CUT = "cut"
    UNFINISHED = "unfinished"
    """A stream without its last line."""
    DRIPPED = "dripped"
    PAGE = "page"
    OTHER_PROTOCOL = "other protocol"
    NO_PROTOCOL = "no protocol"


CONNECTIONS_MAX = 24
ROUTES = {
    operation: re.compile(pattern)
    for operation, pattern in {
        Operation.CREATE: r"POST \S*/instances$",
        Operation.DELETE: r"DELETE \S*/instances(/[^/]*|\?\S*)$",
        Operation.LIST: r"GET \S*/instances\?",
        Operation.EXEC: r"POST \S*/exec",
        Operation.RENEW: r"POST \S*/renew$",
        Operation.STOP: r"POST \S*/stop$",
        Operation.START: r"POST \S*/start$",
        Operation.PAUSE: r"POST \S*/pause$",
        Operation.RESUME: r"POST \S*/resume$",
        Operation.CALL_OFF: r"POST \S*/call-off$",
        Operation.SNAPSHOT: r"POST \S*/snapshots$",
        Operation.SNAPSHOT_DELETE: r"DELETE \S*/snapshots/",
        Operation.PORT_EXPOSE: r"POST \S*/ports$",
        Operation.PORT_REVOKE: r"DELETE \S*/ports/",
        Operation.EGRESS_SET: r"PUT \S*/egress$",
    }.items()
}


class FaultyServer(PluginServer):
    """`expect` queues spoilt for the next answers of a route; `always` befalls each of them. `down` closes on all."""

    def __init__(self, adapter: Adapter, token: str | None) -> None:
        super().__init__(Handler(adapter, token))
        self.RequestHandlerClass = FaultyConnection
        self.down = False
        self.requests: list[str] = []
        self.always: dict[Operation, Spoiled] = {}
        self.released = threading.Event()
        # Threads of the plugin are there before a test looks which ones it leaves behind.
        self._workers = ThreadPoolExecutor(CONNECTIONS_MAX, thread_name_prefix="plugin")
        together = threading.Barrier(CONNECTIONS_MAX)
        for begun in [self._workers.submit(together.wait) for _ in range(CONNECTIONS_MAX)]:
            begun.result()
        self._expected: dict[Operation, deque[Spoiled]] = {operation: deque() for operation in ROUTES}

    def expect(self, operation: Operation, *spoilt: Spoiled) -> None:
        self._expected[operation].extend(spoilt)

    def spoiled(self, request: str) -> Spoiled | None:
        for operation, route in ROUTES.items():
            if route.match(request):
                expected = self._expected[operation]
                return expected.popleft() if expected else self.always.get(operation)
        return None

    def process_request(self, request, client_address) -> None:
        self._workers.submit(self.process_request_thread, request, client_address)

    def server_close(self) -> None:
        super().server_close()
        self._workers.shutdown(wait=False, cancel_futures=True)


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
        match self.server.spoiled(f"{self.command} {self.path}"):
            case Spoiled.DROPPED:
                b"".join(answer.body)
                self._hang_up()
            case Spoiled.CUT:
                whole = b"".join(answer.body)
                super().send(replace(answer, body=_cut(whole)), body)
            case Spoiled.UNFINISHED:
                super().send(replace(answer, body=_without_last(answer.body)), body)
            case Spoiled.DRIPPED:
                super().send(replace(answer, body=self._dripped(b"".join(answer.body))), body)
            case Spoiled.PAGE:
                page = b"<html>504 Gateway Time-out</html>"
                headers = [("Content-Type", "text/html"), ("Content-Length", str(len(page)))]
                super().send(Answer(200, headers, [page]), body)
            case Spoiled.OTHER_PROTOCOL:
                super().send(replace(answer, headers=_protocol(answer, "2")), body)
            case Spoiled.NO_PROTOCOL:
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
