"""CubeSandbox under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

from differently_adapters.providers.cubesandbox import CubeSandboxAdapter, CubeSandboxConfig
from differently_adapters.providers.cubesandbox.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.cubesandbox_fake import FakeCubeSandbox, refused, relayed
from tests.conformance.adapters.cubesandbox_fake.server import DOMAIN
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

API_KEY = "cube-key-of-the-operator"


def say(status: int, message: str = "internal error: failed") -> Act:
    return lambda go, request, closing: refused(status, message)


def relay(code: int, word: str) -> Act:
    return lambda go, request, closing: relayed(code, word)


class CubeSandboxUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "^/sandboxes$"),
        Operation.DELETE: ("DELETE", "^/sandboxes/[^/]+$"),
        Operation.RENEW: ("POST", "/timeout$"),
        Operation.PAUSE: ("POST", "/pause$"),
        Operation.RESUME: ("POST", "/connect$"),
        Operation.SNAPSHOT: ("POST", "/snapshots$"),
        Operation.SNAPSHOT_DELETE: ("DELETE", "^/templates/"),
        Operation.EXEC: ("POST", "/process.Process/Start$"),
    }
    listing = ("GET", "^/v2/sandboxes$")

    def __init__(self, fake: FakeCubeSandbox) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return len(self.fake.snapshots)

    def state_digest(self) -> str:
        return f"{[one.told() for one in self.fake.sandboxes.values()]} {sorted(self.fake.snapshots)}"

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        planted = self.fake.plant({KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation})
        return Target(ours, planted.box.id)

    def lose_answer(self, operation: Operation) -> None:
        if operation is not Operation.PORT_EXPOSE:  # nothing is asked for: the address is always there
            super().lose_answer(operation)

    def break_list(self) -> None:
        self.fake.page_size_max = 2
        self.expect(self.listing, self._later(say(500)), ALWAYS)

    def come_up(self) -> None:
        super().come_up()
        self.fake.api_key = API_KEY

    def arrange(self, mishap: Mishap) -> None:
        create = self.routes[Operation.CREATE]
        match mishap:
            case Mishap.NO_ROOM:
                self.expect(create, relay(130597, "SelectNodesNoRes"))
            case Mishap.INSTANCE_FAILS:
                self.expect(create, relay(130507, "CreateContainerFailed"))
            case Mishap.REQUEST_REFUSED:
                self.expect(create, relay(130404, "NotFound"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(("GET", "^/sandboxes/[^/]+$"), say(500))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], relay(130551, "DeleteTaskFailed"), ALWAYS)
            case Mishap.PAGE_LOST:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(say(500)), 2)
            case Mishap.CURSOR_REPEATED:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._same_cursor), 3)
            case Mishap.PAGES_OVERLAP:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._overlapping), 2)
            case Mishap.FILTER_IGNORED:
                pass  # the whole list is read always
            case Mishap.PAUSE_HANGS:
                self.expect(self.routes[Operation.PAUSE], self.held)
            case Mishap.PAUSE_REVERTS:
                self.expect(self.routes[Operation.PAUSE], relay(130588, "TaskPauseFailed"))
            case Mishap.SNAPSHOT_FAILS:
                self.expect(self.routes[Operation.SNAPSHOT], say(500))
            case Mishap.RESTORE_FAILS:
                for snapshot in self.fake.snapshots.values():
                    snapshot.broken = True
            case Mishap.EGRESS_UNCONFIRMED:
                raise CannotHappen("no egress rules are set")
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("sandboxes are made without autoResume")

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("nextToken") else go()

    def _same_cursor(self, go: Go, request: Request, closing: Event) -> Reply:
        return dataclasses.replace(go(), headers={"content-type": "application/json", "x-next-token": "2"})

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        first = dataclasses.replace(request, target=re.sub("&?nextToken=[^&]*", "", request.target))
        reply, before = go(), json.loads(self.fake.list(first).body)
        again: list[Any] = [before[-1], *json.loads(reply.body)]
        onwards = {name: value for name, value in reply.headers.items() if name == "x-next-token"}
        return told(200, again, **onwards)


def client(fake: FakeCubeSandbox, **config: object) -> CubeSandboxAdapter:
    told = {
        "apiUrl": fake.url, "proxyUrl": fake.url, "domain": DOMAIN, "template": "tpl-base", "allowHttp": True,
        "allowLoopback": True, **config,
    }  # fmt: skip
    parsed = CubeSandboxConfig.model_validate(told)
    return CubeSandboxAdapter(AdapterContext("pool", "inst_any", parsed, QuickClock(), {"api_key": API_KEY}))


class TestCubeSandbox(AdapterConformance):
    kind = "cubesandbox"
    secrets = (API_KEY,)
    config: ClassVar[dict[str, object]] = {"publicPorts": True}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[CubeSandboxUnderTest]:
        fake = FakeCubeSandbox(tmp_path, api_key=API_KEY, keep_alive=False)
        yield CubeSandboxUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: CubeSandboxUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: CubeSandboxUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()
