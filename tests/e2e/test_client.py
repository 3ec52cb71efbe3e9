"""The client as users have it, against a real `make run`: real commands, streams, jobs and files over HTTP."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import differently
from differently import AsyncSandbox, Exit, Output, Sandbox
from differently._failure import CommandFailed
from differently.errors import InvalidState
from tests.e2e.plane import Plane


@pytest.fixture
def here(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `make run` is running, and a shell behind a proxy that must not see its keys."""
    (tmp_path / ".differently").symlink_to(plane.data_dir)
    monkeypatch.chdir(tmp_path)
    for name in ("DIFFERENTLY_URL", "DIFFERENTLY_API_KEY", "DIFFERENTLY_LOGIN", "DIFFERENTLY_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DIFFERENTLY_CONFIG", str(tmp_path / "logins.json"))
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:1")
    return tmp_path


@pytest.fixture
def client(plane: Plane) -> Iterator[differently.Client]:
    with differently.Client(plane.access["url"], plane.access["tenantKey"]) as made:
        yield made


@pytest.fixture
def sandbox(client: differently.Client) -> Iterator[Sandbox]:
    with client.sandboxes.create() as made:
        yield made


def test_the_first_lines_of_a_user(here: Path) -> None:
    with Sandbox.create() as sbx:
        assert sbx.run("echo hi").stdout == "hi\n"


def test_the_same_with_asyncio(here: Path) -> None:
    async def story() -> list[str]:
        async with await AsyncSandbox.create() as sbx:
            runs = await asyncio.gather(*(sbx.run(f"echo {n}") for n in range(3)))
            told = [run.stdout for run in runs]
            told += [event.text async for event in sbx.stream("echo streamed") if isinstance(event, Output)]
            return told

    assert asyncio.run(story()) == ["0\n", "1\n", "2\n", "streamed\n"]


def test_commands(sandbox: Sandbox) -> None:
    result = sandbox.run("tr a-z A-Z; echo oops >&2; exit 3", stdin="hello")
    assert (result.exit_code, result.stdout, result.stderr, result.ok) == (3, "HELLO", "oops\n", False)
    assert sandbox.run(["printf", "%s|", "a b", "c"]).stdout == "a b|c|"
    assert sandbox.run("printf '\\377'").stdout_bytes == b"\xff"
    assert sandbox.run("echo $A; pwd", env={"A": "1"}, cwd="/").stdout == "1\n/\n"
    with pytest.raises(CommandFailed, match="exited with 1: no such thing") as raised:
        sandbox.run("echo no such thing >&2; exit 1", check=True)
    assert raised.value.result.exit_code == 1
    late = sandbox.run("sleep 20", timeout_seconds=1)
    assert (late.exit_code, late.timed_out) == (124, True)


def test_a_stream_comes_while_it_is_written(sandbox: Sandbox) -> None:
    began = time.monotonic()
    seen: list[float] = []
    code = None
    for event in sandbox.stream("echo one; sleep 1; echo two >&2; exit 4"):
        if isinstance(event, Output):
            seen.append(time.monotonic() - began)
        else:
            code = event.exit_code
    assert code == 4
    assert len(seen) == 2
    assert seen[1] - seen[0] > 0.5


def test_leaving_a_stream_lets_go_of_the_connection_and_not_of_the_command(sandbox: Sandbox) -> None:
    for event in sandbox.stream("echo begun; sleep 1; echo done > end"):
        assert isinstance(event, Output)
        break
    end = time.monotonic() + 20
    while not any(found.name == "end" for found in sandbox.files.list()):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_long_command_is_a_job_behind_the_call(sandbox: Sandbox) -> None:
    result = sandbox.run("echo out; sleep 0.5; echo err >&2; exit 5", timeout_seconds=3600)
    assert (result.exit_code, result.stdout, result.stderr) == (5, "out\n", "err\n")
    job = sandbox.jobs.start("echo begun; sleep 600", id="mine")
    stop = threading.Timer(0.5, lambda: sandbox.jobs.get("mine").stop())
    stop.start()
    events = list(job.events())
    stop.join()
    assert isinstance(events[-1], Exit)
    assert events[-1].exit_code != 0
    assert job.state == "stopped"


@pytest.mark.parametrize("size", [0, 5, 4 * 1024 * 1024, 9_000_001])
def test_files_of_any_size_come_back_as_they_went(sandbox: Sandbox, tmp_path: Path, size: int) -> None:
    content = (b"0123456789abcdef\xff\x00" * (size // 18 + 1))[:size]
    sandbox.files.write("-odd name/ü'$x.bin", content)
    assert sandbox.files.read("-odd name/ü'$x.bin") == content
    (tmp_path / "up").write_bytes(content)
    moved: list[int] = []
    sandbox.files.upload(tmp_path / "up", "-odd name/ü'$x.bin", moved.append)
    sandbox.files.download("-odd name/ü'$x.bin", tmp_path / "down", moved.append)
    assert (tmp_path / "down").read_bytes() == content
    assert max(moved, default=0) == size
    assert [found.name for found in sandbox.files.list("-odd name")] == ["ü'$x.bin"]
    assert sandbox.run("ls -A").stdout == "-odd name\n"


def test_six_mebibytes_are_sent_to_the_bucket_and_nobody_logs_where(
    sandbox: Sandbox, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Adapters of the server quieten httpx in their process, which this one may share; a user of the client has none.
    monkeypatch.setattr(logging.getLogger("httpx"), "filters", [])
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="httpx")
    content = bytes(range(256)) * (6 * 4096)
    (tmp_path / "up").write_bytes(content)
    sandbox.files.upload(tmp_path / "up", "a/b.bin")
    assert sandbox.files.read("a/b.bin") == content
    assert sandbox.run("ls -A a").stdout == "b.bin\n"
    told = caplog.text
    assert "HTTP Request: PUT http://127.0.0.1" in told or "HTTP Request: PUT http://localhost" in told
    assert "Signature" not in told
    assert "uploads/org_" not in told


class WithoutUploads(httpx.HTTPTransport):
    """As a server that is older."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/uploads"):
            return httpx.Response(404, json={"error": {"code": "not_found", "message": "There is no such route."}})
        return super().handle_request(request)


def test_a_server_without_uploads_gets_parts_that_are_joined(plane: Plane) -> None:
    content = b"0123456789abcdef\xff\x00" * 500_000
    access = plane.access
    older = differently.Client(access["url"], access["tenantKey"], transport=WithoutUploads())
    with older as client, client.sandboxes.create() as sandbox:
        sandbox.files.write("-odd name/ü'$x.bin", content)
        assert sandbox.files.read("-odd name/ü'$x.bin") == content
        assert [found.name for found in sandbox.files.list("-odd name")] == ["ü'$x.bin"]


def test_a_download_that_fails_leaves_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    with pytest.raises(differently.ApiError):
        sandbox.files.download("missing", tmp_path / "down")
    assert list(tmp_path.iterdir()) == []


def test_a_port_is_opened_where_the_pool_can(sandbox: Sandbox) -> None:
    with pytest.raises(differently.ApiError) as raised:
        sandbox.ports.open(8000)
    assert raised.value.code in ("unsupported_operation", "invalid_state")
    assert sandbox.ports.list() == []


def test_what_has_ended_takes_no_command(client: differently.Client) -> None:
    sandbox = client.sandboxes.create()
    sandbox.delete()
    assert sandbox.wait("terminated").status == "terminated"
    with pytest.raises(InvalidState):
        sandbox.run("true")
