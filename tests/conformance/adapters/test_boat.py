"""Boat under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

from differently_adapters.providers.boat import BoatAdapter, BoatConfig
from differently_adapters.providers.boat.names import machine_name
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from differently_core.runtime.clock import Clock
from tests.conformance.adapters.boat_fake import FakeBoat, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

API_KEY = "boat-key-of-the-operator"


def say(status: int, code: str) -> Act:
    return lambda go, request, closing: refused(status, code)


class BoatUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "^/sandboxes$"),
        Operation.DELETE: ("DELETE", "^/sandboxes/[^/]+$"),
        Operation.RENEW: ("PATCH", "^/sandboxes/[^/]+$"),
        Operation.STOP: ("POST", "/stop$"),
        Operation.START: ("POST", "/resume$"),
        Operation.SNAPSHOT: ("POST", "^/saved-snapshots$"),
        Operation.SNAPSHOT_DELETE: ("DELETE", "^/saved-snapshots/"),
        Operation.EXEC: ("POST", "/commands$"),
        Operation.FILE_WRITE: ("PUT", "/files$"),
    }
    listing = ("GET", "^/sandboxes$")

    def __init__(self, fake: FakeBoat) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return len(self.fake.saved)

    def state_digest(self) -> str:
        kept = [(one.box.id, one.name, one.state, one.archive_after) for one in self.fake.machines.values()]
        return f"{kept} {sorted(self.fake.saved)}"

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        fault = self.expect(("GET", "/commands/[0-9]+/stream$"), self.unheard, ALWAYS)
        yield
        fault.times = 0

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        return Target(ours, self.fake.plant(machine_name(theirs)).box.id)

    def break_list(self) -> None:
        self.fake.page_size_max = 2
        self.expect(self.listing, self._later(say(500, "internal_error")), ALWAYS)

    def come_up(self) -> None:
        super().come_up()
        self.fake.api_key = API_KEY

    def arrange(self, mishap: Mishap) -> None:
        create = self.routes[Operation.CREATE]
        match mishap:
            case Mishap.NO_ROOM:
                self.expect(create, say(503, "no_ready_machine"))
            case Mishap.INSTANCE_FAILS:
                self.fake.create_turns = ["error"]
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(404, "snapshot_not_found"))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "sandbox_busy"), ALWAYS)
            case Mishap.PAGE_LOST:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(say(500, "internal_error")), 2)
            case Mishap.CURSOR_REPEATED:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._first_again), 2)
            case Mishap.PAGES_OVERLAP:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._overlapping), 2)
            case Mishap.SNAPSHOT_FAILS:
                self.fake.save_turns = ["failed"]
            case Mishap.RESTORE_FAILS:
                for saved in self.fake.saved.values():
                    saved.broken = True
            case Mishap.FILTER_IGNORED:
                raise CannotHappen("there is no filter: every list holds everybody's")
            case Mishap.BOOTSTRAP_FAILS:
                raise CannotHappen("a create has no later step")
            case Mishap.PAUSE_HANGS | Mishap.PAUSE_REVERTS:
                raise CannotHappen("there is no pause")
            case Mishap.EGRESS_UNCONFIRMED:
                raise CannotHappen("there are no egress rules")
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("machines do not go to sleep by themselves")

    def settle(self) -> None:
        super().settle()
        self.fake.create_turns, self.fake.save_turns = ["ready"], ["ready"]

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("cursor") else go()

    def _first_again(self, go: Go, request: Request, closing: Event) -> Reply:
        return self.fake.list(dataclasses.replace(request, target=re.sub(r"&?cursor=\d+", "", request.target)))

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        before, page = (json.loads(reply.body) for reply in (self._first_again(go, request, closing), go()))
        return told(200, {**page, "sandboxes": [before["sandboxes"][-1], *page["sandboxes"]]})


def client(fake: FakeBoat, *, clock: Clock | None = None, **config: Any) -> BoatAdapter:
    settings = {"apiUrl": fake.url, "allowHttp": True, "allowLoopback": True, **config}
    parsed = BoatConfig.model_validate(settings)
    context = AdapterContext("pool", "inst_any", parsed, clock or QuickClock(), {"api_key": API_KEY})
    return BoatAdapter(context)


class TestBoat(AdapterConformance):
    kind = "boat"
    secrets = (API_KEY,)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[BoatUnderTest]:
        fake = FakeBoat(tmp_path, api_key=API_KEY, keep_alive=False)
        yield BoatUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: BoatUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: BoatUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()
