"""What Morph does that nobody would expect, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters import registry
from differently_adapters.providers.morph import MorphAdapter
from differently_adapters.testing import a_create_request
from differently_core.contract import CreateRequest, InstanceState, Owner, SnapshotKind, SnapshotRequest, Target
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    NotFound,
    ProviderUnavailable,
)
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock, VirtualClock
from tests.conformance.adapters.morph_fake import FakeMorph
from tests.conformance.adapters.morph_fake.server import BASE_SNAPSHOT
from tests.conformance.adapters.stand_in.faults import drop_after, drop_before, edit, lose_completion, reflect
from tests.conformance.adapters.stand_in.http import Reply
from tests.conformance.adapters.test_morph import API_KEY, client, say

CREATE = ("POST", "/instance$")
SECONDS = 30.0
OWNER = Owner("inst_any", "sbx_a")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMorph]:
    fake = FakeMorph(tmp_path, api_key=API_KEY, keep_alive=False)
    yield fake
    fake.close()


@pytest.fixture
def adapter(fake: FakeMorph) -> Iterator[MorphAdapter]:
    adapter = client(fake)
    yield adapter
    adapter.close()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_any", sandbox)), **changes)


def creates(fake: FakeMorph) -> list[Any]:
    return [request for request in fake.requests if (request.method, request.path) == ("POST", "/api/instance")]


def test_a_create_says_whose_it_is_and_when_it_ends(fake: FakeMorph, adapter: MorphAdapter) -> None:
    made = adapter.create(wanted(ttl_seconds=3_600, env={"A": "it's"}), SECONDS)
    (sent,) = creates(fake)
    assert sent.one("snapshot_id") == BASE_SNAPSHOT
    assert sent.json() == {
        "metadata": {"differently-installation": "inst_any", "differently-sandbox-id": "sbx_a"},
        "ttl_seconds": 3_900,
        "ttl_action": "stop",
    }
    assert made.expires_at is not None
    assert adapter.exec(Target(OWNER, made.ref), ExecRequest(command="echo $A"), 100).stdout == b"it's\n"


def test_what_exists_is_not_made_again(fake: FakeMorph, adapter: MorphAdapter) -> None:
    assert adapter.create(wanted(), SECONDS).ref == adapter.create(wanted(), SECONDS).ref
    assert len(creates(fake)) == 1


def test_a_lost_create_is_looked_for_and_never_sent_again(fake: FakeMorph, adapter: MorphAdapter) -> None:
    fake.expect(*CREATE, drop_after)
    assert adapter.create(wanted(), SECONDS).state is InstanceState.RUNNING
    fake.expect(*CREATE, drop_before)
    with pytest.raises(ProviderUnavailable) as unknown:
        adapter.create(wanted("sbx_b"), SECONDS)
    assert not unknown.value.settled
    assert len(creates(fake)) == 2


def test_of_two_creates_that_overlapped_the_older_one_stays(fake: FakeMorph, adapter: MorphAdapter) -> None:
    """Morph gives a create no name and no key."""
    first: list[str] = []

    def beside(go: Callable[[], Reply], *_: Any) -> Reply:
        labels = {"differently-installation": "inst_any", "differently-sandbox-id": "sbx_a"}
        first.append(fake.plant(labels).box.id)
        return go()

    fake.expect(*CREATE, beside)
    assert adapter.create(wanted(), SECONDS).ref == first[0]
    assert list(fake.instances) == first


def test_a_stream_without_an_exit_code_is_no_success(fake: FakeMorph, adapter: MorphAdapter) -> None:
    """Morph's own client takes it for one; here the script tells how the command ended."""
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.loses_exit_codes = True
    assert adapter.exec(target, ExecRequest(command="exit 3"), 100).exit_code == 3
    fake.expect("POST", "/exec/sse$", lose_completion)
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ExecRequest(command="true"), 100)


def test_a_timeout_ends_the_command_in_the_sandbox(fake: FakeMorph, adapter: MorphAdapter) -> None:
    """Morph's own time limit is its client's alone, and the command goes on."""
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    ended = adapter.exec(target, ExecRequest(command="sleep 30 & echo $! > pid; wait", timeout_seconds=1), 100)
    assert (ended.exit_code, ended.timed_out) == (124, True)
    runs_on = "grep -q '^State:[[:space:]]*[^Z[:space:]]' /proc/$(cat pid)/status"  # one that nobody buried is dead too
    assert adapter.exec(target, ExecRequest(command=runs_on), 100).exit_code != 0


def test_a_restored_sandbox_has_its_own_environment_and_owner(fake: FakeMorph, adapter: MorphAdapter) -> None:
    source = Target(OWNER, adapter.create(wanted(env={"OF_SOURCE": "secret"}), SECONDS).ref)
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op"), SECONDS)
    assert taken.kind is SnapshotKind.MEMORY
    child = adapter.create(wanted("sbx_b", from_snapshot=taken.ref), SECONDS)
    target = Target(Owner("inst_any", "sbx_b"), child.ref)
    assert adapter.exec(target, ExecRequest(command='echo "$OF_SOURCE"'), 100).stdout == b"\n"
    with pytest.raises(NotFound):
        adapter.create(wanted("sbx_c", owner=Owner("inst_b", "sbx_c"), from_snapshot=taken.ref), SECONDS)


def test_a_snapshot_that_is_going_is_gone(fake: FakeMorph, adapter: MorphAdapter) -> None:
    source = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op"), SECONDS)
    fake.snapshots[taken.ref].status = "deleting"
    with pytest.raises(NotFound):
        adapter.snapshot_get(OWNER, taken.ref)
    adapter.snapshot_delete(OWNER, taken.ref)
    assert taken.ref in fake.snapshots


def test_a_list_that_moves_is_read_again(fake: FakeMorph, adapter: MorphAdapter) -> None:
    refs = {adapter.create(wanted(f"sbx_{number}"), SECONDS).ref for number in range(3)}
    fake.expect("GET", "/instance/list$", edit(lambda told: {**told, "instances": told["instances"][1:]}))
    assert {one.ref for one in adapter.list("inst_any")} == refs
    fake.expect("GET", "/instance/list$", edit(lambda told: {**told, "instances": told["instances"][1:]}), times=100)
    with pytest.raises(ProviderUnavailable, match="whole"):
        adapter.list("inst_any")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (402, InsufficientCapacity), (429, InsufficientCapacity), (400, InvalidRequest), (404, InvalidRequest),
        (401, ProviderUnavailable), (403, ProviderUnavailable), (500, ProviderUnavailable),
    ],
)  # fmt: skip
def test_a_refusal_is_told_by_its_kind(
    fake: FakeMorph, adapter: MorphAdapter, status: int, kind: type[DifferentlyError]
) -> None:
    fake.expect(*CREATE, say(status))
    with pytest.raises(kind) as failed:
        adapter.create(wanted(), SECONDS)
    if isinstance(failed.value, BackendError):
        assert failed.value.settled is (status != 500)


def test_no_error_tells_the_key(fake: FakeMorph, adapter: MorphAdapter) -> None:
    fake.expect(*CREATE, reflect(400))
    with pytest.raises(InvalidRequest) as failed:
        adapter.create(wanted(), SECONDS)
    assert API_KEY not in f"{failed.value!r} {failed.value.details}"


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"apiUrl": "http://a.example.test"}, "allowHttp"), ({"apiKey": "canary"}, "apiKey"), ({"snapshot": ""}, "snap")],
)
def test_a_configuration_that_cannot_work_is_refused_when_it_is_written(changes: dict[str, Any], field: str) -> None:
    told = {"snapshot": BASE_SNAPSHOT, **changes}
    with pytest.raises(InvalidRequest, match=field) as failed:
        registry.build("morph", told, pool="p", installation="inst_a", clock=VirtualClock(SystemClock().now()))
    assert "canary" not in str(failed.value)
