"""Azure's sessions under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

from differently_adapters.providers.azure_sessions import AzureSessionsAdapter, AzureSessionsConfig
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.azure_sessions_fake import CLIENT, POOL, TENANT, FakeAzureSessions, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go, drop_after
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

SECRET = "azure-secret-of-the-operator"
EXECUTE = ("POST", "/executions$")


def say(status: int, code: str = "Failed") -> Act:
    return lambda go, request, closing: refused(status, code)


class AzureSessionsUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: EXECUTE,
        Operation.DELETE: ("DELETE", "/session$"),
        Operation.RENEW: EXECUTE,
        Operation.EXEC: EXECUTE,
    }
    listing = ("GET", "/listSessions$")

    def __init__(self, fake: FakeAzureSessions) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return 0

    def state_digest(self) -> str:
        return f"{[one.told() for one in self.fake.sessions.values()]}"

    def unheard(self, go: Go, request: Request, closing: Event) -> Reply:
        return drop_after(go, request, closing)

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        name = f"differently-{theirs.installation}-{theirs.sandbox}"
        return Target(ours, self.fake.use(name).box.id)

    def break_list(self) -> None:
        self.fake.page_size = 2
        self.expect(self.listing, self._later(say(500)), ALWAYS)

    def come_up(self) -> None:
        super().come_up()
        self.fake.secret = SECRET

    def arrange(self, mishap: Mishap) -> None:
        match mishap:
            case Mishap.NO_ROOM:
                self.expect(EXECUTE, say(429, "SessionPoolMaxSessionsReached"))
            case Mishap.INSTANCE_FAILS:
                self.expect(EXECUTE, self._failed)
            case Mishap.REQUEST_REFUSED:
                self.expect(EXECUTE, say(400, "InvalidRequest"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(("GET", "/session$"), say(500))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.secret = "another one"
                self.fake.tokens.clear()
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "SessionBusy"), ALWAYS)
            case Mishap.PAGE_LOST:
                self.fake.page_size = 2
                self.expect(self.listing, self._later(say(500)), 2)
            case Mishap.PAGES_OVERLAP:
                self.fake.page_size = 2
                self.expect(self.listing, self._later(self._overlapping), 2)
            case Mishap.FILTER_IGNORED:
                pass  # there is none: every list holds everybody's
            case Mishap.CURSOR_REPEATED:
                self.fake.page_size = 2
                self.expect(self.listing, self._later(self._same_link), 2)
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("a session that nobody uses ends")
            case _:
                raise CannotHappen("the adapter declares neither pauses, snapshots nor egress")

    def _failed(self, go: Go, request: Request, closing: Event) -> Reply:
        self.fake.use(request.one("identifier"))
        return told(200, {"id": "x", "status": "Failed", "error": {"code": "ContainerFailed"}, "result": None})

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("skip", "0") != "0" else go()

    def _same_link(self, go: Go, request: Request, closing: Event) -> Reply:
        link = f"{self.fake.url}{POOL}/listSessions?skip={request.one('skip')}"
        return told(200, {**json.loads(go().body), "nextLink": link})

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        first = dataclasses.replace(request, target=re.sub(r"&?skip=\d+", "", request.target))
        before, page = json.loads(self.fake.list(first).body), json.loads(go().body)
        return told(200, {**page, "sessions": [before["sessions"][-1], *page["sessions"]]})


def client(fake: FakeAzureSessions, **config: Any) -> AzureSessionsAdapter:
    told = {
        "poolUrl": f"{fake.url}{POOL}", "authorityUrl": fake.url, "tenant": TENANT, "clientId": CLIENT,
        "cooldownSeconds": 300, "allowHttp": True, "allowLoopback": True, **config,
    }  # fmt: skip
    parsed = AzureSessionsConfig.model_validate(told)
    return AzureSessionsAdapter(AdapterContext("pool", "inst_any", parsed, QuickClock(), {"client_secret": SECRET}))


class TestAzureSessions(AdapterConformance):
    kind = "azure-sessions"
    secrets = (SECRET,)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[AzureSessionsUnderTest]:
        fake = FakeAzureSessions(tmp_path, secret=SECRET, keep_alive=False)
        yield AzureSessionsUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: AzureSessionsUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: AzureSessionsUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()
