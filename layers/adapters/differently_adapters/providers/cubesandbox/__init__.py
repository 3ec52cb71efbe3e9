"""CubeSandbox: self-hosted KVM microVMs made from templates, behind an API of E2B's shape."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from .adapter import CubeSandboxAdapter
from .config import CubeSandboxConfig

__all__ = ["REGISTRATION", "CubeSandboxAdapter", "CubeSandboxConfig"]

REGISTRATION = Registration(
    kind="cubesandbox",
    config=CubeSandboxConfig,
    trust=None,
    dev_only=False,
    summary="CubeSandbox: self-hosted KVM microVMs made from templates.",
    requirements=Requirements(credential=Need.OPTIONAL, credential_fields=("api_key",)),
    verification=Verification.FAKE,
    limits=(
        "An image is the name of a template; its CPU, memory and disk are fixed when the template is built.",
        "A create has no key at CubeSandbox: after a lost answer it is looked for, and never sent twice.",
        "CubeSandbox's own timer counts from the last use, and pauses what we forgot.",
        "Snapshots keep memory and disk, and CubeSandbox does not tell their size.",
        "Whoever reaches the proxy and knows a sandbox's id reaches every port in it.",
        "Egress rules cannot be read back, so none are set.",
        "CubeSandbox's list leaves out nodes that do not answer.",
    ),
    identity=("api_url", "proxy_url", "domain"),
)
