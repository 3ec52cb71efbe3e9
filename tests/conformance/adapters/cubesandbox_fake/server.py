"""The control API's part, and the proxy: the host of a request says which sandbox's agent is meant."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.e2b_fake.agent import Agent
from tests.conformance.adapters.stand_in.box import Box, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

DOMAIN = "cube.test"
AGENT = re.compile(rf"49983-([0-9a-f]+)\.{re.escape(DOMAIN)}")
LOOKS = 2
"""So many looks after a pause was accepted find the sandbox still running."""


def refused(status: int, message: str) -> Reply:
    return told(status, {"code": status, "message": message})


def relayed(code: int, word: str) -> Reply:
    """What the scheduler refused, as CubeAPI passes it on."""
    return refused(500, f"internal error: CubeMaster returned error code {code}: {word}")


@dataclass
class Sandbox:
    box: Box
    template: str
    metadata: dict[str, str]
    lifecycle: dict[str, Any]
    started_at: datetime
    end_at: datetime
    state: str = "running"
    looks: int = 0
    """Until a pause that was accepted is done."""

    def told(self) -> dict[str, Any]:
        return {
            "templateID": self.template, "sandboxID": self.box.id, "clientID": "node-1", "envdVersion": "0.2.0",
            "startedAt": stamp(self.started_at), "endAt": stamp(self.end_at), "metadata": self.metadata or None,
            "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 0, "state": self.state,
        }  # fmt: skip

    def looked_at(self) -> None:
        if self.looks:
            self.looks -= 1
            if not self.looks:
                self.state = "paused"
                self.box.freeze()


@dataclass
class Snapshot:
    id: str
    names: list[str]
    sandbox: str
    root: Path
    broken: bool = False

    def told(self) -> dict[str, Any]:
        return {"snapshotID": self.id, "names": self.names}


class FakeCubeSandbox:
    """`root` is where its sandboxes keep their files. Faults befall control API and agents alike."""

    def __init__(self, root: Path, *, api_key: str | None = "test-key", keep_alive: bool = True) -> None:
        """Without an `api_key` it asks for none, as an installation without a callback for it does."""
        self.root = root
        self.api_key = api_key
        self.sandboxes: dict[str, Sandbox] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.templates = {"tpl-base", "tpl-other"}
        self.page_size_max: int | None = None
        """With it a limit counts sandboxes and pages lead to each other, as in newer releases."""
        self.loses_snapshots = False
        """A capture is answered with an id of nothing, as by a release whose scheduler cannot capture."""
        self.access_token: str | None = None
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.agent = Agent()
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.closing.set()
        for sandbox in list(self.sandboxes.values()):
            sandbox.box.end()
        self._server.close()

    def plant(self, metadata: dict[str, str]) -> Sandbox:
        """A sandbox that somebody else made."""
        return self._add({"templateID": "tpl-base", "timeout": 3600, "metadata": metadata})

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
        meant = AGENT.fullmatch(request.headers.get("host", ""))
        if meant is not None:
            return self._inside(request, meant[1])
        if self.api_key is not None and request.headers.get("x-api-key") != self.api_key:
            return refused(401, "unauthorized: Missing authentication")
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *match.groups())
        return refused(404, "Not Found")

    def _inside(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None or found.state != "running":
            return Reply(502, b"<html>502 Bad Gateway</html>", {"content-type": "text/html"})
        if self.access_token is not None and request.headers.get("x-access-token") != self.access_token:
            return told(401, {"code": "unauthenticated", "message": "unauthorized access token"})
        named = request.one("username") if request.path == "/files" else request.headers.get("authorization", "")
        if named not in {"root", "Basic cm9vdDo="}:
            return told(401, {"code": "unauthenticated", "message": "no user specified"})
        return self.agent.answer(found.box, request)

    # Sandboxes.

    def create(self, request: Request) -> Reply:
        body = request.json()
        snapshot = self.snapshots.get(body["templateID"])
        if snapshot is not None and snapshot.broken:
            return relayed(130508, "StartContainerFailed")
        if snapshot is None and body["templateID"] not in self.templates:
            return relayed(130404, "NotFound")
        made = self._add(body)
        return told(201, {"templateID": made.template, "sandboxID": made.box.id, "clientID": "node-1",
                          "envdVersion": "0.2.0", "domain": DOMAIN})  # fmt: skip

    def _add(self, body: dict[str, Any]) -> Sandbox:
        ref = uuid4().hex
        root = self.root / ref
        snapshot = self.snapshots.get(body["templateID"])
        if snapshot is not None:
            shutil.copytree(snapshot.root, root, symlinks=True)
        now = self._clock.now()
        made = Sandbox(  # the environment is not applied
            Box(ref, root), body["templateID"], dict(body.get("metadata") or {}), dict(body.get("lifecycle") or {}),
            now, now + timedelta(seconds=body.get("timeout", 15)),
        )  # fmt: skip
        self.sandboxes[ref] = made
        return made

    def get(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            return _missing(ref)
        found.looked_at()
        return told(200, found.told() | {"envdAccessToken": self.access_token, "domain": DOMAIN})

    def list(self, request: Request) -> Reply:
        for sandbox in self.sandboxes.values():
            sandbox.looked_at()
        everything = [sandbox.told() for sandbox in self.sandboxes.values()]
        if self.page_size_max is None:
            return told(200, everything)
        return _page(everything, request, min(int(request.one("limit", "100")), self.page_size_max))

    def delete(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.pop(ref, None)
        if found is None:
            return _missing(ref)
        found.box.end()
        return Reply(204)

    def timeout(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            return _missing(ref)
        found.end_at = self._clock.now() + timedelta(seconds=request.json()["timeout"])
        return Reply(204)

    def pause(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            return _missing(ref)
        if found.state == "paused":
            return refused(409, f"conflict: sandbox {ref} cannot be paused")
        found.looks = found.looks or LOOKS
        return Reply(204)

    def connect(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            return _missing(ref)
        if found.state == "paused":
            found.box.thaw()
            found.state = "running"
            found.end_at = self._clock.now() + timedelta(seconds=request.json().get("timeout", 15))
        return told(200, {"templateID": found.template, "sandboxID": ref, "clientID": "node-1", "domain": DOMAIN})

    # Snapshots and templates.

    def snapshot(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            return _missing(ref)
        name = request.json().get("name") or uuid4().hex
        made = Snapshot(f"snap-{uuid4().hex[:12]}", [name], ref, found.box.copy(self.root / f"snapshot-{uuid4().hex}"))
        if not self.loses_snapshots:
            self.snapshots[made.id] = made
        return told(201, made.told())

    def snapshot_list(self, request: Request) -> Reply:
        return _page([one.told() for one in self.snapshots.values()], request, int(request.one("limit", "100")))

    def template_list(self, request: Request) -> Reply:
        return told(200, [{"templateID": name, "aliases": [name.upper()]} for name in sorted(self.templates)])

    def template_delete(self, request: Request, ref: str) -> Reply:
        found = self.snapshots.pop(ref, None)
        if found is None:
            return refused(404, f"not found: template {ref} not found")
        shutil.rmtree(found.root, ignore_errors=True)
        return Reply(204)


_REF = "/sandboxes/([^/]+)"
_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST /sandboxes", FakeCubeSandbox.create),
    ("GET /v2/sandboxes", FakeCubeSandbox.list),
    (f"GET {_REF}", FakeCubeSandbox.get),
    (f"DELETE {_REF}", FakeCubeSandbox.delete),
    (f"POST {_REF}/timeout", FakeCubeSandbox.timeout),
    (f"POST {_REF}/pause", FakeCubeSandbox.pause),
    (f"POST {_REF}/connect", FakeCubeSandbox.connect),
    (f"POST {_REF}/snapshots", FakeCubeSandbox.snapshot),
    ("GET /snapshots", FakeCubeSandbox.snapshot_list),
    ("GET /templates", FakeCubeSandbox.template_list),
    ("DELETE /templates/([^/]+)", FakeCubeSandbox.template_delete),
]


def _missing(ref: str) -> Reply:
    return refused(404, f"not found: sandbox {ref} not found")


def _page(items: list[Any], request: Request, size: int) -> Reply:
    start = int(request.one("nextToken", "0"))
    onwards = {"x-next-token": str(start + size)} if start + size < len(items) else {}
    return told(200, items[start : start + size], **onwards)
