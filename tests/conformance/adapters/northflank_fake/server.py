"""Services under ids that are unique in the project: pages by cursor, states that lag, commands over WebSockets."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from differently_adapters.websocket import accept_of
from tests.conformance.adapters.stand_in.box import Box, code_of, follow
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

from .socket import ServerSocket

PROJECT = "a-project"
CLOSE_SECONDS = 5.0


def refused(status: int, message: str, name: str = "") -> Reply:
    return told(status, {"error": {"status": status, "message": message, "id": name}})


@dataclass
class Service:
    """`turns` are states that the next reads will find, one each. A delete takes `leaving` more looks."""

    box: Box
    body: dict[str, Any]
    status: str = "PENDING"
    turns: list[str] = field(default_factory=lambda: ["IN_PROGRESS", "COMPLETED"])
    paused: bool = False
    leaving: int | None = None

    def told(self, *, whole: bool) -> dict[str, Any]:
        if self.turns:
            self.status = self.turns.pop(0)
        shown = {
            "id": self.box.id, "name": self.body["name"], "description": self.body.get("description", ""), "tags": [],
            "serviceType": "deployment", "status": {"deployment": {"status": self.status, "reason": "DEPLOYING"}},
        }  # fmt: skip
        if whole:
            shown |= {"servicePaused": self.paused, "deployment": {"instances": 0 if self.paused else 1}}
        return shown


class FakeNorthflank:
    """`root` is where its services keep their files."""

    def __init__(self, root: Path, *, token: str = "test-token", keep_alive: bool = True) -> None:
        self.root = root
        self.token = token
        self.services: dict[str, Service] = {}
        self.next_fails = False
        self.untold = 0
        """So many commands run to their end, and that is not told."""
        self.inits = 1
        """How often it is said that a command was let in."""
        self.page_size_max = 100
        self.leaving = 1
        self.asked: list[dict[str, Any]] = []
        """What commands were asked for with."""
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.closing.set()
        for service in list(self.services.values()):
            service.box.end()
        self._server.close()

    def plant(self, name: str, description: str) -> Service:
        """A service that somebody else made."""
        planted = self._add({"name": name, "description": description})
        planted.status, planted.turns = "COMPLETED", []
        return planted

    def count(self) -> int:
        with self.lock:
            return sum(service.leaving is None for service in self.services.values())

    # One request.

    def _answer(self, request: Request) -> Reply:
        with self.lock:
            self.requests.append(request)
            struck = next((fault for fault in self.faults if fault.strikes(request)), None)
            if struck is not None:
                struck.times -= 1
        if struck is None:
            return self._real_answer(request)
        return struck.act(lambda: self._real_answer(request), request, self.closing)

    def _real_answer(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return refused(401, "Unauthorized", "unauthorized")
        with self.lock:
            for pattern, handler in _ROUTES:
                match = re.fullmatch(pattern, f"{request.method} {request.path}")
                if match is not None:
                    return handler(self, request, *match.groups())
        return refused(404, "Not found", "not-found")

    # Services.

    def create(self, request: Request) -> Reply:
        body = request.json()
        if body["name"] in self.services:
            # Northflank refuses it; with which words is not published.
            return refused(409, "A service of this name exists in the project.", "conflict")
        if body["deployment"]["external"]["imagePath"].startswith("nope/"):
            return refused(400, "The image could not be found.", "bad-request")
        made = self._add(body)
        if self.next_fails:
            self.next_fails, made.turns = False, ["IN_PROGRESS", "FAILED"]
        return told(200, {"data": made.told(whole=True)})

    def _add(self, body: dict[str, Any]) -> Service:
        ref = body["name"]
        made = Service(Box(ref, self.root / ref, dict(body.get("runtimeEnvironment") or {})), body)
        self.services[ref] = made
        return made

    def get(self, request: Request, ref: str) -> Reply:
        found = self.services.get(ref)
        if found is not None and found.leaving is not None:
            found.leaving -= 1
            if found.leaving < 0:
                del self.services[ref]
                found = None
        return told(200, {"data": found.told(whole=True)}) if found else _missing()

    def list(self, request: Request) -> Reply:
        size = min(int(request.one("per_page", "50")), self.page_size_max)
        refs = sorted(self.services)
        start = int(request.one("cursor", "0"))
        page = [self.services[ref].told(whole=False) for ref in refs[start : start + size]]
        more = start + size < len(refs)
        pagination = {"hasNextPage": more, "count": len(page)} | ({"cursor": str(start + size)} if more else {})
        return told(200, {"data": {"services": page}, "pagination": pagination})

    def delete(self, request: Request, ref: str) -> Reply:
        found = self.services.get(ref)
        if found is None:
            return _missing()
        found.box.end()
        found.leaving = self.leaving
        return told(200, {"data": {}})

    # Commands.

    def exec(self, request: Request, ref: str) -> Reply:
        found = self.services.get(ref)
        if found is None:
            return _missing()
        if request.headers.get("upgrade") != "websocket" or request.headers.get("sec-websocket-version") != "13":
            return refused(426, "Upgrade Required")
        accept = accept_of(request.headers["sec-websocket-key"])
        head = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-accept": accept}
        return Reply(101, headers=head, switched=lambda *ends: self._commanded(found, *ends))

    def _commanded(self, service: Service, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        socket = ServerSocket(incoming, outgoing)
        heard = socket.heard()
        first = next(heard, None)
        if first is None:
            return
        with self.lock:
            self.asked.append(first)
            untold = self.untold > 0
            self.untold -= untold
        if first["data"]["auth"] != {"type": "apiToken", "apiToken": self.token}:
            socket.tell("init", {"auth": "failed", "message": "Unauthorized"})
            return
        with suppress(OSError):
            for _ in range(self.inits):
                socket.tell("init", {"auth": "successful", "context": first["data"]["context"]})
        process = service.box.start(first["data"]["context"]["command"], stdin=subprocess.PIPE)
        pieces = follow(process)

        def typed() -> None:
            assert process.stdin is not None
            with suppress(OSError, ValueError):  # whoever does not read any more
                for message in heard:
                    if message["type"] == "payload":
                        process.stdin.write(message["data"].encode())
                        process.stdin.flush()

        typing = threading.Thread(target=typed, name="stand-in-typed", daemon=True)
        typing.start()
        with suppress(OSError):  # a client that went away stops no command
            for name, data in pieces:
                if not untold:
                    socket.tell("stdOut" if name == "stdout" else "stdErr", data.decode("utf-8", "replace"))
        code = code_of(process)
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        if not untold:
            with suppress(OSError):
                socket.tell("completion", {"exitCode": str(code), "status": "success" if not code else "failed"})
        with suppress(OSError):
            socket.frame(0x88, b"")
        # What is closed with something unread takes back what was sent: so the client closes first.
        typing.join(CLOSE_SECONDS)


_SERVICES = f"/v1/projects/{PROJECT}/services"
_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    (f"POST {_SERVICES}/deployment", FakeNorthflank.create),
    (f"GET {_SERVICES}", FakeNorthflank.list),
    (f"GET {_SERVICES}/([^/]+)", FakeNorthflank.get),
    (f"DELETE {_SERVICES}/([^/]+)", FakeNorthflank.delete),
    (f"GET /v1/command-exec/projects/{PROJECT}/services/([^/]+)", FakeNorthflank.exec),
]


def _missing() -> Reply:
    return refused(404, "Service not found.", "not-found")
