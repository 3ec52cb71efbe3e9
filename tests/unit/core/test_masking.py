"""Values are masked wherever output is cut, and nothing else of it changes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_core.operations.masking import PART_BYTES_MIN, Flow, Mask

SECRET = "canary-4f1d9a"
MASKED = b"*" * len(SECRET)


def flowed(mask: Mask, pieces: Sequence[bytes]) -> bytes:
    flow = Flow(mask)
    return b"".join([*(flow.feed(piece) for piece in pieces), flow.finish()])


@pytest.mark.parametrize(
    ("values", "data", "wanted"),
    [
        ([SECRET], b"a canary-4f1d9a b", b"a " + MASKED + b" b"),
        ([SECRET], b"canary-4f1d9acanary-4f1d9a", MASKED * 2),
        (["abcabc"], b"abcabcabc", b"*" * 9),
        (["aXXXXXXb", "bYYYYYYc"], b"-aXXXXXXbYYYYYYc-", b"-" + b"*" * 15 + b"-"),
        (["long-secret-one", "secret"], b"secret long-secret-one", b"****** ***************"),
        (["über-geheim"], "x über-geheim y".encode(), b"x ************ y"),
        ([], b"anything", b"anything"),
        ([""], b"anything", b"anything"),
    ],
)
def test_values_are_masked_byte_for_byte(values: list[str], data: bytes, wanted: bytes) -> None:
    assert Mask(values).whole(data) == wanted
    for size in range(1, len(data) + 1):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert flowed(Mask(values), pieces) == wanted, f"in pieces of {size}"


ALPHABET = st.sampled_from(b"abc")


@given(
    values=st.lists(st.text("abc", min_size=1, max_size=5), max_size=3),
    pieces=st.lists(st.lists(ALPHABET, max_size=6).map(bytes), max_size=8),
)
def test_a_stream_in_any_pieces_says_what_the_whole_would(values: list[str], pieces: list[bytes]) -> None:
    mask, whole = Mask(values), b"".join(pieces)
    assert flowed(mask, pieces) == mask.whole(whole)


@given(pieces=st.lists(st.binary(max_size=20), max_size=8))
def test_nothing_else_changes_and_nothing_is_lost(pieces: list[bytes]) -> None:
    assert flowed(Mask([SECRET]), pieces) == b"".join(pieces).replace(SECRET.encode(), MASKED)


def test_only_what_may_begin_a_value_waits() -> None:
    flow = Flow(Mask([SECRET]))
    assert flow.feed(b"$ ") == b"$ "
    assert flow.feed(b"can") == b""
    assert flow.feed(b"not ") == b"cannot "
    assert flow.feed(b"x canary-4") == b"x "
    assert flow.feed(b"f1d9a y") == MASKED + b" y"


def test_a_long_part_at_the_end_is_masked_and_a_short_one_is_output() -> None:
    mask = Mask([SECRET])
    assert flowed(mask, [b"x canary-4"]) == b"x " + b"*" * 8
    assert flowed(mask, [b"x can"]) == b"x can"
    assert PART_BYTES_MIN == 8


def test_what_is_left_of_a_value_at_a_dropped_middle_is_masked() -> None:
    mask = Mask([SECRET])
    assert mask.halves(b"x canary-4" + b"ry-4f1d9a y", 10) == b"x ********" + b"********* y"
    assert mask.halves(b"x can" + b"9a y", 5) == b"x can9a y"
    assert mask.halves(b"canary-4f1d9a x" + b"y", 15) == MASKED + b" xy"


def test_a_mask_does_not_show_what_it_hides() -> None:
    assert "canary" not in repr(Mask([SECRET])) + repr(Flow(Mask([SECRET])))
    assert Mask([SECRET]).text(f"no: {SECRET}!") == "no: " + "*" * len(SECRET) + "!"
