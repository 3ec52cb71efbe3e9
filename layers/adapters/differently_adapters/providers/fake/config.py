"""What a fake pool is told, and the backends that pools of one process share."""

from __future__ import annotations

import threading
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from differently_core.contract import AdapterContext
from differently_core.model.resources import Size

from .backend import FakeBackend


class FakeConfig(BaseModel):
    """`backend` names the backend that adapters of one process share; by default each pool has its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Pools of one process that name the same one share it."""
    idempotent_create: bool = True
    """A create that is repeated gives the first instance."""
    settles_seconds: Annotated[float, Field(ge=0, le=3600)] = 60.0
    """How late an instance may turn up after a create without an answer."""
    sandboxes: Annotated[int, Field(ge=0)] | None = None
    """Room for so many sandboxes; unbounded when absent."""


_shared: dict[tuple[str, str], FakeBackend] = {}
_shared_lock = threading.Lock()


def shared_backend(context: AdapterContext, config: FakeConfig) -> FakeBackend:
    key = (context.installation, config.backend or f"pool {context.pool}")
    with _shared_lock:
        if key not in _shared:
            room = None
            if config.sandboxes is not None:
                room = Size.unlimited().model_copy(update={"sandboxes": config.sandboxes})
            _shared[key] = FakeBackend(
                context.clock, idempotent_create=config.idempotent_create,
                settles_seconds=config.settles_seconds, room=room,
            )  # fmt: skip
        return _shared[key]
