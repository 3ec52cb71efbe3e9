"""Sandboxes as directories of this machine, for one developer: real commands and files, and no isolation at all."""

from __future__ import annotations

from differently_core.contract import Registration
from differently_core.model.pool import Trust

from .adapter import DevhostAdapter
from .config import DevhostConfig

__all__ = ["REGISTRATION", "DevhostAdapter", "DevhostConfig"]

REGISTRATION = Registration(
    kind="devhost",
    config=DevhostConfig,
    trust=Trust.PRIVATE,
    dev_only=True,
    summary="Directories and processes of this machine. No isolation; development only.",
)
