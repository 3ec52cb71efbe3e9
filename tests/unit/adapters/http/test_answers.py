"""An answer is bounded in size, in how far it unfolds and in depth; a page is no data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_adapters.http.answers import RATIO_MAX, BadAnswer, check_type, parse_json, unfolded, within

MIB = 1_048_576


@given(st.binary(max_size=3_000), st.integers(1, 500))
def test_a_gzipped_body_comes_out_as_it_went_in(data: bytes, step: int) -> None:
    packed = gzip.compress(data)
    pieces = [packed[at : at + step] for at in range(0, len(packed), step)]
    assert b"".join(unfolded(pieces, "gzip")) == data


def test_a_bomb_is_stopped_early() -> None:
    bomb = gzip.compress(bytes(50 * MIB), compresslevel=9)
    assert unfolded_until_refused([bomb]) <= RATIO_MAX * len(bomb)


def test_a_bomb_in_small_pieces_is_stopped_early() -> None:
    bomb = gzip.compress(bytes(20 * MIB), compresslevel=9)
    assert unfolded_until_refused([bomb[at : at + 100] for at in range(0, len(bomb), 100)]) <= MIB


def unfolded_until_refused(pieces: list[bytes]) -> int:
    """How many bytes came out before it was refused."""
    out = 0
    try:
        for piece in unfolded(pieces, "gzip"):
            out += len(piece)
    except BadAnswer:
        return out
    raise AssertionError("it was not refused")


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"x" + data, lambda _: b"", lambda _: b"\x1f"])
def test_a_damaged_body_is_no_body(damage) -> None:
    with pytest.raises(BadAnswer):
        list(unfolded([damage(gzip.compress(b"some text"))], "gzip"))


def test_what_follows_the_end_is_refused() -> None:
    with pytest.raises(BadAnswer, match="goes on"):
        list(unfolded([gzip.compress(b"x"), b"more"], "gzip"))


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
def test_an_encoding_that_nobody_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(BadAnswer):
        list(unfolded([b"x"], encoding))


def test_a_body_is_read_no_further_than_its_bound() -> None:
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 10
            yield bytes(10)

    with pytest.raises(BadAnswer, match="longer than 25 bytes"):
        list(within(endless(), 25))
    assert read == 30


@pytest.mark.parametrize(
    "kind", ["text/html", "text/html; charset=utf-8", "application/xhtml+xml", "text/xml", "TEXT/HTML"]
)
def test_a_page_is_no_data(kind: str) -> None:
    with pytest.raises(BadAnswer, match="page"):
        check_type({"content-type": kind}, "json")


@pytest.mark.parametrize(
    "kind", ["application/json", "application/problem+json", "text/plain", "", "application/octet-stream"]
)
def test_data_is_judged_by_its_content(kind: str) -> None:
    check_type({"content-type": kind} if kind else {}, "json")


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"  \n", b"{", b'{"a": 1', b"<html>", b"{} {}", b"\xff\xfe", b'{"a": NaN}', b"[Infinity]", b"[" * 200_000,
        b'{"a":' * 200_000, b"1" * 5_000, b"nope", b"'x'",
    ],
)  # fmt: skip
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(BadAnswer):
        parse_json(raw)


def test_json_is_taken_with_a_byte_order_mark() -> None:
    assert parse_json(b"\xef\xbb\xbf" + json.dumps({"a": "é"}).encode()) == {"a": "é"}
