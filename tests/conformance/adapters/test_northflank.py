"""Northflank under the conformance suite: over sockets, to a stand-in that runs commands on this host."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.northflank import NorthflankAdapter, NorthflankConfig
from differently_adapters.providers.northflank.wire import description
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.northflank_fake import FakeNorthflank
from tests.conformance.adapters.northflank_fake.server import PROJECT, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

TOKEN = "nf-token-of-the-operator"
PLANS = [
    {"name": "nf-compute-50", "cpuMillis": 500, "memoryMiB": 1024},
    {"name": "nf-compute-200", "cpuMillis": 4000, "memoryMiB": 8192},
]


def say(status: int, message: str = "failed", name: str = "") -> Act:
    return lambda go, request, closing: refused(status, message, name)


class NorthflankUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "/services/deployment$"),
        Operation.DELETE: ("DELETE", "/services/[^/]+$"),
        Operation.EXEC: ("GET", "^/v1/command-exec/"),
        Operation.FILE_WRITE: ("GET", "^/v1/command-exec/"),
    }
    listing = ("GET", "/services$")
    look = ("GET", "^/v1/projects/[^/]+/services/[^/]+$")

    def __init__(self, fake: FakeNorthflank) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return 0

    def state_digest(self) -> str:
        return f"{[(one.box.id, one.status, one.leaving, one.body) for one in self.fake.services.values()]}"

    def lose_answer(self, operation: Operation) -> None:
        """A command's handshake is no answer: it begins behind it."""
        if self.routes[operation] == self.routes[Operation.EXEC]:
            self.fake.untold = 1
        else:
            super().lose_answer(operation)

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        self.fake.untold = ALWAYS
        yield
        self.fake.untold = 0

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        return Target(ours, self.fake.plant(sandbox_name(ours), description(theirs)).box.id)

    def break_list(self) -> None:
        self.fake.page_size_max = 2
        self.expect(self.listing, self._later(say(500)), ALWAYS)

    def come_up(self) -> None:
        super().come_up()
        self.fake.token = TOKEN

    def arrange(self, mishap: Mishap) -> None:
        create = self.routes[Operation.CREATE]
        match mishap:
            case Mishap.NO_ROOM:
                self.expect(create, say(403, "Resource quota of the team exceeded"))
            case Mishap.INSTANCE_FAILS:
                self.fake.next_fails = True
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(400, "The image could not be found."))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(self.look, self._once_made, 2)
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.token = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "The service is being changed."), ALWAYS)
            case Mishap.PAGE_LOST:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(say(500)), 2)
            case Mishap.CURSOR_REPEATED:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._leads_to_itself), 2)
            case Mishap.PAGES_OVERLAP:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._overlapping), 2)
            case Mishap.FILTER_IGNORED:
                return  # there is no filter: a list holds everybody's services
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("services are not put to sleep")
            case _:
                raise CannotHappen("the adapter declares neither pauses, snapshots nor egress")

    def _once_made(self, go: Go, request: Request, closing: Event) -> Reply:
        return refused(500, "failed") if self.fake.services else go()

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("cursor") else go()

    def _leads_to_itself(self, go: Go, request: Request, closing: Event) -> Reply:
        page = json.loads(go().body)
        return told(200, {**page, "pagination": {"hasNextPage": True, "cursor": request.one("cursor")}})

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        first = dataclasses.replace(request, target=re.sub(r"&?cursor=\d+", "", request.target))
        before, page = json.loads(self.fake.list(first).body), json.loads(go().body)
        services = [before["data"]["services"][-1], *page["data"]["services"]]
        return told(200, {**page, "data": {"services": services}})


def client(fake: FakeNorthflank, **config: object) -> NorthflankAdapter:
    told = {"apiUrl": f"{fake.url}/v1", "project": PROJECT, "image": "python:3.12", "plans": PLANS,
            "allowHttp": True, "allowLoopback": True, **config}  # fmt: skip
    parsed = NorthflankConfig.model_validate(told)
    return NorthflankAdapter(AdapterContext("pool", "inst_any", parsed, QuickClock(), {"token": TOKEN}))


class TestNorthflank(AdapterConformance):
    kind = "northflank"
    secrets = (TOKEN,)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[NorthflankUnderTest]:
        fake = FakeNorthflank(tmp_path, token=TOKEN, keep_alive=False)
        yield NorthflankUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: NorthflankUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: NorthflankUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()
