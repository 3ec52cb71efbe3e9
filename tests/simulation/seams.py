"""The ports as the simulation offers them: the real store and the real fake backends, with faults and pauses between.

A process may park before every store call, inside every transaction, and on both ways of every backend call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from differently_adapters.providers.fake import FakeAdapter, FakeBackend, FakeConfig, FakeInstance, FakeSnapshot
from differently_core.contract import (
    AdapterContext,
    Capabilities,
    Capacity,
    CommandResult,
    CreateRequest,
    EgressRules,
    Exposure,
    Info,
    Instance,
    Instances,
    Owner,
    SnapshotInfo,
    SnapshotRequest,
    Target,
    Transition,
    Transitioned,
)  # fmt: skip
from differently_core.errors import InsufficientCapacity
from differently_core.model.exec import ExecRequest
from differently_core.model.record import Key, Record, Table
from differently_core.runtime.ids import SandboxId, SnapshotId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import (
    PAGE_ROWS_MAX,
    Action,
    Committed,
    DueRow,
    Outcome,
    Page,
    R,
    StoreThrottled,
    StoreUnavailable,
)  # fmt: skip
from tests.support.world import Close, Dispatch, LookAtPort, Message, Settle, Step, StepSnapshot

from .processes import Conductor, Killed
from .weather import Weather, outage

T = TypeVar("T")
CALL_SECONDS = 30.0
"""How long a backend call without a deadline of its own is waited for."""
READ_FAULTS = ("store_throttled", "read_unanswered")


class Watcher(Protocol):
    """Who is told of every effect, at the moment it happens."""

    def committed(self, actions: Sequence[Action]) -> None: ...

    def create_called(self, backend: SimBackend, request: CreateRequest) -> None: ...

    def made(self, backend: SimBackend, request: CreateRequest, instance: FakeInstance) -> None: ...

    def deleting(self, backend: SimBackend, instance: FakeInstance) -> None: ...

    def captured(self, backend: SimBackend, made: FakeSnapshot) -> None: ...

    def dropping(self, backend: SimBackend, kept: FakeSnapshot) -> None: ...

    def move_called(self, what: str, sandbox: str, operation: str) -> None: ...


class SimStore:
    """`MemoryStore` over a network, read and written by processes that may stop at any call."""

    def __init__(self, conductor: Conductor, weather: Weather) -> None:
        self.memory = MemoryStore(during=self._during)
        self.watcher: Watcher | None = None
        self._conductor = conductor
        self._weather = weather

    def get(self, record: type[R], key: Key) -> R | None:
        self._read()
        return self.memory.get(record, key)

    def batch_get(self, keys: Sequence[tuple[type[Record], Key]]) -> list[Record | None]:
        self._read()
        return self.memory.batch_get(keys)

    def query(
        self, table: Table, pk: str, *, prefix: str = "", after: str | None = None, limit: int = PAGE_ROWS_MAX,
        reverse: bool = False,
    ) -> Page:  # fmt: skip
        self._read()
        return self.memory.query(table, pk, prefix=prefix, after=after, limit=limit, reverse=reverse)

    def query_list(self, pk: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        self._read()
        page = self.memory.query_list(pk, after=after, limit=limit)
        return replace(page, rows=tuple(row for row in page.rows if not self._stale()))

    def query_pool(self, pool: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        self._read()
        page = self.memory.query_pool(pool, after=after, limit=limit)
        return replace(page, rows=tuple(row for row in page.rows if not self._stale()))

    def query_due(
        self, shard: str, *, until: str, after: str | None = None, limit: int = PAGE_ROWS_MAX
    ) -> tuple[tuple[DueRow, ...], str | None]:
        self._read()
        rows, position = self.memory.query_due(shard, until=until, after=after, limit=limit)
        return tuple(row for row in rows if not self._stale()), position

    def transact(self, actions: Sequence[Action]) -> Outcome:
        if self._outside():
            return self._write(actions)
        self.pause()
        match self._weather.strike("store_throttled", "write_never_arrived", "crash_before_write"):
            case "store_throttled":
                raise StoreThrottled("The table is busy.")
            case "write_never_arrived":
                raise StoreUnavailable("No answer.")
            case "crash_before_write":
                raise Killed
        outcome = self._write(actions)
        match self._weather.strike("write_answer_lost", "crash_after_write"):
            case "write_answer_lost":
                raise StoreUnavailable("No answer.")
            case "crash_after_write":
                raise Killed
        return outcome

    def pause(self) -> None:
        """Let others go first, perhaps."""
        if self._weather.strike("pause"):
            self._conductor.park()

    def _outside(self) -> bool:
        return self._conductor.current is None

    def _write(self, actions: Sequence[Action]) -> Outcome:
        outcome = self.memory.transact(actions)
        if isinstance(outcome, Committed) and self.watcher is not None:
            self.watcher.committed(actions)
        return outcome

    def _during(self, actions: Sequence[Action]) -> None:
        if self._outside():
            return
        self.pause()
        if self._weather.strike("crash_during_write"):
            raise Killed

    def _read(self) -> None:
        if self._outside():
            return
        self.pause()
        match self._weather.strike(*READ_FAULTS):
            case "store_throttled":
                raise StoreThrottled("The table is busy.")
            case "read_unanswered":
                raise StoreUnavailable("No answer.")

    def _stale(self) -> bool:
        return not self._outside() and self._weather.strike("stale_index") is not None


class SimBackend(FakeBackend):
    """A fake backend that tells what is made, also when it is late, and what is about to be deleted."""

    create_seconds = 60.0
    watcher: Watcher | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.woke_at: dict[str, float] = {}
        """When each instance was started or resumed last, by its ref."""

    def woke(self, instance: FakeInstance) -> None:
        self.woke_at[instance.ref] = self.clock.monotonic()
        super().woke(instance)

    def delete(self, instance: FakeInstance, seconds: float = 0.0, *, conflict: bool = False) -> None:
        if self.watcher is not None:
            self.watcher.deleting(self, instance)
        super().delete(instance, seconds, conflict=conflict)

    def create(self, request: CreateRequest, *, always: bool = False) -> FakeInstance:
        """A second instance that finds no room is not made; its create has succeeded all the same."""
        try:
            return super().create(request, always=always)
        except InsufficientCapacity:
            if not always:
                raise
            return self.owned(request.owner)[0]

    def keep(self, snapshot: FakeSnapshot) -> None:
        super().keep(snapshot)
        if self.watcher is not None:
            self.watcher.captured(self, snapshot)

    def drop_snapshot(self, snapshot: FakeSnapshot) -> None:
        if self.watcher is not None:
            self.watcher.dropping(self, snapshot)
        super().drop_snapshot(snapshot)

    def lose_snapshot(self, snapshot: FakeSnapshot) -> None:
        """It is gone, and nobody asked for that."""
        super().drop_snapshot(snapshot)

    def requests_under_way(self) -> list[CreateRequest]:
        """Creates whose instance will still come, although nobody waits for it."""
        return [request for _, _, request in self._late_creates]

    def _create(self, request: CreateRequest, now: float, *, always: bool) -> FakeInstance:
        instance = super()._create(request, now, always=always)
        if self.watcher is not None:
            self.watcher.made(self, request, instance)
        return instance


class SimAdapter(FakeAdapter):
    """A client whose calls take time, get lost and meet the bugs of their own adapter."""

    def __init__(
        self, pool: str, installation: str, backend: SimBackend, conductor: Conductor, weather: Weather
    ) -> None:
        super().__init__(AdapterContext(pool, installation, FakeConfig(), backend.clock), backend)
        self.sim_backend = backend
        self._conductor = conductor
        self._weather = weather

    def info(self) -> Info:
        return replace(super().info(), create_seconds=self.sim_backend.create_seconds)

    def capabilities(self) -> Capabilities:
        return self._wire(CALL_SECONDS, super().capabilities)

    def capacity(self) -> Capacity:
        return self._wire(CALL_SECONDS, super().capacity)

    def health(self) -> None:
        self._wire(CALL_SECONDS, super().health)

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        watcher = self.sim_backend.watcher
        assert watcher is not None

        def call() -> Instance:
            watcher.create_called(self.sim_backend, request)
            return FakeAdapter.create(self, request, deadline)

        return self._wire(deadline, call)

    def get(self, target: Target) -> Instance:
        return self._wire(CALL_SECONDS, lambda: FakeAdapter.get(self, target))

    def list(self, installation: str) -> Instances:
        return self._wire(CALL_SECONDS, lambda: FakeAdapter.list(self, installation))

    def delete(self, target: Target) -> None:
        self._wire(CALL_SECONDS, lambda: FakeAdapter.delete(self, target))

    def renew(self, target: Target, until: datetime) -> datetime | None:
        return self._wire(CALL_SECONDS, lambda: FakeAdapter.renew(self, target, until))

    def stop(self, target: Target, deadline: float) -> Instance:
        return self._wire(deadline, lambda: FakeAdapter.stop(self, target, deadline))

    def start(self, target: Target, deadline: float) -> Instance:
        return self._wire(deadline, lambda: FakeAdapter.start(self, target, deadline))

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        self._told("pause", target, transition)
        return self._wire(deadline, lambda: FakeAdapter.pause(self, target, transition, deadline))

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        self._told("resume", target, transition)
        return self._wire(deadline, lambda: FakeAdapter.resume(self, target, transition, deadline))

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        return self._wire(deadline, lambda: FakeAdapter.snapshot(self, target, request, deadline))

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return self._wire(CALL_SECONDS, lambda: FakeAdapter.snapshot_get(self, owner, ref))

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        self._wire(CALL_SECONDS, lambda: FakeAdapter.snapshot_delete(self, owner, ref))

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        return self._wire(CALL_SECONDS, lambda: FakeAdapter.port_expose(self, target, port, seconds))

    def port_revoke(self, target: Target, port: int) -> None:
        self._wire(CALL_SECONDS, lambda: FakeAdapter.port_revoke(self, target, port))

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        self._wire(CALL_SECONDS, lambda: FakeAdapter.egress_set(self, target, rules))

    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._wire(deadline, lambda: FakeAdapter.call_off(self, target, transition, deadline))

    def _told(self, what: str, target: Target, transition: Transition) -> None:
        watcher = self.sim_backend.watcher
        assert watcher is not None
        if not transition.observe_only:
            watcher.move_called(what, target.owner.sandbox, transition.operation)

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        return self._wire(CALL_SECONDS, lambda: FakeAdapter.exec(self, target, request, output_bytes_max))

    def _wire(self, seconds: float, call: Callable[[], T]) -> T:
        """The way there, the call, the way back."""
        process = self._conductor.current
        if process is None:
            return call()
        process.expired = False
        process.expires_at = self._clock.monotonic() + seconds
        try:
            self._on_the_way("crash_before_call", "adapter_bug_before")
            if process.expired:
                raise outage()
            result = call()
            self._on_the_way("crash_after_call", "adapter_bug_after", "answer_overtaken_by_deadline")
            if process.expired:
                raise outage()
            return result
        finally:
            process.expires_at = None

    def _on_the_way(self, *kinds: str) -> None:
        if self._weather.strike("pause"):
            self._conductor.park()
        match self._weather.strike(*kinds):
            case "crash_before_call" | "crash_after_call":
                raise Killed
            case "adapter_bug_before" | "adapter_bug_after":
                raise KeyError("a bug of the adapter")
            case "answer_overtaken_by_deadline":
                raise outage()


class SimNudges:
    """Messages that may be lost; what is delivered, when and how often is the schedule's business."""

    MESSAGES_MAX = 300

    def __init__(self, weather: Weather) -> None:
        self.bag: list[Message] = []
        self._weather = weather

    def worker(self, sandbox: str) -> None:
        self._send(Step(SandboxId(sandbox)))

    def cleanup(self, sandbox: str, attempt: int) -> None:
        self._send(Settle(SandboxId(sandbox), attempt))

    def snapshot(self, snapshot: str) -> None:
        self._send(StepSnapshot(SnapshotId(snapshot)))

    def port(self, sandbox: str, port: int) -> None:
        self._send(LookAtPort(SandboxId(sandbox), port))

    def dispatch(self) -> None:
        self._send(Dispatch())

    def closing(self, tenant: str) -> None:
        self._send(Close(tenant))

    def deliver(self, webhook: str) -> None:
        """Lost: a test of webhooks serves their lanes itself."""

    def reconcile(self, pool: str) -> None:
        """Lost: the regular passes come often enough here."""

    def _send(self, message: Message) -> None:
        if self._weather.strike("message_lost"):
            return
        if len(self.bag) >= self.MESSAGES_MAX:
            self.bag.pop(0)
        self.bag.append(message)
