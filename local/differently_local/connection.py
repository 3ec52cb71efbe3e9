"""One client connection: HTTP/1.1 requests in, answers out, until either side has enough.

h11 knows the protocol; here are the socket, the bounds and the manners. An answer that cannot be finished ends the
connection without its last chunk, so no client can take it for whole.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from http.client import responses

import h11

from differently_api.app import BODY_TOO_LARGE, RAW_BYTES_MAX
from differently_core.errors import DifferentlyError, InvalidRequest, PayloadTooLarge
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import IdSource

from .gateway import BODY_BYTES_MAX, Answer, Request, refusal

log = logging.getLogger(__name__)
HEAD_BYTES_MAX = 10_240
"""Of request line and headers together, as at API Gateway."""
READ_BYTES = 65_536
IDLE_SECONDS = 75.0
HEAD_SECONDS = 20.0
BODY_SECONDS = 60.0
WRITE_SECONDS = 60.0
"""How long a client may take to read on, before it counts as gone."""
STREAM_SECONDS_MAX = 900.0
LINGER_SECONDS = 2.0
LINGER_BYTES_MAX = 32 * 1024 * 1024
BODILESS = frozenset({204, 304})
"""Answers that never have a body, nor say how long it is."""

Answerer = Callable[[Request], Answer]


class Gone(Exception):
    """The client closed the connection, or takes too long."""


class Unreadable(Exception):
    """A request that is refused before it is whole, so nothing after it can be read either."""

    def __init__(self, status: int, error: DifferentlyError) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error


class Connection:
    def __init__(self, sock: socket.socket, peer: str, answer: Answerer, clock: Clock, ids: IdSource) -> None:
        self._sock = sock
        self._peer = peer
        self._answer = answer
        self._clock = clock
        self._ids = ids
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self.idle_since: float | None = time.monotonic()
        """Set between two requests, when nobody loses an answer if the connection is closed."""
        self._bodiless = False

    def serve(self, may_go_on: Callable[[], bool]) -> None:
        """Answer requests one after the other; `may_go_on` says whether to keep the connection for another one."""
        with self._sock:
            try:
                while self._serve_one(may_go_on):
                    self._wire.start_next_cycle()
            except (OSError, Gone, h11.ProtocolError) as error:
                log.debug("connection ended", extra={"peer": self._peer, "why": type(error).__name__})

    def close(self) -> None:
        """From another thread: whatever is read or written next fails."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    # In

    def _serve_one(self, may_go_on: Callable[[], bool]) -> bool:
        """True when the connection can carry another request."""
        self.idle_since = time.monotonic()
        identifier = self._ids.new("req")
        try:
            request = self._read(identifier)
        except h11.RemoteProtocolError as error:
            # What h11 says quotes the line that it could not read, and that line may be the one with the key.
            text = InvalidRequest("This is not HTTP that can be read; look at its first line, headers and framing.")
            self._refuse(Unreadable(error.error_status_hint, text), identifier)
            return False
        except Unreadable as refused:
            self._refuse(refused, identifier)
            return False
        if request is None:
            return False
        self._write(self._answer(request), keep=may_go_on())
        return self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE

    def _read(self, identifier: str) -> Request | None:
        """The next whole request; None when the client has no more."""
        head = self._read_head()
        if head is None:
            return None
        self._bodiless = head.method == b"HEAD"
        _check_head(head)
        return Request(
            method=head.method.decode("ascii"),
            target=head.target.decode("ascii"),
            headers=[(name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers.raw_items()],
            body=self._read_body(),
            source_ip=self._peer,
            identifier=identifier,
            at=self._clock.now(),
        )

    def _read_head(self) -> h11.Request | None:
        deadline = time.monotonic() + IDLE_SECONDS
        while True:
            event = self._wire.next_event()
            if isinstance(event, h11.Request):
                self.idle_since = None
                return event
            if isinstance(event, h11.ConnectionClosed):
                return None
            if event is not h11.NEED_DATA:
                raise Gone
            self._receive(deadline)
            if self.idle_since is not None:
                # The first bytes are there, so the rest must follow soon.
                self.idle_since = None
                deadline = time.monotonic() + HEAD_SECONDS

    def _read_body(self) -> bytes:
        if self._wire.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
        deadline = time.monotonic() + BODY_SECONDS
        parts: list[bytes] = []
        size = 0
        while True:
            event = self._wire.next_event()
            if isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                size += len(event.data)
                if size > BODY_BYTES_MAX:
                    raise _TOO_LARGE
            elif isinstance(event, h11.EndOfMessage):
                return b"".join(parts)
            elif event is h11.NEED_DATA:
                self._receive(deadline)
            else:
                raise Gone

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Gone
        self._sock.settimeout(left)
        self._wire.receive_data(self._sock.recv(READ_BYTES))

    # Out

    def _write(self, answer: Answer, *, keep: bool) -> None:
        headers = [(name.encode("ascii"), value.encode("latin-1", "replace")) for name, value in answer.headers]
        if answer.stream is None and answer.status not in BODILESS:
            headers.append((b"Content-Length", str(len(answer.body)).encode()))
        if not keep:
            headers.append((b"Connection", b"close"))
        head = h11.Response(status_code=answer.status, headers=headers, reason=responses.get(answer.status, ""))
        if answer.stream is None:
            self._write_whole(head, answer.body)
            return
        try:
            self._relay(head, iter(()) if self._bodiless else answer.stream)
        finally:
            _close(answer.stream)

    def _write_whole(self, head: h11.Response, body: bytes) -> None:
        data = self._wire.send(head) or b""
        if body and not self._bodiless:
            data += self._wire.send(h11.Data(data=body)) or b""
        data += self._wire.send(h11.EndOfMessage()) or b""
        self._send_bytes(data)

    def _relay(self, head: h11.Response, stream: Iterator[bytes]) -> None:
        """Each piece as soon as it is there; without the end of the message if anything goes wrong on the way."""
        end = time.monotonic() + STREAM_SECONDS_MAX
        self._send(head)
        try:
            for piece in stream:
                if piece:
                    self._send(h11.Data(data=piece))
                if time.monotonic() > end:
                    raise Gone
            self._send(h11.EndOfMessage())
        except (OSError, Gone):
            raise
        except Exception as error:
            log.exception("answer cut in mid-stream", extra={"peer": self._peer})
            self._abort()
            raise Gone from error

    def _abort(self) -> None:
        """Close with a reset: a client that reads until the end of the connection must not see a clean one either."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _refuse(self, refused: Unreadable, identifier: str) -> None:
        """Answer what was not read to its end, and let the client see it before the connection closes."""
        log.info("request refused", extra={"peer": self._peer, "status": refused.status, "why": refused.error.message})
        if self._wire.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write(refusal(refused.error, identifier, refused.status), keep=False)
            self._linger()

    def _linger(self) -> None:
        """Closing on unread bytes would reset the connection and take our answer with it."""
        self._sock.shutdown(socket.SHUT_WR)
        end = time.monotonic() + LINGER_SECONDS
        left = LINGER_BYTES_MAX
        while left > 0 and time.monotonic() < end:
            self._sock.settimeout(max(0.01, end - time.monotonic()))
            data = self._sock.recv(READ_BYTES)
            if not data:
                return
            left -= len(data)

    def _send(self, event: h11.Event) -> None:
        self._send_bytes(self._wire.send(event) or b"")

    def _send_bytes(self, data: bytes) -> None:
        self._sock.settimeout(WRITE_SECONDS)
        self._sock.sendall(data)


_TOO_LARGE = Unreadable(413, PayloadTooLarge(BODY_TOO_LARGE, limit=RAW_BYTES_MAX))


def _check_head(head: h11.Request) -> None:
    size = len(head.method) + len(head.target) + sum(len(name) + len(value) for name, value in head.headers)
    if size > HEAD_BYTES_MAX:
        raise Unreadable(431, InvalidRequest(f"Request line and headers are over {HEAD_BYTES_MAX} bytes together."))
    if head.http_version not in (b"1.1", b"1.0"):
        raise Unreadable(505, InvalidRequest("Speak HTTP/1.1 to this server."))
    if not head.target.startswith(b"/"):
        raise Unreadable(400, InvalidRequest("The request line must name a path that starts with a slash."))
    framing = {name for name, _ in head.headers if name in (b"content-length", b"transfer-encoding")}
    if len(framing) > 1:
        # Whoever forwarded this may have read its length the other way: what one takes for a body is another's request.
        raise Unreadable(400, InvalidRequest("Send Content-Length or Transfer-Encoding, not both."))
    length = next((value for name, value in head.headers if name == b"content-length"), b"0")
    if int(length) > BODY_BYTES_MAX:
        raise _TOO_LARGE


def _close(stream: Iterator[bytes]) -> None:
    """Tell the source that nobody reads on; what it says to that changes nothing for the client."""
    close = getattr(stream, "close", None)
    if close is None:
        return
    try:
        close()
    except Exception:
        log.exception("stream could not be closed")
