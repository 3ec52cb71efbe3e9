"""The adapter under the conformance suite against the released OpenSandbox server on its Kubernetes runtime.

The server is the real one, in an environment of its own. Under it lies a stand-in of the Kubernetes API whose pods are
stand-ins of execd; between adapter and server lies a proxy that can lose answers, as the suite needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from differently_adapters.providers.opensandbox import OpenSandboxAdapter, OpenSandboxConfig
from differently_adapters.providers.opensandbox.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.faults import Fault, Go, drop_after, lose_completion
from tests.conformance.adapters.stand_in.http import Reply, Request, Server
from tests.conformance.adapters.test_opensandbox import ROUTES, Mishaps
from tests.servers.kube import KubeApi

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / ".venv-opensandbox-server" / "bin" / "opensandbox-server"
API_KEY = "key-of-the-operator"
START_SECONDS = 60.0

pytestmark = pytest.mark.skipif(
    not COMMAND.exists(), reason="the server's own environment is not there; `make test-opensandbox-server` makes it"
)


class RealServer:
    """The server's process over a cluster that does not exist."""

    def __init__(self, folder: Path) -> None:
        process = os.getpid()
        self.kube = KubeApi(folder / "pods", f"127.{process // 250 % 250 + 2}.{process % 250 + 2}")
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        (folder / "kubeconfig").write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            f"clusters: [{{name: k, cluster: {{server: '{self.kube.url}'}}}}]\n"
            "users: [{name: u, user: {token: t}}]\n"
            "contexts: [{name: c, context: {cluster: k, user: u, namespace: os}}]\n"
        )
        config = folder / "server.toml"
        config.write_text(f"""
[server]
host = "127.0.0.1"
port = {port}
api_key = "{API_KEY}"
[runtime]
type = "kubernetes"
execd_image = "stand-in/execd:dev"
[store]
type = "sqlite"
path = "{folder}/server.db"
[kubernetes]
kubeconfig_path = "{folder}/kubeconfig"
namespace = "os"
workload_provider = "batchsandbox"
sandbox_create_timeout_seconds = 10
[ingress]
mode = "direct"
""")
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [str(COMMAND), "--config", str(config)], cwd=folder, stdout=self._log, stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        )  # fmt: skip
        self.client = httpx.Client(base_url=self.url, trust_env=False, timeout=60)
        self._wait(folder / "log")

    def _wait(self, log: Path) -> None:
        clock = SystemClock()
        ends = clock.monotonic() + START_SECONDS
        while clock.monotonic() < ends and self._process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if self.client.get("/health").status_code == 200:
                    return
            clock.sleep(0.1)
        pytest.fail(f"the server did not start:\n{log.read_text()[-3000:]}")

    def close(self) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait(20)
        self._log.close()
        self.kube.close()


def _free_port() -> int:
    with Server(lambda _: Reply(), lambda: True) as server:
        server.shutdown()
        return int(server.server_port)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


class ServerUnderTest(Mishaps):
    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.up = True
        self.key = API_KEY
        super().__init__([], [])
        self._never = Event()
        self._proxy = Server(self._answer, lambda: self.up, keep_alive=False)
        self.url = f"http://127.0.0.1:{self._proxy.server_port}"

    def _answer(self, request: Request) -> Reply:
        self._requests.append(request)
        struck = next((fault for fault in self._faults if fault.strikes(request)), None)
        if struck is None:
            return self._forward(request)
        struck.times -= 1
        return struck.act(lambda: self._forward(request), request, self._never)

    def _forward(self, request: Request) -> Reply:
        headers = {name: value for name, value in request.headers.items() if name in PASSED}
        if headers.get(KEY) == API_KEY:
            headers[KEY] = self.key
        told = self.server.client.request(request.method, request.target, headers=headers, content=request.body)
        kept = {name: value for name, value in told.headers.items() if name in PASSED}
        return Reply(told.status_code, told.content, kept)

    def _unfiltered(self, go: Go, request: Request, closing: Event) -> Reply:
        return self._forward(dataclasses.replace(request, target=re.sub("metadata=[^&]*&", "", request.target)))

    def close(self) -> None:
        self._proxy.close()
        self.server.kube.faults.clear()
        for kind in ("sandboxes", "snapshots"):
            listed = self._call("GET", f"/v1/{kind}?pageSize=200")
            for one in listed["items"]:
                self._call("DELETE", f"/v1/{kind}/{one['id']}")
        self.server.kube.clear()

    def _call(self, method: str, path: str, **body: Any) -> Any:
        told = self.server.client.request(method, path, headers={KEY: API_KEY}, **body)
        assert told.is_success, f"{method} {path}: {told.status_code} {told.text}"
        return told.json() if told.content else None

    def count(self) -> int:
        return len(self.server.kube.sandboxes())

    def snapshots(self) -> int:
        return len(self._call("GET", "/v1/snapshots?pageSize=200")["items"])

    def state_digest(self) -> str:
        kept = [(one["metadata"].get("labels"), one["spec"]) for one in self.server.kube.sandboxes()]
        return f"{json.dumps(kept, sort_keys=True)} {self.snapshots()}"

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        self.server.kube.faults.append(Fault("POST", "/command$", lose_completion, times=1_000_000))
        yield
        self.server.kube.faults.clear()

    def requests(self, operation: Operation) -> int:
        if operation is Operation.EXEC:
            raise CannotHappen("commands go to the sandbox directly and are not seen on the way to the server")
        return super().requests(operation)

    def lose_answer(self, operation: Operation) -> None:
        faults = self.server.kube.faults if operation is Operation.EXEC else self._faults
        faults.append(Fault(*ROUTES[operation], drop_after))

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        labels = {KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation}
        body = {
            "image": {"uri": "theirs"}, "entrypoint": ["tail"], "timeout": 3600, "resourceLimits": {"cpu": "1"},
            "metadata": labels,
        }  # fmt: skip
        made = self.server.client.post("/v1/sandboxes", json=body, headers={KEY: API_KEY})
        if "INVALID_METADATA_LABEL" in made.text:
            raise CannotHappen("the server takes no such label")
        return Target(ours, made.json()["id"])

    def arrange(self, mishap: Mishap) -> None:
        match mishap:
            case Mishap.CREDENTIAL_REVOKED:
                self.key = "another one"
            case Mishap.PAGE_LOST:
                raise CannotHappen("the server gives 200 entries on a page")
            case _:
                super().arrange(mishap)

    def go_down(self) -> None:
        self.up = False

    def come_up(self) -> None:
        self.up = True
        self.key = API_KEY


KEY = "open-sandbox-api-key"
PASSED = frozenset({KEY, "content-type", "retry-after"})


def client(backend: ServerUnderTest) -> OpenSandboxAdapter:
    config = OpenSandboxConfig.model_validate(
        {
            "apiUrl": backend.url,
            "runtime": "kubernetes",
            "image": "python:3.12",
            "allowHttp": True,
            "allowLoopback": True,
        }
    )
    return OpenSandboxAdapter(AdapterContext("pool", "inst_any", config, SystemClock(), {"api_key": API_KEY}))


class TestReleasedServer(AdapterConformance):
    kind = "opensandbox"
    secrets = (API_KEY,)

    @pytest.fixture
    def backend(self, server: RealServer) -> Iterator[ServerUnderTest]:
        backend = ServerUnderTest(server)
        yield backend
        backend.close()

    @pytest.fixture
    def adapter(self, backend: ServerUnderTest) -> Iterator[Adapter]:
        adapter = client(backend)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: ServerUnderTest) -> Iterator[Adapter]:
        adapter = client(backend)
        yield adapter
        adapter.close()


def test_the_server_is_the_release_that_we_say(server: RealServer) -> None:
    assert server.client.get("/version").json() == {"version": "1.1.1"}
