"""Commands: buffered and streamed, byte for byte."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter, FakeInstance, LoseAnswer, Refuse
from differently_core.contract import (
    CommandResult,
    ExecEvent,
    Exit,
    Operation,
    Output,
    Quiet,
    Target,
    Unsupported,
)
from differently_core.errors import ExecUnconfirmed, NotFound, ProviderUnavailable
from differently_core.model.exec import OUTPUT_BYTES_MAX, ExecRequest
from tests.support.api import Reply, Tenant, World

EURO = "€".encode()
"""Three bytes, so that it can be cut in two places."""


def says(stdout: bytes = b"", stderr: bytes = b"", exit_code: int = 0, duration_ms: int = 0) -> Any:
    def run(instance: FakeInstance, request: ExecRequest) -> CommandResult:
        return CommandResult(exit_code, stdout, stderr, duration_ms)

    return run


def run(world: World, tenant: Tenant, sandbox: str, body: Any = None, query: str = "", **headers: str) -> Reply:
    path = f"/v1/sandboxes/{sandbox}/exec{query}"
    return world.call("POST", path, body or {"command": "x"}, token=tenant.token, headers=headers)


def streams(monkeypatch: pytest.MonkeyPatch, *events: ExecEvent | Exception) -> None:
    """What every streamed command yields from now on."""

    def exec_stream(
        self: FakeAdapter, target: Target, request: ExecRequest, quiet_seconds: float
    ) -> Iterator[ExecEvent]:
        for event in events:
            if isinstance(event, Exception):
                raise event
            yield event

    monkeypatch.setattr(FakeAdapter, "exec_stream", exec_stream)


# Buffered


def test_a_command_answers_with_its_result_whatever_its_exit_code(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.backend("main").exec_function = says(b"out\n", b"err\n", exit_code=3, duration_ms=20)
    reply = run(world, acme, sandbox)
    assert reply.status == 200
    assert reply.json() == {
        "exitCode": 3, "stdout": "out\n", "stderr": "err\n", "durationMs": 20, "truncated": False,
        "stdoutDroppedBytes": 0, "stderrDroppedBytes": 0, "timedOut": False, "encoding": "utf-8",
    }  # fmt: skip


def test_the_command_reaches_the_backend_as_it_was_sent(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    seen: list[ExecRequest] = []

    def keep(instance: FakeInstance, request: ExecRequest) -> CommandResult:
        seen.append(request)
        return CommandResult(0, b"", b"", 0)

    memory.backend("main").exec_function = keep
    body = {
        "args": ["printf", "%s", "a b"], "env": {"A": "1"}, "cwd": "/tmp/ü", "stdin": "ÿ\n", "timeoutSeconds": 240,
    }  # fmt: skip
    assert run(memory, tenant, sandbox, body).status == 200
    assert seen[0].args == ["printf", "%s", "a b"]
    assert (seen[0].env, seen[0].cwd, seen[0].stdin, seen[0].timeout_seconds) == ({"A": "1"}, "/tmp/ü", "ÿ\n", 240)


def test_bytes_that_are_no_text_are_replaced_or_sent_as_base64(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.backend("main").exec_function = says(b"a\xff" + EURO, EURO[:2])
    assert run(memory, tenant, sandbox).json()["stdout"] == "a�€"
    assert run(memory, tenant, sandbox).json()["stderr"] == "�"
    lossless = run(memory, tenant, sandbox, {"command": "x", "encoding": "base64"}).json()
    assert base64.b64decode(lossless["stdout"]) == b"a\xff" + EURO
    assert base64.b64decode(lossless["stderr"]) == EURO[:2]


def test_output_over_the_bound_is_cut_in_the_middle_and_counted(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.backend("main").exec_function = says(b"a" * OUTPUT_BYTES_MAX + b"z" * 7)
    result = run(memory, tenant, sandbox).json()
    assert (result["truncated"], result["stdoutDroppedBytes"], result["stderrDroppedBytes"]) == (True, 7, 0)
    assert result["stdout"].endswith("zzzzzzz")
    memory.backend("main").exec_function = says(b"a" * OUTPUT_BYTES_MAX)
    assert run(memory, tenant, sandbox).json()["truncated"] is False


def test_a_timeout_is_a_result(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.backend("main").exec_function = says(b"so far", duration_ms=10_000)
    result = run(world, acme, sandbox, {"command": "x", "timeoutSeconds": 1}).json()
    assert (result["exitCode"], result["timedOut"], result["durationMs"]) == (124, True, 1000)


def test_an_end_that_was_not_seen_is_unconfirmed_and_keeps_what_was(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.backend("main").expect(Operation.EXEC, LoseAnswer())
    reply = run(memory, tenant, sandbox)
    assert (reply.status, reply.code) == (502, "exec_unconfirmed")

    seen = ExecUnconfirmed("The connection broke.", stdout="half", stderr="", partial=True)
    memory.backend("main").expect(Operation.EXEC, Refuse(seen))
    details = run(memory, tenant, sandbox).json()["error"]["details"]
    assert details == {"stdout": "half", "stderr": "", "partial": True}


def test_limits_of_time_are_by_kind_of_answer(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    assert run(memory, tenant, sandbox, {"command": "x", "timeoutSeconds": 240}).status == 200
    late = run(memory, tenant, sandbox, {"command": "x", "timeoutSeconds": 241})
    assert (late.status, late.json()["error"]["details"]["field"]) == (400, "timeoutSeconds")
    assert run(memory, tenant, sandbox, {"command": "x", "timeoutSeconds": 870}, "?stream=true").status == 200
    assert run(memory, tenant, sandbox, {"command": "x", "timeoutSeconds": 871}, "?stream=true").status == 400


# Streamed


@pytest.mark.parametrize(("query", "headers"), [("?stream=true", {}), ("", {"Accept": "application/x-ndjson"})])
def test_a_stream_is_lines_and_ends_in_exactly_one_exit(
    world: World, acme: Tenant, query: str, headers: dict[str, str]
) -> None:
    sandbox = world.running(acme)
    world.backend("main").exec_function = says(b"out", b"err", exit_code=7, duration_ms=4)
    reply = run(world, acme, sandbox, None, query, **headers)
    assert reply.status == 200
    assert reply.streamed
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    assert reply.lines() == [
        {"stream": "stdout", "data": "out"},
        {"stream": "stderr", "data": "err"},
        {
            "exitCode": 7, "durationMs": 4, "timedOut": False, "truncated": False, "stdoutDroppedBytes": 0,
            "stderrDroppedBytes": 0,
        },
    ]  # fmt: skip


def test_a_character_cut_in_two_arrives_whole_on_each_stream(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    streams(
        monkeypatch, Output("stdout", b"a" + EURO[:1]), Output("stderr", EURO[:2]), Output("stdout", EURO[1:2]),
        Output("stderr", EURO[2:]), Output("stdout", EURO[2:] + b"z\xff"), Exit(0, 1),
    )  # fmt: skip
    lines = run(memory, tenant, sandbox, None, "?stream=true").lines()
    assert "".join(line["data"] for line in lines[:-1] if line["stream"] == "stdout") == "a€z�"
    assert "".join(line["data"] for line in lines[:-1] if line["stream"] == "stderr") == "€"


def test_a_character_that_never_got_whole_is_told_before_the_end(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    streams(monkeypatch, Output("stdout", EURO[:2]), Exit(0, 1))
    lines = run(memory, tenant, sandbox, None, "?stream=true").lines()
    assert lines[0] == {"stream": "stdout", "data": "�"}
    assert lines[-1]["exitCode"] == 0


def test_base64_streams_are_lossless(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    streams(monkeypatch, Output("stdout", b"\xff\x00"), Output("stdout", EURO[:1]), Exit(0, 1))
    lines = run(memory, tenant, sandbox, {"command": "x", "encoding": "base64"}, "?stream=true").lines()
    assert b"".join(base64.b64decode(line["data"]) for line in lines[:-1]) == b"\xff\x00" + EURO[:1]


def test_a_quiet_command_keeps_its_connection(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.backend("main").exec_function = says(b"done", duration_ms=400_000)
    reply = run(memory, tenant, sandbox, {"command": "x", "timeoutSeconds": 800}, "?stream=true")
    silence, last = 0.0, memory.clock.monotonic()
    chunks = []
    for chunk in reply.chunks:
        silence = max(silence, memory.clock.monotonic() - last)
        last = memory.clock.monotonic()
        chunks.append(chunk)
    assert silence <= 15
    assert chunks.count(b"\n") >= 400 // 15 - 1
    assert len([chunk for chunk in chunks if chunk != b"\n"]) == 2


def test_what_goes_wrong_before_the_first_byte_is_a_status(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.backend("main").expect(Operation.EXEC_STREAM, Refuse(ProviderUnavailable("down", settled=True)))
    reply = run(memory, tenant, sandbox, None, "?stream=true")
    assert (reply.status, reply.code, reply.headers["Retry-After"]) == (503, "provider_unavailable", "5")
    streams(monkeypatch, NotFound("The instance is gone."))
    assert run(memory, tenant, sandbox, None, "?stream=true").status == 404
    streams(monkeypatch)
    assert run(memory, tenant, sandbox, None, "?stream=true").code == "exec_unconfirmed"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ExecUnconfirmed("The connection broke."), "exec_unconfirmed"),
        (ProviderUnavailable("down"), "provider_unavailable"),
        (RuntimeError("secret text of a bug"), "internal"),
        (None, "exec_unconfirmed"),
    ],
)
def test_what_goes_wrong_later_is_the_one_last_line(
    memory: World, monkeypatch: pytest.MonkeyPatch, failure: Exception | None, code: str
) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    events: list[ExecEvent | Exception] = [Output("stdout", b"a" + EURO[:1]), Quiet()]
    streams(monkeypatch, *events, *([failure] if failure else []))
    reply = run(memory, tenant, sandbox, None, "?stream=true")
    assert reply.status == 200
    raw = reply.raw
    lines = Reply(200, {}, iter([raw]), True).lines()
    assert lines[:-1] == [{"stream": "stdout", "data": "a"}, {"stream": "stdout", "data": "�"}]
    error = lines[-1]["error"]
    assert (error["code"], error["details"]["partial"]) == (code, True)
    assert error["requestId"] == reply.headers["X-Request-Id"]
    assert b"secret text" not in raw
    assert not any("exitCode" in line for line in lines)


def test_a_pool_without_streams_runs_buffered_and_answers_as_a_stream(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    declared = {**FakeAdapter.operations, Operation.EXEC_STREAM: Unsupported("no_streams")}
    monkeypatch.setattr(FakeAdapter, "operations", declared)
    memory.backend("main").exec_function = says(b"o" * (OUTPUT_BYTES_MAX + 5), b"e")
    lines = run(memory, tenant, sandbox, None, "?stream=true").lines()
    assert sum(len(line["data"]) for line in lines[:-1] if line["stream"] == "stdout") == OUTPUT_BYTES_MAX
    assert lines[-1]["truncated"] is True
    assert lines[-1]["stdoutDroppedBytes"] == 5


def test_no_line_is_longer_than_readers_take_and_endless_output_is_counted(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    monkeypatch.setattr("differently_api.streams.STREAM_BYTES_MAX", 1_000_000)
    streams(monkeypatch, Output("stdout", b"\0" * 700_000), Output("stderr", b"\0" * 700_000), Exit(0, 1))
    raw = run(memory, tenant, sandbox, None, "?stream=true").raw
    assert max(len(line) for line in raw.splitlines()) < 8 * 1024 * 1024 // 4
    end = Reply(200, {}, iter([raw]), True).lines()[-1]
    assert (end["truncated"], end["stdoutDroppedBytes"], end["stderrDroppedBytes"]) == (True, 0, 400_000)


def test_a_reader_that_goes_away_lets_go_of_the_stream(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    let_go = []

    def exec_stream(
        self: FakeAdapter, target: Target, request: ExecRequest, quiet_seconds: float
    ) -> Iterator[ExecEvent]:
        try:
            while True:
                yield Output("stdout", b"x")
        finally:
            let_go.append(True)

    monkeypatch.setattr(FakeAdapter, "exec_stream", exec_stream)
    reply = run(memory, tenant, sandbox, None, "?stream=true")
    assert next(reply.chunks)
    reply.chunks.close()  # type: ignore[attr-defined]
    assert let_go == [True]


def test_use_is_noted_at_most_every_so_often(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    path = f"/v1/sandboxes/{sandbox}"
    world.clock.advance(29)
    run(world, acme, sandbox)
    first = world.call("GET", path, token=acme.token).json()["lastActivityAt"]
    world.clock.advance(1)
    run(world, acme, sandbox)
    second = world.call("GET", path, token=acme.token).json()["lastActivityAt"]
    assert (first, second) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z")
