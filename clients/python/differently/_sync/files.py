"""Files of a sandbox, of any size within its disk.

What one call cannot carry is sent to an upload. What no upload carries, or goes to a server without uploads, goes in
parts that a command joins.
"""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

import io
import os
import posixpath
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from .._codes import InvalidState, MethodNotAllowed, NotFound, ProviderUnavailable, UnsupportedOperation
from .._failure import DifferentlyError, StreamCut, UnexpectedAnswer
from .._request import SILENCE_SECONDS, at, request
from .._upload import LOOK_SECONDS, UPLOAD_BYTES_MAX, WRITE_SECONDS, Moved
from ..commands import exec_body, result_of
from ..models import FileInfo, UploadView
from .transport import Transport
from .uploads import announcement, send

PART_BYTES = 4 * 1024 * 1024
"""What one write may carry."""
JOIN_SECONDS = 240
WRITE_SILENCE_SECONDS = 120.0
"""Until an upload is a file; asking again is safe."""
NO_UPLOADS = (NotFound, MethodNotAllowed, UnsupportedOperation, ProviderUnavailable)
"""What a server without the route says, and one without a bucket."""
JOIN = 'cat "$2"/* > "$2.whole" && mv -f "$2.whole" "$1" || { rm -f "$2.whole"; exit 1; }'
Listing = list[FileInfo]


class Files:
    """The files of one sandbox. Relative paths begin where its commands do."""

    def __init__(self, transport: Transport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    def list(self, path: str = ".") -> Listing:
        found = self._transport.document(request("GET", self._path(), query={"path": path}))
        return [FileInfo.from_dict(item) for item in found["items"]]

    def stat(self, path: str) -> FileInfo:
        return FileInfo.from_dict(self._transport.document(request("GET", self._path("/stat"), query={"path": path})))

    def read(self, path: str) -> bytes:
        """The whole content, at most 100 MiB."""
        return b"".join([chunk for chunk in self.chunks(path)])

    def read_text(self, path: str) -> str:
        return (self.read(path)).decode()

    def chunks(self, path: str) -> Iterator[bytes]:
        """The content as it comes; a StreamCut when it breaks off."""
        asked = request("GET", self._path("/content"), query={"path": path}, silence_seconds=SILENCE_SECONDS)
        with self._transport.opened(asked) as answer:
            promised = int(answer.headers.get("content-length", -1))
            got = 0
            for chunk in answer.chunks:
                got += len(chunk)
                yield chunk
            if promised not in (-1, got):
                raise StreamCut(f"{path} broke off after {got} of {promised} bytes; read it again.")

    def write(self, path: str, content: bytes | str) -> None:
        """Write the whole file; parents are made, and the old file stays until the new one is whole."""
        data = content.encode() if isinstance(content, str) else bytes(content)
        if len(data) <= PART_BYTES:
            self._put(path, data)
            return
        self._write_large(path, io.BytesIO(data), len(data), lambda moved: None)

    def delete(self, path: str) -> None:
        """A directory goes with all in it. What is not there counts as deleted."""
        self._transport.document(request("DELETE", self._path("/content"), query={"path": path}))

    def upload(self, local: str | Path, path: str, moved: Moved | None = None) -> None:
        """Write a file of this machine there, however large it is."""
        told = moved or (lambda count: None)
        with Path(local).open("rb") as source:
            first = source.read(PART_BYTES + 1)
            if len(first) <= PART_BYTES:
                self._put(path, first)
                told(len(first))
                return
            self._write_large(path, source, os.fstat(source.fileno()).st_size, told)

    def download(self, path: str, local: str | Path, moved: Moved | None = None) -> None:
        """Read a file there into one here, which appears when it is whole."""
        target = Path(local)
        fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
        got = 0
        try:
            with fresh.open("wb") as file:
                for chunk in self.chunks(path):
                    got += file.write(chunk)
                    if moved is not None:
                        moved(got)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)

    def _write_large(self, path: str, source: BinaryIO, size: int, told: Moved) -> None:
        if size <= UPLOAD_BYTES_MAX and self._write_uploaded(path, source, told):
            return
        source.seek(0)
        self._write_parts(path, _parts(source), told)

    def _write_uploaded(self, path: str, source: BinaryIO, told: Moved) -> bool:
        """False, with nothing done, when the server takes no uploads."""
        announced = announcement(source)
        asked = request("POST", self._path("/uploads"), body=announced, final=(ProviderUnavailable.code,))
        try:
            begun = self._transport.document(asked)
        except DifferentlyError as failed:
            if isinstance(failed, NO_UPLOADS) or (isinstance(failed, UnexpectedAnswer) and failed.status in (404, 501)):
                return False
            raise
        upload = UploadView.from_dict(begun)
        send(self._transport, upload, source, int(str(announced["size"])), told)
        self._make_file(path, upload.id)
        return True

    def _make_file(self, path: str, upload: str) -> None:
        """Asked again it tells what the first call made, or that it is still at it."""
        asked = request(
            "PUT", self._path("/content"), query={"path": path, "upload": upload}, silence_seconds=WRITE_SILENCE_SECONDS
        )
        waited = 0.0
        while True:
            try:
                self._transport.document(asked)
                return
            except InvalidState as refused:
                if refused.details.get("status") != "writing" or waited >= WRITE_SECONDS:
                    raise
            self._transport._pause(LOOK_SECONDS)
            waited += LOOK_SECONDS

    def _write_parts(self, path: str, parts: Iterable[bytes], told: Moved) -> None:
        """Parts beside the file, then joined by a command and moved into place in one step."""
        head, name = posixpath.split(path)
        folder = posixpath.join(head, f".{name[:64]}.{uuid.uuid4().hex[:12]}.parts")
        written = 0
        try:
            for number, part in enumerate(parts):
                self._put(posixpath.join(folder, f"{number:08d}"), part)
                written += len(part)
                told(written)
            self._join(path, folder)
        finally:
            self.delete(folder)

    def _join(self, path: str, folder: str) -> None:
        words = ["/bin/sh", "-c", JOIN, "sh", _as_operand(path), _as_operand(folder)]
        body = exec_body(words, env=None, cwd=None, stdin=None, timeout_seconds=JOIN_SECONDS)
        # Joining twice gives the same file, so a lost answer may be asked for again.
        asked = request(
            "POST", at("/v1/sandboxes/{}/exec", self._sandbox), body=body, silence_seconds=JOIN_SECONDS + 30.0
        )
        result_of(self._transport.document(asked)).checked()

    def _put(self, path: str, content: bytes) -> None:
        asked = request(
            "PUT", self._path("/content"), query={"path": path}, body=content, silence_seconds=SILENCE_SECONDS
        )
        self._transport.document(asked)

    def _path(self, tail: str = "") -> str:
        return at("/v1/sandboxes/{}/files", self._sandbox) + tail


def _as_operand(path: str) -> str:
    """A path that no command takes for an option."""
    return path if path.startswith("/") else f"./{path}"


def _parts(source: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: source.read(PART_BYTES), b"")
