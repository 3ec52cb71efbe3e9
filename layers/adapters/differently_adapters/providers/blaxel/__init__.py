"""Blaxel: microVMs that fall asleep with their memory and wake on use."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
from differently_core.model.pool import Trust

from .adapter import BlaxelAdapter
from .config import BlaxelConfig

__all__ = ["REGISTRATION", "BlaxelAdapter", "BlaxelConfig"]

REGISTRATION = Registration(
    kind="blaxel",
    config=BlaxelConfig,
    trust=Trust.EXTERNAL,
    dev_only=False,
    summary="Blaxel sandboxes: microVMs at Blaxel that sleep when idle.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("api_key",)),
    verification=Verification.FAKE,
    limits=(
        "A sandbox that idles falls asleep with its memory and wakes on use; no pause can be asked for.",
        "CPU follows memory, one for each 2 GiB; disk is fixed.",
        "Blaxel ends nothing by itself: what this control plane forgets stays until somebody removes it.",
        "Stopping, snapshots and forks are not offered: Blaxel calls some of them work in progress.",
        "Ports are not exposed, and egress is not controlled.",
        "Blaxel does not tell how much room there is.",
    ),
)
