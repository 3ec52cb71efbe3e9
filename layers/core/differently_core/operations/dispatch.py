"""Dispatch: the only door out of the queue. It reads who waits, plans by fair share, and admits in batches.

One run loops until nothing more can be admitted. Several runs at once are safe: every admission is conditional on the
sandbox's version and on the counters, and what another run took is simply left out of the next round.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import NotFound, PolicyUnreadable
from ..model.attempt import AttemptState
from ..model.pool import Pool
from ..model.queue import QueueRow
from ..model.quota import Counter, Scope
from ..model.record import Key
from ..model.resources import DIMENSIONS, UNLIMITED, Size
from ..model.sandbox import Reservation, Sandbox, Status
from ..policy import egress
from ..policy.placement import CAPACITY_REASONS, Decision, place
from ..quotas.fairness import Admission, Plan, Waiting, plan
from ..runtime.ids import OrgId
from ..store.ports import ACTIONS_MAX, Absent, Action, AnyOf, Check, Committed, Delete, OneOf, Present, Put, Update
from . import backlogs, depths, moves, pressure, spending, times
from .accounts import name_of, take
from .attempts import unsettled
from .backends import rest
from .backlog import Reader
from .core import Core, system
from .ending import event_of, transfer
from .preemption import make_room
from .wishes import wish_of

log = logging.getLogger(__name__)
DISPATCH = system("dispatch")
BATCH_MAX = 25
ROWS_EACH = 3
"""Of one admission in its transaction: sandbox, event, queue row; one more where it was counted at rest until then."""
ROUNDS_MAX = 20


@dataclass(frozen=True)
class Report:
    admitted: int
    waiting: int


def dispatch(core: Core) -> Report:
    """Admit what can be admitted now; raises only for faults of the store."""
    admitted = 0
    left = 0
    reader = Reader.start(core)
    for _ in range(ROUNDS_MAX):
        queue = _Queue.read(core, reader)
        planned = queue.plan(core)
        went = _admit(core, planned.admissions)
        admitted += went
        left = len(queue.rows) - went
        if went == len(planned.admissions) < BATCH_MAX:
            _mark_waiting(core, queue, planned)
            make_room(core, queue.rows, planned.blocked)
            pressure.note(core, planned.held_up, queue.counters)
            gone = {entry.row.sandbox for entry in planned.admissions}
            depths.note(core, [row for row in queue.rows if row.sandbox not in gone], queue.more, queue.whole)
            break
    else:
        if admitted:
            core.nudges.dispatch()  # a long queue: somebody else goes on
    reader.save()
    if admitted or left:
        log.info("dispatched", extra={"admitted": admitted, "waiting": left})
    return Report(admitted, left)


@dataclass(frozen=True)
class _Queue:
    """Everything one round decides from."""

    rows: Sequence[QueueRow]
    counters: Mapping[tuple[Scope, str], Counter]
    weights: Mapping[OrgId, int]
    more: Collection[OrgId]
    """Organizations with more rows than their oldest."""
    whole: bool
    """Whether these are all the rows that there are."""

    @classmethod
    def read(cls, core: Core, reader: Reader) -> _Queue:
        rows, more = reader.oldest()
        pools = core.catalog.pools().pools
        names = {(Scope.POOL, name) for name in pools} | _tenants(rows)
        counters = _counters(core, sorted(names))
        # Without a slot left in the organization nothing behind its oldest can go either.
        extra = reader.deeper(more, [org for org in more if _has_slot(counters.get((Scope.ORG, org)))])
        counters |= _counters(core, sorted(_tenants(extra) - names))
        rows += extra
        orgs = sorted({row.org for row in rows})
        weights = {org: weight for org in orgs if (weight := _weight(core, org)) is not None}
        return cls([row for row in rows if row.org in weights], counters, weights, more, reader.whole)

    def free(self, scope: Scope) -> dict[str, Size]:
        return {name: counter.free for (kind, name), counter in self.counters.items() if kind is scope}

    def closed(self, scope: Scope) -> frozenset[str]:
        return frozenset(name for (kind, name), counter in self.counters.items() if kind is scope and counter.closed)

    def total(self) -> Size:
        """The installation: pools together; a resource that any pool leaves unbounded has no share."""
        pools = [counter.limit for (scope, _), counter in self.counters.items() if scope is Scope.POOL]
        sums = {name: sum(getattr(limit, name) for limit in pools) for name in DIMENSIONS}
        return Size(**{name: min(amount, UNLIMITED) for name, amount in sums.items()})

    def plan(self, core: Core) -> _Planned:
        now = core.clock.now()
        closed = self.closed(Scope.ORG)
        orgs = {name: Size() if name in closed else free for name, free in self.free(Scope.ORG).items()}
        by_org: dict[OrgId, list[QueueRow]] = {}
        for row in self.rows:
            if row.org in orgs and (row.not_before is None or row.not_before <= now):
                by_org.setdefault(row.org, []).append(row)
        waiting = [
            Waiting(org, self.weights[org], self.counters[Scope.ORG, org].held, orgs[org], rows)
            for org, rows in sorted(by_org.items())
        ]
        budgets = {name: left for name, row in self.counters.items() if (left := spending.left(row, now)) is not None}
        placer = _Placer(core, self.closed(Scope.POOL), budgets)
        made = plan(waiting, self._projects(), self._pools(core), self.total(), placer.choose, BATCH_MAX)
        going = {entry.row.sandbox for entry in made.admissions}
        held_up = {
            pool: [row for row in rows.values() if row.sandbox not in going] for pool, rows in placer.held_up.items()
        }
        return _Planned(made.admissions, made.blocked, held_up)

    def _pools(self, core: Core) -> dict[str, Size]:
        pools = core.catalog.pools()
        free = self.free(Scope.POOL)
        for name in filter(pools.on_trial, list(free)):
            free[name] = free[name].model_copy(update={"sandboxes": min(1, free[name].sandboxes)})
        return free

    def _projects(self) -> dict[str, Size]:
        closed = self.closed(Scope.PROJECT)
        return {name: Size() if name in closed else free for name, free in self.free(Scope.PROJECT).items()}


@dataclass(frozen=True)
class _Planned(Plan):
    """`held_up` are the rows for which more room in a pool would help, by pool."""

    held_up: Mapping[str, Sequence[QueueRow]]


class _Placer:
    """Chooses a pool for a row, with the room that the plan has left.

    What was stopped or paused goes back to the pool that keeps it, also to one that takes nothing new.
    """

    def __init__(self, core: Core, closed: Collection[str], budgets: dict[tuple[Scope, str], int]) -> None:
        """`budgets` are what counters have left to promise, where that is limited; they shrink with what is chosen."""
        self._core = core
        self._closed = closed
        self._budgets = budgets
        self._pools = core.catalog.pools()
        self._debts: dict[str, frozenset[str]] = {}
        self._now = core.clock.now()
        self.held_up: dict[str, dict[str, QueueRow]] = {}

    def choose(self, row: QueueRow, room: Mapping[str, Size]) -> tuple[str | None, str | None]:
        if row.wakes_on is not None:
            pool = row.wakes_on
            if row.size.fits_in(room.get(pool, Size())) and not self._pools.rests(pool, self._now):
                return (pool if self._affords(row, pool) else None), None
            return None, self._wait_for(row, [pool])
        try:
            decision = self.decide(row, room)
        except PolicyUnreadable:
            return None, None  # it stays where it is, and so does nobody else's work
        if decision.chosen is not None:
            return (decision.chosen if self._affords(row, decision.chosen) else None), None
        full = [pool for pool, why in decision.rejected.items() if why.reason in CAPACITY_REASONS]
        return None, self._wait_for(row, full)

    def _affords(self, row: QueueRow, pool: str) -> bool:
        """Whether its budgets have enough left, after those that were chosen before it.

        One that is to be woken may have less of its time left than is reckoned with here.
        """
        owners = [(Scope.ORG, str(row.org)), (Scope.PROJECT, str(row.project))]
        limited = [owner for owner in owners if owner in self._budgets]
        if not limited:
            return True
        cost = spending.promised(self._core.catalog.price(pool), row.size, row.ttl_seconds, self._now)
        if cost and any(self._budgets[owner] < cost for owner in limited):
            return False
        for owner in limited:
            self._budgets[owner] -= cost
        return True

    def _wait_for(self, row: QueueRow, pools: Sequence[str]) -> str | None:
        """The pool whose counter tells others to queue behind it."""
        for pool in pools:
            self.held_up.setdefault(pool, {})[row.sandbox] = row
        return min(pools, default=None)

    def decide(self, row: QueueRow, room: Mapping[str, Size]) -> Decision:
        candidates = [
            replace(entry, free=Size() if entry.pool.name in self._closed else room.get(entry.pool.name, Size()))
            for entry in self._pools.candidates(self._now)
        ]
        return place(
            wish_of(row),
            candidates,
            self._core.catalog.rules(row.org, row.project, row.classification),
            self._core.catalog.template(row.template),
            self._unsettled(row),
        )

    def _unsettled(self, row: QueueRow) -> frozenset[str]:
        """Pools that still carry a debt of this sandbox; only one that was tried before can have any."""
        if row.attempt == 0:
            return frozenset()
        if row.sandbox not in self._debts:
            self._debts[row.sandbox] = frozenset(
                entry.pool for entry in unsettled(self._core, row.sandbox) if entry.status is AttemptState.DEBT
            )
        return self._debts[row.sandbox]


def _tenants(rows: Iterable[QueueRow]) -> set[tuple[Scope, str]]:
    return {name for row in rows for name in ((Scope.ORG, str(row.org)), (Scope.PROJECT, str(row.project)))}


def _has_slot(counter: Counter | None) -> bool:
    return counter is not None and counter.closed is None and counter.free_sandboxes > 0


def _weight(core: Core, org: OrgId) -> int | None:
    """None for an organization that is gone; what is left of it in the queue must hold up nobody."""
    try:
        return core.catalog.org(org).weight
    except NotFound:
        log.error("a waiting sandbox belongs to no organization", extra={"org": org})
        return None


def _counters(core: Core, names: Sequence[tuple[Scope, str]]) -> dict[tuple[Scope, str], Counter]:
    found: dict[tuple[Scope, str], Counter] = {}
    for start in range(0, len(names), ACTIONS_MAX):
        part = names[start : start + ACTIONS_MAX]
        keys: list[tuple[type[Counter], Key]] = [(Counter, Counter.key_of(scope, name)) for scope, name in part]
        rows = zip(part, core.store.batch_get(keys), strict=True)
        found.update((name, row) for name, row in rows if isinstance(row, Counter))
    return found


def _admit(core: Core, admissions: Sequence[Admission]) -> int:
    """One transaction for the batch; what a named condition refuses is dropped and the rest goes on."""
    if not admissions:
        return 0
    sandboxes = _read_sandboxes(core, admissions)
    chosen = list(admissions)
    _drop_strays(core, [entry for entry in chosen if entry.row.sandbox not in sandboxes])
    chosen = [
        entry
        for entry in chosen
        if _is_for(core, entry, sandboxes.get(entry.row.sandbox)) and _may_be_decided(core, entry.row)
    ]
    chosen = _of_one_transaction(chosen, sandboxes)
    while chosen:
        actions, changed = _actions(core, sandboxes, chosen)
        outcome = core.store.transact(actions)
        if isinstance(outcome, Committed):
            for pool in filter(core.catalog.pools().on_trial, sorted({entry.pool for entry in chosen})):
                rest(core, pool)  # until it is known what became of the one that was sent there
            for sandbox in changed:
                core.nudges.worker(sandbox.id)
            return len(chosen)
        stopped = set(outcome.failed) | set(outcome.conflicts)
        kept = [entry for entry in chosen if not _names(entry) & stopped]
        if len(kept) == len(chosen):
            kept = chosen[:-1]
        chosen = kept
    return 0


def _of_one_transaction(entries: Sequence[Admission], sandboxes: Mapping[str, Sandbox]) -> list[Admission]:
    """As many of the first as one transaction can hold: the rows of each, and every counter that they share."""
    chosen: list[Admission] = []
    counters: set[str] = set()
    rows = 0
    for entry in entries:
        with_it = counters | _counters_of(entry)
        rows += ROWS_EACH + (sandboxes[entry.row.sandbox].meter is not None)
        if rows + len(with_it) > ACTIONS_MAX:
            break
        chosen.append(entry)
        counters = with_it
    return chosen


def _may_be_decided(core: Core, row: QueueRow) -> bool:
    """Whether its policies can still be read; what it may reach is decided from them."""
    try:
        core.catalog.rules(row.org, row.project, row.classification)
    except PolicyUnreadable:
        return row.wakes_on is not None
    return True


def _is_for(core: Core, entry: Admission, sandbox: Sandbox | None) -> bool:
    """Whether the pool was chosen for what the sandbox waits for now: it may wait for something else by now.

    One whose time is over is not woken either: its end is only not written yet.
    """
    if sandbox is None or (sandbox.move is None) != (entry.row.wakes_on is None) or times.is_over(core, sandbox):
        return False
    return sandbox.move is None or sandbox.pool == entry.pool


def _names(entry: Admission) -> set[str]:
    return {f"sandbox:{entry.row.sandbox}", f"queue:{entry.row.sandbox}", *_counters_of(entry)}


def _counters_of(entry: Admission) -> set[str]:
    row = entry.row
    shared = {name_of(Scope.ORG, row.org), name_of(Scope.PROJECT, row.project), name_of(Scope.POOL, entry.pool)}
    return shared | backlogs.names(row)


def _read_sandboxes(core: Core, admissions: Sequence[Admission]) -> dict[str, Sandbox]:
    rows = core.store.batch_get([(Sandbox, Sandbox.key_of(entry.row.sandbox)) for entry in admissions])
    return {row.id: row for row in rows if isinstance(row, Sandbox) and row.status is Status.QUEUED}


def _drop_strays(core: Core, entries: Sequence[Admission]) -> None:
    """A queue row whose sandbox is no longer queued (deleted meanwhile) must not be looked at again.

    The condition is on the sandbox: it may be back in the queue by now, under the same row.
    """
    for entry in entries:
        key = Sandbox.key_of(entry.row.sandbox)
        strayed = Check(Sandbox, key, "sandbox", (AnyOf((Absent(), OneOf("status", _NOT_QUEUED))),))
        core.store.transact([Delete(QueueRow, entry.row.key(), "queue"), strayed])


_NOT_QUEUED = tuple(sorted(frozenset(Status) - {Status.QUEUED}))


def _actions(
    core: Core, sandboxes: Mapping[str, Sandbox], chosen: Sequence[Admission]
) -> tuple[list[Action], list[Sandbox]]:
    """Three rows for each sandbox, and each shared counter once."""
    pools = core.catalog.pools().pools
    need: dict[tuple[Scope, str], Size] = {}
    cost: dict[tuple[Scope, str], int] = {}
    actions: list[Action] = []
    changed: list[Sandbox] = []
    for entry in chosen:
        before = sandboxes[entry.row.sandbox]
        if before.move is not None:
            after, (put, *ended) = transfer(core, before, moves.admitted(core, before))
        else:
            after, (put, *ended) = transfer(core, before, _placed(core, pools, before, entry.pool))
        event = event_of(core, DISPATCH, "sandbox.admit", before, after)
        changed.append(after)
        actions += [
            Put(put.record, put.when, f"sandbox:{after.id}"),
            Put(event.record, event.when, f"event:{after.id}"),
            Delete(QueueRow, entry.row.key(), f"queue:{after.id}", (Present(),)),
            *ended,
        ]
        for name in ((Scope.ORG, str(after.org)), (Scope.PROJECT, str(after.project)), (Scope.POOL, entry.pool)):
            need[name] = need.get(name, Size()) + after.size
        for name, amount in _costs(core, after, entry.pool).items():
            cost[name] = cost.get(name, 0) + amount
    new = {(Scope.POOL, entry.pool) for entry in chosen if entry.row.wakes_on is None}
    actions += [
        take(
            scope, name, amount, overtake=True, closed_too=scope is Scope.POOL and (scope, name) not in new,
            spending=spending.spending(cost.get((scope, name), 0), core.clock.now(), known=True),
        )
        for (scope, name), amount in need.items()
    ]  # fmt: skip
    actions += backlogs.leave_together(sandboxes[entry.row.sandbox] for entry in chosen)
    return actions, changed


def _costs(core: Core, sandbox: Sandbox, pool: str) -> dict[tuple[Scope, str], int]:
    """What its admission takes from budgets that there are."""
    owners = ((Scope.ORG, str(sandbox.org)), (Scope.PROJECT, str(sandbox.project)))
    taken = {owner: spending.of(core, sandbox, owner[1], pool) for owner in owners}
    return {owner: part.amount for owner, part in taken.items() if part is not None and part.amount}


def _placed(core: Core, pools: Mapping[str, Pool], sandbox: Sandbox, pool: str) -> Sandbox:
    rules = core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification)
    return sandbox.with_(
        status=Status.PROVISIONING, pool=pool, region=_region(pools, pool), reason=None,
        egress_rules=egress.of_new(sandbox.egress, rules.scopes, pool),
        reservation=Reservation(size=sandbox.size, pool=pool), rejections=(), not_before=None, backlogs=(),
        due_at=core.after(core.tuning.observe_seconds),
    )  # fmt: skip


def _region(pools: Mapping[str, Pool], name: str) -> str | None:
    """None for a pool that was removed meanwhile; its counter is gone too, which refuses the admission."""
    return pools[name].region if name in pools else None


def _mark_waiting(core: Core, queue: _Queue, planned: Plan) -> None:
    """Tell later creates who is waited for, so that nobody overtakes; clear it where nobody waits any more."""
    waiting: Tally[tuple[Scope, str]] = Tally()
    for scope, name in planned.blocked.values():
        waiting[Scope(scope), name] += 1
    for (scope, name), counter in queue.counters.items():
        count = waiting.get((scope, name), 0)
        if (counter.waiting or 0) == count or (count == 0 and not queue.whole):
            continue  # who waits for it may be among those that were not looked at
        key = Counter.key_of(scope, name)
        if count:
            core.store.transact([Update(Counter, key, "waiting", set={"waiting": count})])
        else:
            core.store.transact([Update(Counter, key, "waiting", remove=("waiting",))])
