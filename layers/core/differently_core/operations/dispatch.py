"""Dispatch: the only door out of the queue. It reads who waits, plans by fair share, and admits in batches.

One run loops until nothing more can be admitted. Several runs at once are safe: every admission is conditional on the
sandbox's version and on the counters, and what another run took is simply left out of the next round.
"""

from __future__ import annotations

import logging
from collections import Counter as Tally
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import PolicyUnreadable
from ..model.attempt import AttemptState
from ..model.pool import Pool
from ..model.queue import QUEUE_SHARDS, QueueRow
from ..model.quota import Counter, Scope
from ..model.record import Key, Table
from ..model.resources import DIMENSIONS, UNLIMITED, Size
from ..model.sandbox import Reservation, Sandbox, Status
from ..policy import egress
from ..policy.placement import Candidate, Decision, place
from ..quotas.fairness import Admission, Plan, Waiting, plan
from ..store.ports import ACTIONS_MAX, Absent, Action, AnyOf, Check, Committed, Delete, OneOf, Present, Put, Update
from . import moves
from .accounts import name_of, take
from .attempts import unsettled
from .core import Core, system
from .ending import event_of, write
from .preemption import make_room
from .wishes import wish_of

log = logging.getLogger(__name__)
DISPATCH = system("dispatch")
BATCH_MAX = 25
ORGS_MAX = 200
"""Organizations looked at in one round; the others come in the next run."""
ROWS_MAX = 50
"""Oldest rows of each organization that one round looks at."""
ROUNDS_MAX = 20


@dataclass(frozen=True)
class Report:
    admitted: int
    waiting: int


def dispatch(core: Core) -> Report:
    """Admit what can be admitted now; raises only for faults of the store."""
    admitted = 0
    left = 0
    for _ in range(ROUNDS_MAX):
        queue = _Queue.read(core)
        planned = queue.plan(core)
        went = _admit(core, planned.admissions)
        admitted += went
        left = len(queue.rows) - went
        if went == len(planned.admissions) < BATCH_MAX:
            _mark_waiting(core, queue, planned)
            make_room(core, queue.rows, planned.blocked)
            break
    else:
        if admitted:
            core.nudges.dispatch()  # a long queue: somebody else goes on
    if admitted or left:
        log.info("dispatched", extra={"admitted": admitted, "waiting": left})
    return Report(admitted, left)


@dataclass(frozen=True)
class _Queue:
    """Everything one round decides from."""

    rows: Sequence[QueueRow]
    counters: Mapping[tuple[Scope, str], Counter]
    weights: Mapping[str, int]

    @classmethod
    def read(cls, core: Core) -> _Queue:
        rows = list(_waiting_rows(core))
        pools = core.catalog.pools().pools
        names = {(Scope.POOL, name) for name in pools}
        for row in rows:
            names |= {(Scope.ORG, str(row.org)), (Scope.PROJECT, str(row.project))}
        return cls(rows, _counters(core, sorted(names)), {row.org: core.catalog.org(row.org).weight for row in rows})

    def free(self, scope: Scope) -> dict[str, Size]:
        return {name: counter.free for (kind, name), counter in self.counters.items() if kind is scope}

    def closed(self, scope: Scope) -> frozenset[str]:
        return frozenset(name for (kind, name), counter in self.counters.items() if kind is scope and counter.closed)

    def total(self) -> Size:
        """The installation: pools together; a resource that any pool leaves unbounded has no share."""
        pools = [counter.limit for (scope, _), counter in self.counters.items() if scope is Scope.POOL]
        sums = {name: sum(getattr(limit, name) for limit in pools) for name in DIMENSIONS}
        return Size(**{name: min(amount, UNLIMITED) for name, amount in sums.items()})

    def plan(self, core: Core) -> Plan:
        now = core.clock.now()
        closed = self.closed(Scope.ORG)
        orgs = {name: Size() if name in closed else free for name, free in self.free(Scope.ORG).items()}
        by_org: dict[str, list[QueueRow]] = {}
        for row in self.rows:
            if row.org in orgs and (row.not_before is None or row.not_before <= now):
                by_org.setdefault(row.org, []).append(row)
        waiting = [
            Waiting(org, self.weights[org], self.counters[Scope.ORG, org].held, orgs[org], rows)
            for org, rows in sorted(by_org.items())
        ]
        placer = _Placer(core, self.closed(Scope.POOL))
        return plan(waiting, self._projects(), self.free(Scope.POOL), self.total(), placer.choose, BATCH_MAX)

    def _projects(self) -> dict[str, Size]:
        closed = self.closed(Scope.PROJECT)
        return {name: Size() if name in closed else free for name, free in self.free(Scope.PROJECT).items()}


class _Placer:
    """Chooses a pool for a row, with the room that the plan has left.

    What was stopped or paused goes back to the pool that keeps it, also to one that takes nothing new.
    """

    def __init__(self, core: Core, closed: Collection[str]) -> None:
        self._core = core
        self._closed = closed
        self._pools = core.catalog.pools()
        self._debts: dict[str, frozenset[str]] = {}

    def choose(self, row: QueueRow, room: Mapping[str, Size]) -> tuple[str | None, str | None]:
        if row.wakes_on is not None:
            fits = row.size.fits_in(room.get(row.wakes_on, Size()))
            return (row.wakes_on, None) if fits else (None, row.wakes_on)
        try:
            decision = self.decide(row, room)
        except PolicyUnreadable:
            return None, None  # it stays where it is, and so does nobody else's work
        if decision.chosen is not None:
            return decision.chosen, None
        full = [pool for pool, why in decision.rejected.items() if why.reason == "full"]
        return None, min(full) if full else None

    def decide(self, row: QueueRow, room: Mapping[str, Size]) -> Decision:
        candidates = [
            Candidate(pool, self._pools.views.get(name), Size() if name in self._closed else room.get(name, Size()))
            for name, pool in self._pools.pools.items()
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


def _waiting_rows(core: Core) -> Iterable[QueueRow]:
    """The oldest rows of each waiting organization, found by hopping from one organization to the next."""
    orgs = 0
    for shard in range(QUEUE_SHARDS):
        after: str | None = None
        while orgs < ORGS_MAX:
            page = core.store.query(Table.STATE, f"QUEUE#{shard}", after=after, limit=ROWS_MAX)
            rows = [row for row in page.rows if isinstance(row, QueueRow)]
            if not rows:
                break
            tally: Tally[str] = Tally()
            for row in rows:
                tally[row.org] += 1
                yield row
            orgs += len(tally)
            if page.next is None:
                break
            # Past the last organization of this page when it has filled its share, else right behind the page.
            last = rows[-1].org
            after = f"{last}#~" if tally[last] >= ROWS_MAX else page.next


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
        if _is_for(entry, sandboxes.get(entry.row.sandbox)) and _may_be_decided(core, entry.row)
    ]
    while chosen:
        actions, changed = _actions(core, sandboxes, chosen)
        outcome = core.store.transact(actions)
        if isinstance(outcome, Committed):
            for sandbox in changed:
                core.nudges.worker(sandbox.id)
            return len(chosen)
        stopped = set(outcome.failed) | set(outcome.conflicts)
        kept = [entry for entry in chosen if not _names(entry) & stopped]
        if len(kept) == len(chosen):
            kept = chosen[:-1]
        chosen = kept
    return 0


def _may_be_decided(core: Core, row: QueueRow) -> bool:
    """Whether its policies can still be read; what it may reach is decided from them."""
    try:
        core.catalog.rules(row.org, row.project, row.classification)
    except PolicyUnreadable:
        return row.wakes_on is not None
    return True


def _is_for(entry: Admission, sandbox: Sandbox | None) -> bool:
    """Whether the pool was chosen for what the sandbox waits for now: it may wait for something else by now."""
    if sandbox is None or (sandbox.move is None) != (entry.row.wakes_on is None):
        return False
    return sandbox.move is None or sandbox.pool == entry.pool


def _names(entry: Admission) -> set[str]:
    row = entry.row
    return {
        f"sandbox:{row.sandbox}", f"queue:{row.sandbox}", name_of(Scope.ORG, row.org),
        name_of(Scope.PROJECT, row.project), name_of(Scope.POOL, entry.pool),
    }  # fmt: skip


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
    actions: list[Action] = []
    changed: list[Sandbox] = []
    for entry in chosen:
        before = sandboxes[entry.row.sandbox]
        if before.move is not None:
            after, put = write(before, moves.admitted(core, before))
        else:
            after, put = write(before, _placed(core, pools, before, entry.pool))
        event = event_of(core, DISPATCH, "sandbox.admit", before, after)
        changed.append(after)
        actions += [
            Put(put.record, put.when, f"sandbox:{after.id}"),
            Put(event.record, event.when, f"event:{after.id}"),
            Delete(QueueRow, entry.row.key(), f"queue:{after.id}", (Present(),)),
        ]
        for name in ((Scope.ORG, str(after.org)), (Scope.PROJECT, str(after.project)), (Scope.POOL, entry.pool)):
            need[name] = need.get(name, Size()) + after.size
    new = {(Scope.POOL, entry.pool) for entry in chosen if entry.row.wakes_on is None}
    actions += [
        take(scope, name, amount, overtake=True, closed_too=scope is Scope.POOL and (scope, name) not in new)
        for (scope, name), amount in need.items()
    ]
    return actions, changed


def _placed(core: Core, pools: Mapping[str, Pool], sandbox: Sandbox, pool: str) -> Sandbox:
    rules = core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification)
    return sandbox.with_(
        status=Status.PROVISIONING, pool=pool, region=_region(pools, pool), reason=None,
        egress_rules=egress.of_new(sandbox.egress, rules.scopes, pool),
        reservation=Reservation(size=sandbox.size, pool=pool), rejections=(), not_before=None,
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
        if (counter.waiting or 0) == count:
            continue
        key = Counter.key_of(scope, name)
        if count:
            core.store.transact([Update(Counter, key, "waiting", set={"waiting": count})])
        else:
            core.store.transact([Update(Counter, key, "waiting", remove=("waiting",))])
