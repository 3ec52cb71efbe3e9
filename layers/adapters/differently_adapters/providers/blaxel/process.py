"""The data plane of one sandbox: commands as lines of JSON, and files by their paths. Using it wakes a sleeper.

A silent request is ended by what stands between after a minute, while the command goes on; so output is streamed, and
our script says now and then that it is alive. Output comes a line at a time, with or without what ended the line.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from differently_core.errors import ExecUnconfirmed, ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from ...http import Call, Deadlines, Endpoint, Http, segment
from ...multipart import Part, multipart
from ...parts import in_parts
from .api import PROCESS

SILENCE_SECONDS: Final = 40.0
STREAM_BYTES_MAX: Final = 1 << 40
"""A stream is bounded by its time, not by its size."""
FILE_SECONDS: Final = 300.0
PART_BYTES: Final = 4 * 1024 * 1024
"""Of a file, in one request."""
JOIN_SECONDS: Final = 60.0


class DataPlane:
    """A `Shell`, and files under absolute paths."""

    def __init__(self, http: Http, endpoint: Endpoint, headers: Mapping[str, str], clock: Clock) -> None:
        self._http = http.at(endpoint, headers)
        self._ids = SystemIds(clock)

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        call = Call(
            "POST", PROCESS, Deadlines(seconds + SILENCE_SECONDS, read=SILENCE_SECONDS), lost=ExecUnconfirmed,
            answer_bytes_max=STREAM_BYTES_MAX, accept="text/event-stream",
            body={
                "command": f"/bin/sh -c {shlex.quote(script)} </dev/null", "waitForCompletion": True,
                "name": self._ids.new("p").lower().replace("_", "-"), "timeout": math.ceil(seconds),
            },
        )  # fmt: skip
        with self._http.stream(call) as answer:
            yield stdout_of(answer.lines())

    def put(self, path: str, data: bytes) -> None:
        kind, body = multipart(
            [Part("file", [data]), Part("permissions", [b"0600"], is_file=False),
             Part("path", [path.encode()], is_file=False)],
            self._ids.new("b"),
        )  # fmt: skip
        call = Call("PUT", _file(path), Deadlines(FILE_SECONDS), headers={"content-type": kind}, content=body)
        self._http.answer(call)

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        """Parts beside it, which one command puts together."""
        for number, part in enumerate(in_parts(data, PART_BYTES), 1):
            self.put(f"{path}.{number:04}", part)
        quoted = shlex.quote(path)
        with self.open(f"cat {quoted}.???? > {quoted} && rm -f {quoted}.???? && echo joined", JOIN_SECONDS) as chunks:
            if b"".join(chunks).strip() != b"joined":
                raise ProviderUnavailable("The sandbox did not store the file; the old one is untouched.")

    def download(self, path: str) -> Iterator[bytes]:
        call = Call(
            "GET", _file(path), Deadlines(FILE_SECONDS), answer_bytes_max=FILE_BYTES_MAX,
            accept="application/octet-stream",
        )  # fmt: skip
        with self._http.stream(call) as answer:
            yield from answer.chunks()


def _file(path: str) -> str:
    """An absolute path follows the prefix as it is, so there are two slashes."""
    return "/filesystem/" + "/".join(segment(part) if part else "" for part in path.split("/"))


def stdout_of(lines: Iterator[bytes]) -> Iterator[bytes]:
    """What the command printed, each line ended again."""
    for line in lines:
        text = line.strip().removeprefix(b"data:").strip()
        if not text.startswith(b"{"):
            continue  # a sign of life
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            raise ExecUnconfirmed("Blaxel sent a line that is no JSON.") from None
        match told:
            case {"type": "stdout", "data": str(printed)}:
                yield (printed.removesuffix("\n") + "\n").encode(errors="replace")
            case {"type": "result"}:
                return
            case {"type": "error"}:
                raise ExecUnconfirmed("Blaxel lost the command; its end was not seen.")
            case _:
                pass
