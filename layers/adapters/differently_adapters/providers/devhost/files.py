"""Files of a sandbox: paths inside its home, raw bytes, whole writes.

A relative path starts at the home directory. An absolute one is taken only if it lies in it: there is no root of the
sandbox's own, so `/work` would be the host's. `..` and links that lead out are refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from differently_core.contract import FileContent
from differently_core.errors import InvalidRequest, NotFound, PayloadTooLarge, ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX, FileInfo

CHUNK_BYTES: Final = 262_144
REPLACEMENT: Final = "\ufffd"
Guard = Callable[[], AbstractContextManager[None]]
_REFUSALS: Final = {
    errno.EISDIR: "is a directory",
    errno.EEXIST: "goes through something that is not a directory",
    errno.ENOTDIR: "goes through something that is not a directory",
    errno.ENAMETOOLONG: "has a name that is too long",
    errno.ELOOP: "goes through a loop of links",
    errno.EACCES: "is not readable or writable",
    errno.EPERM: "cannot be changed",
    errno.EINVAL: "has a name that the host does not take",
    errno.EILSEQ: "has a name that the host does not take",
    errno.ENXIO: "is not a regular file",  # a socket
}


def resolve(home: Path, path: str, *, follow: bool = True) -> Path:
    """Where `path` lies on the host; with `follow=False` a link as the last part stands for itself."""
    inside = _relative(home, path)
    base = home.resolve()
    with _refusing(path):
        inside = _spelled(base, inside)
        if follow or inside == Path("."):
            found = (base / inside).resolve()
        else:
            found = (base / inside.parent).resolve() / inside.name
    if found != base and base not in found.parents:
        raise InvalidRequest("The path leads out of the sandbox's home.", field="path")
    return found


def _relative(home: Path, path: str) -> Path:
    if "\0" in path:
        raise InvalidRequest("A path cannot hold a NUL character.", field="path")
    given = Path(path)
    if ".." in given.parts:
        raise InvalidRequest("A path cannot hold '..'.", field="path")
    if not given.is_absolute():
        return given
    for base in (home, home.resolve()):
        if given.is_relative_to(base):
            return given.relative_to(base)
    raise InvalidRequest(
        "An absolute path must lie in the sandbox's home; give one that is relative to it.", field="path"
    )


def _spelled(base: Path, inside: Path) -> Path:
    """The path as the host spells it: a name that is not UTF-8 is shown with U+FFFD, and is meant by what was shown."""
    found = Path()
    for part in inside.parts:
        if REPLACEMENT in part and not os.path.lexists(base / found / part):
            part = _meant(base / found, part)
        found /= part
    return found


def _meant(folder: Path, shown: str) -> str:
    names = [name for name in os.listdir(folder) if _text(name) == shown]
    if len(names) > 1:
        raise InvalidRequest(
            "Several names are shown like this one, since they are not UTF-8; use a command to tell them apart.",
            field="path",
        )
    return names[0] if names else shown


def read(home: Path, path: str) -> FileContent:
    with _refusing(path):
        # Without O_NONBLOCK a pipe with no writer would hold us here.
        handle = os.open(resolve(home, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise InvalidRequest("The path is not a regular file.", field="path")
    if found.st_size > FILE_BYTES_MAX:
        os.close(handle)
        raise PayloadTooLarge(f"The file is larger than {FILE_BYTES_MAX} bytes.", field="path", limit=FILE_BYTES_MAX)
    return FileContent(found.st_size, _Chunks(path, handle, found.st_size))


class _Chunks(Iterator[bytes]):
    """No generator: one that was never begun would not close its file."""

    def __init__(self, path: str, handle: int, size: int) -> None:
        self._path = path
        self._file = os.fdopen(handle, "rb", buffering=0)
        self._left = size

    def __next__(self) -> bytes:
        if not self._left:
            self.close()
            raise StopIteration
        with _refusing(self._path):
            data = self._file.read(min(self._left, CHUNK_BYTES))
        if not data:
            self.close()
            raise ProviderUnavailable("The file became shorter while it was read.")
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._left = 0
        self._file.close()

    def __del__(self) -> None:
        self.close()


def write(home: Path, parts: Path, path: str, data: Iterable[bytes], guard: Guard) -> FileInfo:
    """Collect the bytes in `parts`, then rename.

    `guard` is held only while folders are made, so a slow sender never blocks a delete.
    """
    target = resolve(home, path)
    if target == home.resolve():
        raise InvalidRequest("The path names the sandbox's home.", field="path")
    with _refusing(path), guard():
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=parts)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            _copy(path, data, file.fileno())
        with _refusing(path):
            os.chmod(part, _mode_for(target))
            os.replace(part, target)
    finally:
        Path(part).unlink(missing_ok=True)
    return info(home, path)


def _copy(path: str, data: Iterable[bytes], handle: int) -> None:
    """What the sender raises is the sender's and passes through as it is."""
    total = 0
    for chunk in data:
        total += len(chunk)
        if total > FILE_BYTES_MAX:
            raise PayloadTooLarge(f"A file can hold {FILE_BYTES_MAX} bytes.", limit=FILE_BYTES_MAX)
        view = memoryview(chunk)
        with _refusing(path):
            while view:
                view = view[os.write(handle, view) :]


def _mode_for(target: Path) -> int:
    """A file that is replaced keeps its mode, so a script stays executable."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o644


def info(home: Path, path: str) -> FileInfo:
    with _refusing(path):
        target = resolve(home, path)
        return _info(target, path, target.stat())


def listing(home: Path, path: str) -> list[FileInfo]:
    with _refusing(path):
        folder = resolve(home, path)
        if not folder.is_dir():
            folder.stat()  # tells a missing directory from a file
            raise NotADirectoryError(errno.ENOTDIR, "file")
        prefix = "" if path in {"", "."} else path.rstrip("/") + "/"
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        return [
            _info(Path(entry.path), prefix + _text(entry.name), found)
            for entry in entries
            if (found := _stat(entry)) is not None
        ]


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # deleted since the directory was read
        return None


def _info(target: Path, path: str, found: os.stat_result) -> FileInfo:
    return FileInfo(
        name=_text(target.name), path=_text(path), size=found.st_size, is_dir=stat.S_ISDIR(found.st_mode),
        mode=f"{stat.S_IMODE(found.st_mode):04o}", modified_at=datetime.fromtimestamp(found.st_mtime, UTC),
    )  # fmt: skip


def _text(name: str) -> str:
    """Names are bytes on the host; those that are not UTF-8 are shown with U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def delete(home: Path, path: str) -> None:
    target = resolve(home, path, follow=False)
    if target == home.resolve():
        raise InvalidRequest("The sandbox's home itself cannot be deleted.", field="path")
    with _refusing(path), contextlib.suppress(FileNotFoundError):
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()


@contextlib.contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"There is no file {path!r} in the sandbox.", field="path") from None
    except (RuntimeError, ValueError) as error:  # pathlib's loop of links; a name the host cannot spell
        raise InvalidRequest(f"The path cannot be used: {type(error).__name__}.", field="path") from None
    except OSError as error:
        refusal = _REFUSALS.get(error.errno or 0)
        if refusal is not None:
            raise InvalidRequest(f"The path {refusal}.", field="path") from None
        raise ProviderUnavailable(f"The host could not do that ({error.strerror}).") from None
