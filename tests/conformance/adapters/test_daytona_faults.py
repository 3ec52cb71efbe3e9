"""What Daytona and the ways to it were seen to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.daytona import DaytonaAdapter, DaytonaConfig
from differently_adapters.providers.daytona.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    AdapterContext,
    CreateRequest,
    EgressAction,
    EgressRules,
    InstanceState,
    Owner,
    SnapshotKind,
    SnapshotRequest,
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
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model.exec import ExecRequest
from tests.conformance.adapters.daytona_fake import FakeDaytona
from tests.conformance.adapters.daytona_fake.server import refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Fault, drop_after, edit, html, reflect
from tests.conformance.adapters.stand_in.http import Reply

API_KEY = "dtn_key-of-the-operator"
CREATE = ("POST", "/sandbox$")
EXECUTE = ("POST", "/process/execute$")
SECONDS = 30.0
Make = Callable[..., DaytonaAdapter]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDaytona]:
    fake = FakeDaytona(tmp_path, api_key=API_KEY)
    yield fake
    fake.close()


@pytest.fixture
def make(fake: FakeDaytona) -> Iterator[Make]:
    made: list[DaytonaAdapter] = []

    def make(**config: object) -> DaytonaAdapter:
        told = {"apiUrl": f"{fake.url}/api", "allowHttp": True, "allowLoopback": True, **config}
        context = AdapterContext(
            "pool", "inst_a", DaytonaConfig.model_validate(told), QuickClock(), {"api_key": API_KEY}
        )
        made.append(DaytonaAdapter(context))
        return made[-1]

    yield make
    for adapter in made:
        adapter.close()


@pytest.fixture
def adapter(make: Make) -> DaytonaAdapter:
    return make()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_a", sandbox)), **changes)


OWNER = wanted().owner


def created(adapter: DaytonaAdapter, **changes: Any) -> Target:
    request = wanted(**changes)
    return Target(request.owner, adapter.create(request, SECONDS).ref)


def befall(fake: FakeDaytona, route: tuple[str, str], act: Any, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def say(status: int, message: str, **headers: str) -> Any:
    def act(*_: object) -> Reply:
        reply = refused(status, message)
        reply.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return reply

    return act


def bodies(fake: FakeDaytona, method: str, path: str) -> list[Any]:
    return [asked.json() for asked in fake.requests if asked.method == method and re.search(path, asked.path)]


def test_a_create_says_whose_it_is_how_long_it_lives_and_that_it_never_sleeps(fake: FakeDaytona, make: Make) -> None:
    created(make(target="eu", snapshot="base"), ttl_seconds=3_601, env={"A": "1"})
    assert bodies(fake, *CREATE) == [
        {
            "name": sandbox_name(OWNER),
            "labels": {KEY_INSTALLATION: "inst_a", KEY_SANDBOX: "sbx_a"},
            "env": {"A": "1"},
            "public": False,
            "autoStopInterval": 0,
            "autoDeleteInterval": -1,
            "ttlMinutes": 66,
            "target": "eu",
            "snapshot": "base",
        }
    ]


def test_an_image_is_built_with_the_size_that_was_asked_for(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    created(adapter, image="python:3.12")
    (body,) = bodies(fake, *CREATE)
    assert body["buildInfo"] == {"dockerfileContent": "FROM python:3.12\n"}
    assert (body["cpu"], body["memory"], body["disk"]) == (1, 1, 1)
    assert "snapshot" not in body
    with pytest.raises(InvalidRequest):
        created(adapter, sandbox="sbx_b", image="python\nRUN true")


@pytest.mark.parametrize(
    ("status", "message", "error", "reason"),
    [
        (400, "Total CPU limit exceeded. Maximum allowed: 10.", InsufficientCapacity, "quota"),
        (400, "CPU request 65 exceeds maximum allowed per sandbox (64)", InvalidRequest, None),
        (400, "No available runners", InsufficientCapacity, "no_runners"),
        (400, "Snapshot x not found", InvalidRequest, None),
        (403, "Organization is suspended", ProviderUnavailable, None),
        (401, "Invalid credentials", ProviderUnavailable, None),
        (422, "unsupported for class", InvalidRequest, None),
        (429, "Too Many Requests", InsufficientCapacity, "rate_limited"),
    ],
)
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeDaytona, adapter: DaytonaAdapter, status: int, message: str, error: type[DifferentlyError],
    reason: str | None,
) -> None:  # fmt: skip
    """Caps of the organization and of one sandbox, and everything wrong with a request, are all 400."""
    befall(fake, CREATE, say(status, message, retry_after_sandbox_create="7"))
    with pytest.raises(error) as told:
        created(adapter)
    assert type(told.value) is error
    assert told.value.details.get("reason") == reason
    assert told.value.details["retry_after_seconds"] == 7
    assert not isinstance(told.value, BackendError) or told.value.settled


def test_a_name_that_is_taken_is_ours_or_it_is_not(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    fake.plant(sandbox_name(OWNER), {KEY_INSTALLATION: "inst_b", KEY_SANDBOX: "sbx_a"})
    with pytest.raises(InvalidState):
        created(adapter)
    assert fake.count() == 1


@pytest.mark.parametrize("act", [drop_after, html(504)])
def test_a_create_whose_answer_was_lost_is_found_by_its_name(
    fake: FakeDaytona, adapter: DaytonaAdapter, act: Any
) -> None:
    befall(fake, CREATE, act)
    assert created(adapter).ref in fake.sandboxes
    assert len(bodies(fake, *CREATE)) == 1


def test_a_sandbox_that_fails_is_the_callers_to_remove(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    """daytonaio/daytona#5142: one in error counts against the quota until it is deleted."""
    fake.next_fails = True
    with pytest.raises(SandboxFailed) as failed:
        created(adapter)
    assert not failed.value.settled
    assert adapter.get(Target(OWNER)).state is InstanceState.ERROR
    adapter.delete(Target(OWNER))
    assert fake.count() == 0


def test_states_that_are_new_to_us_are_no_information(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    target = created(adapter)
    befall(fake, ("GET", "/sandbox/[^/]+$"), edit(lambda body: {**body, "state": "defragmenting"}))
    assert adapter.get(target).state is InstanceState.PENDING


def test_a_delete_that_goes_on_for_long_is_no_success(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    """daytonaio/daytona#3294: deleting for hours, while the quota is held."""
    target = created(adapter)
    fake.reads_until_gone = 1_000
    with pytest.raises(ProviderUnavailable) as going:
        adapter.delete(target)
    assert not going.value.settled
    assert adapter.get(target).state is InstanceState.STOPPED
    fake.sandboxes[target.ref or ""].turns = ["destroying", ""]
    adapter.delete(target)
    assert fake.count() == 0


def test_a_renewal_counts_from_the_creation_and_never_shortens(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    target = created(adapter, ttl_seconds=3_000)
    before = adapter.get(target).expires_at
    assert before is not None
    assert adapter.renew(target, before - timedelta(minutes=20)) == before
    assert adapter.renew(target, before + timedelta(minutes=10, seconds=59)) == before + timedelta(minutes=10)
    assert [asked.path for asked in fake.requests if "/ttl/" in asked.path] == [f"/api/sandbox/{target.ref}/ttl/65"]


def test_a_transition_under_way_is_watched_and_not_repeated(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    """daytonaio/daytona#4307: 409 now, 400 before."""
    target = created(adapter)
    for status in (409, 400):
        fake.sandboxes[target.ref or ""].turns = ["started"]

        def meanwhile(go: Callable[[], Reply], *_: object, status: int = status) -> Reply:
            go()
            return refused(status, "Sandbox state change in progress")

        befall(fake, ("POST", "/stop$"), meanwhile)
        assert adapter.stop(target, SECONDS).state is InstanceState.STOPPED
        assert adapter.start(target, SECONDS).state is InstanceState.RUNNING


# Inside.


def test_a_command_of_the_toolbox_has_a_timeout_and_closed_input(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    """Its words are fed to a shell, so what reads input would eat the rest of them."""
    result = adapter.exec(created(adapter), ExecRequest(command="cat; echo on; echo err >&2", timeout_seconds=20), 100)
    assert (result.stdout, result.stderr) == (b"on\n", b"err\n")
    (body,) = bodies(fake, *EXECUTE)
    assert body["timeout"] > 20
    assert body["command"].endswith("</dev/null")


@pytest.mark.parametrize(
    ("act", "error", "settled"),
    [
        (say(408, "command execution timeout"), ExecUnconfirmed, False),
        (say(500, "x"), ExecUnconfirmed, False),
        (html(502), ExecUnconfirmed, False),
        (drop_after, ExecUnconfirmed, False),
        (edit(lambda body: {"exitCode": -1, "result": ""}), ProviderUnavailable, True),
        (edit(lambda body: {"exitCode": 0, "result": "command not found"}), ExecUnconfirmed, False),
        (edit(lambda body: {"result": body["result"][:-20]}), ExecUnconfirmed, False),
    ],
)
def test_a_command_whose_end_is_not_told_is_unconfirmed(
    fake: FakeDaytona, adapter: DaytonaAdapter, act: Any, error: type[BackendError], settled: bool
) -> None:
    target = created(adapter)
    befall(fake, EXECUTE, act)
    with pytest.raises(error) as told:
        adapter.exec(target, ExecRequest(command="true"), 100)
    assert type(told.value) is error
    assert told.value.settled is settled


def test_a_long_command_goes_through_a_file(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    target = created(adapter)
    assert (
        adapter.exec(target, ExecRequest(command="cat", stdin="é" * 200_000), 1_000_000).stdout
        == "é".encode() * 200_000
    )
    assert [asked.path for asked in fake.requests if "bulk-upload" in asked.path] != []


@pytest.mark.parametrize("url", ["http://169.254.169.254/toolbox", "ftp://x.example", "", "https://u:p@x.example"])
def test_a_toolbox_that_the_service_tells_is_nowhere_that_may_not_be_reached(
    fake: FakeDaytona, adapter: DaytonaAdapter, url: str
) -> None:
    target = created(adapter)
    befall(fake, ("GET", "/sandbox/[^/]+$"), edit(lambda body: {**body, "toolboxProxyUrl": url}))
    with pytest.raises((InvalidRequest, ProviderUnavailable)):
        adapter.exec(target, ExecRequest(command="true"), 100)


# Snapshots and egress.


def test_a_capture_that_leaves_no_record_has_failed(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    """daytonaio/daytona#4990: nothing tells that it failed."""
    target = created(adapter)
    fake.captures_fail = True
    with pytest.raises(SandboxFailed) as failed:
        adapter.snapshot(target, SnapshotRequest(SnapshotKind.DISK, "op"), SECONDS)
    assert failed.value.settled
    with pytest.raises(UnsupportedOperation):
        adapter.snapshot(target, SnapshotRequest(SnapshotKind.MEMORY, "op"), SECONDS)


def test_a_snapshot_is_deleted_by_its_id_and_one_that_goes_is_gone(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    target = created(adapter)
    taken = adapter.snapshot(target, SnapshotRequest(SnapshotKind.DISK, "op"), SECONDS)
    identity = fake.snapshots[taken.ref].id
    fake.snapshots[taken.ref].state = "removing"
    with pytest.raises(NotFound):
        adapter.snapshot_get(OWNER, taken.ref)
    fake.snapshots[taken.ref].state = "active"
    adapter.snapshot_delete(OWNER, taken.ref)
    assert f"/api/snapshots/{identity}" in [asked.path for asked in fake.requests if asked.method == "DELETE"]


def test_rules_that_daytona_cannot_hold_are_refused(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    target = created(adapter)
    for rules in (
        EgressRules(EgressAction.ALLOW, deny=("10.0.0.0/8",)),
        EgressRules(EgressAction.DENY, allow=("2001:db8::/32",)),
    ):
        with pytest.raises(InvalidRequest):
            adapter.egress_set(target, rules)
    adapter.egress_set(target, EgressRules(EgressAction.DENY))
    adapter.egress_set(target, EgressRules(EgressAction.DENY, allow=("example.com", "203.0.113.7")))
    adapter.egress_set(target, EgressRules(EgressAction.ALLOW))
    assert bodies(fake, "POST", "/network-settings$") == [
        {"networkBlockAll": True, "networkAllowList": "", "domainAllowList": ""},
        {"networkBlockAll": False, "networkAllowList": "203.0.113.7/32", "domainAllowList": "example.com"},
        {"networkBlockAll": False, "networkAllowList": "", "domainAllowList": ""},
    ]


def test_rules_are_told_at_the_create_and_wrong_ones_make_nothing(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    created(adapter, egress=EgressRules(EgressAction.DENY))
    assert bodies(fake, *CREATE)[0]["networkBlockAll"] is True
    with pytest.raises(InvalidRequest):
        created(adapter, sandbox="sbx_b", egress=EgressRules(EgressAction.ALLOW, deny=("10.0.0.0/8",)))
    assert fake.count() == 1


def test_no_error_repeats_the_key_or_the_environment(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    target = created(adapter)
    for route, call in {
        CREATE: lambda: created(adapter, sandbox="sbx_b", env={"SECRET": "canary-of-the-caller"}),
        EXECUTE: lambda: adapter.exec(target, ExecRequest(command="true", env={"S": "canary-of-the-caller"}), 100),
        ("GET", "/sandbox$"): lambda: adapter.list("inst_a"),
    }.items():
        for status in (403, 500):
            befall(fake, route, reflect(status))
            with pytest.raises(DifferentlyError) as told:
                call()
            shown = f"{told.value!r} {told.value.details}"
            assert API_KEY not in shown
            assert "canary-of-the-caller" not in shown


def test_a_filter_is_told_as_json(fake: FakeDaytona, adapter: DaytonaAdapter) -> None:
    created(adapter)
    assert len(adapter.list("inst_a")) == 1
    asked = fake.requests[-1]
    assert json.loads(asked.one("labels")) == {KEY_INSTALLATION: "inst_a"}
    assert asked.one("limit") == "200"
