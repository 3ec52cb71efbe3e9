"""A large file on its way to where the server has it sent: an address that is itself the permission.

So it is in no text that somebody may read later: not in errors, and not in what httpx logs of each request.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx

from ._address import is_private_way
from ._failure import UploadFailed

PIECE_BYTES = 256 * 1024
"""What is held of a file while it is hashed and sent."""
UPLOAD_BYTES_MAX = 100 * 1024 * 1024
"""What the server takes as one upload."""
WRITE_SECONDS = 900
"""So long the server may take to write an upload into the sandbox."""
LOOK_SECONDS = 2.0
Moved = Callable[[int], None]
"""Told how many bytes were moved so far."""
_CODE = re.compile(rb"<Code>([A-Za-z]{1,64})</Code>")


class SignedUrl(httpx.URL):
    """An address whose text is its host alone; it leads to where it led."""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc.decode()}/"

    def __repr__(self) -> str:
        return f"SignedUrl({str(self)!r})"


def signed_url(text: str) -> SignedUrl:
    """The address that the server gave, or an UploadFailed: files go encrypted, or to this machine."""
    try:
        url = SignedUrl(text)
    except (httpx.InvalidURL, ValueError, TypeError):
        url = None
    if url is None or url.userinfo or not is_private_way(url.scheme, url.host):
        raise UploadFailed("The server gave an address for the upload that files are not sent to.", repeats=False)
    return url


def refused(status: int, body: bytes) -> UploadFailed:
    """S3's own text may quote the signature: its code is all that is told."""
    code = _CODE.search(body)
    told = f" ({code[1].decode()})" if code else ""
    return UploadFailed(f"The upload was refused with status {status}{told}.", repeats=status >= 500)
