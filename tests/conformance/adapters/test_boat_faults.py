"""What Boat does that nobody would expect, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from differently_adapters import registry
from differently_adapters.providers.boat import BoatAdapter
from differently_adapters.providers.boat.names import machine_name, snapshot_name
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    Capacity,
    CreateRequest,
    InstanceState,
    Owner,
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
    Target,
)
from differently_core.errors import (
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock, VirtualClock
from tests.conformance.adapters.boat_fake import FakeBoat
from tests.conformance.adapters.stand_in.faults import Go, drop_after, edit, reflect
from tests.conformance.adapters.stand_in.http import Reply, Request
from tests.conformance.adapters.test_boat import API_KEY, client, say

CREATE = ("POST", "^/sandboxes$")
SECONDS = 30.0
OWNER = Owner("inst_any", "sbx_a")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeBoat]:
    fake = FakeBoat(tmp_path, api_key=API_KEY, keep_alive=False)
    yield fake
    fake.close()


@pytest.fixture
def adapter(fake: FakeBoat) -> Iterator[BoatAdapter]:
    adapter = client(fake)
    yield adapter
    adapter.close()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_any", sandbox)), **changes)


def creates(fake: FakeBoat) -> list[Request]:
    return [request for request in fake.requests if (request.method, request.path) == ("POST", "/sandboxes")]


def test_a_create_says_all_that_must_not_be_left_to_the_account(fake: FakeBoat) -> None:
    adapter = client(fake, org="team_1")
    made = adapter.create(wanted(env={"A": "it's"}), SECONDS)
    (sent,) = creates(fake)
    assert sent.json() == {
        "name": "differently/inst_any/sbx_a",
        "type": "default",
        "ttlSeconds": 3_900,
        "env": {"A": "it's", "DIFFERENTLY_SANDBOX": "sbx_a"},
        "noEnv": True,
        "snapshots": True,
        "monitoring": False,
        "visibility": "private",
        "failFast": False,
    }
    assert {request.headers["x-boat-org"] for request in fake.requests} == {"team_1"}
    assert adapter.exec(Target(OWNER, made.ref), ExecRequest(command="echo $A"), 100).stdout == b"it's\n"
    adapter.close()


def test_a_create_is_sent_again_only_while_the_first_is_being_made(fake: FakeBoat, adapter: BoatAdapter) -> None:
    fake.expect(*CREATE, say(409, "idempotency_in_progress"), times=2)
    adapter.create(wanted(), SECONDS)
    assert len({request.headers["idempotency-key"] for request in creates(fake)}) == 1
    assert len(creates(fake)) == 3


def test_another_body_under_the_same_key_finds_the_first_machine(fake: FakeBoat, adapter: BoatAdapter) -> None:
    first = adapter.create(wanted(), SECONDS)
    assert adapter.create(wanted(ttl_seconds=60), SECONDS).ref == first.ref
    adapter.delete(Target(OWNER, first.ref))
    with pytest.raises(InvalidState):
        adapter.create(wanted(ttl_seconds=90), SECONDS)
    assert fake.count() == 0


def test_what_was_accepted_and_found_no_machine_fails_the_sandbox(fake: FakeBoat, adapter: BoatAdapter) -> None:
    """A cancelled machine is told once, without its name, and is missing after that."""
    fake.create_turns = ["cancelled"]
    with pytest.raises(SandboxFailed):
        adapter.create(wanted(), SECONDS)
    assert fake.count() == 0
    with pytest.raises(SandboxFailed):
        adapter.create(wanted(), SECONDS)


def test_deleting_a_machine_that_was_cancelled_succeeds(fake: FakeBoat, adapter: BoatAdapter) -> None:
    """It is told without the name that says whose it is, and is gone."""
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.machines[str(target.ref)].state = "cancelled"
    adapter.delete(target)
    with pytest.raises(NotFound):
        adapter.get(target)


def test_a_colleague_cannot_give_his_machine_our_name(fake: FakeBoat, adapter: BoatAdapter) -> None:
    planted = fake.plant(machine_name(OWNER), access="use")
    assert adapter.list("inst_any") == []
    with pytest.raises(NotFound):
        adapter.get(Target(OWNER, planted.box.id))
    adapter.delete(Target(OWNER))
    assert fake.count() == 1


@pytest.mark.parametrize(
    "name", [snapshot_name(Owner("inst_any", "sbx_b"), "op"), "bsh_share-code", "../me", "Upper", "-dash"]
)
def test_an_image_is_no_capture_of_ours_and_no_share_of_somebody_elses(
    fake: FakeBoat, adapter: BoatAdapter, name: str
) -> None:
    """Names of captures can be computed, so an image must not reach them."""
    with pytest.raises(InvalidRequest):
        adapter.create(wanted(image=name), SECONDS)
    assert creates(fake) == []


def test_a_restored_sandbox_has_its_own_environment_and_none_of_the_sources(
    fake: FakeBoat, adapter: BoatAdapter
) -> None:
    """Boat hands the source's environment on to what names none of its own."""
    source = Target(OWNER, adapter.create(wanted(env={"OF_SOURCE": "secret"}), SECONDS).ref)
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op"), SECONDS)
    child = adapter.create(wanted("sbx_b", from_snapshot=taken.ref), SECONDS)
    target = Target(Owner("inst_any", "sbx_b"), child.ref)
    assert adapter.exec(target, ExecRequest(command='echo "$OF_SOURCE"'), 100).stdout == b"\n"
    with pytest.raises(NotFound):
        adapter.create(wanted("sbx_c", owner=Owner("inst_b", "sbx_c"), from_snapshot=taken.ref), SECONDS)


def test_a_capture_that_is_asked_for_again_is_not_replaced(fake: FakeBoat, adapter: BoatAdapter) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.expect("POST", "^/saved-snapshots$", drop_after)
    request = SnapshotRequest(SnapshotKind.DISK, "op")
    assert adapter.snapshot(target, request, SECONDS).state is SnapshotState.READY
    assert adapter.snapshot(target, request, SECONDS).state is SnapshotState.READY
    assert sum(one.method == "POST" and one.path == "/saved-snapshots" for one in fake.requests) == 1


def test_a_reader_who_lost_his_connection_comes_back_to_the_byte(fake: FakeBoat, adapter: BoatAdapter) -> None:
    """The command is started once, and what it wrote meanwhile arrives once."""
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.expect("GET", "/stream$", _cut_after(2), times=2)
    fake.attached_seconds = 0.2
    done = adapter.exec(target, ExecRequest(command="echo one; sleep 0.5; echo two; exit 3"), 100)
    assert (done.exit_code, done.stdout) == (3, b"one\ntwo\n")
    assert sum(request.path.endswith("/commands") for request in fake.requests) == 1


def _cut_after(lines: int) -> Any:
    def act(go: Go, request: Request, closing: Event) -> Reply:
        reply = go()
        whole = iter(reply.stream or ())

        def cut() -> Iterator[bytes]:
            for _ in range(lines):
                yield next(whole)
            yield b""

        reply.stream = cut()
        return reply

    return act


def _says(frame: dict[str, Any]) -> Any:
    return lambda go, request, closing: Reply(
        200, b"", {"content-type": "application/x-ndjson"}, stream=[json.dumps(frame).encode() + b"\n"]
    )


@pytest.mark.parametrize(
    ("path", "method", "fault"),
    [
        ("/commands$", "POST", drop_after), ("/commands$", "POST", say(502, "boat_direct_failed")),
        ("/commands$", "POST", edit(lambda told: {**told, "processId": None})),
        ("/stream$", "GET", say(404, "not_found")), ("/stream$", "GET", _says({"type": "exit", "status": "lost"})),
        ("/stream$", "GET", _says({"type": "attached", "stdoutOffset": 7})), ("/stream$", "GET", _says({"a": 1})),
        ("/stream$", "GET", _says({"type": "error", "message": "gone"})),
    ],
)  # fmt: skip
def test_a_command_whose_end_was_not_seen_is_unconfirmed_and_never_sent_again(
    fake: FakeBoat, adapter: BoatAdapter, path: str, method: str, fault: Any
) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.expect(method, path, fault, times=3)
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ExecRequest(command="true"), 100)
    assert sum(request.path.endswith("/commands") for request in fake.requests) == 1


def test_a_command_that_provably_never_ran_says_so(fake: FakeBoat, adapter: BoatAdapter) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.expect("POST", "/commands$", say(409, "boat_starting"))
    with pytest.raises(ProviderUnavailable) as failed:
        adapter.exec(target, ExecRequest(command="true"), 100)
    assert failed.value.settled


def test_a_file_of_several_parts_is_whole(adapter: BoatAdapter) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    data = bytes(range(256)) * 16_384
    adapter.file_write(target, "large file", [data[:1_000_000], data[1_000_000:]])
    assert b"".join(adapter.file_read(target, "large file").chunks) == data


def test_a_stopped_machine_whose_disk_is_gone_cannot_be_started(fake: FakeBoat, adapter: BoatAdapter) -> None:
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    assert adapter.stop(target, SECONDS).state is InstanceState.STOPPED
    fake.expect("POST", "/resume$", say(409, "snapshot_data_expired"))
    with pytest.raises(SandboxFailed):
        adapter.start(target, SECONDS)
    stops = [request for request in fake.requests if request.path.endswith("/stop")]
    assert [request.json() for request in stops] == [{"force": False}]


def test_a_list_that_goes_on_without_a_cursor_is_an_error(fake: FakeBoat, adapter: BoatAdapter) -> None:
    page = {"nextCursor": None, "hasMore": True, "limit": 100}
    fake.expect("GET", "^/sandboxes$", edit(lambda told: {**told, "pageInfo": page}))
    with pytest.raises(ProviderUnavailable):
        adapter.list("inst_any")


@pytest.mark.parametrize("ref", ["../me", "bx_", "bx_2222222l", "bx_22222222/files", ""])
def test_what_cannot_be_an_id_is_never_asked_for(fake: FakeBoat, adapter: BoatAdapter, ref: str) -> None:
    with pytest.raises(NotFound):
        adapter.get(Target(OWNER, ref))
    assert fake.requests == []


def test_capacity_is_what_the_account_may_still_start(fake: FakeBoat) -> None:
    fake.room = 3
    fake.plant("of somebody")
    sized, unsized = client(fake, machineCpuMillis=4_000, machineMemoryMiB=8_192), client(fake)
    assert sized.capacity() == Capacity(True, 8_000, 16_384, 4_000, 8_192)
    assert unsized.capacity() == Capacity(bounded=False)
    fake.room = 0
    assert sized.capacity() == unsized.capacity() == Capacity(bounded=True)
    sized.close()
    unsized.close()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (402, "payment_required", InsufficientCapacity), (429, "start_limit", InsufficientCapacity),
        (503, "no_ready_machine", InsufficientCapacity), (400, "invalid_env", InvalidRequest),
        (401, "unauthorized", ProviderUnavailable), (403, "machine_class_plan_required", ProviderUnavailable),
        (500, "internal_error", ProviderUnavailable),
    ],
)  # fmt: skip
def test_a_refusal_is_told_by_its_code(
    fake: FakeBoat, adapter: BoatAdapter, status: int, code: str, kind: type[DifferentlyError]
) -> None:
    fake.expect(*CREATE, say(status, code))
    with pytest.raises(kind) as failed:
        adapter.create(wanted(), SECONDS)
    assert failed.value.details["reason"] == code
    assert getattr(failed.value, "settled", True) is (status != 500)


def test_no_error_tells_the_key_or_the_environment(fake: FakeBoat, adapter: BoatAdapter) -> None:
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
        ({"machineType": "huge"}, "machineType"), ({"snapshot": "bsh_x"}, "snapshot"),
        ({"features": ["x"]}, "features"), ({"org": "a\nb"}, "org"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_work_is_refused_when_it_is_written(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field) as failed:
        registry.build("boat", changes, pool="p", installation="inst_a", clock=VirtualClock(SystemClock().now()))
    assert "canary" not in str(failed.value)
