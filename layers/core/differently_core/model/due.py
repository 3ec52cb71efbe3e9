"""The due index: one sparse index over everything that waits or may get stuck.

It is written by the same write that makes the row wait, so no lost message, dead worker or missed deadline can leave
a row that nobody looks at. The sweep reads each shard up to now.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta

DUE_SHARDS = 4
ENDED_KEPT = timedelta(days=30)
"""How long an ended sandbox can still be read."""


def stamp(at: datetime) -> str:
    """Sortable UTC time with microseconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def due_shard(identifier: str) -> str:
    return f"DUE#{zlib.crc32(identifier.encode()) % DUE_SHARDS}"


def due_index(identifier: str, due_at: datetime | None) -> dict[str, str | int]:
    if due_at is None:
        return {}
    return {"due_pk": due_shard(identifier), "due_sk": f"{stamp(due_at)}#{identifier}"}


def purge_index(ended_at: datetime | None) -> dict[str, str | int]:
    """When the table may purge the row: housekeeping only, nothing is decided from it."""
    return {} if ended_at is None else {"purge_at": int((ended_at + ENDED_KEPT).timestamp())}
