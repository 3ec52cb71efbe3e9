"""What is kept of long output, held against the obvious way to do it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_adapters.output import Kept, keep


def naive(data: bytes, bytes_max: int) -> tuple[bytes, int]:
    if len(data) <= bytes_max:
        return data, 0
    head, tail = (bytes_max + 1) // 2, bytes_max // 2
    return data[:head] + data[len(data) - tail :], len(data) - bytes_max


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 60))
def test_kept_is_the_first_and_the_last_half(chunks: list[bytes], bytes_max: int) -> None:
    kept = Kept(bytes_max)
    for chunk in chunks:
        kept.add(chunk)
    assert kept.result() == naive(b"".join(chunks), bytes_max)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 1000])
def test_keep_is_the_same_for_output_in_memory(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    assert keep(data, 10) == naive(data, 10)
