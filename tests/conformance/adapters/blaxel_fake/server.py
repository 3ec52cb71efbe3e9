"""The control plane's part: sandboxes under their names, one list with pages, and the door to every data plane."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.conformance.adapters.stand_in.box import Box
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

from . import data

WORKSPACE = "a-workspace"


def refused(status: int, code: str, message: str = "") -> Reply:
    return told(status, {"error": code, "code": code, "message": message or code})


@dataclass
class Sandbox:
    """`turns` are states that the next reads will find, one each."""

    box: Box
    metadata: dict[str, Any]
    spec: dict[str, Any]
    status: str = "DEPLOYING"
    state: str = "RUNNING"
    turns: list[str] = field(default_factory=lambda: ["DEPLOYING", "DEPLOYED"])

    def told(self, url: str) -> dict[str, Any]:
        if self.turns:
            self.status = self.turns.pop(0)
        place = {**self.metadata, "url": f"{url}/box/{self.metadata['name']}"}
        return {"metadata": place, "spec": self.spec, "status": self.status, "state": self.state}


class FakeBlaxel:
    """`root` is where its sandboxes keep their files."""

    def __init__(self, root: Path, *, api_key: str = "test-key", keep_alive: bool = True) -> None:
        self.root = root
        self.api_key = api_key
        self.sandboxes: dict[str, Sandbox] = {}
        self.terminated: dict[str, Sandbox] = {}
        """Told of by their names for a while after they are gone."""
        self.page_size_max = 50
        self.reads_until_gone = 1
        self.next_fails = False
        self.ignores_filter = False
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self._made = 0
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        for sandbox in list(self.sandboxes.values()):
            sandbox.box.end()
        self._server.close()

    def plant(self, name: str, labels: dict[str, str], external_id: str = "") -> Sandbox:
        """A sandbox that somebody else made."""
        planted = self._add({"metadata": {"name": name, "labels": labels, "externalId": external_id}, "spec": {}})
        planted.status, planted.turns = "DEPLOYED", []
        return planted

    def count(self) -> int:
        with self.lock:
            return len(self.sandboxes)

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
        if request.headers.get("x-blaxel-authorization") != f"Bearer {self.api_key}":
            return refused(401, "UNAUTHORIZED")
        if request.headers.get("x-blaxel-workspace") != WORKSPACE or "blaxel-version" not in request.headers:
            return refused(400, "BAD_REQUEST")
        inside = re.fullmatch("/box/([^/]+)(/.*)", request.path)
        if inside is not None:
            return self._inside(request, *inside.groups())
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path.removeprefix('/v0')}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *match.groups())
        return refused(404, "NOT_FOUND")

    def _inside(self, request: Request, name: str, path: str) -> Reply:
        found = self.sandboxes.get(name)
        if found is None or found.status != "DEPLOYED":
            return refused(404, "NOT_FOUND")
        found.state = "RUNNING"  # any request wakes it
        if (request.method, path) == ("POST", "/process"):
            return data.run(found.box, request)
        where = unquote(path.removeprefix("/filesystem/"))
        match request.method:
            case "PUT":
                return data.write(found.box, request, where)
            case "GET":
                return data.read(found.box, request, where)
            case _:
                return refused(404, "NOT_FOUND")

    # Sandboxes.

    def create(self, request: Request) -> Reply:
        body = request.json()
        name = body["metadata"]["name"]
        if not re.fullmatch("[a-z0-9-]{1,49}", name):
            return refused(400, "INVALID_NAME")
        found = self.sandboxes.get(name)
        if found is not None and found.status not in {"FAILED", "TERMINATED", "DELETING"}:
            if request.one("createIfNotExist") != "true":
                return refused(409, "ALREADY_EXISTS")
            return told(200, found.told(self.url))
        if body["spec"]["runtime"]["image"].startswith("nope/"):
            return refused(400, "INVALID_IMAGE")
        made = self._add(body)
        if self.next_fails:
            self.next_fails, made.turns = False, ["DEPLOYING", "FAILED"]
        return told(200, made.told(self.url))

    def _add(self, body: dict[str, Any]) -> Sandbox:
        self._made += 1
        name = body["metadata"]["name"]
        envs = {one["name"]: one["value"] for one in (body["spec"].get("runtime") or {}).get("envs", [])}
        made = Sandbox(Box(name, self.root / f"{self._made}-{name}", envs), body["metadata"], body["spec"])
        self.sandboxes[name] = made
        return made

    def get(self, request: Request, name: str) -> Reply:
        found = self.sandboxes.get(name)
        if found is not None and found.turns == ["TERMINATED"]:
            found.box.end()
            self.terminated[name] = self.sandboxes.pop(name)
        found = found or self.terminated.get(name)
        return told(200, found.told(self.url)) if found else refused(404, "NOT_FOUND")

    def list(self, request: Request) -> Reply:
        wanted = request.one("externalId")
        matching = [
            one.told(self.url)
            for one in self.sandboxes.values()
            if self.ignores_filter or not wanted or one.metadata.get("externalId") == wanted
        ]
        size = min(int(request.one("limit", "50")), self.page_size_max)
        start = int(request.one("cursor", "0"))
        more = start + size < len(matching)
        meta = {"hasMore": more, "nextCursor": str(start + size) if more else "", "total": len(matching)}
        return told(200, {"data": matching[start : start + size], "meta": meta})

    def delete(self, request: Request, name: str) -> Reply:
        found = self.sandboxes.get(name)
        if found is None:
            return refused(404, "NOT_FOUND")
        found.status, found.turns = "DELETING", [*["DELETING"] * self.reads_until_gone, "TERMINATED"]
        return told(200, found.told(self.url))


_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST /sandboxes", FakeBlaxel.create),
    ("GET /sandboxes", FakeBlaxel.list),
    ("GET /sandboxes/([^/]+)", FakeBlaxel.get),
    ("DELETE /sandboxes/([^/]+)", FakeBlaxel.delete),
]
