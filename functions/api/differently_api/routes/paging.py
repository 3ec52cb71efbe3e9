"""Lists of what operators decide: one query model, one way to go on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from differently_core.model.record import Wire
from differently_core.operations.core import Core
from differently_core.operations.cursors import seal, unseal

LIMIT_DEFAULT = 50
LIMIT_MAX = 100


class PageQuery(Wire):
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    cursor: str | None = None
    """`nextCursor` of the page before."""

    def after(self, core: Core, *bound_to: str) -> str | None:
        return position_of(core, self.cursor, *bound_to)


def position_of(core: Core, cursor: str | None, *bound_to: str) -> str | None:
    return None if cursor is None else unseal(core, bound_to, cursor)


def next_cursor(core: Core, position: str | None, *bound_to: str) -> str | None:
    return None if position is None else seal(core, bound_to, position)
