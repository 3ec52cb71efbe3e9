"""The cloud behind the fake adapter: instances, room, the time things take, and planned faults.

Several clients share one backend, and a client that dies leaves it as it was. Time comes from the backend's clock and
names from a counter, so a run repeats exactly.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from math import inf

from differently_core.contract import (
    LABEL_INSTALLATION,
    LABEL_SANDBOX,
    Capabilities,
    Catalog,
    CommandResult,
    CreateRequest,
    ExecEvent,
    InstanceState,
    Operation,
    Owner,
    SnapshotKind,
)
from differently_core.errors import InsufficientCapacity, InvalidState, ProviderUnavailable
from differently_core.model import features
from differently_core.model.exec import ExecRequest
from differently_core.model.resources import Size
from differently_core.runtime.clock import Clock

from .faults import Call, Fault, IgnoreFilter, Late, LosePage, OverlapPages, Plan, RepeatCursor, Unlisted
from .instances import FakeInstance, FakeSnapshot

FEATURES = frozenset(
    {
        features.EXEC, features.EXEC_STREAM, features.FILES, features.STOP_START, features.PERSISTENCE_DISK,
        features.PAUSE_RESUME, features.SNAPSHOTS_DISK, features.SNAPSHOTS_MEMORY, features.FORK,
        features.PORTS_EXPOSE, features.EGRESS_CONTROL, features.ISOLATION_NONE,
    }
)  # fmt: skip
_COUNT = itertools.count(1)


SETTLING = frozenset({Operation.CREATE, Operation.DELETE})
ExecFunction = Callable[[FakeInstance, ExecRequest], CommandResult]
StreamFunction = Callable[[FakeInstance, ExecRequest, float], Iterator[ExecEvent]]


def echo(instance: FakeInstance, request: ExecRequest) -> CommandResult:
    """Writes the command's own text and its input: enough for everything that only moves bytes."""
    text = request.command if request.command is not None else " ".join(request.args or [])
    return CommandResult(0, f"{text}\n{request.stdin or ''}".encode(), b"", 0)


class FakeBackend:
    """Instances and what befalls them.

    `expect` queues faults for the next calls; after them `plan`, a function of the call, is asked. `room` bounds what
    fits. `exec_function` runs a command at once: the duration it reports then passes on the clock, and a timeout that
    is shorter ends the command. A streamed command is that result in pieces, unless `stream_function` runs it.

    What it is like lies in `capabilities` (a lease, a longest life, snapshots that stop), `move_seconds` and
    `snapshot_seconds` (how long these take), `idle_seconds` (unused for so long, an instance sleeps until it is used),
    `resume_restores` (a pause is a checkpoint that its resume consumes and the result another incarnation; otherwise
    memory stays where it is), `keeps_egress` (whether rules outlive a stop or pause), `captures` (what a snapshot holds
    whatever was asked) and `token` (the only credential that is accepted; None accepts all).
    """

    def __init__(
        self,
        clock: Clock,
        *,
        idempotent_create: bool = True,
        settles_seconds: float = 60.0,
        room: Size | None = None,
        pending_seconds: float = 0.0,
        latency_seconds: float = 0.0,
        exec_function: ExecFunction = echo,
        stream_function: StreamFunction | None = None,
        plan: Plan | None = None,
        capabilities: Capabilities | None = None,
        move_seconds: float = 0.0,
        snapshot_seconds: float = 0.0,
        idle_seconds: float = inf,
        resume_restores: bool = False,
        keeps_egress: bool = True,
        captures: SnapshotKind | None = None,
        page_size: int = 200,
        token: str | None = None,
        name: str | None = None,
    ) -> None:
        self.clock = clock
        self.name = name or f"fake backend {next(_COUNT)}"
        """Tells it from every other one of the process; refs alone do not."""
        self.idempotent_create = idempotent_create
        self.settles_seconds = settles_seconds
        self.room = room
        self.pending_seconds = pending_seconds
        self.latency_seconds = latency_seconds
        self.exec_function = exec_function
        self.stream_function = stream_function
        self.plan = plan
        self.up = True
        """False refuses every call."""
        self.capabilities = capabilities or Capabilities(features=FEATURES)
        self.move_seconds = move_seconds
        self.snapshot_seconds = snapshot_seconds
        self.idle_seconds = idle_seconds
        self.resume_restores = resume_restores
        self.keeps_egress = keeps_egress
        self.captures = captures
        self.page_size = page_size
        self.token = token
        self.catalog = Catalog(templates={"base": "An empty machine."}, regions={"here": "In this process."})
        self.calls: Counter[Operation] = Counter()
        self.lock = threading.RLock()
        self._instances: dict[str, FakeInstance] = {}
        self._by_owner: defaultdict[Owner, dict[str, None]] = defaultdict(dict)
        self._late_creates: list[tuple[float, int, CreateRequest]] = []
        self._departures: list[tuple[float, str]] = []
        self._expected: defaultdict[Operation, deque[Fault]] = defaultdict(deque)
        self._used = Size()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._endless: list[Callable[[], None]] = []
        self._snapshots: dict[str, FakeSnapshot] = {}
        self._captures: dict[tuple[Owner, str], str] = {}
        self._count = itertools.count(1)

    # What simulations and tests do to it.

    def expect(self, operation: Operation, *faults: Fault) -> None:
        """The next calls of the operation meet these faults, one each."""
        for fault in faults:
            if operation not in SETTLING or not isinstance(fault, (Late, Unlisted)):
                continue
            if fault.seconds > self.settles_seconds:
                raise ValueError(f"{fault} breaks the declared settling time of {self.settles_seconds} s")
        self._expected[operation].extend(faults)

    def heal(self) -> None:
        """No more faults; what hangs comes to its end. What is late still comes."""
        with self.lock:
            self.up = True
            self.plan = None
            self._expected.clear()
            now = self.clock.monotonic()
            for instance in self._instances.values():
                if instance.deleting:
                    self._depart(instance, now)
            endless, self._endless = self._endless, []
            for action in endless:
                action()
            self._pass_time(now)

    def instances(self) -> list[FakeInstance]:
        """Everything that exists now, whoever owns it."""
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return list(self._instances.values())

    def plant(self, owner: Owner, *, ref: str | None = None) -> FakeInstance:
        """An instance that no call of ours made: another installation's, or a stray one."""
        with self.lock:
            labels = {LABEL_INSTALLATION: owner.installation, LABEL_SANDBOX: owner.sandbox}
            now = self.clock.monotonic()
            return self._add(self._made(ref or self._new_ref(), labels, Size(sandboxes=1), {}, now))

    def vanish(self, ref: str) -> None:
        with self.lock:
            self._remove(ref)

    def fall_asleep(self, ref: str) -> None:
        """The backend puts an instance to sleep by itself, now."""
        with self.lock:
            self._instances[ref].used_at = -inf

    def snapshots(self) -> list[FakeSnapshot]:
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return list(self._snapshots.values())

    def late_creates(self) -> int:
        """How many creates are still under way without a caller."""
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return len(self._late_creates)

    # What its API does.

    def arrive(self, operation: Operation, owner: Owner | None, token: str = "") -> Fault | None:
        """Count a call and say what befalls it."""
        with self.lock:
            self.calls[operation] += 1
            if not self.up:
                raise ProviderUnavailable("The backend cannot be reached.", settled=True)
            if self.token is not None and token != self.token:
                raise ProviderUnavailable("The backend rejected the credential.", settled=True)
            expected = self._expected.get(operation)
            if expected:
                return expected.popleft()
            if self.plan is None:
                return None
            return self.plan(Call(operation, owner, self.calls[operation], self.clock.monotonic()))

    def create(self, request: CreateRequest, *, always: bool = False) -> FakeInstance:
        """A new instance, or the first one where creates are idempotent; `always` makes another all the same."""
        with self.lock:
            now = self.clock.monotonic()
            self._pass_time(now)
            return self._create(request, now, always=always)

    def create_late(self, request: CreateRequest, seconds: float) -> None:
        with self.lock:
            late = (self.clock.monotonic() + seconds, next(self._count), request)
            heapq.heappush(self._late_creates, late)

    def find(self, ref: str) -> FakeInstance | None:
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return self._instances.get(ref)

    def owned(self, owner: Owner) -> list[FakeInstance]:
        """In the order they were made."""
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return [self._instances[ref] for ref in self._by_owner.get(owner, ())]

    def page(self, installation: str, cursor: str, fault: Fault | None) -> tuple[list[FakeInstance], str]:
        """One page of what is listed, and the cursor of the next one; the last page has none."""
        with self.lock:
            now = self.clock.monotonic()
            self._pass_time(now)
            everything = [
                instance
                for instance in self._instances.values()
                if instance.listed_at <= now
                and (instance.owner.installation == installation or isinstance(fault, IgnoreFilter))
            ]
        at = int(cursor or "0")
        following = at + self.page_size
        if isinstance(fault, LosePage) and at // self.page_size + 1 == fault.number:
            raise ProviderUnavailable("The backend did not send a page of its list.")
        if isinstance(fault, OverlapPages) and at:
            at -= 1
        if isinstance(fault, RepeatCursor) and cursor:
            return everything[at:following], cursor
        return everything[at:following], str(following) if following < len(everything) else ""

    def renew(self, instance: FakeInstance, until: datetime) -> datetime | None:
        """As far as the lease and the longest life let it; None where nothing ever ends by itself."""
        with self.lock:
            now = self.clock.monotonic()
            if instance.ends_at != inf:
                wanted = now + (until - self.clock.now()).total_seconds()
                self._end_at(instance, min(wanted, self._latest_end(instance, now)), now)
            return instance.expires_at

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen, under the lock: now for 0, when the backend heals for `inf`."""
        with self.lock:
            if seconds == inf:
                self._endless.append(action)
                return
            now = self.clock.monotonic()
            heapq.heappush(self._later, (now + seconds, next(self._count), action))
            self._pass_time(now)

    def catch_up(self) -> None:
        """Let happen what is due by now."""
        with self.lock:
            self._pass_time(self.clock.monotonic())

    def rest(self, instance: FakeInstance) -> None:
        """A stopped instance gives back all but its disk."""
        if not instance.resting and self._instances.get(instance.ref) is instance:
            self._used, instance.resting = self._used - _awake(instance.size), True

    def woke(self, instance: FakeInstance) -> None:
        """It was started or resumed just now."""
        if not self.keeps_egress:
            instance.egress = None

    def rouse(self, instance: FakeInstance) -> None:
        """Take the room that `rest` gave back; raises `InsufficientCapacity` when it went to others."""
        if self.room is not None and not _awake(instance.size).fits_in(self.room - self._used):
            raise InsufficientCapacity("The backend has no room to start the sandbox now.")
        if instance.resting:
            self._used, instance.resting = self._used + _awake(instance.size), False

    def keep(self, snapshot: FakeSnapshot) -> None:
        with self.lock:
            self._snapshots[snapshot.ref] = snapshot
            self._captures[snapshot.owner, snapshot.operation] = snapshot.ref

    def captured(self, owner: Owner, operation: str) -> FakeSnapshot | None:
        """What this operation captured before."""
        with self.lock:
            ref = self._captures.get((owner, operation))
            return None if ref is None else self._snapshots[ref]

    def find_snapshot(self, ref: str) -> FakeSnapshot | None:
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return self._snapshots.get(ref)

    def drop_snapshot(self, snapshot: FakeSnapshot) -> None:
        with self.lock:
            self._snapshots.pop(snapshot.ref, None)
            self._captures.pop((snapshot.owner, snapshot.operation), None)

    def new_ref(self, kind: str) -> str:
        with self.lock:
            return f"{kind}_{next(self._count):08d}"

    def delete(self, instance: FakeInstance, seconds: float = 0.0, *, conflict: bool = False) -> None:
        """Begin a delete that takes `seconds`; one that was begun before keeps its own end."""
        with self.lock:
            now = self.clock.monotonic()
            if not instance.deleting:
                instance.deleting, instance.conflict = True, conflict
                self._depart(instance, now + seconds)
            elif instance.conflict and now < instance.gone_at:
                raise InvalidState("The instance is in transition.")
            self._pass_time(now)
            if conflict:
                raise InvalidState("The instance is in transition.")

    def free(self) -> Size | None:
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return None if self.room is None else self.room - self._used

    # Inside, under the lock.

    def _pass_time(self, now: float) -> None:
        """Let happen what is due: late instances appear, deleted ones go, what was begun comes to its end."""
        while self._late_creates and self._late_creates[0][0] <= now:
            request = heapq.heappop(self._late_creates)[2]
            try:
                self._create(request, now, always=False)
            except InsufficientCapacity:
                continue
        while self._departures and self._departures[0][0] <= now:
            gone_at, ref = heapq.heappop(self._departures)
            instance = self._instances.get(ref)
            if instance is not None and instance.gone_at == gone_at:
                self._remove(ref)
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()

    def _create(self, request: CreateRequest, now: float, *, always: bool) -> FakeInstance:
        first = next(iter(self._by_owner.get(request.owner, ())), None)
        if first is not None and self.idempotent_create and not always:
            return self._instances[first]
        if self.room is not None and not request.size.fits_in(self.room - self._used):
            raise InsufficientCapacity("The backend has no room for the sandbox now.")
        labels = {
            **request.labels,
            LABEL_INSTALLATION: request.owner.installation,
            LABEL_SANDBOX: request.owner.sandbox,
        }
        made = self._made(self._new_ref(), labels, request.size, dict(request.env), now)
        made.runs_at = now + self.pending_seconds
        made.image, made.egress = request.image, request.egress
        self._end_at(made, self._latest_end(made, now), now)
        source = self._snapshots.get(request.from_snapshot or "")
        if source is not None:
            made.files, made.folders = dict(source.files), set(source.folders)
            if source.broken:
                made.state = InstanceState.ERROR
        return self._add(made)

    def _new_ref(self) -> str:
        return self.new_ref("fake")

    def _made(self, ref: str, labels: dict[str, str], size: Size, env: dict[str, str], now: float) -> FakeInstance:
        return FakeInstance(
            ref, labels, size, env, runs_at=now, made_at=now, used_at=now, idle_seconds=self.idle_seconds
        )

    def _latest_end(self, instance: FakeInstance, now: float) -> float:
        lease, life = self.capabilities.lease_seconds, self.capabilities.max_lifetime_seconds
        return min(now + lease if lease else inf, instance.made_at + life if life else inf)

    def _end_at(self, instance: FakeInstance, ends_at: float, now: float) -> None:
        if ends_at == inf or ends_at == instance.ends_at:
            return
        instance.ends_at = ends_at
        instance.expires_at = self.clock.now() + timedelta(seconds=ends_at - now)
        heapq.heappush(self._later, (ends_at, next(self._count), lambda: self._expire(instance, ends_at)))

    def _expire(self, instance: FakeInstance, ends_at: float) -> None:
        if instance.ends_at == ends_at and self._instances.get(instance.ref) is instance:
            self._remove(instance.ref)

    def _add(self, instance: FakeInstance) -> FakeInstance:
        self._instances[instance.ref] = instance
        self._by_owner[instance.owner][instance.ref] = None
        self._used = self._used + instance.size
        return instance

    def _depart(self, instance: FakeInstance, gone_at: float) -> None:
        instance.gone_at = gone_at
        if gone_at != inf:
            heapq.heappush(self._departures, (gone_at, instance.ref))

    def _remove(self, ref: str) -> None:
        instance = self._instances.pop(ref, None)
        if instance is not None:
            self._used = self._used - (_kept(instance.size) if instance.resting else instance.size)
            refs = self._by_owner[instance.owner]
            del refs[ref]
            if not refs:
                del self._by_owner[instance.owner]


def _awake(size: Size) -> Size:
    return size - _kept(size)


def _kept(size: Size) -> Size:
    """What a stopped instance still takes."""
    return Size(sandboxes=size.sandboxes, disk_gib=size.disk_gib)
