"""OpenSandbox under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from differently_adapters.providers.opensandbox import OpenSandboxAdapter, OpenSandboxConfig
from differently_adapters.providers.opensandbox.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.opensandbox_fake import (
    FakeOpenSandbox,
    answer,
    drop_after,
    edit,
    lose_completion,
)

API_KEY = "key-of-the-operator"
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
}


class OpenSandboxUnderTest:
    def __init__(self, fake: FakeOpenSandbox) -> None:
        self.fake = fake
        self._late: list[Callable[[], object]] = []

    def count(self) -> int:
        return self.fake.count()

    def lose_answer(self, operation: Operation) -> None:
        self.fake.expect(*ROUTES[operation], drop_after)

    def delay_create(self) -> None:
        def hold(go: Callable[[], object], *_: object) -> object:
            self._late.append(go)
            return answer(504, "")(go, *_)  # type: ignore[arg-type]

        self.fake.expect("POST", "/sandboxes$", hold)

    def settle(self) -> None:
        while self._late:
            self._late.pop()()

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        fault = self.fake.expect("POST", "/command$", lose_completion, times=1_000_000)
        yield
        fault.times = 0

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        planted = self.fake.plant({KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation})
        return Target(ours, planted.id)

    def break_list(self) -> None:
        """The last page is lost, on every reading."""

        def shorter(page: dict[str, object]) -> dict[str, object]:
            items = page["items"]
            assert isinstance(items, list)
            return {**page, "items": items[1:]}

        self.fake.expect("GET", "/sandboxes$", edit(shorter), times=1_000_000)

    def go_down(self) -> None:
        self.fake.up = False

    def come_up(self) -> None:
        self.fake.up = True


def client(fake: FakeOpenSandbox, **config: object) -> OpenSandboxAdapter:
    told = {"apiUrl": fake.url, "runtime": fake.runtime, "image": "local/base:dev", "allowInsecureHttp": True, **config}
    context = AdapterContext(
        "pool", "inst_any", OpenSandboxConfig.model_validate(told), SystemClock(), {"api_key": API_KEY}
    )
    return OpenSandboxAdapter(context)


class TestDocker(AdapterConformance):
    kind = "opensandbox"
    runtime: ClassVar[str] = "docker"
    secrets = (API_KEY,)
    config: ClassVar[dict[str, object]] = {}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[OpenSandboxUnderTest]:
        fake = FakeOpenSandbox(tmp_path, runtime=self.runtime, api_key=API_KEY)
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
