"""What a backend holds against what we believe it holds: pure, so that every case is a table row in a test.

One side is a whole list of instances, the other the unsettled attempts of the pool. The result names findings, not
actions: each is looked at again, against the store as it stands then, before anything is done about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..contract import Instance, InstanceState
from ..model.attempt import Attempt, AttemptState
from ..model.sandbox import Status
from ..runtime.ids import is_id

_EXPECTED = {
    None: InstanceState.RUNNING,
    Status.STOPPED: InstanceState.STOPPED,
    Status.PAUSED: InstanceState.PAUSED,
}


@dataclass(frozen=True)
class Strange:
    """An instance of ours that no live attempt of this pool names."""

    instance: Instance

    @property
    def name(self) -> str:
        return f"strange:{self.instance.ref}"


@dataclass(frozen=True)
class Missing:
    """A live attempt whose instance is not in the list."""

    attempt: Attempt

    @property
    def name(self) -> str:
        return f"missing:{self.attempt.sandbox}#{self.attempt.number}"


@dataclass(frozen=True)
class Changed:
    """An instance in use that is in another state than its sandbox."""

    attempt: Attempt
    instance: Instance

    @property
    def name(self) -> str:
        return f"{self.instance.state}:{self.attempt.sandbox}#{self.attempt.number}"


Finding = Strange | Missing | Changed


@dataclass(frozen=True)
class Difference:
    """`unowned` counts instances that are not provably ours; they are never touched."""

    findings: tuple[Finding, ...]
    unowned: int


def compare(
    installation: str, instances: Sequence[Instance], attempts: Iterable[Attempt], *, whole: bool
) -> Difference:
    """`whole`: the attempts are all of the pool's; otherwise an instance without one proves nothing yet."""
    ours = [
        entry for entry in instances if entry.owner.installation == installation and is_id("sbx", entry.owner.sandbox)
    ]
    by_ref = {entry.ref: entry for entry in ours}
    findings: list[Finding] = []
    named: set[str] = set()
    for attempt in attempts:
        if attempt.ref is not None:
            named.add(attempt.ref)
        if attempt.status is not AttemptState.LIVE or attempt.ref is None:
            continue
        instance = by_ref.get(attempt.ref)
        if instance is None:
            findings.append(Missing(attempt))
        elif instance.owner.sandbox != attempt.sandbox:
            findings.append(Missing(attempt))  # the backend gave the id to another one: ours is gone
        elif instance.state is not InstanceState.PENDING and instance.state is not _EXPECTED[attempt.rests]:
            findings.append(Changed(attempt, instance))
    if whole:
        findings += [Strange(entry) for entry in ours if entry.ref not in named]
    return Difference(tuple(findings), len(instances) - len(ours))
