"""Lists without an end in sight: pages are read as they are walked."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from .._failure import UnexpectedAnswer
from .._model import Model
from .._request import Query, request
from .transport import Transport

M = TypeVar("M", bound=Model)


def items(
    transport: Transport, path: str, kind: type[M], query: Query | None = None, at_most: int | None = None
) -> Iterator[M]:  # fmt: skip
    """Every item of every page, or the first `at_most`. A page may be empty and not the last."""
    for item in raw_items(transport, path, query, at_most):
        yield kind.from_dict(item)


def raw_items(
    transport: Transport, path: str, query: Query | None = None, at_most: int | None = None
) -> Iterator[Mapping[str, Any]]:  # fmt: skip
    cursor: str | None = None
    told = 0
    while at_most is None or told < at_most:
        page = transport.document(request("GET", path, query={**(query or {}), "cursor": cursor}))
        for item in page["items"]:
            if at_most is not None and told >= at_most:
                return
            told += 1
            yield item
        following = page.get("nextCursor")
        if following is None:
            return
        if following == cursor:
            raise UnexpectedAnswer("The list does not get on: two pages name the same next one.", 200)
        cursor = following
