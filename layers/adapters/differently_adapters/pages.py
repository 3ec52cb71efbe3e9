"""A whole list out of pages that lead to each other by cursors, or an error: half a list would make sandboxes lost.

Pages are cut from live data, so an entry may move between two reads and be met twice. What is met twice is kept once,
as it was seen last. An end that never comes is told from a long list by a bound and by cursors that come back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from differently_core.errors import ProviderUnavailable

PAGES_MAX: Final = 1_000
T = TypeVar("T")


@dataclass(frozen=True)
class Page(Generic[T]):
    """`cursor` leads to the next page; None or empty on the last one."""

    items: Sequence[T]
    cursor: str | None = None


def every_item(read: Callable[[str | None], Page[T]], identity: Callable[[T], str]) -> list[T]:
    """Every entry, each once. `read` gets None for the first page and may raise, which is the end of it.

    `ProviderUnavailable` for a cursor that comes back and for a list that does not end.
    """
    found: dict[str, T] = {}
    cursor: str | None = None
    followed: set[str] = set()
    for _ in range(PAGES_MAX):
        page = read(cursor)
        found.update((identity(item), item) for item in page.items)
        cursor = page.cursor
        if not cursor:
            return list(found.values())
        if cursor in followed:
            raise ProviderUnavailable("The backend's list leads back to a page that was read already.", settled=True)
        followed.add(cursor)
    raise ProviderUnavailable(f"The backend's list does not end within {PAGES_MAX} pages.", settled=True)
