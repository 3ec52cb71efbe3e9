"""The setting that lists web origins takes what browsers send, and nothing that could never match or match too much."""

from __future__ import annotations

import pytest

from differently_core.runtime.origins import ORIGINS_MAX, read_origins


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://panel.example.com",
        "http://localhost:4321 https://a.example",
        "http://[::1]:8080",
        " https://a \n",
    ],
)
def test_exact_origins_are_taken(text: str):
    """features.md 1, #52: empty by default."""
    assert read_origins(text) == frozenset(text.split())


@pytest.mark.parametrize(
    "text",
    [
        "*", "null", "https://*.example.com", "panel.example.com", "https://panel.example.com/", "ftp://a.example",
        "https://Panel.example.com", "https://a.example,https://b.example", "https://a.example:443",
        "http://a.example:80", "https://user@a.example", "https://a.example?x", "https://:1", "https://a.example:0",
    ],
)  # fmt: skip
def test_anything_else_is_refused_without_being_quoted(text: str):
    with pytest.raises(ValueError, match="origin 1 ") as refused:
        read_origins(text)
    assert text not in str(refused.value)


def test_the_list_is_bounded():
    many = " ".join(f"https://a{number}.example" for number in range(ORIGINS_MAX + 1))
    with pytest.raises(ValueError, match="at most"):
        read_origins(many)
