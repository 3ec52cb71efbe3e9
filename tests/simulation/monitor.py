"""What must hold at every moment, looked at after every write and before every delete at a backend.

The monitor keeps a copy of every row as it was last written. So a write is judged by what it changed, and the sums that
counters must equal are kept up to date instead of being added up anew; `check_everything` adds them up all the same.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NoReturn

from differently_adapters.providers.fake import FakeInstance, FakeSnapshot
from differently_core.contract import CreateRequest, InstanceState, Owner
from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.closing import Closing
from differently_core.model.due import DUE_SHARDS
from differently_core.model.event import Event
from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.policy import External, PolicyRules
from differently_core.model.pool import Pool, Trust
from differently_core.model.port import OpenPort
from differently_core.model.queue import Backlog, QueueRow
from differently_core.model.quota import Counter, Scope
from differently_core.model.record import Key, Record
from differently_core.model.resources import DIMENSIONS, Size
from differently_core.model.sandbox import (
    ACTIVE,
    AT_REST,
    ENDED,
    GONE,
    LIVE,
    ON_THE_WAY,
    TRANSITIONS,
    Sandbox,
    SandboxEnv,
    Status,
)
from differently_core.model.snapshot import Snapshot
from differently_core.operations.catalog import CACHE_SECONDS
from differently_core.operations.worker import CREATE_CALLS_MAX
from differently_core.policy.egress import rules_of
from differently_core.runtime.clock import Clock
from differently_core.store.checks import key_of, record_of
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Check

from .keeping import Keeping
from .metering import Metering
from .processes import LIFE_SECONDS, Process, Violation
from .seams import SimBackend

Amounts = tuple[int, ...]
NOTHING: Amounts = (0,) * (len(DIMENSIONS) + 1)
PLACE: Amounts = (*(0,) * len(DIMENSIONS), 1)
"""One of a pool's places for what is kept without running."""
ROUNDING = timedelta(milliseconds=1)
"""The wall clock counts microseconds, the monotonic one more finely."""
CALLABLE = frozenset({AttemptState.CALLING, AttemptState.LIVE})


def _amounts(size: Size) -> Amounts:
    return (size.sandboxes, size.cpu_millis, size.memory_mib, size.disk_gib, 0)


class Monitor:
    def __init__(self, memory: MemoryStore, clock: Clock, tally: Tally[str]) -> None:
        self.rows: dict[Key, Record] = {}
        self.ours = ""
        """The installation's id."""
        self.process: Callable[[], Process | None] = lambda: None
        self.tell: Callable[[str], None] = lambda line: None
        self.held: defaultdict[tuple[Scope, str], Amounts] = defaultdict(lambda: NOTHING)
        self.attempts: defaultdict[str, dict[int, Attempt]] = defaultdict(dict)
        self.idempotency_seen: defaultdict[Key, list[tuple[int, IdempotencyRow | None]]] = defaultdict(list)
        """For each key, its rows one after another, each with the number of the write that made it."""
        self.policies: list[tuple[float, PolicyRules]] = []
        """The global ones, each with when it began."""
        self.backends: list[SimBackend] = []
        self.backend_of: Callable[[str], SimBackend]
        self.denied: dict[str, str] = {}
        """The pool that an organization's own policy denies; it never changes."""
        self.waiting: Tally[tuple[str, str]] = Tally()
        """Places held in each bounded backlog."""
        self.keeping = Keeping(lambda: self.rows, lambda what: self._tally.update([what]))
        self.metering = Metering()
        self.commits = 0
        self._memory = memory
        self._clock = clock
        self._tally = tally
        self._requests: dict[int, tuple[CreateRequest, int]] = {}
        self._calls: Tally[tuple[str, int]] = Tally()
        self._moves: Tally[str] = Tally()
        self._makers: dict[tuple[str, str, str], int] = {}
        """Which attempt of a sandbox made an instance, by sandbox, backend and ref."""

    def take_over(self) -> None:
        """Begin with a store that has rows already."""
        self.rows = dict(self._memory.rows())
        for row in self.rows.values():
            self._add(None, row, set())
        self.keeping.take_over(self.rows.values())
        self.metering.take_over(self.rows)

    # What the store is told.

    def committed(self, actions: Sequence[Action]) -> None:
        self.commits += 1
        changes: list[tuple[Record | None, Record | None]] = []
        for action in actions:
            if isinstance(action, Check):
                continue
            key = key_of(action)
            before = self.rows.get(key)
            after = self._memory.get(record_of(action), key)
            if after is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = after
            changes.append((before, after))
        touched: set[tuple[Scope, str]] = set()
        for before, after in changes:
            self._add(before, after, touched)
        for before, after in changes:
            self._judge(before, after, changes)
        self.keeping.committed(changes)
        self.metering.committed(changes)
        for name in touched:
            self._judge_counter(name)
        self._judge_backlogs(changes)
        if any(before is None and isinstance(after, Sandbox) for before, after in changes):
            self._judge_no_overtaking(changes)

    def _judge_no_overtaking(self, changes: Sequence[tuple[Record | None, Record | None]]) -> None:
        """A create takes nothing from a counter that others wait for."""
        for before, _ in changes:
            if isinstance(before, Counter) and before.waiting is not None:
                fail("I13", f"a create overtook {before.waiting} that wait for {before.scope} {before.name}")

    def _judge_backlogs(self, changes: Sequence[tuple[Record | None, Record | None]]) -> None:
        """A bounded backlog counts who waits, exactly, and lets no new one in above its bound."""
        named = {(row.scope.value, row.name): row for _, row in changes if isinstance(row, Backlog)}
        for _, row in changes:
            if isinstance(row, Sandbox):
                for scope in row.backlogs:
                    name = row.org if scope == Scope.ORG else row.project
                    found = self.rows.get(Backlog.key_of(Scope(scope), name))
                    must(isinstance(found, Backlog), "I5", f"{row.id} waits in the backlog of {name}, which has no row")
        for entry, row in named.items():
            held = self.waiting[entry]
            must(row.waiting == held, "I5", f"the backlog of {row.scope} {row.name} counts {row.waiting}; {held} wait")
        if any(before is None and isinstance(after, Sandbox) for before, after in changes):
            for row in named.values():
                must(row.free >= 0, "I5", f"a create waits in the full backlog of {row.scope} {row.name}")

    def _add(self, before: Record | None, after: Record | None, touched: set[tuple[Scope, str]]) -> None:
        for row, sign in ((before, -1), (after, 1)):
            for name, amounts in _holdings(row):
                held = self.held[name]
                self.held[name] = tuple(have + sign * more for have, more in zip(held, amounts, strict=True))
                touched.add(name)
            if isinstance(row, Counter):
                touched.add((row.scope, row.name))
            if isinstance(row, Sandbox):
                for scope in row.backlogs:
                    self.waiting[scope, row.org if scope == Scope.ORG else row.project] += sign
        row = after or before
        if isinstance(row, Attempt):
            assert isinstance(after, Attempt), "an attempt was deleted"
            self.attempts[row.sandbox][row.number] = after
        elif isinstance(row, IdempotencyRow):
            assert after is None or isinstance(after, IdempotencyRow)
            self.idempotency_seen[row.key()].append((self.commits, after))

    def _judge(
        self, before: Record | None, after: Record | None, changes: Sequence[tuple[Record | None, Record | None]]
    ) -> None:
        row = after or before
        if isinstance(row, Sandbox):
            assert before is None or isinstance(before, Sandbox)
            assert isinstance(after, Sandbox), f"{row.id} was deleted"
            self._judge_sandbox(before, after, [new for _, new in changes if isinstance(new, Event)])
            self._judge_rows_of(after)
        elif isinstance(row, Attempt):
            assert before is None or isinstance(before, Attempt)
            assert isinstance(after, Attempt)
            self._judge_attempt(before, after)
            self._judge_rows_of(self._sandbox(row.sandbox))
        elif isinstance(row, (QueueRow, IdempotencyRow)):
            sandbox = self.rows.get(Sandbox.key_of(row.sandbox))
            if isinstance(sandbox, Sandbox):
                self._judge_rows_of(sandbox)
        elif isinstance(row, Event):
            must(before is None, "I10", f"the event {row.id} was changed")
            must(row.action != "pool.recount", "I5", f"the counter of {row.target} was right and was corrected")
        elif isinstance(row, Counter) and isinstance(before, Counter) and isinstance(after, Counter):
            self._judge_admission(before, after)
            if not any(_rested_by_itself(old, new) for old, new in changes):
                self._judge_retained(before, after)

    # Sandboxes.

    def _judge_sandbox(self, before: Sandbox | None, after: Sandbox, events: Sequence[Event]) -> None:
        if before is None:
            must(after.status in (Status.QUEUED, Status.PROVISIONING), "I7", f"{after.id} began as {after.status}")
            process = self.process()
            if process is not None:
                process.creates.append(after.id)
        else:
            if after.version != before.version + 1 or after.generation < before.generation:
                fail("I7", f"{after.id}: version {before.version} -> {after.version}, or the generation went back")
            if after.created_at != before.created_at:
                fail("I7", f"{after.id}: made anew over itself")
            if after.status is Status.RUNNING and before.backend_ref not in (None, after.backend_ref):
                fail("I1", f"{after.id}: handed out {before.backend_ref}, then {after.backend_ref}")
            self._judge_user_writes(before, after, events)
        if before is None or before.status is not after.status:
            self._judge_transition(before, after, events)
        if (after.due_at is None) != (after.status in ENDED):
            fail("I7", f"{after.id} is {after.status} and due {after.due_at}")

    def _judge_transition(self, before: Sandbox | None, after: Sandbox, events: Sequence[Event]) -> None:
        came_from = before.status.value if before is not None else "new"
        self._tally[f"transition {came_from} -> {after.status.value}"] += 1
        self.tell(f"{after.id[-6:]} {came_from} -> {after.status.value} ({after.reason.code if after.reason else ''})")
        if before is not None:
            must(after.status in TRANSITIONS[before.status], "I7", f"{after.id}: {before.status} -> {after.status}")
            must(before.status not in GONE or after.status in GONE, "I6", f"{after.id} came back to life")
        told = [event for event in events if event.target == after.id and event.after == after.status.value]
        must(len(told) == 1, "I10", f"{after.id} -> {after.status}: {len(told)} events tell of it")
        if after.status is Status.PROVISIONING:
            self._judge_placement(after)
        if after.reason is not None and after.reason.code == "ttl_expired" and after.status is Status.TERMINATING:
            assert before is not None
            assert before.expires_at is not None
            must(self._clock.now() >= before.expires_at, "I14", f"{after.id} ended before {before.expires_at}")
        if after.reason is not None and after.reason.code == "queue_timeout":
            assert before is not None
            deadline = before.queue_deadline
            must(deadline is not None and self._clock.now() >= deadline, "I14", f"{after.id} gave up early")
        if after.reason is not None and after.reason.code == "idle" and after.status in ON_THE_WAY:
            assert before is not None
            idle = before.idle_at()
            must(idle is not None and self._clock.now() >= idle, "I14", f"{after.id} was put to rest before {idle}")
        if after.reason is not None and after.reason.code == "preempted" and after.status in ON_THE_WAY:
            assert before is not None
            spare = before.spare_at()
            must(spare is not None and self._clock.now() >= spare, "I14", f"{after.id} was preempted before {spare}")
        if after.egress_rules is not None:
            self._judge_confined(before, after)
        if after.status is Status.RUNNING:
            assert after.started_at is not None
            ends = after.started_at + timedelta(seconds=after.ttl_seconds)
            ends = ends if after.lifetime_ends_at is None else min(ends, after.lifetime_ends_at)
            is_first = before is not None and before.status is Status.PROVISIONING
            must(not is_first or after.expires_at == ends, "I14", f"{after.id} has another lifetime")

    def _judge_confined(self, before: Sandbox | None, after: Sandbox) -> None:
        """Nothing runs unconfined: not as running, and not shown at rest by whoever could have seen it run."""
        woke = before is not None and before.status in (Status.RESUMING, Status.STARTING)
        if after.pool is None or after.backend_ref is None or after.egress_rules is None:
            return
        backend = self.backend_of(after.pool)
        for instance in backend.owned(Owner(self.ours, after.id)):
            runs = instance.state is InstanceState.RUNNING and instance.ref == after.backend_ref
            if not runs or instance.egress == rules_of(after.egress_rules):
                continue
            must(after.status is not Status.RUNNING, "I16", f"{after.id} is running, and not confined")
            since = backend.woke_at.get(instance.ref)
            if woke and after.status in AT_REST and since is not None:
                process = self.process()
                lately = process is not None and since >= process.dies_at - LIFE_SECONDS
                must(lately, "I16", f"{after.id} is shown at rest and runs unconfined")

    def _judge_user_writes(self, before: Sandbox, after: Sandbox, events: Sequence[Event]) -> None:
        """Only an update changes what users write."""
        if any(event.action == "sandbox.update" and event.target == after.id for event in events):
            return
        if before.labels != after.labels or before.ttl_seconds != after.ttl_seconds:
            fail("I7", f"{after.id}: a user's labels or lifetime were overwritten")
        if before.expires_at not in (None, after.expires_at):
            fail("I14", f"{after.id}: expiry moved from {before.expires_at} to {after.expires_at}")

    def _judge_placement(self, after: Sandbox) -> None:
        assert after.pool is not None
        pool = self.rows.get(Pool.key_of(after.pool))
        counter = self.rows.get(Counter.key_of(Scope.POOL, after.pool))
        must(isinstance(pool, Pool) and isinstance(counter, Counter), "I9", f"{after.id} on a pool that is not there")
        assert isinstance(pool, Pool)
        assert isinstance(counter, Counter)
        must(counter.closed is None, "I5", f"{after.id} was let into {after.pool}, which is closed")
        must(not after.allowed_pools or pool.name in after.allowed_pools, "I9", f"{after.id} is not for {pool.name}")
        must(self.denied.get(after.org) != pool.name, "I9", f"{after.id} on {pool.name}, which its organization denies")
        if pool.trust is Trust.EXTERNAL:
            allowed = any(_allows(rules, pool.name) for rules in self._rules_lately())
            must(allowed, "I9", f"{after.id} on {pool.name}, an external pool that policy refuses")

    def _rules_lately(self) -> Iterable[PolicyRules]:
        """Policies in force now or within the life of a cache entry; a process may have read them a while ago too."""
        process = self.process()
        oldest = self._clock.monotonic() - CACHE_SECONDS
        if process is not None:
            oldest = min(oldest, process.dies_at - 900.0 - CACHE_SECONDS)
        ends: float | None = None
        for began, rules in reversed(self.policies):
            if ends is None or ends >= oldest:
                yield rules
            ends = began

    def _judge_rows_of(self, sandbox: Sandbox) -> None:
        """What must be true of a sandbox and the rows around it whenever nobody is in the middle of a write."""
        queue = self.rows.get(QueueRow.key_of(sandbox.org, sandbox.priority, sandbox.id))
        status = sandbox.status
        if status is Status.QUEUED and sandbox.awaits_snapshot:
            if queue is not None or sandbox.reservation is not None:
                fail("queue", f"{sandbox.id} waits for its snapshot, and is in the queue or holds something")
        elif status is Status.QUEUED:
            if queue is None or sandbox.reservation is not None:
                fail("queue", f"{sandbox.id} waits; it is not in the queue, or it holds {sandbox.reservation}")
        elif queue is not None and status is not Status.TERMINATING:
            fail("queue", f"{sandbox.id} is {status} and still in the queue")
        if sandbox.backlogs and (sandbox.awaits_snapshot or status not in (Status.QUEUED, Status.TERMINATING)):
            fail("queue", f"{sandbox.id} is {status} and holds a place in {sandbox.backlogs}")
        row = self.rows.get(IdempotencyRow.key_of(sandbox.id))
        guarded = isinstance(row, IdempotencyRow) and row.sandbox == sandbox.id
        if guarded != (sandbox.idempotent and status in LIVE):
            fail("I8", f"{sandbox.id} is {status} and its key is {'kept' if guarded else 'free'}")
        env = self.rows.get(SandboxEnv.key_of(sandbox.id))
        if (env is not None) != (sandbox.has_env and status not in ENDED):
            fail("I15", f"{sandbox.id} is {status}, its environment {env}")
        self._judge_attempts_of(sandbox)

    def _judge_attempts_of(self, sandbox: Sandbox) -> None:
        attempts = self.attempts.get(sandbox.id, {})
        if len(attempts) != sandbox.attempt:
            fail("I4", f"{sandbox.id}: {len(attempts)} attempts of {sandbox.attempt}")
        open_ones = [number for number, attempt in attempts.items() if attempt.status in CALLABLE]
        if open_ones not in ([], [sandbox.attempt]):
            fail("I1", f"{sandbox.id}: attempts {open_ones} are open")
        new_in_queue = sandbox.status is Status.QUEUED and sandbox.move is None
        if open_ones and (sandbox.status in ENDED or new_in_queue):
            fail("I4", f"{sandbox.id} is {sandbox.status} and an attempt is open")
        self._judge_move_of(sandbox)
        if sandbox.status is Status.RUNNING:
            newest = attempts[sandbox.attempt]
            if newest.status is not AttemptState.LIVE or newest.ref is None or newest.ref != sandbox.backend_ref:
                fail("I1", f"{sandbox.id} runs as {sandbox.backend_ref}; its attempt is {newest.status} {newest.ref}")
        if sandbox.reservation is not None and sandbox.status in ENDED:
            fail("I5", f"{sandbox.id} has ended and holds something")

    def _judge_move_of(self, sandbox: Sandbox) -> None:
        """Whoever may run holds quota, whoever rests holds none, and a move is known exactly while there is one."""
        status, held = sandbox.status, sandbox.reservation
        if status in ACTIVE and (held is None or held.pool != sandbox.pool or not held.tenant):
            fail("I5", f"{sandbox.id} is {status} on {sandbox.pool} and holds {held}")
        if status in AT_REST and held is not None:
            fail("I5", f"{sandbox.id} is {status} and holds {held}")
        move = sandbox.move
        kept = status in (AT_REST | ON_THE_WAY) or (status is Status.QUEUED and move is not None)
        if status is not Status.TERMINATING and sandbox.retained is not kept:
            fail("I5", f"{sandbox.id} is {status}; it holds a place among what is kept: {sandbox.retained}")
        if status in ON_THE_WAY and (move is None or move.way.during is not status):
            fail("I7", f"{sandbox.id} is {status} by {move}")
        if move is not None and status in (AT_REST | ENDED | {Status.RUNNING, Status.PROVISIONING}):
            fail("I7", f"{sandbox.id} is {status} and still on its way: {move.kind}")

    # Attempts.

    def _judge_attempt(self, before: Attempt | None, after: Attempt) -> None:
        name = f"{after.sandbox} attempt {after.number}"
        came_from = before.status.value if before is not None else "new"
        if before is None:
            must(after.status is AttemptState.CALLING, "I4", f"{name} began as {after.status}")
            self._tally[f"attempt new -> {after.status.value}"] += 1
        elif before.status is not after.status:
            self._tally[f"attempt {came_from} -> {after.status.value}"] += 1
            must(after.status in _ATTEMPTS[before.status], "I4", f"{name}: {before.status} -> {after.status}")
        if after.status is AttemptState.SETTLED:
            self._judge_settled(after)
        debt = after.status is AttemptState.DEBT
        if (after.holds_slot and not debt) or (after.due_at is not None) != debt:
            fail("I4", f"{name} is {after.status}, holds its slot: {after.holds_slot}, due {after.due_at}")

    def _judge_settled(self, attempt: Attempt) -> None:
        """Nothing that this attempt made is left, and nothing of it can come."""
        sandbox = self._sandbox(attempt.sandbox)
        for backend in self.backends:
            for instance in backend.owned(Owner(self.ours, attempt.sandbox)):
                if self._makers.get((attempt.sandbox, backend.name, instance.ref)) != attempt.number:
                    continue
                if not self._is_in_use(sandbox, backend, instance) and not self._is_anothers(
                    attempt, backend, instance
                ):
                    fail("I4", f"{sandbox.id} attempt {attempt.number} is settled and {instance.ref} is left")
            for request in backend.requests_under_way():
                if self._requests[id(request)][1] == attempt.number and request.owner.sandbox == attempt.sandbox:
                    fail("I4", f"{sandbox.id} attempt {attempt.number} is settled and its instance may still come")

    # Counters.

    def _judge_admission(self, before: Counter, after: Counter) -> None:
        for name in DIMENSIONS:
            taken = getattr(before, f"free_{name}") - getattr(after, f"free_{name}")
            moved = getattr(before, f"limit_{name}") - getattr(after, f"limit_{name}")
            if taken > moved:
                free = getattr(after, f"free_{name}")
                must(free >= 0, "I5", f"{after.scope} {after.name}: {name} admitted above the limit ({free} free)")

    def _judge_retained(self, before: Counter, after: Counter) -> None:
        """Nothing is put to rest where there is no place for it; what the backend put to rest by itself is there."""
        taken = before.free_retained - after.free_retained
        if taken > before.limit_retained - after.limit_retained:
            free = after.free_retained
            must(free >= 0, "I5", f"pool {after.name} keeps more than its bound ({free} places)")

    def _judge_counter(self, name: tuple[Scope, str]) -> None:
        counter = self.rows.get(Counter.key_of(*name))
        held = self.held[name]
        if not isinstance(counter, Counter):
            must(not any(held), "I5", f"{name[0]} {name[1]} has no counter and {held} is held")
            return
        counted = (
            counter.limit_sandboxes - counter.free_sandboxes, counter.limit_cpu_millis - counter.free_cpu_millis,
            counter.limit_memory_mib - counter.free_memory_mib, counter.limit_disk_gib - counter.free_disk_gib,
            counter.limit_retained - counter.free_retained,
        )  # fmt: skip
        if counted != held:
            fail("I5", f"{name[0]} {name[1]} counts {counted} as held; sandboxes and attempts hold {held}")

    # Backends.

    def create_called(self, backend: SimBackend, request: CreateRequest) -> None:
        sandbox = self._sandbox(request.owner.sandbox)
        attempt = self.attempts[sandbox.id].get(sandbox.attempt)
        assert attempt is not None, "a create was called before its attempt was written"
        self._requests[id(request)] = (request, attempt.number)
        self.keeping.create_called(sandbox, request)
        must(attempt.status is not AttemptState.SETTLED, "I4", f"{sandbox.id}: a create for a settled attempt")
        called = (sandbox.id, attempt.number)
        self._calls[called] += 1
        bound = CREATE_CALLS_MAX if backend.idempotent_create else 1
        must(self._calls[called] <= bound, "I1", f"{sandbox.id}: create {self._calls[called]} of one attempt")
        in_time = self._clock.now() <= attempt.call_until + ROUNDING
        must(in_time, "I4", f"{sandbox.id}: a create after its attempt's time")

    def made(self, backend: SimBackend, request: CreateRequest, instance: FakeInstance) -> None:
        sandbox = request.owner.sandbox
        _, number = self._requests[id(request)]
        if (sandbox, backend.name, instance.ref) in self._makers:
            return
        self._makers[sandbox, backend.name, instance.ref] = number
        status = self.attempts[sandbox][number].status
        must(
            status is not AttemptState.SETTLED,
            "I4",
            f"{sandbox}: {instance.ref} came after attempt {number} was settled",
        )

    def deleting(self, backend: SimBackend, instance: FakeInstance) -> None:
        owner = instance.owner
        must(owner.installation == self.ours, "I2", f"{instance.ref} of {owner} is not ours and is being deleted")
        sandbox = self.rows.get(Sandbox.key_of(owner.sandbox))  # type: ignore[arg-type]  # read off a label
        must(isinstance(sandbox, Sandbox), "I2", f"{instance.ref} belongs to no sandbox of ours and is being deleted")
        assert isinstance(sandbox, Sandbox)
        if sandbox.status in GONE:
            return
        in_use = self._is_in_use(sandbox, backend, instance)
        must(not in_use, "I1", f"{sandbox.id}: {instance.ref} is in use and is being deleted")
        maker = self.attempts[sandbox.id].get(self._makers.get((sandbox.id, backend.name, instance.ref), 0))
        if maker is not None and maker.status is AttemptState.CALLING:
            must(False, "I3", f"{sandbox.id}: {instance.ref} is being made and deleted at once")

    def move_called(self, what: str, sandbox: str, operation: str) -> None:
        """The intent was written before the backend hears of it, and one name is told to it once."""
        row = self._sandbox(sandbox)
        self._moves[operation] += 1
        must(self._moves[operation] == 1, "I7", f"{sandbox}: {what} {operation} was told again")
        written = row.move is not None and row.move.operation == operation and row.move.called_at is not None
        must(written or row.status in GONE, "I7", f"{sandbox} is told to {what} as {operation}, and has {row.move}")

    def captured(self, backend: SimBackend, made: FakeSnapshot) -> None:
        self.keeping.captured(backend, made)

    def dropping(self, backend: SimBackend, kept: FakeSnapshot) -> None:
        self.keeping.dropping(backend, kept, self.ours)

    def _is_in_use(self, sandbox: Sandbox, backend: SimBackend, instance: FakeInstance) -> bool:
        """Backends may call different instances the same."""
        if sandbox.status not in LIVE or sandbox.backend_ref != instance.ref or sandbox.pool is None:
            return False
        return self.backend_of(sandbox.pool) is backend

    def _is_anothers(self, attempt: Attempt, backend: SimBackend, instance: FakeInstance) -> bool:
        """An idempotent create was answered with what this attempt made: the later one sees to its end."""
        return any(
            other.number != attempt.number
            and other.status is not AttemptState.SETTLED
            and other.ref == instance.ref
            and self.backend_of(other.pool) is backend
            for other in self.attempts[attempt.sandbox].values()
        )

    # Everything.

    def check_everything(self) -> None:
        """The sums from the start, the copy against the store, the due index against the rows."""
        stored = self._memory.rows()
        must(dict(stored) == self.rows, "simulation", "a row was written behind the monitor's back")
        held: defaultdict[tuple[Scope, str], Amounts] = defaultdict(lambda: NOTHING)
        for row in stored.values():
            for name, amounts in _holdings(row):
                held[name] = tuple(have + more for have, more in zip(held[name], amounts, strict=True))
            if isinstance(row, Counter):
                held[row.scope, row.name] = held[row.scope, row.name]
        for name, amounts in held.items():
            must(self.held[name] == amounts, "simulation", f"the running sum of {name} is wrong")
            self._judge_counter(name)
        self._check_queue(stored)
        self._check_due(stored)
        self._check_pools(stored)
        self.keeping.check_everything(stored, self.backends, self.ours)
        self.metering.check_everything(stored.values())

    def _check_queue(self, stored: Mapping[Key, Record]) -> None:
        for row in stored.values():
            if isinstance(row, QueueRow):
                status = self._sandbox(row.sandbox).status
                waits = status in (Status.QUEUED, Status.TERMINATING)
                must(waits, "queue", f"{row.sandbox} is {status} and in the queue")
            elif isinstance(row, IdempotencyRow):
                status = self._sandbox(row.sandbox).status
                must(status in LIVE, "I8", f"a key names {row.sandbox}, which is {status}")
            elif isinstance(row, Sandbox):
                self._judge_rows_of(row)

    def _check_due(self, stored: Mapping[Key, Record]) -> None:
        expected = {
            key: row.index()["due_sk"]
            for key, row in stored.items()
            if isinstance(row, (Sandbox, Attempt, Snapshot, OpenPort, Closing)) and row.due_at is not None
        }
        found: dict[Key, object] = {}
        for shard in range(DUE_SHARDS):
            after: str | None = None
            while True:
                rows, after = self._memory.query_due(f"DUE#{shard}", until="9999", after=after)
                found.update((row.key, row.due) for row in rows)
                if after is None:
                    break
        must(found == expected, "I7", "the due index and the due times differ")

    def _check_pools(self, stored: Mapping[Key, Record]) -> None:
        """What the reconciler is given as a pool's attempts."""
        expected: defaultdict[str, set[Key]] = defaultdict(set)
        for row in stored.values():
            if isinstance(row, Attempt) and row.status is not AttemptState.SETTLED:
                expected[row.pool].add(row.key())
        for pool in {row.pool for row in stored.values() if isinstance(row, Attempt)}:
            found = {row.key() for row in self._memory.query_pool(pool).rows}
            must(found == expected[pool], "I4", f"the index of {pool} and its attempts differ")

    def _sandbox(self, sandbox: str) -> Sandbox:
        found = self.rows.get(Sandbox.key_of(sandbox))  # type: ignore[arg-type]  # read off a row or a label
        must(isinstance(found, Sandbox), "I4", f"{sandbox} has rows and no record")
        assert isinstance(found, Sandbox)
        return found


_ATTEMPTS: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.CALLING: frozenset({AttemptState.LIVE, AttemptState.DEBT, AttemptState.SETTLED}),
    AttemptState.LIVE: frozenset({AttemptState.DEBT, AttemptState.SETTLED}),
    AttemptState.DEBT: frozenset({AttemptState.SETTLED}),
    AttemptState.SETTLED: frozenset(),
}


def fail(invariant: str, what: str) -> NoReturn:
    raise Violation(f"{invariant}: {what}")


def must(holds: bool, invariant: str, what: str) -> None:
    if not holds:
        fail(invariant, what)


def _holdings(row: Record | None) -> Iterable[tuple[tuple[Scope, str], Amounts]]:
    """What a row holds, of which counter."""
    if isinstance(row, Sandbox) and row.reservation is not None:
        amounts = _amounts(row.reservation.size)
        if row.reservation.tenant:
            yield (Scope.ORG, row.org), amounts
            yield (Scope.PROJECT, row.project), amounts
        if row.reservation.pool is not None:
            yield (Scope.POOL, row.reservation.pool), amounts
    elif isinstance(row, Attempt) and row.holds_slot:
        yield (Scope.POOL, row.pool), _amounts(row.size)
    pool = row.pool if isinstance(row, Sandbox) and row.retained else None
    pool = row.pool if isinstance(row, Attempt) and row.holds_place else pool
    if pool is not None:
        yield (Scope.POOL, pool), PLACE


def _rested_by_itself(before: Record | None, after: Record | None) -> bool:
    if not isinstance(before, Sandbox) or not isinstance(after, Sandbox):
        return False
    return before.status is Status.RUNNING and after.status in AT_REST


def _allows(rules: PolicyRules, pool: str) -> bool:
    return rules.external is External.ALLOWED and pool in rules.external_pools
