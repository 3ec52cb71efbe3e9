"""OpenSandbox: a sandbox server over Docker or Kubernetes, with an agent (execd) inside every sandbox."""

from __future__ import annotations

from differently_core.contract import Registration

from .adapter import OpenSandboxAdapter
from .config import OpenSandboxConfig

__all__ = ["REGISTRATION", "OpenSandboxAdapter", "OpenSandboxConfig"]

REGISTRATION = Registration(
    kind="opensandbox",
    config=OpenSandboxConfig,
    trust=None,
    dev_only=False,
    summary="OpenSandbox servers on the Docker or Kubernetes runtime, your own or somebody else's.",
)
