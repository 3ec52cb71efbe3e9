"""Files of a sandbox over execd: raw bytes, whole writes, and names that are taken as they are."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Final

from differently_core.contract import FileContent
from differently_core.errors import (
    DifferentlyError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
)
from differently_core.model.exec import FILE_BYTES_MAX, FileInfo

from ..http import Call, Deadlines, Streamed
from . import scripts
from .client import BYTES, Execd
from .upload import multipart
from .wire import FileRead, read

IDLE_SECONDS: Final = 30.0
TRANSFER_SECONDS: Final = 300.0
COMMAND_SECONDS: Final = 60
NAME_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 4_096


_Done = Callable[[], None]


class Files:
    """A relative path starts where commands start."""

    def __init__(self, execd: Execd) -> None:
        self._execd = execd

    def read(self, path: str) -> FileContent:
        target = self._target(path)
        found = self._info(target, path)
        if found.is_dir:
            raise InvalidRequest("The path is a directory.", field="path")
        if not _expands(target):
            return self._download(target, path, lambda: None)
        # execd would take a `$` in the path for a variable, so it is given another name for the file.
        staging = self._execd.place().staging(self._execd.tag())
        self._execd.run(scripts.alias(target, staging))
        return self._download(f"{staging}/alias", path, lambda: self._remove(staging))

    def write(self, path: str, data: Iterable[bytes]) -> FileInfo:
        """Uploaded beside, verified by its size, then moved into place by one rename."""
        target = self._target(path)
        tag = self._execd.tag()
        staging = self._execd.place().staging(tag)
        counted = _Counted(data)
        try:
            content_type, body = multipart([(f"{staging}/file", 600, counted)], tag)
            headers = {"content-type": content_type}
            self._execd.send("POST", "/files/upload", headers=headers, content=body, seconds=TRANSFER_SECONDS)
            if self._execd.arrived(f"{staging}/file") != counted.size:
                raise ProviderUnavailable("The file arrived cut off; the old one is untouched.", settled=True)
            told = self._command(scripts.store(f"{staging}/file", target, staging, tag))
            return _stored(told, target, path, counted.size)
        except BaseException:
            self._remove(staging)
            raise

    def listing(self, path: str) -> list[FileInfo]:
        target = self._target(path)
        if _expands(target):
            entries = _entries(self._command(scripts.list_by_command(target)), path)
            return [_named(entry, path) for entry in sorted(entries, key=lambda entry: entry.name)]
        try:
            told = self._execd.told("/directories/list", {"path": target, "depth": "1"})
        except NotFound:
            raise _missing(path) from None
        except InvalidRequest:
            raise InvalidRequest("The path is not a directory.", field="path") from None
        found = read(list[FileRead], told)
        return [_named(_shown(entry), path) for entry in sorted(found, key=lambda entry: entry.path)]

    def stat(self, path: str) -> FileInfo:
        target = self._target(path)
        return self._info(target, path).model_copy(update={"path": path})

    def delete(self, path: str) -> None:
        """By a command: execd's own routes need to know what it is, and leave a link that leads nowhere."""
        target = self._target(path)
        if target in {"/", self._execd.place().home}:
            raise InvalidRequest("The directory where commands start cannot be deleted.", field="path")
        told = self._command(f'PATH="${{PATH-}}:/usr/bin:/bin"; rm -rf -- {shlex.quote(target)} && echo gone')
        if told.strip() != b"gone":
            raise InvalidRequest("The path cannot be deleted by the sandbox's user.", field="path")

    def _target(self, path: str) -> str:
        """The absolute path, without anything that execd or a shell would read otherwise than we do."""
        if "\0" in path:
            raise InvalidRequest("A path cannot hold a NUL character.", field="path")
        absolute = self._execd.place().at(path)
        parts = [part for part in absolute.split("/") if part not in {"", "."}]
        if ".." in parts:
            raise InvalidRequest("A path cannot hold '..'.", field="path")
        if any(len(part.encode()) > NAME_BYTES_MAX for part in parts) or len(absolute.encode()) > PATH_BYTES_MAX:
            raise InvalidRequest("The path has a name that is too long.", field="path")
        return "/" + "/".join(parts)

    def _info(self, target: str, path: str) -> FileInfo:
        if _expands(target):
            return _entries(self._command(scripts.stat_by_command(target)), path)[0]
        try:
            return _shown(self._execd.info(target))
        except NotFound:
            raise _missing(path) from None

    def _download(self, target: str, path: str, done: _Done) -> FileContent:
        deadlines = Deadlines(TRANSFER_SECONDS, read=IDLE_SECONDS)
        call = Call(
            "GET", "/files/download", deadlines, query={"path": target}, accept=BYTES, answer_bytes_max=FILE_BYTES_MAX
        )
        with ExitStack() as stack:
            stack.callback(done)
            try:
                answer = stack.enter_context(self._execd.http.stream(call))
            except NotFound:
                raise _missing(path) from None
            size = self._size(answer)
            return FileContent(size, _Chunks(answer, size, stack.pop_all()))

    def _size(self, answer: Streamed) -> int:
        """How long the file is, told before a byte of it is read."""
        length = answer.headers.get("content-length", "")
        if not length.isdigit():
            raise ProviderUnavailable("execd did not tell how long the file is.", settled=True)
        if int(length) > FILE_BYTES_MAX:
            raise PayloadTooLarge(
                f"The file is larger than {FILE_BYTES_MAX} bytes.", field="path", limit=FILE_BYTES_MAX
            )
        return int(length)

    def _command(self, text: str) -> bytes:
        return self._execd.run(text, COMMAND_SECONDS)

    def _remove(self, staging: str) -> None:
        """Best effort: what stays is in a temporary directory of the sandbox."""
        try:
            self._execd.send("DELETE", "/directories", {"path": staging})
        except DifferentlyError:
            return


class _Counted:
    """What a sender gives, up to the limit."""

    def __init__(self, data: Iterable[bytes]) -> None:
        self._data = data
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._data:
            self.size += len(chunk)
            if self.size > FILE_BYTES_MAX:
                raise PayloadTooLarge(f"A file can hold {FILE_BYTES_MAX} bytes.", limit=FILE_BYTES_MAX)
            yield chunk


class _Chunks(Iterator[bytes]):
    """The file's bytes; a connection that ends early raises, and one that nobody reads on is given back."""

    def __init__(self, answer: Streamed, size: int, held: ExitStack) -> None:
        self._chunks = answer.chunks()
        self._left = size
        self._held = held

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks, b"")
        except BaseException:
            self.close()
            raise
        self._left -= len(chunk)
        if chunk and self._left >= 0:
            return chunk
        self.close()
        if self._left:
            raise ProviderUnavailable("The connection ended before the file was whole.")
        raise StopIteration

    def close(self) -> None:
        self._held.close()

    def __del__(self) -> None:
        self.close()


def _expands(target: str) -> bool:
    """execd reads `$NAME` in a path as a variable of its own environment, and nothing escapes it."""
    return "$" in target


def _missing(path: str) -> NotFound:
    return NotFound(f"There is no file {path!r} in the sandbox.", field="path")


def _shown(found: FileRead) -> FileInfo:
    return FileInfo(
        name=found.path.rstrip("/").rpartition("/")[2] or "/", path=found.path, size=found.size,
        is_dir=found.type == "directory", mode=f"{found.mode:04d}", modified_at=found.modified_at,
    )  # fmt: skip


def _named(entry: FileInfo, folder: str) -> FileInfo:
    """An entry under the name that its folder was asked by."""
    prefix = "" if folder in {"", "."} else folder.rstrip("/") + "/"
    return entry.model_copy(update={"path": prefix + entry.name})


def _entries(told: bytes, path: str) -> list[FileInfo]:
    word, _, rest = told.partition(b"\n")
    match word:
        case b"missing":
            raise _missing(path)
        case b"file":
            raise InvalidRequest("The path is not a directory.", field="path")
        case b"listed":
            fields = rest.decode("utf-8", "replace").split("\0")[:-1]
            return [_entry(stat, name) for stat, name in zip(fields[::2], fields[1::2], strict=True)]
        case _:
            raise ProviderUnavailable("The sandbox did not tell about the path.", settled=True)


def _entry(stat: str, name: str) -> FileInfo:
    size, mode, at, kind = stat.split(" ", 3)
    return FileInfo(
        name=name, path=name, size=int(size), is_dir=kind == "directory", mode=mode.zfill(4),
        modified_at=datetime.fromtimestamp(int(at), UTC),
    )  # fmt: skip


def _stored(told: bytes, target: str, path: str, size: int) -> FileInfo:
    match told.split():
        case [b"directory"]:
            raise InvalidRequest("The path is a directory.", field="path")
        case [b"parent"]:
            raise InvalidRequest("The path goes through something that is not a directory.", field="path")
        case [b"refused"]:
            raise InvalidRequest("The path cannot be written by the sandbox's user.", field="path")
        case [b"stored", written, mode, at] if int(written) == size:
            return FileInfo(
                name=target.rpartition("/")[2], path=path, size=size, is_dir=False, mode=mode.decode().zfill(4),
                modified_at=datetime.fromtimestamp(int(at), UTC),
            )  # fmt: skip
        case _:
            raise ProviderUnavailable("The sandbox did not tell whether the file was stored.")
