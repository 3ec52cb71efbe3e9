"""A Lambda runtime that sends an answer while it is being made. The only file that knows the Runtime API.

Python's managed runtime sends whole answers only, so the data function starts this loop instead of it, through the exec
wrapper in `bin/stream`; interpreter and libraries stay those of the managed runtime. When it learns to stream, this
file and the wrapper go and nothing else changes.

A handler answers with API Gateway's proxy answer. Its body may be an iterator of bytes: each piece is sent as it comes.
What fails before the first byte fails the invocation, and API Gateway answers 502; what fails after it breaks the
answer off, so that a cut answer never looks whole.

Protocol: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html#runtimes-custom-response-streaming
"""

from __future__ import annotations

import base64
import http.client
import importlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from differently_core.runtime import telemetry
from differently_core.runtime.clock import Clock, SystemClock

log = logging.getLogger(__name__)
VERSION: Final = "2018-06-01"
PRELUDE_TYPE: Final = "application/vnd.awslambda.http-integration-response"
PRELUDE_END: Final = b"\0" * 8
EMPTY: Final = b"\n"
"""An answer without a body still carries a byte: a streamed answer that ends with its prelude is refused."""

Handler = Callable[[Mapping[str, Any], "Context"], Mapping[str, Any]]


@dataclass(frozen=True)
class Context:
    """What Lambda tells a function about its own invocation."""

    aws_request_id: str
    invoked_function_arn: str
    deadline_ms: int
    clock: Clock
    function_name: str
    function_version: str
    memory_limit_in_mb: str

    def get_remaining_time_in_millis(self) -> int:
        return max(0, self.deadline_ms - int(self.clock.now().timestamp() * 1000))


@dataclass(frozen=True)
class Invocation:
    event: Mapping[str, Any]
    context: Context


class Broken(Exception):
    """The handler failed after its answer had begun."""


class Runtime:
    """One connection to the Runtime API, opened again when it is lost."""

    def __init__(self, api: str, environ: Mapping[str, str], clock: Clock) -> None:
        self._api = api
        self._environ = environ
        self._clock = clock
        self._connection = http.client.HTTPConnection(api)

    def next(self) -> Invocation:
        """Wait for the next event: however long that takes, nothing is billed meanwhile."""
        try:
            answer, body = self._ask_next()
        except (OSError, http.client.HTTPException):
            self.reconnect()  # the connection was idle, perhaps through a freeze of the environment
            answer, body = self._ask_next()
        if answer.status != 200:
            raise ConnectionError(f"the Runtime API answered {answer.status}")
        trace = answer.headers.get("Lambda-Runtime-Trace-Id")
        if trace:
            os.environ["_X_AMZN_TRACE_ID"] = trace
        context = Context(
            aws_request_id=answer.headers["Lambda-Runtime-Aws-Request-Id"],
            invoked_function_arn=answer.headers.get("Lambda-Runtime-Invoked-Function-Arn", ""),
            deadline_ms=int(answer.headers.get("Lambda-Runtime-Deadline-Ms", "0")),
            clock=self._clock,
            function_name=self._environ.get("AWS_LAMBDA_FUNCTION_NAME", ""),
            function_version=self._environ.get("AWS_LAMBDA_FUNCTION_VERSION", ""),
            memory_limit_in_mb=self._environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", ""),
        )
        return Invocation(json.loads(body), context)

    def _ask_next(self) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request("GET", f"/{VERSION}/runtime/invocation/next")
        answer = self._connection.getresponse()
        return answer, answer.read()

    def respond(self, request_id: str, answer: Mapping[str, Any]) -> None:
        """Send an answer piece by piece. Raises `Broken` when the handler's iterator raises after the first byte.

        An iterator that raises before its first piece raises as it is: nothing was sent yet.
        """
        chunks = _pieces(answer.get("body"), bool(answer.get("isBase64Encoded")))
        first = next(chunks, EMPTY)
        connection = self._connection
        connection.putrequest("POST", f"/{VERSION}/runtime/invocation/{request_id}/response")
        connection.putheader("Content-Type", PRELUDE_TYPE)
        connection.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.putheader("Trailer", "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body")
        connection.endheaders()
        try:
            connection.send(_chunk(_prelude(answer) + PRELUDE_END))
            connection.send(_chunk(first))
            broken = self._relay(chunks)
            connection.send(b"0\r\n" + _trailers(broken) + b"\r\n")
            self._settled(request_id)
        except (OSError, http.client.HTTPException):
            # The client is gone, or the environment is frozen: what the handler began at a backend is let go.
            _close(answer.get("body"))
            self.reconnect()
            raise
        if broken is not None:
            raise Broken from broken

    def _settled(self, request_id: str) -> None:
        answer = self._connection.getresponse()
        answer.read()
        if answer.status >= 400:
            log.error("answer not taken", extra={"requestId": request_id, "status": answer.status})

    def _relay(self, chunks: Iterator[bytes]) -> Exception | None:
        """Each piece as it comes; the error that ended them, if one did."""
        while True:
            try:
                piece = next(chunks)
            except StopIteration:
                return None
            except Exception as error:
                return error
            self._connection.send(_chunk(piece))

    def fail(self, request_id: str, error: BaseException) -> None:
        self._report(f"invocation/{request_id}/error", error)

    def fail_to_start(self, error: BaseException) -> None:
        self._report("init/error", error)

    def _report(self, where: str, error: BaseException) -> None:
        kind = type(error).__name__
        headers = {"Lambda-Runtime-Function-Error-Type": kind, "Content-Type": "application/json"}
        body = json.dumps(_described(error)).encode()
        self._connection.request("POST", f"/{VERSION}/runtime/{where}", body, headers)
        self._connection.getresponse().read()

    def reconnect(self) -> None:
        self._connection.close()
        self._connection = http.client.HTTPConnection(self._api)


def serve(runtime: Runtime, handler: Handler) -> NoReturn:
    """Answer one event after the other, until Lambda ends the environment."""
    while True:
        serve_one(runtime, handler)


def serve_one(runtime: Runtime, handler: Handler) -> None:
    invocation = runtime.next()
    identity = invocation.context.aws_request_id
    try:
        answer = handler(invocation.event, invocation.context)
        runtime.respond(identity, answer)
    except Broken as broken:
        log.warning("answer broken off", exc_info=broken.__cause__, extra={"requestId": identity})
    except (OSError, http.client.HTTPException) as error:
        # The connection to the Runtime API, or the handler's own: the answer had not begun, or is lost with it.
        log.warning("answer lost", exc_info=error, extra={"requestId": identity})
        _failed(runtime, identity, error)
    except Exception as error:
        log.error("invocation failed", exc_info=error, extra={"requestId": identity})
        _failed(runtime, identity, error)


def _failed(runtime: Runtime, identity: str, error: Exception) -> None:
    with suppress(OSError, http.client.HTTPException):
        runtime.fail(identity, error)
        return
    runtime.reconnect()


def _prelude(answer: Mapping[str, Any]) -> bytes:
    headers = {str(name): str(value) for name, value in (answer.get("headers") or {}).items()}
    return json.dumps({"statusCode": int(answer["statusCode"]), "headers": headers}).encode()


def _pieces(body: Any, encoded: bool) -> Iterator[bytes]:
    if isinstance(body, Iterator):
        # An empty piece would be read as the end of the answer.
        return (piece for piece in body if piece)
    whole = base64.b64decode(body) if encoded and body else str(body or "").encode()
    return iter([whole] if whole else [])


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _trailers(error: Exception | None) -> bytes:
    if error is None:
        return b""
    described = base64.b64encode(json.dumps(_described(error)).encode())
    kind = type(error).__name__.encode()
    return (
        b"Lambda-Runtime-Function-Error-Type: %b\r\nLambda-Runtime-Function-Error-Body: %b\r\n" % (kind, described)
    )  # fmt: skip


def _described(error: BaseException) -> dict[str, Any]:
    """Type and places. Not the text, which may quote what a caller sent."""
    (outermost, *_) = telemetry.described(error)
    return {
        "errorType": type(error).__name__, "errorMessage": "see the function's log",
        "stackTrace": outermost["frames"],
    }  # fmt: skip


def _close(body: Any) -> None:
    close = getattr(body, "close", None)
    if close is not None:
        with suppress(Exception):
            close()


def load(name: str) -> Handler:
    """The handler that `package.module.function` names."""
    module, _, function = name.rpartition(".")
    found: Handler = getattr(importlib.import_module(module), function)
    return found


def main() -> NoReturn:
    runtime = Runtime(os.environ["AWS_LAMBDA_RUNTIME_API"], os.environ, SystemClock())
    try:
        handler = load(os.environ["_HANDLER"])
    except BaseException as error:
        runtime.fail_to_start(error)
        sys.exit(1)
    serve(runtime, handler)


if __name__ == "__main__":
    main()
