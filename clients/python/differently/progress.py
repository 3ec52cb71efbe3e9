"""What is told while a sandbox is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .models import QueueEntry, SandboxView

STATUSES = (
    "queued", "provisioning", "running", "pausing", "paused", "resuming", "stopping", "stopped", "starting",
    "terminating", "terminated", "failed",
)  # fmt: skip
ENDED = ("terminating", "terminated", "failed")
WORDS = {"no_room": "no pool has room", "quota": "the quota is used up", "turn": "others take turns",
         "later": "it is tried again soon", "policy_unreadable": "a policy cannot be read"}  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """Where a sandbox stands; as text, one line for people."""

    info: SandboxView
    seconds: float
    """Since the wait began."""
    queue: QueueEntry | None = None
    """Its place, while it is queued and that could be read."""

    @property
    def status(self) -> str:
        return self.info.status

    @property
    def position(self) -> int | None:
        return self.queue.position if self.queue else None

    @property
    def reasons(self) -> list[str]:
        """Why it waits, the most telling first."""
        return list(self._reasons())

    def _reasons(self) -> Iterator[str]:
        if self.queue is not None:
            told = WORDS.get(self.queue.reason, self.queue.reason)
            yield f"{told} ({self.queue.detail})" if self.queue.detail else told
        elif self.info.waiting_for:
            yield ", ".join(f"{entry.pool}: {entry.reason}" for entry in self.info.waiting_for)
        elif self.info.status_reason is not None and self.info.status != "running":
            yield self.info.status_reason.detail

    def __str__(self) -> str:
        where = f"{self.status}, place {self.position}" if self.position else self.status
        return ": ".join([where, *self.reasons])


def ended_message(info: SandboxView) -> str:
    """Why one that was waited for will not come."""
    why = f": {info.status_reason.detail} ({info.status_reason.code})" if info.status_reason else "."
    return f"{info.id} is {info.status}{why}"
