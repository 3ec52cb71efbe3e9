"""File content through the protocol: raw bytes whose length is known before the first of them is passed on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import IO, Final

from differently_core.contract import FileContent
from differently_core.errors import PayloadTooLarge, ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX

from ..http import Streamed

IN_MEMORY_BYTES: Final = 1_048_576
CHUNK_BYTES: Final = 262_144


class Spooled:
    """Bytes of unknown length put aside, in memory or on disk, so that their length can be told first.

    Not every plugin's server takes a body in chunks, and a sender that fails half way has then sent nothing.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 (see close)
        self.size = 0
        try:
            for chunk in chunks:
                self.size += len(chunk)
                if self.size > FILE_BYTES_MAX:
                    raise PayloadTooLarge(f"A file can hold {FILE_BYTES_MAX} bytes.", limit=FILE_BYTES_MAX)
                self._file.write(chunk)
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            yield chunk

    def close(self) -> None:
        self._file.close()

    def once(self) -> Iterator[bytes]:
        try:
            yield from self
        finally:
            self.close()


def content(opened: AbstractContextManager[Streamed]) -> FileContent:
    """The file that an answer holds."""
    streamed = opened.__enter__()
    try:
        length = streamed.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and "content-encoding" not in streamed.headers:
            size = int(length)
            if size > FILE_BYTES_MAX:
                raise PayloadTooLarge(f"The file is larger than {FILE_BYTES_MAX} bytes.", limit=FILE_BYTES_MAX)
            if size > IN_MEMORY_BYTES:
                return FileContent(size, _Chunks(opened, streamed))
        elif not length and "chunked" not in streamed.headers.get("transfer-encoding", "").lower():
            raise ProviderUnavailable("The plugin does not say how long the file is.", settled=True)
        spooled = Spooled(streamed.chunks())
    except BaseException:
        opened.__exit__(None, None, None)
        raise
    opened.__exit__(None, None, None)
    return FileContent(spooled.size, spooled.once())


class _Chunks(Iterator[bytes]):
    """A large file as it comes. Left before its end, or never begun, it gives the connection back all the same."""

    def __init__(self, opened: AbstractContextManager[Streamed], streamed: Streamed) -> None:
        self._opened: AbstractContextManager[Streamed] | None = opened
        self._chunks = streamed.chunks()

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def __del__(self) -> None:
        self.close()
