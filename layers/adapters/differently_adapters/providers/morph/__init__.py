"""Morph Cloud: instances started from snapshots, which keep memory and disk."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
from differently_core.model.pool import Trust

from .adapter import MorphAdapter
from .config import MorphConfig

__all__ = ["REGISTRATION", "MorphAdapter", "MorphConfig"]

REGISTRATION = Registration(
    kind="morph",
    config=MorphConfig,
    trust=Trust.EXTERNAL,
    dev_only=False,
    summary="Morph Cloud instances: started from a snapshot, paused with their memory.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("api_key",)),
    verification=Verification.FAKE,
    limits=(
        "A create is not idempotent at Morph; one that turns up late is found by its metadata.",
        "An instance is started from a snapshot, which fixes its CPU, memory and disk; an image is a snapshot's id.",
        "The environment of a sandbox lies in a file of its user, and so in its snapshots.",
        "Files travel through commands.",
        "Snapshots keep memory and disk, whichever was asked for, and Morph does not tell their size.",
        "An exposed port is public to whoever knows its address, unless Morph is asked to want its own key.",
        "Egress is not controlled.",
        "Morph does not tell how much room there is.",
    ),
)
