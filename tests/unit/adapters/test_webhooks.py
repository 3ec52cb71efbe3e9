"""What is sent to receivers of webhooks, and to whom it never is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from differently_adapters.http import PUBLIC, EndpointRules, parse_target
from differently_adapters.webhooks import HttpCourier
from differently_core.errors import InvalidRequest
from differently_core.model.webhook import Failure, Receipt
from differently_core.runtime.clock import SystemClock
from tests.support.sockets import ScriptedServer
from tests.unit.adapters.http.test_endpoints import ACCEPTED, REFUSED

LOOPBACK = EndpointRules(http=True, loopback=True)
BODY = b'{"id":"evt_1"}'
HEADERS = {"webhook-id": "evt_1", "content-type": "application/json"}
NEVER = sorted(
    {text for text, _ in REFUSED if "?x=1" not in text} | {text for text, rules, _ in ACCEPTED if rules != PUBLIC}
)
"""Everything that no pool may be pointed at, and every exception that an operator can make for a pool."""


@pytest.mark.parametrize("url", NEVER)
def test_no_webhook_leads_there(url: str) -> None:
    """reliability.md, API7: operator- and tenant-supplied URLs; a tenant gets none of an operator's exceptions."""
    with pytest.raises(InvalidRequest) as refused:
        parse_target(url)
    assert refused.value.details == {"field": "url"}
    if len(url) > 20:
        assert url not in refused.value.message


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(NEVER) >= 100


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://hooks.example.com", "https://hooks.example.com/"),
        ("https://HOOKS.example.com/", "https://hooks.example.com/"),
        ("https://hooks.example.com/a/", "https://hooks.example.com/a/"),
        ("https://hooks.example.com/a", "https://hooks.example.com/a"),
        ("https://hooks.example.com:8443/a?code=x%3D&y=/?", "https://hooks.example.com:8443/a?code=x%3D&y=/?"),
        ("https://hooks.example.com?key=1", "https://hooks.example.com/?key=1"),
        ("https://8.8.8.8/a", "https://8.8.8.8/a"),
    ],
)
def test_a_url_is_sent_to_as_it_was_written(url: str, sent: str) -> None:
    assert parse_target(url).url == sent


@pytest.mark.parametrize("url", ["https://a.example/?x y", "https://a.example/?x#y", 'https://a.example/?"<>'])
def test_a_query_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_target(url)


def test_plain_http_never_leaves_this_machine() -> None:
    assert parse_target("http://127.0.0.1:9000/x", LOOPBACK).url == "http://127.0.0.1:9000/x"
    for url in ("http://hooks.example.com", "http://8.8.8.8", "https://10.0.0.1", "https://169.254.169.254"):
        with pytest.raises(InvalidRequest):
            parse_target(url, LOOPBACK)


@pytest.fixture
def courier() -> Iterator[HttpCourier]:
    made = HttpCourier(SystemClock(), loopback=True)
    yield made
    made.close()


def answer(status: str, *headers: str, body: bytes = b"ok") -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers])
    return f"{head}\r\n\r\n".encode() + body


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    made = ScriptedServer(lambda connection, request: connection.sendall(answer("204 No Content", body=b"")))
    yield made
    made.close()


def post(courier: HttpCourier, server: ScriptedServer, seconds: float = 5.0) -> Receipt:
    return courier.post(f"http://127.0.0.1:{server.port}/hook/?k=1", HEADERS, BODY, seconds)


def test_a_request_is_what_was_signed_and_connections_are_used_again(
    courier: HttpCourier, server: ScriptedServer
) -> None:
    assert post(courier, server) == post(courier, server) == Receipt(status=204)
    assert server.connections == 1
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook/?k=1 HTTP/1.1\r\n")
    assert body == BODY
    lines = {line.lower() for line in head.split(b"\r\n")}
    assert {b"webhook-id: evt_1", b"content-type: application/json", b"user-agent: differently-webhooks/1"} <= lines


@pytest.mark.parametrize(
    ("said", "receipt"),
    [
        (answer("500 Oops"), Receipt(status=500)),
        (answer("429 Busy", "Retry-After: 7"), Receipt(status=429, retry_after_seconds=7.0)),
        (answer("302 Found", "Location: http://127.0.0.1:1/"), Receipt(status=302)),
        (b"SSH-2.0-OpenSSH\r\n", Receipt(failure=Failure.BROKEN)),
        (b"", Receipt(failure=Failure.BROKEN)),
    ],
)
def test_an_answer_is_its_status_and_nothing_else(
    courier: HttpCourier, server: ScriptedServer, said: bytes, receipt: Receipt
) -> None:
    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(said)
        if not said.startswith(b"HTTP"):
            connection.shutdown(socket.SHUT_RDWR)

    server.script = script
    assert post(courier, server) == receipt
    assert len(server.requests) == 1, "nothing is followed and nothing repeated"


def test_a_receiver_that_hangs_is_left_in_time(courier: HttpCourier, server: ScriptedServer) -> None:
    server.script = lambda connection, request: None
    began = time.monotonic()
    assert post(courier, server, 0.3) == Receipt(failure=Failure.TIMEOUT)
    assert time.monotonic() - began < 2


def test_a_receiver_that_drips_its_answer_is_taken_by_its_status(courier: HttpCourier, server: ScriptedServer) -> None:
    dripping = threading.Event()

    def script(connection: socket.socket, request: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not dripping.wait(0.05):
            connection.sendall(b"x")

    server.script = script
    began = time.monotonic()
    assert post(courier, server, 0.3) == Receipt(status=200)
    dripping.set()
    assert time.monotonic() - began < 2


def test_nobody_listening_and_no_certificate(courier: HttpCourier, server: ScriptedServer) -> None:
    def plain(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(16)
            connection.sendall(b"no tls here\r\n")
            connection.recv(65_536)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=plain, args=(listener,), daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        assert courier.post(url, HEADERS, BODY, 5.0) == Receipt(failure=Failure.TLS)
    server.close()
    assert post(courier, server) == Receipt(failure=Failure.UNREACHABLE)


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00::1"])
def test_a_name_that_leads_inside_is_refused_when_something_is_sent(address: str) -> None:
    """Rebinding: what was fine when the webhook was made leads somewhere else now."""
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["93.184.216.34", address]

    courier = HttpCourier(SystemClock(), resolve=resolve)
    courier.check("https://rebound.example.com/")
    assert asked == [], "a check sends nothing and asks nobody"
    assert courier.post("https://rebound.example.com/", HEADERS, BODY, 2.0) == Receipt(failure=Failure.ADDRESS)
    courier.close()


def test_what_was_taken_under_other_rules_is_not_sent_to() -> None:
    """A data directory of `make run` with WEBHOOKS_ALLOW_LOOPBACK, started again without it."""
    courier = HttpCourier(SystemClock())
    assert courier.post("http://127.0.0.1:9/", HEADERS, BODY, 2.0) == Receipt(failure=Failure.ADDRESS)
