"""What was deployed, as those see it who use it: an API over HTTP, and the account beside it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

from differently_adapters.providers.fake import FakeAdapter, FakeBackend
from differently_adapters.registry import build
from differently_adapters.remote.handler import Handler
from differently_adapters.remote.serve import PluginServer
from differently_core.contract import Adapter
from differently_core.runtime.clock import SystemClock
from tests.rehearsal.cloud import Cloud

T = TypeVar("T")
PREFIX = "Differently"
UNTIL_SECONDS_MAX = 60.0


def until(look: Callable[[], T | None], what: str | Callable[[], str], seconds: float = UNTIL_SECONDS_MAX) -> T:
    """The first true answer; an assertion error that says what did not come."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not after {seconds:.0f} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.25)
    return found


class Stage:
    """`key` is the first operator key. The API is called at the emulator's address of it."""

    def __init__(self, cloud: Cloud, key: str) -> None:
        self.cloud = cloud
        self.key = key
        self.installation = ""
        host = cloud.admin("url").strip().removeprefix("https://")
        self.api_id = host.partition(".")[0]
        self.url = f"{cloud.endpoint}/restapis/{self.api_id}/live/_user_request_"

    @contextlib.contextmanager
    def http(self, key: str | None) -> Iterator[httpx.Client]:
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        with httpx.Client(base_url=self.url, headers=headers, timeout=60.0, trust_env=False) as client:
            yield client

    def stacks(self) -> dict[str, str]:
        found = self.cloud.client("cloudformation").describe_stacks()["Stacks"]
        return {
            entry["StackName"]: entry["StackStatus"] for entry in found if entry["StackName"].startswith(f"{PREFIX}-")
        }

    def functions(self) -> dict[str, Any]:
        found = self.cloud.client("lambda").list_functions()["Functions"]
        return {entry["FunctionName"].removeprefix("differently-"): entry for entry in found}

    def executions(self) -> dict[str, str]:
        """Of the workflow: status by name."""
        client = self.cloud.client("stepfunctions")
        machines = client.list_state_machines()["stateMachines"]
        (machine,) = [entry["stateMachineArn"] for entry in machines if entry["name"] == "differently-wait"]
        found = client.list_executions(stateMachineArn=machine)["executions"]
        return {entry["name"]: entry["status"] for entry in found}

    def lines(self, function: str) -> str:
        """All that a function has logged."""
        client = self.cloud.client("logs")
        events = client.filter_log_events(logGroupName=f"/aws/lambda/differently-{function}", limit=10_000)["events"]
        return "\n".join(event["message"] for event in events)


class Tenant:
    """One project's key, with the calls that the tests make."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def create(self, **body: Any) -> str:
        answer = self.http.post("/v1/sandboxes", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def get(self, sandbox: str) -> Any:
        answer = self.http.get(f"/v1/sandboxes/{sandbox}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def status(self, sandbox: str) -> str:
        return str(self.get(sandbox)["status"])

    def comes_to(self, sandbox: str, status: str, seconds: float = UNTIL_SECONDS_MAX) -> None:
        until(lambda: self.status(sandbox) == status, lambda: f"{status}: {self.get(sandbox)}", seconds)

    def delete(self, sandbox: str) -> None:
        assert self.http.delete(f"/v1/sandboxes/{sandbox}").status_code == 202


@contextlib.contextmanager
def plugin(adapter: Adapter) -> Iterator[str]:
    """A backend as operators bring one: a plugin's server, here on this machine; its URL."""
    with PluginServer(Handler(adapter, None)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join(UNTIL_SECONDS_MAX)


def real_commands(root: Path, installation: str) -> Adapter:
    """Runs commands on this machine, in folders of their own."""
    root.mkdir(parents=True, exist_ok=True)
    return build(
        "devhost", {"root": str(root)}, pool="plugin", installation=installation, clock=SystemClock(), dev=True
    )


def slow_starts(seconds: float, installation: str) -> Adapter:
    """Accepts at once and runs a while later, as clouds do."""
    backend = FakeBackend(SystemClock(), pending_seconds=seconds)
    return FakeAdapter.over(backend, pool="plugin", installation=installation)
