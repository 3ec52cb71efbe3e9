"""Vercel Sandbox under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

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
from differently_adapters.providers.vercel import VercelAdapter, VercelConfig
from differently_adapters.providers.vercel.wire import TAG_INSTALLATION, TAG_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest
from tests.conformance.adapters.vercel_fake import FakeVercel
from tests.conformance.adapters.vercel_fake.server import PROJECT, TEAM
from tests.conformance.adapters.vercel_fake.session import refused

TOKEN = "vcl_token-of-the-operator"


def say(status: int, code: str = "internal_server_error") -> Act:
    return lambda go, request, closing: refused(status, code)


class VercelUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "/v3/sandboxes$"),
        Operation.DELETE: ("DELETE", "/v2/sandboxes/[^/]+$"),
        Operation.RENEW: ("POST", "/extend-timeout$"),
        Operation.STOP: ("POST", "/stop$"),
        Operation.EXEC: ("POST", "/cmd$"),
        Operation.EGRESS_SET: ("POST", "/network-policy$"),
    }
    listing = ("GET", "/v2/sandboxes$")
    one = ("GET", "/v2/sandboxes/[^/]+$")

    def __init__(self, fake: FakeVercel) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return 0

    def state_digest(self) -> str:
        return f"{[one.told() for one in self.fake.sandboxes.values()]}"

    def requests(self, operation: Operation) -> int:
        if operation is Operation.START:  # a look that boots
            return sum(asked.one("resume") == "true" for asked in list(self.fake.requests))
        return super().requests(operation)

    def lose_answer(self, operation: Operation) -> None:
        if operation is Operation.START:
            self.expect(self.one, self._lose_boot, 2)
        elif operation is not Operation.PORT_EXPOSE:  # nothing is asked for: the address is always there
            super().lose_answer(operation)

    def _lose_boot(self, go: Go, request: Request, closing: Event) -> Reply:
        reply = go()
        return Reply(dropped=True) if request.one("resume") == "true" else reply

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        tags = {TAG_SANDBOX: theirs.sandbox, TAG_INSTALLATION: theirs.installation}
        return Target(ours, self.fake.plant(sandbox_name(ours), tags).name)

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
                self.expect(create, say(402, "payment_required"))
            case Mishap.INSTANCE_FAILS:
                self.fake.next_fails = True
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(400, "invalid_image"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(create, self._pending)
                self.expect(self.one, self._not_first(say(500)), 2)
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.token = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "conflict"), ALWAYS)
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
                self.fake.ignores_tags = True
            case Mishap.EGRESS_UNCONFIRMED:
                self.fake.ignores_rules = True
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("a session that Vercel stops does not wake by itself")
            case _:
                raise CannotHappen("the adapter declares neither pauses nor snapshots")

    def _pending(self, go: Go, request: Request, closing: Event) -> Reply:
        body = json.loads(go().body)
        return told(200, {**body, "sandbox": {**body["sandbox"], "status": "pending"}})

    def _not_first(self, act: Act) -> Act:
        """Befalls looks at what is there; the first look of a create finds nothing."""
        return lambda go, request, closing: act(go, request, closing) if self.fake.sandboxes else go()

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("cursor") else go()

    def _same_cursor(self, go: Go, request: Request, closing: Event) -> Reply:
        return told(200, {**json.loads(go().body), "pagination": {"count": 2, "next": "2"}})

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        first = dataclasses.replace(request, target=re.sub("&?cursor=[^&]*", "", request.target))
        page, before = json.loads(go().body), json.loads(self.fake.list(first).body)
        return told(200, {**page, "sandboxes": [before["sandboxes"][-1], *page["sandboxes"]]})


def client(fake: FakeVercel, **config: object) -> VercelAdapter:
    told = {"apiUrl": f"{fake.url}/api", "teamId": TEAM, "projectId": PROJECT, "allowHttp": True, "allowLoopback": True,
            **config}  # fmt: skip
    context = AdapterContext("pool", "inst_any", VercelConfig.model_validate(told), QuickClock(), {"token": TOKEN})
    return VercelAdapter(context)


class TestVercel(AdapterConformance):
    kind = "vercel"
    secrets = (TOKEN,)
    config: ClassVar[dict[str, object]] = {"ports": [8080], "timeoutSecondsMax": 18_000}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[VercelUnderTest]:
        fake = FakeVercel(tmp_path, token=TOKEN, keep_alive=False)
        yield VercelUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: VercelUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: VercelUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()
