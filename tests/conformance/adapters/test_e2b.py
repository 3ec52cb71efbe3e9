"""E2B under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

from differently_adapters.providers.e2b import E2bAdapter, E2bConfig
from differently_adapters.providers.e2b.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.e2b_fake import FakeE2b
from tests.conformance.adapters.e2b_fake.server import refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

API_KEY = "e2b_key-of-the-operator"


def say(status: int, message: str = "failed", code: str | None = None) -> Act:
    return lambda go, request, closing: refused(status, message, code)


class E2bUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "^(/v2)?/sandboxes$"),
        Operation.DELETE: ("DELETE", "^/sandboxes/[^/]+$"),
        Operation.RENEW: ("POST", "/timeout$"),
        Operation.PAUSE: ("POST", "/pause$"),
        Operation.RESUME: ("POST", "/connect$"),
        Operation.SNAPSHOT: ("POST", "/snapshots$"),
        Operation.SNAPSHOT_DELETE: ("DELETE", "^/templates/"),
        Operation.EXEC: ("POST", "/process.Process/Start$"),
        Operation.EGRESS_SET: ("PUT", "/network$"),
    }
    listing = ("GET", "^/v2/sandboxes$")

    def __init__(self, fake: FakeE2b) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return len(self.fake.snapshots)

    def state_digest(self) -> str:
        kept = [(one.told(), one.network) for one in self.fake.sandboxes.values()]
        return f"{kept} {sorted(self.fake.snapshots)}"

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
                self.expect(create, say(503, "no room", "sandbox_capacity_unavailable"))
            case Mishap.INSTANCE_FAILS:
                self.expect(create, say(500, "it failed", "sandbox_create_failed"))
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(404, "template 'x' not found"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(("GET", "^/sandboxes/[^/]+$"), say(500))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(500, "the sandbox could not be killed"), ALWAYS)
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
                self.fake.ignores_metadata = True
            case Mishap.PAUSE_HANGS:
                self.expect(self.routes[Operation.PAUSE], self.held)
            case Mishap.PAUSE_REVERTS:
                self.expect(self.routes[Operation.PAUSE], say(500, "the snapshot failed"))
            case Mishap.SNAPSHOT_FAILS:
                self.expect(self.routes[Operation.SNAPSHOT], say(500, "the snapshot failed"))
            case Mishap.RESTORE_FAILS:
                for snapshot in self.fake.snapshots.values():
                    snapshot.broken = True
            case Mishap.EGRESS_UNCONFIRMED:
                self.fake.ignores_rules = True
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("sandboxes are made without autoPause")

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


def client(fake: FakeE2b, **config: object) -> E2bAdapter:
    told = {"apiUrl": fake.url, "sandboxUrl": fake.url, "allowHttp": True, "allowLoopback": True, **config}
    context = AdapterContext("pool", "inst_any", E2bConfig.model_validate(told), QuickClock(), {"api_key": API_KEY})
    return E2bAdapter(context)


class TestE2b(AdapterConformance):
    kind = "e2b"
    secrets = (API_KEY,)
    config: ClassVar[dict[str, object]] = {"publicPorts": True}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[E2bUnderTest]:
        fake = FakeE2b(tmp_path, api_key=API_KEY, keep_alive=False)
        yield E2bUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: E2bUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: E2bUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()
