"""The lifecycle server's part: sandboxes, snapshots, endpoints, pools, and the door to every sandbox's execd."""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, refused, told

from .agent import Agent, Box, stamp

LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
RUNNING = {
    "docker": ("Running", "CONTAINER_RUNNING", "Sandbox container is running."),
    "kubernetes": ("Running", "RUNNING", "Sandbox is running"),
}
PAUSED = {
    "docker": ("Paused", "CONTAINER_PAUSED", "Sandbox container is paused."),
    "kubernetes": ("Paused", "PAUSED", "Sandbox is paused"),
}
FAILED = ("Failed", "CONTAINER_EXITED_ERROR", "Sandbox container exited with code 127.")
STOPPING = ("Stopping", "DELETING", "Sandbox is being deleted")
Status = tuple[str, str, str]


@dataclass
class Sandbox:
    """`turns` are states that the next reads will find, one each: what is asynchronous at the real server."""

    id: str
    box: Box
    status: Status
    created_at: datetime
    entrypoint: list[str]
    metadata: dict[str, str]
    expires_at: datetime | None
    image: str | None = None
    snapshot: str | None = None
    secure: bool = False
    policy: dict[str, Any] | None = None
    turns: list[Status] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        if self.turns:
            self.status = self.turns.pop(0)
        state, reason, message = self.status
        source = {"image": {"uri": self.image}} if self.snapshot is None else {"snapshotId": self.snapshot}
        status = {"state": state, "reason": reason, "message": message, "lastTransitionAt": stamp(self.created_at)}
        return {
            "id": self.id, **source, "status": status, **({"metadata": self.metadata} if self.metadata else {}),
            "entrypoint": self.entrypoint, **({"expiresAt": stamp(self.expires_at)} if self.expires_at else {}),
            "createdAt": stamp(self.created_at),
        }  # fmt: skip


@dataclass
class Snapshot:
    id: str
    sandbox: str
    name: str | None
    created_at: datetime
    root: Path
    metadata: dict[str, str]
    source_expires_at: datetime | None
    reads_until_ready: int
    failed: bool = False
    broken: bool = False
    """Ready by its own word, and its image is gone."""

    def told(self) -> dict[str, Any]:
        ready = self.reads_until_ready <= 0
        self.reads_until_ready -= 1
        state, reason = ("Ready", "snapshot_runtime_ready") if ready else ("Creating", "snapshot_accepted")
        if self.failed:
            state, reason = "Failed", "snapshot_runtime_failed"
        status = {"state": state, "reason": reason, "message": reason, "lastTransitionAt": stamp(self.created_at)}
        name = {"name": self.name} if self.name is not None else {}
        return {
            "id": self.id, "sandboxId": self.sandbox, **name, "status": status, "createdAt": stamp(self.created_at)
        }  # fmt: skip


class FakeOpenSandbox:
    """`root` is where its sandboxes keep their files."""

    def __init__(
        self,
        root: Path,
        *,
        runtime: str = "docker",
        api_key: str = "test-key",
        grace_seconds: float = 1.0,
        ping_seconds: float = 3.0,
        snapshot_reads: int = 1,
        keep_alive: bool = True,
    ) -> None:
        self.root = root
        self.runtime = runtime
        self.api_key = api_key
        self.snapshot_reads = snapshot_reads
        self.sandboxes: dict[str, Sandbox] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.pause_turns: list[Status] | None = None
        """What reads find after the next pause was accepted, one each; without it the pause is done at once."""
        self.version = "1.1.1"
        self.egress_mode = "dns+nft"
        self.ignores_rules = False
        """The next rules are accepted and not put in force."""
        self.page_size_max = 200
        self.lingers = False
        """Deleted sandboxes stay as Stopping until `vanish`."""
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.agent = Agent(grace_seconds, ping_seconds, self.closing)
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=keep_alive)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        for sandbox in list(self.sandboxes.values()):
            self._end(sandbox)
        self._server.close()

    def expect(self, method: str, path: str, act: Any, times: int = 1) -> Fault:
        fault = Fault(method, path, act, times)
        self.faults.append(fault)
        return fault

    def plant(self, metadata: dict[str, str]) -> Sandbox:
        """A sandbox that somebody else made."""
        return self._add({"metadata": metadata, "entrypoint": ["tail"], "timeout": 3600, "image": {"uri": "theirs"}})

    def vanish(self, ref: str) -> None:
        with self.lock:
            self._end(self.sandboxes.pop(ref))

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
        path = request.path.removeprefix("/v1")
        direct = re.fullmatch(r"/box/([^/]+)/proxy/(\d+)(/.*)", path)
        proxied = re.fullmatch(r"/sandboxes/([^/]+)/proxy/(\d+)(/.*)", path)
        through = direct or proxied
        if through is not None:  # the proxy wants no key: see the provider's documentation
            return self._inside(request, *through.groups())
        if path == "/health":
            return told(200, {"status": "healthy"})
        if path == "/version":
            return told(200, {"version": self.version})
        given = request.headers.get("open-sandbox-api-key")
        if given is None:
            return refused(401, "MISSING_API_KEY", "Authentication credentials are missing.")
        if given != self.api_key:
            message = "Authentication credentials are invalid. Check your API key and try again."
            return refused(401, "INVALID_API_KEY", message)
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {path}")
            if match is not None:
                with self.lock:
                    return handler(self, request, *match.groups())
        return told(404, {"detail": "Not Found"})

    def _inside(self, request: Request, ref: str, port: str, path: str) -> Reply:
        sandbox = self.sandboxes.get(ref)
        if sandbox is None or sandbox.status == FAILED or (self.runtime, sandbox.status[0]) == ("kubernetes", "Paused"):
            return refused(502, "BACKEND_CONNECTION_FAILED", "Could not connect to the backend sandbox")
        if sandbox.secure and request.headers.get("opensandbox-secure-access") != f"secure-{ref}":
            return refused(401, "UNAUTHORIZED", "secure access is required")
        if port == "18080":
            rules = {"defaultAction": "deny", "egress": []}
            return told(200, {"status": "ok", "mode": "dns", "enforcementMode": "dns", "policy": rules})
        return self.agent.answer(sandbox.box, request, path)

    # Sandboxes.

    def create(self, request: Request) -> Reply:
        body = request.json()
        refusal = self._invalid(body) or self._unsupported(body)
        if refusal is not None:
            return refusal
        made = self._add(body)
        state = made.told()
        message = {"docker": "Sandbox container started successfully.", "kubernetes": "Sandbox is running"}[
            self.runtime
        ]
        status = {**state["status"], "state": "Running", "reason": RUNNING[self.runtime][1], "message": message}
        # The answer tells what was asked for; what an unlabelled copy inherited shows on the next read only.
        asked = {"metadata": body["metadata"]} if body.get("metadata") else {}
        expires = {"expiresAt": state["expiresAt"]} if body.get("timeout") else {}
        told_entrypoint = body.get("entrypoint") or ["tail", "-f", "/dev/null"]
        return told(
            202, {"id": made.id, "status": status, **asked, **expires, "createdAt": state["createdAt"],
                  "entrypoint": told_entrypoint},
        )  # fmt: skip

    def _invalid(self, body: dict[str, Any]) -> Reply | None:
        pooled = "poolRef" in (body.get("extensions") or {})
        if body.get("timeout") is not None and body["timeout"] < 60:
            ctx = {"ge": 60}
            return _unprocessable("greater_than_equal", "timeout", "Input should be greater than or equal to 60", ctx)
        if body.get("templateId"):
            return None
        if not pooled and not body.get("image") and not body.get("snapshotId"):
            return _unprocessable(
                "value_error", "", "Value error, Exactly one of image or snapshotId must be provided."
            )
        if not pooled and not body.get("resourceLimits"):
            message = "Value error, resourceLimits is required when poolRef is not provided."
            return _unprocessable("value_error", "", message, {"error": {}}, body)
        if body.get("image") and not body.get("entrypoint"):
            return _unprocessable("value_error", "", "Value error, entrypoint is required", {"error": {}}, body)
        return None

    def _unsupported(self, body: dict[str, Any]) -> Reply | None:
        name = self.runtime.upper()
        pool = (body.get("extensions") or {}).get("poolRef")
        if body.get("templateId"):
            if self.runtime == "docker":
                return refused(400, "DOCKER::INVALID_ENTRYPOINT", "Entrypoint must contain at least one command.")
            return refused(404, "FSB::TEMPLATE_NOT_FOUND", "Template not found.")
        if pool and self.runtime == "docker":
            return refused(400, "SANDBOX::UNSUPPORTED_POOL_REF", "poolRef is not supported by the Docker provider.")
        if pool and pool != "*" and pool not in self.pools:
            return refused(404, "KUBERNETES::POOL_NOT_FOUND", f"Pool '{pool}' not found.")
        for value in (body.get("metadata") or {}).values():
            if not LABEL_VALUE.fullmatch(value):
                return refused(400, "SANDBOX::INVALID_METADATA_LABEL", f"Metadata value '{value}' is invalid")
        if (body.get("timeout") or 0) > 86_400:
            message = f"Sandbox timeout {body['timeout']}s exceeds configured maximum of 86400s."
            return refused(400, "SANDBOX::INVALID_PARAMETER", message)
        if body.get("secureAccess") and self.runtime == "docker":
            message = "secureAccess is not supported when runtime.type='docker'."
            return refused(400, "SANDBOX::INVALID_PARAMETER", message)
        if body.get("snapshotId") and body["snapshotId"] not in self.snapshots:
            return refused(404, "SNAPSHOT::NOT_FOUND", f"Snapshot {body['snapshotId']} not found")
        image = (body.get("image") or {}).get("uri", "")
        if image.startswith("nope/") or (body.get("snapshotId") and self.snapshots[body["snapshotId"]].broken):
            message = f"Failed to pull image {image or 'of the snapshot'}: registry unreachable"
            return refused(500, f"{name}::SANDBOX_IMAGE_PULL_FAILED", message)
        return None

    def _add(self, body: dict[str, Any]) -> Sandbox:
        identity = str(uuid4())
        now = self._clock.now()
        expires = now + timedelta(seconds=body["timeout"]) if body.get("timeout") else None
        source = self.snapshots.get(body.get("snapshotId") or "")
        metadata = dict(body.get("metadata") or {})
        root = self.root / identity
        if source is not None:
            shutil.copytree(source.root, root, symlinks=True)
            metadata = {**source.metadata, **metadata}  # a restored container inherits the labels of its source,
            expires = expires or source.source_expires_at  # and its expiry
        entrypoint = list(body.get("entrypoint") or ["tail", "-f", "/dev/null"])
        runs = shutil.which(entrypoint[0]) is not None or entrypoint[0] == "x"
        prefix = ["/opt/opensandbox/bootstrap.sh"] if self.runtime == "kubernetes" else []
        image = (body.get("image") or {}).get("uri")
        made = Sandbox(
            identity, Box(identity, root, dict(body.get("env") or {})), RUNNING[self.runtime] if runs else FAILED,
            now, [*prefix, *entrypoint], metadata, expires, image, source.id if source else None,
            secure=bool(body.get("secureAccess")), policy=body.get("networkPolicy"),
        )  # fmt: skip
        self.sandboxes[identity] = made
        return made

    def _found(self, ref: str) -> Sandbox | Reply:
        found = self.sandboxes.get(ref)
        if found is None:
            runtime = "FSB" if ref.startswith("fsb-") else self.runtime.upper()
            return refused(404, f"{runtime}::SANDBOX_NOT_FOUND", f"Sandbox {ref} not found.")
        return found

    def get(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        return found if isinstance(found, Reply) else told(200, found.told())

    def list(self, request: Request) -> Reply:
        size, page = int(request.one("pageSize", "20")), int(request.one("page", "1"))
        if size > 200:
            ctx = {"le": 200}
            return _unprocessable("less_than_equal", "pageSize", "Input should be less than or equal to 200", ctx)
        size = min(size, self.page_size_max)
        text = request.one("metadata")
        try:
            wanted = dict(parse_qsl(text, strict_parsing=True)) if text else {}
        except ValueError as error:
            return refused(400, "INVALID_METADATA_FORMAT", f"Invalid metadata format: {error}")
        states = {state.lower() for state in request.query.get("state", [])}
        matching = [
            sandbox.told()
            for sandbox in sorted(self.sandboxes.values(), key=lambda one: one.created_at, reverse=True)
            if wanted.items() <= sandbox.metadata.items() and (not states or sandbox.status[0].lower() in states)
        ]
        return told(200, _page(matching, page, size))

    def delete(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        if self.lingers:
            found.status = STOPPING
        else:
            self._end(self.sandboxes.pop(ref))
        return Reply(204)

    def _end(self, sandbox: Sandbox) -> None:
        sandbox.box.signal_all(signal.SIGKILL)
        sandbox.box.awake.set()
        shutil.rmtree(sandbox.box.root, ignore_errors=True)

    def renew(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        until = datetime.fromisoformat(request.json()["expiresAt"])
        if until <= self._clock.now():
            name = self.runtime.upper()
            return refused(400, f"{name}::INVALID_EXPIRATION", "New expiration time must be in the future.")
        if found.expires_at is None:
            return refused(409, f"{self.runtime.upper()}::INVALID_STATE", "Sandbox has no expiration.")
        found.expires_at = until
        return told(200, {"expiresAt": stamp(until)})

    def relabel(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        for key, value in request.json().items():
            if key.startswith("opensandbox.io/"):
                message = f"Metadata key '{key}' is reserved (opensandbox.io/ prefix)."
                return refused(400, "INVALID_METADATA_LABEL", message)
            if value is None:
                found.metadata.pop(key, None)
            else:
                found.metadata[key] = value
        return told(200, found.told())

    def pause(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        if found.status[0] != "Running":
            code = "DOCKER::SANDBOX_NOT_RUNNING" if self.runtime == "docker" else "KUBERNETES::INVALID_STATE"
            return refused(409, code, "Sandbox is not in a running state.")
        if self.pause_turns is not None:
            found.turns, self.pause_turns = self.pause_turns, None
            return Reply(202)
        if self.runtime == "docker":
            found.box.awake.clear()
            found.box.signal_all(signal.SIGSTOP)
        else:
            found.box.signal_all(signal.SIGKILL)
        found.status = PAUSED[self.runtime]
        return Reply(202)

    def resume(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        if found.status[0] != "Paused":
            code = "DOCKER::SANDBOX_NOT_PAUSED" if self.runtime == "docker" else "KUBERNETES::INVALID_STATE"
            return refused(409, code, "Sandbox is not in a paused state.")
        found.box.signal_all(signal.SIGCONT)
        found.box.awake.set()
        found.status = RUNNING[self.runtime]
        return Reply(202)

    def endpoint(self, request: Request, ref: str, port: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        expires, proxied = request.one("expires"), request.one("use_server_proxy") == "true"
        headers = {"headers": {"OpenSandbox-Secure-Access": f"secure-{ref}"}} if found.secure else {}
        if expires and proxied:
            message = "use_server_proxy cannot be combined with expires; signed endpoints require the gateway route."
            return refused(400, "SANDBOX::INVALID_PARAMETER", message)
        if expires:
            return self._signed(ref, port, int(expires))
        if proxied:
            return told(200, {"endpoint": f"127.0.0.1:{self.port}/v1/sandboxes/{ref}/proxy/{port}", **headers})
        if self.runtime == "docker" and port == "8080":
            return told(200, {"endpoint": "127.0.0.1:49661"})
        return told(200, {"endpoint": f"127.0.0.1:{self.port}/box/{ref}/proxy/{port}", **headers})

    def _signed(self, ref: str, port: str, expires: int) -> Reply:
        if self.runtime == "docker":
            message = "Signed routes (expires parameter) are not supported when runtime.type='docker'."
            return refused(400, "SANDBOX::API_NOT_SUPPORTED", message)
        now = int(self._clock.now().timestamp())
        if expires <= now:
            message = f"expires ({expires}) must be greater than current time ({now})."
            return refused(400, "SANDBOX::INVALID_PARAMETER", message)
        return told(200, {"endpoint": f"gw.example.test/{ref}/{port}/{_base36(expires)}/0eb9d0c6a"})

    # Snapshots.

    def snapshot(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        if found.status[0] != "Running":
            message = "Snapshot can only be created from a Running sandbox."
            return refused(409, "SNAPSHOT::INVALID_SOURCE_STATE", message)
        identity = str(uuid4())
        root = self.root / f"snapshot-{identity}"
        shutil.copytree(found.box.root, root, symlinks=True)
        made = Snapshot(
            identity, ref, request.json().get("name"), self._clock.now(), root, dict(found.metadata), found.expires_at,
            self.snapshot_reads + 1,
        )  # fmt: skip
        self.snapshots[identity] = made
        return told(202, made.told(), location=f"/v1/snapshots/{identity}")

    def snapshot_list(self, request: Request) -> Reply:
        sandbox, name = request.one("sandboxId"), request.one("name")
        matching = [
            one.told()
            for one in sorted(self.snapshots.values(), key=lambda one: one.created_at, reverse=True)
            if (not sandbox or one.sandbox == sandbox) and (not name or one.name == name)
        ]
        return told(200, _page(matching, int(request.one("page", "1")), int(request.one("pageSize", "20"))))

    def snapshot_get(self, request: Request, ref: str) -> Reply:
        found = self.snapshots.get(ref)
        if found is None:
            return refused(404, "SNAPSHOT::NOT_FOUND", f"Snapshot {ref} not found")
        return told(200, found.told())

    def snapshot_delete(self, request: Request, ref: str) -> Reply:
        if ref not in self.snapshots:
            return refused(404, "SNAPSHOT::NOT_FOUND", f"Snapshot {ref} not found")
        if any(sandbox.snapshot == ref for sandbox in self.sandboxes.values()) and self.runtime == "docker":
            message = "snapshot image cannot be deleted due to a conflict"
            return refused(409, "SNAPSHOT::DELETE_CONFLICT", message)
        shutil.rmtree(self.snapshots.pop(ref).root, ignore_errors=True)
        return Reply(204)

    # The rest.

    def network_policy(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        if found.policy:
            mode = "deny_all" if found.policy.get("defaultAction", "deny") == "deny" else "allow_all"
            told_policy = {"defaultAction": "deny", "egress": [], **found.policy}
            return told(200, {"status": "ok", "mode": mode, "enforcementMode": self.egress_mode, "policy": told_policy})
        return refused(502, "BACKEND_CONNECTION_FAILED", "Could not connect to the backend sandbox")

    def set_policy(self, request: Request, ref: str) -> Reply:
        found = self._found(ref)
        if isinstance(found, Reply):
            return found
        if not found.policy:
            return refused(502, "BACKEND_CONNECTION_FAILED", "Could not connect to the backend sandbox")
        if not self.ignores_rules:
            found.policy = request.json()
        self.ignores_rules = False
        return told(200, {"status": "ok"})

    def diagnostics(self, request: Request, ref: str, kind: str) -> Reply:
        common = {"sandboxId": ref, "kind": kind, "scope": request.one("scope"), "delivery": "inline"}
        return told(200, {**common, "contentType": "text/plain; charset=utf-8", "content": "started\n",
                          "contentLength": 8, "truncated": False})  # fmt: skip

    def templates(self, request: Request) -> Reply:
        if self.runtime == "docker":
            return refused(501, "FSB::API_NOT_SUPPORTED", "Template management requires the kubernetes runtime.")
        if request.method == "POST":
            return _unprocessable("missing", "publish", "Field required", {}, request.json())
        return told(200, _page([], 1, 20))

    def pool_list(self, request: Request) -> Reply:
        if self.runtime == "docker":
            message = "Pool management is only available when runtime.type is 'kubernetes'."
            return refused(501, "KUBERNETES::POOL_NOT_SUPPORTED", message)
        return told(200, {"items": list(self.pools.values())})

    def pool_make(self, request: Request) -> Reply:
        body = request.json()
        if body["name"] in self.pools:
            return refused(409, "KUBERNETES::POOL_ALREADY_EXISTS", f"Pool '{body['name']}' already exists.")
        created = stamp(self._clock.now())
        made = {"name": body["name"], "capacitySpec": body["capacitySpec"], "createdAt": created}
        self.pools[body["name"]] = made
        return told(201, made)

    def pool_get(self, request: Request, name: str) -> Reply:
        if name not in self.pools:
            return refused(404, "KUBERNETES::POOL_NOT_FOUND", f"Pool '{name}' not found.")
        return told(200, self.pools[name])

    def accept(self, request: Request) -> Reply:
        return Reply(202)


_REF = "/sandboxes/([^/]+)"
_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("POST /sandboxes", FakeOpenSandbox.create),
    ("GET /sandboxes", FakeOpenSandbox.list),
    (f"GET {_REF}", FakeOpenSandbox.get),
    (f"DELETE {_REF}", FakeOpenSandbox.delete),
    (f"PATCH {_REF}/metadata", FakeOpenSandbox.relabel),
    (f"POST {_REF}/renew-expiration", FakeOpenSandbox.renew),
    (f"POST {_REF}/pause", FakeOpenSandbox.pause),
    (f"POST {_REF}/resume", FakeOpenSandbox.resume),
    (rf"GET {_REF}/endpoints/(\d+)", FakeOpenSandbox.endpoint),
    (f"POST {_REF}/snapshots", FakeOpenSandbox.snapshot),
    (f"GET {_REF}/networkpolicy", FakeOpenSandbox.network_policy),
    (f"PUT {_REF}/networkpolicy", FakeOpenSandbox.set_policy),
    (f"GET {_REF}/diagnostics/(logs|events)", FakeOpenSandbox.diagnostics),
    ("GET /snapshots", FakeOpenSandbox.snapshot_list),
    ("GET /snapshots/([^/]+)", FakeOpenSandbox.snapshot_get),
    ("DELETE /snapshots/([^/]+)", FakeOpenSandbox.snapshot_delete),
    ("(?:GET|POST) /templates", FakeOpenSandbox.templates),
    ("GET /pools", FakeOpenSandbox.pool_list),
    ("POST /pools", FakeOpenSandbox.pool_make),
    ("GET /pools/([^/]+)", FakeOpenSandbox.pool_get),
    ("POST /metrics/events", FakeOpenSandbox.accept),
]


def _unprocessable(kind: str, name: str, message: str, ctx: Any = None, given: Any = None) -> Reply:
    place = "query" if name == "pageSize" else "body"
    detail = {"type": kind, "loc": [place, name] if name else [place], "msg": message, "input": given}
    return told(422, {"detail": [detail | ({"ctx": ctx or {"error": {}}} if kind != "missing" else {})]})


def _page(items: list[Any], page: int, size: int) -> dict[str, Any]:
    total, pages = len(items), -(-len(items) // size)
    pagination = {
        "page": page, "pageSize": size, "totalItems": total, "totalPages": pages, "hasNextPage": page * size < total
    }  # fmt: skip
    return {"items": items[(page - 1) * size : page * size], "pagination": pagination}


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits
