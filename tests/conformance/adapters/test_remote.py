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
from differently_adapters.testing import AdapterConformance
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.test_fake import FakeUnderTest, ShellBackend
from tests.support.plugins import FaultyServer, Mishap, faulty

TOKEN = "plugin-canary-3nK8qY1zR6wB0xT5"


class RemoteUnderTest:
    def __init__(self, fake: FakeUnderTest, server: FaultyServer) -> None:
        self.fake = fake
        self.server = server

    def count(self) -> int:
        return self.fake.count()

    def lose_answer(self, operation: Operation) -> None:
        self.server.expect(operation, Mishap.DROPPED)

    def delay_create(self) -> None:
        self.fake.delay_create()

    def settle(self) -> None:
        self.fake.settle()

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        self.server.always[Operation.EXEC] = Mishap.UNFINISHED
        yield
        del self.server.always[Operation.EXEC]

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        return self.fake.plant_foreign(ours, theirs)

    def break_list(self) -> None:
        self.server.expect(Operation.LIST, Mishap.CUT)

    def go_down(self) -> None:
        self.server.down = True

    def come_up(self) -> None:
        self.server.down = False


def client(server: FaultyServer, pool: str = "remote") -> RemoteAdapter:
    config = RemoteConfig(endpoint=server.url, allow_http=True, allow_loopback=True)
    return RemoteAdapter(AdapterContext(pool, "inst_any", config, SystemClock(), {"token": TOKEN}))


class TestRemote(AdapterConformance):
    kind = "remote"
    secrets = (TOKEN,)
    idempotent_create = True

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[RemoteUnderTest]:
        fake = FakeUnderTest(ShellBackend(tmp_path, idempotent_create=self.idempotent_create))
        with faulty(FakeAdapter.over(fake.cloud), TOKEN) as server:
            yield RemoteUnderTest(fake, server)

    @pytest.fixture
    def adapter(self, backend: RemoteUnderTest) -> Iterator[Adapter]:
        with contextlib.closing(client(backend.server)) as adapter:
            yield adapter

    @pytest.fixture
    def restarted(self, backend: RemoteUnderTest) -> Iterator[Adapter]:
        with contextlib.closing(client(backend.server)) as adapter:
            yield adapter

    @pytest.fixture
    def pause(self, backend: RemoteUnderTest) -> Callable[[], None]:
        def pause() -> None:
            backend.fake.cloud.clock.sleep(0.1)
            threading.Event().wait(0.002)  # and a moment of real time, for processes that are really ending

        return pause


class TestRemoteThatCreatesTwice(TestRemote):
    """A plugin whose backend makes a second instance, and says so."""

    idempotent_create = False
