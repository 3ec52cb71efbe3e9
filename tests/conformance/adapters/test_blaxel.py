"""Blaxel under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.blaxel import BlaxelAdapter, BlaxelConfig
from differently_adapters.providers.blaxel.api import external_id
from differently_adapters.providers.blaxel.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.blaxel_fake import FakeBlaxel
from tests.conformance.adapters.blaxel_fake.server import WORKSPACE, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

API_KEY = "bl_key-of-the-operator"


def say(status: int, code: str = "INTERNAL") -> Act:
    return lambda go, request, closing: refused(status, code)


class BlaxelUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "/sandboxes$"),
        Operation.DELETE: ("DELETE", "/sandboxes/[^/]+$"),
        Operation.EXEC: ("POST", "/process$"),
    }
    listing = ("GET", "/sandboxes$")

    def __init__(self, fake: FakeBlaxel) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return 0

    def state_digest(self) -> str:
        return f"{[(one.metadata, one.spec, one.status, one.state) for one in self.fake.sandboxes.values()]}"

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        labels = {KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation}
        name = sandbox_name(ours)
        self.fake.plant(name, labels, external_id(theirs.installation))
        return Target(ours, name)

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
                self.expect(create, say(400, "QUOTA_EXCEEDED"))
            case Mishap.INSTANCE_FAILS:
                self.fake.next_fails = True
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(400, "INVALID_IMAGE"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(("GET", "/sandboxes/[^/]+$"), say(500))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "CONFLICT"), ALWAYS)
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
                self.fake.ignores_filter = True
            case Mishap.FALLS_ASLEEP:
                for sandbox in self.fake.sandboxes.values():
                    sandbox.state = "STANDBY"
            case _:
                raise CannotHappen("the adapter declares neither pauses, snapshots nor egress")

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("cursor") else go()

    def _same_cursor(self, go: Go, request: Request, closing: Event) -> Reply:
        return told(200, {**json.loads(go().body), "meta": {"hasMore": True, "nextCursor": "2"}})

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        first = dataclasses.replace(request, target=re.sub("&?cursor=[^&]*", "", request.target))
        page, before = json.loads(go().body), json.loads(self.fake.list(first).body)
        return told(200, {**page, "data": [before["data"][-1], *page["data"]]})


def client(fake: FakeBlaxel, **config: object) -> BlaxelAdapter:
    told = {"apiUrl": f"{fake.url}/v0", "workspace": WORKSPACE, "region": "us-pdx-1", "allowHttp": True,
            "allowLoopback": True, **config}  # fmt: skip
    context = AdapterContext("pool", "inst_any", BlaxelConfig.model_validate(told), QuickClock(), {"api_key": API_KEY})
    return BlaxelAdapter(context)


class TestBlaxel(AdapterConformance):
    kind = "blaxel"
    secrets = (API_KEY,)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[BlaxelUnderTest]:
        fake = FakeBlaxel(tmp_path, api_key=API_KEY, keep_alive=False)
        yield BlaxelUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: BlaxelUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: BlaxelUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()
