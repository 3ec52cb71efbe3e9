"""Vercel Sandbox: microVMs of Vercel's, kept under a name from one boot to the next."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
from differently_core.model.pool import Trust

from .adapter import VercelAdapter
from .config import VercelConfig

__all__ = ["REGISTRATION", "VercelAdapter", "VercelConfig"]

REGISTRATION = Registration(
    kind="vercel",
    config=VercelConfig,
    trust=Trust.EXTERNAL,
    dev_only=False,
    summary="Vercel Sandbox: microVMs at Vercel.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("token",)),
    verification=Verification.FAKE,
    limits=(
        "CPU comes in whole vCPUs with 2 GiB of memory each; disk is fixed.",
        "A running sandbox is stopped by Vercel at the plan's longest session, with its disk kept.",
        "Memory is never kept: there is a stop and no pause.",
        "Snapshots are not offered, because Vercel keeps nothing on them that says whose they are.",
        "Only ports that the pool names can be exposed, and then they are public for as long as the sandbox runs.",
        "Vercel does not tell how much room there is.",
    ),
)
