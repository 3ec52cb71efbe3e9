"""VMs, their commands, snapshots and port rules."""

from __future__ import annotations

import base64
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

SLUG = re.compile("[a-z0-9-]{1,63}")
T = TypeVar("T")
REQUEST_ID = "x-freestyle-background-request-id"


def refused(status: int, code: str, message: str = "") -> Reply:
    return told(status, {"code": code, "message": message or code.lower()})


@dataclass
class Vm:
    box: Box
    slug: str | None
    metadata: dict[str, str]
    ttl: int
    created_at: datetime
    firewall: Sequence[Any]
    state: str = "running"
    turns: list[str] = field(default_factory=list)
    """States that the next looks will find, one each."""

    def told(self) -> dict[str, Any]:
        if self.turns:
            self.state = self.turns.pop(0)
        return {
            "id": self.box.id, "state": self.state, "slug": self.slug, "metadata": self.metadata,
            "ttlSeconds": self.ttl, "createdAt": stamp(self.created_at), "firewallRules": [*self.firewall],
            "resources": {"cpu": 2, "memory": 4096, "storage": 16384},
        }  # fmt: skip


@dataclass
class Snapshot:
    id: str
    slug: str | None
    name: str | None
    source: str
    root: Path
    broken: bool = False

    def told(self) -> dict[str, Any]:
        return {"id": self.id, "slug": self.slug, "displayName": self.name, "sourceVmId": self.source}


class FakeFreestyle:
    """`background_after` takes the place of what a call asks for, so that a test need not wait."""

    def __init__(self, root: Path, *, api_key: str, keep_alive: bool = True) -> None:
        self.root = root
        self.api_key = api_key
        self.vms: dict[str, Vm] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.tls: dict[str, dict[str, Any]] = {}
        self.background: dict[str, list[Reply]] = {}
        self.background_after: float | None = None
        self.pause_turns: list[str] | None = None
        self.page_size_max = 100
        self.ignores_metadata = False
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.closing.set()
        for vm in list(self.vms.values()):
            vm.box.end()
        self._server.close()

    def expect(self, method: str, path: str, act: Any, times: int = 1) -> Fault:
        fault = Fault(method, path, act, times)
        self.faults.append(fault)
        return fault

    def count(self) -> int:
        with self.lock:
            return len(self.vms)

    def plant(self, metadata: dict[str, str], slug: str | None = None) -> Vm:
        """A VM that somebody else made."""
        return self._add(f"vm-{uuid4().hex}", slug, metadata, 3_600, [], None)

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
            return refused(401, "UNAUTHORIZED")
        for pattern, handler in ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path}")
            if match is not None:
                return handler(self, request, *[unquote(group) for group in match.groups()])
        return refused(404, "NOT_FOUND")

    # VMs.

    def create(self, request: Request) -> Reply:
        body = request.json()
        if "firewall" not in body:
            return refused(400, "FIREWALL_REQUIRED")
        slug, metadata = body.get("slug"), body.get("metadata") or {}
        if slug is not None and not SLUG.fullmatch(slug):
            return refused(400, "INVALID_SLUG")
        if any(len(text) > 63 for pair in metadata.items() for text in pair):
            return refused(400, "INVALID_METADATA")
        source = self.snapshots.get(body["snapshotId"])
        if source is None and not body["snapshotId"].startswith("freestyle/"):
            return refused(404, "NOT_FOUND", "snapshot not found")
        if source is not None and source.broken:
            return refused(500, "SNAPSHOT_BROKEN")
        with self.lock:
            if slug is not None and any(vm.slug == slug for vm in self.vms.values()):
                return refused(409, "SLUG_TAKEN")
            made = self._add(
                f"vm-{uuid4().hex}", slug, metadata, body.get("ttlSeconds", -1), body["firewall"]["rules"], source
            )
            return told(200, made.told())

    def _add(
        self, identity: str, slug: str | None, metadata: dict[str, str], ttl: int, rules: Sequence[Any],
        source: Snapshot | None,
    ) -> Vm:  # fmt: skip
        root = self.root / identity
        if source is not None:
            shutil.copytree(source.root, root, symlinks=True)
        made = Vm(Box(identity, root), slug, dict(metadata), ttl, self._clock.now(), rules)
        with self.lock:
            self.vms[identity] = made
        return made

    def _found(self, ref: str) -> Vm | None:
        with self.lock:
            return self.vms.get(ref) or next((vm for vm in self.vms.values() if vm.slug == ref), None)

    def get(self, request: Request, ref: str) -> Reply:
        vm = self._found(ref)
        return refused(404, "NOT_FOUND") if vm is None else told(200, vm.told())

    def list(self, request: Request) -> Reply:
        wanted = dict(pair.split(":", 1) for pair in request.one("metadata").split(",") if pair)
        with self.lock:
            matching = [
                vm for vm in self.vms.values() if self.ignores_metadata or wanted.items() <= vm.metadata.items()
            ]
            return told(200, {"vms": [vm.told() for vm in self._cut(request, matching)], "totalCount": len(matching)})

    def _cut(self, request: Request, items: Sequence[T]) -> Sequence[T]:
        offset = int(request.one("offset", "0"))
        return items[offset : offset + min(int(request.one("limit", "100")), self.page_size_max)]

    def patch(self, request: Request, ref: str) -> Reply:
        vm = self._found(ref)
        if vm is None:
            return refused(404, "NOT_FOUND")
        vm.ttl = request.json().get("ttlSeconds", vm.ttl)
        return told(200, vm.told())

    def delete(self, request: Request, ref: str) -> Reply:
        vm = self._found(ref)
        if vm is None:
            return refused(404, "NOT_FOUND")
        with self.lock:
            self.vms.pop(vm.box.id, None)
            self.tls = {key: rule for key, rule in self.tls.items() if rule["destination"]["vmId"] != vm.box.id}
        vm.box.end()
        return Reply(204)

    def start(self, request: Request, ref: str) -> Reply:
        vm = self._found(ref)
        if vm is None:
            return refused(404, "NOT_FOUND")
        vm.box.thaw()
        vm.state = "running"
        return told(200, vm.told())

    def pause(self, request: Request, ref: str) -> Reply:
        vm = self._found(ref)
        if vm is None:
            return refused(404, "NOT_FOUND")
        if vm.state != "running":
            return refused(409, "INVALID_STATE")
        if self.pause_turns is not None:
            vm.turns, self.pause_turns = self.pause_turns, None
            return told(200, {})
        vm.box.freeze()
        vm.state = "paused"
        return told(200, {})

    # Commands.

    def exec(self, request: Request, ref: str) -> Reply:
        vm = self._found(ref)
        if vm is None:
            return refused(404, "NOT_FOUND")
        if vm.state != "running":
            return refused(409, "INVALID_STATE")
        asked = request.headers.get("x-freestyle-background-after-secs")
        after = self.background_after if self.background_after is not None else float(asked or 86_400)
        done: list[Reply] = []
        runner = threading.Thread(target=lambda: done.append(self._ran(vm, request.json())), daemon=True)
        runner.start()
        runner.join(after)
        if done:
            return done[0]
        identity = uuid4().hex
        self.background[identity] = done
        return told(202, {"requestId": identity, "resultUrl": ""}, **{REQUEST_ID: identity})

    def _ran(self, vm: Vm, body: dict[str, Any]) -> Reply:
        if body["command"] == "poweroff" and body.get("linuxUser") == "root":
            vm.state = "stopped"
            vm.box.signal_all(signal.SIGKILL)
            return told(200, {"stdout": "", "stderr": "", "statusCode": 0})
        process = vm.box.start(["/bin/sh", "-c", body["command"]], stdin=subprocess.PIPE)
        seconds = body.get("timeoutMs", 30_000) / 1000
        code: int | None = None
        try:
            out, err = process.communicate(base64.b64decode(body.get("stdin", "")), timeout=seconds)
            code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                process.kill()
            out, err = process.communicate()
        texts = {"stdout": out.decode(errors="replace"), "stderr": err.decode(errors="replace")}
        return told(200, {**texts, "statusCode": code})

    def result(self, request: Request, identity: str) -> Reply:
        done = self.background.get(identity)
        if done is None:
            return refused(404, "NOT_FOUND")
        if not done:
            return told(202, {"requestId": identity}, **{REQUEST_ID: identity})
        done[0].headers[REQUEST_ID] = identity
        return done[0]

    # Snapshots and ports. How lists of both look is not in the client; this is the shape of the list of VMs.

    def snapshot(self, request: Request, ref: str) -> Reply:
        vm = self._found(ref)
        if vm is None:
            return refused(404, "NOT_FOUND")
        if vm.state not in {"running", "paused"}:
            return refused(409, "INVALID_STATE")
        body = request.json()
        with self.lock:
            if any(one.slug == body.get("slug") for one in self.snapshots.values()):
                return refused(409, "SLUG_TAKEN")
            identity = f"snap-{uuid4().hex}"
            root = vm.box.copy(self.root / identity)
            made = Snapshot(identity, body.get("slug"), body.get("displayName"), vm.box.id, root)
            self.snapshots[identity] = made
        return told(200, {"snapshotId": identity, "sourceVmId": vm.box.id, "snapshot": made.told()})

    def snapshot_list(self, request: Request) -> Reply:
        source = request.one("sourceVmId")
        with self.lock:
            matching = [one for one in self.snapshots.values() if source in ("", one.source)]
        cut = [one.told() for one in self._cut(request, matching)]
        return told(200, {"snapshots": cut, "totalCount": len(matching)})

    def snapshot_delete(self, request: Request, ref: str) -> Reply:
        with self.lock:
            found = self.snapshots.pop(ref, None)
        if found is None:
            return refused(404, "NOT_FOUND")
        shutil.rmtree(found.root, ignore_errors=True)
        return Reply(204)

    def tls_list(self, request: Request) -> Reply:
        rules = [rule for rule in self.tls.values() if rule["destination"]["vmId"] == request.one("vmId")]
        return told(200, {"rules": rules})

    def tls_add(self, request: Request) -> Reply:
        identity = f"tls-{uuid4().hex}"
        self.tls[identity] = {"id": identity, **request.json()}
        return told(200, self.tls[identity])

    def tls_delete(self, request: Request, identity: str) -> Reply:
        return refused(404, "NOT_FOUND") if self.tls.pop(identity, None) is None else Reply(204)


_VM = "/v5/vms/([^/]+)"
ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST /v5/vms", FakeFreestyle.create),
    ("GET /v5/vms", FakeFreestyle.list),
    (f"GET {_VM}", FakeFreestyle.get),
    (f"PATCH {_VM}", FakeFreestyle.patch),
    (f"DELETE {_VM}", FakeFreestyle.delete),
    (f"POST {_VM}/start", FakeFreestyle.start),
    (f"POST {_VM}/pause", FakeFreestyle.pause),
    (f"POST {_VM}/exec-await", FakeFreestyle.exec),
    (f"POST {_VM}/snapshot", FakeFreestyle.snapshot),
    ("GET /v5/background-requests/([^/]+)", FakeFreestyle.result),
    ("GET /v5/snapshots", FakeFreestyle.snapshot_list),
    ("DELETE /v5/snapshots/([^/]+)", FakeFreestyle.snapshot_delete),
    ("GET /v5/tls", FakeFreestyle.tls_list),
    ("POST /v5/tls", FakeFreestyle.tls_add),
    ("DELETE /v5/tls/([^/]+)", FakeFreestyle.tls_delete),
]
