"""One call over a real socket or a stand-in for it: deadlines, cut bodies, redirects, and no credential anywhere."""

from __future__ import annotations

import gzip
import logging
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from differently_adapters.http import Call, Deadlines, EndpointRules, Http, Streamed, parse_endpoint, segment
from differently_adapters.http.connections import IDLE_SECONDS
from differently_core.errors import (
    AdapterFault,
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)
from differently_core.runtime.clock import Clock, SystemClock, VirtualClock
from tests.support.sockets import Script, ScriptedServer, answer, scripted

KEY = "dly-canary-5Jq0vX2mT8sR4wZ1"
RULES = EndpointRules(http=True, loopback=True)
SHORT = Deadlines(total=5.0)
OK = answer(b'{"ok":true}')


def reply(data: bytes) -> Script:
    return lambda connection, _: connection.sendall(data)


def closing(data: bytes) -> Script:
    def script(connection: socket.socket, _: bytes) -> None:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_RDWR)

    return script


@contextmanager
def talking(script: Script, clock: Clock | None = None, **options: Any) -> Iterator[tuple[Http, ScriptedServer]]:
    with scripted(script) as server:
        http = Http(
            parse_endpoint(f"http://127.0.0.1:{server.port}/base", RULES), clock or SystemClock(), rules=RULES,
            headers={"Authorization": f"Bearer {KEY}"}, secrets=[KEY], **options,
        )  # fmt: skip
        try:
            yield http, server
        finally:
            http.close()


def standing_in(answer_with: Callable[[httpx.Request], httpx.Response]) -> Http:
    return Http(
        parse_endpoint("https://api.example.com"), SystemClock(), headers={"Authorization": f"Bearer {KEY}"},
        secrets=[KEY], transport=lambda: httpx.MockTransport(answer_with),
    )  # fmt: skip


def everything_told(error: BaseException) -> str:
    told = []
    link: BaseException | None = error
    while link is not None:
        told.append(f"{link!r} {link} {getattr(link, 'details', '')} {vars(link)}")
        link = link.__cause__ or link.__context__
    return "\n".join(told)


# What is sent.


def test_a_request_is_exactly_this() -> None:
    with talking(reply(OK)) as (http, server):
        assert http.json(Call("POST", "/x", SHORT, query={"a b": "ü&"}, body={"n": "é"})) == {"ok": True}
        head, _, body = server.requests[0].partition(b"\r\n\r\n")
        first, *headers = head.decode().split("\r\n")
        assert first == "POST /base/x?a%20b=%C3%BC%26 HTTP/1.1"
        assert {line.split(": ")[0].lower() for line in headers} == {
            "host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "authorization",
        }  # fmt: skip
        assert body == '{"n":"é"}'.encode()


def test_connections_are_used_again() -> None:
    with talking(reply(OK)) as (http, server):
        for _ in range(5):
            http.json(Call("GET", "/x", SHORT))
        assert len(server.requests) == 5
        assert server.connections == 1


def test_a_connection_that_idled_too_long_is_not() -> None:
    clock = VirtualClock()
    with talking(reply(OK), clock) as (http, server):
        http.json(Call("GET", "/x", SHORT))
        clock.advance(IDLE_SECONDS + 1)
        http.json(Call("POST", "/x", SHORT))
        assert server.connections == 2


def test_another_base_gets_none_of_the_pools_headers() -> None:
    with talking(reply(OK)) as (http, server):
        other = http.at(parse_endpoint(f"http://127.0.0.1:{server.port}/other", RULES), {"X-Token": "t"})
        other.json(Call("GET", "/x", SHORT))
        assert b"/other/x" in server.requests[0]
        assert KEY.encode() not in server.requests[0]
        assert server.connections == 1


def test_no_cookie_is_kept() -> None:
    with talking(reply(answer(b"{}", "Set-Cookie: a=b; Path=/"))) as (http, server):
        http.json(Call("GET", "/x", SHORT))
        http.json(Call("GET", "/x", SHORT))
        assert b"cookie" not in server.requests[1].lower()


def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with talking(reply(OK)) as (http, _):
        assert http.json(Call("GET", "/x", SHORT)) == {"ok": True}


def test_a_signature_covers_what_is_sent() -> None:
    signed: list[tuple[str, str, bytes]] = []

    def sign(call: Call, url: str, headers: object, body: bytes) -> dict[str, str]:
        signed.append((call.method, url, body))
        return {"X-Signature": "s"}

    with talking(reply(OK), sign=sign) as (http, server):
        http.json(Call("PUT", "/x", SHORT, body=[1]))
        assert b"x-signature: s" in server.requests[0].lower()
        assert signed == [("PUT", f"http://127.0.0.1:{server.port}/base/x", b"[1]")]


def test_a_body_can_be_made_while_it_is_sent() -> None:
    with talking(reply(OK)) as (http, server):
        http.json(Call("PUT", "/x", SHORT, content=iter([b"one", b"two"])))
        assert b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n" in server.requests[0]


def test_what_the_maker_of_a_body_raises_comes_out_as_it_is() -> None:
    def cut() -> Iterator[bytes]:
        yield b"one"
        raise ConnectionError("the sender went away")

    with talking(reply(OK)) as (http, _), pytest.raises(ConnectionError, match="sender"):
        http.json(Call("PUT", "/x", SHORT, content=cut()))


@pytest.mark.parametrize(
    ("value", "quoted"), [("a/b", "a%2Fb"), ("ü ?#%", "%C3%BC%20%3F%23%25"), ("a\r\nb", "a%0D%0Ab")]
)
def test_a_segment_holds_anything(value: str, quoted: str) -> None:
    assert segment(value) == quoted


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_segment_that_would_lead_elsewhere_names_nothing(value: str) -> None:
    with pytest.raises(NotFound):
        segment(value)


@pytest.mark.parametrize("path", ["x", "//..", "/a/../b", "/a/.", "@evil.example/"])
def test_a_path_cannot_lead_elsewhere(path: str) -> None:
    with talking(reply(OK)) as (http, server), pytest.raises(AdapterFault) as refused:
        http.json(Call("GET", path, SHORT))
    assert refused.value.settled
    assert server.connections == 0


@pytest.mark.parametrize("value", ["a\r\nX: y", "naïve", "\x00"])
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(value: str) -> None:
    with talking(reply(OK)) as (http, server), pytest.raises(ProviderUnavailable) as refused:
        http.json(Call("POST", "/x", SHORT, headers={"X-Key": f"{value}-canary"}))
    assert refused.value.settled
    assert "canary" not in everything_told(refused.value)
    assert server.connections == 0


# What comes back.


def test_json_and_bytes_and_lines_come_back() -> None:
    with talking(reply(answer(b"one\ntwo\n", kind="text/plain"))) as (http, _):
        assert http.answer(Call("GET", "/x", SHORT)).body == b"one\ntwo\n"
        with http.stream(Call("GET", "/x", SHORT)) as streamed:
            assert list(streamed.lines()) == [b"one", b"two"]


def test_a_gzipped_answer_is_read() -> None:
    with talking(reply(answer(gzip.compress(b'{"a":1}'), "Content-Encoding: gzip"))) as (http, _):
        assert http.json(Call("GET", "/x", SHORT)) == {"a": 1}


def test_a_mocked_answer_is_read_like_a_real_one() -> None:
    http = standing_in(lambda _: httpx.Response(200, json={"a": 1}))
    assert http.json(Call("GET", "/x", SHORT)) == {"a": 1}


BAD_ANSWERS = {
    "dropped": closing(b""),
    "cut in its head": closing(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "cut in its body": closing(OK[:-3]),
    "cut in a chunk": closing(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}"),
    "cut before the last chunk": closing(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"),
    "not HTTP": closing(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "not JSON": reply(answer(b"fine")),
    "empty": reply(answer(b"")),
    "a page": reply(answer(b"<html>502</html>", kind="text/html")),
    "a success with an error inside": reply(answer(b'{"error":{"message":"no"}}')),
    "too long": reply(answer(b'"' + b"x" * 5_000_000 + b'"')),
    "too long to say so": reply(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b" " * 5_000_000),
    "endless headers": closing(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000),
    "a bomb": reply(answer(gzip.compress(bytes(50_000_000)), "Content-Encoding: gzip")),
    "two lengths": reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"),
}


@pytest.mark.parametrize("script", BAD_ANSWERS.values(), ids=list(BAD_ANSWERS))
def test_a_bad_answer_leaves_a_change_unknown_and_a_read_harmless(script: Script) -> None:
    with talking(script) as (http, _):
        for method, settled in (("GET", True), ("POST", False)):
            with pytest.raises(ProviderUnavailable) as failed:
                http.json(Call(method, "/x", SHORT))
            assert failed.value.settled is settled
        with pytest.raises(ExecUnconfirmed):
            http.json(Call("POST", "/x", SHORT, lost=ExecUnconfirmed))


def test_a_call_is_made_once_whatever_becomes_of_it() -> None:
    with talking(closing(b"")) as (http, server), pytest.raises(ProviderUnavailable):
        http.json(Call("POST", "/x", SHORT))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ("404 Not Found", NotFound), ("410 Gone", NotFound), ("409 Conflict", InvalidState),
        ("400 Bad Request", InvalidRequest), ("422 X", InvalidRequest), ("429 X", InsufficientCapacity),
        ("401 X", ProviderUnavailable), ("503 X", ProviderUnavailable), ("302 Found", ProviderUnavailable),
    ],
)  # fmt: skip
def test_a_status_becomes_an_error_that_says_what_the_backend_said(status: str, error: type[DifferentlyError]) -> None:
    body = b'{"error":{"message":"because\\nof this"}}'
    with talking(reply(answer(body, "Retry-After: 9", status=status))) as (http, _):
        with pytest.raises(error) as failed:
            http.json(Call("GET", "/x", SHORT))
        assert failed.value.details["retry_after_seconds"] == 9.0
        assert failed.value.details.get("provider_message") == ("because of this" if status[:3] != "401" else None)


@pytest.mark.parametrize(
    ("secret", "shown"), [("canary-9d81", "it was [redacted]"), ("was", None), ("no", "it was canary-9d81")]
)
def test_what_the_request_held_is_not_told_again(secret: str, shown: str | None) -> None:
    with talking(reply(answer(b'{"message":"it was canary-9d81"}', status="400 Bad Request"))) as (http, _):
        with pytest.raises(InvalidRequest) as failed:
            http.json(Call("POST", "/x", SHORT, secrets=(secret,)))
        assert failed.value.details.get("provider_message") == shown


def test_a_connection_survives_a_failure() -> None:
    with talking(reply(answer(b"{}", status="404 Not Found"))) as (http, server):
        for _ in range(3):
            with pytest.raises(NotFound):
                http.json(Call("GET", "/x", SHORT))
        assert server.connections == 1


def test_a_long_page_of_failure_is_not_read_to_its_end() -> None:
    page = answer(b"x" * 10_000_000, status="500 X", kind="text/html")
    with talking(reply(page)) as (http, _), pytest.raises(ProviderUnavailable):
        http.json(Call("GET", "/x", SHORT))


def test_a_redirect_is_not_followed() -> None:
    with scripted(reply(OK)) as elsewhere:
        moved = answer(b"", f"Location: http://127.0.0.1:{elsewhere.port}/?{KEY}", status="307 Temporary Redirect")
        with talking(reply(moved)) as (http, _), pytest.raises(ProviderUnavailable) as failed:
            http.json(Call("POST", "/x", SHORT))
        assert failed.value.settled
        assert KEY not in everything_told(failed.value)
        assert elsewhere.connections == 0


def test_a_providers_own_reading_comes_first() -> None:
    def explain(call: Call, status: int, headers: object, body: object) -> DifferentlyError | None:
        return InsufficientCapacity(f"Full: {body}") if status == 500 else None

    full = answer(f'"{KEY}"'.encode(), "Retry-After: 3", status="500 X")
    with talking(reply(full), explain=explain) as (http, _):
        with pytest.raises(InsufficientCapacity) as failed:
            http.json(Call("GET", "/x", SHORT))
        assert KEY not in everything_told(failed.value)
        assert failed.value.details == {"retry_after_seconds": 3.0}


# Time.


def test_nobody_listening_is_settled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    http = Http(parse_endpoint(f"http://127.0.0.1:{port}", RULES), SystemClock(), rules=RULES)
    with pytest.raises(ProviderUnavailable) as failed:
        http.json(Call("POST", "/x", SHORT))
    assert failed.value.settled


def test_a_backend_that_hangs_is_left_at_the_deadline() -> None:
    with talking(lambda *_: None) as (http, _), pytest.raises(ProviderUnavailable) as failed:
        http.json(Call("POST", "/x", Deadlines(total=0.1)))
    assert not failed.value.settled


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"])
def test_a_backend_that_drips_is_left_at_the_deadline(begun: bytes) -> None:
    """Each byte comes well within any wait for one; only the sum is too long."""
    stopped = threading.Event()

    def drip(connection: socket.socket, _: bytes) -> None:
        connection.sendall(begun or b"HTTP/1.1 200 OK\r\nX: ")
        while not stopped.wait(0.01):
            connection.sendall(b" ")

    with talking(drip) as (http, _):
        with pytest.raises(ProviderUnavailable) as failed:
            http.json(Call("POST", "/x", Deadlines(total=0.15, read=5.0)))
        stopped.set()
    assert not failed.value.settled
    assert "in time" in failed.value.message


def test_a_wait_inside_an_answer_has_its_own_bound() -> None:
    with talking(reply(OK[:-1])) as (http, _), pytest.raises(ProviderUnavailable, match="in time"):
        http.json(Call("GET", "/x", Deadlines(total=60.0, read=0.1)))


def test_a_waiting_reader_is_woken() -> None:
    with talking(reply(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab")) as (http, _):
        with http.stream(Call("GET", "/x", SHORT)) as streamed:
            chunks = streamed.chunks()
            assert next(chunks) == b"ab"
            outcome: list[BaseException] = []
            reader = threading.Thread(target=_read_on, args=(streamed, chunks, outcome))
            reader.start()
            streamed.interrupt()
            reader.join(5)
        assert isinstance(outcome[0], BackendError)


def _read_on(_: Streamed, chunks: Iterator[bytes], outcome: list[BaseException]) -> None:
    try:
        next(chunks)
    except BackendError as error:
        outcome.append(error)


# Whom it may reach.


@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.7", "127.0.0.1", "::ffff:127.0.0.1", "fd00:ec2::254"])
def test_a_name_that_leads_inside_is_refused_when_it_is_resolved(address: str) -> None:
    http = Http(parse_endpoint("https://api.example.com"), SystemClock(), resolve=lambda host, port: [address])
    with pytest.raises(ProviderUnavailable, match="may not reach") as failed:
        http.json(Call("POST", "/x", SHORT))
    assert failed.value.settled


def test_a_name_that_changes_its_mind_is_asked_once_a_connection() -> None:
    """DNS rebinding: what was checked is what is connected to."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    with scripted(reply(OK)) as server:
        rules = EndpointRules(http=True, loopback=True)
        http = Http(
            parse_endpoint(f"http://evil.example:{server.port}", rules), SystemClock(), rules=rules, resolve=rebinding
        )
        http.json(Call("GET", "/x", SHORT))
        http.json(Call("GET", "/x", SHORT))
        assert asked == ["evil.example"]
        assert b"evil.example" in server.requests[0]
        http.close()


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    with scripted(reply(OK)) as server:
        http = Http(
            parse_endpoint(f"http://plugin.example:{server.port}", RULES), SystemClock(), rules=RULES,
            resolve=lambda host, port: ["127.0.0.2", "127.0.0.1"],
        )  # fmt: skip
        assert http.json(Call("GET", "/x", SHORT)) == {"ok": True}
        http.close()


@pytest.mark.parametrize("error", [OSError("no such host"), UnicodeError("label too long")])
def test_a_name_that_leads_nowhere_is_settled(error: Exception) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise error

    http = Http(parse_endpoint("https://api.example.com"), SystemClock(), resolve=resolve)
    with pytest.raises(ProviderUnavailable) as failed:
        http.json(Call("POST", "/x", SHORT))
    assert failed.value.settled


def test_a_name_server_that_hangs_is_left_at_the_deadline() -> None:
    never = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        never.wait(30)
        return []

    http = Http(parse_endpoint("https://api.example.com"), SystemClock(), resolve=resolve)
    with pytest.raises(ProviderUnavailable) as failed:
        http.json(Call("POST", "/x", Deadlines(total=5.0, connect=0.1)))
    never.set()
    assert failed.value.settled


def test_a_server_that_does_not_speak_tls_is_settled() -> None:
    with scripted(closing(b"plain")) as server:
        rules = EndpointRules(loopback=True)
        http = Http(parse_endpoint(f"https://127.0.0.1:{server.port}", rules), SystemClock(), rules=rules)
        with pytest.raises(ProviderUnavailable) as failed:
            http.json(Call("POST", "/x", Deadlines(total=0.3)))
        assert failed.value.settled


# No credential.


def reflections() -> dict[str, bytes]:
    body = f'{{"error":{{"message":"key {KEY} is wrong","{KEY}":1}}}}'.encode()
    statuses = ["400 Bad", "401 No", "403 No", "404 No", "409 X", "422 X", "429 X", "500 X", "302 X", f"418 {KEY}"]
    found = {
        status: answer(body, f"X-Echo: {KEY}", f"Location: https://{KEY}.example", status=status) for status in statuses
    }
    found["page"] = answer(f"<html>{KEY}".encode(), status="200 OK", kind=f"text/html; {KEY}")
    found["kind"] = answer(b"", kind=KEY)
    found["retry"] = answer(b"{}", f"Retry-After: {KEY}", status="429 X")
    found["inside"] = answer(f'{{"error":"{KEY}"}}'.encode())
    found["encoding"] = answer(b"{}", f"Content-Encoding: {KEY}")
    found["not json"] = answer(KEY.encode())
    found["not http"] = KEY.encode() * 3 + b"\r\n\r\n"
    found["bad header"] = f"HTTP/1.1 200 OK\r\n{KEY}\r\n\r\n".encode()
    found["cut"] = answer(body)[:-20]
    return found


@pytest.mark.parametrize("data", reflections().values(), ids=list(reflections()))
def test_a_reflected_credential_is_told_by_nothing(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with talking(closing(data)) as (http, _):
        for call in (Call("GET", "/x", SHORT, query={"key": KEY}), Call("POST", "/x", SHORT, lost=ExecUnconfirmed)):
            with pytest.raises(DifferentlyError) as failed:
                http.json(call)
            assert KEY not in everything_told(failed.value)
            assert failed.value.__context__ is None
            assert failed.value.__cause__ is None
    assert KEY not in "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert KEY not in f"{http!r} {call!r}"


def test_json_that_succeeds_holds_no_credential() -> None:
    with talking(reply(answer(f'{{"message":"{KEY}"}}'.encode()))) as (http, _):
        assert http.json(Call("GET", "/x", SHORT)) == {"message": "[redacted]"}


# Cost.


def test_nothing_of_httpx_is_loaded_before_the_first_call() -> None:
    script = (
        "import sys\n"
        "from differently_adapters.http import Http, parse_endpoint\n"
        "from differently_core.runtime.clock import SystemClock\n"
        "Http(parse_endpoint('https://api.example.com'), SystemClock())\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('httpx', 'httpcore', 'h11', 'ssl', 'certifi')])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == "[]\n"


def test_pools_share_the_certificate_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    from differently_adapters.http import connections

    assert connections.trust_in(None) is connections.trust_in(None)
    assert isinstance(connections.trust_in(None), ssl.SSLContext)
