"""Commands in a Northflank service, each over a WebSocket of its own.

The first message carries the token and the command, so from then on it may have begun. Only a message of its completion
says that it has ended; a connection that closes without one says nothing. The input is never closed, because closing it
races with what was sent before: a command reads as many bytes as it was told.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import JsonValue

from differently_core.errors import BackendError, ExecUnconfirmed, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ...http import Deadlines
from ...http.answers import BadAnswer, parse_json
from ...parts import in_parts
from ...websocket import WebSocket, web_socket
from .api import Api
from .wire import Told, read

SPARE_SECONDS: Final = 10.0
PART_BYTES: Final = 589_824
"""Of a file, stored by one command."""
PART_SECONDS: Final = 60.0
MESSAGE_CHARACTERS: Final = 65_536
"""Of a command's input."""


class NorthflankShell:
    """A `Shell` in one service, and files under absolute paths."""

    def __init__(self, api: Api, ref: str, clock: Clock) -> None:
        self._api = api
        self._path = api.command_path(ref)
        self._clock = clock

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        with self._run(f"exec < /dev/null\n{script}", seconds) as chunks:
            yield chunks

    def put(self, path: str, data: bytes) -> None:
        self.upload(path, [data])

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        """Each part is put behind what is there already, which must be as long as we think."""
        quoted = shlex.quote(path)
        sent = 0
        for part in in_parts(data, PART_BYTES):
            text = base64.b64encode(part).decode()
            take = f"head -c {len(text)} | base64 -d"
            script = f'umask 077; [ "$(($(wc -c < {quoted})))" -eq {sent} ] && {take} >> {quoted} && echo stored'
            if not sent:
                script = f"umask 077; {take} > {quoted} && echo stored"
            with self._run(script, PART_SECONDS, text) as chunks:
                told = b"".join(chunks)
            if told.strip() != b"stored":
                raise ProviderUnavailable("The sandbox did not store a part of the file; the old one is untouched.")
            sent += len(part)

    @contextmanager
    def _run(self, script: str, seconds: float, stdin: str = "") -> Iterator[Iterator[bytes]]:
        """What one shell line prints on its standard output, as it comes."""
        with web_socket(self._api.http, self._path, Deadlines(seconds + SPARE_SECONDS), self._clock) as socket:
            yield self._output(socket, script, stdin)

    def _output(self, socket: WebSocket, script: str, stdin: str) -> Iterator[bytes]:
        begun = False
        for told in _heard(socket, self._asked(script)):
            match told.type:
                case "init" if begun:
                    continue  # it may come again, and the input must not
                case "init" if told.let_in:
                    begun = True
                    _say(socket, stdin)
                case "init":
                    raise ProviderUnavailable("Northflank says that our token was rejected.", settled=True)
                case "stdOut":
                    yield told.text.encode(errors="replace")
                case "completion":
                    return
                case "error":  # whose text may quote the command
                    raise ExecUnconfirmed("Northflank told of an error instead of the command's end.")

    def _asked(self, script: str) -> JsonValue:
        return {
            "type": "init",
            "data": {
                "auth": {"type": "apiToken", "apiToken": self._api.token},
                "context": {"command": ["/bin/sh", "-c", script], "shell": "none", "encoding": "utf-8", "tty": False},
            },
        }


def _heard(socket: WebSocket, asked: JsonValue) -> Iterator[Told]:
    """All that is told after the command was asked for. It never ends by itself: silence is no completion."""
    try:
        socket.send(json.dumps(asked))
        for message in socket.messages():
            yield read(Told, parse_json(message.encode(errors="replace")))
    except (BackendError, BadAnswer):
        pass
    raise ExecUnconfirmed("The connection ended, and the command's end was not told.")


def _say(socket: WebSocket, stdin: str) -> None:
    try:
        for start in range(0, len(stdin), MESSAGE_CHARACTERS):
            socket.send(json.dumps({"type": "payload", "data": stdin[start : start + MESSAGE_CHARACTERS]}))
    except BackendError:
        pass
    else:
        return
    raise ExecUnconfirmed("The connection ended before the command had its input.")
