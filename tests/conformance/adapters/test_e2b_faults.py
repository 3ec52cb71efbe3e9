"""What E2B and the ways to it were seen to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from differently_adapters import envd
from differently_adapters.providers.e2b import E2bAdapter, E2bConfig
from differently_adapters.providers.e2b.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    AdapterContext,
    CreateRequest,
    EgressAction,
    EgressRules,
    Operation,
    Owner,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Transition,
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
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model.exec import ExecRequest
from tests.conformance.adapters.e2b_fake import FakeE2b
from tests.conformance.adapters.e2b_fake.server import refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Fault, cut_body, drop_after, edit, html, redirect, reflect
from tests.conformance.adapters.stand_in.http import Reply

API_KEY = "e2b_key-of-the-operator"
CREATE = ("POST", "/sandboxes$")
START = ("POST", "/process.Process/Start$")
SECONDS = 30.0
Make = Callable[..., E2bAdapter]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeE2b]:
    fake = FakeE2b(tmp_path, api_key=API_KEY)
    yield fake
    fake.close()


@pytest.fixture
def make(fake: FakeE2b) -> Iterator[Make]:
    made: list[E2bAdapter] = []

    def make(**config: object) -> E2bAdapter:
        told = {"apiUrl": fake.url, "sandboxUrl": fake.url, "allowHttp": True, "allowLoopback": True, **config}
        context = AdapterContext("pool", "inst_a", E2bConfig.model_validate(told), QuickClock(), {"api_key": API_KEY})
        made.append(E2bAdapter(context))
        return made[-1]

    yield make
    for adapter in made:
        adapter.close()


@pytest.fixture
def adapter(make: Make) -> E2bAdapter:
    return make()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_a", sandbox)), **changes)


def created(adapter: E2bAdapter, **changes: Any) -> Target:
    request = wanted(**changes)
    return Target(request.owner, adapter.create(request, SECONDS).ref)


def befall(fake: FakeE2b, route: tuple[str, str], act: Any, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def say(status: int, message: str, code: str | None = None, **headers: str) -> Any:
    def act(*_: object) -> Reply:
        reply = refused(status, message, code)
        reply.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return reply

    return act


def bodies(fake: FakeE2b, method: str, path: str) -> list[Any]:
    return [asked.json() for asked in fake.requests if asked.method == method and re.search(path, asked.path)]


# Create.


def test_a_create_says_whose_it_is_and_keeps_ports_closed(fake: FakeE2b, adapter: E2bAdapter) -> None:
    created(adapter, ttl_seconds=600, env={"A": "1"}, image="tmpl1")
    assert bodies(fake, *CREATE) == [
        {
            "templateID": "tmpl1",
            "timeout": 900,
            "metadata": {KEY_INSTALLATION: "inst_a", KEY_SANDBOX: "sbx_a"},
            "envVars": {"A": "1"},
            "autoPause": False,
            "network": {"allowPublicTraffic": False},
        }
    ]
    (asked,) = (asked for asked in fake.requests if (asked.method, asked.path) == ("POST", "/v2/sandboxes"))
    assert re.fullmatch("[a-z0-9-]{1,255}", asked.headers["idempotency-key"])


def test_a_life_longer_than_the_plan_is_cut_to_it(fake: FakeE2b, adapter: E2bAdapter) -> None:
    created(adapter, ttl_seconds=86_400)
    assert bodies(fake, *CREATE)[0]["timeout"] == 3_600


def test_a_key_of_a_sandbox_that_is_gone_is_not_taken_for_a_new_one(fake: FakeE2b, adapter: E2bAdapter) -> None:
    first = created(adapter)
    adapter.delete(first)
    second = created(adapter)
    assert second.ref != first.ref
    assert fake.count() == 1


def test_a_create_whose_answer_was_a_page_of_a_proxy_is_looked_for(fake: FakeE2b, adapter: E2bAdapter) -> None:
    """e2b-dev/E2B#1038: 504 with a body that is no JSON."""
    befall(fake, CREATE, html(504))
    assert created(adapter).ref in fake.sandboxes
    assert len(bodies(fake, *CREATE)) == 1


@pytest.mark.parametrize(
    ("status", "message", "code", "error", "reason"),
    [
        (429, "you have reached the maximum number of concurrent E2B sandboxes (20)", None, InsufficientCapacity,
         "quota"),
        (429, "Rate limit exceeded", None, InsufficientCapacity, "rate_limited"),
        (503, "no room", "sandbox_capacity_unavailable", InsufficientCapacity, "sandbox_capacity_unavailable"),
        (504, "no node", "sandbox_placement_timeout", InsufficientCapacity, "sandbox_placement_timeout"),
        (500, "it failed", "sandbox_create_failed", SandboxFailed, "sandbox_create_failed"),
        (400, "no", "sandbox_create_refused", SandboxFailed, "sandbox_create_refused"),
        (409, "other", "idempotency_request_mismatch", InvalidState, "idempotency_request_mismatch"),
        (404, "template 'x' not found", None, InvalidRequest, None),
        (403, "you do not have access to this template", None, InvalidRequest, None),
        (403, "your account is blocked", None, ProviderUnavailable, None),
        (401, "Invalid API key", None, ProviderUnavailable, None),
        (400, "Timeout cannot be greater than 1 hours", None, InvalidRequest, None),
    ],
)  # fmt: skip
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeE2b, adapter: E2bAdapter, status: int, message: str, code: str | None,
    error: type[DifferentlyError], reason: str | None,
) -> None:  # fmt: skip
    befall(fake, CREATE, say(status, message, code, retry_after="7"))
    with pytest.raises(error) as told:
        created(adapter)
    assert type(told.value) is error
    assert told.value.details.get("reason") == reason
    assert told.value.details["retry_after_seconds"] == 7
    assert not isinstance(told.value, BackendError) or told.value.settled
    assert len(bodies(fake, *CREATE)) == 1


def test_a_create_under_way_under_the_same_key_is_waited_for(fake: FakeE2b, adapter: E2bAdapter) -> None:
    def meanwhile(go: Callable[[], Reply], *_: object) -> Reply:
        go()
        return refused(409, "a request with this key is in progress", "idempotency_in_progress")

    befall(fake, CREATE, meanwhile)
    assert created(adapter).ref in fake.sandboxes


def test_an_unknown_outcome_under_the_key_stays_unknown(fake: FakeE2b, adapter: E2bAdapter) -> None:
    befall(fake, CREATE, say(409, "unknown", "idempotency_outcome_unknown"))
    with pytest.raises(ProviderUnavailable) as told:
        created(adapter)
    assert not told.value.settled


def test_a_self_hosted_server_without_the_second_version_is_not_called_idempotent(fake: FakeE2b, make: Make) -> None:
    adapter = make(legacyCreate=True)
    created(adapter)
    assert not adapter.info().idempotent_create
    assert ("POST", "/sandboxes") in [(asked.method, asked.path) for asked in fake.requests]


# Whose it is.


def test_metadata_with_odd_values_finds_exactly_its_own(fake: FakeE2b, adapter: E2bAdapter) -> None:
    """Sheet: keys and values of the filter are quoted twice."""
    odd = Owner("inst a/b&c=%41", "sbx_é+?")
    planted = fake.plant({KEY_INSTALLATION: odd.installation, KEY_SANDBOX: odd.sandbox})
    assert adapter.get(Target(odd)).ref == planted.box.id
    assert [seen.owner for seen in adapter.list(odd.installation)] == [odd]


def test_a_list_is_read_to_its_end_among_thousands_of_others(fake: FakeE2b, adapter: E2bAdapter) -> None:
    ours = created(adapter)
    fake.ignores_metadata = True
    template = next(iter(fake.sandboxes.values()))
    for number in range(2_000):
        box = dataclasses.replace(template.box, id=f"i{number:019}")
        fake.sandboxes[box.id] = dataclasses.replace(template, box=box, metadata={KEY_INSTALLATION: "inst_b"})
    assert [seen.ref for seen in adapter.list("inst_a")] == [ours.ref]
    fake.sandboxes = {ours.ref or "": template}


# Time.


def test_a_renewal_never_shortens(fake: FakeE2b, adapter: E2bAdapter) -> None:
    target = created(adapter, ttl_seconds=3_000)
    before = adapter.get(target).expires_at
    assert before is not None
    assert adapter.renew(target, before - timedelta(minutes=20)) == before
    assert bodies(fake, "POST", "/timeout$") == []


def test_a_resume_says_how_long(fake: FakeE2b, make: Make) -> None:
    """e2b-dev/E2B#1055: without a timeout a resumed sandbox lives five minutes."""
    adapter = make(timeoutSecondsMax=1_800)
    target = created(adapter)
    adapter.pause(target, Transition("a", adapter.get(target).incarnation), SECONDS)
    adapter.resume(target, Transition("b", adapter.get(target).incarnation), SECONDS)
    assert bodies(fake, "POST", "/connect$") == [{"timeout": 1_800}]


def test_paused_already_is_success(fake: FakeE2b, adapter: E2bAdapter) -> None:
    target = created(adapter)
    named = adapter.get(target).incarnation
    befall(fake, ("POST", "/pause$"), drop_after)
    with pytest.raises(ProviderUnavailable) as lost:
        adapter.pause(target, Transition("a", named), SECONDS)
    assert not lost.value.settled
    assert adapter.pause(target, Transition("a", named), SECONDS).progress == "done"


# Inside.


def framed(*messages: Any) -> bytes:
    return b"".join(envd.frame(message, flags) for message, flags in messages)


@pytest.mark.parametrize(
    ("body", "error", "settled"),
    [
        (b"", ExecUnconfirmed, False),
        (framed(({"event": {"start": {"pid": 1}}}, 0), ({}, 2)), ExecUnconfirmed, False),
        (framed(({"error": {"code": "invalid_argument", "message": "x"}}, 2)), ProviderUnavailable, True),
        (framed(({"error": {"code": "unauthenticated", "message": "x"}}, 2)), ProviderUnavailable, True),
        (framed(({"error": {"code": "unavailable", "message": "x"}}, 2)), ExecUnconfirmed, False),
        (framed(({"event": {"start": {"pid": 1}}}, 0), ({"error": {"code": "invalid_argument"}}, 2)),
         ExecUnconfirmed, False),
        (framed(({"event": {"data": {"stdout": "no base64!"}}}, 0)), ExecUnconfirmed, False),
        (framed(({}, 1)), ExecUnconfirmed, False),
        (b"\x00\xff\xff\xff\xff", ExecUnconfirmed, False),
        (b"\x00\x00\x00\x00\x03{x}", ExecUnconfirmed, False),
        (b"\x00\x00\x00\x00\x30{", ExecUnconfirmed, False),
    ],
)  # fmt: skip
def test_a_stream_without_its_end_is_never_an_exit(
    fake: FakeE2b, adapter: E2bAdapter, body: bytes, error: type[BackendError], settled: bool
) -> None:
    """The status is 200 whatever happened; an exit code that was left out is 0 only in an `end` event."""
    target = created(adapter)
    headers = {"content-type": "application/connect+json"}
    befall(fake, START, lambda *_: Reply(200, body, headers))
    with pytest.raises(error) as told:
        adapter.exec(target, ExecRequest(command="true"), 100)
    assert told.value.settled is settled


def test_frames_are_put_together_however_they_are_cut() -> None:
    whole = framed(({"a": 1}, 0), ({"b": 2}, 2))
    assert list(envd.frames(whole[at : at + 1] for at in range(len(whole)))) == [(0, {"a": 1}), (2, {"b": 2})]


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (502, "The sandbox was not found", NotFound),
        (502, "The sandbox is running but port is not open", ProviderUnavailable),
        (401, "unauthorized access token", ProviderUnavailable),
        (503, "x", ExecUnconfirmed),
    ],
)
def test_the_proxy_before_the_agent_means_several_things_by_one_status(
    fake: FakeE2b, adapter: E2bAdapter, status: int, message: str, error: type[DifferentlyError]
) -> None:
    target = created(adapter)
    befall(fake, START, say(status, message))
    with pytest.raises(error) as told:
        adapter.exec(target, ExecRequest(command="true"), 100)
    assert type(told.value) is error


def test_a_child_that_holds_the_pipes_does_not_hold_the_answer(adapter: E2bAdapter) -> None:
    """envd ends a stream only when the last holder of its pipes is gone."""
    target = created(adapter)
    result = adapter.exec(target, ExecRequest(command="sleep 30 & echo now", timeout_seconds=20), 100)
    assert (result.stdout, result.timed_out) == (b"now\n", False)


def test_input_is_closed_and_never_left_out(fake: FakeE2b, adapter: E2bAdapter) -> None:
    """envd leaves the input open when nothing is said of it."""
    adapter.exec(created(adapter), ExecRequest(command="cat"), 100)
    (asked,) = (asked for asked in fake.requests if asked.path.endswith("Start"))
    assert json.loads(asked.body[5:])["stdin"] is False
    assert int(asked.headers["connect-timeout-ms"]) >= 60_000


def test_a_file_that_was_cut_is_an_error(fake: FakeE2b, adapter: E2bAdapter) -> None:
    target = created(adapter)
    adapter.file_write(target, "file", [b"0123456789"])
    befall(fake, ("GET", "/files$"), cut_body(4))
    with pytest.raises(BackendError):
        b"".join(adapter.file_read(target, "file").chunks)


@pytest.mark.parametrize("domain", ["169.254.169.254", "localhost", "evil.example/path?", "10.0.0.1"])
def test_a_domain_that_the_service_tells_leads_nowhere_that_is_not_public(
    fake: FakeE2b, make: Make, domain: str
) -> None:
    adapter = make(sandboxUrl=None, allowLoopback=True)
    target = created(adapter)
    befall(fake, ("GET", "/sandboxes/[^/]+$"), edit(lambda body: {**body, "domain": domain}), 5)
    with pytest.raises((InvalidRequest, ProviderUnavailable)):
        adapter.exec(target, ExecRequest(command="true"), 100)


# Egress, ports, snapshots.


def test_rules_that_e2b_reads_otherwise_are_refused(fake: FakeE2b, adapter: E2bAdapter) -> None:
    target = created(adapter)
    for rules in (
        EgressRules(EgressAction.ALLOW, deny=("example.com",)),
        EgressRules(EgressAction.DENY, allow=("10.0.0.0/8",), deny=("10.1.0.0/16",)),
    ):
        with pytest.raises(InvalidRequest):
            adapter.egress_set(target, rules)
    assert bodies(fake, "PUT", "/network$") == []
    adapter.egress_set(target, EgressRules(EgressAction.DENY, allow=("example.com", "203.0.113.7")))
    assert bodies(fake, "PUT", "/network$") == [
        {"allowOut": ["example.com", "203.0.113.7/32"], "denyOut": ["0.0.0.0/0"]}
    ]


def test_rules_are_told_at_the_create_and_wrong_ones_make_nothing(fake: FakeE2b, adapter: E2bAdapter) -> None:
    created(adapter, egress=EgressRules(EgressAction.DENY, allow=("example.com",)))
    assert bodies(fake, *CREATE)[0]["network"] == {
        "allowPublicTraffic": False, "allowOut": ["example.com"], "denyOut": ["0.0.0.0/0"]
    }  # fmt: skip
    for peer in ("::/0", "evil.example"):
        with pytest.raises(InvalidRequest):
            created(adapter, sandbox="sbx_b", egress=EgressRules(EgressAction.ALLOW, deny=(peer,)))
    assert fake.count() == 1


def test_ports_are_closed_unless_the_pool_opens_them(adapter: E2bAdapter, make: Make) -> None:
    target = created(adapter)
    with pytest.raises(UnsupportedOperation):
        adapter.port_expose(target, 8080, 60)
    opened = make(publicPorts=True, domain="boxes.example")
    assert opened.port_expose(target, 8080, 60).url == f"https://8080-{target.ref}.boxes.example"
    with pytest.raises(InvalidRequest):
        opened.port_expose(target, 49983, 60)


def test_a_snapshot_that_is_in_use_says_so(adapter: E2bAdapter) -> None:
    """E2B answers 400 while a sandbox that was made from it runs."""
    source = created(adapter)
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op"), SECONDS)
    assert taken.kind is SnapshotKind.MEMORY
    child = created(adapter, sandbox="sbx_b", from_snapshot=taken.ref)
    with pytest.raises(InvalidState):
        adapter.snapshot_delete(source.owner, taken.ref)
    adapter.delete(child)
    adapter.snapshot_delete(source.owner, taken.ref)


# Secrets and configuration.


def test_no_error_repeats_a_key_or_a_token(fake: FakeE2b, adapter: E2bAdapter) -> None:
    target = created(adapter)
    token = fake.sandboxes[target.ref or ""].token
    for route, call in {
        CREATE: lambda: created(adapter, sandbox="sbx_b"),
        START: lambda: adapter.exec(target, ExecRequest(command="true"), 100),
        ("DELETE", "/sandboxes/"): lambda: adapter.delete(target),
        ("GET", "/sandboxes$"): lambda: adapter.list("inst_a"),
    }.items():
        for status in (400, 403, 500):
            befall(fake, route, reflect(status))
            with pytest.raises(DifferentlyError) as told:
                call()
            shown = f"{told.value!r} {told.value.details}"
            assert API_KEY not in shown
            assert token not in shown


def test_a_refused_create_does_not_quote_the_environment(fake: FakeE2b, adapter: E2bAdapter) -> None:
    befall(fake, CREATE, say(400, "cannot use envVars {A: canary-of-the-caller}"))
    with pytest.raises(InvalidRequest) as told:
        created(adapter, env={"A": "canary-of-the-caller"})
    assert "canary" not in f"{told.value!r} {told.value.details}"


def test_a_redirect_is_not_followed_with_the_key(fake: FakeE2b, adapter: E2bAdapter) -> None:
    befall(fake, ("GET", "/sandboxes$"), redirect("http://127.0.0.1:9/steal"))
    with pytest.raises(ProviderUnavailable):
        adapter.health()


@pytest.mark.parametrize(
    "config",
    [
        {"domain": "e2b.app/x"}, {"apiUrl": "http://api.example"}, {"apiUrl": "https://127.0.0.1"},
        {"sandboxUrl": "https://user:pw@host.example"}, {"features": ["made-up"]}, {"api_key": "x"},
        {"timeoutSecondsMax": 5},
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_work_is_refused(config: dict[str, object]) -> None:
    with pytest.raises((ValidationError, InvalidRequest)):
        E2bConfig.model_validate(config)


def test_the_operations_of_a_pool_follow_its_configuration(make: Make) -> None:
    assert make().operations[Operation.PORT_EXPOSE] != make(publicPorts=True).operations[Operation.PORT_EXPOSE]
    assert "ports.expose" not in make().capabilities().features
