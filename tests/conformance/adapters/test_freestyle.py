"""Freestyle under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

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

from differently_adapters.providers.freestyle import FreestyleAdapter, FreestyleConfig
from differently_adapters.providers.freestyle.wire import KEY_INSTALLATION, KEY_SANDBOX, slug
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from differently_core.runtime.clock import Clock
from tests.conformance.adapters.freestyle_fake import FakeFreestyle, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go, drop_after
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

API_KEY = "fs-key-of-the-operator"


def say(status: int, code: str) -> Act:
    return lambda go, request, closing: refused(status, code)


class FreestyleUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "^/v5/vms$"),
        Operation.DELETE: ("DELETE", "^/v5/vms/[^/]+$"),
        Operation.RENEW: ("PATCH", "^/v5/vms/[^/]+$"),
        Operation.STOP: ("POST", "/exec-await$"),
        Operation.START: ("POST", "/start$"),
        Operation.PAUSE: ("POST", "/pause$"),
        Operation.RESUME: ("POST", "/start$"),
        Operation.SNAPSHOT: ("POST", "/snapshot$"),
        Operation.SNAPSHOT_DELETE: ("DELETE", "^/v5/snapshots/"),
        Operation.EXEC: ("POST", "/exec-await$"),
        Operation.FILE_WRITE: ("POST", "/exec-await$"),
        Operation.PORT_EXPOSE: ("POST", "^/v5/tls$"),
        Operation.PORT_REVOKE: ("DELETE", "^/v5/tls/"),
    }
    listing = ("GET", "^/v5/vms$")

    def __init__(self, fake: FakeFreestyle) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return len(self.fake.snapshots)

    def state_digest(self) -> str:
        kept = [(vm.box.id, vm.state, vm.ttl, sorted(vm.metadata.items())) for vm in self.fake.vms.values()]
        return f"{kept} {sorted(self.fake.snapshots)} {sorted(self.fake.tls)}"

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        fault = self.expect(self.routes[Operation.EXEC], drop_after, ALWAYS)
        yield
        fault.times = 0

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        name = slug(ours.installation, ours.sandbox)
        planted = self.fake.plant({KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation}, name)
        return Target(ours, planted.box.id)

    def break_list(self) -> None:
        self.fake.page_size_max = 2
        self.expect(self.listing, self._later(say(500, "INTERNAL")), ALWAYS)

    def settle(self) -> None:
        super().settle()
        for vm in self.fake.vms.values():
            if vm.turns:
                vm.turns = ["paused"]
                vm.box.freeze()

    def come_up(self) -> None:
        super().come_up()
        self.fake.api_key = API_KEY

    def arrange(self, mishap: Mishap) -> None:
        create = self.routes[Operation.CREATE]
        match mishap:
            case Mishap.NO_ROOM:
                self.expect(create, say(402, "PLAN_QUOTA_EXCEEDED"))
            case Mishap.INSTANCE_FAILS:
                self.expect(create, self._stops)
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(404, "NOT_FOUND"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(self.routes[Operation.EXEC], say(500, "INTERNAL"))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "INVALID_STATE"), ALWAYS)
            case Mishap.PAGE_LOST:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(say(500, "INTERNAL")), 2)
            case Mishap.CURSOR_REPEATED:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._first_again), 5 * 2)
            case Mishap.PAGES_OVERLAP:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._overlapping), 2)
            case Mishap.FILTER_IGNORED:
                self.fake.ignores_metadata = True
            case Mishap.PAUSE_HANGS:
                self.fake.pause_turns = ["pausing"] * 10_000
            case Mishap.PAUSE_REVERTS:
                self.fake.pause_turns = ["pausing", "running"]
            case Mishap.SNAPSHOT_FAILS:
                self.expect(self.routes[Operation.SNAPSHOT], say(500, "INTERNAL"))
            case Mishap.RESTORE_FAILS:
                for snapshot in self.fake.snapshots.values():
                    snapshot.broken = True
            case Mishap.EGRESS_UNCONFIRMED:
                raise CannotHappen("egress is set when a VM is made")
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("VMs are made without an idle time")

    def _stops(self, go: Go, request: Request, closing: Event) -> Reply:
        made = json.loads(go().body)
        self.fake.vms[made["id"]].state = "stopped"
        return told(200, {**made, "state": "starting"})

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("offset", "0") != "0" else go()

    def _first_again(self, go: Go, request: Request, closing: Event) -> Reply:
        return self.fake.list(dataclasses.replace(request, target=re.sub(r"&?offset=\d+", "", request.target)))

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        before, page = (json.loads(reply.body) for reply in (self._first_again(go, request, closing), go()))
        return told(200, {**page, "vms": [before["vms"][-1], *page["vms"]]})


def client(fake: FakeFreestyle, *, clock: Clock | None = None, **config: Any) -> FreestyleAdapter:
    told = {"apiUrl": fake.url, "allowHttp": True, "allowLoopback": True, **config}
    parsed = FreestyleConfig.model_validate(told)
    context = AdapterContext("pool", "inst_any", parsed, clock or QuickClock(), {"api_key": API_KEY})
    return FreestyleAdapter(context)


class TestFreestyle(AdapterConformance):
    kind = "freestyle"
    secrets = (API_KEY,)
    config: ClassVar[dict[str, Any]] = {"publicPorts": True}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[FreestyleUnderTest]:
        fake = FakeFreestyle(tmp_path, api_key=API_KEY, keep_alive=False)
        yield FreestyleUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: FreestyleUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: FreestyleUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()
