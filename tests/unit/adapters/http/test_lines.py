"""Lines and characters out of pieces that are cut anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_adapters.http import LineTooLong, lines, text


def cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    places = sorted({min(place, len(data)) for place in at})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: not {10, 13} & set(line)), max_size=8),
    st.lists(st.integers(0, 200)),
)
def test_lines_do_not_depend_on_where_the_pieces_end(wanted: list[bytes], at: list[int]) -> None:
    for end in (b"\n", b"\r\n"):
        whole = b"".join(line + end for line in wanted)
        assert list(lines(cut(whole, at))) == wanted


def test_the_rest_after_the_last_line_comes_as_well() -> None:
    assert list(lines([b"one\ntw", b"o"])) == [b"one", b"two"]


def test_a_line_comes_as_soon_as_it_is_whole() -> None:
    def endless() -> Iterator[bytes]:
        yield b"first\nsec"
        raise AssertionError("read further than needed")

    assert next(lines(endless())) == b"first"


@pytest.mark.parametrize("pieces", [[b"x" * 11], [b"x" * 6, b"x" * 6], [b"ok\n", b"x" * 11 + b"\n"]])
def test_a_line_over_its_bound_is_refused_while_it_comes(pieces: list[bytes]) -> None:
    with pytest.raises(LineTooLong):
        list(lines(pieces, 10))


def test_a_line_at_its_bound_is_a_line() -> None:
    assert list(lines([b"x" * 5, b"x" * 5 + b"\n"], 10)) == [b"x" * 10]


@given(st.text(), st.lists(st.integers(0, 200)))
def test_characters_do_not_depend_on_where_the_pieces_end(wanted: str, at: list[int]) -> None:
    assert "".join(text(cut(wanted.encode(), at))) == wanted


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert "".join(text([b"a\xff", b"\xc3"])) == "a\ufffd\ufffd"
