"""The toolbox, Daytona's agent in a sandbox: one command at a time, and files by their paths.

A command's streams come as one text, when it has ended; our script has only the one. Its words are fed to a shell, so
it is told as one word of `sh -c`, with closed input.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from differently_core.errors import ExecUnconfirmed, ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from ...http import Call, Deadlines, Endpoint, Http
from ...multipart import Part, multipart
from .api import EXECUTE
from .wire import ExecuteRead, read

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
FILE_SECONDS: Final = 300.0
PORT: Final = 2_280
SPARE_SECONDS: Final = 10.0
NOT_STARTED: Final = -1


class Toolbox:
    """A `Shell`, and files under absolute paths."""

    def __init__(self, http: Http, endpoint: Endpoint, headers: Mapping[str, str], clock: Clock) -> None:
        self._http = http.at(endpoint, headers)
        self._ids = SystemIds(clock)

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        # Without a timeout there is none at all.
        call = Call(
            "POST", EXECUTE, Deadlines(seconds + SPARE_SECONDS), lost=ExecUnconfirmed,
            answer_bytes_max=ANSWER_BYTES_MAX,
            body={"command": f"/bin/sh -c {shlex.quote(script)} </dev/null", "timeout": math.ceil(seconds)},
        )  # fmt: skip
        told = read(ExecuteRead, self._http.json(call))
        if told.exit_code == NOT_STARTED and not told.result:
            raise ProviderUnavailable("Daytona could not start a shell in the sandbox.", settled=True)
        yield iter([told.result.encode()])

    def put(self, path: str, data: bytes) -> None:
        self.upload(path, [data])

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        parts = [Part("files[0].path", [path.encode()], is_file=False), Part("files[0].file", data)]
        kind, body = multipart(parts, self._ids.new("b"))
        headers = {"content-type": kind}
        self._http.answer(Call("POST", "/files/bulk-upload", Deadlines(FILE_SECONDS), headers=headers, content=body))

    def download(self, path: str) -> Iterator[bytes]:
        call = Call(
            "GET", "/files/download", Deadlines(FILE_SECONDS), query={"path": path}, answer_bytes_max=FILE_BYTES_MAX,
            accept="application/octet-stream",
        )  # fmt: skip
        with self._http.stream(call) as answer:
            yield from answer.chunks()
