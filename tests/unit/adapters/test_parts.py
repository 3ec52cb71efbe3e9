"""Content is cut into parts without loss, however it came."""

from __future__ import annotations

import pytest

from differently_adapters.parts import in_parts


@pytest.mark.parametrize(
    ("chunks", "parts"),
    [
        ([], [b""]),
        ([b""], [b""]),
        ([b"abcd"], [b"abcd"]),
        ([b"abcde"], [b"abcd", b"e"]),
        ([b"abcdefgh"], [b"abcd", b"efgh"]),
        ([b"a", b"bcdef", b"", b"ghi"], [b"abcd", b"efgh", b"i"]),
    ],
)
def test_each_part_is_full_but_the_last_one_and_nothing_is_one_empty_part(
    chunks: list[bytes], parts: list[bytes]
) -> None:
    assert list(in_parts(chunks, 4)) == parts
