"""Starts, stops, kills and starts again: what was accepted stays accepted, and nothing is left behind."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import httpx
import pytest

from tests.e2e.plane import STOP_SECONDS_MAX, Client, Plane, at_once, until

Fresh = Callable[[], Plane]


def test_a_kill_in_the_middle_of_provisioning_loses_and_doubles_nothing(fresh: Fresh) -> None:
    first = fresh()
    first.start()
    accepted: list[str] = []
    with first.client() as client:
        creating = threading.Thread(target=create_until_killed, args=(client, accepted))
        creating.start()
        until(lambda: len(accepted) >= 10 and client.list("running"), "the first one runs")
        first.kill()
        creating.join(STOP_SECONDS_MAX)
    assert first.emulator_lives()

    second = fresh()
    second.start()
    assert second.emulator_pid == first.emulator_pid
    with second.client() as client:
        until(lambda: all(found["status"] == "running" for found in client.list()), "all of them run")
        there = {found["id"]: found for found in client.list()}
        assert set(accepted) <= set(there)
        # One directory for each, and nothing half-made.
        assert second.directories() == sorted(there)
        assert client.quota()["used"]["concurrent"] == len(there)
        some = accepted[0]
        assert client.exec(some, "printf %s $SANDBOX_ID")["stdout"] == some
    assert second.stop() == 0
    assert not second.emulator_lives()


def create_until_killed(client: Client, accepted: list[str]) -> None:
    def create(number: int) -> None:
        with suppress(httpx.TransportError):
            accepted.append(client.create()["id"])

    at_once(16, create, range(60))


def test_a_stop_keeps_the_state_for_the_next_start(fresh: Fresh) -> None:
    first = fresh()
    first.start()
    with first.client() as client:
        sandbox = client.running(labels={"kept": "yes"})
        client.write(sandbox, "note", b"still here")
    keys = first.access
    assert first.stop(signal.SIGINT) == 0
    assert "state is kept" in first.output
    assert not first.emulator_lives()

    second = fresh()
    second.start()
    assert second.access == {**keys, "url": second.access["url"]}
    with second.client() as client:
        assert client.get(sandbox)["labels"] == {"kept": "yes"}
        assert client.read(sandbox, "note") == b"still here"
        client.delete(sandbox)
        client.gone(sandbox)


def test_a_second_start_names_the_first_and_leaves_it_alone(fresh: Fresh) -> None:
    first, second = fresh(), fresh()
    first.start()
    second.launch()
    assert second.ended() == 1
    assert f"already running at {first.access['url']}" in second.output
    assert httpx.get(f"{first.access['url']}/healthz", trust_env=False).status_code == 200
    assert first.emulator_lives()


class Foreign(http.server.BaseHTTPRequestHandler):
    """Somebody else's server, which finds every request fine."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"edition": "light"}')

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def foreign_server(port: int) -> Iterator[list[str]]:
    """The requests that it is asked."""
    Foreign.asked.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Foreign)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield Foreign.asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(STOP_SECONDS_MAX)


def test_neither_a_foreign_listener_nor_a_reused_pid_is_taken_for_the_emulator(fresh: Fresh) -> None:
    first = fresh()
    first.start()
    with first.client() as client:
        sandbox = client.running()
    first.kill()
    last = first.emulator
    os.kill(last["pid"], signal.SIGTERM)
    until(lambda: not first.emulator_lives(), "the end of the emulator")

    with foreign_server(last["port"]) as asked, subprocess.Popen(["sleep", "600"]) as bystander:
        try:
            (first.data_dir / "emulator.json").write_text(json.dumps({**last, "pid": bystander.pid}))
            second = fresh()
            second.start()
            assert second.emulator["port"] != last["port"]
            with second.client() as client:
                assert client.get(sandbox)["status"] == "running"
            assert second.stop() == 0
            assert bystander.poll() is None
            assert asked == []
        finally:
            bystander.kill()


def test_a_start_that_fails_after_the_emulator_began_ends_it(fresh: Fresh) -> None:
    plane = fresh()
    plane.data_dir.mkdir()
    (plane.data_dir / "pepper").write_text("too short")
    plane.launch()
    assert plane.ended() == 1
    assert "pepper is damaged" in plane.output
    assert not plane.emulator_lives()


def test_a_signal_during_the_start_ends_it_whole(fresh: Fresh) -> None:
    plane = fresh()
    plane.launch()
    until(lambda: "starting the embedded AWS" in plane.output, "the start has begun")
    assert plane.stop(signal.SIGINT) == 130
    assert not plane.emulator_lives()


def test_a_taken_port_is_named_before_anything_is_started(fresh: Fresh) -> None:
    plane = fresh()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plane.launch(PORT=str(port))
        assert plane.ended() == 1
    assert f"Port {port} of 127.0.0.1 cannot be used" in plane.output
    assert "PORT=" in plane.output
    assert not plane.emulator_lives()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org", "::"])
def test_it_serves_on_loopback_only(fresh: Fresh, host: str) -> None:
    plane = fresh()
    plane.launch(HOST=host)
    assert plane.ended() == 2
    assert f"HOST={host}" in plane.output
    assert not (plane.data_dir / "emulator.lock").exists()


def test_lost_state_is_told_and_gets_new_keys(fresh: Fresh) -> None:
    first = fresh()
    first.start()
    before = first.access
    assert first.stop() == 0
    for path in (first.data_dir / "state").iterdir():
        path.unlink()

    second = fresh()
    second.start()
    assert "keys of the last run are not valid any more" in second.output
    assert second.access["tenantKey"] != before["tenantKey"]
    with second.client() as client:
        client.running()


def test_an_emulator_that_dies_takes_the_control_plane_down_with_a_word(fresh: Fresh) -> None:
    plane = fresh()
    plane.start()
    os.kill(plane.emulator_pid, signal.SIGKILL)
    assert plane.ended() == 1
    assert "the embedded AWS ended by itself" in plane.output


def test_credentials_and_profiles_of_the_shell_change_nothing(fresh: Fresh, tmp_path: Path) -> None:
    plane = fresh()
    plane.start(
        AWS_PROFILE="no-such-profile", AWS_ACCESS_KEY_ID="AKIAEXAMPLE", AWS_ENDPOINT_URL="http://192.0.2.1:1",
        AWS_REGION="eu-central-1", HTTP_PROXY="http://192.0.2.1:1", http_proxy="http://192.0.2.1:1",
    )  # fmt: skip
    with plane.client() as client:
        client.running()
