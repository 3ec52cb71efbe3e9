"""The control API's part: sandboxes, snapshots, templates, and the door to every sandbox's agent."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

from .agent import Agent

TEAM = "a-team"
TOKEN = re.compile("[a-z0-9-]{1,255}")


def refused(status: int, message: str, code: str | None = None) -> Reply:
    return told(status, {"code": status, "message": message} | ({"error_code": code} if code else {}))


@dataclass
class Sandbox:
    box: Box
    template: str
    metadata: dict[str, str]
    started_at: datetime
    end_at: datetime
    token: str
    network: dict[str, Any]
    state: str = "running"

    def told(self) -> dict[str, Any]:
        return {
            "templateID": self.template, "sandboxID": self.box.id, "clientID": "client", "state": self.state,
            "startedAt": stamp(self.started_at), "endAt": stamp(self.end_at), "metadata": self.metadata,
            "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "envdVersion": "0.5.8",
        }  # fmt: skip

    def detailed(self) -> dict[str, Any]:
        return self.told() | {"envdAccessToken": self.token, "domain": None, "network": self.network}


@dataclass
class Snapshot:
    name: str
    sandbox: str
    root: Path
    broken: bool = False

    @property
    def id(self) -> str:
        return f"{TEAM}/{self.name}:default"


class FakeE2b:
    """`root` is where its sandboxes keep their files. Faults befall control API and agents alike."""

    def __init__(self, root: Path, *, api_key: str = "test-key", keep_alive: bool = True) -> None:
        self.root = root
        self.api_key = api_key
        self.sandboxes: dict[str, Sandbox] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.keys: dict[str, tuple[str, str]] = {}
        """What was asked under each idempotency key, and which sandbox was made; kept also when that is gone."""
        self.templates = {"base", "tmpl1"}
        self.page_size_max = 100
        self.plan_seconds = 3_600
        self.ignores_metadata = False
        self.ignores_rules = False
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.agent = Agent()
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        for sandbox in list(self.sandboxes.values()):
            sandbox.box.end()
        self._server.close()

    def plant(self, metadata: dict[str, str]) -> Sandbox:
        """A sandbox that somebody else made."""
        return self._add({"templateID": "base", "timeout": 3600, "metadata": metadata})

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
        if "e2b-sandbox-id" in request.headers:
            return self._inside(request)
        if request.headers.get("x-api-key") != self.api_key:
            return refused(401, "Invalid API key")
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *match.groups())
        return refused(404, "Not Found")

    def _inside(self, request: Request) -> Reply:
        ref = request.headers["e2b-sandbox-id"]
        found = self.sandboxes.get(ref)
        if found is None or found.state != "running":
            return told(502, {"sandboxId": ref, "message": "The sandbox was not found", "code": 502})
        if request.headers.get("x-access-token") != found.token:
            return told(401, {"code": "unauthenticated", "message": "unauthorized access token"})
        return self.agent.answer(found.box, request)

    # Sandboxes.

    def create(self, request: Request) -> Reply:
        body = request.json()
        key = request.headers.get("idempotency-key", "") if request.path.startswith("/v2") else ""
        if key and not TOKEN.fullmatch(key):
            return refused(400, "the idempotency key is not valid")
        text = json.dumps(body, sort_keys=True)
        if key in self.keys:
            asked, ref = self.keys[key]
            if asked != text:
                return refused(409, "the key was used for another request", "idempotency_request_mismatch")
            return told(201, self._created(ref))
        refusal = self._refusal(body)
        if refusal is not None:
            return refusal
        made = self._add(body)
        if key:
            self.keys[key] = (text, made.box.id)
        return told(201, self._created(made.box.id))

    def _created(self, ref: str) -> dict[str, Any]:
        found = self.sandboxes.get(ref)
        token = {"envdAccessToken": found.token} if found else {}
        return {"templateID": "base", "sandboxID": ref, "clientID": "client", "envdVersion": "0.5.8", **token}

    def _refusal(self, body: dict[str, Any]) -> Reply | None:
        template, timeout = body["templateID"], body.get("timeout", 300)
        if not 0 < timeout <= self.plan_seconds:
            return refused(400, f"Timeout cannot be greater than {self.plan_seconds // 3600} hours")
        network = body.get("network") or {}
        if any(re.search("[a-z]", peer) for peer in network.get("allowOut", [])) and "0.0.0.0/0" not in network.get(
            "denyOut", []
        ):
            return refused(400, "a domain in allowOut needs denyOut with all traffic")
        snapshot = self._snapshot(template)
        if snapshot is not None and snapshot.broken:
            return refused(500, "the sandbox could not be started", "sandbox_create_failed")
        if snapshot is None and template not in self.templates:
            return refused(404, f"template '{template}' not found")
        return None

    def _add(self, body: dict[str, Any]) -> Sandbox:
        ref = f"i{uuid4().hex[:19]}"
        snapshot = self._snapshot(body["templateID"])
        root = self.root / ref
        if snapshot is not None:
            shutil.copytree(snapshot.root, root, symlinks=True)
        now = self._clock.now()
        made = Sandbox(
            Box(ref, root, dict(body.get("envVars") or {})), body["templateID"], dict(body.get("metadata") or {}), now,
            now + timedelta(seconds=body.get("timeout", 300)), f"token-{uuid4().hex}", dict(body.get("network") or {}),
        )  # fmt: skip
        self.sandboxes[ref] = made
        return made

    def get(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        return told(200, found.detailed()) if found else _missing(ref)

    def list(self, request: Request) -> Reply:
        size = int(request.one("limit", "100"))
        if size < 1:
            return refused(400, "limit must be at least 1")
        wanted = {unquote(key): unquote(value) for key, value in parse_qsl(request.one("metadata"))}
        states = request.one("state", "running,paused").split(",")
        matching = [
            sandbox.told()
            for sandbox in sorted(self.sandboxes.values(), key=lambda one: (one.started_at, one.box.id), reverse=True)
            if sandbox.state in states and (self.ignores_metadata or wanted.items() <= sandbox.metadata.items())
        ]
        return _page(matching, request, min(size, self.page_size_max))

    def delete(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.pop(ref, None)
        if found is None:
            return _missing(ref)
        found.box.end()
        return Reply(204)

    def timeout(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None or found.state != "running":
            return _missing(ref)
        seconds = request.json()["timeout"]
        if not 0 < seconds <= self.plan_seconds:
            return refused(400, f"Timeout cannot be greater than {self.plan_seconds // 3600} hours")
        found.end_at = self._clock.now() + timedelta(seconds=seconds)
        return Reply(204)

    def pause(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            return _missing(ref)
        if found.state == "paused":
            return refused(409, f"Sandbox '{ref}' is already paused")
        found.box.freeze()
        found.state = "paused"
        return Reply(204)

    def connect(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            return _missing(ref)
        end = self._clock.now() + timedelta(seconds=request.json()["timeout"])
        if found.state == "running":
            found.end_at = max(found.end_at, end)
            return told(200, self._created(ref))
        found.state, found.started_at, found.end_at = "running", self._clock.now(), end
        found.token = f"token-{uuid4().hex}"  # it may be another one after a resume
        found.box.thaw()
        return told(201, self._created(ref))

    def set_network(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None or found.state != "running":
            return _missing(ref)
        body = request.json()
        if any(re.search("[a-z]", peer) for peer in body.get("denyOut", [])):
            return refused(400, "domain names are not supported for deny rules")
        if self.ignores_rules:
            self.ignores_rules = False
        else:
            kept = {name: found.network[name] for name in ("allowPublicTraffic",) if name in found.network}
            found.network = {**kept, **body}
        return Reply(204)

    # Snapshots and templates.

    def _snapshot(self, text: str) -> Snapshot | None:
        return self.snapshots.get(text.rpartition("/")[2].partition(":")[0])

    def snapshot(self, request: Request, ref: str) -> Reply:
        found = self.sandboxes.get(ref)
        if found is None or found.state != "running":
            return _missing(ref)
        name = request.json().get("name") or uuid4().hex[:12]
        made = Snapshot(name, ref, found.box.copy(self.root / f"snapshot-{uuid4().hex}"))
        self.snapshots[name] = made  # a name that is used again adds to the first
        return told(201, _snapshot_told(made))

    def snapshot_list(self, request: Request) -> Reply:
        name, sandbox = request.one("name"), request.one("sandboxID")
        wanted = name.rpartition("/")[2].partition(":")[0]
        matching = [
            _snapshot_told(one)
            for one in self.snapshots.values()
            if (not wanted or one.name == wanted) and (not sandbox or one.sandbox == sandbox)
        ]
        return _page(matching, request, self.page_size_max)

    def template_list(self, request: Request) -> Reply:
        return told(200, [{"templateID": name, "names": [f"{TEAM}/{name}"], "public": False} for name in
                          sorted(self.templates)])  # fmt: skip

    def template_delete(self, request: Request, ref: str) -> Reply:
        found = self._snapshot(unquote(ref))
        if found is None:
            return refused(404, f"template '{unquote(ref)}' not found")
        if any(self._snapshot(sandbox.template) is found for sandbox in self.sandboxes.values()):
            return refused(400, "cannot delete template because there are running sandboxes based on it")
        shutil.rmtree(self.snapshots.pop(found.name).root, ignore_errors=True)
        return Reply(204)


_REF = "/sandboxes/([^/]+)"
_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST (?:/v2)?/sandboxes", FakeE2b.create),
    ("GET /v2/sandboxes", FakeE2b.list),
    (f"GET {_REF}", FakeE2b.get),
    (f"DELETE {_REF}", FakeE2b.delete),
    (f"POST {_REF}/timeout", FakeE2b.timeout),
    (f"POST {_REF}/pause", FakeE2b.pause),
    (f"POST (?:/v2)?{_REF}/connect", FakeE2b.connect),
    (f"PUT {_REF}/network", FakeE2b.set_network),
    (f"POST {_REF}/snapshots", FakeE2b.snapshot),
    ("GET /snapshots", FakeE2b.snapshot_list),
    ("GET /templates", FakeE2b.template_list),
    ("DELETE /templates/([^/]+)", FakeE2b.template_delete),
]


def _missing(ref: str) -> Reply:
    return refused(404, f"Sandbox '{ref}' doesn't exist or you don't have access to it")


def _snapshot_told(one: Snapshot) -> dict[str, Any]:
    return {"snapshotID": one.id, "names": [one.id]}


def _page(items: list[Any], request: Request, size: int) -> Reply:
    start = int(request.one("nextToken", "0"))
    onwards = {"x-next-token": str(start + size)} if start + size < len(items) else {}
    return told(200, items[start : start + size], **onwards)
