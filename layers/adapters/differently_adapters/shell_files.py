"""Files of a sandbox by shell lines: names taken as they are, whole writes, and what a path is told from its content.

Content travels by the backend's own upload and download where it has them, else through commands in parts. Either way
a file is stored beside its place, checked for its length, and put there by one rename. The sandbox needs `sh`, `mkdir`,
`mv`, `rm`, `head`, `tail`, `wc`, `chmod`, `stat` and, where it stores parts, `base64`.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from differently_core.contract import CommandResult, FileContent
from differently_core.errors import DifferentlyError, InvalidRequest, NotFound, PayloadTooLarge, ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX, ExecRequest, FileInfo
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from .parts import in_parts

NAME_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 4_096
PART_BYTES: Final = 393_216
"""Of a file, stored or read by one command."""
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of a folder's list."""
SECONDS: Final = 60

Run = Callable[[ExecRequest, int], CommandResult]
Upload = Callable[[str, Iterable[bytes]], None]
"""Store a file under an absolute path; parents exist."""
Download = Callable[[str], Iterator[bytes]]
"""The content of the file under an absolute path."""

_TOOLS: Final = 'PATH="${PATH-}:/usr/local/bin:/usr/bin:/bin"\n'
_FIND: Final = (
    _TOOLS
    + r"""
[ -d TARGET ] && { echo directory; exit; }
[ -e TARGET ] || { echo missing; exit; }
[ -f TARGET ] && [ -r TARGET ] || { echo refused; exit; }
printf 'file %s ' "$(($(wc -c < TARGET)))"
case TARGET in /*) ;; *) printf '%s/' "$PWD" ;; esac
printf '%s' INSIDE
"""
)
_PART: Final = _TOOLS + "tail -c +FROM -- TARGET | head -c LENGTH\n"
_PREPARE: Final = (
    _TOOLS
    + r"""
[ -d TARGET ] && { echo directory; exit; }
mkdir -p -- PARENT 2>/dev/null
[ -d PARENT ] || { echo parent; exit; }
umask 077
mkdir -p "${TMPDIR:-/tmp}" && mkdir "${TMPDIR:-/tmp}/"NAME 2>/dev/null || { echo unusable; exit; }
printf 'staged %s' "${TMPDIR:-/tmp}/"NAME
"""
)
_APPEND: Final = _TOOLS + "umask 077; base64 -d >> SOURCE && echo stored\n"
_STORE: Final = (
    _TOOLS
    + r"""
[ "$(($(wc -c < SOURCE)))" -eq LENGTH ] || { echo cut; rm -rf STAGING; exit; }
mode=$(stat -c %a -- TARGET 2>/dev/null) || mode=644
chmod "$mode" SOURCE && mv -f -- SOURCE BESIDE && mv -f -- BESIDE TARGET && rm -rf STAGING || {
  rm -rf -- BESIDE STAGING; echo refused; exit
}
stat -c 'stored %a %Y' -- TARGET
"""
)
_LIST: Final = (
    _TOOLS
    + r"""
[ -e TARGET ] || [ -L TARGET ] || { echo missing; exit; }
[ -d TARGET ] || { echo file; exit; }
cd -- TARGET || { echo refused; exit; }
echo listed
for name in * .*; do
  case $name in . | ..) continue ;; esac
  [ -e "./$name" ] || [ -L "./$name" ] || continue
  printf '%s\000%s\000' "$(stat -c '%s %a %Y %F' "./$name")" "$name"
done
"""
)
_STAT: Final = (
    _TOOLS
    + r"""
[ -e TARGET ] || [ -L TARGET ] || { echo missing; exit; }
echo listed
printf '%s\000%s\000' "$(stat -c '%s %a %Y %F' -- TARGET)" NAME
"""
)
_DELETE: Final = _TOOLS + "rm -rf -- TARGET 2>/dev/null && echo gone\n"
_REMOVE: Final = _TOOLS + "rm -rf -- STAGING\n"


@dataclass(frozen=True)
class Carriers:
    """How content travels where a backend can carry it itself."""

    upload: Upload | None = None
    download: Download | None = None


class ShellFiles:
    """The file operations of one sandbox over its `exec`. A relative path starts where commands start."""

    def __init__(self, run: Run, clock: Clock, carriers: Carriers | None = None) -> None:
        self._run = run
        self._ids = SystemIds(clock)
        self._carriers = carriers or Carriers()

    def read(self, path: str) -> FileContent:
        target = _target(path)
        told = self._say(_FIND, TARGET=target, INSIDE=target.removeprefix("./"))
        word, _, rest = told.partition(b" ")
        if word == b"directory\n":
            raise InvalidRequest("The path is a directory.", field="path")
        if word != b"file":
            raise _refusal(told, path)
        size, _, where = rest.partition(b" ")
        if int(size) > FILE_BYTES_MAX:
            raise PayloadTooLarge(
                f"The file is larger than {FILE_BYTES_MAX} bytes.", field="path", limit=FILE_BYTES_MAX
            )
        absolute = _text(where)
        download = self._carriers.download
        chunks = self._parts(absolute, int(size)) if download is None else download(absolute)
        return FileContent(int(size), _whole(chunks, int(size)))

    def _parts(self, absolute: str, size: int) -> Iterator[bytes]:
        for start in range(0, size, PART_BYTES):
            yield self._say(_PART, TARGET=absolute, FROM=str(start + 1), LENGTH=str(PART_BYTES))

    def write(self, path: str, data: Iterable[bytes]) -> FileInfo:
        target = _target(path)
        parent, _, name = target.rpartition("/")
        tag = self._ids.new("f")
        told = self._say(_PREPARE, TARGET=target, PARENT=parent or "/", NAME=f".differently-{tag}")
        word, _, staging = _text(told).partition(" ")
        if word != "staged":
            raise _unwritable(word)
        counted = _Counted(data)
        try:
            self._upload(f"{staging}/file", counted)
            stored = self._say(
                _STORE, TARGET=target, SOURCE=f"{staging}/file", STAGING=staging, LENGTH=str(counted.size),
                BESIDE=f"{parent}/.differently-{tag}",
            )  # fmt: skip
        except BaseException:
            with suppress(DifferentlyError):  # what stays is in a temporary directory of the sandbox
                self._say(_REMOVE, STAGING=staging)
            raise
        match stored.split():
            case [b"stored", mode, at]:
                return FileInfo(
                    name=name, path=path, size=counted.size, is_dir=False, mode=mode.decode().zfill(4),
                    modified_at=datetime.fromtimestamp(int(at), UTC),
                )  # fmt: skip
            case [word_of_failure]:
                raise _unwritable(word_of_failure.decode("ascii", "replace"))
            case _:
                raise ProviderUnavailable("The sandbox did not tell whether the file was stored.")

    def _upload(self, where: str, data: Iterable[bytes]) -> None:
        if self._carriers.upload is not None:
            self._carriers.upload(where, data)
            return
        for part in in_parts(data, PART_BYTES):
            if self._say(_APPEND, base64.b64encode(part).decode(), SOURCE=where).strip() != b"stored":
                raise ProviderUnavailable("The sandbox did not store a part of the file; the old one is untouched.")

    def list(self, path: str) -> list[FileInfo]:
        entries = _entries(self._say(_LIST, TARGET=_target(path)), path)
        prefix = "" if path in {"", "."} else path.rstrip("/") + "/"
        named = [entry.model_copy(update={"path": prefix + entry.name}) for entry in entries]
        return sorted(named, key=lambda entry: entry.name)

    def stat(self, path: str) -> FileInfo:
        target = _target(path)
        name = target.rstrip("/").rpartition("/")[2] or "/"
        (entry,) = _entries(self._say(_STAT, TARGET=target, NAME=name), path)
        return entry.model_copy(update={"path": path})

    def delete(self, path: str) -> None:
        target = _target(path)
        if target in {"/", "./"}:
            raise InvalidRequest("The directory where commands start cannot be deleted.", field="path")
        if self._say(_DELETE, TARGET=target).strip() != b"gone":
            raise InvalidRequest("The path cannot be deleted by the sandbox's user.", field="path")

    def _say(self, script: str, stdin: str | None = None, /, **values: str) -> bytes:
        """What the script printed. Values are put in by one pass, each as one word of the shell."""
        pieces = script
        for name in values:
            pieces = pieces.replace(name, f"\0{name}\0")
        text = "".join(
            shlex.quote(values[piece]) if number % 2 else piece for number, piece in enumerate(pieces.split("\0"))
        )
        result = self._run(ExecRequest(command=text, stdin=stdin, timeout_seconds=SECONDS), ANSWER_BYTES_MAX)
        if result.timed_out or result.stdout_dropped_bytes:
            raise ProviderUnavailable("The sandbox did not tell all about the path.", settled=True)
        return result.stdout


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
            if chunk:
                yield chunk


def _whole(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Exactly so many bytes, or an error: a file that was cut or has changed never passes for a whole one."""
    left = size
    try:
        for chunk in chunks:
            left -= len(chunk)
            if left < 0:
                break
            yield chunk
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
    if left:
        raise ProviderUnavailable("The file changed, or its content was cut, while it was read.", settled=True)


def _target(path: str) -> str:
    """The path as a word that no command takes for an option; raises `InvalidRequest` for what is none."""
    if "\0" in path:
        raise InvalidRequest("A path cannot hold a NUL character.", field="path")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise InvalidRequest("A path cannot lead upwards.", field="path")
    if len(path.encode(errors="replace")) > PATH_BYTES_MAX or any(
        len(part.encode(errors="replace")) > NAME_BYTES_MAX for part in parts
    ):
        raise InvalidRequest(
            f"A path has at most {PATH_BYTES_MAX} bytes, and each name {NAME_BYTES_MAX}.", field="path"
        )
    return ("/" if path.startswith("/") else "./") + "/".join(parts)


def _text(told: bytes) -> str:
    try:
        return told.decode()
    except UnicodeDecodeError:
        pass
    raise InvalidRequest("The directory where commands start has a name that is not UTF-8.", field="path")


def _refusal(told: bytes, path: str) -> DifferentlyError:
    match told.strip():
        case b"missing":
            return NotFound(f"There is no file {path!r} in the sandbox.", field="path")
        case b"file":
            return InvalidRequest("The path is not a directory.", field="path")
        case b"refused":
            return InvalidRequest("The path cannot be read by the sandbox's user.", field="path")
        case _:
            return ProviderUnavailable("The sandbox did not tell about the path.", settled=True)


def _unwritable(word: str) -> DifferentlyError:
    match word.strip():
        case "directory":
            return InvalidRequest("The path is a directory.", field="path")
        case "parent":
            return InvalidRequest("The path goes through something that is not a directory.", field="path")
        case "refused":
            return InvalidRequest("The path cannot be written by the sandbox's user.", field="path")
        case "cut":
            return ProviderUnavailable("The file arrived cut off; the old one is untouched.", settled=True)
        case _:
            return ProviderUnavailable("The sandbox has no room for the file; the old one is untouched.", settled=True)


def _entries(told: bytes, path: str) -> list[FileInfo]:
    word, _, rest = told.partition(b"\n")
    if word != b"listed":
        raise _refusal(word, path)
    fields = rest.decode("utf-8", "replace").split("\0")[:-1]
    return [_entry(about, name) for about, name in zip(fields[::2], fields[1::2], strict=True) if about]


def _entry(about: str, name: str) -> FileInfo:
    size, mode, at, kind = about.split(" ", 3)
    return FileInfo(
        name=name, path=name, size=int(size), is_dir=kind == "directory", mode=mode.zfill(4),
        modified_at=datetime.fromtimestamp(int(at), UTC),
    )  # fmt: skip
