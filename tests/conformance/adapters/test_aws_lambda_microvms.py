"""Lambda MicroVMs under the conformance suite: over sockets, to a stand-in that runs commands on this host."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from urllib.parse import urlencode

import pytest

from differently_adapters.providers.aws_lambda_microvms import LambdaMicrovmAdapter, LambdaMicrovmConfig
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from differently_core.runtime.clock import Clock
from tests.conformance.adapters.aws_lambda_microvms_fake import KEY, FakeMicrovms
from tests.conformance.adapters.aws_lambda_microvms_fake.server import IMAGE, OTHER_IMAGE
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Act, Go, answer, drop_after, edit, lose_completion
from tests.conformance.adapters.stand_in.http import Reply, Request

ROUTES = {
    Operation.CREATE: ("POST", "/microvms$"),
    Operation.DELETE: ("DELETE", "/microvms/[^/]+$"),
    Operation.PAUSE: ("POST", "/suspend$"),
    Operation.RESUME: ("POST", "/resume$"),
    Operation.FILE_WRITE: ("POST", "/files/upload$"),
    Operation.EXEC: ("POST", "/command$"),
}
LIST = ("GET", "/microvms$")


class MicrovmsUnderTest:
    def __init__(self, fake: FakeMicrovms) -> None:
        self.fake = fake
        self._late: list[Callable[[], object]] = []

    def count(self) -> int:
        return len(self.fake.alive())

    def snapshots(self) -> int:
        return 0

    def state_digest(self) -> str:
        return str([(vm.id, vm.state, vm.seconds) for vm in self.fake.vms.values()])

    def requests(self, operation: Operation) -> int:
        method, path = ROUTES[operation]
        asked = list(self.fake.requests)
        return sum(request.method == method and bool(re.search(path, request.path)) for request in asked)

    def lose_answer(self, operation: Operation) -> None:
        self.fake.expect(*ROUTES[operation], drop_after)

    def delay_create(self) -> None:
        def hold(go: Go, request: Request, closing: Event) -> Reply:
            self._late.append(go)
            return answer(504, "")(go, request, closing)

        self.fake.expect(*ROUTES[Operation.CREATE], hold)

    def settle(self) -> None:
        while self._late:
            self._late.pop()()
        self.fake.faults.clear()
        for vm in self.fake.vms.values():
            vm.boots = 0
            if vm.state == "PENDING":
                vm.state, vm.turns = "RUNNING", []
            if vm.state == "SUSPENDING":
                vm.turns = ["SUSPENDED"]

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        fault = self.fake.expect(*ROUTES[Operation.EXEC], lose_completion, times=1_000_000)
        yield
        fault.times = 0

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        planted = self.fake.plant({"installation": theirs.installation, "sandbox": theirs.sandbox})
        return Target(ours, planted.id)

    def break_list(self) -> None:
        self.fake.expect(*LIST, answer(500, "InternalServerException"))

    def arrange(self, mishap: Mishap) -> None:
        create = ROUTES[Operation.CREATE]
        match mishap:
            case Mishap.NO_ROOM:
                self.fake.expect(*create, answer(500, "InsufficientCapacityException"))
            case Mishap.INSTANCE_FAILS:
                self.fake.expect(*create, self._fails)
            case Mishap.REQUEST_REFUSED:
                self.fake.expect(*create, answer(400, "ValidationException"))
            case Mishap.BOOTSTRAP_FAILS:
                self.fake.expect("GET", "/microvms/[^/]+$", answer(500, "InternalServerException"))
            case Mishap.CREDENTIAL_REVOKED:
                self.fake.key = ("AKIDANOTHER000000000", KEY[1])
            case Mishap.DELETE_CONFLICTS:
                self.fake.expect(*ROUTES[Operation.DELETE], answer(409, "ConflictException"), times=1_000)
            case Mishap.PAGE_LOST | Mishap.CURSOR_REPEATED | Mishap.PAGES_OVERLAP:
                self.fake.page_size_max = 2
                self.fake.expect(*LIST, self._second_page(mishap), 2)
            case Mishap.FILTER_IGNORED:
                self.fake.plant({"installation": "inst_other", "sandbox": "sbx_other"}, OTHER_IMAGE)
                self.fake.ignores_filter = True
            case Mishap.PAUSE_HANGS:
                self.fake.suspend_turns = ["SUSPENDING"] * 10_000
            case Mishap.PAUSE_REVERTS:
                self.fake.suspend_turns = ["SUSPENDING", "RUNNING"]
            case Mishap.FALLS_ASLEEP:
                raise CannotHappen("the idle policy of every MicroVM lets none sleep before its end")
            case _:
                raise CannotHappen("there are neither snapshots nor egress rules of a sandbox")

    def _fails(self, go: Go, request: Request, closing: Event) -> Reply:
        reply = go()
        vm = self.fake.vms[json.loads(reply.body)["microvmId"]]
        self.fake._end(vm)
        vm.reason = "the run hook failed"
        return reply

    def _second_page(self, mishap: Mishap) -> Act:
        def act(go: Go, request: Request, closing: Event) -> Reply:
            if not request.one("nextToken"):
                return go()
            match mishap:
                case Mishap.PAGE_LOST:
                    return answer(500, "InternalServerException")(go, request, closing)
                case Mishap.CURSOR_REPEATED:
                    return edit(lambda page: {**page, "nextToken": request.one("nextToken")})(go, request, closing)
                case _:
                    before = Request("GET", f"{request.path}?{urlencode({'imageIdentifier': IMAGE})}", {}, b"")
                    again = json.loads(self.fake.list(before).body)["items"][-1:]
                    return edit(lambda page: {**page, "items": [*again, *page["items"]]})(go, request, closing)

        return act

    def go_down(self) -> None:
        self.fake.up = False

    def come_up(self) -> None:
        self.fake.up = True
        self.fake.key = KEY


def client(
    fake: FakeMicrovms, clock: Clock | None = None, installation: str = "inst_any", **config: object
) -> LambdaMicrovmAdapter:
    told = {
        "imageArn": IMAGE, "memoryMiB": 2048, "endpoint": fake.url, "microvmScheme": "http", "allowHttp": True,
        "allowLoopback": True, **config,
    }  # fmt: skip
    credential = {"access_key_id": KEY[0], "secret_access_key": KEY[1]}
    parsed = LambdaMicrovmConfig.model_validate(told)
    return LambdaMicrovmAdapter(AdapterContext("pool", installation, parsed, clock or QuickClock(), credential))


class TestLambdaMicrovms(AdapterConformance):
    kind = "aws-lambda-microvms"
    secrets = (KEY[1],)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[MicrovmsUnderTest]:
        fake = FakeMicrovms(tmp_path)
        yield MicrovmsUnderTest(fake)
        fake.close()

    @pytest.fixture
    def adapter(self, backend: MicrovmsUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()

    @pytest.fixture
    def restarted(self, backend: MicrovmsUnderTest) -> Iterator[Adapter]:
        adapter = client(backend.fake)
        yield adapter
        adapter.close()
