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
from dataclasses import dataclass, field
from datetime import datetime
from math import inf

from differently_core.contract import (
    LABEL_INSTALLATION,
    LABEL_SANDBOX,
    Capabilities,
    CommandResult,
    CreateRequest,
    ExecEvent,
    InstanceState,
    Operation,
    Owner,
)
from differently_core.errors import InsufficientCapacity, InvalidState, ProviderUnavailable
from differently_core.model import features
from differently_core.model.exec import ExecRequest
from differently_core.model.resources import Size
from differently_core.runtime.clock import Clock

from .faults import Call, Fault, Late, Plan, Unlisted

FEATURES = frozenset({features.EXEC, features.EXEC_STREAM, features.FILES, features.ISOLATION_NONE})

_COUNT = itertools.count(1)


@dataclass
class FakeFile:
    data: bytes
    modified_at: datetime


@dataclass
class FakeJob:
    """Its command ran when it was started; what it wrote and how it ends are known, and time reveals the end."""

    request: ExecRequest
    result: CommandResult
    started_at: datetime
    ends: float
    timed_out: bool
    stopped: float = inf
    lost: bool = False


@dataclass
class FakeInstance:
    """Moments (`runs_at`, `listed_at`, `gone_at`) are of the backend's monotonic clock."""

    ref: str
    labels: dict[str, str]
    size: Size
    env: dict[str, str]
    runs_at: float
    listed_at: float = 0.0
    gone_at: float = inf
    deleting: bool = False
    conflict: bool = False
    state: InstanceState = InstanceState.RUNNING
    files: dict[str, FakeFile] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    jobs: dict[str, FakeJob] = field(default_factory=dict)

    @property
    def owner(self) -> Owner:
        return Owner(self.labels.get(LABEL_INSTALLATION, ""), self.labels.get(LABEL_SANDBOX, ""))

    def state_at(self, now: float) -> InstanceState:
        if self.deleting:
            return InstanceState.STOPPED
        if self.state is InstanceState.RUNNING and now < self.runs_at:
            return InstanceState.PENDING
        return self.state


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
        self.capabilities = Capabilities(features=FEATURES)
        self.calls: Counter[Operation] = Counter()
        self.lock = threading.RLock()
        self._instances: dict[str, FakeInstance] = {}
        self._by_owner: defaultdict[Owner, dict[str, None]] = defaultdict(dict)
        self._late_creates: list[tuple[float, int, CreateRequest]] = []
        self._departures: list[tuple[float, str]] = []
        self._expected: defaultdict[Operation, deque[Fault]] = defaultdict(deque)
        self._used = Size()
        self._count = itertools.count(1)

    # What simulations and tests do to it.

    def expect(self, operation: Operation, *faults: Fault) -> None:
        """The next calls of the operation meet these faults, one each."""
        for fault in faults:
            if isinstance(fault, (Late, Unlisted)) and fault.seconds > self.settles_seconds:
                raise ValueError(f"{fault} breaks the declared settling time of {self.settles_seconds} s")
        self._expected[operation].extend(faults)

    def heal(self) -> None:
        """No more faults; deletes that hang come to their end. What is late still comes."""
        with self.lock:
            self.up = True
            self.plan = None
            self._expected.clear()
            now = self.clock.monotonic()
            for instance in self._instances.values():
                if instance.deleting:
                    self._depart(instance, now)
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
            return self._add(FakeInstance(ref or self._new_ref(), labels, Size(sandboxes=1), {}, now))

    def vanish(self, ref: str) -> None:
        with self.lock:
            self._remove(ref)

    def late_creates(self) -> int:
        """How many creates are still under way without a caller."""
        with self.lock:
            self._pass_time(self.clock.monotonic())
            return len(self._late_creates)

    # What its API does.

    def arrive(self, operation: Operation, owner: Owner | None) -> Fault | None:
        """Count a call and say what befalls it."""
        with self.lock:
            self.calls[operation] += 1
            if not self.up:
                raise ProviderUnavailable("The backend cannot be reached.", settled=True)
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
        """Let happen what is due: late instances appear, deleted ones go."""
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
        made = FakeInstance(self._new_ref(), labels, request.size, dict(request.env), now + self.pending_seconds)
        return self._add(made)

    def _new_ref(self) -> str:
        return f"fake_{next(self._count):08d}"

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
            self._used = self._used - instance.size
            refs = self._by_owner[instance.owner]
            del refs[ref]
            if not refs:
                del self._by_owner[instance.owner]
