"""A whole list out of pages that are cut by number from live data, or an error.

When something goes while the pages are read, another entry slips over the edge of a page that was read already: it
would be missing, and missing means lost. So a reading counts only when it found as many as all of its pages said that
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from differently_core.errors import ProviderUnavailable

PAGES_MAX: Final = 1_000
READINGS_MAX: Final = 5
T = TypeVar("T")
ReadPage = Callable[[int, int], tuple[Sequence[T], int]]
"""Of the page's number from 1 and the entries before it: the page's entries, and how many there are in all."""


def every_numbered(read: ReadPage[T], identity: Callable[[T], str]) -> list[T]:
    """Every entry, each once; `ProviderUnavailable` when no reading is whole."""
    for _ in range(READINGS_MAX):
        found, totals = _reading(read, identity)
        if totals == {len(found)}:
            return list(found.values())
    raise ProviderUnavailable("The backend's list did not come out whole.", settled=True)


def _reading(read: ReadPage[T], identity: Callable[[T], str]) -> tuple[dict[str, T], set[int]]:
    found: dict[str, T] = {}
    totals: set[int] = set()
    before = 0
    for number in range(1, PAGES_MAX + 1):
        items, total = read(number, before)
        totals.add(total)
        known = len(found)
        found.update((identity(item), item) for item in items)
        before += len(items)
        if before >= total or len(found) == known:
            break
    return found, totals
