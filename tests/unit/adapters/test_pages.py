"""Lists by cursors: whole, each entry once, or an error."""

from __future__ import annotations

import pytest

from differently_adapters.pages import PAGES_MAX, Page, every_item
from differently_core.errors import ProviderUnavailable


def walk(pages: dict[str | None, Page[str]]) -> list[str]:
    return every_item(pages.__getitem__, lambda item: item.partition("=")[0])


def test_pages_are_followed_to_the_end_and_an_entry_that_moved_is_kept_as_seen_last() -> None:
    pages = {None: Page(["a=1", "b=1"], "x"), "x": Page([], "y"), "y": Page(["b=2", "c=1"], "")}
    assert walk(pages) == ["a=1", "b=2", "c=1"]


def test_ten_thousand_foreign_entries_are_read_to_the_end() -> None:
    pages = {str(n) if n else None: Page([f"{n}-{m}" for m in range(100)], str(n + 1) if n < 99 else None)
             for n in range(100)}  # fmt: skip
    assert len(walk(pages)) == 10_000


@pytest.mark.parametrize("back_to", ["x", "y"])
def test_a_cursor_that_comes_back_is_an_error(back_to: str) -> None:
    with pytest.raises(ProviderUnavailable, match="leads back"):
        walk({None: Page(["a"], "x"), "x": Page(["b"], "y"), "y": Page(["c"], back_to)})


def test_a_list_without_an_end_is_an_error() -> None:
    asked: list[str | None] = []

    def read(cursor: str | None) -> Page[str]:
        asked.append(cursor)
        return Page(["a"], str(len(asked)))

    with pytest.raises(ProviderUnavailable, match="does not end"):
        every_item(read, str)
    assert len(asked) == PAGES_MAX


def test_a_page_that_does_not_come_is_the_end_of_it() -> None:
    def read(cursor: str | None) -> Page[str]:
        if cursor:
            raise ProviderUnavailable("The backend failed.")
        return Page(["a"], "x")

    with pytest.raises(ProviderUnavailable, match="failed"):
        every_item(read, str)
