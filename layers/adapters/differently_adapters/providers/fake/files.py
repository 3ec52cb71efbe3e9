"""Files of a fake instance: names in a dictionary. A path is taken from the root, with or without its first slash."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from datetime import datetime

from differently_core.contract import FileContent, Files
from differently_core.errors import InvalidRequest, NotFound, PayloadTooLarge
from differently_core.model.exec import FILE_BYTES_MAX, FileInfo

from .instances import FakeFile, FakeInstance

NAME_BYTES_MAX = 255
ROOT = ""


def _clean(path: str) -> str:
    if "\0" in path:
        raise InvalidRequest("A path cannot hold a NUL character.", field="path")
    if ".." in path.split("/"):
        raise InvalidRequest("A path cannot hold '..'.", field="path")
    clean = posixpath.normpath(path or ".").lstrip("/")
    if any(len(name.encode()) > NAME_BYTES_MAX for name in clean.split("/")):
        raise InvalidRequest("The path has a name that is too long.", field="path")
    return ROOT if clean == "." else clean


def read(instance: FakeInstance, path: str) -> FileContent:
    data = _file(instance, path).data
    return FileContent(len(data), iter([data] if data else []))


def write(instance: FakeInstance, path: str, data: Iterable[bytes], now: datetime) -> FileInfo:
    name = _clean(path)
    if name == ROOT or name in instance.folders:
        raise InvalidRequest("The path is a directory.", field="path")
    parents = _parents(name)
    if any(parent in instance.files for parent in parents):
        raise InvalidRequest("The path goes through something that is not a directory.", field="path")
    content = bytearray()
    for chunk in data:
        content += chunk
        if len(content) > FILE_BYTES_MAX:
            raise PayloadTooLarge(f"A file can hold {FILE_BYTES_MAX} bytes.", limit=FILE_BYTES_MAX)
    instance.folders.update(parents)
    instance.files[name] = FakeFile(bytes(content), now)
    return info(instance, path)


def info(instance: FakeInstance, path: str) -> FileInfo:
    name = _clean(path)
    if name == ROOT or name in instance.folders:
        return _folder_info(name, path)
    return _file_info(_file(instance, path), name, path)


def listing(instance: FakeInstance, path: str) -> Files:
    folder = _clean(path)
    if folder in instance.files:
        raise InvalidRequest("The path is not a directory.", field="path")
    if folder != ROOT and folder not in instance.folders:
        raise _missing(path)
    shown = "" if path in {"", "."} else path.rstrip("/") + "/"
    found = []
    for name in sorted({*instance.files, *instance.folders}):
        if name != ROOT and posixpath.dirname(name) == folder:
            place = shown + posixpath.basename(name)
            file = instance.files.get(name)
            found.append(_folder_info(name, place) if file is None else _file_info(file, name, place))
    return found


def delete(instance: FakeInstance, path: str) -> None:
    name = _clean(path)
    if name == ROOT:
        raise InvalidRequest("The root cannot be deleted.", field="path")
    inside = f"{name}/"
    for kept in [kept for kept in instance.files if kept == name or kept.startswith(inside)]:
        del instance.files[kept]
    instance.folders -= {kept for kept in instance.folders if kept == name or kept.startswith(inside)}


def _file(instance: FakeInstance, path: str) -> FakeFile:
    name = _clean(path)
    if name == ROOT or name in instance.folders:
        raise InvalidRequest("The path is a directory.", field="path")
    found = instance.files.get(name)
    if found is None:
        raise _missing(path)
    return found


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _missing(path: str) -> NotFound:
    return NotFound(f"There is no file {path!r} in the sandbox.", field="path")


def _file_info(file: FakeFile, name: str, path: str) -> FileInfo:
    return FileInfo(
        name=posixpath.basename(name), path=path, size=len(file.data), is_dir=False, mode="0644",
        modified_at=file.modified_at,
    )  # fmt: skip


def _folder_info(name: str, path: str) -> FileInfo:
    return FileInfo(name=posixpath.basename(name), path=path, size=0, is_dir=True, mode="0755")
