"""A plugin's server on the standard library alone: `python -m differently_adapters.remote.serve package.module:name`.

Loopback unless told otherwise. It speaks plain HTTP, so whatever is reached over a network needs a proxy in front of it
that speaks TLS, or a certificate given here.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import quote

from differently_core.contract import PROTOCOL_VERSION, Adapter

from .handler import PROTOCOL_HEADER, Answer, Body, Handler

log = logging.getLogger(__name__)
IDLE_SECONDS: Final = 75.0
"""An idle or silent connection is closed after that."""
LINE_BYTES_MAX: Final = 65_536
DRAINED_BYTES_MAX: Final = 16 * 1024 * 1024
TOKEN_VARIABLE: Final = "DIFFERENTLY_PLUGIN_TOKEN"


class BodyCut(ConnectionError):
    """The client went away before its body was complete."""


class PluginServer(ThreadingHTTPServer):
    """One thread for each connection. `port` 0 takes a free one; see `url`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, handler: Handler, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None
    ) -> None:
        self.handle_call = handler
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Connection)
        self._scheme = "http"
        if context is not None:
            # Handshakes are made by the thread of the connection: one that is slow must not hold the others.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            self._scheme = "https"

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        name = str(host)
        return f"{self._scheme}://{f'[{name}]' if ':' in name else name}:{port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("connection ended", exc_info=True)


class Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True  # a line of output goes out now, not when more has gathered
    server: PluginServer

    def answer(self) -> None:
        body = _body(self)
        headers = {name.lower(): ", ".join(self.headers.get_all(name, [])) for name in self.headers}
        self.send(self.server.handle_call(self.command, self.path, headers, body), body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = answer

    def send(self, answer: Answer, body: _Body) -> None:
        lengths = [value for name, value in answer.headers if name.lower() == "content-length"]
        chunked = not lengths and answer.status != HTTPStatus.NO_CONTENT
        head = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}"]
        head += [f"{name}: {value}" for name, value in answer.headers]
        if chunked:
            head.append("Transfer-Encoding: chunked")
        if not body.drained():
            # What is left of the body would be taken for the next request.
            self.close_connection = True
        if self.close_connection:
            head.append("Connection: close")
        begun = "\r\n".join([*head, "", ""]).encode("latin-1")
        try:
            self._write(begun, answer, chunked)
        except Exception:
            # The status line is out: only an ending that is none tells the client that this is not the whole answer.
            self.close_connection = True
            log.debug("an answer was cut off", exc_info=True)
        finally:
            leave: Callable[[], None] | None = getattr(answer.body, "close", None)
            if leave is not None:
                with contextlib.suppress(Exception):
                    leave()

    def _write(self, begun: bytes, answer: Answer, chunked: bool) -> None:
        if self.command == "HEAD":
            self.wfile.write(begun)
            return
        if chunked:  # the head goes out at once: output may be long in coming
            self.wfile.write(begun)
            begun = b""
        for piece in answer.body:
            if piece:
                self.wfile.write(begun + (b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece))
                begun = b""
        if begun or chunked:
            self.wfile.write(begun + (b"0\r\n\r\n" if chunked else b""))

    def send_response(self, code: int, message: str | None = None) -> None:
        """What the base class refuses by itself, such as a request that is none, carries the protocol as well."""
        super().send_response(code, message)
        self.send_header(PROTOCOL_HEADER, PROTOCOL_VERSION)

    def log_message(self, format: str, *args: Any) -> None:
        """Paths hold names of files; what is worth a line is logged by the adapter."""


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"


class _Body:
    """Bytes of the request, by its length or in chunks."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""
        self._ended = False

    def read(self, size: int, /) -> bytes:
        while not self._left and not self._ended:
            piece = next(self._pieces, None)
            self._ended = piece is None
            self._left = piece or b""
        data, self._left = self._left[:size], self._left[size:]
        return data

    def drained(self) -> bool:
        """Read what nobody wanted, within reason: a client that is cut off while it sends may not see its answer."""
        read = 0
        with contextlib.suppress(BodyCut, OSError):
            while read <= DRAINED_BYTES_MAX:
                piece = self.read(LINE_BYTES_MAX)
                if not piece:
                    return True
                read += len(piece)
        return False


def _body(connection: BaseHTTPRequestHandler) -> _Body:
    headers = connection.headers
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _Body(_chunked(connection))
    length = headers.get("content-length", "0")
    return _Body(_counted(connection, int(length) if length.isascii() and length.isdigit() else 0))


def _counted(connection: BaseHTTPRequestHandler, length: int) -> Iterator[bytes]:
    while length:
        piece = connection.rfile.read(min(length, LINE_BYTES_MAX))
        if not piece:
            raise BodyCut
        length -= len(piece)
        yield piece


def _chunked(connection: BaseHTTPRequestHandler) -> Iterator[bytes]:
    while True:
        line = connection.rfile.readline(LINE_BYTES_MAX)
        try:
            size = int(line.partition(b";")[0].strip(), 16)
        except ValueError:
            raise BodyCut from None
        if size < 0:
            raise BodyCut
        yield from _counted(connection, size)
        end = connection.rfile.readline(LINE_BYTES_MAX)
        if size == 0:
            while end.strip():  # trailers
                end = connection.rfile.readline(LINE_BYTES_MAX)
            return
        if end.strip():
            raise BodyCut


def as_wsgi(handler: Handler) -> Callable[[dict[str, Any], Callable[..., Any]], Any]:
    """The same plugin for a server that speaks WSGI."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        # A server decodes the path, and with it a slash inside a name; the address as it was sent is kept by most.
        path = environ.get("RAW_URI") or environ.get("REQUEST_URI") or _quoted(environ)
        length = environ.get("CONTENT_LENGTH") or ""
        source = environ["wsgi.input"]
        body: Body = _Body(_from_wsgi(source, int(length) if length.isdigit() else 0)) if length else source
        answer = handler(environ["REQUEST_METHOD"], path, headers, body)
        start_response(f"{answer.status} {_phrase(answer.status)}", answer.headers)
        return answer.body

    return application


def _quoted(environ: dict[str, Any]) -> str:
    path = quote(environ.get("PATH_INFO", "").encode("latin-1"))
    query = environ.get("QUERY_STRING", "")
    return f"{path}?{query}" if query else path


def _from_wsgi(source: Any, length: int) -> Iterator[bytes]:
    while length:
        piece = source.read(min(length, LINE_BYTES_MAX))
        if not piece:
            raise BodyCut
        length -= len(piece)
        yield piece


@contextlib.contextmanager
def serving(adapter: Adapter, token: str | None, host: str = "127.0.0.1", port: int = 0) -> Iterator[PluginServer]:
    """The plugin in a thread of this process, for as long as the block runs."""
    server = PluginServer(Handler(adapter, token), host, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def load(name: str) -> Adapter:
    """What `package.module:name` names: an adapter, or something that makes one when it is called."""
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute or "adapter")
    made: Adapter = found if isinstance(found, Adapter) and not isinstance(found, type) else found()
    return made


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m differently_adapters.remote.serve", description=__doc__)
    parser.add_argument("adapter", help="package.module:name of an adapter, or of a function that makes one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8_700)
    parser.add_argument("--certificate", help="PEM file with the certificate and its chain")
    parser.add_argument("--key", help="PEM file with its private key")
    chosen = parser.parse_args(arguments)
    token = os.environ.get(TOKEN_VARIABLE)
    if not token and not _is_loopback(chosen.host):
        print(f"set {TOKEN_VARIABLE}: without a token only loopback is served", file=sys.stderr)
        return 2
    context = None
    if chosen.certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chosen.certificate, chosen.key)
    server = PluginServer(Handler(load(chosen.adapter), token or None), chosen.host, chosen.port, context)
    print(f"plugin at {server.url}/adapter/v1", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    server.server_close()
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
