"""HTTP/1.1 over one socket pair: what clients send, and what they must never take for a whole answer."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds
from differently_local import connection
from differently_local.connection import Connection
from differently_local.gateway import Answer, Request

SECONDS_MAX = 10.0


class Server:
    """Answers with what was asked, or with the test's own answer."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Answer | None = None
        self.keep = True

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        return self.answer or Answer(200, [("Content-Type", "text/plain")], request.body or b"ok")


class Client:
    def __init__(self, sock: socket.socket, conversation: Connection) -> None:
        self.sock = sock
        self.connection = conversation

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def until(self, end: bytes) -> bytes:
        """What comes, up to and with `end`."""
        found = b""
        while not found.endswith(end):
            piece = self.sock.recv(1)
            assert piece, found
            found += piece
        return found

    def rest(self) -> bytes:
        """All that comes until the server closes."""
        found = b""
        while piece := self.sock.recv(65_536):
            found += piece
        return found


@pytest.fixture
def server() -> Server:
    return Server()


@contextmanager
def talking(server: Server) -> Iterator[Client]:
    ours, theirs = socket.socketpair()
    clock = SystemClock()
    conversation = Connection(theirs, "127.0.0.1", server, clock, SystemIds(clock))
    thread = threading.Thread(target=conversation.serve, args=(lambda: server.keep,), daemon=True)
    thread.start()
    with ours:
        ours.settimeout(SECONDS_MAX)
        yield Client(ours, conversation)
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with talking(server) as made:
        yield made


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error_of(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"])


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_requests_follow_each_other_on_one_connection(client: Client, server: Server) -> None:
    for _ in range(3):
        client.send(GET)
        assert status_of(client.until(b"\r\n\r\nok")) == 200
    assert len(server.requests) == 3
    assert len({request.identifier for request in server.requests}) == 3


def test_requests_sent_ahead_are_answered_in_order(client: Client, server: Server) -> None:
    client.send(GET.replace(b"/healthz", b"/first") + GET.replace(b"/healthz", b"/second"))
    for _ in range(2):
        client.until(b"\r\n\r\nok")
    assert [request.path for request in server.requests] == ["/first", "/second"]


def test_a_request_is_handed_on_as_it_was_sent(client: Client, server: Server) -> None:
    client.send(b"PUT /a%2Fb?x=%20 HTTP/1.1\r\nHost: localhost\r\nX-Case: Kept \r\nContent-Length: 3\r\n\r\n\x00\xffz")
    client.until(b"\r\n\r\n\x00\xffz")
    (request,) = server.requests
    assert (request.method, request.target, request.path) == ("PUT", "/a%2Fb?x=%20", "/a%2Fb")
    assert ("X-Case", "Kept") in request.headers
    assert request.body == b"\x00\xffz"


def test_a_chunked_body_is_put_together(client: Client, server: Server) -> None:
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.send(b"3\r\nabc\r\n")
    client.send(b"2\r\nde\r\n0\r\n\r\n")
    client.until(b"abcde")
    assert server.requests[0].body == b"abcde"


def test_a_client_that_asks_first_is_told_to_go_on(client: Client) -> None:
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    assert status_of(client.until(b"\r\n\r\n")) == 100
    client.send(b"hi")
    assert status_of(client.until(b"hi")) == 200


def test_a_head_request_gets_no_body(client: Client) -> None:
    client.send(GET.replace(b"GET", b"HEAD") + GET)
    head = client.until(b"\r\n\r\n")
    assert b"content-length: 2" in head.lower()
    assert client.until(b"\r\n\r\nok").startswith(b"HTTP/1.1 200")


def test_an_old_client_gets_an_answer_that_ends_with_the_connection(client: Client) -> None:
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert client.rest().endswith(b"\r\n\r\nok")


def test_a_crowded_server_closes_after_the_answer(client: Client, server: Server) -> None:
    server.keep = False
    client.send(GET)
    assert b"connection: close" in client.rest().lower()


def test_an_answer_without_a_body_does_not_tell_its_length(client: Client, server: Server) -> None:
    server.answer = Answer(204, [("Allow", "GET")])
    client.send(GET)
    assert b"content-length" not in client.until(b"\r\n\r\n").lower()
    server.answer = None
    client.send(GET)
    client.until(b"\r\n\r\nok")


# What cannot be read


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\x00: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 11_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 20_000, 431),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10485761\r\n\r\n", 413),
    ],
)
def test_what_cannot_be_read_is_refused_in_json(
    client: Client, server: Server, request_bytes: bytes, status: int
) -> None:
    client.send(request_bytes)
    answer = client.rest()
    assert status_of(answer) == status, answer
    assert error_of(answer) in {"invalid_request", "payload_too_large"}
    assert b"connection: close" in answer.lower()
    assert server.requests == []


@pytest.mark.parametrize("line", [b"Authorization: Bearer dk_canary\x00", b"Authorization : Bearer dk_canary"])
def test_a_line_that_cannot_be_read_is_quoted_nowhere(
    client: Client, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    """It may be the one with the key, and a slip of the keyboard is enough."""
    caplog.set_level("DEBUG")
    client.send(b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n\r\n")
    answer = client.rest()
    assert status_of(answer) == 400
    assert b"canary" not in answer
    assert "canary" not in str([vars(record) for record in caplog.records])


def test_a_client_that_asks_first_is_refused_before_it_sends_too_much(client: Client) -> None:
    client.send(b"PUT / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
    assert status_of(client.rest()) == 413


def test_a_chunked_body_that_grows_too_large_is_refused(client: Client) -> None:
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    for _ in range(11):
        client.send(chunk)
    assert status_of(client.rest()) == 413


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_request(server: Server) -> None:
    with talking(server) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab")
    assert server.requests == []


@pytest.mark.parametrize("piece", [b"", b"GET / HT"])
def test_a_client_that_says_nothing_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.05)
    with talking(server) as client:
        client.send(piece)
        assert client.rest() == b""


# Streams


class Source:
    """A stream of the test's own, which tells whether it was closed."""

    def __init__(self, *pieces: bytes | Exception | threading.Event) -> None:
        self._pieces = iter(pieces)
        self.closed = threading.Event()

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        if isinstance(piece, Exception):
            raise piece
        if isinstance(piece, threading.Event):
            assert piece.wait(SECONDS_MAX)
            return self.__next__()
        return piece

    def close(self) -> None:
        self.closed.set()


def test_each_piece_of_a_stream_is_sent_when_it_is_there(client: Client, server: Server) -> None:
    seen = threading.Event()
    source = Source(b"one\n", seen, b"", b"two\n")
    server.answer = Answer(200, [], stream=source)
    client.send(GET)
    client.until(b"4\r\none\n\r\n")
    seen.set()
    assert client.until(b"0\r\n\r\n") == b"4\r\ntwo\n\r\n0\r\n\r\n"
    assert source.closed.wait(SECONDS_MAX)
    client.send(GET)
    client.until(b"0\r\n\r\n")  # the connection goes on


def test_a_stream_that_fails_never_looks_whole(client: Client, server: Server) -> None:
    source = Source(b"one\n", ValueError("the backend broke"))
    server.answer = Answer(200, [], stream=source)
    client.send(GET)
    assert client.rest().endswith(b"4\r\none\n\r\n")
    assert source.closed.wait(SECONDS_MAX)


def test_a_stream_shorter_than_it_said_never_looks_whole(client: Client, server: Server) -> None:
    server.answer = Answer(200, [("Content-Length", "10")], stream=Source(b"short"))
    client.send(GET)
    answer = client.rest()
    assert answer.endswith(b"short")
    assert b"transfer-encoding" not in answer.lower()


def test_a_client_that_leaves_closes_the_stream(server: Server) -> None:
    gone = threading.Event()
    source = Source(b"one\n", gone, *[b"x" * 65_536] * 64)
    server.answer = Answer(200, [], stream=source)
    with talking(server) as client:
        client.send(GET)
        client.until(b"one\n\r\n")
        client.sock.close()
        gone.set()
        assert source.closed.wait(SECONDS_MAX)


def test_a_stream_that_lasts_too_long_is_cut(client: Client, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STREAM_SECONDS_MAX", -1.0)
    server.answer = Answer(200, [], stream=Source(b"one\n", b"two\n"))
    client.send(GET)
    assert client.rest().endswith(b"4\r\none\n\r\n")


def test_a_connection_between_two_requests_is_idle_and_can_be_closed(client: Client) -> None:
    client.send(GET)
    client.until(b"\r\n\r\nok")
    end = time.monotonic() + SECONDS_MAX
    while client.connection.idle_since is None:
        assert time.monotonic() < end
        time.sleep(0.001)
    client.connection.close()
    assert client.rest() == b""
