"""Fly Machines under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import ClassVar

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.fly import FlyAdapter, FlyConfig
from differently_adapters.providers.fly.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.fly_fake import FakeFly
from tests.conformance.adapters.fly_fake.server import APP, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go, cut_body, drop_after
from tests.conformance.adapters.stand_in.http import Reply, Request
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

TOKEN = "fo1_token-of-the-operator"


def say(status: int, message: str = "failed", kind: str = "unknown") -> Act:
    return lambda go, request, closing: refused(status, message, kind)


class FlyUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "/machines$"),
        Operation.DELETE: ("DELETE", "/machines/[^/]+$"),
        Operation.STOP: ("POST", "/stop$"),
        Operation.START: ("POST", "/start$"),
        Operation.EXEC: ("POST", "/exec$"),
    }
    listing = ("GET", "/machines$")

    def __init__(self, fake: FakeFly) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return 0

    def state_digest(self) -> str:
        return f"{[(one.box.id, one.state, one.config) for one in self.fake.machines.values()]}"

    def unheard(self, go: Go, request: Request, closing: Event) -> Reply:
        return drop_after(go, request, closing)

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        metadata = {KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation}
        return Target(ours, self.fake.plant(sandbox_name(ours), metadata).box.id)

    def break_list(self) -> None:
        self.expect(self.listing, cut_body(40), ALWAYS)

    def come_up(self) -> None:
        super().come_up()
        self.fake.token = TOKEN

    def arrange(self, mishap: Mishap) -> None:
        create = self.routes[Operation.CREATE]
        match mishap:
            case Mishap.NO_ROOM:
                self.expect(create, say(422, "could not reserve a host", "insufficient_capacity"))
            case Mishap.INSTANCE_FAILS:
                self.fake.next_fails = True
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(400, "failed to get manifest"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(("GET", "/machines/[^/]+$"), say(500))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.token = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(412, "machine has a lease"), ALWAYS)
            case Mishap.FILTER_IGNORED:
                self.fake.ignores_metadata = True
            case Mishap.PAGE_LOST | Mishap.CURSOR_REPEATED | Mishap.PAGES_OVERLAP:
                raise CannotHappen("Fly answers a list in one piece")
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("machines without services are not stopped by Fly's proxy")
            case _:
                raise CannotHappen("the adapter declares neither pauses, snapshots nor egress")


def client(fake: FakeFly, **config: object) -> FlyAdapter:
    told = {"apiUrl": f"{fake.url}/v1", "app": APP, "image": "python:3.12", "allowHttp": True, "allowLoopback": True,
            **config}  # fmt: skip
    context = AdapterContext("pool", "inst_any", FlyConfig.model_validate(told), QuickClock(), {"token": TOKEN})
    return FlyAdapter(context)


class TestFly(AdapterConformance):
    """Commands as jobs that are looked at, which is what most of them are."""

    kind = "fly"
    secrets = (TOKEN,)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[FlyUnderTest]:
        fake = FakeFly(tmp_path, token=TOKEN, keep_alive=False)
        yield FlyUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: FlyUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: FlyUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()
