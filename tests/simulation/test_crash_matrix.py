"""Every operation dies at every write and every backend call, one after another, and the sweep alone puts it right.

The simulation samples; this enumerates. Each case is one run of one operation that ends at one place: just before or
just after an effect, or with the effect done and its answer lost. Every message is lost too. Then two sweeps and what
else time brings must leave nothing undone, and in the end nothing at all.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from differently_adapters.providers.fake import (
    Fail,
    FakeAdapter,
    FakeBackend,
    FakeConfig,
    Linger,
    LoseAnswer,
    LoseCall,
    Refuse,
    Slow,
    TooLate,
)
from differently_core.contract import (
    AdapterContext,
    CommandResult,
    CreateRequest,
    Exposure,
    Instance,
    InstanceState,
    Operation,
    Owner,
    SnapshotInfo,
    SnapshotRequest,
    Target,
    Transition,
    Transitioned,
)
from differently_core.errors import DifferentlyError, InsufficientCapacity, ProviderUnavailable, SandboxFailed
from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.exec import ExecRequest
from differently_core.model.pool import PoolState
from differently_core.model.port import OpenPort, PortStatus
from differently_core.model.queue import QueueRow
from differently_core.model.quota import Counter, Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import ENDED, ON_THE_WAY, WAYS, MoveKind, Sandbox, Status
from differently_core.model.snapshot import Snapshot, SnapshotStatus, SnapshotTally, SnapshotUse
from differently_core.operations import cleanup, moves, pools, reconcile, sandboxes, snapshots, tenants, worker
from differently_core.operations.dispatch import dispatch
from differently_core.operations.requests import UpdateSandbox
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome, StoreUnavailable
from tests.support.world import OPERATOR, World

from .monitor import Monitor
from .processes import Killed

T = TypeVar("T")
PLACES_MAX = 60
"""No operation has so many; one that had would need a look."""
DOWN = Refuse(ProviderUnavailable("Connection refused.", settled=True))


class Fuse:
    """Counts the places that an operation comes through, and ends it at one of them."""

    def __init__(self) -> None:
        self.at = 0
        """The place to end at; 0 is never."""
        self.passed = 0
        self.places: list[str] = []

    def pass_(self, place: str, error: BaseException) -> None:
        if self.at == 0:
            return
        self.passed += 1
        if self.passed == self.at:
            self.at = 0
            self.places.append(place)
            raise error

    @contextmanager
    def lit(self, at: int) -> Iterator[None]:
        self.at, self.passed = at, 0
        try:
            yield
        finally:
            self.at = 0


class FusedStore:
    def __init__(self, memory: MemoryStore, fuse: Fuse) -> None:
        self._memory = memory
        self._fuse = fuse
        self.monitor: Monitor | None = None

    def transact(self, actions: Sequence[Action]) -> Outcome:
        self._fuse.pass_("before a write", Killed())
        outcome = self._memory.transact(actions)
        if (
            self.monitor is not None
            and not getattr(outcome, "failed", None)
            and not getattr(outcome, "conflicts", None)
        ):
            self.monitor.committed(actions)
        self._fuse.pass_("after a write", Killed())
        self._fuse.pass_("at the lost answer of a write", StoreUnavailable("No answer."))
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


class FusedAdapter(FakeAdapter):
    def __init__(self, backend: FakeBackend, pool: str, installation: str, fuse: Fuse) -> None:
        super().__init__(AdapterContext(pool, installation, FakeConfig(), backend.clock), backend)
        self._fuse = fuse

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        return self._around("create", lambda: FakeAdapter.create(self, request, deadline))

    def get(self, target: Target) -> Instance:
        return self._around("get", lambda: FakeAdapter.get(self, target))

    def delete(self, target: Target) -> None:
        self._around("delete", lambda: FakeAdapter.delete(self, target))

    def stop(self, target: Target, deadline: float) -> Instance:
        return self._around("stop", lambda: FakeAdapter.stop(self, target, deadline))

    def start(self, target: Target, deadline: float) -> Instance:
        return self._around("start", lambda: FakeAdapter.start(self, target, deadline))

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._around("pause", lambda: FakeAdapter.pause(self, target, transition, deadline))

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._around("resume", lambda: FakeAdapter.resume(self, target, transition, deadline))

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        return self._around("snapshot", lambda: FakeAdapter.snapshot(self, target, request, deadline))

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return self._around("snapshot_get", lambda: FakeAdapter.snapshot_get(self, owner, ref))

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        self._around("snapshot_delete", lambda: FakeAdapter.snapshot_delete(self, owner, ref))

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        return self._around("port_expose", lambda: FakeAdapter.port_expose(self, target, port, seconds))

    def port_revoke(self, target: Target, port: int) -> None:
        self._around("port_revoke", lambda: FakeAdapter.port_revoke(self, target, port))

    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._around("call_off", lambda: FakeAdapter.call_off(self, target, transition, deadline))

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        return self._around("exec", lambda: FakeAdapter.exec(self, target, request, output_bytes_max))

    def _around(self, operation: str, call: Callable[[], T]) -> T:
        self._fuse.pass_(f"before {operation}", Killed())
        result = call()
        self._fuse.pass_(f"after {operation}", Killed())
        self._fuse.pass_(f"at the lost answer of {operation}", ProviderUnavailable("No answer."))
        return result


class Stage:
    """A world with a fuse, watched by the simulation's monitor from the beginning."""

    def __init__(self, *, idempotent: bool) -> None:
        self.fuse = Fuse()
        monitors: list[FusedStore] = []

        def wrap(memory: MemoryStore) -> FusedStore:
            monitors.append(FusedStore(memory, self.fuse))
            return monitors[0]

        self.world = World(wrap=wrap)
        self.backends = {
            name: FakeBackend(self.world.clock, idempotent_create=idempotent, name=name) for name in ("pool", "other")
        }
        self.world.add_pool("pool", self.backends["pool"], concurrency=2)
        self.world.add_pool("other", self.backends["other"], concurrency=2, cpu_hour=1.0)
        installation = self.world.core.catalog.installation().id
        for name, backend in self.backends.items():
            self.world.pools.serve(name, FusedAdapter(backend, name, installation, self.fuse))
        self.monitor = Monitor(self.world.memory, self.world.clock, Tally())
        self.monitor.ours = installation
        self.monitor.take_over()
        monitors[0].monitor = self.monitor

    def sandbox(self, status: Status, key: str | None = None, **request: Any) -> SandboxId:
        """One that has come so far, all messages delivered."""
        sandbox = self.world.create(key, **request)
        if status is not Status.PROVISIONING:
            self.world.deliver_all()
        self.world.lose_messages()
        assert self.world.status(sandbox) is status
        return sandbox

    def come_right(self) -> None:
        """Messages are lost; the sweep finds everything. A minute between sweeps, as deployed."""
        self.world.lose_messages()
        for _ in range(12):
            self.world.pass_time(60)
            pools.probe_all(self.world.core)
            self.world.deliver_all()
        self.monitor.check_everything()
        assert self.unrest() == []

    def unrest(self) -> list[str]:
        found = [
            f"{row.id} is {row.status}"
            for row in self.world.rows(Sandbox)
            if row.status in ON_THE_WAY | {Status.PROVISIONING, Status.TERMINATING}
        ]
        found += [
            f"{row.id} still awaits its snapshot"
            for row in self.world.rows(Sandbox)
            if row.awaits_snapshot and row.status is Status.QUEUED
        ]
        found += [
            f"{row.id} is {row.status}"
            for row in self.world.rows(Snapshot)
            if row.status in (SnapshotStatus.CREATING, SnapshotStatus.DELETING) or row.fork is not None
        ]
        found += [
            f"port {row.port} is {row.status}" for row in self.world.rows(OpenPort) if row.status is not PortStatus.OPEN
        ]
        open_ones = (AttemptState.CALLING, AttemptState.DEBT)
        return found + [
            f"attempt {row.number} is {row.status}" for row in self.world.rows(Attempt) if row.status in open_ones
        ]

    def end_all(self) -> None:
        """Then everything is deleted, and nothing is left."""
        for row in self.world.rows(Sandbox):
            sandboxes.delete(self.world.core, OPERATOR, row.id)
        for kept in self.world.rows(Snapshot):
            snapshots.delete(self.world.core, OPERATOR, kept.id)
        self.come_right()
        assert {row.status for row in self.world.rows(Sandbox)} <= ENDED
        assert self.world.rows(QueueRow) == []
        assert [counter.held.sandboxes for counter in self.world.rows(Counter)] == [0] * len(self.world.rows(Counter))
        assert [backend.instances() for backend in self.backends.values()] == [[], []]
        assert [backend.snapshots() for backend in self.backends.values()] == [[], []]
        assert [row for kind in (Snapshot, SnapshotUse, OpenPort) for row in self.world.rows(kind)] == []
        assert {(tally.count, tally.bytes) for tally in self.world.rows(SnapshotTally)} <= {(0, 0)}


Act = Callable[[], object]


@dataclass(frozen=True)
class Scenario:
    """`prepare` sets the stage and gives the operation that is to die."""

    name: str
    prepare: Callable[[Stage], Act]
    idempotent: bool = True


def _create(stage: Stage) -> Act:
    return lambda: stage.world.create("k", env={"A": "1"})


def _create_behind(stage: Stage) -> Act:
    pools.set_state(stage.world.core, OPERATOR, "pool", PoolState.DRAINING)
    pools.set_state(stage.world.core, OPERATOR, "other", PoolState.DRAINING)
    return lambda: stage.world.create("k", env={"A": "1"}, queueTimeoutSeconds=300)


def _step(*faults: Any, operation: Operation = Operation.CREATE) -> Callable[[Stage], Act]:
    def prepare(stage: Stage) -> Act:
        sandbox = stage.sandbox(Status.PROVISIONING)
        stage.backends["pool"].expect(operation, *faults)
        return lambda: worker.step(stage.world.core, sandbox)

    return prepare


def _observe(stage: Stage) -> Act:
    """The first answer was lost; the second step is the one that dies."""
    sandbox = stage.sandbox(Status.PROVISIONING)
    stage.backends["pool"].expect(Operation.CREATE, LoseCall())
    worker.step(stage.world.core, sandbox)
    stage.world.clock.advance(2)
    return lambda: worker.step(stage.world.core, sandbox)


def _terminate(*faults: Any) -> Callable[[Stage], Act]:
    def prepare(stage: Stage) -> Act:
        sandbox = stage.sandbox(Status.RUNNING, "k", env={"A": "1"})
        sandboxes.delete(stage.world.core, stage.world.caller, sandbox)
        stage.backends["pool"].expect(Operation.DELETE, *faults)
        return lambda: worker.step(stage.world.core, sandbox)

    return prepare


def _delete(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING, "k")
    return lambda: sandboxes.delete(stage.world.core, stage.world.caller, sandbox)


def _update(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING)
    change = UpdateSandbox(ttl_seconds=50_000, labels={"n": "1"})
    return lambda: sandboxes.update(stage.world.core, stage.world.caller, sandbox, change)


def _expire(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING, "k", ttlSeconds=10)
    stage.world.clock.advance(10)
    return lambda: worker.step(stage.world.core, sandbox)


def _lose_patience(stage: Stage) -> Act:
    """Its organization may have none at once, so nothing but its patience ends its waiting."""
    stage.sandbox(Status.RUNNING)
    full = Limits(total=Size.unlimited().model_copy(update={"sandboxes": 1}))
    tenants.set_quota(stage.world.core, OPERATOR, stage.world.org.id, None, full)
    waiting = stage.sandbox(Status.QUEUED, "k", env={"A": "1"}, queueTimeoutSeconds=10)
    stage.world.clock.advance(10)
    return lambda: worker.step(stage.world.core, waiting)


def _dispatch(stage: Stage) -> Act:
    for name in ("pool", "other"):
        pools.set_state(stage.world.core, OPERATOR, name, PoolState.DRAINING)
    for _ in range(6):
        stage.sandbox(Status.QUEUED)
    for name in ("pool", "other"):
        pools.set_state(stage.world.core, OPERATOR, name, PoolState.ACTIVE)
    stage.world.lose_messages()
    return lambda: dispatch(stage.world.core)


def _name_a_debt(stage: Stage) -> Act:
    """Nobody knows yet which instance the failed create has left."""
    sandbox = stage.sandbox(Status.PROVISIONING)
    stage.backends["pool"].expect(Operation.CREATE, Fail(leaves=True))
    worker.step(stage.world.core, sandbox)
    stage.world.lose_messages()
    return lambda: cleanup.settle(stage.world.core, sandbox, 1)


def _settle(stage: Stage) -> Act:
    act = _name_a_debt(stage)
    act()
    stage.world.lose_messages()
    stage.world.clock.advance(120)
    return act


def _lose(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING, "k")
    ref = stage.world.sandbox(sandbox).backend_ref
    assert ref is not None
    stage.backends["pool"].vanish(ref)
    reconcile.reconcile(stage.world.core, "pool")
    stage.world.clock.advance(60)
    return lambda: reconcile.reconcile(stage.world.core, "pool")


def _before(stage: Stage, kind: MoveKind) -> SandboxId:
    sandbox = stage.sandbox(Status.RUNNING, "k", env={"A": "1"})
    if WAYS[kind].wakes:
        back = MoveKind.STOP if kind is MoveKind.START else MoveKind.PAUSE
        moves.ask(stage.world.core, stage.world.caller, sandbox, back)
        stage.world.deliver_all()
    return sandbox


def _ask(kind: MoveKind, *, room: bool = True) -> Callable[[Stage], Act]:
    def prepare(stage: Stage) -> Act:
        sandbox = _before(stage, kind)
        if not room:
            none = Limits(total=Size.unlimited().model_copy(update={"sandboxes": 0}))
            tenants.set_quota(stage.world.core, OPERATOR, stage.world.org.id, None, none)
        stage.world.lose_messages()
        return lambda: moves.ask(stage.world.core, stage.world.caller, sandbox, kind)

    return prepare


def _move(kind: MoveKind, *faults: Any) -> Callable[[Stage], Act]:
    def prepare(stage: Stage) -> Act:
        sandbox = _before(stage, kind)
        moves.ask(stage.world.core, stage.world.caller, sandbox, kind)
        stage.backends["pool"].expect(Operation(kind.value), *faults)
        stage.world.lose_messages()
        return lambda: worker.step(stage.world.core, sandbox)

    return prepare


def _look(kind: MoveKind) -> Callable[[Stage], Act]:
    """The first answer was lost; the look at what became of it is the step that dies."""

    def prepare(stage: Stage) -> Act:
        act = _move(kind, LoseAnswer())(stage)
        act()
        stage.world.lose_messages()
        stage.world.clock.advance(2)
        return act

    return prepare


def _wake_by_dispatch(stage: Stage) -> Act:
    act = _ask(MoveKind.RESUME, room=False)(stage)
    act()
    tenants.set_quota(stage.world.core, OPERATOR, stage.world.org.id, None, Limits())
    stage.world.lose_messages()
    return lambda: dispatch(stage.world.core)


def _call_off(stage: Stage) -> Act:
    """It is being paused, for a long time, and wanted back."""
    stage.backends["pool"].expect(Operation.PAUSE, Slow(100.0))
    sandbox = _before(stage, MoveKind.PAUSE)
    moves.ask(stage.world.core, stage.world.caller, sandbox, MoveKind.PAUSE)
    worker.step(stage.world.core, sandbox)
    moves.ask(stage.world.core, stage.world.caller, sandbox, MoveKind.RESUME)
    stage.world.lose_messages()
    return lambda: worker.step(stage.world.core, sandbox)


def _too_late(stage: Stage) -> Act:
    """The pause cannot be called off: it comes to its end, and back in its turn."""
    act = _call_off(stage)
    stage.backends["pool"].expect(Operation.CALL_OFF, TooLate())
    act()
    stage.world.lose_messages()
    stage.world.clock.advance(100)
    return act


def _fall_asleep(stage: Stage) -> Act:
    sandbox = stage.sandbox(Status.RUNNING, "k", idleTimeoutSeconds=60)
    stage.world.clock.advance(90)
    return lambda: worker.step(stage.world.core, sandbox)


def _make_room(stage: Stage) -> Act:
    for _ in range(2):
        stage.sandbox(Status.RUNNING, preemptible=True, placement={"allowedPools": ["pool"]}, ttlSeconds=100_000)
    stage.world.clock.advance(90)
    stage.sandbox(Status.PROVISIONING, placement={"allowedPools": ["other"]})
    stage.world.create(placement={"allowedPools": ["pool"]})
    stage.world.lose_messages()
    return lambda: dispatch(stage.world.core)


def _woken_by_itself(stage: Stage) -> Act:
    _before(stage, MoveKind.RESUME)
    (instance,) = stage.backends["pool"].instances()
    instance.state = InstanceState.RUNNING
    reconcile.reconcile(stage.world.core, "pool")
    stage.world.lose_messages()
    stage.world.clock.advance(60)
    return lambda: reconcile.reconcile(stage.world.core, "pool")


def _set_quota(stage: Stage) -> Act:
    stage.sandbox(Status.RUNNING)
    fewer = Limits(total=Size.unlimited().model_copy(update={"sandboxes": 5}))
    return lambda: tenants.set_quota(stage.world.core, OPERATOR, stage.world.org.id, None, fewer)


def _drain(stage: Stage) -> Act:
    stage.sandbox(Status.RUNNING)
    return lambda: pools.set_state(stage.world.core, OPERATOR, "pool", PoolState.DRAINING)


FULL, BROKEN = InsufficientCapacity("Full."), SandboxFailed("It never became ready.", settled=True)
SCENARIOS = (
    Scenario("create, with room", _create),
    Scenario("create, without room", _create_behind),
    Scenario("step, and it runs", _step()),
    Scenario("step, not idempotent", _step(), idempotent=False),
    Scenario("step, backend full", _step(Refuse(FULL))),
    Scenario("step, instance failed", _step(Fail(leaves=True))),
    Scenario("step, refused", _step(Refuse(BROKEN))),
    Scenario("step, backend down", _step(DOWN)),
    Scenario("step, answer lost", _step(LoseCall())),
    Scenario("step, answer lost, not idempotent", _step(LoseCall()), idempotent=False),
    Scenario("step, no command runs", _step(LoseCall(), operation=Operation.EXEC)),
    Scenario("look again", _observe),
    Scenario("look again, not idempotent", _observe, idempotent=False),
    Scenario("terminate", _terminate()),
    Scenario("terminate, delete refused", _terminate(DOWN)),
    Scenario("terminate, delete lingers", _terminate(Linger(30.0))),
    Scenario("delete", _delete),
    Scenario("update", _update),
    Scenario("expire", _expire),
    Scenario("lose patience", _lose_patience),
    Scenario("dispatch", _dispatch),
    Scenario("name a debt", _name_a_debt),
    Scenario("settle", _settle),
    Scenario("instance lost", _lose),
    *(Scenario(f"ask to {kind}", _ask(kind)) for kind in MoveKind),
    *(Scenario(f"ask to {kind}, without room", _ask(kind, room=False)) for kind in (MoveKind.START, MoveKind.RESUME)),
    *(Scenario(kind.value, _move(kind)) for kind in MoveKind),
    *(Scenario(f"{kind}, refused", _move(kind, DOWN)) for kind in MoveKind),
    *(Scenario(f"{kind}, never arrived", _move(kind, LoseCall())) for kind in MoveKind),
    *(Scenario(f"{kind}, looked at", _look(kind)) for kind in MoveKind),
    Scenario("start, backend full", _move(MoveKind.START, Refuse(FULL))),
    Scenario("resumed by dispatch", _wake_by_dispatch),
    Scenario("woken by itself", _woken_by_itself),
    Scenario("call off", _call_off),
    Scenario("call off, too late", _too_late),
    Scenario("fall asleep", _fall_asleep),
    Scenario("make room", _make_room),
    Scenario("set quota", _set_quota),
    Scenario("drain", _drain),
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_an_operation_that_dies_anywhere_is_put_right(scenario: Scenario):
    dies_everywhere(scenario)


def dies_everywhere(scenario: Scenario) -> None:
    died = 0
    for at in range(1, PLACES_MAX):
        stage = Stage(idempotent=scenario.idempotent)
        act = scenario.prepare(stage)
        with stage.fuse.lit(at), suppress(Killed, DifferentlyError):
            act()
        if not stage.fuse.places:
            break
        died += 1
        stage.come_right()
        stage.end_all()
    else:
        pytest.fail(f"{scenario.name} comes through more than {PLACES_MAX} places")
    assert died >= 3, "an operation that writes has at least these places"


@pytest.mark.parametrize("at", range(1, 8))
def test_a_create_that_died_is_repeated_with_its_key(at: int):
    """Whatever became of the first call, the second one is answered with one sandbox, and there is only one."""
    stage = Stage(idempotent=True)
    with stage.fuse.lit(at), suppress(Killed, DifferentlyError):
        stage.world.create("k")

    again = stage.world.create("k")
    stage.world.pass_time(2)  # the message about the first one died with it

    assert [row.id for row in stage.world.rows(Sandbox)] == [again]
    assert stage.world.status(again) is Status.RUNNING
    assert stage.world.held(Scope.ORG, stage.world.org.id) == 1
