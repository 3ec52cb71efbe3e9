"""What Vercel and the ways to it are known to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from differently_adapters.names import sandbox_name
from differently_adapters.providers.vercel import VercelAdapter, VercelConfig
from differently_adapters.providers.vercel.egress import meant
from differently_adapters.providers.vercel.session import archive
from differently_adapters.providers.vercel.wire import TAG_INSTALLATION, TAG_SANDBOX
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    AdapterContext,
    CreateRequest,
    EgressAction,
    EgressRules,
    InstanceState,
    Owner,
    Target,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    UnsupportedOperation,
)
from differently_core.model.exec import ExecRequest
from differently_core.model.resources import Size
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Fault, drop_after, html, reflect
from tests.conformance.adapters.stand_in.http import Reply
from tests.conformance.adapters.vercel_fake import FakeVercel
from tests.conformance.adapters.vercel_fake.server import PROJECT, TEAM
from tests.conformance.adapters.vercel_fake.session import refused

TOKEN = "vcl_token-of-the-operator"
CREATE = ("POST", "/v3/sandboxes$")
CMD = ("POST", "/cmd$")
SECONDS = 30.0
Make = Callable[..., VercelAdapter]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeVercel]:
    fake = FakeVercel(tmp_path, token=TOKEN)
    yield fake
    fake.close()


@pytest.fixture
def make(fake: FakeVercel) -> Iterator[Make]:
    made: list[VercelAdapter] = []

    def make(**config: object) -> VercelAdapter:
        told = {"apiUrl": f"{fake.url}/api", "teamId": TEAM, "projectId": PROJECT, "allowHttp": True,
                "allowLoopback": True, **config}  # fmt: skip
        context = AdapterContext("pool", "inst_a", VercelConfig.model_validate(told), QuickClock(), {"token": TOKEN})
        made.append(VercelAdapter(context))
        return made[-1]

    yield make
    for adapter in made:
        adapter.close()


@pytest.fixture
def adapter(make: Make) -> VercelAdapter:
    return make()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_a", sandbox)), **changes)


OWNER = wanted().owner


def created(adapter: VercelAdapter, **changes: Any) -> Target:
    request = wanted(**changes)
    return Target(request.owner, adapter.create(request, SECONDS).ref)


def befall(fake: FakeVercel, route: tuple[str, str], act: Any, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def say(status: int, code: str, message: str = "", **headers: str) -> Any:
    def act(*_: object) -> Reply:
        reply = refused(status, code, message)
        reply.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return reply

    return act


def bodies(fake: FakeVercel, method: str, path: str) -> list[Any]:
    return [asked.json() for asked in fake.requests if asked.method == method and re.search(path, asked.path)]


def test_a_create_speaks_milliseconds_and_says_whose_it_is(fake: FakeVercel, make: Make) -> None:
    size = Size(sandboxes=1, cpu_millis=1_500, memory_mib=6_000, disk_gib=1)
    created(make(region="fra1", image="node"), ttl_seconds=600, env={"A": "1"}, size=size)
    assert bodies(fake, *CREATE) == [
        {
            "projectId": PROJECT,
            "name": sandbox_name(OWNER),
            "tags": {TAG_INSTALLATION: "inst_a", TAG_SANDBOX: "sbx_a"},
            "env": {"A": "1"},
            "timeout": 900_000,
            "resources": {"vcpus": 3},
            "persistent": True,
            "ports": [],
            "image": "node",
            "region": "fra1",
        }
    ]


def test_looking_never_boots_what_is_stopped(fake: FakeVercel, adapter: VercelAdapter) -> None:
    """A look without `resume=false` boots a machine and costs money."""
    target = created(adapter)
    adapter.stop(target, SECONDS)
    adapter.get(target)
    adapter.get(Target(OWNER))
    adapter.list("inst_a")
    assert adapter.get(target).state is InstanceState.STOPPED
    looks = [asked for asked in fake.requests if asked.method == "GET" and sandbox_name(OWNER) in asked.path]
    assert {asked.one("resume") for asked in looks} == {"false"}


@pytest.mark.parametrize(
    ("status", "code", "error", "reason"),
    [
        (402, "payment_required", InsufficientCapacity, "quota"),
        (429, "rate_limited", InsufficientCapacity, "rate_limited"),
        (400, "invalid_image", InvalidRequest, None),
        (403, "forbidden", ProviderUnavailable, None),
        (401, "unauthorized", ProviderUnavailable, None),
        (422, "unprocessable", InvalidRequest, None),
    ],
)
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeVercel, adapter: VercelAdapter, status: int, code: str, error: type[DifferentlyError], reason: str | None
) -> None:
    befall(fake, CREATE, say(status, code, retry_after="7"))
    with pytest.raises(error) as told:
        created(adapter)
    assert type(told.value) is error
    assert told.value.details.get("reason") == reason
    assert told.value.details["retry_after_seconds"] == 7
    assert not isinstance(told.value, BackendError) or told.value.settled


@pytest.mark.parametrize("act", [drop_after, html(504)])
def test_a_create_whose_answer_was_lost_is_looked_for_and_not_repeated(
    fake: FakeVercel, adapter: VercelAdapter, act: Any
) -> None:
    befall(fake, CREATE, act)
    assert created(adapter).ref in fake.sandboxes
    assert len(bodies(fake, *CREATE)) == 1


def test_a_create_that_left_nothing_after_an_unknown_outcome_stays_unknown(
    fake: FakeVercel, adapter: VercelAdapter
) -> None:
    befall(fake, CREATE, say(500, "internal_server_error"))
    with pytest.raises(ProviderUnavailable) as told:
        created(adapter)
    assert not told.value.settled


@pytest.mark.parametrize("status", [400, 409])
def test_a_name_that_was_taken_meanwhile_by_ourselves_is_ours(
    fake: FakeVercel, adapter: VercelAdapter, status: int
) -> None:
    """Which status a taken name has is not published."""

    def meanwhile(go: Callable[[], Reply], *_: object) -> Reply:
        go()
        return refused(status, "conflict")

    befall(fake, CREATE, meanwhile)
    assert created(adapter).ref == sandbox_name(OWNER)


def test_a_name_that_is_somebody_elses_is_left_alone(fake: FakeVercel, adapter: VercelAdapter) -> None:
    fake.plant(sandbox_name(OWNER), {TAG_INSTALLATION: "inst_b", TAG_SANDBOX: "sbx_a"})
    with pytest.raises(InvalidState):
        created(adapter)
    adapter.delete(Target(OWNER))
    assert fake.count() == 1


def test_a_session_is_another_one_after_each_boot(adapter: VercelAdapter) -> None:
    target = created(adapter)
    first = adapter.get(target).incarnation
    adapter.exec(target, ExecRequest(command="echo kept > kept"), 100)
    adapter.stop(target, SECONDS)
    with pytest.raises(InvalidState):
        adapter.exec(target, ExecRequest(command="true"), 100)
    adapter.start(target, SECONDS)
    assert adapter.get(target).incarnation != first
    assert adapter.exec(target, ExecRequest(command="cat kept"), 100).stdout == b"kept\n"


def test_a_session_that_stopped_between_two_calls_is_no_outage(fake: FakeVercel, adapter: VercelAdapter) -> None:
    target = created(adapter)
    befall(fake, CMD, say(410, "sandbox_stopped"))
    with pytest.raises(InvalidState):
        adapter.exec(target, ExecRequest(command="true"), 100)


def test_a_renewal_asks_for_what_is_missing_within_the_plan(fake: FakeVercel, make: Make) -> None:
    adapter = make(timeoutSecondsMax=1_200)
    target = created(adapter, ttl_seconds=600)
    before = adapter.get(target).expires_at
    assert before is not None
    assert adapter.renew(target, before - timedelta(seconds=60)) == before
    assert adapter.renew(target, before + timedelta(hours=9)) == before + timedelta(seconds=300)
    assert bodies(fake, "POST", "/extend-timeout$") == [{"duration": 300_000}]


# Inside.


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"command": {"id": "c", "exitCode": None}}],
        [{"command": {"id": "c", "exitCode": None}}, {"stream": "error", "data": {"code": "sandbox_stream_closed"}}],
        [{"command": {"id": "c", "exitCode": None}}, {"command": {"id": "c", "exitCode": 0}}],
        ["no object"],
    ],
)
def test_a_stream_without_its_end_is_never_an_exit(
    fake: FakeVercel, adapter: VercelAdapter, lines: list[object]
) -> None:
    """A failure comes as a line under a status of success; and without our own words an exit code says nothing."""
    target = created(adapter)
    body = "\n".join(json.dumps(line) for line in lines).encode()
    befall(fake, CMD, lambda *_: Reply(200, body, {"content-type": "application/x-ndjson"}))
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ExecRequest(command="true"), 100)


@pytest.mark.parametrize(
    ("status", "error", "settled"),
    [(500, ExecUnconfirmed, False), (429, InsufficientCapacity, True), (403, ProviderUnavailable, True)],
)
def test_a_command_that_was_refused_is_told_from_one_that_is_lost(
    fake: FakeVercel, adapter: VercelAdapter, status: int, error: type[BackendError], settled: bool
) -> None:
    target = created(adapter)
    befall(fake, CMD, say(status, "x"))
    with pytest.raises(error) as told:
        adapter.exec(target, ExecRequest(command="true"), 100)
    assert (type(told.value), told.value.settled) == (error, settled)


def test_a_command_has_a_time_limit_at_vercel_too(fake: FakeVercel, adapter: VercelAdapter) -> None:
    adapter.exec(created(adapter), ExecRequest(command="true", timeout_seconds=20), 100)
    (body,) = bodies(fake, *CMD)
    assert body["timeout"] > 20_000
    assert (body["command"], body["wait"], body["logs"]) == ("/bin/sh", True, True)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 300_000])
def test_an_archive_holds_the_file_and_nothing_else(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    raw = b"".join(archive("file", size, [data[:7], data[7:]]))
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:gz") as packed:
        (member,) = packed.getmembers()
        held = packed.extractfile(member)
        assert held is not None
        assert (member.name, member.mode, held.read()) == ("file", 0o600, data)


# Egress, ports, secrets.


def test_rules_hold_for_this_session_and_for_those_to_come(fake: FakeVercel, adapter: VercelAdapter) -> None:
    target = created(adapter)
    rules = EgressRules(EgressAction.DENY, allow=("example.com", "203.0.113.7"))
    adapter.egress_set(target, rules)
    adapter.stop(target, SECONDS)
    adapter.start(target, SECONDS)
    sandbox = fake.sandboxes[sandbox_name(OWNER)]
    sent: JsonValue = {"allow": {"example.com": []}, "subnets": {"allow": ["203.0.113.7/32"]}}
    assert meant(sandbox.policy) == meant(sandbox.live_policy) == meant(sent)
    with pytest.raises(InvalidRequest):
        adapter.egress_set(target, EgressRules(EgressAction.ALLOW, deny=("10.0.0.0/8",)))


def test_rules_are_told_at_the_create_and_wrong_ones_make_nothing(fake: FakeVercel, adapter: VercelAdapter) -> None:
    created(adapter, egress=EgressRules(EgressAction.DENY))
    assert bodies(fake, *CREATE)[0]["networkPolicy"] == {"mode": "deny-all"}
    with pytest.raises(InvalidRequest):
        created(adapter, sandbox="sbx_b", egress=EgressRules(EgressAction.ALLOW, deny=("10.0.0.0/8",)))
    assert fake.count() == 1


def test_rules_that_vercel_tells_in_new_words_are_not_taken_for_ours(fake: FakeVercel, adapter: VercelAdapter) -> None:
    target = created(adapter)
    fake.sandboxes[sandbox_name(OWNER)].live_policy = {"mode": "mostly"}
    fake.ignores_rules = True
    with pytest.raises(ProviderUnavailable) as unsure:
        adapter.egress_set(target, EgressRules(EgressAction.DENY))
    assert not unsure.value.settled


def test_only_ports_of_the_pool_are_exposed(adapter: VercelAdapter, make: Make) -> None:
    target = created(adapter)
    with pytest.raises(UnsupportedOperation):
        adapter.port_expose(target, 8080, 60)
    opened = make(ports=[8080])
    second = created(opened, sandbox="sbx_b")
    assert opened.port_expose(second, 8080, 60).url.startswith("https://")
    with pytest.raises(InvalidRequest):
        opened.port_expose(second, 9090, 60)


def test_no_error_repeats_the_token_or_the_environment(fake: FakeVercel, adapter: VercelAdapter) -> None:
    target = created(adapter)
    for route, call in {
        CREATE: lambda: created(adapter, sandbox="sbx_b", env={"SECRET": "canary-of-the-caller"}),
        CMD: lambda: adapter.exec(target, ExecRequest(command="true", env={"S": "canary-of-the-caller"}), 100),
        ("GET", "/v2/sandboxes$"): lambda: adapter.list("inst_a"),
    }.items():
        for status in (400, 403, 500):
            befall(fake, route, reflect(status))
            with pytest.raises(DifferentlyError) as told:
                call()
            shown = f"{told.value!r} {told.value.details}"
            assert TOKEN not in shown
            assert "canary-of-the-caller" not in shown


def test_what_was_kept_and_has_expired_is_gone(fake: FakeVercel, adapter: VercelAdapter) -> None:
    target = created(adapter)
    befall(fake, ("GET", "/v2/sandboxes/[^/]+$"), say(410, "snapshot_not_found"))
    with pytest.raises(NotFound):
        adapter.get(target)
