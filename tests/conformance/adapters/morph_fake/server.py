"""Instances, their commands, snapshots and exposed ports."""

from __future__ import annotations

import json
import queue
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box, code_of, follow
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

BASE_SNAPSHOT = "snapshot_base"
METADATA = re.compile(r"metadata\[(.+)\]")


def refused(status: int, detail: str) -> Reply:
    return told(status, {"detail": detail})


@dataclass
class Instance:
    box: Box
    snapshot: str
    metadata: dict[str, str]
    created: float
    expires: float
    status: str = "ready"
    turns: list[str] = field(default_factory=list)
    """States that the next looks will find, one each."""
    services: dict[str, int] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        if self.turns:
            self.status = self.turns.pop(0)
        services = [
            {"name": name, "port": port, "url": f"https://{name}-{self.box.id}.http.example.test"}
            for name, port in self.services.items()
        ]
        return {
            "id": self.box.id, "created": self.created, "status": self.status, "metadata": self.metadata,
            "spec": {"vcpus": 2, "memory": 2048, "disk_size": 8192}, "refs": {"snapshot_id": self.snapshot},
            "networking": {"internal_ip": "10.0.0.2", "http_services": services},
            "ttl": {"ttl_seconds": 1, "ttl_expire_at": self.expires, "ttl_action": "stop"},
        }  # fmt: skip


@dataclass
class Snapshot:
    id: str
    metadata: dict[str, str]
    digest: str
    created: float
    root: Path
    status: str = "ready"
    broken: bool = False

    def told(self) -> dict[str, Any]:
        return {"id": self.id, "status": self.status, "metadata": self.metadata, "created": self.created}


class FakeMorph:
    def __init__(self, root: Path, *, api_key: str, keep_alive: bool = True) -> None:
        self.root = root
        self.api_key = api_key
        self.instances: dict[str, Instance] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.pause_turns: list[str] | None = None
        self.page_size_max = 50
        self.ignores_metadata = False
        self.loses_exit_codes = False
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.url = f"http://127.0.0.1:{self._server.server_port}/api"

    def close(self) -> None:
        self.closing.set()
        for instance in list(self.instances.values()):
            instance.box.end()
        self._server.close()

    def expect(self, method: str, path: str, act: Any, times: int = 1) -> Fault:
        fault = Fault(method, path, act, times)
        self.faults.append(fault)
        return fault

    def count(self) -> int:
        with self.lock:
            return len(self.instances)

    def plant(self, metadata: dict[str, str]) -> Instance:
        """An instance that somebody else made."""
        return self._add(BASE_SNAPSHOT, metadata, 3_600)

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
            return refused(401, "Invalid API key")
        for pattern, handler in ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path.removeprefix('/api')}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *[unquote(group) for group in match.groups()])
        return refused(404, "Not Found")

    def _wanted(self, request: Request) -> dict[str, str]:
        found = ((METADATA.fullmatch(name), values[0]) for name, values in request.query.items())
        return {match[1]: value for match, value in found if match is not None}

    # Instances.

    def create(self, request: Request) -> Reply:
        snapshot = request.one("snapshot_id")
        source = self.snapshots.get(snapshot)
        if source is None and snapshot != BASE_SNAPSHOT:
            return refused(404, "Snapshot not found")
        if source is not None and source.broken:
            return refused(500, "the snapshot could not be restored")
        body = request.json()
        return told(200, self._add(snapshot, body["metadata"], body["ttl_seconds"], source).told())

    def _add(
        self, snapshot: str, metadata: dict[str, str], ttl: int, source: Snapshot | None = None
    ) -> Instance:  # fmt: skip
        identity = f"morphvm_{uuid4().hex[:8]}"
        root = self.root / identity
        if source is not None:
            shutil.copytree(source.root, root, symlinks=True)
        now = self._clock.now().timestamp()
        with self.lock:
            self.instances[identity] = Instance(Box(identity, root), snapshot, dict(metadata), now, now + ttl)
            return self.instances[identity]

    def get(self, request: Request, ref: str) -> Reply:
        found = self.instances.get(ref)
        return refused(404, "Instance not found") if found is None else told(200, found.told())

    def list(self, request: Request) -> Reply:
        wanted = self._wanted(request)
        page, limit = int(request.one("page", "1")), min(int(request.one("limit", "50")), self.page_size_max)
        matching = [
            one for one in self.instances.values() if self.ignores_metadata or wanted.items() <= one.metadata.items()
        ]
        cut = [one.told() for one in matching[(page - 1) * limit : page * limit]]
        more = {"page": page, "size": limit, "has_next": page * limit < len(matching), "has_prev": page > 1}
        return told(200, {"instances": cut, "total": len(matching), **more})

    def delete(self, request: Request, ref: str) -> Reply:
        found = self.instances.pop(ref, None)
        if found is None:
            return refused(404, "Instance not found")
        found.box.end()
        return Reply(204)

    def ttl(self, request: Request, ref: str) -> Reply:
        found = self.instances.get(ref)
        if found is None:
            return refused(404, "Instance not found")
        found.expires = self._clock.now().timestamp() + request.json()["ttl_seconds"]
        return told(200, found.told())

    def pause(self, request: Request, ref: str) -> Reply:
        found = self.instances.get(ref)
        if found is None:
            return refused(404, "Instance not found")
        if found.status != "ready":
            return refused(409, f"Instance is {found.status}")
        if self.pause_turns is not None:
            found.turns, self.pause_turns = self.pause_turns, None
            return told(200, {})
        found.box.freeze()
        found.status, found.turns = "saving", ["saving", "paused"]
        return told(200, {})

    def resume(self, request: Request, ref: str) -> Reply:
        found = self.instances.get(ref)
        if found is None:
            return refused(404, "Instance not found")
        if found.status != "paused":
            return refused(409, f"Instance is {found.status}")
        found.box.thaw()
        found.status, found.turns = "pending", ["ready"]
        return told(200, {})

    def expose(self, request: Request, ref: str) -> Reply:
        found = self.instances.get(ref)
        if found is None:
            return refused(404, "Instance not found")
        found.services[request.json()["name"]] = request.json()["port"]
        return told(200, {})

    def close_port(self, request: Request, ref: str, name: str) -> Reply:
        found = self.instances.get(ref)
        if found is None or found.services.pop(name, None) is None:
            return refused(404, "Service not found")
        return Reply(204)

    # Commands.

    def exec(self, request: Request, ref: str) -> Reply:
        found = self.instances.get(ref)
        if found is None:
            return refused(404, "Instance not found")
        if found.status != "ready":
            return refused(409, f"Instance is {found.status}")
        (line,) = request.json()["command"]
        process = found.box.start(["/bin/sh", "-c", line])

        told_events: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def run() -> None:  # to its end, whether or not anybody listens
            for name, data in follow(process):
                told_events.put(_event({"type": name, "content": data.decode(errors="replace")}))
            code = code_of(process)
            if not self.loses_exit_codes:
                told_events.put(_event({"type": "exit_code", "content": code}))
            told_events.put(b"data: [DONE]\n\n")
            told_events.put(None)

        threading.Thread(target=run, name="stand-in-command", daemon=True).start()
        return Reply(200, headers={"content-type": "text/event-stream"}, stream=iter(told_events.get, None))

    # Snapshots.

    def snapshot(self, request: Request, ref: str) -> Reply:
        found = self.instances.get(ref)
        if found is None:
            return refused(404, "Instance not found")
        identity = f"snapshot_{uuid4().hex[:8]}"
        root = found.box.copy(self.root / identity)
        now = self._clock.now().timestamp()
        made = Snapshot(identity, request.json()["metadata"], request.one("digest"), now, root)
        self.snapshots[identity] = made
        return told(200, {**made.told(), "status": "pending"})

    def snapshot_get(self, request: Request, ref: str) -> Reply:
        found = self.snapshots.get(ref)
        return refused(404, "Snapshot not found") if found is None else told(200, found.told())

    def snapshot_list(self, request: Request) -> Reply:
        digest, wanted = request.one("digest"), self._wanted(request)
        matching = [
            one.told()
            for one in self.snapshots.values()
            if digest in ("", one.digest) and wanted.items() <= one.metadata.items()
        ]
        return told(200, {"data": matching})

    def snapshot_delete(self, request: Request, ref: str) -> Reply:
        found = self.snapshots.pop(ref, None)
        if found is None:
            return refused(404, "Snapshot not found")
        shutil.rmtree(found.root, ignore_errors=True)
        return Reply(204)


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


_REF = "/instance/([^/]+)"
ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST /instance", FakeMorph.create),
    ("GET /instance/list", FakeMorph.list),
    (f"GET {_REF}", FakeMorph.get),
    (f"DELETE {_REF}", FakeMorph.delete),
    (f"POST {_REF}/ttl", FakeMorph.ttl),
    (f"POST {_REF}/pause", FakeMorph.pause),
    (f"POST {_REF}/resume", FakeMorph.resume),
    (f"POST {_REF}/exec/sse", FakeMorph.exec),
    (f"POST {_REF}/http", FakeMorph.expose),
    (f"DELETE {_REF}/http/([^/]+)", FakeMorph.close_port),
    (f"POST {_REF}/snapshot", FakeMorph.snapshot),
    ("GET /snapshot", FakeMorph.snapshot_list),
    ("GET /snapshot/([^/]+)", FakeMorph.snapshot_get),
    ("DELETE /snapshot/([^/]+)", FakeMorph.snapshot_delete),
]
