"""Large files: announced, sent to the address that the server gives for them, then made a file by one call.

The key stays with the API: what is sent to that address goes through a client of its own, without key or cookies.
"""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import httpx

from .._address import is_loopback
from .._failure import DifferentlyError, UploadFailed
from .._request import SILENCE_SECONDS, Request
from .._upload import PIECE_BYTES, Moved, SignedUrl, refused, signed_url
from ..models import UploadView
from .transport import CONNECT_SECONDS, Transport
from .waiting import pause


def announcement(source: BinaryIO) -> dict[str, object]:
    """What `POST …/files/uploads` asks for, of the whole of it."""
    digest, size = hashlib.sha256(), 0
    source.seek(0)
    while piece := source.read(PIECE_BYTES):
        digest.update(piece)
        size += len(piece)
        pause(0)
    return {"size": size, "sha256": digest.hexdigest()}


def send(transport: Transport, to: UploadView, source: BinaryIO, size: int, told: Moved) -> None:
    """Send all of it, again from its beginning after a failure that may pass. UploadFailed when it does not."""
    url = signed_url(to.url)
    as_told = Request(to.method, f"the upload {to.id}")
    attempts = 0
    with _without_key(transport, url) as http:
        while True:
            attempts += 1
            try:
                _sent(http, url, to, _pieces(source, size, told), size)
                return
            except DifferentlyError as failed:
                transport._wait_or_raise(as_told, attempts, failed)


def _sent(http: httpx.Client, url: SignedUrl, to: UploadView, pieces: Iterator[bytes], size: int) -> None:
    timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS)
    made = http.build_request(
        to.method, url, content=pieces, headers={**to.headers, "Content-Length": str(size)}, timeout=timeout
    )
    # httpx logs what it sends, and made a plain address of it.
    made.url = url
    try:
        response = http.send(made)
    except httpx.HTTPError as error:
        # httpx's own exceptions hold the request with its address, so none of them is passed on.
        why = type(error).__name__
    else:
        if 200 <= response.status_code < 300:
            return
        raise refused(response.status_code, response.content)
    raise UploadFailed(f"The upload to {url.host} broke off ({why}).", repeats=True)


def _pieces(source: BinaryIO, size: int, told: Moved) -> Iterator[bytes]:
    """Exactly the announced length, so that a file that changes is an error and never another file."""
    source.seek(0)
    moved = 0
    while piece := source.read(min(PIECE_BYTES, size - moved)):
        moved += len(piece)
        yield piece
        told(moved)
    if moved != size:
        raise UploadFailed("The file became shorter while it was sent.", repeats=False)


@contextmanager
def _without_key(transport: Transport, url: SignedUrl) -> Iterator[httpx.Client]:
    http = httpx.Client(
        follow_redirects=False,
        verify=True if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        trust_env=not is_loopback(url.host),
        transport=transport._given,
    )
    try:
        yield http
    finally:
        # One that was given belongs to whoever gave it.
        if transport._given is None:
            http.close()
