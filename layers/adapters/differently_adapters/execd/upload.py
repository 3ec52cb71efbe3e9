"""Multipart bodies as execd wants them: for each file a part `metadata`, which must have a file name, and a part
`file`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

Upload = tuple[str, int, Iterable[bytes]]
"""Path, mode (its decimal digits are the octal ones), content."""


def multipart(uploads: Sequence[Upload], tag: str) -> tuple[str, Iterator[bytes]]:
    """The content type and the body, which is read once. `tag` cannot be guessed, so no content can hold it."""
    boundary = f"differently-{tag}"
    return f"multipart/form-data; boundary={boundary}", _body(uploads, boundary)


def _body(uploads: Sequence[Upload], boundary: str) -> Iterator[bytes]:
    for path, mode, content in uploads:
        metadata = json.dumps({"path": path, "mode": mode}).encode()
        yield _head(boundary, "metadata", "application/json") + metadata + b"\r\n"
        yield _head(boundary, "file", "application/octet-stream")
        for chunk in content:
            if chunk:
                yield chunk
        yield b"\r\n"
    yield f"--{boundary}--\r\n".encode()


def _head(boundary: str, name: str, content_type: str) -> bytes:
    disposition = f'form-data; name="{name}"; filename="{name}"'
    return f"--{boundary}\r\nContent-Disposition: {disposition}\r\nContent-Type: {content_type}\r\n\r\n".encode()
