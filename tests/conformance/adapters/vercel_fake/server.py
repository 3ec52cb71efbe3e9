"""The API's part: sandboxes under names that are unique in a project, each with a session while it runs."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.box import Box
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

from . import session as inside
from .session import refused

TEAM, PROJECT = "team_a", "prj_a"


@dataclass
class Sandbox:
    box: Box
    name: str
    tags: dict[str, str]
    created_at: datetime
    started_at: datetime
    timeout: int
    ports: list[int]
    session: str = field(default_factory=lambda: f"sess_{uuid4().hex[:16]}")
    status: str = "running"
    policy: dict[str, Any] = field(default_factory=lambda: {"mode": "allow-all"})
    live_policy: dict[str, Any] = field(default_factory=lambda: {"mode": "allow-all"})

    def named(self) -> dict[str, Any]:
        created = int(self.created_at.timestamp() * 1000)
        return {
            "name": self.name, "status": self.status, "currentSessionId": self.session, "tags": self.tags,
            "persistent": True, "projectId": PROJECT, "region": "iad1", "vcpus": 1, "memory": 2048,
            "timeout": self.timeout, "networkPolicy": self.policy, "createdAt": created, "updatedAt": created,
        }  # fmt: skip

    def told(self) -> dict[str, Any]:
        session = {
            "id": self.session, "status": self.status, "cwd": "/vercel/sandbox", "timeout": self.timeout,
            "startedAt": int(self.started_at.timestamp() * 1000), "networkPolicy": self.live_policy,
            "projectId": PROJECT, "region": "iad1", "memory": 2048, "vcpus": 1,
        }  # fmt: skip
        routes = [{"url": f"https://{self.name}-{port}.vercel.example", "subdomain": self.name, "port": port}
                  for port in self.ports]  # fmt: skip
        return {"sandbox": self.named(), "session": session, "routes": routes}


class FakeVercel:
    """`root` is where its sandboxes keep their files."""

    def __init__(self, root: Path, *, token: str = "test-token", keep_alive: bool = True) -> None:
        self.root = root
        self.token = token
        self.sandboxes: dict[str, Sandbox] = {}
        self.page_size_max = 50
        self.plan_milliseconds = 18_000_000
        self.next_fails = False
        self.ignores_tags = False
        self.ignores_rules = False
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
        for sandbox in list(self.sandboxes.values()):
            sandbox.box.end()
        self._server.close()

    def plant(self, name: str, tags: dict[str, str]) -> Sandbox:
        """A sandbox that somebody else made."""
        return self._add({"name": name, "tags": tags, "timeout": 600_000})

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
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return refused(403, "forbidden", "Not authorized")
        if request.one("teamId") != TEAM:
            return refused(400, "bad_request", "teamId is required")
        path = request.path.removeprefix("/api")
        command = re.fullmatch("/v2/sandboxes/sessions/([^/]+)/(cmd|fs/write|fs/read)", path)
        if command is not None:
            return self._inside(request, *command.groups())
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {path}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *match.groups())
        return refused(404, "not_found")

    def _inside(self, request: Request, session: str, what: str) -> Reply:
        found = self._of_session(session)
        if found is None:
            return refused(404, "not_found")
        if found.status != "running" or found.session != session:
            return refused(410, "sandbox_stopped")
        match what:
            case "cmd":
                return inside.run(found.box, session, request)
            case "fs/write":
                return inside.write(found.box, request)
            case _:
                return inside.read(found.box, request)

    def _of_session(self, session: str) -> Sandbox | None:
        return next((one for one in self.sandboxes.values() if one.session == session), None)

    # Sandboxes.

    def create(self, request: Request) -> Reply:
        body = request.json()
        name = body.get("name") or f"sandbox-{uuid4().hex[:8]}"
        if body.get("projectId") != PROJECT:
            return refused(400, "bad_request", "projectId is required")
        if name in self.sandboxes:
            return refused(409, "conflict", f"a sandbox named {name} exists")  # the real status is not published
        if body.get("timeout", 0) > self.plan_milliseconds:
            return refused(400, "bad_request", "timeout exceeds the plan's limit")
        if body.get("image", "").startswith("nope/"):
            return refused(400, "invalid_image", "the image cannot be pulled")
        made = self._add({**body, "name": name})
        if self.next_fails:
            self.next_fails, made.status = False, "failed"
        return told(200, made.told())

    def _add(self, body: dict[str, Any]) -> Sandbox:
        now = self._clock.now()
        box = Box(body["name"], self.root / body["name"], dict(body.get("env") or {}))
        made = Sandbox(
            box, body["name"], dict(body.get("tags") or {}), now, now, body.get("timeout", 300_000),
            list(body.get("ports") or []),
        )  # fmt: skip
        policy = body.get("networkPolicy") or {"mode": "allow-all"}
        made.policy, made.live_policy = policy, normalized(policy)
        self.sandboxes[made.name] = made
        return made

    def get(self, request: Request, name: str) -> Reply:
        found = self.sandboxes.get(name)
        if found is None:
            return refused(404, "not_found", "Sandbox not found")
        if request.one("resume", "true") == "true" and found.status == "stopped":
            found.session, found.status = f"sess_{uuid4().hex[:16]}", "running"
            found.started_at, found.live_policy = self._clock.now(), found.policy
        return told(200, found.told())

    def list(self, request: Request) -> Reply:
        key, _, value = request.one("tags").partition(":")
        matching = [
            one.named()
            for one in sorted(self.sandboxes.values(), key=lambda one: one.created_at, reverse=True)
            if self.ignores_tags or not key or one.tags.get(key) == value
        ]
        size = min(int(request.one("limit", "20")), self.page_size_max)
        start = int(request.one("cursor", "0"))
        onwards = str(start + size) if start + size < len(matching) else None
        page = matching[start : start + size]
        return told(200, {"sandboxes": page, "pagination": {"count": len(page), "next": onwards}})

    def delete(self, request: Request, name: str) -> Reply:
        found = self.sandboxes.pop(name, None)
        if found is None:
            return refused(404, "not_found", "Sandbox not found")
        found.box.end()
        return told(200, found.told())

    def change(self, request: Request, name: str) -> Reply:
        found = self.sandboxes.get(name)
        if found is None:
            return refused(404, "not_found", "Sandbox not found")
        found.policy = request.json().get("networkPolicy", found.policy)
        return told(200, found.told())

    # Sessions.

    def _running(self, session: str) -> Sandbox | Reply:
        found = self._of_session(session)
        if found is None:
            return refused(404, "not_found")
        return found if found.status == "running" else refused(410, "sandbox_stopped")

    def stop(self, request: Request, session: str) -> Reply:
        found = self._running(session)
        if isinstance(found, Reply):
            return found
        found.box.signal_all(signal.SIGKILL)
        found.status = "stopped"
        return told(200, found.told())

    def extend(self, request: Request, session: str) -> Reply:
        found = self._running(session)
        if isinstance(found, Reply):
            return found
        if found.timeout + request.json()["duration"] > self.plan_milliseconds:
            return refused(400, "bad_request", "timeout exceeds the plan's limit")
        found.timeout += request.json()["duration"]
        return told(200, found.told())

    def set_network(self, request: Request, session: str) -> Reply:
        found = self._running(session)
        if isinstance(found, Reply):
            return found
        if self.ignores_rules:
            self.ignores_rules = False
        else:
            found.live_policy = normalized(request.json())
        return told(200, found.told())


def normalized(policy: dict[str, Any]) -> dict[str, Any]:
    """A live policy is told in other words than it was sent in."""
    if "mode" in policy:
        return policy
    subnets = policy.get("subnets", {})
    return {"mode": "custom", "allowedDomains": list(policy["allow"]), "allowedCIDRs": subnets.get("allow", [])}


_SESSION = "/v2/sandboxes/sessions/([^/]+)"
_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST /v3/sandboxes", FakeVercel.create),
    ("GET /v2/sandboxes", FakeVercel.list),
    ("GET /v2/sandboxes/([^/]+)", FakeVercel.get),
    ("DELETE /v2/sandboxes/([^/]+)", FakeVercel.delete),
    ("PATCH /v2/sandboxes/([^/]+)", FakeVercel.change),
    (f"POST {_SESSION}/stop", FakeVercel.stop),
    (f"POST {_SESSION}/extend-timeout", FakeVercel.extend),
    (f"POST {_SESSION}/network-policy", FakeVercel.set_network),
]
