"""Lines and text out of a stream of bytes, as they come and in bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Final

LINE_BYTES_MAX: Final = 8 * 1024 * 1024


class LineTooLong(Exception):
    """A line over its bound: whoever sends that does not send lines."""


def lines(chunks: Iterable[bytes], bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """Lines without their ends (LF or CRLF), each as soon as it is whole; the rest after the last one comes as well.

    A line is cut at a byte that is no part of a longer character, so each line can be decoded by itself.
    """
    begun: list[bytes] = []
    size = 0
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            if size + len(piece) > bytes_max:
                raise LineTooLong
            yield _line(begun, piece)
            begun, size = [], 0
        if rest:
            begun.append(rest)
            size += len(rest)
            if size > bytes_max:
                raise LineTooLong
    if begun:
        yield _line(begun, b"")


def _line(begun: list[bytes], end: bytes) -> bytes:
    return (b"".join([*begun, end]) if begun else end).removesuffix(b"\r")


def text(chunks: Iterable[bytes]) -> Iterator[str]:
    """UTF-8 as it comes; a character that is split between two chunks waits for its rest, bad bytes become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        piece = decoder.decode(chunk)
        if piece:
            yield piece
    rest = decoder.decode(b"", final=True)
    if rest:
        yield rest
