"""A server on a loopback socket that does what a test says, byte by byte: what no HTTP server would do on purpose."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Script = Callable[[socket.socket, bytes], None]
"""Gets the connection and the request that came on it (head and a body of known length)."""


class ScriptedServer:
    """`requests` are those that arrived, whole. Without a script left it closes connections unanswered."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.connections = 0
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.ended = threading.Event()
        threading.Thread(target=self._accept, name="scripted", daemon=True).start()

    def _accept(self) -> None:
        while not self.ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), name="scripted connection", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while request := read_request(connection):
                self.requests.append(request)
                self.script(connection, request)

    def close(self) -> None:
        self.ended.set()
        for sock in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def read_request(connection: socket.socket) -> bytes:
    """One request, or nothing when the other side has closed. Understands a body by its length or in chunks."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        while not body.endswith(b"0\r\n\r\n"):
            body += connection.recv(65_536)
    elif b"content-length:" in lower:
        length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def answer(body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


@contextlib.contextmanager
def scripted(script: Script) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script)
    try:
        yield server
    finally:
        server.close()
