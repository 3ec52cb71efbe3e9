"""Fly Machines: microVMs of Fly.io, in an app of yours."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
from differently_core.model.pool import Trust

from .adapter import FlyAdapter
from .config import FlyConfig

__all__ = ["REGISTRATION", "FlyAdapter", "FlyConfig"]

REGISTRATION = Registration(
    kind="fly",
    config=FlyConfig,
    trust=Trust.EXTERNAL,
    dev_only=False,
    summary="Fly Machines: microVMs at Fly.io, in an app of yours.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("token",)),
    verification=Verification.FAKE,
    limits=(
        "Fly ends nothing by itself: what this control plane forgets runs until somebody removes it.",
        "CPUs are whole, memory comes in steps of 256 MiB, and disk is fixed.",
        "Memory is never kept: resuming a suspended machine may be a cold start without a word.",
        "Snapshots are not offered: Fly takes them of volumes only.",
        "Ports are not exposed: an address at Fly is an app's, not a machine's.",
        "Egress is not controlled: Fly's rules know no host names and not all ways out.",
        "A command that may take long is started as a job and looked at, so its output may come in pieces.",
        "Fly answers one command a second of a machine, so many small commands and large files are slow.",
        "Fly does not tell how much room there is.",
    ),
)
