"""Lambda's Runtime API as a fake: it hands out events and writes down, byte by byte, what is posted to it."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from queue import Queue
from typing import Any

from differently_aws.streaming import PRELUDE_END


@dataclass
class Post:
    """What arrived for one invocation; `arrived` is set at the first byte of the handler's own."""

    path: str
    headers: Mapping[str, str]
    chunks: list[bytes] = field(default_factory=list)
    trailers: dict[str, str] = field(default_factory=dict)
    whole: bool = False
    """The terminating chunk came."""
    arrived: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def prelude(self) -> Any:
        return json.loads(b"".join(self.chunks).partition(PRELUDE_END)[0])

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks).partition(PRELUDE_END)[2]


class FakeRuntimeApi:
    def __init__(self, address: str) -> None:
        self.address = address
        self.events: Queue[tuple[str, Any]] = Queue()
        self.posts: Queue[Post] = Queue()
        self.breaks_after: int | None = None
        """Chunks after which it closes the connection, as Lambda does when the client is gone."""

    def give(self, event: Any, request_id: str = "req-1") -> None:
        self.events.put((request_id, event))

    def post(self) -> Post:
        """The next thing posted, as soon as its headers are there."""
        return self.posts.get(timeout=10)


@contextmanager
def running_runtime_api() -> Iterator[FakeRuntimeApi]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            request_id, event = api.events.get(timeout=10)
            body = json.dumps(event).encode()
            self.send_response(200)
            self.send_header("Lambda-Runtime-Aws-Request-Id", request_id)
            self.send_header("Lambda-Runtime-Deadline-Ms", "1767225600000")
            self.send_header("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:000000000000:function:f")
            self.send_header("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            post = Post(self.path, dict(self.headers))
            api.posts.put(post)
            if self.headers.get("Transfer-Encoding") == "chunked":
                if not self._take_chunks(post):
                    self.close_connection = True
                    self.connection.close()
                    post.ended.set()
                    return
            else:
                post.chunks.append(self.rfile.read(int(self.headers["Content-Length"])))
                post.whole = True
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            post.ended.set()

        def _take_chunks(self, post: Post) -> bool:
            while size := int(self.rfile.readline(), 16):
                post.chunks.append(self.rfile.read(size))
                self.rfile.readline()
                if post.body:
                    post.arrived.set()
                if api.breaks_after is not None and len(post.chunks) >= api.breaks_after:
                    return False
            post.whole = True
            while (line := self.rfile.readline().strip()) != b"":
                name, _, value = line.decode().partition(": ")
                post.trailers[name] = value
            return True

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a connection that the test broke on purpose

    with Server(("127.0.0.1", 0), Handler) as server:
        api = FakeRuntimeApi(f"127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join(10)
