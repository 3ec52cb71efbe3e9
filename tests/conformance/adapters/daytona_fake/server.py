"""The API's part: sandboxes under unique names, snapshots, and the door to every sandbox's toolbox."""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

from .toolbox import Toolbox

ORGANIZATION = str(uuid4())


def refused(status: int, message: str) -> Reply:
    return told(status, {"path": "/", "timestamp": "2026-11-29T12:00:00Z", "statusCode": status, "error": "Error",
                         "message": message})  # fmt: skip


@dataclass
class Sandbox:
    """`turns` are states that the next reads will find, one each: nothing at Daytona is done at once."""

    box: Box
    name: str
    labels: dict[str, str]
    created_at: datetime
    destroy_at: datetime | None
    body: dict[str, Any]
    state: str = "creating"
    desired: str = "started"
    turns: list[str] = field(default_factory=lambda: ["started"])
    network: dict[str, Any] = field(default_factory=dict)

    def told(self, url: str, *, whole: bool = True) -> dict[str, Any]:
        if self.turns:
            self.state = self.turns.pop(0)
        destroyed = {"autoDestroyAt": stamp(self.destroy_at)} if self.destroy_at else {}
        return {
            "id": self.box.id, "organizationId": ORGANIZATION, "name": self.name, "user": "daytona",
            "env": self.box.env if whole else {}, "labels": self.labels, "public": False, "networkBlockAll": False,
            "networkAllowList": "", "domainAllowList": "", "kvm": False, "target": "us", "cpu": 1, "gpu": 0,
            "memory": 1, "disk": 3, "state": self.state,
            "desiredState": self.desired, "errorReason": "it failed" if self.state == "error" else None,
            "createdAt": stamp(self.created_at), "updatedAt": stamp(self.created_at), "sandboxClass": "container",
            "toolboxProxyUrl": f"{url}/toolbox",
            "autoStopInterval": 0, "autoArchiveInterval": 0, "autoDeleteInterval": -1, "snapshot": "base",
            **destroyed, **self.network,
        }  # fmt: skip


@dataclass
class Snapshot:
    id: str
    name: str
    root: Path
    state: str = "active"
    broken: bool = False

    def told(self) -> dict[str, Any]:
        return {
            "id": self.id, "organizationId": ORGANIZATION, "general": False, "name": self.name, "state": self.state,
            "size": 0.5, "entrypoint": None, "cpu": 1, "gpu": 0, "mem": 1, "disk": 3, "errorReason": None,
            "createdAt": "2026-11-29T12:00:00Z", "updatedAt": "2026-11-29T12:00:00Z", "lastUsedAt": None,
        }  # fmt: skip


class FakeDaytona:
    """`root` is where its sandboxes keep their files. Faults befall API and toolboxes alike."""

    def __init__(self, root: Path, *, api_key: str = "test-key", keep_alive: bool = True) -> None:
        self.root = root
        self.api_key = api_key
        self.sandboxes: dict[str, Sandbox] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.known = {"base", "daytonaio/sandbox:latest"}
        self.page_size_max = 200
        self.reads_until_gone = 1
        self.next_fails = False
        self.captures_fail = False
        self.ignores_labels = False
        self.ignores_rules = False
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.toolbox = Toolbox()
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        for sandbox in list(self.sandboxes.values()):
            sandbox.box.end()
        self._server.close()

    def plant(self, name: str, labels: dict[str, str]) -> Sandbox:
        """A sandbox that somebody else made."""
        planted = self._add({"name": name, "labels": labels, "ttlMinutes": 60})
        planted.turns, planted.state = [], "started"
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
        if request.headers.get("authorization") != f"Bearer {self.api_key}":
            return refused(401, "Invalid credentials")
        inside = re.fullmatch("/toolbox/([^/]+)(/.*)", request.path)
        if inside is not None:
            found = self.sandboxes.get(inside[1])
            if found is None:
                return refused(404, "Sandbox not found")
            if found.state != "started":
                return refused(400, "Sandbox is not started")
            return self.toolbox.answer(found.box, request, inside[2])
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path.removeprefix('/api')}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *match.groups())
        return refused(404, "Cannot find the route")

    # Sandboxes.

    def create(self, request: Request) -> Reply:
        body = request.json()
        name = body.get("name") or uuid4().hex
        if any(one.name == name for one in self.sandboxes.values()):
            return refused(409, f"Sandbox with name {name} already exists")
        snapshot = body.get("snapshot", "base")
        if snapshot not in self.known and snapshot not in self.snapshots:
            return refused(400, f"Snapshot {snapshot} not found. Did you add it through the Daytona Dashboard?")
        if body.get("cpu", 0) > 64:
            return refused(400, f"CPU request {body['cpu']} exceeds maximum allowed per sandbox (64)")
        made = self._add({**body, "name": name})
        broken = snapshot in self.snapshots and self.snapshots[snapshot].broken
        if self.next_fails or broken:
            self.next_fails, made.turns = False, ["creating", "error"]
        return told(200, made.told(self.url))

    def _add(self, body: dict[str, Any]) -> Sandbox:
        ref = str(uuid4())
        root = self.root / ref
        snapshot = self.snapshots.get(body.get("snapshot", ""))
        if snapshot is not None:
            shutil.copytree(snapshot.root, root, symlinks=True)
        now = self._clock.now()
        ends = now + timedelta(minutes=body["ttlMinutes"]) if body.get("ttlMinutes") else None
        made = Sandbox(
            Box(ref, root, dict(body.get("env") or {})), body["name"], dict(body.get("labels") or {}), now, ends, body,
            turns=["creating", "started"],
            network={name: body[name] for name in ("networkBlockAll", "networkAllowList", "domainAllowList")
                     if name in body},
        )  # fmt: skip
        self.sandboxes[ref] = made
        return made

    def _found(self, text: str) -> Sandbox | None:
        """By id, or by name unless it is being destroyed: then the name is free already."""
        named = (one for one in self.sandboxes.values() if one.name == text and one.desired != "destroyed")
        return self.sandboxes.get(text) or next(named, None)

    def get(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if found is None:
            return _missing(ref)
        if found.turns == [""]:  # what was being destroyed is gone
            self._end(found)
            return _missing(ref)
        return told(200, found.told(self.url))

    def _end(self, found: Sandbox) -> None:
        found.box.end()
        self.sandboxes.pop(found.box.id, None)

    def list(self, request: Request) -> Reply:
        try:
            wanted = json.loads(request.one("labels", "{}"))
        except ValueError:
            return refused(400, "Invalid labels JSON")
        matching = [
            one.told(self.url, whole=False)
            for one in sorted(self.sandboxes.values(), key=lambda one: one.created_at, reverse=True)
            if self.ignores_labels or wanted.items() <= one.labels.items()
        ]
        size = min(int(request.one("limit", "100")), self.page_size_max)
        start = int(request.one("cursor", "0"))
        onwards = str(start + size) if start + size < len(matching) else None
        return told(200, {"items": matching[start : start + size], "nextCursor": onwards})

    def delete(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if found is None:
            return _missing(ref)
        if found.desired == "destroyed" or found.state in {"stopping", "starting"}:
            return refused(409, "Sandbox state change in progress")
        found.box.signal_all(signal.SIGKILL)
        found.state, found.desired = "destroying", "destroyed"
        found.turns = [*["destroying"] * self.reads_until_gone, ""]
        answer = found.told(self.url)
        return told(200, answer)

    def stop(self, request: Request, ref: str) -> Reply:
        return self._moved(ref, "started", "stopping", "stopped")

    def start(self, request: Request, ref: str) -> Reply:
        return self._moved(ref, "stopped", "starting", "started")

    def _moved(self, ref: str, before: str, meanwhile: str, after: str) -> Reply:
        found = self._found(ref)
        if found is None:
            return _missing(ref)
        if found.turns or found.state == meanwhile:
            return refused(409, "Sandbox state change in progress")
        if found.state != before:
            return refused(400, f"Sandbox is not {before}")
        if after == "stopped":
            found.box.signal_all(signal.SIGKILL)
        found.state, found.desired, found.turns = meanwhile, after, [meanwhile, after]
        return told(200, found.told(self.url))

    def ttl(self, request: Request, ref: str, minutes: str) -> Reply:
        found = self._found(ref)
        if found is None:
            return _missing(ref)
        found.destroy_at = found.created_at + timedelta(minutes=int(minutes))
        return told(200, found.told(self.url))

    def set_network(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if found is None:
            return _missing(ref)
        if self.ignores_rules:
            self.ignores_rules = False
        else:
            found.network = {**found.network, **request.json()}
        return told(200, found.told(self.url))

    def preview(self, request: Request, ref: str, port: str) -> Reply:
        token = uuid4().hex[:12]
        return told(
            200, {"sandboxId": ref, "port": int(port), "token": token, "url": f"https://{port}-{token}.proxy.example"}
        )

    def set_labels(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if found is None:
            return _missing(ref)
        found.labels = request.json()["labels"]
        return told(200, {"labels": found.labels})

    # Snapshots.

    def snapshot(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if found is None:
            return _missing(ref)
        if found.state not in {"started", "stopped"}:
            return refused(400, f"Sandbox is {found.state}")
        name = request.json()["name"]
        if name in self.snapshots:
            return refused(409, f"Snapshot with name {name} already exists")
        back = found.state
        found.state, found.turns = "snapshotting", ["snapshotting", "snapshotting", back]
        if self.captures_fail:
            self.captures_fail = False  # it leaves no record
        else:
            root = found.box.copy(self.root / f"snapshot-{uuid4().hex}")
            self.snapshots[name] = Snapshot(str(uuid4()), name, root)
        return told(200, found.told(self.url))

    def snapshot_get(self, request: Request, name: str) -> Reply:
        found = self.snapshots.get(name)
        return told(200, found.told()) if found else refused(404, f"Snapshot {name} not found")

    def snapshot_delete(self, request: Request, identity: str) -> Reply:
        found = next((one for one in self.snapshots.values() if one.id == identity), None)
        if found is None:
            return refused(404, f"Snapshot {identity} not found")
        shutil.rmtree(self.snapshots.pop(found.name).root, ignore_errors=True)
        return Reply(200)


_REF = "/sandbox/([^/]+)"
_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST /sandbox", FakeDaytona.create),
    ("GET /sandbox", FakeDaytona.list),
    (f"GET {_REF}", FakeDaytona.get),
    (f"DELETE {_REF}", FakeDaytona.delete),
    (f"POST {_REF}/stop", FakeDaytona.stop),
    (f"POST {_REF}/start", FakeDaytona.start),
    (rf"POST {_REF}/ttl/(\d+)", FakeDaytona.ttl),
    (f"PUT {_REF}/labels", FakeDaytona.set_labels),
    (f"POST {_REF}/network-settings", FakeDaytona.set_network),
    (rf"GET {_REF}/ports/(\d+)/(?:signed-)?preview-url", FakeDaytona.preview),
    (f"POST {_REF}/snapshot", FakeDaytona.snapshot),
    ("GET /snapshots/([^/]+)", FakeDaytona.snapshot_get),
    ("DELETE /snapshots/([^/]+)", FakeDaytona.snapshot_delete),
]


def _missing(ref: str) -> Reply:
    return refused(404, f"Sandbox with ID or name {ref} not found")
