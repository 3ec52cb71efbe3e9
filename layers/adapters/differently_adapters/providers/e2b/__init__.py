"""E2B: Firecracker sandboxes made from templates, as a service or self-hosted."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from .adapter import E2bAdapter
from .config import E2bConfig

__all__ = ["REGISTRATION", "E2bAdapter", "E2bConfig"]

REGISTRATION = Registration(
    kind="e2b",
    config=E2bConfig,
    trust=None,
    dev_only=False,
    summary="E2B sandboxes: microVMs made from templates, at E2B or self-hosted.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("api_key",)),
    verification=Verification.VENDOR_SDK,
    limits=(
        "An image is the name of an E2B template; its CPU, memory and disk are fixed when the template is built.",
        "A lifetime is bounded by the plan, and no longer one can be asked for in one step.",
        "Snapshots keep memory and disk, and E2B does not tell their size.",
        "A snapshot cannot be deleted while a sandbox that was made from it runs.",
        "An exposed port is public to whoever knows its address, and the address cannot be revoked.",
        "Egress rules deny addresses and blocks, never host names, and what is allowed wins over what is denied.",
        "E2B does not tell how much room there is.",
    ),
    identity=("domain", "api_url", "sandbox_url"),
)
