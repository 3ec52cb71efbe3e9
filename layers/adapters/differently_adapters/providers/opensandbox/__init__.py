"""OpenSandbox: a sandbox server over Docker or Kubernetes, with an agent (execd) inside every sandbox."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from .adapter import OpenSandboxAdapter
from .config import OpenSandboxConfig
from .server import TESTED_VERSIONS

__all__ = ["REGISTRATION", "OpenSandboxAdapter", "OpenSandboxConfig"]

REGISTRATION = Registration(
    kind="opensandbox",
    config=OpenSandboxConfig,
    trust=None,
    dev_only=False,
    summary="OpenSandbox servers on the Docker or Kubernetes runtime, your own or somebody else's.",
    requirements=Requirements(credential=Need.OPTIONAL, credential_fields=("api_key",)),
    verification=Verification.REAL_SERVER,
    tested_versions=TESTED_VERSIONS,
    limits=(
        "A stop on the Kubernetes runtime needs the controller's snapshot registry; the Docker runtime has none.",
        "A pause on the Docker runtime keeps memory; the Kubernetes runtime has none.",
        "Snapshots keep the disk, and OpenSandbox does not tell their size.",
        "Ports are exposed on the Kubernetes runtime with a signing gateway only, and an address cannot be revoked.",
        "Egress is controlled where the pool says so and the server has the sidecar for it, in its mode dns+nft.",
        "Disk size is not passed on, and room is known only where pods come from a pool.",
        "A command's output takes room on the sandbox's disk until the command has ended.",
    ),
    identity=("api_url",),
)
