"""The API's part and the door to each MicroVM, whose inside is the stand-in of execd that OpenSandbox's tests use."""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.session import get_session
from botocore.validate import ParamValidator

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.opensandbox_fake.agent import Agent, Box
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

REGION = "eu-west-1"
IMAGE = f"arn:aws:lambda:{REGION}:123456789012:microvm-image:differently"
OTHER_IMAGE = f"{IMAGE}-of-others"
KEY = ("AKIDSTANDIN000000000", "secret-of-the-stand-in-0123456789abcdef")
OWNER_PATH = "/run/differently/owner.json"
HEADERS_SIGNED = re.compile(r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})")


@dataclass
class Vm:
    """`turns` are states that the next looks at it will find, one each."""

    id: str
    box: Box
    started_at: datetime
    image: str
    seconds: int
    state: str = "PENDING"
    turns: list[str] = field(default_factory=list)
    reason: str = ""
    endpoint: str = ""
    server: Server | None = None
    boots: int = 1
    """So many looks until the agent answers."""


@dataclass
class Token:
    vm: str
    ports: list[int]
    ends: float


class FakeMicrovms:
    def __init__(self, root: Path, *, installation: str = "inst_any", pending_looks: int = 1) -> None:
        self.root = root
        self.tags: dict[str, str] = {"differently-installation": installation}
        self.image_version: str | None = "1.0"
        self.key = KEY
        self.vms: dict[str, Vm] = {}
        self.asked: dict[str, tuple[str, str]] = {}
        """By client token: the MicroVM, and the request that made it."""
        self.tokens: dict[str, Token] = {}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.pending_looks = pending_looks
        self.suspend_turns: list[str] | None = None
        self.page_size_max = 50
        self.ignores_filter = False
        self.up = True
        self.lock = threading.RLock()
        self.closing = threading.Event()
        self.agent = Agent(0.02, 3.0, self.closing)
        self._clock = SystemClock()
        self._server = Server(self._answer, lambda: self.up, keep_alive=False)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.closing.set()
        for vm in list(self.vms.values()):
            self._end(vm)
        self._server.close()

    def expect(self, method: str, path: str, act: Any, times: int = 1) -> Fault:
        fault = Fault(method, path, act, times)
        self.faults.append(fault)
        return fault

    def alive(self) -> list[Vm]:
        with self.lock:
            return [vm for vm in self.vms.values() if vm.state != "TERMINATED"]

    def plant(self, owner: dict[str, str], image: str = IMAGE) -> Vm:
        """A MicroVM that somebody else made."""
        vm = self._add(image, 3_600, owner, {})
        vm.state, vm.turns, vm.boots = "RUNNING", [], 0
        return vm

    # One request.

    def _answer(self, request: Request) -> Reply:
        return self._struck(request, lambda: self._called(request))

    def _struck(self, request: Request, go: Callable[[], Reply]) -> Reply:
        with self.lock:
            self.requests.append(request)
            struck = next((fault for fault in self.faults if fault.strikes(request)), None)
            if struck is not None:
                struck.times -= 1
        return go() if struck is None else struck.act(go, request, self.closing)

    def _called(self, request: Request) -> Reply:
        wrong = unsigned(request, self.key)
        if wrong is not None:
            return wrong
        for name, pattern, handler in ROUTES:
            match = re.fullmatch(pattern, f"{request.method} {request.path}")
            if match is not None:
                groups = [unquote(group) for group in match.groups()]
                wrong = misshapen(name, request, groups)
                with self.lock:
                    return wrong or handler(self, request, *groups)
        return refusal(404, "UnknownOperationException", "")

    # MicroVMs.

    def run(self, request: Request) -> Reply:
        body = request.json()
        if body["imageIdentifier"] not in (IMAGE, OTHER_IMAGE):
            return refusal(404, "ResourceNotFoundException", f"image {body['imageIdentifier']} not found")
        token, text = body.get("clientToken") or str(uuid4()), json.dumps(body, sort_keys=True)
        if token in self.asked:
            known, before = self.asked[token]
            if before != text:
                return refusal(409, "ConflictException", "the client token was used with other parameters")
            return told(200, self._described(self.vms[known]))
        payload = json.loads(body.get("runHookPayload") or "{}")
        owner = {name: payload.get(name, "") for name in ("installation", "sandbox")}
        seconds = body.get("maximumDurationInSeconds", 28_800)
        made = self._add(body["imageIdentifier"], seconds, owner, payload.get("env", {}))
        self.asked[token] = (made.id, text)
        return told(200, self._described(made))

    def _add(self, image: str, seconds: int, owner: dict[str, str], env: dict[str, str]) -> Vm:
        identity = f"microvm-{uuid4()}"
        box = Box(identity, self.root / identity, env)
        made = Vm(
            identity, box, self._clock.now(), image, seconds, turns=["PENDING"] * self.pending_looks + ["RUNNING"]
        )
        made.boots = self.pending_looks
        kept = box.root / OWNER_PATH.lstrip("/")
        kept.parent.mkdir(parents=True)
        kept.write_text(json.dumps(owner))
        made.server = Server(lambda request: self._inside(made, request), lambda: self.up, keep_alive=False)
        made.endpoint = f"127.0.0.1:{made.server.server_port}"
        self.vms[identity] = made
        return made

    def _described(self, vm: Vm) -> dict[str, Any]:
        reason = {"stateReason": vm.reason} if vm.reason else {}
        return {
            "microvmId": vm.id, "state": vm.state, "endpoint": vm.endpoint, "imageArn": vm.image, "imageVersion": "1.0",
            "maximumDurationInSeconds": vm.seconds, "startedAt": vm.started_at.timestamp(), **reason,
        }  # fmt: skip

    def get(self, request: Request, ref: str) -> Reply:
        vm = self.vms.get(ref)
        if vm is None:
            return refusal(404, "ResourceNotFoundException", f"MicroVM {ref} not found")
        if vm.turns and vm.state != "TERMINATED":
            vm.state = vm.turns.pop(0)
            if vm.state == "SUSPENDED":
                self._freeze(vm)
        vm.boots = max(0, vm.boots - 1)
        return told(200, self._described(vm))

    def list(self, request: Request) -> Reply:
        wanted = None if self.ignores_filter else request.one("imageIdentifier")
        size = min(int(request.one("maxResults", "50")), self.page_size_max)
        start = int(request.one("nextToken", "0"))
        matching = [vm for vm in self.vms.values() if wanted in (None, "", vm.image)]
        keys = ("microvmId", "state", "imageArn", "imageVersion", "startedAt")
        items = [{key: self._described(vm)[key] for key in keys} for vm in matching[start : start + size]]
        more = {"nextToken": str(start + size)} if start + size < len(matching) else {}
        return told(200, {"items": items, **more})

    def suspend(self, request: Request, ref: str) -> Reply:
        vm = self.vms.get(ref)
        if vm is None:
            return refusal(404, "ResourceNotFoundException", f"MicroVM {ref} not found")
        if vm.state != "RUNNING":
            return refusal(409, "ConflictException", f"MicroVM is {vm.state}")
        if self.suspend_turns is not None:
            vm.state, vm.turns, self.suspend_turns = "SUSPENDING", self.suspend_turns, None
            return Reply(200)
        vm.state, vm.turns = "SUSPENDING", ["SUSPENDED"]
        self._freeze(vm)
        return Reply(200)

    def _freeze(self, vm: Vm) -> None:
        vm.box.awake.clear()
        vm.box.signal_all(signal.SIGSTOP)

    def resume(self, request: Request, ref: str) -> Reply:
        vm = self.vms.get(ref)
        if vm is None:
            return refusal(404, "ResourceNotFoundException", f"MicroVM {ref} not found")
        if vm.state != "SUSPENDED":
            return refusal(409, "ConflictException", f"MicroVM is {vm.state}")
        vm.box.signal_all(signal.SIGCONT)
        vm.box.awake.set()
        vm.state, vm.turns = "RUNNING", []
        return Reply(200)

    def terminate(self, request: Request, ref: str) -> Reply:
        vm = self.vms.get(ref)
        if vm is None:
            return refusal(404, "ResourceNotFoundException", f"MicroVM {ref} not found")
        self._end(vm)
        return Reply(200)

    def _end(self, vm: Vm) -> None:
        vm.state, vm.turns = "TERMINATED", []
        vm.box.signal_all(signal.SIGKILL)
        vm.box.awake.set()
        if vm.server is not None:
            vm.server.close()
            vm.server = None
        shutil.rmtree(vm.box.root, ignore_errors=True)

    def auth_token(self, request: Request, ref: str) -> Reply:
        if ref not in self.vms:
            return refusal(404, "ResourceNotFoundException", f"MicroVM {ref} not found")
        body = request.json()
        ports = [one["port"] for one in body["allowedPorts"] if "port" in one]
        token = f"proxy-token-{uuid4().hex}"
        ends = self._clock.monotonic() + body["expirationInMinutes"] * 60
        self.tokens[token] = Token(ref, ports, ends)
        return told(200, {"authToken": {"X-aws-proxy-auth": token}})

    def image(self, request: Request, ref: str) -> Reply:
        if ref != IMAGE:
            return refusal(404, "ResourceNotFoundException", f"image {ref} not found")
        return told(200, {**self._image(), "tags": self.tags})

    def images(self, request: Request) -> Reply:
        return told(200, {"items": [self._image()]})

    def _image(self) -> dict[str, Any]:
        version = {"latestActiveImageVersion": self.image_version} if self.image_version else {}
        return {"imageArn": IMAGE, "name": "differently", "state": "CREATED", "createdAt": 1_764_000_000.5, **version}

    # The door to one.

    def _inside(self, vm: Vm, request: Request) -> Reply:
        return self._struck(request, lambda: self._proxied(vm, request))

    def _proxied(self, vm: Vm, request: Request) -> Reply:
        token = self.tokens.get(request.headers.get("x-aws-proxy-auth", ""))
        port = int(request.headers.get("x-aws-proxy-port", "8080"))
        now = self._clock.monotonic()
        if token is None or token.vm != vm.id or now > token.ends or port not in token.ports:
            return told(401, {"message": "Unauthorized"})
        if vm.state not in {"PENDING", "RUNNING", "SUSPENDING"} or vm.boots or port != 44_772:
            return told(502, {"message": "Bad Gateway"})
        return self.agent.answer(vm.box, request, request.path)


VERSION = "/2025-09-09"
_VM = f"{VERSION}/microvms/([^/]+)"
ROUTES: list[tuple[str, str, Callable[..., Reply]]] = [
    ("RunMicrovm", f"POST {VERSION}/microvms", FakeMicrovms.run),
    ("ListMicrovms", f"GET {VERSION}/microvms", FakeMicrovms.list),
    ("GetMicrovm", f"GET {_VM}", FakeMicrovms.get),
    ("TerminateMicrovm", f"DELETE {_VM}", FakeMicrovms.terminate),
    ("SuspendMicrovm", f"POST {_VM}/suspend", FakeMicrovms.suspend),
    ("ResumeMicrovm", f"POST {_VM}/resume", FakeMicrovms.resume),
    ("CreateMicrovmAuthToken", f"POST {_VM}/auth-token", FakeMicrovms.auth_token),
    ("GetMicrovmImage", f"GET {VERSION}/microvm-images/([^/]+)", FakeMicrovms.image),
    ("ListMicrovmImages", f"GET {VERSION}/microvm-images", FakeMicrovms.images),
]


def refusal(status: int, code: str, message: str) -> Reply:
    return told(status, {"message": message}, **{"x-amzn-errortype": f"{code}:http://internal.example/"})


@cache
def model() -> Any:
    return get_session().get_service_model("lambda-microvms")


def misshapen(name: str, request: Request, path: list[str]) -> Reply | None:
    """What AWS's own model says against the request."""
    shape = model().operation_model(name).input_shape
    given = dict(request.json())
    placed = {member: one.serialization.get("location") for member, one in shape.members.items()}
    given |= dict(zip([member for member, place in placed.items() if place == "uri"], path, strict=True))
    for member in (member for member, place in placed.items() if place == "querystring"):
        if request.one(member):
            is_number = shape.members[member].type_name == "integer"
            given[member] = int(request.one(member)) if is_number else request.one(member)
    report = ParamValidator().validate(given, shape)
    extra = request.query.keys() - placed.keys()
    if not report.has_errors() and not extra:
        return None
    return refusal(400, "ValidationException", report.generate_report() or f"unknown: {sorted(extra)}")


def unsigned(request: Request, key: tuple[str, str]) -> Reply | None:
    """Whether the signature is the one that the key's owner would make for exactly this request."""
    given = request.headers.get("authorization", "")
    found = HEADERS_SIGNED.search(given)
    if found is None:
        return refusal(403, "MissingAuthenticationTokenException", "Missing Authentication Token")
    if f"Credential={key[0]}/" not in given:
        return refusal(403, "UnrecognizedClientException", "The security token included in the request is invalid.")
    headers = {name: request.headers[name] for name in found[1].split(";")}
    url = f"http://{request.headers['host']}{request.target}"
    asked = AWSRequest(method=request.method, url=url, headers=headers, data=request.body)
    asked.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials(*key), "lambda", REGION)
    canonical = auth.canonical_request(asked)
    if auth.signature(auth.string_to_sign(asked, canonical), asked) != found[2]:
        return refusal(403, "InvalidSignatureException", "The request signature we calculated does not match.")
    at = datetime.strptime(f"{headers['x-amz-date']}+0000", "%Y%m%dT%H%M%SZ%z")
    if abs(SystemClock().now() - at) > timedelta(minutes=5):
        return refusal(403, "InvalidSignatureException", "Signature expired")
    return None
