"""The listener: bounded connections, and a stop that loses no answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds
from differently_local import front
from differently_local.failure import StartFailure
from differently_local.front import Front
from differently_local.gateway import Answer, Request

SECONDS_MAX = 10.0
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def a_front(port: int = 0) -> Front:
    clock = SystemClock()
    return Front("127.0.0.1", port, clock, SystemIds(clock))


class Slow:
    """Answers when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go = threading.Event()

    def __call__(self, request: Request) -> Answer:
        self.begun.release()
        assert self.go.wait(SECONDS_MAX)
        return Answer(200, [], b"done")


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()


@pytest.fixture
def serving(slow: Slow) -> Iterator[Front]:
    made = a_front()
    made.start(slow)
    yield made
    slow.go.set()
    made.stop()


def connect(serving: Front) -> socket.socket:
    host, _, port = serving.url.removeprefix("http://").rpartition(":")
    client = socket.create_connection((host, int(port)), SECONDS_MAX)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def everything(client: socket.socket) -> bytes:
    found = b""
    while piece := client.recv(65_536):
        found += piece
    return found


def test_a_taken_port_is_named() -> None:
    first = a_front()
    port = int(first.url.rpartition(":")[2])
    try:
        with pytest.raises(StartFailure, match=rf"Port {port} of 127\.0\.0\.1.*PORT="):
            a_front(port)
    finally:
        first.close()


def test_a_stop_lets_an_answer_finish_and_closes_idle_connections(serving: Front, slow: Slow) -> None:
    # Connections are taken in their order: when the second one is answered, the first one is no longer in the backlog.
    with connect(serving) as idle, connect(serving) as busy:
        busy.sendall(GET)
        assert slow.begun.acquire(timeout=SECONDS_MAX)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(serving.stop(SECONDS_MAX)))
        stopping.start()
        assert everything(idle) == b""
        slow.go.set()
        assert everything(busy).endswith(b"done")
        stopping.join(SECONDS_MAX)
        assert stopped == [True]


def test_a_stop_does_not_wait_for_ever(serving: Front, slow: Slow) -> None:
    with connect(serving) as client:
        client.sendall(GET)
        assert slow.begun.acquire(timeout=SECONDS_MAX)
        began = time.monotonic()
        assert not serving.stop(0.1)
        assert time.monotonic() - began < 5
        assert everything(client) == b""


def test_a_stopped_front_takes_no_connection(serving: Front) -> None:
    serving.stop()
    with pytest.raises(ConnectionRefusedError):
        connect(serving)


def test_a_full_front_closes_an_idle_connection_for_a_new_one(
    serving: Front, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(front, "ACCEPT_SECONDS", 0.01)
    slow.go.set()
    clients = [connect(serving) for _ in range(4)]
    try:
        for client in clients[-2:]:
            client.sendall(GET)
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
    finally:
        for client in clients:
            client.close()


def test_an_answer_of_many_small_pieces_is_not_held_back(slow: Slow) -> None:
    """A stream of a hundred lines over a real socket, each acknowledged by the reader before the next is made."""
    acknowledged = threading.Semaphore(0)

    def lines() -> Iterator[bytes]:
        for number in range(100):
            yield b"%d\n" % number
            assert acknowledged.acquire(timeout=SECONDS_MAX)

    serving = a_front()
    serving.start(lambda request: Answer(200, [], stream=lines()))
    try:
        with connect(serving) as client, client.makefile("rb") as reader:
            client.sendall(GET)
            began = time.monotonic()
            while reader.readline() != b"\r\n":
                pass
            for number in range(100):
                size = int(reader.readline(), 16)
                assert reader.read(size + 2) == b"%d\n\r\n" % number
                acknowledged.release()
            assert reader.readline() == b"0\r\n"
            assert time.monotonic() - began < 2.0  # with Nagle's algorithm each piece would wait about 40 ms
    finally:
        serving.stop()
