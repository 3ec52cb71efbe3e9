"""Starts, stops, kills and starts again: what was accepted stays accepted, and nothing is left behind."""

from __future__ import annotations

import fcntl
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, ClassVar

import httpx

from tests.e2e.plane import STOP_SECONDS_MAX, Client, Plane, at_once, until

Fresh = Callable[[], Plane]


def test_a_kill_in_the_middle_of_provisioning_loses_and_doubles_nothing(fresh: Fresh) -> None:
    """Forty sandboxes leave the queue at once while sixty more are created; with the first that runs comes the kill."""
    first = fresh()
    first.start()
    first.set_quota(1)
    with first.client() as client:
        accepted = [client.running(), *at_once(16, lambda _: str(client.create()["id"]), range(39))]
        creating = threading.Thread(target=create_until_killed, args=(client, accepted))
        creating.start()
        first.set_quota(100)
        # With ten or more on their way all sixteen workers are busy, so the kill meets some in every step of theirs.
        until(lambda: len(client.list("running")) > 1 and len(client.list("provisioning")) >= 10, "the first one runs")
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
        assert second.instances() == sorted(there)
        assert client.quota()["used"]["concurrent"] == len(there)
        some = accepted[-1]
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


def test_it_serves_on_loopback_only(fresh: Fresh) -> None:
    plane = fresh()
    plane.launch(HOST="0.0.0.0")
    assert plane.ended() == 2
    assert "HOST=0.0.0.0" in plane.output
    assert not (plane.data_dir / "emulator.lock").exists()


def test_an_emulator_that_dies_takes_the_control_plane_down_with_a_word(fresh: Fresh) -> None:
    plane = fresh()
    plane.start()
    os.kill(plane.emulator_pid, signal.SIGKILL)
    assert plane.ended() == 1
    assert "the embedded AWS ended by itself" in plane.output


def test_a_data_directory_that_is_removed_takes_everything_with_it(fresh: Fresh) -> None:
    """Also the emulator, which would else write its state back there some day."""
    plane = fresh()
    plane.start()
    with (plane.data_dir / "emulator.lock").open("rb") as lock:
        # Not the whole of it at once: a probe of the pool may make its directory again meanwhile.
        shutil.rmtree(plane.data_dir, ignore_errors=True)
        assert plane.ended() == 1
        until(lambda: taken(lock), "the end of the emulator")
    assert "was removed while it was in use" in plane.output
    assert not (plane.data_dir / "state").exists()


def taken(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
