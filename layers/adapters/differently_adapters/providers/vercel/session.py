"""A running session: commands as lines of JSON, and files packed in archives.

One request starts a command and tells its output as it comes; the last line tells how it ended. A failure comes as a
line, too, under a status of success.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import Final

from differently_core.errors import ExecUnconfirmed, ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX

from ...http import Call, Deadlines
from .api import Api, of_session

SILENCE_SECONDS: Final = 40.0
"""A command that is alive is heard of more often: our script says so every ten seconds."""
STREAM_BYTES_MAX: Final = 1 << 40
"""A stream is bounded by its time, not by its size."""
FILE_SECONDS: Final = 300.0
HELD_BYTES: Final = 4 * 1024 * 1024
"""Of a file to be sent, in memory; what is longer waits on this machine's disk, for an archive tells lengths first."""
CHUNK_BYTES: Final = 262_144
_BLOCK: Final = 512


class Session:
    """A `Shell`, and files under absolute paths."""

    def __init__(self, api: Api, identity: str) -> None:
        self._api = api
        self._base = of_session(identity)

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        call = Call(
            "POST", f"{self._base}/cmd", Deadlines(seconds + SILENCE_SECONDS, read=SILENCE_SECONDS),
            query=self._api.query(wait="true", logs="true"), lost=ExecUnconfirmed, answer_bytes_max=STREAM_BYTES_MAX,
            accept="application/x-ndjson",
            body={
                "command": "/bin/sh", "args": ["-c", script], "env": {}, "sudo": False, "wait": True, "logs": True,
                "timeout": int(seconds * 1000),
            },
        )  # fmt: skip
        with self._api.http.stream(call) as answer:
            yield stdout_of(answer.lines())

    def put(self, path: str, data: bytes) -> None:
        self.upload(path, [data])

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        folder, _, name = path.rpartition("/")
        with SpooledTemporaryFile(HELD_BYTES) as held:
            size = sum(held.write(chunk) for chunk in data)
            held.seek(0)
            chunks = iter(lambda: held.read(CHUNK_BYTES), b"")
            call = Call(
                "POST", f"{self._base}/fs/write", Deadlines(FILE_SECONDS), query=self._api.query(),
                headers={"content-type": "application/gzip", "x-cwd": folder or "/"},
                content=archive(name, size, chunks),
            )  # fmt: skip
            self._api.http.answer(call)

    def download(self, path: str) -> Iterator[bytes]:
        call = Call(
            "POST", f"{self._base}/fs/read", Deadlines(FILE_SECONDS), query=self._api.query(), body={"path": path},
            mutates=False, lost=ProviderUnavailable, answer_bytes_max=FILE_BYTES_MAX,
            accept="application/octet-stream",
        )  # fmt: skip
        with self._api.http.stream(call) as answer:
            yield from answer.chunks()


def stdout_of(lines: Iterator[bytes]) -> Iterator[bytes]:
    """What the command printed. Raises for a failure that comes as a line."""
    for line in lines:
        if not line.strip():
            continue
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            raise ExecUnconfirmed("Vercel sent a line that is no JSON.") from None
        match told:
            case {"stream": "stdout", "data": str(text)}:
                yield text.encode(errors="replace")
            case {"stream": "error"}:
                raise ExecUnconfirmed("Vercel lost the command; its end was not seen.")
            case {"command": {"exitCode": int()}}:
                return
            case _:
                pass


def archive(name: str, size: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """One file as a compressed tar archive, made while it is sent."""
    packed = zlib.compressobj(level=1, wbits=31)
    yield packed.compress(_header(name, size))
    for chunk in chunks:
        yield packed.compress(chunk)
    yield packed.compress(bytes(-size % _BLOCK + 2 * _BLOCK)) + packed.flush()


def _header(name: str, size: int) -> bytes:
    """As ustar has it. `name` is one of ours: short, and plain."""
    fields = [(name.encode(), 100), (b"0000600", 8), (b"0000000", 8), (b"0000000", 8), (b"%011o" % size, 12),
              (b"00000000000", 12), (b"        ", 8), (b"0", 1), (b"", 100), (b"ustar", 6), (b"00", 2)]  # fmt: skip
    block = b"".join(value.ljust(width, b"\0") for value, width in fields).ljust(_BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
