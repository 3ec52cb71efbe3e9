"""Machines, their commands, and saved snapshots."""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box, follow, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

USABLE = ("ready", "idle", "running")
SNAPSHOT_NAME = re.compile("[a-z0-9][a-z0-9-]{0,62}")
FILE_BYTES_MAX = 5 * 1024 * 1024
HEARTBEAT_SECONDS = 15.0
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"


def refused(status: int, code: str, message: str = "") -> Reply:
    text = message or code.replace("_", " ")
    return told(
        status,
        {
            "ok": False, "type": "error", "status": status, "code": code, "message": text, "requestId": "req_1",
            "error": {"code": code, "message": text, "status": status, "details": None},
        },
    )  # fmt: skip


def success(code: int, kind: str, /, **told_too: Any) -> Reply:
    return told(code, {"ok": True, "type": kind, **told_too})


@dataclass
class Process:
    """What it wrote so far, and its code once it has ended."""

    process: subprocess.Popen[bytes]
    stdout: bytearray = field(default_factory=bytearray)
    code: int | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def pump(self) -> None:
        for stream, data in follow(self.process):
            if stream == "stdout":
                with self.changed:
                    self.stdout += data
                    self.changed.notify_all()
        code = self.process.wait()
        with self.changed:
            self.code = code
            self.changed.notify_all()


@dataclass
class Machine:
    box: Box
    name: str
    state: str
    ttl: int | None
    created_at: datetime
    archive_after: datetime | None
    access: str = "owner"
    turns: list[str] = field(default_factory=list)
    """States that the next looks will find, one each."""
    processes: dict[int, Process] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        if self.turns:
            self.state = self.turns.pop(0)
        if self.state == "cancelled":
            return {"id": self.box.id, "state": self.state, "error": "no machine"}
        return {
            "id": self.box.id, "name": self.name, "state": self.state, "error": None, "type": "default",
            "ttlSeconds": self.ttl, "createdAt": stamp(self.created_at), "access": self.access,
            "archiveAfter": stamp(self.archive_after) if self.archive_after else None,
            "desktopAvailable": False, "snapshotAvailable": True,
        }  # fmt: skip


@dataclass
class Saved:
    name: str
    source: str
    root: Path
    env: dict[str, str]
    turns: list[str]
    status: str = "saving"
    broken: bool = False

    def told(self) -> dict[str, Any]:
        shown = {"name": self.name, "status": self.status, "sourceSandboxId": self.source}
        self.status = self.turns.pop(0) if self.turns else self.status
        return shown


class FakeBoat:
    def __init__(self, root: Path, *, api_key: str, keep_alive: bool = True) -> None:
        self.root = root
        self.api_key = api_key
        self.machines: dict[str, Machine] = {}
        self.saved: dict[str, Saved] = {}
        self.keys: dict[str, tuple[bytes, str]] = {}
        self.create_turns = ["ready"]
        self.save_turns = ["ready"]
        self.room = 1_000
        self.page_size_max = 100
        self.attached_seconds = 600.0
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self._clock = SystemClock()
        self._random = random.Random(7)
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.closing.set()
        for machine in list(self.machines.values()):
            machine.box.end()
        self._server.close()

    def expect(self, method: str, path: str, act: Any, times: int = 1) -> Fault:
        fault = Fault(method, path, act, times)
        self.faults.append(fault)
        return fault

    def count(self) -> int:
        with self.lock:
            return len(self.machines)

    def plant(self, name: str, access: str = "owner") -> Machine:
        """A machine that somebody else made."""
        planted = self._add(name, 3_600, {}, None)
        planted.access, planted.state, planted.turns = access, "ready", []
        return planted

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
            return refused(401, "unauthorized")
        for pattern, handler in ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path}")
            if match is not None:
                return handler(self, request, *[unquote(group) for group in match.groups()])
        return refused(404, "not_found")

    # The account.

    def me(self, request: Request) -> Reply:
        return success(200, "me", user={"id": "usr_1"})

    def limits(self, request: Request) -> Reply:
        return success(
            200, "limits", canStart=self.room > 0, startBlockedReason=None, activeSandboxes=len(self.machines),
            maxActiveSandboxes=self.room, machineTypes=[{"type": "default", "available": True, "reason": None}],
        )  # fmt: skip

    # Machines.

    def create(self, request: Request) -> Reply:
        body = request.json()
        if len(body.get("name", "")) > 120:
            return refused(400, "invalid_name")
        source = self.saved.get(body["from"]) if "from" in body else None
        if "from" in body and source is None:
            return refused(404, "snapshot_not_found")
        key = request.headers["idempotency-key"]
        with self.lock:
            before = self.keys.get(key)
            if before is not None and before[0] != request.body:
                return refused(409, "idempotency_key_reused")
            if before is not None:
                machine = self.machines.get(before[1])
                shown = {"id": before[1], "name": "", "state": "cancelled"} if machine is None else machine.told()
                return success(202, "sandbox.created", status="provisioning", sandbox=shown)
            env = body.get("env") if "env" in body or source is None else source.env
            made = self._add(body["name"], body.get("ttlSeconds"), env or {}, source)
            self.keys[key] = (request.body, made.box.id)
        shown = {**made.told(), "state": "provisioning"} if not made.turns else made.told()
        return success(202, "sandbox.created", status="provisioning", sandbox=shown)

    def _add(self, name: str, ttl: int | None, env: dict[str, str], source: Saved | None) -> Machine:
        with self.lock:
            identity = "bx_" + "".join(self._random.choices(_ALPHABET, k=8))
            root = self.root / identity
            if source is not None:
                shutil.copytree(source.root, root, symlinks=True)
            now = self._clock.now()
            ends = None if ttl is None else now + timedelta(seconds=ttl)
            turns = ["provisioning", *(["error"] if source is not None and source.broken else self.create_turns)]
            made = Machine(Box(identity, root, dict(env)), name, "provisioning", ttl, now, ends, turns=turns)
            self.machines[identity] = made
        return made

    def get(self, request: Request, ref: str) -> Reply:
        machine = self.machines.get(ref)
        if machine is None:
            return refused(404, "not_found")
        shown = machine.told()
        if machine.state == "cancelled":
            with self.lock:
                self.machines.pop(ref, None)
        return success(200, "sandbox.info", sandbox=shown)

    def list(self, request: Request) -> Reply:
        with self.lock:
            everybody = list(self.machines.values())
        start = int(request.one("cursor", "0"))
        end = start + min(int(request.one("limit", "50")), self.page_size_max)
        more = end < len(everybody)
        page = {"nextCursor": str(end) if more else None, "hasMore": more, "limit": end - start}
        shown = [machine.told() for machine in everybody[start:end]]
        return success(200, "sandbox.list", sandboxes=shown, pageInfo=page)

    def patch(self, request: Request, ref: str) -> Reply:
        machine = self.machines.get(ref)
        if machine is None:
            return refused(404, "not_found")
        machine.ttl = request.json()["ttlSeconds"]
        machine.archive_after = self._clock.now() + timedelta(seconds=machine.ttl or 0)
        return success(200, "sandbox.info", sandbox=machine.told())

    def delete(self, request: Request, ref: str) -> Reply:
        if request.headers.get("x-ascii-confirm-delete") != ref:
            return refused(409, "delete_confirmation_required")
        with self.lock:
            machine = self.machines.pop(ref, None)
        if machine is None:
            return refused(404, "not_found")
        machine.box.end()
        return success(
            202, "sandbox.deleting", operation={"id": "bdop_" + "0" * 32, "targetId": ref, "status": "pending"}
        )

    def stop(self, request: Request, ref: str) -> Reply:
        machine = self.machines.get(ref)
        if machine is None:
            return refused(404, "not_found")
        if machine.state in USABLE:
            machine.box.signal_all(signal.SIGKILL)
            machine.turns = ["archiving", "archived"]
        return success(202, "sandbox.stopping", stop={"id": "stop_1", "status": "pending"})

    def resume(self, request: Request, ref: str) -> Reply:
        machine = self.machines.get(ref)
        if machine is None:
            return refused(404, "not_found")
        if machine.state == "archived":
            machine.turns = ["provisioning", "cloning", "ready"]
        return success(202, "sandbox.resuming")

    # Commands and files.

    def command(self, request: Request, ref: str) -> Reply:
        machine = self.machines.get(ref)
        if machine is None:
            return refused(404, "not_found")
        if machine.state not in USABLE:
            return refused(409, "sandbox_not_ready")
        started = Process(machine.box.start(["/bin/bash", "-c", request.json()["command"]]))
        threading.Thread(target=started.pump, name="stand-in-command", daemon=True).start()
        with self.lock:
            number = len(machine.processes) + 1
            machine.processes[number] = started
        return success(200, "command.started", success=True, processId=number, pid=started.process.pid)

    def attach(self, request: Request, ref: str, number: str) -> Reply:
        machine = self.machines.get(ref)
        process = machine.processes.get(int(number)) if machine is not None else None
        if process is None:
            return refused(404, "not_found")
        frames = self._frames(process, int(request.one("stdoutOffset", "0")))
        lines = (json.dumps(frame).encode() + b"\n" for frame in frames)
        return Reply(200, b"", {"content-type": "application/x-ndjson"}, stream=lines)

    def _frames(self, process: Process, offset: int) -> Iterator[dict[str, Any]]:
        yield {"type": "attached", "processId": 1, "stdoutOffset": offset, "stderrOffset": 0}
        ends = self._clock.monotonic() + self.attached_seconds
        while True:
            with process.changed:
                if len(process.stdout) <= offset and process.code is None:
                    process.changed.wait(min(HEARTBEAT_SECONDS, self.attached_seconds))
                data, code = bytes(process.stdout[offset:]), process.code
            if data:
                offset += len(data)
                yield {"type": "stdout", "data": data.decode("utf-8", "replace"), "nextOffset": offset}
            elif code is not None:
                yield {"type": "exit", "status": "exited", "exitCode": code, "stdoutOffset": offset}
                return
            else:
                yield {"type": "heartbeat"}
            if self._clock.monotonic() >= ends:
                yield {"type": "reconnect", "stdoutOffset": offset, "stderrOffset": 0}
                return

    def file_write(self, request: Request, ref: str) -> Reply:
        machine, body = self.machines.get(ref), request.json()
        if machine is None:
            return refused(404, "not_found")
        data = base64.b64decode(body["content"]) if body["encoding"] == "base64" else body["content"].encode()
        if len(data) > FILE_BYTES_MAX:
            return refused(413, "file_too_large")
        path = machine.box.real(body["path"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return success(200, "file.written", path=body["path"], size=len(data))

    # Saved snapshots.

    def save(self, request: Request) -> Reply:
        body = request.json()
        machine = self.machines.get(body["sandboxId"])
        if machine is None:
            return refused(404, "not_found")
        if not SNAPSHOT_NAME.fullmatch(body["name"]):
            return refused(400, "invalid_snapshot_name")
        with self.lock:
            replaced = self.saved.pop(body["name"], None)
            if replaced is not None:
                shutil.rmtree(replaced.root, ignore_errors=True)
            root = machine.box.copy(self.root / f"saved-{body['name']}")
            made = Saved(body["name"], machine.box.id, root, dict(machine.box.env), list(self.save_turns))
            self.saved[made.name] = made
        return success(202, "snapshot.saved.saving", status="saving", snapshot=made.told())

    def saved_get(self, request: Request, name: str) -> Reply:
        found = self.saved.get(name)
        return (
            refused(404, "snapshot_not_found")
            if found is None
            else success(200, "snapshot.saved.info", snapshot=found.told())
        )

    def saved_list(self, request: Request) -> Reply:
        return success(200, "snapshot.saved.list", snapshots=[one.told() for one in self.saved.values()])

    def saved_delete(self, request: Request, name: str) -> Reply:
        with self.lock:
            found = self.saved.pop(name, None)
        if found is None:
            return refused(404, "snapshot_not_found")
        shutil.rmtree(found.root, ignore_errors=True)
        return success(200, "snapshot.saved.deleted")


_MACHINE = "/sandboxes/([^/]+)"
ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("GET /me", FakeBoat.me),
    ("GET /limits", FakeBoat.limits),
    ("POST /sandboxes", FakeBoat.create),
    ("GET /sandboxes", FakeBoat.list),
    (f"GET {_MACHINE}", FakeBoat.get),
    (f"PATCH {_MACHINE}", FakeBoat.patch),
    (f"DELETE {_MACHINE}", FakeBoat.delete),
    (f"POST {_MACHINE}/stop", FakeBoat.stop),
    (f"POST {_MACHINE}/resume", FakeBoat.resume),
    (f"POST {_MACHINE}/commands", FakeBoat.command),
    (f"GET {_MACHINE}/commands/([0-9]+)/stream", FakeBoat.attach),
    (f"PUT {_MACHINE}/files", FakeBoat.file_write),
    ("POST /saved-snapshots", FakeBoat.save),
    ("GET /saved-snapshots", FakeBoat.saved_list),
    ("GET /saved-snapshots/([^/]+)", FakeBoat.saved_get),
    ("DELETE /saved-snapshots/([^/]+)", FakeBoat.saved_delete),
]
