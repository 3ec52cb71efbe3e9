"""The attempts of one sandbox, as they stand in the store now."""

from __future__ import annotations

from ..model.attempt import Attempt, AttemptState
from ..model.record import Table
from ..model.sandbox import Sandbox
from ..runtime.ids import SandboxId
from .core import Core


def newest(core: Core, sandbox: Sandbox) -> Attempt | None:
    """The only one that can be in the middle of a call or in use; older ones are debts or settled."""
    if sandbox.attempt == 0:
        return None
    return core.store.get(Attempt, Attempt.key_of(sandbox.id, sandbox.attempt))


def unsettled(core: Core, sandbox: SandboxId) -> list[Attempt]:
    """Every attempt that may have an instance, oldest first.

    One round trip for each 200 attempts that there ever were: a sandbox that found its pools full for an hour has more.
    """
    found: list[Attempt] = []
    after: str | None = None
    while True:
        page = core.store.query(Table.STATE, f"SBX#{sandbox}", prefix="ATTEMPT#", after=after)
        attempts = (row for row in page.rows if isinstance(row, Attempt))
        found += [attempt for attempt in attempts if attempt.status is not AttemptState.SETTLED]
        if page.next is None:
            return found
        after = page.next
