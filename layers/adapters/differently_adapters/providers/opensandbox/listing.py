"""A whole list out of pages over live data.

Pages are cut from the newest-first order of the moment, so a sandbox that goes while we read pulls another one over
the edge of a page that we have read already: it would be missing, and missing means lost. A pass counts only when its
pages agree with each other; otherwise passes are put together until one finds nothing that should have been there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from differently_core.errors import ProviderUnavailable

from .wire import SandboxPage, SandboxRead

PAGE_SIZE: Final = 200
PASSES_MAX: Final = 5
PAGES_MAX: Final = 1_000
ReadPage = Callable[[int], SandboxPage]


@dataclass
class _Pass:
    found: dict[str, SandboxRead] = field(default_factory=dict)
    totals: set[int] = field(default_factory=set)
    repeated: bool = False

    def add(self, page: SandboxPage) -> None:
        self.totals.add(page.pagination.total_items)
        for item in page.items:
            self.repeated = self.repeated or item.id in self.found
            self.found[item.id] = item

    @property
    def agrees(self) -> bool:
        return not self.repeated and self.totals == {len(self.found)}


def read_all(read_page: ReadPage) -> list[SandboxRead]:
    """Every item, each once. Raises `ProviderUnavailable` when no reading of the pages is whole."""
    known: dict[str, SandboxRead] = {}
    for _ in range(PASSES_MAX):
        latest = _read_pass(read_page)
        if latest.agrees:
            return list(latest.found.values())
        if known and _adds_only_newer(known, latest) and len({*known, *latest.found}) >= max(latest.totals):
            return list({**known, **latest.found}.values())
        known.update(latest.found)
    raise ProviderUnavailable("OpenSandbox's list of sandboxes did not come out whole.", settled=True)


def _read_pass(read_page: ReadPage) -> _Pass:
    latest = _Pass()
    for number in range(1, PAGES_MAX + 1):
        page = read_page(number)
        before = len(latest.found)
        latest.add(page)
        if not page.pagination.has_next_page:
            return latest
        if len(latest.found) == before:  # the same page again and again
            latest.repeated = True
            return latest
    raise ProviderUnavailable("OpenSandbox's list of sandboxes does not end.", settled=True)


def _adds_only_newer(known: dict[str, SandboxRead], latest: _Pass) -> bool:
    newest = max(item.created_at for item in known.values())
    return all(item.created_at >= newest for item in latest.found.values() if item.id not in known)
