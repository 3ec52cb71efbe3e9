"""Create: decide where, then admit in one transaction, or put in the queue in another that touches nothing shared.

Quiet path: one transaction takes organization, project and pool tokens and writes sandbox, idempotency row and event.
Busy path, at a full or waited-for counter or a second conflict: rows that nobody else writes, and a message to
dispatch. A conflict is never shown to a caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import (
    BudgetExceeded,
    DifferentlyError,
    IdempotencyConflict,
    InsufficientCapacity,
    Internal,
    InvalidRequest,
    InvalidState,
    LimitExceeded,
    NoEligiblePool,
    NotFound,
    QueueFull,
    QuotaExceeded,
    Suspended,
    UnsupportedCapability,
)  # fmt: skip
from ..model.egress import EgressLimit
from ..model.idempotency import IdempotencyRow
from ..model.queue import QueueRow
from ..model.quota import Counter, Limits, Scope
from ..model.record import Record
from ..model.resources import Resources, Size
from ..model.sandbox import PoolRejection, Reason, Reservation, Sandbox, SandboxEnv, Status
from ..model.secret import BoundSecret, SandboxSecrets
from ..model.snapshot import Snapshot
from ..policy import egress
from ..policy.placement import HIDDEN_REASONS, Decision, place
from ..runtime.ids import KeyId, ProjectId, SandboxId
from ..store.ports import Absent, Action, Committed, Put, Refused
from . import backlogs, depths, retention, spending
from .accounts import name_of, take
from .core import Caller, Core
from .giving import bind
from .marks import clear_if_nobody_waits
from .metering import metered
from .requests import CreateSandbox, SandboxView
from .restoring import check_fits, check_held, hold, source_of
from .sandboxes import keyed_id
from .standing import check_admits
from .starting import with_profile
from .wishes import wish_of

IDEMPOTENCY_KEY_MAX = 255
JOIN_TRIES_MAX = 24
"""Of all that begin to wait in one bounded backlog at once, each at most some seconds late."""


@dataclass(frozen=True)
class Created:
    """`body` is the JSON of the answer: of this call, or of the first one when `replayed`."""

    sandbox: SandboxId
    body: str
    replayed: bool


@dataclass(frozen=True)
class Draft:
    """A checked request, before it is known whether it is admitted or waits. Nothing of it is stored."""

    sandbox: Sandbox
    env: dict[str, str] = field(repr=False)
    digest: str = ""
    bound: tuple[BoundSecret, ...] = field(default=(), repr=False)


def create(core: Core, caller: Caller, request: CreateSandbox, key: str | None = None) -> Created:
    """Admit or queue one sandbox; 2 round trips at most with a warm catalog, 1 when there is room.

    Raises `InvalidRequest`, `Suspended`, `LimitExceeded`, `NoEligiblePool`, `UnsupportedCapability`,
    `IdempotencyConflict`, for a snapshot also `NotFound` and `InvalidState`, and with `queueTimeoutSeconds: 0` also
    `QuotaExceeded` or `InsufficientCapacity`; `QueueFull` when the backlog is full.
    A key that names a live sandbox is answered with it, even when nothing new could be created any more.
    """
    try:
        return _create_under_a_fresh_id(core, caller, request, key)
    except _REFUSALS:
        replayed = _live(core, caller, request, key)
        if replayed is None:
            raise
        return replayed


_REFUSALS = (
    BudgetExceeded, Suspended, LimitExceeded, NoEligiblePool, UnsupportedCapability, QuotaExceeded,
    InsufficientCapacity, NotFound, InvalidState,
)  # fmt: skip


def _live(core: Core, caller: Caller, request: CreateSandbox, key: str | None) -> Created | None:
    """What the key names already; one more round trip, only for a create that would be refused."""
    if key is None:
        return None
    return named(core, _project(core, caller, request), key, request.digest())


def named(core: Core, project: ProjectId, key: str, digest: str) -> Created | None:
    """The live sandbox that a key names, if it names one; raises `IdempotencyConflict` for another request's."""
    row = core.store.get(IdempotencyRow, IdempotencyRow.key_of(keyed_id(core, project, key)))
    return replay(row, digest) if row is not None else None


class IdTaken(Exception):
    """A key names a live sandbox, so its next one has the same random bits, and in the same millisecond the same id."""


def _create_under_a_fresh_id(core: Core, caller: Caller, request: CreateSandbox, key: str | None) -> Created:
    for _ in range(core.tuning.conflict_tries_max):
        try:
            return _create(core, caller, request, key)
        except IdTaken:
            core.clock.sleep(0.001)
    raise Internal("No fresh id was found; repeat the call.")


def _create(core: Core, caller: Caller, request: CreateSandbox, key: str | None) -> Created:
    drafted = draft(core, caller, request, key)
    sandbox = drafted.sandbox
    decision = place(
        wish_of(sandbox),
        core.catalog.pools().candidates(core.clock.now()),
        core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification),
        core.catalog.template(sandbox.template),
    )
    if decision.chosen is None:
        if not decision.may_wait:
            raise impossible(decision)
        return _enqueue(core, caller, drafted, decision, None)
    outcome = _try_pools(core, caller, drafted, decision)
    if isinstance(outcome, Refused):
        check_not_closed(core, sandbox, outcome)
        spending.check(core, sandbox, decision.chosen, outcome)
    if isinstance(outcome, Refused) and is_held_up_by_nobody(core, sandbox, outcome):
        outcome = _try_pools(core, caller, drafted, decision)
    return outcome if isinstance(outcome, Created) else _enqueue(core, caller, drafted, decision, outcome)


def check_not_closed(core: Core, sandbox: Sandbox, refusal: Refused) -> None:
    """A counter that was closed since organization and project were read; raises what it was closed for."""
    rows = [row for row in refusal.failed.values() if isinstance(row, Counter) and row.scope is not Scope.POOL]
    if any(row.closed is not None for row in rows):
        core.catalog.forget()
        check_admits(core.catalog.org(sandbox.org))
        check_admits(core.catalog.project(sandbox.org, sandbox.project))


def _try_pools(core: Core, caller: Caller, draft: Draft, decision: Decision) -> Created | Refused:
    """The best pool; for a caller that does not want to wait the next ones too, as long as only pools refuse."""
    outcome: Created | Refused = Refused()
    for pool in decision.ranked if draft.sandbox.queue_timeout_seconds == 0 else decision.ranked[:1]:
        counter = name_of(Scope.POOL, pool)
        outcome = _try_quietly(core, caller, draft, _admitted(core, draft.sandbox, pool))
        if isinstance(outcome, Created):
            break
        if counter in outcome.failed and outcome.failed[counter] is None:
            core.catalog.forget_pools()  # removed since we read it
        if set(outcome.failed) != {counter}:
            break
    return outcome


def is_held_up_by_nobody(core: Core, sandbox: Sandbox, refusal: Refused) -> bool:
    """True when marks of waiting were cleared that nobody stands behind any more; only asked before a final refusal."""
    tenant, pool = _full_counters(sandbox, refusal)
    if pool is not None and pool.waiting:
        core.nudges.dispatch()  # it looks at every pool, and clears what is stale
    waiting, limit = _backlog(core, sandbox, tenant)
    final = sandbox.queue_timeout_seconds == 0 or waiting >= limit or backlogs.is_shut(core, sandbox)
    if not final or tenant is None or tenant.waiting is None:
        return False
    return clear_if_nobody_waits(core, sandbox.org, sandbox.project)


def _try_quietly(core: Core, caller: Caller, draft: Draft, admitted: Sandbox) -> Created | Refused:
    """The quiet path: two tries, the second only after a conflict; more for a caller that does not want to wait."""
    tries = 2 if draft.sandbox.queue_timeout_seconds != 0 else core.tuning.conflict_tries_max
    body = SandboxView.of(admitted).model_dump_json(by_alias=True, exclude_none=True)
    actions = _quiet_actions(core, caller, draft, admitted, body)
    refusal = Refused()
    for attempt in range(tries):
        outcome = core.store.transact(actions)
        if isinstance(outcome, Committed):
            core.nudges.worker(admitted.id)
            return Created(admitted.id, body, replayed=False)
        if "idempotency" in outcome.failed:
            return replay(outcome.failed["idempotency"], draft.digest)
        check_held(admitted, outcome)
        if "sandbox" in outcome.failed:
            raise IdTaken
        refusal = outcome
        if outcome.failed:
            break
        if attempt + 1 < tries:
            core.back_off(attempt)
    return refusal


def _quiet_actions(core: Core, caller: Caller, draft: Draft, admitted: Sandbox, body: str) -> list[Action]:
    assert admitted.pool is not None
    need = admitted.size
    return [
        *own_rows(core, caller, draft, admitted, body),
        take(Scope.ORG, admitted.org, need, spending=spending.of(core, admitted, admitted.org, admitted.pool)),
        take(
            Scope.PROJECT, admitted.project, need, spending=spending.of(core, admitted, admitted.project, admitted.pool)
        ),
        take(Scope.POOL, admitted.pool, need),
    ]


def _enqueue(core: Core, caller: Caller, draft: Draft, decision: Decision, refusal: Refused | None) -> Created:
    """The busy path: rows that are this sandbox's alone, so nothing can conflict, and places where a bound was set."""
    sandbox = draft.sandbox
    check_may_wait(core, sandbox, refusal, decision.summary())
    queued = sandbox.with_(
        status=Status.QUEUED,
        queue_deadline=core.after(patience_seconds(core, sandbox)),
        due_at=core.after(min(core.tuning.queue_look_seconds, patience_seconds(core, sandbox))),
        reason=Reason(code="waiting", source="admission", detail=_waits_for(decision, refusal), at=core.clock.now()),
        rejections=(
            *(
                PoolRejection(pool=pool, reason=why.reason)
                for pool, why in decision.rejected.items()
                if why.reason not in HIDDEN_REASONS
            ),
            *_refused_by(refusal),
        ),
    )
    queued, places = backlogs.join(core, queued)
    body = SandboxView.of(queued).model_dump_json(by_alias=True, exclude_none=True)
    row = queue_row(queued)
    actions = [*own_rows(core, caller, draft, queued, body), Put(row, (Absent(),), "queue"), *places]
    outcome = core.commit(actions, tries_max=JOIN_TRIES_MAX if places else None)
    if isinstance(outcome, Refused):
        if "idempotency" in outcome.failed:
            return replay(outcome.failed["idempotency"], draft.digest)
        backlogs.check_joined(outcome.failed)
        check_held(queued, outcome)
        raise IdTaken
    core.nudges.dispatch()
    return Created(queued.id, body, replayed=False)


def _refused_by(refusal: Refused | None) -> Iterator[PoolRejection]:
    """The pool that was chosen by an older view, and refused in the transaction."""
    rows = refusal.failed.values() if refusal is not None else ()
    for row in rows:
        if isinstance(row, Counter) and row.scope is Scope.POOL:
            yield PoolRejection(pool=row.name, reason=row.closed or "full")


def queue_row(sandbox: Sandbox) -> QueueRow:
    return QueueRow(
        sandbox=sandbox.id, org=sandbox.org, project=sandbox.project, priority=sandbox.priority, size=sandbox.size,
        template=sandbox.template, capabilities=sandbox.capabilities, allowed_pools=sandbox.allowed_pools,
        image=sandbox.image, egress=sandbox.egress, regions=sandbox.regions, preferred_pools=sandbox.preferred_pools,
        classification=sandbox.classification, attempt=sandbox.attempt,
        ttl_seconds=sandbox.ttl_seconds, wakes_on=sandbox.pool if sandbox.move is not None else None,
        backlogs=sandbox.backlogs, not_before=sandbox.not_before,
        since=sandbox.move.asked_at if sandbox.move is not None else sandbox.created_at,
    )  # fmt: skip


def own_rows(core: Core, caller: Caller, draft: Draft, sandbox: Sandbox, body: str) -> list[Action]:
    event = core.event(
        caller, "sandbox.create", sandbox.id, sandbox.org, project=sandbox.project, pool=sandbox.pool,
        after=sandbox.status.value,
    )  # fmt: skip
    actions: list[Action] = [Put(sandbox, (Absent(),), "sandbox"), Put(event, (Absent(),), "event")]
    if sandbox.idempotent:
        row = IdempotencyRow(sandbox=sandbox.id, digest=draft.digest, accepted=body)
        actions.append(Put(row, (Absent(),), "idempotency"))
    if draft.env:
        actions.append(Put(SandboxEnv(id=sandbox.id, env=draft.env), (Absent(),), "env"))
    if draft.bound:
        kept = SandboxSecrets(id=sandbox.id, project=sandbox.project, bound=draft.bound)
        actions.append(Put(kept, (Absent(),), "secrets"))
    if sandbox.from_snapshot is not None and not sandbox.awaits_snapshot:
        actions += hold(sandbox.from_snapshot, sandbox.id)
    return actions


def replay(row: Record | None, digest: str) -> Created:
    if not isinstance(row, IdempotencyRow):
        raise Internal("The idempotency row changed while it was read; repeat the call.")
    if row.digest != digest:
        raise IdempotencyConflict(
            "This Idempotency-Key already names a live sandbox that was created with another body. "
            "Use a new key, or repeat the first body.",
            sandboxId=row.sandbox,
        )
    return Created(row.sandbox, row.accepted, replayed=True)


def _admitted(core: Core, sandbox: Sandbox, pool: str) -> Sandbox:
    found = core.catalog.pool(pool)
    rules = core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification)
    admitted = sandbox.with_(
        status=Status.PROVISIONING, pool=pool, region=found.region,
        egress_rules=egress.of_new(sandbox.egress, rules.scopes, pool),
        reservation=Reservation(size=sandbox.size, pool=pool), due_at=core.after(core.tuning.observe_seconds),
    )  # fmt: skip
    return metered(sandbox, admitted, core.catalog.price(pool), core.clock.now())[0]


def draft(core: Core, caller: Caller, request: CreateSandbox, key: str | None, source: Snapshot | None = None) -> Draft:
    """`source` is what it is made from; otherwise the request names it, or nothing."""
    digest = request.digest()  # of what was sent: a profile may change between two tries
    request = with_profile(core, request, restored=source is not None or request.snapshot_id is not None)
    project = _project(core, caller, request)
    org = caller.org if caller.org is not None else core.catalog.org_of(project)
    source = source or source_of(core, project, request)
    size = _size(core, request, source)
    ttl = request.ttl_seconds or core.tuning.ttl_seconds_default
    organization, owner = core.catalog.org(org), core.catalog.project(org, project)
    idle = request.idle_timeout_seconds
    check_admits(organization)
    check_admits(owner)
    _check_limits("organization", organization.limits, size, ttl)
    _check_limits("project", owner.limits, size, ttl)
    sandbox = Sandbox(
        id=keyed_id(core, project, key) if key is not None else SandboxId(core.ids.new("sbx")),
        org=org, project=project, status=Status.QUEUED,
        template=_template(request, source), profile=request.profile,
        image=request.image or (source.image if source is not None else None),
        from_snapshot=source.id if source is not None else None, size=size, labels=dict(request.labels),
        capabilities=tuple(sorted(set(request.capabilities))),
        allowed_pools=tuple(request.placement.allowed_pools) if source is None else (source.pool,),
        regions=tuple(request.placement.regions), preferred_pools=tuple(request.placement.preferred_pools),
        egress=_egress(request, source),
        has_env=bool(request.env), priority=request.priority, ttl_seconds=ttl,
        classification=request.classification if source is None else source.classification,
        preemptible=request.preemptible, max_run_seconds=request.max_run_seconds or None,
        idle_timeout_seconds=(core.tuning.idle_timeout_seconds_default if idle is None else idle) or None,
        queue_timeout_seconds=request.queue_timeout_seconds, idempotent=key is not None,
        created_at=core.clock.now(), created_by=KeyId(caller.actor),
    )  # fmt: skip
    given, bound = bind(core, sandbox, request.secrets, source.bound if source is not None else ())
    kept = retention.of_sandbox(core, sandbox)
    return Draft(
        sandbox.with_(secrets=given, masks=bool(bound), retention_seconds=kept), dict(request.env), digest, bound
    )


def _project(core: Core, caller: Caller, request: CreateSandbox) -> ProjectId:
    named = request.project_id
    if caller.project is not None:
        if named is not None and named != caller.project:
            raise InvalidRequest("projectId is not the project of this API key; leave it out.", field="projectId")
        return caller.project
    if named is None:
        raise InvalidRequest("An operator key belongs to no project: send projectId.", field="projectId")
    return ProjectId(named)


def _template(request: CreateSandbox, source: Snapshot | None) -> str:
    """The snapshot's own, unless another one is named."""
    return request.template if source is None or "template" in request.model_fields_set else source.template


def _egress(request: CreateSandbox, source: Snapshot | None) -> EgressLimit | None:
    """What holds a copy is held to what held the original, unless it asks for something else."""
    if request.egress is not None:
        return request.egress.limit()
    return source.egress if source is not None else None


def _size(core: Core, request: CreateSandbox, source: Snapshot | None) -> Size:
    """As asked; for the rest that of the template, or of what the snapshot was taken of."""
    template = core.catalog.template(request.template)
    if template is None and (source is None or "template" in request.model_fields_set):
        raise InvalidRequest(f"There is no template {request.template!r}.", field="template")
    usual = source.size if source is not None else template
    assert usual is not None
    asked: Resources = request.resources
    size = Size(
        sandboxes=1,
        cpu_millis=usual.cpu_millis if asked.cpu is None else max(1, round(asked.cpu * 1000)),
        memory_mib=usual.memory_mib if asked.memory_mib is None else asked.memory_mib,
        disk_gib=usual.disk_gib if asked.disk_gib is None else asked.disk_gib,
    )
    if source is not None:
        check_fits(source, size)
    return size


def _check_limits(whose: str, limits: Limits, size: Size, ttl_seconds: int) -> None:
    for limit in (limits.each, limits.total):
        resource = size.exceeding(limit)
        if resource is not None:
            raise LimitExceeded(
                f"{WIRE_NAMES[resource]} {getattr(size, resource)} is over the {whose}'s limit of "
                f"{getattr(limit, resource)}; ask for less.",
                resource=WIRE_NAMES[resource], requested=getattr(size, resource), limit=getattr(limit, resource),
            )  # fmt: skip
    if ttl_seconds > limits.ttl_seconds_max:
        raise LimitExceeded(
            f"ttlSeconds {ttl_seconds} is over the {whose}'s limit of {limits.ttl_seconds_max}; ask for less.",
            resource="ttlSeconds", requested=ttl_seconds, limit=limits.ttl_seconds_max,
        )  # fmt: skip


WIRE_NAMES = {
    "sandboxes": "sandboxes", "cpu_millis": "cpuMillis", "memory_mib": "memoryMiB", "disk_gib": "diskGiB",
}  # fmt: skip


def patience_seconds(core: Core, sandbox: Sandbox) -> int:
    """How long its caller lets it wait in the queue."""
    asked = sandbox.queue_timeout_seconds
    return core.tuning.queue_timeout_seconds_default if asked is None else asked


def check_may_wait(core: Core, sandbox: Sandbox, refusal: Refused | None, otherwise: str) -> None:
    """Refuse what does not want to wait, and what would make the backlog longer than its bound.

    `otherwise` says why it has to wait where no counter does.
    """
    tenant, pool = _full_counters(sandbox, refusal)
    if sandbox.queue_timeout_seconds == 0:
        if tenant is not None:
            raise over_quota(tenant, sandbox.size)
        where = f"pool {pool.name} is full" if pool is not None else otherwise
        raise InsufficientCapacity(f"No room right now ({where}) and queueTimeoutSeconds is 0; try again shortly.")
    backlogs.check_open(core, sandbox)
    waiting, limit = _backlog(core, sandbox, tenant)
    if waiting >= limit:
        raise QueueFull(
            f"{waiting} sandboxes of this organization are waiting already, and {limit} is the most where no maxQueued "
            "is set. Repeat the call when some have started.",
            scope=Scope.ORG.value, waiting=waiting, limit=limit,
        )  # fmt: skip


def _backlog(core: Core, sandbox: Sandbox, tenant: Counter | None) -> tuple[int, int]:
    """How many of an organization without a bound of its own wait, whatever they wait for, and how many may."""
    limits = core.catalog.org(sandbox.org).limits
    if limits.backlog_max is not None:
        return 0, limits.queued_max
    marked = tenant.waiting or 0 if tenant is not None and tenant.scope is Scope.ORG else 0
    return max(marked, depths.waiting(core, sandbox.org)), limits.queued_max


def _full_counters(sandbox: Sandbox, refusal: Refused | None) -> tuple[Counter | None, Counter | None]:
    """The tenant counter and the pool counter that refused, as they stood."""
    failed = refusal.failed if refusal is not None else {}
    tenant: Counter | None = None
    pool: Counter | None = None
    for name, row in failed.items():
        if not isinstance(row, Counter):
            if row is None and name.partition(":")[0] in (Scope.ORG, Scope.PROJECT):
                raise Internal(f"The counter {name} is missing; an operator must repair it.", counter=name)
            continue
        if row.scope is Scope.POOL:
            pool = row
        elif tenant is None or row.scope is Scope.ORG:
            tenant = row
    return tenant, pool


def over_quota(counter: Counter, need: Size) -> QuotaExceeded:
    resource = need.exceeding(counter.free) or "sandboxes"
    limit, free = getattr(counter.limit, resource), getattr(counter.free, resource)
    return QuotaExceeded(
        f"The {counter.scope}'s quota of {limit} {WIRE_NAMES[resource]} is used up ({limit - free} held) and "
        "queueTimeoutSeconds is 0.",
        scope=counter.scope.value, resource=WIRE_NAMES[resource], limit=limit, held=limit - free,
    )  # fmt: skip


def _waits_for(decision: Decision, refusal: Refused | None) -> str:
    if refusal is None:
        return decision.summary()
    return ", ".join(sorted(refusal.failed)) or "others are being admitted at this moment"


def impossible(decision: Decision) -> DifferentlyError:
    """No waiting can help. Policy-refused pools are counted, not named: a tenant may not know them."""
    shown = [
        f"{pool}: {why.reason}{f' ({why.detail})' if why.detail else ''}"
        for pool, why in sorted(decision.rejected.items())
        if why.reason not in HIDDEN_REASONS
    ]
    if decision.only_capabilities:
        missing = sorted({why.detail for why in decision.rejected.values() if why.reason == "missing_capabilities"})
        return UnsupportedCapability(
            f"No permitted pool offers {'; '.join(missing)}. Ask for fewer capabilities.", pools=shown
        )
    return NoEligiblePool(f"No permitted pool can take this sandbox ({decision.summary()}).", pools=shown)


__all__ = [
    "Created", "check_may_wait", "check_not_closed", "create", "draft", "impossible", "is_held_up_by_nobody",
    "over_quota", "patience_seconds", "queue_row",
]  # fmt: skip
