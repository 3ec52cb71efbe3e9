"""Forks: a second sandbox that starts from what the first one is now.

One transaction accepts it: a snapshot to be taken, and a sandbox that waits for it, holds it and joins the queue when
it is ready. So a fork is admitted, placed and counted like any other sandbox, stops nowhere halfway, and its snapshot
goes when the sandbox runs or has ended.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from ..errors import (
    IdempotencyConflict,
    InvalidState,
    LimitExceeded,
    NoEligiblePool,
    QuotaExceeded,
    Suspended,
    UnsupportedCapability,
    UnsupportedOperation,
)
from ..model.exec import EnvName, EnvValue
from ..model.queue import PRIORITY_MAX, PRIORITY_MIN
from ..model.record import Wire
from ..model.resources import Resources
from ..model.sandbox import Reason, Sandbox, Status
from ..model.snapshot import Snapshot, SnapshotKind, SnapshotStatus, SnapshotUse
from ..policy.placement import place
from ..store.ports import Action, Committed, Put, StoreThrottled
from . import backlogs
from .core import Caller, Core, system
from .create import (
    Created,
    Draft,
    draft,
    impossible,
    named,
    own_rows,
    patience_seconds,
    queue_row,
    replay,
)
from .ending import end, event_of, write
from .requests import (
    ENV_MAX,
    SECRETS_MAX,
    TTL_SECONDS_CEILING,
    CreateSandbox,
    Egress,
    GiveSecret,
    IdleSeconds,
    Labels,
    SandboxView,
    TtlSeconds,
    check_differ,
    env_size,
    one_each,
)
from .sandboxes import find
from .snapshots import acceptance, check_charged, drafted, unmoved
from .wishes import wish_of

FORKS = system("forks")
SNAPSHOT_RETENTION_SECONDS = 2 * 86_400
"""Longer than a fork can wait in the queue."""
_REFUSALS = (
    InvalidState, LimitExceeded, NoEligiblePool, QuotaExceeded, Suspended, UnsupportedCapability, UnsupportedOperation,
)  # fmt: skip


class ForkSandbox(Wire):
    """Body of a fork. Image, capabilities and classification are those of the sandbox; size and egress unless given.

    All else is as in a create: labels, environment, secrets and times are not taken over.
    """

    kind: SnapshotKind = SnapshotKind.DISK
    """`memory` takes running processes along, where the pool can."""
    resources: Resources = Resources()
    env: Annotated[dict[EnvName, EnvValue], Field(max_length=ENV_MAX), AfterValidator(env_size)] = {}
    secrets: Annotated[list[GiveSecret], Field(max_length=SECRETS_MAX), AfterValidator(one_each)] = []
    """Secrets of the project, as in a create. What the source wrote to its disk is there whether they are given or not.
    """
    labels: Labels = {}
    egress: Egress | None = None
    """As that of the source when left out."""
    ttl_seconds: TtlSeconds = 0
    """0 means the operator's default."""
    max_run_seconds: Annotated[int, Field(ge=0, le=TTL_SECONDS_CEILING)] | None = None
    idle_timeout_seconds: IdleSeconds | None = None
    preemptible: bool = False
    queue_timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] | None = None
    """Counted from the moment that what it starts from is captured."""
    priority: Annotated[int, Field(ge=PRIORITY_MIN, le=PRIORITY_MAX)] = 0

    @model_validator(mode="after")
    def _secrets_and_env_differ(self) -> Self:
        check_differ(self.env, self.secrets)
        return self

    def create(self, source: Sandbox) -> CreateSandbox:
        asked = self.model_dump(exclude={"kind"}, exclude_unset=True)
        return CreateSandbox.model_validate(
            {**asked, "project_id": source.project, "capabilities": list(source.capabilities)}
        )

    def digest(self, sandbox: str) -> str:
        asked = self.model_dump(mode="json", exclude_defaults=True)
        return hashlib.sha256(json.dumps(["fork", sandbox, asked], sort_keys=True).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"ForkSandbox(kind={self.kind!r}, <env withheld>)"

    __str__ = __repr__


def fork(core: Core, caller: Caller, sandbox: str, request: ForkSandbox, key: str | None = None) -> Created:
    """Accept a fork; 2 round trips with a warm catalog. Counts as use of the sandbox.

    Raises what taking a snapshot raises, and what creating a sandbox does. A key that names a live sandbox is answered
    with it, even when nothing could be forked any more.
    """
    for _ in range(core.tuning.conflict_tries_max):
        source = find(core, caller, sandbox)
        try:
            made = _accept(core, caller, source, request, key)
        except _REFUSALS as refusal:
            live = None
            if key is not None and not isinstance(refusal, IdempotencyConflict):
                live = named(core, source.project, key, request.digest(source.id))
            if live is None:
                raise
            return live
        if made is not None:
            return made
        core.clock.sleep(0.001)
    raise StoreThrottled("This sandbox is being changed by many calls right now; repeat the call in a second.")


def _accept(core: Core, caller: Caller, source: Sandbox, request: ForkSandbox, key: str | None) -> Created | None:
    """None where another try may go well."""
    snapshot = drafted(core, caller, source, request.kind, SNAPSHOT_RETENTION_SECONDS)
    started = _draft(core, caller, source, request, snapshot, key)
    child = started.sandbox
    snapshot = snapshot.with_(fork=child.id)
    _check_possible(core, child)
    body = SandboxView.of(child).model_dump_json(by_alias=True, exclude_none=True)
    rows = [replace(action, name=f"fork {action.name}") for action in own_rows(core, caller, started, child, body)]
    actions: list[Action] = [
        *acceptance(core, caller, snapshot), unmoved(core, source), *rows,
        Put(SnapshotUse(snapshot=snapshot.id, sandbox=child.id), (), "use"),
    ]  # fmt: skip
    outcome = core.commit(actions)
    if isinstance(outcome, Committed):
        core.nudges.snapshot(snapshot.id)
        return Created(child.id, body, replayed=False)
    if "fork idempotency" in outcome.failed:
        return replay(outcome.failed["fork idempotency"], started.digest)
    check_charged(core, snapshot, outcome)
    return None


def _draft(
    core: Core, caller: Caller, source: Sandbox, request: ForkSandbox, snapshot: Snapshot, key: str | None
) -> Draft:
    started = draft(core, caller, request.create(source), key, snapshot)
    now = core.clock.now()
    child = started.sandbox.with_(
        awaits_snapshot=True, forked_from=source.id, due_at=core.after(core.tuning.queue_look_seconds),
        reason=Reason(code="waiting_for_snapshot", source="admission", detail=f"of {source.id}", at=now),
    )  # fmt: skip
    return replace(started, sandbox=child, digest=request.digest(source.id))


def _check_possible(core: Core, child: Sandbox) -> None:
    """What no waiting could make possible is refused before anything is captured."""
    decision = place(
        wish_of(child), core.catalog.pools().candidates(core.clock.now()),
        core.catalog.rules(child.org, child.project, child.classification), core.catalog.template(child.template),
    )  # fmt: skip
    if decision.chosen is None and not decision.may_wait:
        raise impossible(decision)


def look(core: Core, child: Sandbox) -> None:
    """A step of a fork that waits: into the queue when its snapshot is ready, and to its end when it will not be."""
    assert child.from_snapshot is not None
    snapshot = core.store.get(Snapshot, Snapshot.key_of(child.from_snapshot))
    if snapshot is not None and snapshot.ready_at is not None and snapshot.status is not SnapshotStatus.BROKEN:
        _join(core, child)
    elif snapshot is not None and snapshot.status is SnapshotStatus.CREATING:
        if child.due_at is not None and core.clock.now() >= child.due_at:
            core.commit([write(child, child.with_(due_at=core.after(core.tuning.queue_look_seconds)))[1]])
            core.nudges.snapshot(snapshot.id)
    else:
        why = snapshot.reason if snapshot is not None else None
        detail = f"{why.code}: {why.detail}" if why is not None else "its snapshot is gone"
        reason = Reason(code="snapshot_failed", source="backend", detail=detail, at=core.clock.now())
        if isinstance(end(core, FORKS, child, Status.FAILED, reason), Committed):
            core.nudges.snapshot(child.from_snapshot)


def _join(core: Core, child: Sandbox) -> None:
    patience = patience_seconds(core, child)
    waiting = child.with_(
        awaits_snapshot=False, queue_deadline=core.after(patience),
        due_at=core.after(min(core.tuning.queue_look_seconds, patience)),
        reason=Reason(code="waiting", source="admission", detail="its snapshot is ready", at=core.clock.now()),
    )  # fmt: skip
    waiting, places = backlogs.join(core, waiting, at_any_rate=True)
    changed, put = write(child, waiting)
    event = event_of(core, FORKS, "sandbox.queue", child, changed)
    if isinstance(core.commit([put, Put(queue_row(changed), (), "queue"), *places, event]), Committed):
        core.nudges.dispatch()
