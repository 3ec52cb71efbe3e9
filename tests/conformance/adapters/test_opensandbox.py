"""OpenSandbox under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest

from differently_adapters.providers.opensandbox import OpenSandboxAdapter, OpenSandboxConfig
from differently_adapters.providers.opensandbox.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.opensandbox_fake import (
    FakeOpenSandbox,
    answer,
    drop_after,
    edit,
    lose_completion,
)
from tests.conformance.adapters.opensandbox_fake.server import FAILED, PAUSED, RUNNING
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Fault, Go
from tests.conformance.adapters.stand_in.http import Reply, Request

API_KEY = "key-of-the-operator"
HERE = {"allowHttp": True, "allowLoopback": True}
ROUTES = {
    Operation.CREATE: ("POST", "/sandboxes$"),
    Operation.DELETE: ("DELETE", "/sandboxes/[^/]+$"),
    Operation.RENEW: ("POST", "/renew-expiration$"),
    Operation.STOP: ("POST", "/pause$"),
    Operation.PAUSE: ("POST", "/pause$"),
    Operation.START: ("POST", "/resume$"),
    Operation.RESUME: ("POST", "/resume$"),
    Operation.SNAPSHOT: ("POST", "/snapshots$"),
    Operation.SNAPSHOT_DELETE: ("DELETE", "/snapshots/[^/]+$"),
    Operation.FILE_WRITE: ("POST", "/files/upload$"),
    Operation.EXEC: ("POST", "/command$"),
    Operation.EGRESS_SET: ("PUT", "/networkpolicy$"),
    Operation.PORT_EXPOSE: ("GET", "/endpoints/(?!44772)"),
}


class Mishaps:
    """What the suite lets happen, as faults of the way between the adapter and a server."""

    def __init__(self, faults: list[Fault], requests: list[Request]) -> None:
        self._faults = faults
        self._requests = requests
        self._late: list[Callable[[], object]] = []

    def expect(self, method: str, path: str, act: Act, times: int = 1) -> Fault:
        fault = Fault(method, path, act, times)
        self._faults.append(fault)
        return fault

    def requests(self, operation: Operation) -> int:
        method, path = ROUTES[operation]
        return sum(asked.method == method and bool(re.search(path, asked.path)) for asked in list(self._requests))

    def lose_answer(self, operation: Operation) -> None:
        self.expect(*ROUTES[operation], drop_after)

    def delay_create(self) -> None:
        def hold(go: Go, request: Request, closing: Event) -> Reply:
            self._late.append(go)
            return answer(504, "")(go, request, closing)

        self.expect("POST", "/sandboxes$", hold)

    def settle(self) -> None:
        while self._late:
            self._late.pop()()
        self._faults.clear()

    def break_list(self) -> None:
        """The last page is lost, on every reading."""
        self.expect("GET", "/sandboxes$", edit(lambda page: {**page, "items": page["items"][1:]}), times=1_000_000)

    def arrange(self, mishap: Mishap) -> None:
        match mishap:
            case Mishap.NO_ROOM:
                self.expect("POST", "/sandboxes$", answer(429, "KUBERNETES::POOL_CAPACITY_EXHAUSTED"))
            case Mishap.REQUEST_REFUSED:
                self.expect("POST", "/sandboxes$", answer(400, "SANDBOX::INVALID_PARAMETER"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect("GET", "/sandboxes/[^/]+$", answer(500, "INTERNAL"))
            case Mishap.DELETE_CONFLICTS:
                self.expect("DELETE", "/sandboxes/[^/]+$", answer(409, "KUBERNETES::INVALID_STATE"), times=1_000)
            case Mishap.PAGE_LOST:
                self.expect("GET", "/sandboxes$", answer(500, "INTERNAL"))
            case Mishap.FILTER_IGNORED:
                self.expect("GET", "/sandboxes$", self._unfiltered)
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("OpenSandbox puts nothing to sleep before release 1.2")
            case _:
                raise CannotHappen("nothing between the adapter and the server can bring it about")

    def _unfiltered(self, go: Go, request: Request, closing: Event) -> Reply:
        raise NotImplementedError


class OpenSandboxUnderTest(Mishaps):
    def __init__(self, fake: FakeOpenSandbox) -> None:
        super().__init__(fake.faults, fake.requests)
        self.fake = fake

    def count(self) -> int:
        return self.fake.count()

    def snapshots(self) -> int:
        return len(self.fake.snapshots)

    def state_digest(self) -> str:
        boxes = self.fake.sandboxes.values()
        kept = [(box.id, box.status, sorted(box.metadata.items()), box.expires_at, box.policy) for box in boxes]
        return f"{kept} {list(self.fake.snapshots)}"

    def settle(self) -> None:
        super().settle()
        for sandbox in self.fake.sandboxes.values():
            if sandbox.turns:
                sandbox.turns = [PAUSED[self.fake.runtime]]

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        fault = self.expect("POST", "/command$", lose_completion, times=1_000_000)
        yield
        fault.times = 0

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        planted = self.fake.plant({KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation})
        return Target(ours, planted.id)

    def arrange(self, mishap: Mishap) -> None:
        match mishap:
            case Mishap.INSTANCE_FAILS:
                self.expect("POST", "/sandboxes$", self._fails)
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.PAGE_LOST | Mishap.CURSOR_REPEATED | Mishap.PAGES_OVERLAP:
                self.fake.page_size_max = 2
                # A list of five has three pages. One whose second page leads to itself is read again, five times.
                times = 5 * 3 if mishap is Mishap.CURSOR_REPEATED else 2
                self.expect("GET", "/sandboxes$", self._second_page(mishap), times)
            case Mishap.PAUSE_HANGS:
                self.fake.pause_turns = [("Pausing", "PAUSING", "")] * 10_000
            case Mishap.PAUSE_REVERTS:
                self.fake.pause_turns = [("Pausing", "PAUSING", ""), RUNNING[self.fake.runtime]]
            case Mishap.EGRESS_UNCONFIRMED:
                self.fake.ignores_rules = True
            case Mishap.SNAPSHOT_FAILS:
                self.expect("POST", "/snapshots$", self._snapshot_fails)
            case Mishap.RESTORE_FAILS:
                for snapshot in self.fake.snapshots.values():
                    snapshot.broken = True
            case _:
                super().arrange(mishap)

    def _fails(self, go: Go, request: Request, closing: Event) -> Reply:
        reply = go()
        self.fake.sandboxes[json.loads(reply.body)["id"]].status = FAILED
        return reply

    def _snapshot_fails(self, go: Go, request: Request, closing: Event) -> Reply:
        reply = go()
        self.fake.snapshots[json.loads(reply.body)["id"]].failed = True
        return reply

    def _second_page(self, mishap: Mishap) -> Act:
        def act(go: Go, request: Request, closing: Event) -> Reply:
            if request.one("page") == "1":
                return go()
            match mishap:
                case Mishap.PAGE_LOST:
                    return answer(500, "INTERNAL")(go, request, closing)
                case Mishap.PAGES_OVERLAP:
                    first = self.fake.list(
                        dataclasses.replace(request, target=request.target.replace("page=2", "page=1"))
                    )
                    again = json.loads(first.body)["items"][-1:]
                    return edit(lambda page: {**page, "items": [*again, *page["items"]]})(go, request, closing)
                case _:
                    target = re.sub(r"page=\d+", "page=2", request.target)
                    return self.fake.list(dataclasses.replace(request, target=target))

        return act

    def _unfiltered(self, go: Go, request: Request, closing: Event) -> Reply:
        return self.fake.list(dataclasses.replace(request, target=re.sub("metadata=[^&]*", "", request.target)))

    def go_down(self) -> None:
        self.fake.up = False

    def come_up(self) -> None:
        self.fake.up = True
        self.fake.api_key = API_KEY


def client(fake: FakeOpenSandbox, **config: object) -> OpenSandboxAdapter:
    told = {
        "apiUrl": fake.url,
        "runtime": fake.runtime,
        "image": "local/base:dev",
        "allowHttp": True,
        "allowLoopback": True,
        **config,
    }
    context = AdapterContext(
        "pool", "inst_any", OpenSandboxConfig.model_validate(told), QuickClock(), {"api_key": API_KEY}
    )
    return OpenSandboxAdapter(context)


class TestDocker(AdapterConformance):
    kind = "opensandbox"
    runtime: ClassVar[str] = "docker"
    secrets = (API_KEY,)
    config: ClassVar[dict[str, object]] = {"egress": "rules"}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[OpenSandboxUnderTest]:
        fake = FakeOpenSandbox(tmp_path, runtime=self.runtime, api_key=API_KEY, keep_alive=False)
        yield OpenSandboxUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: OpenSandboxUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: OpenSandboxUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()


class TestKubernetes(TestDocker):
    """Through the server's proxy, with secure access and signed ports."""

    runtime = "kubernetes"
    config: ClassVar[dict[str, object]] = {"useServerProxy": True, "ports": "signed"}
