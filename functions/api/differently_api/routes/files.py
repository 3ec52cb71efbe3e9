"""Files of a running sandbox. Content is raw bytes; a browser is never invited to run it."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from pydantic import Field

from differently_core.contract import FileContent
from differently_core.errors import InvalidRequest, PayloadTooLarge
from differently_core.model.exec import FILE_BYTES_MAX, FileInfo
from differently_core.model.record import Wire
from differently_core.model.upload import UPLOAD_ID_PATTERN
from differently_core.operations import execution, uploads

from ..route import Access, Answer, Call, Group, Method, NoBody, Route
from ..streams import exact
from .commands import RUNNING_ERRORS

BYTES = "application/octet-stream"
PATH_MAX = 4096
ENTRIES_MAX = 10_000
_ASCII_NAME_MAX = 128


class FilePath(Wire):
    path: Annotated[str, Field(min_length=1, max_length=PATH_MAX, pattern=r"^[^\x00]*$")]


class FileTarget(FilePath):
    upload: Annotated[str, Field(pattern=UPLOAD_ID_PATTERN)] | None = None
    """Instead of a body: an upload of this sandbox, to which the file was sent."""


class DirectoryPath(Wire):
    path: Annotated[str, Field(min_length=1, max_length=PATH_MAX, pattern=r"^[^\x00]*$")] = "."


class FileList(Wire):
    items: list[FileInfo]


class FileDeleted(Wire):
    path: str
    deleted: bool = True


def list_files(call: Call[NoBody, DirectoryPath]) -> FileList:
    found = execution.list_files(call.core, call.caller, call.params["id"], call.query.path)
    if len(found) > ENTRIES_MAX:
        raise PayloadTooLarge(
            f"The directory has {len(found)} entries, over the {ENTRIES_MAX} that one answer can hold; list it with a "
            "command.", entries=len(found), limit=ENTRIES_MAX,
        )  # fmt: skip
    return FileList(items=found)


def stat_file(call: Call[NoBody, FilePath]) -> FileInfo:
    return execution.stat_file(call.core, call.caller, call.params["id"], call.query.path)


def read_file(call: Call[NoBody, FilePath]) -> Answer:
    path = call.query.path
    content = execution.read_file(call.core, call.caller, call.params["id"], path)
    if content.size > FILE_BYTES_MAX:
        _let_go(content)
        raise PayloadTooLarge(
            f"The file has {content.size} bytes, over the {FILE_BYTES_MAX} that can be read; split it with a command.",
            bytes=content.size, limit=FILE_BYTES_MAX,
        )  # fmt: skip
    headers = {
        "Content-Type": BYTES,
        "Content-Length": str(content.size),
        "Content-Disposition": disposition(path),
        "Content-Security-Policy": "sandbox; default-src 'none'",
    }
    return Answer(200, exact(content), headers)


def _let_go(content: FileContent) -> None:
    close = getattr(content.chunks, "close", None)
    if close is not None:
        close()


def disposition(path: str) -> str:
    """Always a download. The plain name is safe in a header whatever the file is called; the full one is RFC 5987."""
    name = path.rstrip("/").rpartition("/")[2] or "file"
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in name)[:_ASCII_NAME_MAX]
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def write_file(call: Call[bytes, FileTarget]) -> FileInfo:
    upload, path = call.query.upload, call.query.path
    if upload is None:
        return execution.write_file(call.core, call.caller, call.params["id"], path, [call.body])
    if call.body:
        raise InvalidRequest("Send no body with an upload: its bytes are what was sent to its address.", field="upload")
    return uploads.write(call.core, call.caller, call.params["id"], path, upload)


def delete_file(call: Call[NoBody, FilePath]) -> FileDeleted:
    execution.delete_file(call.core, call.caller, call.params["id"], call.query.path)
    return FileDeleted(path=call.query.path)


ROUTES = (
    Route(
        Method.GET, "/v1/sandboxes/{id}/files", Group.DATA, Access.TENANT, list_files,
        "List a directory", NoBody, DirectoryPath, FileList, errors=(*RUNNING_ERRORS, PayloadTooLarge),
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}/files/stat", Group.DATA, Access.TENANT, stat_file,
        "Look at one file", NoBody, FilePath, FileInfo, errors=RUNNING_ERRORS,
    ),
    Route(
        Method.GET, "/v1/sandboxes/{id}/files/content", Group.DATA, Access.TENANT, read_file,
        "Read a file", NoBody, FilePath, media=BYTES, errors=(*RUNNING_ERRORS, PayloadTooLarge),
        description="Up to 100 MiB, sent as it is read. When the backend breaks off in the middle the connection is "
        "broken off too; compare what you got with `Content-Length`.",
    ),
    Route(
        Method.PUT, "/v1/sandboxes/{id}/files/content", Group.DATA, Access.TENANT, write_file,
        "Write a file", bytes, FileTarget, FileInfo, errors=(*RUNNING_ERRORS, PayloadTooLarge),
        description="The body is the whole content, at most 4 MiB; a larger file is sent to an upload first "
        "(`POST …/files/uploads`), and `upload` names it here in place of a body. Parents are made; the old file stays "
        "until the new one is whole. An upload is used once: repeated with the same path, as after a lost answer, the "
        "call returns what the first one made.",
    ),
    Route(
        Method.DELETE, "/v1/sandboxes/{id}/files/content", Group.DATA, Access.TENANT, delete_file,
        "Delete a file or directory", NoBody, FilePath, FileDeleted, errors=RUNNING_ERRORS,
        description="A directory goes with all in it. What is not there counts as deleted.",
    ),
)  # fmt: skip
