"""envd, the agent in sandboxes of E2B's kind: processes by Connect RPC, files by plain HTTP.

A server stream is a row of frames: one byte of flags, four of length, then JSON. Its HTTP status is 200 whatever
happened; how it ended stands in the last frame. Zero values are left out, bytes are base64. A process goes on when its
stream is closed, and a stream that ends without an `end` event tells nothing about the process.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pydantic import JsonValue

from differently_core.errors import (
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    NotFound,
    ProviderUnavailable,
)
from differently_core.model.exec import FILE_BYTES_MAX
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from .http import Call, Deadlines, Endpoint, Http
from .multipart import Part, multipart

PORT: Final = 49_983
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
STREAM_BYTES_MAX: Final = 1 << 40
"""A stream is bounded by its time, not by its size."""
SILENCE_SECONDS: Final = 40.0
"""A process that is alive is heard of more often: our script says so every ten seconds."""
FILE_SECONDS: Final = 300.0
TOKEN_HEADER: Final = "x-access-token"
CONNECT_JSON: Final = "application/connect+json"
_COMPRESSED: Final = 0x01
_LAST: Final = 0x02
_NOT_STARTED: Final = frozenset({"invalid_argument", "not_found", "permission_denied", "unimplemented"})


class Envd:
    """The agent of one sandbox: a `Shell`, and files under absolute paths. `token` is for those that want one.

    `user` is whose commands and files they are; older agents refuse to choose one, newer ones have a default.
    """

    def __init__(
        self,
        http: Http,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        token: str | None,
        clock: Clock,
        user: str | None = None,
    ) -> None:
        sent = {**headers, TOKEN_HEADER: token} if token else dict(headers)
        if user is not None:
            sent["authorization"] = f"Basic {base64.b64encode(f'{user}:'.encode()).decode()}"
        self._user = {"username": user} if user is not None else {}
        self._http = http.at(endpoint, sent, secrets=[token] if token else [])
        self._ids = SystemIds(clock)

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        process: JsonValue = {"cmd": "/bin/sh", "args": ["-c", script]}
        call = Call(
            "POST", "/process.Process/Start", Deadlines(seconds + SILENCE_SECONDS, read=SILENCE_SECONDS),
            headers={
                "content-type": CONNECT_JSON, "connect-protocol-version": "1", "connect-accept-encoding": "identity",
                "connect-timeout-ms": str(int(seconds * 1000)), "keepalive-ping-interval": "15",
            },
            # Left out, `stdin` means an input that stays open.
            content=frame({"process": process, "stdin": False}), mutates=True, lost=ExecUnconfirmed,
            answer_bytes_max=STREAM_BYTES_MAX, accept=CONNECT_JSON,
        )  # fmt: skip
        with self._http.stream(call) as answer:
            yield _stdout(answer.chunks())

    def put(self, path: str, data: bytes) -> None:
        self.upload(path, [data])

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        kind, body = multipart([Part("file", data)], self._ids.new("b"))
        call = Call(
            "POST", "/files", Deadlines(FILE_SECONDS), query={"path": path, **self._user},
            headers={"content-type": kind}, content=body,
        )  # fmt: skip
        self._http.answer(call)

    def download(self, path: str) -> Iterator[bytes]:
        call = Call(
            "GET", "/files", Deadlines(FILE_SECONDS), query={"path": path, **self._user},
            answer_bytes_max=FILE_BYTES_MAX, accept="application/octet-stream",
        )  # fmt: skip
        with self._http.stream(call) as answer:
            yield from answer.chunks()


def is_ours(path: str) -> bool:
    """Whether a call's path is one of this agent's, and not of the service that runs it."""
    return path == "/files" or path.startswith("/process.Process/")


def refusal(status: int, body: JsonValue) -> DifferentlyError:
    """The error of a call that envd, or the proxy before it, refused. Nothing of their text is repeated."""
    message = str(body.get("message", "")).lower() if isinstance(body, dict) else ""
    match status:
        case 401 | 403:
            return ProviderUnavailable("The sandbox's agent rejected its access token.", settled=True, status=status)
        case 404:
            return NotFound("The sandbox does not have it.", status=status)
        case 400:
            return InvalidRequest("The sandbox's agent refused the request as wrong.", status=status)
        case 502 if "not found" in message:
            return NotFound("The sandbox is gone or does not run.", status=status)
        case 502 if "port is not open" in message:
            return ProviderUnavailable("The sandbox's agent does not answer yet.", settled=True, status=status)
        case 507:
            return ProviderUnavailable("The sandbox's disk is full.", settled=True, status=status)
        case 429:
            return InsufficientCapacity("The sandbox's agent was asked too often.", status=status)
        case _:
            return ExecUnconfirmed("The sandbox's agent failed.", settled=status < 500, status=status)


def frame(message: JsonValue, flags: int = 0) -> bytes:
    payload = json.dumps(message, separators=(",", ":")).encode()
    return bytes([flags]) + len(payload).to_bytes(4, "big") + payload


def frames(chunks: Iterable[bytes]) -> Iterator[tuple[int, JsonValue]]:
    """Flags and message of each frame; what follows the last whole frame was cut and is none."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= 5:
            size = int.from_bytes(held[1:5], "big")
            if size > FRAME_BYTES_MAX or held[0] & _COMPRESSED:
                raise ExecUnconfirmed("The sandbox's agent sent a message that was not asked for.")
            if len(held) < 5 + size:
                break
            try:
                message: JsonValue = json.loads(bytes(held[5 : 5 + size]))
            except (ValueError, RecursionError):
                raise ExecUnconfirmed("The sandbox's agent sent a message that is no JSON.") from None
            yield held[0], message
            del held[: 5 + size]


def _stdout(chunks: Iterator[bytes]) -> Iterator[bytes]:
    begun = False
    for flags, message in frames(chunks):
        if flags & _LAST:
            raise_for(message, begun=begun)
            return
        match message:
            case {"event": {"start": _}}:
                begun = True
            case {"event": {"data": {"stdout": str(text)}}}:
                yield _bytes(text)
            case _:
                pass


def raise_for(last: JsonValue, *, begun: bool) -> None:
    """What the last frame says went wrong, if it does."""
    match last:
        case {"error": {"code": str(code)}}:
            if not begun and code in _NOT_STARTED:
                raise ProviderUnavailable("The sandbox's agent could not start a shell.", settled=True, reason=code)
            if not begun and code == "unauthenticated":
                raise ProviderUnavailable("The sandbox's agent rejected its access token.", settled=True)
            raise ExecUnconfirmed("The command's end was not seen.", reason=code[:64])
        case {"error": _}:
            raise ExecUnconfirmed("The command's end was not seen.")
        case _:
            return


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise ExecUnconfirmed("The command's output arrived damaged.")
