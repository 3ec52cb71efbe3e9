"""Requests and answers, and the threaded server between them and a socket."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query, keep_blank_values=True)

    def one(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]

    def json(self) -> Any:
        return json.loads(self.body) if self.body else {}


@dataclass
class Reply:
    """`stream` is sent in chunks as it comes. `cut` closes the connection after so many bytes of the body.

    `switched` has the connection after the head, to read from and to write to.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterable[bytes] | None = None
    cut: int | None = None
    dropped: bool = False
    switched: Callable[[BinaryIO, BinaryIO], None] | None = None


def told(status: int, value: Any, **headers: str) -> Reply:
    return Reply(
        status, json.dumps(value, separators=(",", ":")).encode(), {"content-type": "application/json"} | headers
    )


def refused(status: int, code: str, message: str) -> Reply:
    return told(status, {"code": code, "message": message})


Answerer = Callable[[Request], Reply]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        answerer: Answerer,
        is_up: Callable[[], bool],
        address: tuple[str, int] = ("127.0.0.1", 0),
        *,
        keep_alive: bool = True,
    ) -> None:
        super().__init__(address, _Handler)
        self.keep_alive = keep_alive
        self.answerer = answerer
        self.is_up = is_up
        self._closing = False
        self.thread = threading.Thread(target=self._take_each, name="stand-in", daemon=True)
        self.thread.start()

    def _take_each(self) -> None:
        """As `serve_forever`, which looks only now and then whether it should end; and there is one of these a test."""
        while True:
            try:
                request, address = self.get_request()
            except OSError:
                if self._closing:
                    return
                continue
            if self._closing:
                self.shutdown_request(request)
                return
            self.process_request(request, address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""

    def close(self) -> None:
        self._closing = True
        with suppress(OSError):
            socket.create_connection((str(self.server_address[0]), self.server_port), 1).close()  # the wait's end
        self.thread.join(5)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _serve(self) -> None:
        body = self._read_body()
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not self.server.is_up():
            self.close_connection = True
            return
        reply = self.server.answerer(Request(self.command, self.path, headers, body))
        if reply.dropped:
            self.close_connection = True
        elif reply.switched is not None:
            self._head(reply)
            self.close_connection = True
            reply.switched(self.rfile, self.wfile)  # type: ignore[arg-type] # both are binary, and buffered or not
        elif reply.stream is not None:
            self._send_stream(reply, reply.stream)
        else:
            self._send(reply)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            chunks.append(self.rfile.read(size))
            if len(chunks[-1]) < size:
                raise ConnectionError("the sender went away")
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _head(self, reply: Reply, **more: str) -> None:
        self.send_response_only(reply.status)
        if not self.server.keep_alive and reply.switched is None:
            self.send_header("connection", "close")  # which also ends it on our side
        for name, value in {**reply.headers, **more}.items():
            self.send_header(re.sub("_", "-", name), value)
        self.end_headers()

    def _send(self, reply: Reply) -> None:
        more = {} if reply.status == 204 else {"content-length": str(len(reply.body))}
        self._head(reply, **more)
        if reply.cut is not None:
            self.close_connection = True
        self.wfile.write(reply.body if reply.cut is None else reply.body[: reply.cut])

    def _send_stream(self, reply: Reply, stream: Iterable[bytes]) -> None:
        self._head(reply, transfer_encoding="chunked")
        whole = True
        for chunk in stream:
            if not chunk:  # a stream that is cut says so with an empty chunk
                whole = False
                break
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if whole:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True
