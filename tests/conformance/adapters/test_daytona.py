"""Daytona under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

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
from differently_adapters.providers.daytona import DaytonaAdapter, DaytonaConfig
from differently_adapters.providers.daytona.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.daytona_fake import FakeDaytona
from tests.conformance.adapters.daytona_fake.server import refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go, drop_after
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

API_KEY = "dtn_key-of-the-operator"


def say(status: int, message: str = "failed") -> Act:
    return lambda go, request, closing: refused(status, message)


class DaytonaUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "/sandbox$"),
        Operation.DELETE: ("DELETE", "/sandbox/[^/]+$"),
        Operation.RENEW: ("POST", "/ttl/[0-9]+$"),
        Operation.STOP: ("POST", "/stop$"),
        Operation.START: ("POST", "/start$"),
        Operation.SNAPSHOT: ("POST", "/snapshot$"),
        Operation.SNAPSHOT_DELETE: ("DELETE", "/snapshots/"),
        Operation.EXEC: ("POST", "/process/execute$"),
        Operation.EGRESS_SET: ("POST", "/network-settings$"),
        Operation.PORT_EXPOSE: ("GET", "/signed-preview-url$"),
    }
    listing = ("GET", "/sandbox$")

    def __init__(self, fake: FakeDaytona) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return len(self.fake.snapshots)

    def state_digest(self) -> str:
        kept = [(one.box.id, one.state, one.desired, one.labels, one.destroy_at, one.network)
                for one in self.fake.sandboxes.values()]  # fmt: skip
        return f"{kept} {sorted(self.fake.snapshots)}"

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        labels = {KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation}
        return Target(ours, self.fake.plant(sandbox_name(ours), labels).box.id)

    def unheard(self, go: Go, request: Request, closing: Event) -> Reply:
        return drop_after(go, request, closing)

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
                self.expect(create, say(400, "Total CPU limit exceeded. Maximum allowed: 10."))
            case Mishap.INSTANCE_FAILS:
                self.fake.next_fails = True
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(400, "Snapshot x not found"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(("GET", "/sandbox/[^/]+$"), say(500))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "Sandbox is locked"), ALWAYS)
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
                self.fake.ignores_labels = True
            case Mishap.SNAPSHOT_FAILS:
                self.fake.captures_fail = True
            case Mishap.RESTORE_FAILS:
                for snapshot in self.fake.snapshots.values():
                    snapshot.broken = True
            case Mishap.EGRESS_UNCONFIRMED:
                self.fake.ignores_rules = True
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("sandboxes are made with autoStopInterval 0")
            case Mishap.PAUSE_HANGS | Mishap.PAUSE_REVERTS:
                raise CannotHappen("the adapter declares no pause")

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("cursor") else go()

    def _same_cursor(self, go: Go, request: Request, closing: Event) -> Reply:
        return told(200, {**json.loads(go().body), "nextCursor": "2"})

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        first = dataclasses.replace(request, target=re.sub("&?cursor=[^&]*", "", request.target))
        page, before = json.loads(go().body), json.loads(self.fake.list(first).body)
        return told(200, {**page, "items": [before["items"][-1], *page["items"]]})


def client(fake: FakeDaytona, **config: object) -> DaytonaAdapter:
    told = {"apiUrl": f"{fake.url}/api", "allowHttp": True, "allowLoopback": True, **config}
    context = AdapterContext("pool", "inst_any", DaytonaConfig.model_validate(told), QuickClock(), {"api_key": API_KEY})
    return DaytonaAdapter(context)


class TestDaytona(AdapterConformance):
    kind = "daytona"
    secrets = (API_KEY,)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[DaytonaUnderTest]:
        fake = FakeDaytona(tmp_path, api_key=API_KEY, keep_alive=False)
        yield DaytonaUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: DaytonaUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: DaytonaUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()
