"""What a create would meet, told pool by pool. Reads, decides as a create does, and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from ..errors import DifferentlyError, InsufficientCapacity
from ..model.pool import Trust
from ..model.quota import Counter, Scope
from ..model.record import Key, Wire
from ..model.resources import Size
from ..model.sandbox import Sandbox
from ..policy.placement import HIDDEN_REASONS, HINTS, Candidate, Decision, Permanence, Wish, hourly_cost, place
from ..store.ports import ACTIONS_MAX
from .core import Caller, Core
from .create import WIRE_NAMES, draft, impossible, over_quota
from .requests import CreateSandbox
from .wishes import wish_of


class Verdict(StrEnum):
    PLACE = "place"
    """It would start in `pool`."""
    WAIT = "wait"
    """It would be queued."""
    REJECT = "reject"
    """It would be refused with `error`."""


class PlacementCandidate(Wire):
    pool: str
    eligible: bool
    rank: int | None = None
    """Among the eligible ones, 1 is the best."""
    trust: Trust
    region: str | None = None
    hourly_cost: float
    """An estimate from the pool's own prices, in the operator's currency."""
    reason: str | None = None
    """Why not; absent for an eligible one."""
    permanence: Permanence | None = None
    """`not_now` passes by itself, `never` does not."""
    detail: str | None = None
    """What was missing, or how much."""
    hint: str | None = None
    """What could change it."""


class ExplainedError(Wire):
    code: str
    message: str


class Blocker(Wire):
    """A counter that does not let it in now."""

    scope: Scope
    reason: str
    """`full`, `closed`, or `others_wait`: nobody overtakes. Of pools why none takes it now, such as `draining`."""
    resource: str | None = None
    """Which is used up, for `full`."""


class PlacementExplanation(Wire):
    decision: Verdict
    pool: str | None = None
    summary: str
    """One line: `1/3 pools: 1 draining, 1 full`."""
    error: ExplainedError | None = None
    waits_for: list[Blocker] = []
    candidates: list[PlacementCandidate]
    """The best first, then those that refuse."""
    refused_by_policy: int | None = None
    """Pools that are not for this project: they are counted, not named. Absent for operators, who see them all."""


def explain(core: Core, caller: Caller, request: CreateSandbox) -> PlacementExplanation:
    """One round trip with a warm catalog, for the counters.

    Raises what a create raises for a body that no pool is to blame for (`InvalidRequest`, `LimitExceeded`), and
    `PolicyUnreadable`.
    """
    sandbox = draft(core, caller, request, None).sandbox
    wish = wish_of(sandbox)
    rules = core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification)
    counters = _counters(core, sandbox)
    candidates = [
        replace(entry, free=_free(counters.get((Scope.POOL, entry.pool.name))))
        for entry in core.catalog.pools().candidates(core.clock.now())
    ]
    decision = place(wish, candidates, rules, core.catalog.template(sandbox.template))
    pool, blockers = _best(sandbox, decision, counters)
    error = _error(sandbox, decision, counters, blockers)
    verdict = Verdict.REJECT if error is not None else Verdict.PLACE if not blockers else Verdict.WAIT
    hidden = {name for name, why in decision.rejected.items() if why.reason in HIDDEN_REASONS}
    shown = _shown(wish, candidates, decision)
    return PlacementExplanation(
        decision=verdict, pool=pool if verdict is Verdict.PLACE else None, summary=decision.summary(),
        error=ExplainedError(code=error.reaction.public, message=error.message) if error is not None else None,
        waits_for=blockers if verdict is Verdict.WAIT else [],
        candidates=shown if caller.operator else [entry for entry in shown if entry.pool not in hidden],
        refused_by_policy=None if caller.operator else len(hidden),
    )  # fmt: skip


Counters = Mapping[tuple[Scope, str], Counter]


def _counters(core: Core, sandbox: Sandbox) -> Counters:
    names = [(Scope.ORG, str(sandbox.org)), (Scope.PROJECT, str(sandbox.project))]
    names += [(Scope.POOL, name) for name in core.catalog.pools().pools]
    found: dict[tuple[Scope, str], Counter] = {}
    for start in range(0, len(names), ACTIONS_MAX):
        keys: list[tuple[type[Counter], Key]] = [
            (Counter, Counter.key_of(scope, name)) for scope, name in names[start : start + ACTIONS_MAX]
        ]
        rows = core.store.batch_get(keys)
        found.update({(row.scope, row.name): row for row in rows if isinstance(row, Counter)})
    return found


def _free(counter: Counter | None) -> Size:
    return counter.free if counter is not None and counter.closed is None else Size()


def _best(sandbox: Sandbox, decision: Decision, counters: Counters) -> tuple[str | None, list[Blocker]]:
    """The pool that would be taken now, or what stands in the way; nobody overtakes those who wait for a counter."""
    tenant = [
        blocker
        for scope, name in ((Scope.ORG, sandbox.org), (Scope.PROJECT, sandbox.project))
        if (blocker := _blocker(scope, counters.get((scope, name)), sandbox.size)) is not None
    ]
    open_pools = [pool for pool in decision.ranked if counters[Scope.POOL, pool].waiting is None]
    if open_pools and not tenant:
        return open_pools[0], []
    if decision.ranked and not open_pools:
        return None, [*tenant, Blocker(scope=Scope.POOL, reason="others_wait")]
    return None, [*tenant, *_in_the_way_of_pools(decision)]


def _in_the_way_of_pools(decision: Decision) -> list[Blocker]:
    """Each reason once that may pass by itself; what never will is not waited for."""
    reasons = {why.reason for why in decision.rejected.values() if why.permanence is Permanence.NOT_NOW}
    return [Blocker(scope=Scope.POOL, reason=reason) for reason in sorted(reasons)]


def _blocker(scope: Scope, counter: Counter | None, need: Size) -> Blocker | None:
    if counter is None or counter.closed is not None:
        return Blocker(scope=scope, reason="closed")
    resource = need.exceeding(counter.free)
    if resource is not None:
        return Blocker(scope=scope, reason="full", resource=WIRE_NAMES[resource])
    return Blocker(scope=scope, reason="others_wait") if counter.waiting is not None else None


def _error(
    sandbox: Sandbox, decision: Decision, counters: Counters, blockers: list[Blocker]
) -> DifferentlyError | None:  # fmt: skip
    """What a create would be refused with."""
    if decision.chosen is None and not decision.may_wait:
        return impossible(decision)
    if not blockers or sandbox.queue_timeout_seconds != 0:
        return None
    for scope, name in ((Scope.ORG, sandbox.org), (Scope.PROJECT, sandbox.project)):
        counter = counters.get((scope, name))
        if counter is not None and _blocker(scope, counter, sandbox.size) is not None:
            return over_quota(counter, sandbox.size)
    return InsufficientCapacity(f"No room right now ({decision.summary()}) and queueTimeoutSeconds is 0.")


def _shown(wish: Wish, candidates: list[Candidate], decision: Decision) -> list[PlacementCandidate]:
    by_name = {candidate.pool.name: candidate.pool for candidate in candidates}
    order = [*decision.ranked, *sorted(decision.rejected)]
    shown = []
    for number, name in enumerate(order, start=1):
        pool, why = by_name[name], decision.rejected.get(name)
        shown.append(
            PlacementCandidate(
                pool=name, eligible=why is None, rank=number if why is None else None, trust=pool.trust,
                region=pool.region, hourly_cost=hourly_cost(wish, pool), reason=why.reason if why else None,
                permanence=why.permanence if why else None, detail=why.detail or None if why else None,
                hint=HINTS[why.reason] if why else None,
            )
        )  # fmt: skip
    return shown
