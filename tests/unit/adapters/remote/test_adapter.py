"""The client's side of the protocol, against a plugin that says whatever a test wants."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import FrozenInstanceError, asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from differently_adapters.remote import RemoteAdapter, RemoteConfig
from differently_adapters.remote.adapter import KNOWN_SECONDS, NOBODY, UNKNOWN_SECONDS
from differently_adapters.remote.wire import instance_value, instances_json
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    AdapterContext,
    Exit,
    Instance,
    InstanceState,
    Operation,
    Output,
    Owner,
    Progress,
    Quiet,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Transition,
    supports,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import Clock, SystemClock, VirtualClock
from tests.support.sockets import ScriptedServer, answer, scripted

TOKEN = "plugin-canary-3nK8qY1zR6wB0xT5"
OWNER = Owner("inst_a", "sbx_1")
TARGET = Target(OWNER, "r/1")
ECHO = ExecRequest(command="echo x")
V1: dict[str, Any] = {
    "info": {"kind": "lab", "version": "3", "protocol": "1"},
    "capabilities": {"features": ["exec", "exec.stream", "files", "lifecycle.pause-resume", "snapshots.disk"]},
}
V2: dict[str, Any] = {**V1, "operations": [operation.value for operation in Operation]}
INSTANCE = {"ref": "r/1", "sandboxId": "sbx_1", "state": "running"}
PROTOCOL = "Differently-Adapter-Protocol: 1"

Reply = bytes | tuple[int, Any] | Any
"""Raw bytes, a status and a JSON value, or a JSON value."""


def on_wire(reply: Reply) -> bytes:
    if isinstance(reply, bytes):
        return reply
    status, value = reply if isinstance(reply, tuple) else (200, reply)
    return answer(b"" if value is None else json.dumps(value).encode(), PROTOCOL, status=f"{status} X")


class Turns:
    """One reply after the other; the last one stays."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)


class ScriptedPlugin:
    """Answers by the request line; what is not in the table is a 501."""

    def __init__(self, table: Mapping[str, Reply]) -> None:
        self._table = {"GET /adapter/v1/info": V1, **table}
        self._lock = threading.Lock()

    def __call__(self, connection: socket.socket, request: bytes) -> None:
        line = request.split(b" HTTP/")[0].decode()
        reply = self._table.get(line, (501, envelope("unsupported_operation")))
        if isinstance(reply, Turns):
            with self._lock:
                reply = reply.replies.pop(0) if len(reply.replies) > 1 else reply.replies[0]
        connection.sendall(on_wire(reply))
        if isinstance(reply, bytes):
            connection.shutdown(socket.SHUT_RDWR)


def envelope(code: str, message: str = "why", **details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": details}}


@contextmanager
def plugin(
    table: Mapping[str, Any] | None = None, clock: Clock | None = None, **config: Any
) -> Iterator[tuple[RemoteAdapter, ScriptedServer]]:
    with scripted(ScriptedPlugin(table or {})) as server:
        made = RemoteConfig(endpoint=f"http://127.0.0.1:{server.port}", allow_http=True, allow_loopback=True, **config)
        context = AdapterContext("lab", "inst_a", made, clock or SystemClock(), {"token": f"{TOKEN}\n"})
        with closing(RemoteAdapter(context)) as adapter:
            yield adapter, server


def sent(server: ScriptedServer, line: str) -> dict[str, Any]:
    """The JSON body of the request with that line."""
    found = [request for request in server.requests if request.startswith(f"{line} ".encode())]
    body: dict[str, Any] = json.loads(found[-1].partition(b"\r\n\r\n")[2])
    return body


EXEC = "POST /adapter/v1/instances/r%2F1/exec"
GET = "GET /adapter/v1/instances/r%2F1"
CREATE = "POST /adapter/v1/instances"
LIST = "GET /adapter/v1/instances?installation=inst_a"
NOBODYS = f"GET /adapter/v1/instances?installation={NOBODY}"


# What a version 1 plugin meets.


def test_a_version_1_plugin_meets_the_bodies_it_was_written_for() -> None:
    table = {
        CREATE: INSTANCE, GET: INSTANCE, EXEC: {"exitCode": 0, "stdout": "x"},
        "POST /adapter/v1/instances/r%2F1/snapshots": {"ref": "s", "kind": "disk", "sizeBytes": 5},
        "POST /adapter/v1/instances/r%2F1/pause": (204, None),
    }  # fmt: skip
    with plugin(table) as (adapter, server):
        adapter.create(a_create_request(OWNER, {"A": "b"}), 9.0)
        adapter.exec(TARGET, ExecRequest(command="x", cwd="/w", stdin="i", env={"A": "1"}), 5)
        adapter.snapshot(TARGET, SnapshotRequest(SnapshotKind.DISK, "op", "name"), 5.0)
        adapter.pause(TARGET, Transition("op", ""), 5.0)
        assert sent(server, CREATE) == {
            "id": "sbx_1", "template": "base", "resources": {"cpu": 1.0, "memoryMiB": 512, "diskGiB": 1},
            "ttlSeconds": 3600, "env": {"A": "b"},
            "labels": {
                "team": "conformance", "differently.dev/sandbox-id": "sbx_1", "differently.dev/installation": "inst_a",
                "differently.dev/org": "org_conformance", "differently.dev/project": "prj_conformance",
            },
        }  # fmt: skip
        assert sent(server, EXEC) == {
            "command": "x", "cwd": "/w", "stdin": "i", "env": {"A": "1"}, "timeoutSeconds": 60,
        }  # fmt: skip
        assert sent(server, "POST /adapter/v1/instances/r%2F1/snapshots") == {"kind": "disk"}
        for request in server.requests:
            assert f"authorization: bearer {TOKEN}\r\n".encode().lower() in request.lower()
            assert b"differently-adapter-protocol: 1\r\n" in request.lower()


def test_its_instance_is_looked_at_before_anything_is_done_to_it() -> None:
    other = {**INSTANCE, "sandboxId": "sbx_other"}
    with plugin({GET: other, EXEC: {"exitCode": 0}, LIST: [other], NOBODYS: []}) as (adapter, server):
        with pytest.raises(NotFound):
            adapter.exec(TARGET, ECHO, 5)
        with pytest.raises(NotFound):
            adapter.delete(TARGET)
        assert not [request for request in server.requests if request.startswith((b"POST", b"DELETE"))]


def test_a_newer_plugin_checks_the_owner_itself_and_no_round_trip_is_spent() -> None:
    with plugin({"GET /adapter/v1/info": V2, EXEC: {"exitCode": 0}}) as (adapter, server):
        adapter.exec(TARGET, ECHO, 77)
        assert [request.split(b" HTTP/")[0].decode() for request in server.requests] == ["GET /adapter/v1/info", EXEC]
        head = server.requests[-1].lower()
        assert b"differently-installation: inst_a\r\n" in head
        assert b"differently-sandbox-id: sbx_1\r\n" in head
        assert sent(server, EXEC)["outputBytesMax"] == 77


def test_its_pause_is_seen_on_the_instance() -> None:
    pausing = {"POST /adapter/v1/instances/r%2F1/pause": (204, None)}
    with plugin({**pausing, GET: Turns(INSTANCE, {**INSTANCE, "state": "paused"})}) as (adapter, _):
        done = adapter.pause(TARGET, Transition("op", ""), 5.0)
        assert (done.progress, done.instance.state) == (Progress.DONE, InstanceState.PAUSED)
    with plugin({**pausing, GET: INSTANCE}) as (adapter, server):
        seen = adapter.pause(TARGET, Transition("op", "", observe_only=True), 5.0)
        assert seen.progress is Progress.UNDERWAY
        assert not [request for request in server.requests if request.startswith(b"POST")]
        with pytest.raises(InvalidState):
            adapter.pause(TARGET, Transition("op", "incarnation-7"), 5.0)


# Versions.


@pytest.mark.parametrize("header", ["", "Differently-Adapter-Protocol: 2", "Differently-Adapter-Protocol: 1, 1"])
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "409 Conflict", "401 X"])
def test_an_answer_without_our_protocol_is_believed_nothing(header: str, status: str) -> None:
    foreign = answer(json.dumps(envelope("not_found")).encode(), *([header] if header else []), status=status)
    table = {"DELETE /adapter/v1/instances/r%2F1": foreign, GET: INSTANCE, LIST: [INSTANCE], NOBODYS: []}
    with plugin(table) as (adapter, _):
        with pytest.raises(ProviderUnavailable) as failed:
            adapter.delete(TARGET)
        assert "ours is '1'" in failed.value.message
        assert ("2" in failed.value.message) == (header[-1:] == "2")
        assert not failed.value.settled


def test_a_plugin_whose_info_names_another_version_is_refused() -> None:
    other = {**V1, "info": {"kind": "lab", "protocol": "2"}}
    with plugin({"GET /adapter/v1/info": other}) as (adapter, server):
        for call in (adapter.capabilities, lambda: adapter.create(a_create_request(OWNER), 5.0)):
            with pytest.raises(ProviderUnavailable, match=r"'2'.*'1'"):
                call()
        assert not [request for request in server.requests if request.startswith(b"POST")]


# Whose it is.


@pytest.mark.parametrize("theirs", [{"sandboxId": "sbx_2"}, {"installation": "inst_b"}])
def test_an_answer_about_somebody_elses_instance_is_none(theirs: dict[str, str]) -> None:
    table = {GET: {**INSTANCE, **theirs}, CREATE: {**INSTANCE, **theirs}, LIST: [{**INSTANCE, **theirs}]}
    with plugin(table) as (adapter, _):
        with pytest.raises(NotFound):
            adapter.get(TARGET)
        with pytest.raises(ProviderUnavailable) as failed:
            adapter.create(a_create_request(OWNER), 5.0)
        assert not failed.value.settled


def test_a_list_leaves_out_what_says_that_it_is_not_ours() -> None:
    ours = {**INSTANCE, "installation": "inst_a"}
    with plugin({LIST: [ours, {**ours, "ref": "r/2", "installation": "inst_b"}]}) as (adapter, server):
        assert [instance.ref for instance in adapter.list("inst_a")] == ["r/1"]
        assert not [request for request in server.requests if NOBODY.encode() in request]


def test_a_list_that_does_not_filter_is_found_out() -> None:
    with plugin({LIST: [INSTANCE], NOBODYS: []}) as (adapter, _):
        assert [instance.owner for instance in adapter.list("inst_a")] == [OWNER]
    with plugin({LIST: [INSTANCE], NOBODYS: [INSTANCE]}) as (adapter, _), pytest.raises(ProviderUnavailable):
        adapter.list("inst_a")


def test_a_delete_looks_at_the_installation_too_before_it_believes_an_old_plugin() -> None:
    gone = {"DELETE /adapter/v1/instances/r%2F1": (204, None)}
    for listed in ([], [{**INSTANCE, "ref": "r/2"}]):
        with plugin({**gone, GET: INSTANCE, LIST: listed, NOBODYS: []}) as (adapter, server):
            with pytest.raises(NotFound):
                adapter.delete(TARGET)
            assert not [request for request in server.requests if request.startswith(b"DELETE")]
    with plugin({**gone, GET: (404, envelope("not_found"))}) as (adapter, server):
        adapter.delete(TARGET)
        assert not [request for request in server.requests if request.startswith(b"DELETE")]
    went = Turns((200, INSTANCE), (404, envelope("not_found")))  # by another delete, between the two looks
    with plugin({**gone, GET: went, LIST: [], NOBODYS: []}) as (adapter, server):
        adapter.delete(TARGET)
        assert not [request for request in server.requests if request.startswith(b"DELETE")]
    with plugin({**gone, GET: INSTANCE, LIST: [INSTANCE], NOBODYS: []}) as (adapter, server):
        adapter.delete(TARGET)
        assert server.requests[-1].startswith(b"DELETE")


# What it says went wrong.


@pytest.mark.parametrize(
    ("status", "body", "error", "settled"),
    [
        (400, envelope("invalid_request"), InvalidRequest, None),
        (413, envelope("payload_too_large"), PayloadTooLarge, None),
        (404, envelope("not_found"), NotFound, None),
        (409, envelope("invalid_state"), InvalidState, None),
        (501, envelope("unsupported_operation"), UnsupportedOperation, None),
        (503, envelope("insufficient_capacity"), InsufficientCapacity, True),
        (503, envelope("insufficient_capacity", settled=False), InsufficientCapacity, False),
        (503, envelope("sandbox_failed"), SandboxFailed, False),
        (503, envelope("sandbox_failed", settled=True), SandboxFailed, True),
        (503, envelope("provider_unavailable"), ProviderUnavailable, False),
        (503, envelope("provider_unavailable", settled=True), ProviderUnavailable, True),
        (503, envelope("provider_unavailable", settled="yes"), ProviderUnavailable, False),
        (502, envelope("exec_unconfirmed"), ExecUnconfirmed, False),
        (401, envelope("unauthenticated"), ProviderUnavailable, True),
        (403, envelope("forbidden"), ProviderUnavailable, True),
        (500, envelope("internal"), ProviderUnavailable, False),
        (418, envelope("something_new"), ProviderUnavailable, False),
        (404, {"message": "no envelope"}, ProviderUnavailable, False),
        (404, {"error": "a string"}, ProviderUnavailable, False),
        (404, {"error": {"message": "no code"}}, ProviderUnavailable, False),
        (404, [], ProviderUnavailable, False),
        (500, None, ProviderUnavailable, False),
    ],
)
def test_an_envelope_becomes_an_error(
    status: int, body: Any, error: type[DifferentlyError], settled: bool | None
) -> None:
    with plugin({CREATE: (status, body)}) as (adapter, _):
        with pytest.raises(DifferentlyError) as failed:
            adapter.create(a_create_request(OWNER), 5.0)
        assert type(failed.value) is error
        if isinstance(failed.value, BackendError):
            assert failed.value.settled is settled


def test_details_go_on_if_they_are_plain_and_hold_no_credential() -> None:
    odd = {
        "key": TOKEN, "field": "image", "n": 1, "names": ["a"], "deep": {"x": 1}, "message": "m", "self": 1, "a-b": 1,
    }  # fmt: skip
    body = {"error": {"code": "invalid_request", "message": f"{TOKEN}\r\nwhy", "details": odd}}
    with plugin({CREATE: (400, body)}) as (adapter, _):
        with pytest.raises(InvalidRequest) as failed:
            adapter.create(a_create_request(OWNER), 5.0)
        assert failed.value.message == "[redacted] why"
        assert failed.value.details == {"key": "[redacted]", "field": "image", "n": 1, "names": ["a"]}


# What it says that is not the protocol.

WRONG: list[Any] = [
    [], "x", None, {}, {"ref": "", "sandboxId": "sbx_1", "state": "running"}, {**INSTANCE, "state": "dancing"},
    {**INSTANCE, "ref": 7}, {**INSTANCE, "ref": "x" * 3_000}, {"sandboxId": "sbx_1", "state": "running"},
    {**INSTANCE, "expiresAt": "soon"}, {**INSTANCE, "message": "x" * 5_000},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_an_answer_of_another_shape_is_no_answer(wrong: Any) -> None:
    with plugin({CREATE: wrong, GET: wrong}) as (adapter, _):
        with pytest.raises(ProviderUnavailable) as failed:
            adapter.create(a_create_request(OWNER), 5.0)
        assert not failed.value.settled
        with pytest.raises(ProviderUnavailable) as failed:
            adapter.get(TARGET)
        assert failed.value.settled


def test_what_is_new_or_null_in_an_answer_is_no_matter() -> None:
    with plugin({GET: {**INSTANCE, "message": None, "region": None, "newField": {"a": 1}}}) as (adapter, _):
        assert adapter.get(TARGET).message == ""


@pytest.mark.parametrize(
    "wrong", [{"exitCode": "zero"}, {}, {"exitCode": 0, "stdout": "?", "encoding": "base64"}, [], "x"]
)
def test_a_command_with_a_wrong_answer_is_unconfirmed(wrong: Any) -> None:
    with plugin({EXEC: wrong, GET: INSTANCE}) as (adapter, _), pytest.raises(ExecUnconfirmed):
        adapter.exec(TARGET, ECHO, 5)


def test_a_version_1_timeout_is_told_by_its_code_and_duration() -> None:
    request = ExecRequest(command="x", timeout_seconds=2)
    for duration, timed_out in ((1_999, False), (2_000, True)):
        with plugin({EXEC: {"exitCode": 124, "durationMs": duration}, GET: INSTANCE}) as (adapter, _):
            assert adapter.exec(TARGET, request, 5).timed_out is timed_out


def test_output_that_was_truncated_there_is_truncated_here() -> None:
    with plugin({EXEC: {"exitCode": 0, "stdout": "x", "truncated": True}, GET: INSTANCE}) as (adapter, _):
        assert adapter.exec(TARGET, ECHO, 5).stdout_dropped_bytes > 0


# Streams.

STREAM = f"{EXEC}?stream=1"


def ndjson(*lines: Any) -> bytes:
    body = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    return answer(body, PROTOCOL, kind="application/x-ndjson")


def follow(*lines: Any, raw: bytes | None = None) -> list[Any]:
    with plugin({STREAM: raw or ndjson(*lines), GET: INSTANCE}) as (adapter, _):
        return [event for event in adapter.exec_stream(TARGET, ECHO, 5.0) if not isinstance(event, Quiet)]


def test_a_stream_of_version_1() -> None:
    events = follow({"stream": "stdout", "data": "é"}, b"\r\n", {"stream": "stderr", "data": "e"}, {"exitCode": 3})
    assert events[:2] == [Output("stdout", "é".encode()), Output("stderr", b"e")]
    assert isinstance(events[2], Exit)
    assert events[2].exit_code == 3


def test_a_stream_of_a_newer_plugin() -> None:
    last = {"exitCode": 124, "durationMs": 7, "timedOut": True, "stdoutDroppedBytes": 2}
    events = follow({"quiet": True}, {"stream": "stdout", "data": "/w==", "encoding": "base64"}, {"new": 1}, last)
    assert events == [Output("stdout", b"\xff"), Exit(124, 7, True, 2)]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        ({"error": "why"}, ExecUnconfirmed),
        ({"error": ""}, ExecUnconfirmed),
        ({"error": "why", "code": "invalid_state"}, InvalidState),
        ({"error": "why", "code": "sandbox_failed"}, SandboxFailed),
        ({"error": "why", "code": "provider_unavailable"}, ExecUnconfirmed),
        ({"error": "why", "code": "provider_unavailable", "settled": True}, ExecUnconfirmed),
        (b"", ExecUnconfirmed),
        (b"{cut", ExecUnconfirmed),
        (b"<html>\n", ExecUnconfirmed),
        (b"[]\n", ExecUnconfirmed),
        ({"stream": "stdin", "data": "x"}, ExecUnconfirmed),
        ({"stream": "stdout", "data": "?", "encoding": "base64"}, ExecUnconfirmed),
        ({"exitCode": "x"}, ExecUnconfirmed),
    ],
)
def test_a_stream_that_does_not_end_well_raises(last: Any, error: type[DifferentlyError]) -> None:
    with pytest.raises(error) as failed:
        follow({"stream": "stdout", "data": "x"}, last)
    assert TOKEN not in f"{failed.value!r}"


def test_a_stream_that_reflects_the_token_does_not_tell_it() -> None:
    with pytest.raises(ExecUnconfirmed) as failed:
        follow({"error": f"bad {TOKEN}"})
    assert failed.value.message == "bad [redacted]"


def test_a_stream_ends_at_its_first_ending() -> None:
    assert len(follow({"exitCode": 0}, {"exitCode": 1}, {"stream": "stdout", "data": "late"})) == 1


def test_a_line_without_end_is_given_up() -> None:
    with pytest.raises(ExecUnconfirmed, match="line"):
        follow(raw=ndjson(b'{"stream":"stdout","data":"' + b"x" * (9 * 1024 * 1024)))


def test_a_cut_stream_is_unconfirmed() -> None:
    whole = ndjson({"stream": "stdout", "data": "x"}, {"exitCode": 0})
    with pytest.raises(ExecUnconfirmed):
        follow(raw=whole[:-5])


def test_a_refused_stream_is_refused_at_once() -> None:
    table = {STREAM: (409, envelope("invalid_state")), GET: INSTANCE}
    with plugin(table) as (adapter, _), pytest.raises(InvalidState):
        adapter.exec_stream(TARGET, ECHO, 5.0)


# Files.


def test_a_file_without_a_length_is_read_if_it_comes_in_chunks() -> None:
    head = f"HTTP/1.1 200 OK\r\n{PROTOCOL}\r\n"
    chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode()
    route = "GET /adapter/v1/instances/r%2F1/files/content?path=p"
    with plugin({route: chunked, GET: INSTANCE}) as (adapter, _):
        content = adapter.file_read(TARGET, "p")
        assert (content.size, list(content.chunks)) == (3, [b"abc"])
    unknown, long = (f"{head}{more}".encode() for more in ("\r\nabc", "Content-Length: 104857601\r\n\r\n"))
    with plugin({route: unknown, GET: INSTANCE}) as (adapter, _), pytest.raises(ProviderUnavailable, match="how long"):
        adapter.file_read(TARGET, "p")
    with plugin({route: long, GET: INSTANCE}) as (adapter, _), pytest.raises(PayloadTooLarge):
        adapter.file_read(TARGET, "p")


def test_a_large_file_that_is_cut_off_is_not_taken_for_whole() -> None:
    route = "GET /adapter/v1/instances/r%2F1/files/content?path=p"
    head = f"HTTP/1.1 200 OK\r\n{PROTOCOL}\r\nContent-Length: 3000000\r\n\r\n".encode()
    with plugin({route: head + bytes(2_000_000), GET: INSTANCE}) as (adapter, _):
        content = adapter.file_read(TARGET, "p")
        with pytest.raises(ProviderUnavailable):
            b"".join(content.chunks)


# What is known of it, and when it is asked.


def test_what_it_offers_is_asked_once_in_a_while() -> None:
    clock = VirtualClock()
    with plugin({GET: INSTANCE}, clock) as (adapter, server):
        for _ in range(3):
            assert supports(adapter, Operation.EXEC_STREAM)
            assert not supports(adapter, Operation.RENEW)
        assert len(server.requests) == 1
        clock.advance(KNOWN_SECONDS + 1)
        adapter.info()
        assert len(server.requests) == 2


def test_a_plugin_that_is_away_is_not_asked_again_at_once_and_may_support_everything() -> None:
    clock = VirtualClock()
    away = (503, envelope("provider_unavailable"))
    with plugin({"GET /adapter/v1/info": away}, clock, create_seconds=33, settles_seconds=44) as (adapter, server):
        assert supports(adapter, Operation.RENEW)
        info = adapter.info()
        assert (info.idempotent_create, info.create_seconds, info.settles_seconds) == (False, 33.0, 44.0)
        assert len(server.requests) == 1
        clock.advance(UNKNOWN_SECONDS + 1)
        adapter.info()
        assert len(server.requests) == 2
        with pytest.raises(ProviderUnavailable):
            adapter.create(a_create_request(OWNER), 5.0)
        assert not [request for request in server.requests if request.startswith(b"POST")]


def test_what_it_told_before_it_went_away_is_still_believed() -> None:
    clock = VirtualClock()
    gone = Turns(V1, (503, envelope("provider_unavailable")))
    with plugin({"GET /adapter/v1/info": gone}, clock) as (adapter, _):
        assert not supports(adapter, Operation.RENEW)
        clock.advance(KNOWN_SECONDS + 1)
        assert not supports(adapter, Operation.RENEW)


def test_the_class_declares_everything() -> None:
    assert set(RemoteAdapter.operations) == set(Operation)


# Configuration.


@pytest.mark.parametrize(
    "config",
    [
        {"endpoint": "http://plugin.example"},
        {"endpoint": "https://10.0.0.1"},
        {"endpoint": "https://127.0.0.1"},
        {"endpoint": "https://169.254.169.254", "allowPrivate": True, "allowLoopback": True},
        {"endpoint": "https://user:secret@plugin.example"},
    ],
)
def test_an_endpoint_that_was_not_opted_in_to_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        RemoteConfig.model_validate(config)
    assert refused.value.details["field"] == "config.endpoint"


@pytest.mark.parametrize("config", [{}, {"endpoint": "https://a.example", "token": "x"}, {"endpoint": 5}])
def test_a_wrong_configuration_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RemoteConfig.model_validate(config)


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({}, {}),
        ({"message": None, "region": None, "expiresAt": None, "idle": None}, {}),
        (
            {"message": "m", "region": "r", "prepared": "p", "incarnation": "i", "idle": True,
             "expiresAt": "2026-01-01T00:00:00Z", "installation": "inst_a", "unknown": 1},
            {"message": "m", "region": "r", "prepared": "p", "incarnation": "i", "idle": True,
             "expires_at": datetime(2026, 1, 1, tzinfo=UTC)},
        ),
    ],
)  # fmt: skip
def test_an_instance_from_the_wire_is_like_any_other(more: dict[str, object], fields: dict[str, Any]) -> None:
    """It is made past its constructor, so whatever a value can do is held against one that was made by it."""
    (told,) = instances_json(json.dumps([{"ref": "r", "sandboxId": "s", "state": "running", **more}]).encode())
    owner = Owner("inst_a", "s")
    made, like = instance_value(told, owner), Instance("r", owner, InstanceState.RUNNING, **fields)
    assert (made, hash(made), asdict(made)) == (like, hash(like), asdict(like))
    assert repr(replace(made, expires_at=None)) == repr(replace(like, expires_at=None))
    assert replace(made, message="x") == replace(like, message="x")
    with pytest.raises(FrozenInstanceError):
        made.message = "x"  # type: ignore[misc]
