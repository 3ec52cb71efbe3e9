"""What Freestyle does that nobody would expect, and what the adapter makes of each."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters import registry
from differently_adapters.providers.freestyle import FreestyleAdapter
from differently_adapters.testing import a_create_request
from differently_core.contract import CreateRequest, InstanceState, Owner, SnapshotKind, SnapshotRequest, Target
from differently_core.errors import (
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock, VirtualClock
from tests.conformance.adapters.freestyle_fake import FakeFreestyle, refused
from tests.conformance.adapters.stand_in.faults import drop_after, drop_before, edit, reflect
from tests.conformance.adapters.test_freestyle import API_KEY, client, say

CREATE = ("POST", "^/v5/vms$")
SECONDS = 30.0
OWNER = Owner("inst_any", "sbx_a")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeFreestyle]:
    fake = FakeFreestyle(tmp_path, api_key=API_KEY, keep_alive=False)
    yield fake
    fake.close()


@pytest.fixture
def adapter(fake: FakeFreestyle) -> Iterator[FreestyleAdapter]:
    adapter = client(fake)
    yield adapter
    adapter.close()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_any", sandbox)), **changes)


def creates(fake: FakeFreestyle) -> list[dict[str, Any]]:
    return [request.json() for request in fake.requests if (request.method, request.path) == ("POST", "/v5/vms")]


def test_a_create_says_all_that_must_not_be_left_to_a_default(fake: FakeFreestyle, adapter: FreestyleAdapter) -> None:
    made = adapter.create(wanted(ttl_seconds=3_600, env={"A": "it's"}), SECONDS)
    (sent,) = creates(fake)
    assert sent.pop("slug").startswith("dfy-")
    assert sent == {
        "snapshotId": "freestyle/ubuntu-sm",
        "metadata": {"differently-installation": "inst_any", "differently-sandbox-id": "sbx_a"},
        "ttlSeconds": 3_900,
        "idleTimeoutSeconds": -1,
        "autoDeleteSeconds": -1,
        "maxRunSeconds": -1,
        "maxRunTotalSeconds": -1,
        "automaticRestart": False,
        "firewall": {"rules": []},
        "tls": {"rules": []},
        "vpcs": [],
    }
    assert adapter.exec(Target(OWNER, made.ref), ExecRequest(command="echo $A"), 100).stdout == b"it's\n"


def test_a_pool_says_whether_its_sandboxes_reach_the_internet(fake: FakeFreestyle) -> None:
    adapter = client(fake, egress="public")
    adapter.create(wanted(), SECONDS)
    adapter.close()
    rule = {"action": "allow", "source": {}, "destination": {"public": True}}
    assert creates(fake)[0]["firewall"] == {"rules": [rule]}


def test_a_restored_sandbox_has_its_own_environment_and_none_of_the_sources(
    fake: FakeFreestyle, adapter: FreestyleAdapter
) -> None:
    """The environment lies in a file, which a snapshot takes along."""
    source = Target(OWNER, adapter.create(wanted(env={"OF_SOURCE": "secret"}), SECONDS).ref)
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op"), SECONDS)
    assert taken.kind is SnapshotKind.MEMORY
    child = adapter.create(wanted("sbx_b", from_snapshot=taken.ref), SECONDS)
    target = Target(Owner("inst_any", "sbx_b"), child.ref)
    assert adapter.exec(target, ExecRequest(command='echo "$OF_SOURCE"'), 100).stdout == b"\n"
    with pytest.raises(NotFound):
        adapter.create(wanted("sbx_c", owner=Owner("inst_b", "sbx_c"), from_snapshot=taken.ref), SECONDS)


def test_a_name_that_somebody_else_took_is_not_taken_from_him(fake: FakeFreestyle, adapter: FreestyleAdapter) -> None:
    adapter.create(wanted(), SECONDS)
    (vm,) = fake.vms.values()
    vm.metadata = {}
    with pytest.raises(InvalidState):
        adapter.create(wanted(), SECONDS)
    assert len(fake.vms) == 1
    assert all("reassignSlug" not in body for body in creates(fake))


def test_a_long_command_is_followed_by_its_request_and_never_sent_again(
    fake: FakeFreestyle, adapter: FreestyleAdapter
) -> None:
    """Freestyle keeps a result for a while, so a look whose answer was lost is repeated."""
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.background_after = 0.01
    fake.expect("GET", "/background-requests/", drop_before)
    fake.expect("GET", "/background-requests/", lambda *_: refused(503, "UNAVAILABLE"))
    before = len(fake.requests)
    with contextlib.closing(client(fake, clock=SystemClock())) as patient:  # what is waited for takes its time
        done = patient.exec(target, ExecRequest(command="sleep 0.3; echo done; exit 3"), 100)
    assert (done.exit_code, done.stdout) == (3, b"done\n")
    sent = [request for request in fake.requests[before:] if request.path.endswith("/exec-await")]
    assert len(sent) == 1
    assert sent[0].headers["x-freestyle-background-after-secs"] == "20"


@pytest.mark.parametrize("fault", [drop_after, say(500, "INTERNAL"), edit(lambda told: {**told, "statusCode": None})])
def test_a_command_whose_end_was_not_seen_is_unconfirmed(
    fake: FakeFreestyle, adapter: FreestyleAdapter, fault: Any
) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.expect("POST", "/exec-await$", fault)
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ExecRequest(command="true"), 100)


def test_a_result_that_was_thrown_away_is_unconfirmed(fake: FakeFreestyle, adapter: FreestyleAdapter) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.background_after = 0.01
    fake.expect("GET", "/background-requests/", lambda *_: refused(404, "NOT_FOUND"))
    with pytest.raises(ExecUnconfirmed, match="no longer has"):
        adapter.exec(target, ExecRequest(command="sleep 0.2"), 100)


def test_a_stop_powers_off_from_inside_as_root(fake: FakeFreestyle, adapter: FreestyleAdapter) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.expect("POST", "/exec-await$", drop_after)
    assert adapter.stop(target, SECONDS).state is InstanceState.STOPPED
    assert fake.requests[-2].json() == {"command": "poweroff", "timeoutMs": 15_000, "linuxUser": "root"}


def test_a_list_that_moves_is_read_again(fake: FakeFreestyle, adapter: FreestyleAdapter) -> None:
    refs = {adapter.create(wanted(f"sbx_{number}"), SECONDS).ref for number in range(3)}
    fake.expect("GET", "^/v5/vms$", edit(lambda told: {**told, "vms": told["vms"][1:]}))
    assert {one.ref for one in adapter.list("inst_any")} == refs
    fake.expect("GET", "^/v5/vms$", edit(lambda told: {**told, "vms": told["vms"][1:]}), times=100)
    with pytest.raises(ProviderUnavailable, match="whole"):
        adapter.list("inst_any")


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (402, "PLAN_QUOTA_EXCEEDED", InsufficientCapacity), (403, "VM_LIMIT_REACHED", InsufficientCapacity),
        (429, "RATE_LIMITED", InsufficientCapacity), (503, "NO_CAPACITY", InsufficientCapacity),
        (400, "INVALID_SLUG", InvalidRequest), (401, "UNAUTHORIZED", ProviderUnavailable),
        (403, "FORBIDDEN", ProviderUnavailable), (500, "INTERNAL", ProviderUnavailable),
    ],
)  # fmt: skip
def test_a_refusal_is_told_by_its_code(
    fake: FakeFreestyle, adapter: FreestyleAdapter, status: int, code: str, kind: type[DifferentlyError]
) -> None:
    fake.expect(*CREATE, say(status, code))
    with pytest.raises(kind) as failed:
        adapter.create(wanted(), SECONDS)
    assert failed.value.details["reason"] == code
    assert getattr(failed.value, "settled", True) is (status != 500)


def test_no_error_tells_the_key_or_the_environment(fake: FakeFreestyle, adapter: FreestyleAdapter) -> None:
    fake.expect(*CREATE, reflect(400))
    with pytest.raises(InvalidRequest) as failed:
        adapter.create(wanted(env={"TOKEN": "canary-9d81"}), SECONDS)
    shown = f"{failed.value!r} {failed.value.details}"
    assert API_KEY not in shown
    assert "canary-9d81" not in shown


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"apiUrl": "http://api.example.test"}, "allowHttp"), ({"apiKey": "canary"}, "apiKey"),
        ({"linuxUser": "root; true"}, "linuxUser"), ({"egress": "some"}, "egress"), ({"features": ["x"]}, "features"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_work_is_refused_when_it_is_written(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field) as failed:
        registry.build("freestyle", changes, pool="p", installation="inst_a", clock=VirtualClock(SystemClock().now()))
    assert "canary" not in str(failed.value)
