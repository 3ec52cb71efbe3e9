"""Northflank: deployment services in a project of yours, each one sandbox."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification
from differently_core.model.pool import Trust

from .adapter import NorthflankAdapter
from .config import NorthflankConfig

__all__ = ["REGISTRATION", "NorthflankAdapter", "NorthflankConfig"]

REGISTRATION = Registration(
    kind="northflank",
    config=NorthflankConfig,
    trust=Trust.EXTERNAL,
    dev_only=False,
    summary="Northflank: deployment services in a project of yours, each one sandbox.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("token",)),
    verification=Verification.FAKE,
    limits=(
        "CPU and memory come by plans, of which the pool's configuration has a table; disk is fixed for the pool.",
        "Nothing is kept over a stop: a container that Northflank starts again begins with an empty disk.",
        "Stop, start, pause and resume are not offered: scaling to none loses the disk.",
        "Snapshots are not offered: those of Northflank need one eligible pod and may not be repeated safely.",
        "Ports are not exposed: adding one deploys the service anew, which loses its disk.",
        "Egress is not controlled: Northflank's network policies belong to the account.",
        "Northflank is told no end of a service, so what this control plane forgets runs until somebody removes it.",
        "Lists cannot be filtered, so other services of the project make them longer.",
        "Northflank does not tell how much room there is.",
    ),
)
