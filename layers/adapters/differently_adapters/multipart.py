"""Bodies of `multipart/form-data`, made while they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """`is_file`: it is told with a file name, which servers want of files and of nothing else."""

    name: str
    content: Iterable[bytes]
    is_file: bool = True


def multipart(parts: Sequence[Part], tag: str) -> tuple[str, Iterator[bytes]]:
    """The content type and the body, which is read once. `tag` cannot be guessed, so no content can hold it."""
    boundary = f"differently-{tag}"
    return f"multipart/form-data; boundary={boundary}", _body(parts, boundary)


def _body(parts: Sequence[Part], boundary: str) -> Iterator[bytes]:
    for part in parts:
        named = '; filename="file"\r\nContent-Type: application/octet-stream' if part.is_file else ""
        yield f'--{boundary}\r\nContent-Disposition: form-data; name="{part.name}"{named}\r\n\r\n'.encode()
        yield from part.content
        yield b"\r\n"
    yield f"--{boundary}--\r\n".encode()
