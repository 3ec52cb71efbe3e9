"""Uploads: where a file goes that is too large for one request, before it becomes a file of a sandbox."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field

from differently_core.errors import InvalidState, LimitExceeded, ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX
from differently_core.model.record import Wire
from differently_core.model.upload import SEND_SECONDS, UPLOADS_MAX
from differently_core.operations import uploads

from ..route import Access, Call, Group, Method, NoQuery, Route


class BeginUpload(Wire):
    """What is going to be sent, and nothing else is taken. `sha256` is in hexadecimal, as `sha256sum` has it."""

    size: Annotated[int, Field(ge=1, le=FILE_BYTES_MAX)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class UploadView(Wire):
    """Where to send the bytes, with these headers and without a key: the address itself is the permission.

    It takes them until `sendBy`; until `expiresAt` they can be made a file.
    """

    id: str
    method: Literal["PUT"] = "PUT"
    url: str
    headers: dict[str, str]
    send_by: datetime
    expires_at: datetime


def begin_upload(call: Call[BeginUpload, NoQuery]) -> UploadView:
    begun = uploads.begin(call.core, call.caller, call.params["id"], call.body.size, call.body.sha256)
    upload, address = begun.upload, begun.address
    return UploadView(
        id=upload.id, url=address.url, headers=dict(address.headers), expires_at=upload.expires_at,
        send_by=upload.created_at + timedelta(seconds=SEND_SECONDS),
    )  # fmt: skip


ROUTES = (
    Route(
        Method.POST, "/v1/sandboxes/{id}/files/uploads", Group.DATA, Access.TENANT, begin_upload,
        "Begin to upload a large file", BeginUpload, NoQuery, UploadView, status=201,
        errors=(InvalidState, LimitExceeded, ProviderUnavailable),
        description="For files above 4 MiB, up to 100 MiB. Send the bytes to `url` with `headers`, in one piece and "
        "without a key (`curl --upload-file`), then `PUT …/files/content?path=…&upload=…` makes them a file. At most "
        f"{UPLOADS_MAX} uploads of one sandbox wait to be used at a time.",
    ),
)  # fmt: skip
