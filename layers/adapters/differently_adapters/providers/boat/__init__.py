"""Boat: whole machines for agents, kept as an archive of their disk while they are stopped."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
from differently_core.model.pool import Trust

from .adapter import BoatAdapter
from .config import BoatConfig

__all__ = ["REGISTRATION", "BoatAdapter", "BoatConfig"]

REGISTRATION = Registration(
    kind="boat",
    config=BoatConfig,
    trust=Trust.EXTERNAL,
    dev_only=False,
    summary="Boat machines: commands, files, stop with the disk archived, snapshots of the disk and forks.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("api_key",)),
    verification=Verification.FAKE,
    limits=(
        "A machine has one of four sizes, which the pool chooses; an image is the name of a saved snapshot.",
        "Whose a machine is stands in its name alone: one that is renamed at Boat is no longer ours.",
        "A time to live ends in a stop, not in a deletion; the archive of a stopped machine is kept for 14 days.",
        "An environment has at most 100 variables and 64 KB, and cannot set the names that Boat reserves.",
        "Ports are not offered, because Boat cannot close one again.",
        "Egress is open and cannot be restricted.",
    ),
)
