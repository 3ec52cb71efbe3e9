"""Two or three operations on one sandbox, in every order of their steps that makes a difference.

The simulation meets such orders by chance; here none is left out. After every write the simulation's monitor judges
quotas, transitions and what was handed out; at the end of each order everything must come right, and then end.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from differently_adapters.providers.fake import FakeBackend
from differently_core.errors import BackendError, DifferentlyError, Internal
from differently_core.model.exec import ExecRequest
from differently_core.model.pool import PoolState
from differently_core.model.sandbox import GONE, MoveKind, Status
from differently_core.operations import execution, forking, moves, pools, reconcile, sandboxes, snapshots, use, worker
from differently_core.operations.dispatch import dispatch
from differently_core.operations.forking import ForkSandbox
from differently_core.operations.requests import UpdateSandbox
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome, Put
from tests.support.scale import PROVING, scaled
from tests.support.world import OPERATOR, World

from .interleavings import Broken, Run, SteppedAdapter, SteppedStore, Turns, explore, pairs
from .monitor import Monitor
from .test_crash_matrix import Stage

RUNS_MAX = scaled(400, 20_000)


class SteppedStage(Stage):
    """The stage of the crash matrix, with steps instead of a fuse."""

    def __init__(self) -> None:
        stores: list[SteppedStore] = []

        def wrap(memory: MemoryStore) -> SteppedStore:
            stores.append(SteppedStore(memory))
            return stores[0]

        self.world = World(wrap=wrap)
        self.backends = {
            name: FakeBackend(self.world.clock, idempotent_create=False, name=name) for name in ("pool", "other")
        }
        self.world.add_pool("pool", self.backends["pool"], concurrency=4)
        self.world.add_pool("other", self.backends["other"], concurrency=4, cpu_hour=1.0)
        installation = self.world.core.catalog.installation().id
        self.adapters = {name: SteppedAdapter(name, installation, backend) for name, backend in self.backends.items()}
        for name, adapter in self.adapters.items():
            self.world.pools.serve(name, adapter)
        self.monitor = Monitor(self.world.memory, self.world.clock, Tally())
        self.monitor.ours = installation
        self.monitor.take_over()
        self.store = stores[0]
        self.store.watcher = self.monitor.committed

    def lead(self, turns: Turns | None) -> None:
        self.store.turns = turns
        for adapter in self.adapters.values():
            adapter.turns = turns

    # Where a sandbox may stand.

    def queued(self) -> SandboxId:
        for state in (PoolState.DRAINING, PoolState.ACTIVE):
            if state is PoolState.ACTIVE:
                sandbox = self.world.create("key", queueTimeoutSeconds=3600)
                self.world.deliver_all()
            for pool in self.backends:
                pools.set_state(self.world.core, OPERATOR, pool, state)
        self.world.lose_messages()
        return sandbox

    def provisioning(self) -> SandboxId:
        return self.sandbox(Status.PROVISIONING, "key")

    def running(self) -> SandboxId:
        return self.sandbox(Status.RUNNING, "key")

    def pausing(self) -> SandboxId:
        return self._asked(self.running(), MoveKind.PAUSE)

    def paused(self) -> SandboxId:
        return self._arrived(self.pausing())

    def stopping(self) -> SandboxId:
        return self._asked(self.running(), MoveKind.STOP)

    def stopped(self) -> SandboxId:
        return self._arrived(self.stopping())

    def resuming(self) -> SandboxId:
        return self._asked(self.paused(), MoveKind.RESUME)

    def terminating(self) -> SandboxId:
        sandbox = self.running()
        self.world.delete(sandbox)
        self.world.lose_messages()
        return sandbox

    def _asked(self, sandbox: SandboxId, kind: MoveKind) -> SandboxId:
        moves.ask(self.world.core, self.world.caller, sandbox, kind)
        self.world.lose_messages()
        return sandbox

    def _arrived(self, sandbox: SandboxId) -> SandboxId:
        worker.step(self.world.core, sandbox)
        self.world.deliver_all()
        return sandbox


STATES: dict[str, Callable[[SteppedStage], SandboxId]] = {
    state.__name__: state
    for state in (
        SteppedStage.queued, SteppedStage.provisioning, SteppedStage.running, SteppedStage.pausing,
        SteppedStage.paused, SteppedStage.stopping, SteppedStage.stopped, SteppedStage.resuming,
        SteppedStage.terminating,
    )
}  # fmt: skip
Act = Callable[[SteppedStage, SandboxId], object]


def _move(kind: MoveKind) -> Act:
    return lambda stage, sandbox: moves.ask(stage.world.core, stage.world.caller, sandbox, kind)


def _update(stage: SteppedStage, sandbox: SandboxId) -> object:
    change = UpdateSandbox(ttl_seconds=50_000, labels={"n": "1"})
    return sandboxes.update(stage.world.core, stage.world.caller, sandbox, change)


def _exec(stage: SteppedStage, sandbox: SandboxId) -> object:
    return execution.run(stage.world.core, stage.world.caller, sandbox, ExecRequest(command="true", timeout_seconds=5))


OPERATIONS: dict[str, Act] = {
    "delete": lambda stage, sandbox: stage.world.delete(sandbox),
    "step": lambda stage, sandbox: worker.step(stage.world.core, sandbox),
    "pause": _move(MoveKind.PAUSE),
    "resume": _move(MoveKind.RESUME),
    "stop": _move(MoveKind.STOP),
    "start": _move(MoveKind.START),
    "update": _update,
    "exec": _exec,
    "keep alive": lambda stage, sandbox: use.keep_alive(stage.world.core, stage.world.caller, sandbox),
    "create": lambda stage, sandbox: stage.world.create("key"),
    "dispatch": lambda stage, sandbox: dispatch(stage.world.core),
    "reconcile": lambda stage, sandbox: reconcile.reconcile(stage.world.core, "pool"),
    "snapshot": lambda stage, sandbox: snapshots.take(
        stage.world.core, stage.world.caller, sandbox, TakeSnapshot(), None
    ),
    "fork": lambda stage, sandbox: forking.fork(stage.world.core, stage.world.caller, sandbox, ForkSandbox(), None),
}


def prepared(state: str, *operations: str) -> Callable[[], Run]:
    def prepare() -> Run:
        stage = SteppedStage()
        sandbox = STATES[state](stage)
        acknowledged: list[str] = []

        def act(name: str) -> Callable[[], object]:
            def run() -> None:
                try:
                    OPERATIONS[name](stage, sandbox)
                except Internal:
                    raise
                except (DifferentlyError, BackendError):
                    return  # an answer like another
                acknowledged.append(name)

            return run

        def check() -> None:
            if "delete" in acknowledged:
                assert stage.world.status(sandbox) in GONE, "I6: it lives after its delete was acknowledged"
            stage.come_right()
            stage.end_all()

        acts = {f"{name} {number}": act(name) for number, name in enumerate(operations, 1)}
        return Run(acts, stage.lead, check)

    return prepare


PAIRS = [(state, *pair) for state in STATES for pair in pairs(list(OPERATIONS))]
WITH_EVERY_CHANGE = [
    ("provisioning", "delete", "step"), ("provisioning", "step", "step"), ("running", "delete", "pause"),
    ("pausing", "step", "resume"), ("paused", "resume", "delete"), ("resuming", "step", "delete"),
    ("stopping", "step", "step"), ("queued", "dispatch", "dispatch"), ("queued", "dispatch", "delete"),
    ("running", "reconcile", "stop"), ("running", "snapshot", "delete"), ("running", "create", "delete"),
    ("running", "update", "delete"), ("terminating", "step", "create"),
]  # fmt: skip
TRIPLES = [
    ("provisioning", "step", "step", "delete"), ("pausing", "step", "resume", "delete"),
    ("paused", "resume", "resume", "delete"), ("queued", "dispatch", "delete", "update"),
    ("running", "create", "delete", "create"), ("resuming", "step", "pause", "delete"),
    ("terminating", "step", "create", "delete"), ("running", "pause", "stop", "delete"),
]  # fmt: skip


@pytest.mark.parametrize("case", WITH_EVERY_CHANGE, ids=" ".join)
def test_every_order_of_two_operations_holds(case: tuple[str, ...]) -> None:
    assert explore(prepared(*case), RUNS_MAX) > 1


@pytest.mark.parametrize("case", [*PAIRS, *TRIPLES] if PROVING else [], ids=" ".join)
def test_every_order_of_any_operations_holds(case: tuple[str, ...]) -> None:
    explore(prepared(*case), RUNS_MAX)


def test_an_order_that_breaks_something_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that admits whatever became of its sandbox meanwhile: only one place of the other makes it show."""
    monkeypatch.setattr(SteppedStore, "transact", _heedless)
    with pytest.raises(Broken, match=r"step 2 .*delete 1"):
        explore(prepared("provisioning", "delete", "step"), RUNS_MAX)


_transact = SteppedStore.transact


def _heedless(self: SteppedStore, actions: Sequence[Action]) -> Outcome:
    def unconditional(action: Action) -> Action:
        admits = isinstance(action, Put) and getattr(action.record, "status", None) is Status.RUNNING
        return replace(action, when=()) if admits else action

    return _transact(self, [unconditional(action) for action in actions])
