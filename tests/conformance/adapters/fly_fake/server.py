"""Machines under names that are unique in the app: a list without pages, states that lag, a door for commands."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box, code_of, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

APP = "an-app"
EXEC_SECONDS_MAX = 60
"""Longer calls are given up on, whatever they ask for."""


def refused(status: int, message: str, kind: str = "unknown") -> Reply:
    return told(status, {"error": message, "status": kind})


@dataclass
class Machine:
    """`turns` are states that the next reads will find, one each."""

    box: Box
    name: str
    config: dict[str, Any]
    region: str
    created_at: datetime
    state: str = "created"
    turns: list[str] = field(default_factory=lambda: ["starting", "started"])

    def told(self) -> dict[str, Any]:
        if self.turns:
            self.state = self.turns.pop(0)
        return {
            "id": self.box.id, "name": self.name, "state": self.state, "region": self.region,
            "instance_id": f"01{self.box.id}", "config": self.config, "created_at": stamp(self.created_at),
            "updated_at": stamp(self.created_at),
        }  # fmt: skip


class FakeFly:
    """`root` is where its machines keep their files."""

    def __init__(self, root: Path, *, token: str = "test-token", keep_alive: bool = True) -> None:
        self.root = root
        self.token = token
        self.machines: dict[str, Machine] = {}
        self.destroyed: dict[str, Machine] = {}
        """Told of by their ids for a while after they are gone."""
        self.next_fails = False
        self.ignores_metadata = False
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        for machine in list(self.machines.values()):
            machine.box.end()
        self._server.close()

    def plant(self, name: str, metadata: dict[str, str]) -> Machine:
        """A machine that somebody else made."""
        planted = self._add({"name": name, "config": {"image": "theirs", "metadata": metadata}})
        planted.state, planted.turns = "started", []
        return planted

    def count(self) -> int:
        with self.lock:
            return len(self.machines)

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
            return refused(401, "unauthorized")
        path = request.path.removeprefix("/v1")
        command = re.fullmatch(f"/apps/{APP}/machines/([^/]+)/exec", path)
        if command is not None:
            return self.exec(request, command[1])
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {path}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *match.groups())
        return refused(404, "not found")

    # Machines.

    def create(self, request: Request) -> Reply:
        body = request.json()
        if any(one.name == body["name"] for one in self.machines.values()):
            # Fly refuses it; with which words is not published.
            return refused(409, f"unique machine name violation, machine already exists with name {body['name']}")
        if body["config"]["image"].startswith("nope/"):
            return refused(400, "failed to get manifest nope/image: not found")
        if body["config"]["guest"]["memory_mb"] % 256:
            return refused(422, "memory must be a multiple of 256")
        made = self._add(body)
        if self.next_fails:
            self.next_fails, made.turns = False, ["created", "failed"]
        return told(200, made.told())

    def _add(self, body: dict[str, Any]) -> Machine:
        ref = uuid4().hex[:14]
        box = Box(ref, self.root / ref, dict(body["config"].get("env") or {}))
        made = Machine(box, body["name"], body["config"], body.get("region", "iad"), self._clock.now())
        self.machines[ref] = made
        return made

    def get(self, request: Request, ref: str) -> Reply:
        found = self.machines.get(ref) or self.destroyed.get(ref)
        return told(200, found.told()) if found else _missing()

    def list(self, request: Request) -> Reply:
        wanted = {key.removeprefix("metadata."): values[0] for key, values in request.query.items()
                  if key.startswith("metadata.")}  # fmt: skip
        matching = [
            one.told()
            for one in self.machines.values()
            if self.ignores_metadata or wanted.items() <= (one.config.get("metadata") or {}).items()
        ]
        return told(200, matching)

    def delete(self, request: Request, ref: str) -> Reply:
        found = self.machines.pop(ref, None)
        if found is None:
            return told(200, {"ok": True}) if ref in self.destroyed else _missing()
        found.box.end()
        found.state, found.turns = "destroyed", []
        self.destroyed[ref] = found
        return told(200, {"ok": True})

    def stop(self, request: Request, ref: str) -> Reply:
        found = self.machines.get(ref)
        if found is None:
            return _missing()
        found.box.signal_all(signal.SIGKILL)
        found.turns = ["stopping", "stopped"]
        return told(200, {"ok": True})

    def start(self, request: Request, ref: str) -> Reply:
        found = self.machines.get(ref)
        if found is None:
            return _missing()
        if (found.config.get("guest") or {}).get("persist_rootfs") != "always":
            shutil.rmtree(found.box.home)
            found.box.home.mkdir()
        previous, found.turns = found.state, ["starting", "started"]
        return told(200, {"previous_state": previous})

    def exec(self, request: Request, ref: str) -> Reply:
        found = self.machines.get(ref)
        if found is None:
            return _missing()
        if found.state != "started":
            return refused(412, f"machine {ref} is {found.state}")
        body = request.json()
        try:
            process = found.box.start(body["command"], stdin=subprocess.PIPE)
        except OSError as error:
            return refused(400, str(error))
        try:
            stdout, stderr = process.communicate(
                body.get("stdin", "").encode(), timeout=min(EXEC_SECONDS_MAX, body.get("timeout") or 30)
            )
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return refused(408, "deadline_exceeded")
        code = code_of(process)
        answer = {"stdout": stdout.decode("utf-8", "replace"), "stderr": stderr.decode("utf-8", "replace")}
        return told(200, answer | ({"exit_code": code} if code else {}))


_MACHINES = f"/apps/{APP}/machines"
_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    (f"POST {_MACHINES}", FakeFly.create),
    (f"GET {_MACHINES}", FakeFly.list),
    (f"GET {_MACHINES}/([^/]+)", FakeFly.get),
    (f"DELETE {_MACHINES}/([^/]+)", FakeFly.delete),
    (f"POST {_MACHINES}/([^/]+)/stop", FakeFly.stop),
    (f"POST {_MACHINES}/([^/]+)/start", FakeFly.start),
]


def _missing() -> Reply:
    return refused(404, "machine not found")
