"""The remote kind under the conformance suite: through the real handler over a loopback socket, a fake behind it.

What a backend does wrong happens at the fake; what a network does wrong happens at the socket.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from differently_adapters.providers.fake import FakeAdapter
from differently_adapters.remote import RemoteAdapter, RemoteConfig
from differently_adapters.remote.handler import Handler
from differently_adapters.testing import AdapterConformance, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation
from differently_core.runtime.clock import Clock, SystemClock
from tests.conformance.adapters.test_fake import TOKEN as BACKENDS_TOKEN
from tests.conformance.adapters.test_fake import FakeUnderTest, ShellBackend, like_most_clouds
from tests.support.plugins import FaultyServer, Spoiled, faulty

TOKEN = "plugin-canary-3nK8qY1zR6wB0xT5"


class RemoteUnderTest(FakeUnderTest):
    def __init__(self, cloud: ShellBackend, server: FaultyServer) -> None:
        super().__init__(cloud)
        self.server = server
        self._handler = server.handle_call

    def lose_answer(self, operation: Operation) -> None:
        self.server.expect(operation, Spoiled.DROPPED)

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        self.server.always[Operation.EXEC] = Spoiled.UNFINISHED
        yield
        del self.server.always[Operation.EXEC]

    def break_list(self) -> None:
        self.server.expect(Operation.LIST, Spoiled.CUT)

    def arrange(self, mishap: Mishap) -> None:
        if mishap is Mishap.CREDENTIAL_REVOKED:
            self.server.handle_call = Handler(self._handler.adapter, "another one")
        else:
            super().arrange(mishap)

    def go_down(self) -> None:
        self.server.down = True

    def come_up(self) -> None:
        super().come_up()
        self.server.down = False
        self.server.handle_call = self._handler


def client(server: FaultyServer) -> RemoteAdapter:
    config = RemoteConfig(endpoint=server.url, allow_http=True, allow_loopback=True)
    return RemoteAdapter(AdapterContext("remote", "inst_any", config, SystemClock(), {"token": TOKEN}))


class TestRemote(AdapterConformance):
    kind = "remote"
    secrets = (TOKEN, BACKENDS_TOKEN)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[RemoteUnderTest]:
        cloud = ShellBackend(tmp_path)
        with faulty(FakeAdapter.over(cloud, credential={"token": BACKENDS_TOKEN}), TOKEN) as server:
            yield RemoteUnderTest(cloud, server)

    @pytest.fixture
    def adapter(self, backend: RemoteUnderTest) -> Iterator[Adapter]:
        with contextlib.closing(client(backend.server)) as adapter:
            yield adapter

    @pytest.fixture
    def restarted(self, backend: RemoteUnderTest) -> Iterator[Adapter]:
        with contextlib.closing(client(backend.server)) as adapter:
            yield adapter

    @pytest.fixture
    def clock(self, backend: RemoteUnderTest) -> Clock:
        return backend.cloud.clock

    @pytest.fixture
    def pause(self, backend: RemoteUnderTest) -> Callable[[], None]:
        def pause() -> None:
            backend.cloud.clock.sleep(0.1)
            threading.Event().wait(0.002)  # and a moment of real time, for processes that are really ending

        return pause


class TestRemoteLikeMostClouds(TestRemote):
    """A repeated create makes a second instance, leases end, a pause is a checkpoint, and a snapshot stops."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[RemoteUnderTest]:
        cloud = like_most_clouds(ShellBackend(tmp_path))
        with faulty(FakeAdapter.over(cloud, credential={"token": BACKENDS_TOKEN}), TOKEN) as server:
            yield RemoteUnderTest(cloud, server)
