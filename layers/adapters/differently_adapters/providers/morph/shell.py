"""Commands in a Morph instance. Morph's own call has neither input nor environment nor a time limit in the sandbox, and
its client takes a stream without an exit code for success: so only what our own script tells counts.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import ValidationError

from differently_core.errors import ExecUnconfirmed, ProviderUnavailable

from ... import env_file
from ...http import Call, Deadlines, Streamed, segment
from ...parts import in_parts
from .api import Api
from .wire import StreamRead

PART_BYTES: Final = 90_000
"""Of a file in one command's text: in base64 below the 128 KiB that the kernel takes in one argument."""
SILENCE_SECONDS: Final = 40.0
"""Our script says every ten seconds that a command lives."""
SMALL_SECONDS: Final = 30.0
STREAM_BYTES_MAX: Final = 1 << 34
DATA: Final = b"data:"
DONE: Final = b"[DONE]"


class MorphShell:
    """A `Shell` in one instance. Every command of a tenant's has the environment that the sandbox was made with."""

    def __init__(self, api: Api, ref: str) -> None:
        self._api = api
        self._path = f"/instance/{segment(ref)}/exec/sse"

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        with self._line(env_file.PREAMBLE + script, seconds) as told:
            yield told

    @contextmanager
    def _line(self, line: str, seconds: float) -> Iterator[Iterator[bytes]]:
        call = Call(
            "POST", self._path, Deadlines(seconds + SILENCE_SECONDS, read=SILENCE_SECONDS), body={"command": [line]},
            lost=ExecUnconfirmed, accept="text/event-stream", answer_bytes_max=STREAM_BYTES_MAX,
        )  # fmt: skip
        with self._api.http.stream(call) as answer:
            yield _stdout(answer)

    def put(self, path: str, data: bytes) -> None:
        self.upload(path, [data])

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        """In parts, each in a command's own text: a command has no input here."""
        into = ">"
        for part in in_parts(data, PART_BYTES):
            text = shlex.quote(base64.b64encode(part).decode())
            self._say(f"umask 077; printf %s {text} | base64 -d {into} {shlex.quote(path)} && echo stored")
            into = ">>"

    def store_env(self, env: dict[str, str]) -> None:
        """In place of one that came with a snapshot."""
        self._say(env_file.line_of(env))

    def _say(self, line: str) -> None:
        with self._line(line, SMALL_SECONDS) as told:
            if b"".join(told).strip() != b"stored":
                raise ProviderUnavailable("The sandbox did not store what a command needs.", settled=True)


def _stdout(answer: Streamed) -> Iterator[bytes]:
    for line in answer.lines():
        if not line.startswith(DATA):
            continue
        told = line.removeprefix(DATA).strip()
        if told == DONE:
            return
        event = _event(told)
        if event.type == "stdout" and isinstance(event.content, str):
            yield event.content.encode()


def _event(told: bytes) -> StreamRead:
    try:
        return StreamRead.model_validate(json.loads(told))
    except (ValueError, ValidationError, RecursionError):
        pass
    raise ExecUnconfirmed("Morph's stream holds a line that is no event.")
