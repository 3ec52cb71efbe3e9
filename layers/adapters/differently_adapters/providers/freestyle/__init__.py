"""Freestyle: virtual machines made from snapshots, with memory kept over a pause."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
from differently_core.model.pool import Trust

from .adapter import FreestyleAdapter
from .config import FreestyleConfig

__all__ = ["REGISTRATION", "FreestyleAdapter", "FreestyleConfig"]

REGISTRATION = Registration(
    kind="freestyle",
    config=FreestyleConfig,
    trust=Trust.EXTERNAL,
    dev_only=False,
    summary="Freestyle VMs: made from a snapshot, paused with their memory, forked by snapshots.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("api_key",)),
    verification=Verification.FAKE,
    limits=(
        "A VM is made from a snapshot, which fixes its CPU, memory and disk; an image is the name of a snapshot.",
        "Output cannot be followed while a command runs, except that of a job.",
        "The environment of a sandbox lies in a file of its user, and so in its snapshots.",
        "A stop powers the VM off from inside.",
        "Snapshots keep memory and disk, whichever was asked for, and Freestyle does not tell their size.",
        "An exposed port is public to whoever knows its address.",
        "Egress is all or nothing for the whole pool.",
        "Freestyle does not tell how much room there is.",
    ),
)
