"""Sandboxes as directories of this machine, for one developer: real commands and files, and no isolation at all."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
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
    requirements=Requirements(credential=Need.NONE, credential_fields=()),
    verification=Verification.REAL_SERVER,
    limits=(
        "A command runs as the control plane's user and sees the whole host.",
        "CPU, memory and disk are not limited.",
        "File paths lie in the sandbox's home; there is no root of its own.",
    ),
    identity=("root",),
)
