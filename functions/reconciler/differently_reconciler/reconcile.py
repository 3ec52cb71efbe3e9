"""The reconciler: one message, one bounded pass over one pool. A pool that hangs holds up only its own message."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from differently_core.model.pool import POOL_NAME_PATTERN
from differently_core.operations import reconcile
from differently_core.operations.core import Core

log = logging.getLogger(__name__)


class Reconcile(BaseModel):
    """Reconcile one pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["reconcile"] = "reconcile"
    pool: Annotated[str, Field(pattern=POOL_NAME_PATTERN)]

    def event(self) -> dict[str, Any]:
        """As the entry point receives it."""
        return self.model_dump(mode="json")


def handle(core: Core, event: Mapping[str, Any]) -> None:
    """Raises only for faults of the store. A poison message is dropped, a pool that is gone is no work."""
    try:
        message = Reconcile.model_validate(event)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        log.error("message dropped", extra={"entry": "reconciler", "why": f"{where}: {first['type']}"})
        return
    if message.pool in core.catalog.pools().pools:
        reconcile.reconcile(core, message.pool)
