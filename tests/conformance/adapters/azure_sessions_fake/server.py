"""Sessions that any command makes, a list in pages of a fixed size, tokens that end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

TENANT = "a-tenant.example.test"
CLIENT = "client-1"
POOL = "/subscriptions/s-1/resourceGroups/rg/sessionPools/pool"
VERSION = "2025-02-02-preview"
EXECUTION_SECONDS_MAX = 220


def refused(status: int, code: str, message: str = "refused") -> Reply:
    return told(status, {"error": {"code": code, "message": message}}, x_ms_error_code=code)


@dataclass
class Session:
    box: Box
    created_at: datetime
    expire_at: datetime
    etag: str

    def told(self) -> dict[str, Any]:
        return {
            "identifier": self.box.id, "etag": self.etag, "createdAt": stamp(self.created_at),
            "lastAccessedAt": stamp(self.created_at), "expireAt": stamp(self.expire_at),
        }  # fmt: skip


class FakeAzureSessions:
    """`root` is where its sessions keep their files."""

    def __init__(self, root: Path, *, secret: str = "test-secret", keep_alive: bool = True) -> None:
        self.root = root
        self.secret = secret
        self.sessions: dict[str, Session] = {}
        self.executions: dict[str, dict[str, Any]] = {}
        """Of those that were answered before they were over."""
        self.tokens: set[str] = set()
        self.token_seconds = 3_600
        self.page_size = 100
        self.cooldown_seconds = 300
        self.answers_early = False
        """An execution is accepted, and its result is found by looking."""
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
        for session in list(self.sessions.values()):
            session.box.end()
        self._server.close()

    def count(self) -> int:
        with self.lock:
            return len(self.sessions)

    def use(self, name: str) -> Session:
        """As by any call that names a session: it is made if it is not there, and lives on."""
        with self.lock:
            now = self._clock.now()
            ends = now + timedelta(seconds=self.cooldown_seconds)
            found = self.sessions.get(name)
            if found is None:
                found = Session(Box(name, self.root / uuid4().hex), now, ends, uuid4().hex)
                self.sessions[name] = found
            found.expire_at = ends
            return found

    def end(self, name: str) -> None:
        """As after the cooldown, or by the service's own doing."""
        self.sessions.pop(name).box.end()

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
        if request.path == f"/{TENANT}/oauth2/v2.0/token":
            return self.token(request)
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return refused(401, "Unauthorized")
        if not request.path.startswith(f"{POOL}/"):
            return refused(404, "SessionPoolNotFound")
        if request.one("api-version") != VERSION:
            return refused(400, "UnsupportedApiVersion")
        path = request.path.removeprefix(POOL)
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {path}")
            if match is not None:
                return handler(self, request, *match.groups())
        return refused(404, "NotFound")

    def token(self, request: Request) -> Reply:
        asked = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        wanted = {"grant_type": "client_credentials", "client_id": CLIENT, "client_secret": self.secret,
                  "scope": "https://dynamicsessions.io/.default"}  # fmt: skip
        if asked != wanted:
            return told(401, {"error": "invalid_client", "error_description": f"AADSTS7000215: {asked}"})
        made = f"token-{uuid4().hex}"
        self.tokens.add(made)
        return told(200, {"token_type": "Bearer", "expires_in": self.token_seconds, "access_token": made})

    # Sessions.

    def get(self, request: Request) -> Reply:
        found = self.sessions.get(request.one("identifier"))
        return told(200, found.told()) if found else refused(404, "SessionWithIdentifierNotFound")

    def list(self, request: Request) -> Reply:
        with self.lock:
            everything = [session.told() for session in self.sessions.values()]
        start = int(request.one("skip", "0"))
        onwards = start + self.page_size < len(everything)
        link = f"{self.url}{POOL}/listSessions?skip={start + self.page_size}" if onwards else None
        return told(200, {"sessions": everything[start : start + self.page_size], "nextLink": link})

    def delete(self, request: Request) -> Reply:
        with self.lock:
            found = self.sessions.pop(request.one("identifier"), None)
        if found is None:
            return refused(404, "SessionWithIdentifierNotFound")
        found.box.end()
        return Reply(204)

    def execute(self, request: Request) -> Reply:
        body = request.json()
        if body["timeoutInSeconds"] > EXECUTION_SECONDS_MAX:
            return refused(400, "InvalidTimeout")
        session = self.use(request.one("identifier"))
        identity = request.headers.get("operation-id", uuid4().hex)
        over = {"id": identity, "identifier": session.box.id, "executionType": body["executionType"],
                **_run(session.box, body["command"], body["timeoutInSeconds"])}  # fmt: skip
        if not self.answers_early:
            return told(200, over)
        self.executions[identity] = over
        return told(202, {"id": identity, "identifier": session.box.id, "status": "Running"})

    def execution(self, request: Request, identity: str) -> Reply:
        found = self.executions.get(identity)
        return told(200, found) if found else refused(404, "ExecutionNotFound")


def _run(box: Box, command: list[str], seconds: int) -> dict[str, Any]:
    """There is no exit code in the answer; a failure of the command is none of the execution."""
    process = box.start(command)
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return {"status": "Failed", "error": {"code": "ExecutionTimedOut"}, "result": None}
    result = {"stdout": stdout.decode("utf-8", "replace"), "stderr": stderr.decode("utf-8", "replace")}
    return {"status": "Succeeded", "result": {**result, "executionResult": None}}


_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("GET /session", FakeAzureSessions.get),
    ("DELETE /session", FakeAzureSessions.delete),
    ("GET /listSessions", FakeAzureSessions.list),
    ("POST /executions", FakeAzureSessions.execute),
    ("GET /executions/([^/]+)", FakeAzureSessions.execution),
]
