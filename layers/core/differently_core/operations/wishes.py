"""What placement needs to know of a sandbox, from its record or from its row in the queue."""

from __future__ import annotations

from ..model.queue import QueueRow
from ..model.sandbox import Sandbox
from ..policy.placement import Wish


def wish_of(entry: Sandbox | QueueRow) -> Wish:
    return Wish(
        sandbox=entry.id if isinstance(entry, Sandbox) else entry.sandbox, size=entry.size, template=entry.template,
        capabilities=entry.capabilities, allowed_pools=entry.allowed_pools, regions=entry.regions,
        preferred_pools=entry.preferred_pools, image=entry.image, egress=entry.egress,
        ttl_seconds=entry.ttl_seconds,
    )  # fmt: skip
