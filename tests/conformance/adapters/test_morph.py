"""Morph under the conformance suite: over a socket, to a stand-in that runs commands on this host."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import pytest

from differently_adapters.providers.morph import MorphAdapter, MorphConfig
from differently_adapters.providers.morph.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from tests.conformance.adapters.morph_fake import FakeMorph, refused
from tests.conformance.adapters.morph_fake.server import BASE_SNAPSHOT
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.stand_in.under_test import ALWAYS, Route, UnderTest

API_KEY = "morph-key-of-the-operator"


def say(status: int, detail: str = "failed") -> Act:
    return lambda go, request, closing: refused(status, detail)


class MorphUnderTest(UnderTest):
    routes: ClassVar[dict[Operation, Route]] = {
        Operation.CREATE: ("POST", "/instance$"),
        Operation.DELETE: ("DELETE", "/instance/[^/]+$"),
        Operation.RENEW: ("POST", "/ttl$"),
        Operation.PAUSE: ("POST", "/pause$"),
        Operation.RESUME: ("POST", "/resume$"),
        Operation.SNAPSHOT: ("POST", "/snapshot$"),
        Operation.SNAPSHOT_DELETE: ("DELETE", "/snapshot/"),
        Operation.EXEC: ("POST", "/exec/sse$"),
        Operation.FILE_WRITE: ("POST", "/exec/sse$"),
        Operation.PORT_EXPOSE: ("POST", "/http$"),
        Operation.PORT_REVOKE: ("DELETE", "/http/"),
    }
    listing = ("GET", "/instance/list$")

    def __init__(self, fake: FakeMorph) -> None:
        super().__init__(fake)
        self.fake = fake

    def snapshots(self) -> int:
        return len(self.fake.snapshots)

    def state_digest(self) -> str:
        kept = [(one.box.id, one.status, one.expires, sorted(one.services)) for one in self.fake.instances.values()]
        return f"{kept} {sorted(self.fake.snapshots)}"

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        planted = self.fake.plant({KEY_SANDBOX: theirs.sandbox, KEY_INSTALLATION: theirs.installation})
        return Target(ours, planted.box.id)

    def break_list(self) -> None:
        self.expect(self.listing, say(500), ALWAYS)

    def settle(self) -> None:
        super().settle()
        for one in self.fake.instances.values():
            if one.turns:
                one.turns = ["paused"]
                one.box.freeze()

    def come_up(self) -> None:
        super().come_up()
        self.fake.api_key = API_KEY

    def arrange(self, mishap: Mishap) -> None:
        create = self.routes[Operation.CREATE]
        match mishap:
            case Mishap.NO_ROOM:
                self.expect(create, say(402, "the plan is used up"))
            case Mishap.INSTANCE_FAILS:
                self.expect(create, self._fails)
            case Mishap.REQUEST_REFUSED:
                self.expect(create, say(404, "Snapshot not found"))
            case Mishap.BOOTSTRAP_FAILS:
                self.expect(self.routes[Operation.EXEC], say(500))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.api_key = "another one"
            case Mishap.DELETE_CONFLICTS:
                self.expect(self.routes[Operation.DELETE], say(409, "Instance is saving"), ALWAYS)
            case Mishap.PAGE_LOST:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(say(500)), 2)
            case Mishap.CURSOR_REPEATED:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._first_again), 5 * 2)
            case Mishap.PAGES_OVERLAP:
                self.fake.page_size_max = 2
                self.expect(self.listing, self._later(self._overlapping), 2)
            case Mishap.FILTER_IGNORED:
                self.fake.ignores_metadata = True
            case Mishap.PAUSE_HANGS:
                self.fake.pause_turns = ["saving"] * 10_000
            case Mishap.PAUSE_REVERTS:
                self.fake.pause_turns = ["saving", "ready"]
            case Mishap.SNAPSHOT_FAILS:
                self.expect(self.routes[Operation.SNAPSHOT], say(500, "the snapshot failed"))
            case Mishap.RESTORE_FAILS:
                for snapshot in self.fake.snapshots.values():
                    snapshot.broken = True
            case Mishap.EGRESS_UNCONFIRMED:
                raise CannotHappen("there are no egress rules")
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("the time to live ends an instance and pauses none")

    def _fails(self, go: Go, request: Request, closing: Event) -> Reply:
        made = json.loads(go().body)
        self.fake.instances[made["id"]].status = "error"
        return told(200, {**made, "status": "pending"})

    def _later(self, act: Act) -> Act:
        """Befalls pages after the first."""
        return lambda go, request, closing: act(go, request, closing) if request.one("page") != "1" else go()

    def _first_again(self, go: Go, request: Request, closing: Event) -> Reply:
        return self.fake.list(dataclasses.replace(request, target=re.sub(r"page=\d+", "page=1", request.target)))

    def _overlapping(self, go: Go, request: Request, closing: Event) -> Reply:
        before, page = (json.loads(reply.body) for reply in (self._first_again(go, request, closing), go()))
        return told(200, {**page, "instances": [before["instances"][-1], *page["instances"]]})


def client(fake: FakeMorph, **config: Any) -> MorphAdapter:
    told = {"apiUrl": fake.url, "snapshot": BASE_SNAPSHOT, "allowHttp": True, "allowLoopback": True, **config}
    parsed = MorphConfig.model_validate(told)
    return MorphAdapter(AdapterContext("pool", "inst_any", parsed, QuickClock(), {"api_key": API_KEY}))


class TestMorph(AdapterConformance):
    kind = "morph"
    secrets = (API_KEY,)
    config: ClassVar[dict[str, Any]] = {"publicPorts": True}

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[MorphUnderTest]:
        fake = FakeMorph(tmp_path, api_key=API_KEY, keep_alive=False)
        yield MorphUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: MorphUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: MorphUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake, **self.config)
        yield adapter
        adapter.close()
