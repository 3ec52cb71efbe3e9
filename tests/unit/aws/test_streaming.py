"""Our runtime against a fake of Lambda's Runtime API: what leaves, when, and how it ends."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from differently_aws.streaming import Runtime, serve_one
from differently_core.runtime.clock import VirtualClock
from tests.support.runtime_api import FakeRuntimeApi, Post, running_runtime_api

ENVIRON = {"AWS_LAMBDA_FUNCTION_NAME": "data", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}
BIN = Path(__file__).parents[3] / "layers" / "aws" / "bin" / "stream"


@pytest.fixture
def api() -> Iterator[FakeRuntimeApi]:
    with running_runtime_api() as running:
        yield running


@pytest.fixture
def runtime(api: FakeRuntimeApi) -> Iterator[Runtime]:
    made = Runtime(api.address, ENVIRON, VirtualClock(datetime(2025, 12, 31, 23, 59, 50, tzinfo=UTC)))
    yield made
    made.reconnect()


def answer(body: Any, status: int = 200, **more: Any) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"Content-Type": "application/x-ndjson"}, "body": body, **more}


def served(api: FakeRuntimeApi, runtime: Runtime, handler: Callable[[Any, Any], Any]) -> Post:
    """What one event's handler made arrive, in the end."""
    api.give({"path": "/"})
    serve_one(runtime, handler)
    post = api.post()
    assert post.ended.wait(10)
    return post


def test_each_piece_leaves_as_it_is_made(api: FakeRuntimeApi, runtime: Runtime) -> None:
    """The handler makes its second piece only after its first has arrived at the other end."""
    seen: list[Post] = []

    def pieces() -> Iterator[bytes]:
        yield b"one\n"
        seen.append(api.post())
        assert seen[0].arrived.wait(10)
        assert (seen[0].body, seen[0].whole) == (b"one\n", False)
        yield b"two\n"

    api.give({})
    serve_one(runtime, lambda event, context: answer(pieces()))
    assert seen[0].ended.wait(10)
    assert (seen[0].body, seen[0].whole, seen[0].trailers) == (b"one\ntwo\n", True, {})


def test_an_answer_begins_with_status_and_headers_as_the_gateway_reads_them(
    api: FakeRuntimeApi, runtime: Runtime
) -> None:
    post = served(api, runtime, lambda event, context: answer(iter([b"x"]), 206))
    assert post.path == "/2018-06-01/runtime/invocation/req-1/response"
    assert post.headers["Lambda-Runtime-Function-Response-Mode"] == "streaming"
    assert post.headers["Content-Type"] == "application/vnd.awslambda.http-integration-response"
    assert post.prelude == {"statusCode": 206, "headers": {"Content-Type": "application/x-ndjson"}}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (answer('{"a":1}'), b'{"a":1}'),
        (answer(base64.b64encode(b"\0\xff").decode(), isBase64Encoded=True), b"\0\xff"),
        (answer(""), b"\n"),
        (answer(None, 204), b"\n"),
        (answer("", isBase64Encoded=True), b"\n"),
        (answer(iter([])), b"\n"),
        (answer(iter([b"", b"a", b"", b"b"])), b"ab"),
    ],
)
def test_every_streamed_answer_has_a_body_and_no_empty_piece_ends_it(
    api: FakeRuntimeApi, runtime: Runtime, given: Any, sent: bytes
) -> None:
    post = served(api, runtime, lambda event, context: given)
    assert (post.body, post.whole) == (sent, True)


def test_an_error_before_the_first_byte_fails_the_invocation(api: FakeRuntimeApi, runtime: Runtime) -> None:
    def pieces() -> Iterator[bytes]:
        raise LookupError("canary: dk_secret")
        yield b""

    post = served(api, runtime, lambda event, context: answer(pieces()))
    assert post.path == "/2018-06-01/runtime/invocation/req-1/error"
    assert post.headers["Lambda-Runtime-Function-Error-Type"] == "LookupError"
    assert json.loads(post.chunks[0])["errorType"] == "LookupError"
    assert b"canary" not in post.chunks[0]


def test_an_error_after_the_first_byte_is_told_in_the_trailers(api: FakeRuntimeApi, runtime: Runtime) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"begun"
        raise LookupError("canary: dk_secret")

    post = served(api, runtime, lambda event, context: answer(pieces()))
    assert post.body == b"begun"
    assert post.trailers["Lambda-Runtime-Function-Error-Type"] == "LookupError"
    told = base64.b64decode(post.trailers["Lambda-Runtime-Function-Error-Body"])
    assert json.loads(told)["errorType"] == "LookupError"
    assert b"canary" not in told


def test_an_error_in_the_handler_fails_the_invocation_and_the_next_one_is_served(
    api: FakeRuntimeApi, runtime: Runtime
) -> None:
    def fails(event: Any, context: Any) -> Any:
        raise TimeoutError("a socket of the handler's own")

    assert served(api, runtime, fails).path.endswith("/error")
    assert served(api, runtime, lambda event, context: answer("well")).body == b"well"


def test_what_a_handler_began_is_let_go_when_the_client_is_gone(api: FakeRuntimeApi, runtime: Runtime) -> None:
    closed = threading.Event()

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * 65_536
        finally:
            closed.set()

    api.breaks_after = 2
    api.give({})
    serve_one(runtime, lambda event, context: answer(pieces()))
    assert closed.is_set()
    api.breaks_after = None
    while not api.posts.empty():
        api.post()
    assert served(api, runtime, lambda event, context: answer("next")).body == b"next"


def test_the_handler_is_told_how_long_it_has(api: FakeRuntimeApi, runtime: Runtime) -> None:
    told: list[Any] = []

    def handler(event: Any, context: Any) -> Any:
        told.extend([event, context.get_remaining_time_in_millis(), context.aws_request_id, context.function_name])
        return answer("ok")

    api.give({"n": 1}, "req-9")
    serve_one(runtime, handler)
    assert told == [{"n": 1}, 10_000, "req-9", "data"]


HANDLERS = """
def lines(event, context):
    return {"statusCode": 200, "headers": {}, "body": iter([b"a\\n", event["path"].encode()])}
"""


def started(api: FakeRuntimeApi, folder: Path, handler: str) -> subprocess.Popen[bytes]:
    """The wrapper as Lambda starts it: with the command that it wraps as arguments."""
    (folder / "handlers.py").write_text(HANDLERS)
    environment = {
        **os.environ, "AWS_LAMBDA_RUNTIME_API": api.address, "_HANDLER": handler, "LAMBDA_TASK_ROOT": str(folder),
    }  # fmt: skip
    return subprocess.Popen(["/bin/sh", str(BIN), sys.executable, "/var/runtime/bootstrap.py"], env=environment)


def test_the_wrapper_starts_the_loop_with_the_interpreter_that_it_is_given(api: FakeRuntimeApi, tmp_path: Path) -> None:
    process = started(api, tmp_path, "handlers.lines")
    try:
        for number in range(2):
            api.give({"path": f"/{number}"}, f"req-{number}")
            post = api.post()
            assert post.ended.wait(10)
            assert (post.path.split("/")[-2], post.body) == (f"req-{number}", f"a\n/{number}".encode())
    finally:
        process.kill()
        process.wait(10)


def test_a_handler_that_does_not_load_is_told_at_once(api: FakeRuntimeApi, tmp_path: Path) -> None:
    process = started(api, tmp_path, "handlers.missing")
    post = api.post()
    assert process.wait(10) == 1
    assert post.path == "/2018-06-01/runtime/init/error"
    assert json.loads(post.chunks[0])["errorType"] == "AttributeError"
