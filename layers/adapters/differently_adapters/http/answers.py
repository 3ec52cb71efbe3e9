"""An answer is read with a bound on everything: its size, how far it unfolds, how deep it nests, and what it may be."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NoReturn

from pydantic import JsonValue

from differently_core.contract.nesting import nests_deeper

JSON_BYTES_MAX: Final = 4 * 1024 * 1024
JSON_DEPTH_MAX: Final = 64
"""What parses deeper than that would exhaust the stack of whoever walks it, or not, by how full the stack is."""
RATIO_MAX: Final = 100
"""A body may unfold to so many times its size, which no honest JSON reaches."""
RATIO_FROM: Final = 65_536
"""Below that many bytes the ratio says nothing."""
_PIECE: Final = 65_536


class BadAnswer(Exception):
    """An answer that cannot be used; the text is ours and quotes nothing of it."""


def within(chunks: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > bytes_max:
            raise BadAnswer(f"The backend's answer is longer than {bytes_max} bytes.")
        yield chunk


def unfolded(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The body without its content encoding."""
    match encoding.strip().lower():
        case "" | "identity":
            return iter(chunks)
        case "gzip" | "x-gzip":
            return _gunzipped(chunks)
        case _:
            raise BadAnswer("The backend's answer has a content encoding that was not asked for.")


def _gunzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    unfold = zlib.decompressobj(wbits=31)
    taken = given = 0
    try:
        for chunk in chunks:
            if unfold.eof:
                raise BadAnswer("The backend's answer goes on after its end.")
            taken += len(chunk)
            rest = chunk
            while rest and not unfold.eof:
                piece = unfold.decompress(rest, _PIECE)
                rest = unfold.unconsumed_tail
                given += len(piece)
                if given > RATIO_FROM and given > RATIO_MAX * taken:
                    raise BadAnswer("The backend's answer unfolds to far more than was sent.")
                if piece:
                    yield piece
    except zlib.error:
        raise BadAnswer("The backend's answer is damaged.") from None
    if not unfold.eof:
        raise BadAnswer("The backend's answer was cut off.")


def check_type(headers: Mapping[str, str], wanted: str) -> None:
    """Refuse a page for people where data was asked for; a type that was left out is decided by the content."""
    given = headers.get("content-type", "").partition(";")[0].strip().lower()
    if given.endswith(("html", "xml")) and wanted not in given:
        raise BadAnswer("The backend answered with a page instead of data; something stands in front of it.")


def parse_json(raw: bytes) -> JsonValue:
    """The JSON value, which must be all of the body."""
    if not raw.strip():
        raise BadAnswer("The backend's answer is empty.")
    try:
        value: JsonValue = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        raise BadAnswer("The backend's answer is not JSON.") from None
    # Fewer brackets than levels cannot nest so deep; that spares most answers the walk.
    if raw.count(b"[") + raw.count(b"{") > JSON_DEPTH_MAX and nests_deeper(value, JSON_DEPTH_MAX):
        raise BadAnswer("The backend's answer nests too deep.")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError("JSON has no NaN and no infinity")
