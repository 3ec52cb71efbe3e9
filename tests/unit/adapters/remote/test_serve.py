"""The little server for plugin authors, over real sockets; and what becomes of answers that a network spoils."""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from differently_adapters.providers.fake import FakeAdapter, FakeBackend
from differently_adapters.remote import RemoteAdapter, RemoteConfig
from differently_adapters.remote import adapter as remote_adapter
from differently_adapters.remote.serve import TOKEN_VARIABLE, load, main, serving
from differently_adapters.testing import a_create_request
from differently_core.contract import AdapterContext, CommandResult, Exit, Operation, Owner, Quiet, Target
from differently_core.errors import BackendError, ExecUnconfirmed, ProviderUnavailable
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock, VirtualClock
from tests.support.plugins import FaultyServer, Spoiled, faulty

TOKEN = "plugin-canary-3nK8qY1zR6wB0xT5"
OWNER = Owner("inst_a", "sbx_1")
MIB = 1_048_576


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(VirtualClock())


@pytest.fixture
def server(backend: FakeBackend) -> Iterator[FaultyServer]:
    with faulty(FakeAdapter.over(backend), TOKEN) as server:
        yield server


@pytest.fixture
def adapter(server: FaultyServer) -> Iterator[RemoteAdapter]:
    with closing(client(server.url)) as adapter:
        yield adapter


def client(url: str) -> RemoteAdapter:
    config = RemoteConfig(endpoint=url, allow_http=True, allow_loopback=True)
    return RemoteAdapter(AdapterContext("lab", "inst_a", config, SystemClock(), {"token": TOKEN}))


@pytest.fixture
def sandbox(adapter: RemoteAdapter) -> Target:
    return Target(OWNER, adapter.create(a_create_request(OWNER), 10.0).ref)


# Spoiled answers.


@pytest.mark.parametrize("spoiled", [m for m in Spoiled if m is not Spoiled.DRIPPED and m is not Spoiled.UNFINISHED])
def test_a_spoiled_answer_to_a_create_leaves_it_unknown_and_findable(
    server: FaultyServer, adapter: RemoteAdapter, backend: FakeBackend, spoiled: Spoiled
) -> None:
    server.expect(Operation.CREATE, spoiled)
    with pytest.raises(ProviderUnavailable) as failed:
        adapter.create(a_create_request(OWNER), 10.0)
    assert not failed.value.settled
    assert len(backend.instances()) == 1
    assert len([request for request in server.requests if request.startswith("POST")]) == 1
    found = adapter.get(Target(OWNER))
    assert adapter.create(a_create_request(OWNER), 10.0).ref == found.ref


@pytest.mark.parametrize("spoiled", [m for m in Spoiled if m is not Spoiled.DRIPPED])
@pytest.mark.parametrize("streamed", [True, False])
def test_a_spoiled_answer_to_a_command_is_unconfirmed_and_not_repeated(
    server: FaultyServer, adapter: RemoteAdapter, sandbox: Target, spoiled: Spoiled, streamed: bool
) -> None:
    server.expect(Operation.EXEC, spoiled)
    with pytest.raises(ExecUnconfirmed):
        run(adapter, sandbox, streamed)
    assert len([request for request in server.requests if "/exec" in request]) == 1


def run(adapter: RemoteAdapter, sandbox: Target, streamed: bool) -> object:
    request = ExecRequest(command="echo x")
    return list(adapter.exec_stream(sandbox, request, 5.0)) if streamed else adapter.exec(sandbox, request, 100)


@pytest.mark.parametrize("spoiled", [Spoiled.DROPPED, Spoiled.CUT, Spoiled.PAGE, Spoiled.OTHER_PROTOCOL])
def test_a_spoiled_list_is_an_error(
    server: FaultyServer, adapter: RemoteAdapter, sandbox: Target, spoiled: Spoiled
) -> None:
    server.expect(Operation.LIST, spoiled)
    with pytest.raises(BackendError):
        adapter.list("inst_a")
    assert len(adapter.list("inst_a")) == 1


def test_a_dripping_plugin_is_left_at_the_deadline(server: FaultyServer, adapter: RemoteAdapter) -> None:
    adapter.info()
    server.expect(Operation.CREATE, Spoiled.DRIPPED)
    with pytest.raises(ProviderUnavailable, match="in time") as failed:
        adapter.create(a_create_request(OWNER), 0.2)
    assert not failed.value.settled


# Following.


def test_who_is_forgotten_gives_the_connection_back(
    server: FaultyServer, adapter: RemoteAdapter, backend: FakeBackend, sandbox: Target
) -> None:
    release, left = threading.Event(), threading.Event()

    def endless(*_: object) -> Iterator[Quiet]:
        try:
            while not release.wait(0.01):
                yield Quiet()
        finally:
            left.set()

    backend.stream_function = endless
    events = adapter.exec_stream(sandbox, ExecRequest(command="x", timeout_seconds=600), 0.02)
    assert isinstance(next(events), Quiet)
    del events
    gc.collect()
    assert left.wait(10), "the plugin was still sending"
    release.set()


def test_a_plugin_that_gives_no_sign_of_life_is_left(
    adapter: RemoteAdapter, backend: FakeBackend, sandbox: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def hanging(*_: object) -> Iterator[Exit]:
        release.wait(30)
        yield Exit(0, 0)

    monkeypatch.setattr(remote_adapter, "GRACE_SECONDS", 0.2)
    backend.stream_function = hanging
    events = adapter.exec_stream(sandbox, ExecRequest(command="x", timeout_seconds=600), 0.02)
    with pytest.raises(ExecUnconfirmed, match="in time"):
        for _ in events:
            pass
    release.set()


# The server.


def test_a_file_of_many_mebibytes_goes_both_ways(adapter: RemoteAdapter, sandbox: Target) -> None:
    data = bytes(range(256)) * (8 * MIB // 256)
    assert adapter.file_write(sandbox, "big", (data[at : at + MIB] for at in range(0, len(data), MIB))).size == 8 * MIB
    content = adapter.file_read(sandbox, "big")
    assert (content.size, b"".join(content.chunks)) == (8 * MIB, data)
    left = adapter.file_read(sandbox, "big")
    del left
    assert adapter.file_stat(sandbox, "big").size == 8 * MIB


def test_output_near_its_bound_comes_whole(adapter: RemoteAdapter, backend: FakeBackend, sandbox: Target) -> None:
    for noise in (b"\x00" * MIB, b"\xff" * MIB):
        backend.exec_function = lambda *_, noise=noise: CommandResult(0, noise, noise, 1)
        result = adapter.exec(sandbox, ExecRequest(command="x"), MIB)
        assert (result.stdout, result.stderr) == (noise, noise)


def raw(server: FaultyServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as sock:
        sock.sendall(request)
        found = b""
        while piece := sock.recv(65_536):
            found += piece
        return found


AUTHORIZED = f"Authorization: Bearer {TOKEN}\r\nHost: x\r\n".encode()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /adapter/v1/health HTTP/1.1\r\n" + AUTHORIZED + b"Connection: close\r\n\r\n", b"200 OK"),
        (b"GET /adapter/v1/health HTTP/1.0\r\n" + AUTHORIZED + b"\r\n", b"200 OK"),
        (b"GET /adapter/v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"401 Unauthorized"),
        (b"GET /other HTTP/1.1\r\n" + AUTHORIZED + b"Connection: close\r\n\r\n", b"404 Not Found"),
        (b"HEAD /adapter/v1/health HTTP/1.1\r\n" + AUTHORIZED + b"Connection: close\r\n\r\n", b"404"),
        (b"BREW /adapter/v1/health HTTP/1.1\r\n" + AUTHORIZED + b"Connection: close\r\n\r\n", b"501"),
        (b"garbage\r\n\r\n", b"400"),
    ],
)
def test_whatever_is_sent_the_answer_names_the_protocol(server: FaultyServer, request_: bytes, status: bytes) -> None:
    answer = raw(server, request_)
    assert status in answer.split(b"\r\n")[0] or status in answer[:400]
    if answer.startswith(b"HTTP/"):
        assert b"Differently-Adapter-Protocol: 1" in answer


def test_a_body_in_chunks_is_read(server: FaultyServer, sandbox: Target) -> None:
    path = f"/adapter/v1/instances/{sandbox.ref}/files/content?path=p"
    head = f"PUT {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n".encode() + AUTHORIZED + b"\r\n"
    assert b" 204 " in raw(server, head + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n")[:40]


@pytest.mark.parametrize("cut", [b"3\r\nab", b"zz\r\n", b"-1\r\n", b"3\r\nabcd\r\n0\r\n\r\n"])
def test_a_body_that_is_cut_leaves_the_old_file(
    server: FaultyServer, adapter: RemoteAdapter, sandbox: Target, cut: bytes
) -> None:
    adapter.file_write(sandbox, "p", [b"old"])
    path = f"/adapter/v1/instances/{sandbox.ref}/files/content?path=p"
    head = f"PUT {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n".encode() + AUTHORIZED + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as sock:
        sock.sendall(head + cut)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass
    assert b"".join(adapter.file_read(sandbox, "p").chunks) == b"old"


def test_a_refused_body_does_not_hide_the_refusal(adapter: RemoteAdapter, server: FaultyServer) -> None:
    body = b"x" * (5 * MIB)
    head = b"POST /adapter/v1/instances HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body)
    answer = raw(server, head + AUTHORIZED + b"\r\n" + body)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "payload_too_large"


def test_a_plugin_serves_a_block(backend: FakeBackend) -> None:
    with serving(FakeAdapter.over(backend), TOKEN) as served, closing(client(served.url)) as adapter:
        adapter.health()


# The command.


def test_without_a_token_only_loopback_is_served(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert main(["nowhere:adapter", "--host", "0.0.0.0"]) == 2
    assert TOKEN_VARIABLE in capsys.readouterr().err


def test_the_command_serves_an_adapter_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "lab_plugin.py").write_text(
        "from differently_adapters.providers.fake import FakeAdapter, FakeBackend\n"
        "from differently_core.runtime.clock import SystemClock\n"
        "def adapter():\n"
        "    return FakeAdapter.over(FakeBackend(SystemClock()))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "differently_adapters.remote.serve", "lab_plugin:adapter", "--port", "0"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ, TOKEN_VARIABLE: TOKEN},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split()[-1].removesuffix("/adapter/v1")
        with closing(client(url)) as adapter:
            assert adapter.create(a_create_request(OWNER), 10.0).owner == OWNER
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_is_named_may_be_an_adapter_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_plugin.py").write_text(
        "from differently_adapters.providers.fake import FakeAdapter, FakeBackend\n"
        "from differently_core.runtime.clock import SystemClock\n"
        "adapter = FakeAdapter.over(FakeBackend(SystemClock()))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load("made_plugin").kind == "fake"
