"""Daytona: sandboxes from images and snapshots, as a service or self-hosted."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from .adapter import DaytonaAdapter
from .config import DaytonaConfig

__all__ = ["REGISTRATION", "DaytonaAdapter", "DaytonaConfig"]

REGISTRATION = Registration(
    kind="daytona",
    config=DaytonaConfig,
    trust=None,
    dev_only=False,
    summary="Daytona sandboxes: made from images or snapshots, at Daytona or self-hosted.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("api_key",)),
    verification=Verification.VENDOR_SDK,
    limits=(
        "CPU, memory and disk are applied to sandboxes made from an image; a snapshot has its own.",
        "CPU and memory come in whole cores and whole GiB, rounded up.",
        "Pausing with memory is not offered: only some classes of Daytona's sandboxes have it.",
        "Snapshots keep the disk and not the memory.",
        "The address of an exposed port expires within a day and cannot be revoked before.",
        "Egress rules name what is allowed; nothing can be denied by name, and addresses are IPv4.",
        "A streamed command is heard of by looking again and again, so its output may come in pieces.",
        "Lists lag behind at Daytona; a sandbox is looked up by its name where that matters.",
        "Daytona does not tell how much room there is.",
    ),
    identity=("api_url", "organization_id", "target"),
)
