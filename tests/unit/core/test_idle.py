"""Idle sandboxes: what counts as use, when one is put to rest, what wakes it, and who wins a race."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend, FakeInstance, Refuse
from differently_adapters.providers.fake.backend import FEATURES
from differently_core.contract import Capabilities, CommandResult, InstanceState, Operation, Unsupported
from differently_core.errors import InvalidState, SandboxFailed, UnsupportedOperation
from differently_core.model.exec import ExecRequest
from differently_core.model.quota import Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.operations import execution, idle, moves, reconcile, sandboxes, sweep, tenants, use, worker
from differently_core.operations.requests import UpdateSandbox
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome, Update
from tests.support.world import OPERATOR, World

TRUE = ExecRequest(command="true")


def running(world: World, **request: object) -> SandboxId:
    sandbox = world.create(**{"idleTimeoutSeconds": 60, **request})
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def asleep(world: World, **request: object) -> SandboxId:
    sandbox = running(world, **request)
    world.pass_time(90)
    assert world.status(sandbox) is Status.PAUSED
    world.lose_messages()
    return sandbox


def run(world: World, sandbox: SandboxId, request: ExecRequest = TRUE) -> CommandResult:
    return execution.run(world.core, world.caller, sandbox, request)


def held(world: World) -> int:
    return world.held(Scope.ORG, world.org.id)


# Going to sleep.


def test_what_nobody_uses_is_paused_and_gives_its_quota_back(world: World, backend: FakeBackend):
    """features.md 1: idle past its timeout it is idled. Use is noted coarsely, so never too early."""
    sandbox = running(world)

    world.pass_time(89.9)
    assert world.status(sandbox) is Status.RUNNING
    world.pass_time(0.1)

    found = world.sandbox(sandbox)
    assert (found.status, found.idled) == (Status.PAUSED, True)
    assert found.reason is not None
    assert (found.reason.code, found.reason.source) == ("idle", "timer")
    assert held(world) == 0


def test_a_pool_that_keeps_no_memory_stops_it(world: World, backend: FakeBackend):
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    without = {name: Unsupported("not_here") for name in (Operation.PAUSE, Operation.RESUME, Operation.CALL_OFF)}
    adapter.operations = {**adapter.operations, **without}  # type: ignore[misc]  # of this one instance
    sandbox = running(world)

    world.pass_time(90)
    assert (world.status(sandbox), world.sandbox(sandbox).idled) == (Status.STOPPED, True)

    run(world, sandbox)
    assert world.status(sandbox) is Status.RUNNING


def test_a_pool_that_can_neither_leaves_it_running_and_says_so(world: World, backend: FakeBackend):
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    moving = (Operation.PAUSE, Operation.RESUME, Operation.CALL_OFF, Operation.STOP, Operation.START)
    adapter.operations = {**adapter.operations, **dict.fromkeys(moving, Unsupported("not_here"))}  # type: ignore[misc]
    sandbox = running(world)

    world.pass_time(1000)

    assert world.status(sandbox) is Status.RUNNING
    shown = sandboxes.view(world.caller, world.sandbox(sandbox))
    assert (shown.idle_timeout_seconds, shown.effective.idle_timeout_seconds, shown.idle_at) == (60, None, None)


def test_a_pool_that_puts_its_own_to_sleep_is_left_alone_and_followed(world: World):
    """features.md 1, native idle pools; features.md 2 #29."""
    native = Capabilities(features=FEATURES, idles_by_itself=True)
    backend = world.add_pool(backend=FakeBackend(world.clock, capabilities=native, idle_seconds=300.0))
    sandbox = running(world)

    world.pass_time(200)
    assert world.status(sandbox) is Status.RUNNING
    assert backend.calls[Operation.PAUSE] == 0
    world.pass_time(200)
    for _ in range(2):
        reconcile.reconcile_all(world.core)
        world.pass_time(31)

    assert (world.status(sandbox), world.sandbox(sandbox).idled) == (Status.PAUSED, True)
    assert held(world) == 0
    run(world, sandbox)
    assert world.status(sandbox) is Status.RUNNING
    assert held(world) == 1


@pytest.mark.parametrize("timeout", [None, 0])
def test_without_a_timeout_it_never_sleeps(world: World, backend: FakeBackend, timeout: int | None):
    sandbox = running(world, idleTimeoutSeconds=timeout, ttlSeconds=86_400)

    world.pass_time(86_000)

    assert world.status(sandbox) is Status.RUNNING


def test_a_pause_that_fails_is_not_tried_again_at_once(world: World, backend: FakeBackend):
    sandbox = running(world)
    backend.expect(Operation.PAUSE, Refuse(SandboxFailed("Not now.", settled=True)))

    world.pass_time(90)
    assert (world.status(sandbox), world.sandbox(sandbox).idled) == (Status.RUNNING, False)
    world.pass_time(60)
    assert backend.calls[Operation.PAUSE] == 1

    world.pass_time(30)
    assert world.status(sandbox) is Status.PAUSED


def test_a_pause_that_is_never_offered_is_tried_once(world: World, backend: FakeBackend):
    """features.md 2 #13: some runtimes accept a pause and never begin it."""
    sandbox = running(world)
    error = UnsupportedOperation("It never begins.", operation="pause", pool="pool", adapter="fake")
    backend.expect(Operation.PAUSE, Refuse(error))

    for _ in range(5):
        world.pass_time(90)

    assert world.status(sandbox) is Status.RUNNING
    assert backend.calls[Operation.PAUSE] == 1


# What counts as use.


def test_commands_and_keep_alive_count_and_reading_does_not(world: World, backend: FakeBackend):
    """users/reports.md: idle timers that polling resets for ever; features.md 1: gets and lists never count."""
    sandbox = running(world)
    uses: list[Callable[[], object]] = [
        lambda: run(world, sandbox),
        lambda: list(execution.stream(world.core, world.caller, sandbox, TRUE)),
        lambda: execution.write_file(world.core, world.caller, sandbox, "a", [b"x"]),
        lambda: use.keep_alive(world.core, world.caller, sandbox),
    ]
    for used in uses:
        world.pass_time(80)
        used()
    for _ in range(8):
        world.pass_time(10)
        sandboxes.find(world.core, world.caller, sandbox)
        sandboxes.list_sandboxes(world.core, world.caller, sandboxes.ListQuery())
        sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(labels={"a": "b"}))
    assert world.status(sandbox) is Status.RUNNING

    world.pass_time(10)

    assert world.status(sandbox) is Status.PAUSED


def test_a_command_counts_until_it_ends(world: World, backend: FakeBackend):
    """features.md 2 #61: a pause in the middle of a command."""
    sandbox = running(world)
    seen: list[Sandbox] = []
    backend.exec_function = _that_takes(world, sandbox, 200.0, seen)

    run(world, sandbox, ExecRequest(command="make", timeout_seconds=240))

    assert [row.status for row in seen] == [Status.RUNNING] * 4, "the sweep came by, and left it alone"
    assert seen[0].busy_with == "command"
    after = world.sandbox(sandbox)
    assert (after.busy_with, after.busy_until) == (None, None)
    world.pass_time(89)
    assert world.status(sandbox) is Status.RUNNING
    world.pass_time(1)
    assert world.status(sandbox) is Status.PAUSED


def _that_takes(world: World, sandbox: SandboxId, seconds: float, seen: list[Sandbox]) -> Callable[..., CommandResult]:
    def take(instance: FakeInstance, request: ExecRequest) -> CommandResult:
        for _ in range(4):
            world.pass_time(seconds / 4)
            seen.append(world.sandbox(sandbox))
        return CommandResult(0, b"", b"", 0)

    return take


def test_a_short_command_writes_no_lease(world: World, backend: FakeBackend):
    """The hot path: what cannot outlast the idle moment need not be said."""
    sandbox = running(world, idleTimeoutSeconds=600)
    version = world.sandbox(sandbox).version

    for _ in range(5):
        run(world, sandbox)

    assert world.sandbox(sandbox).version == version


def test_two_streams_and_the_longer_one_keeps_it_awake(world: World, backend: FakeBackend):
    sandbox = running(world)
    long, short = (
        execution.stream(world.core, world.caller, sandbox, ExecRequest(command="x", timeout_seconds=seconds))
        for seconds in (600, 200)
    )
    next(long), next(short)
    assert world.sandbox(sandbox).busy_with == "command command"

    list(short)
    world.pass_time(300)
    assert world.status(sandbox) is Status.RUNNING
    assert world.sandbox(sandbox).busy_with == "command"

    list(long)
    world.pass_time(90)
    assert world.status(sandbox) is Status.PAUSED


class Crowded:
    """A store in which somebody else always writes first, so many times."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self.others = 0

    def transact(self, actions: Sequence[Action]) -> Outcome:
        for action in actions:
            if self.others and isinstance(action, Update) and "busy_until" in action.set:
                self.others -= 1
                self._memory.transact([Update(Sandbox, action.key, "sandbox", add={"version": 1})])
        return self._memory.transact(actions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


def test_many_long_commands_that_begin_at_once_each_get_their_turn():
    """Each notes that it runs in the one record of the sandbox, so they meet there."""
    stores: list[Crowded] = []

    def wrap(memory: MemoryStore) -> Crowded:
        stores.append(Crowded(memory))
        return stores[0]

    world = World(wrap=wrap)
    world.add_pool()
    sandbox = running(world)
    stores[0].others = 20

    run(world, sandbox, ExecRequest(command="x", timeout_seconds=200))

    assert stores[0].others == 0
    assert world.sandbox(sandbox).busy_with is None


def test_a_call_whose_process_died_keeps_it_awake_no_longer_than_its_command(world: World, backend: FakeBackend):
    sandbox = running(world)
    place = execution.reach(world.core, world.caller, sandbox, Operation.EXEC, 240.0)
    assert place.lease.until == world.clock.now() + timedelta(seconds=240)

    world.pass_time(239)
    assert world.status(sandbox) is Status.RUNNING
    world.pass_time(1)

    assert world.status(sandbox) is Status.PAUSED


def test_a_job_counts_until_it_ends_and_not_until_its_timeout(world: World, backend: FakeBackend):
    sandbox = running(world, ttlSeconds=86_400)
    backend.exec_function = lambda *_: CommandResult(0, b"", b"", 1_000_000)
    execution.start_job(world.core, world.caller, sandbox, ExecRequest(command="x", timeout_seconds=8000), "build")
    assert sandboxes.view(world.caller, world.sandbox(sandbox)).busy_with == ["job:build"]

    for _ in range(15):
        world.pass_time(60)
    assert world.status(sandbox) is Status.RUNNING, "it runs for 1,000 s"
    for _ in range(5):
        world.pass_time(60)

    assert world.status(sandbox) is Status.PAUSED


def test_a_job_that_was_seen_to_end_keeps_nothing_awake(world: World, backend: FakeBackend):
    sandbox = running(world)
    request = ExecRequest(command="x", timeout_seconds=8000)
    for job in ("one", "two"):
        execution.start_job(world.core, world.caller, sandbox, request, job)
    assert world.sandbox(sandbox).busy_with == "job:one job:two"

    for job in ("one", "two"):
        execution.job_status(world.core, world.caller, sandbox, job)

    assert world.sandbox(sandbox).busy_with is None


def test_more_at_once_than_are_told_apart_count_together(world: World, backend: FakeBackend):
    sandbox = running(world)
    for number in range(20):
        execution.start_job(
            world.core, world.caller, sandbox, ExecRequest(command="x", timeout_seconds=1000), f"job-{number}"
        )

    found = world.sandbox(sandbox)
    assert found.busy_with is not None
    assert found.busy_with.startswith("more")
    world.pass_time(900)
    assert world.status(sandbox) is Status.RUNNING


# Waking.


@pytest.mark.parametrize("what", ["exec", "stream", "job", "read", "write"])
def test_the_next_use_wakes_it(world: World, backend: FakeBackend, what: str):
    """features.md 1 and 2 #22: the next exec, file or job wakes it. No message needs to arrive."""
    sandbox = running(world)
    execution.write_file(world.core, world.caller, sandbox, "kept", [b"kept"])
    world.pass_time(90)
    world.lose_messages()
    assert world.status(sandbox) is Status.PAUSED
    uses: dict[str, Callable[[], object]] = {
        "exec": lambda: run(world, sandbox),
        "stream": lambda: list(execution.stream(world.core, world.caller, sandbox, TRUE)),
        "job": lambda: execution.start_job(world.core, world.caller, sandbox, TRUE, "j"),
        "read": lambda: execution.read_file(world.core, world.caller, sandbox, "kept"),
        "write": lambda: execution.write_file(world.core, world.caller, sandbox, "new", [b"x"]),
    }

    uses[what]()

    found = world.sandbox(sandbox)
    assert (found.status, found.idled, found.move) == (Status.RUNNING, False, None)
    assert held(world) == 1


def test_keep_alive_wakes_it_and_does_not_wait(world: World, backend: FakeBackend):
    sandbox = asleep(world)

    assert use.keep_alive(world.core, world.caller, sandbox).status is Status.RESUMING
    world.deliver_all()

    assert use.keep_alive(world.core, world.caller, sandbox).status is Status.RUNNING


@pytest.mark.parametrize("kind", [MoveKind.STOP, MoveKind.PAUSE])
def test_what_a_caller_put_to_rest_stays_so(world: World, backend: FakeBackend, kind: MoveKind):
    """features.md 2 #22: the caller's stop is respected."""
    sandbox = running(world)
    moves.ask(world.core, world.caller, sandbox, kind)
    world.deliver_all()

    for used in (lambda: run(world, sandbox), lambda: use.keep_alive(world.core, world.caller, sandbox)):
        with pytest.raises(InvalidState):
            used()

    assert world.sandbox(sandbox).reason.code == ("stopped" if kind is MoveKind.STOP else "paused")  # type: ignore[union-attr]


def test_a_caller_can_make_an_idle_one_its_own(world: World, backend: FakeBackend):
    sandbox = asleep(world)

    asked = moves.ask(world.core, world.caller, sandbox, MoveKind.PAUSE)

    assert (asked.status, asked.idled) == (Status.PAUSED, False)
    with pytest.raises(InvalidState):
        run(world, sandbox)


def test_a_use_while_it_falls_asleep_waits_and_wakes_it(world: World, backend: FakeBackend):
    backend.move_seconds = 20.0
    sandbox = running(world)
    world.clock.advance(90)
    worker.step(world.core, sandbox)
    assert world.status(sandbox) is Status.PAUSING

    run(world, sandbox)

    assert world.status(sandbox) is Status.RUNNING


def test_a_use_that_finds_no_room_says_so_after_a_while(world: World, backend: FakeBackend):
    sandbox = asleep(world)
    none = Limits(total=Size.unlimited().model_copy(update={"sandboxes": 0}))
    tenants.set_quota(world.core, OPERATOR, world.org.id, None, none)
    began = world.clock.now()

    with pytest.raises(InvalidState, match="queued"):
        run(world, sandbox)

    assert world.clock.now() - began >= timedelta(seconds=world.core.tuning.wake_seconds)
    assert world.status(sandbox) is Status.QUEUED


def test_a_wake_that_is_refused_is_told_and_not_tried_again_by_the_same_call(world: World, backend: FakeBackend):
    sandbox = asleep(world)
    backend.expect(Operation.RESUME, Refuse(SandboxFailed("It is broken.", settled=True)))
    calls = backend.calls[Operation.RESUME]

    with pytest.raises(InvalidState):
        run(world, sandbox)
    assert backend.calls[Operation.RESUME] == calls + 1

    run(world, sandbox)
    assert world.status(sandbox) is Status.RUNNING


# Races, both ways round.


def test_a_use_before_the_idle_write_wins(world: World, backend: FakeBackend):
    """The sweep decided on what it read; by its write the sandbox was used."""
    sandbox = running(world)
    world.clock.advance(90)
    decided_on = world.sandbox(sandbox)

    run(world, sandbox)
    idle.settle(world.core, decided_on)

    assert world.status(sandbox) is Status.RUNNING
    assert backend.calls[Operation.PAUSE] == 0


def test_an_idle_write_before_the_use_wins_and_the_use_wakes_it(world: World, backend: FakeBackend):
    """The call read `running`; by its note of use the sandbox was put to rest."""
    sandbox = running(world)
    world.clock.advance(90)
    decided_on = world.sandbox(sandbox)
    idle.settle(world.core, decided_on)
    assert world.status(sandbox) is Status.PAUSING

    assert use.lease(world.core, decided_on, 60.0, use.COMMAND) is None
    assert not use.note(world.core, decided_on)
    result = run(world, sandbox)

    assert result.exit_code == 0
    assert world.status(sandbox) is Status.RUNNING
    assert world.sandbox(sandbox).generation > decided_on.generation


def test_a_longer_timeout_wins_over_an_idle_decision(world: World, backend: FakeBackend):
    sandbox = running(world)
    world.clock.advance(90)
    sweep.sweep(world.core)
    sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(idle_timeout_seconds=600))

    world.deliver_all()

    assert world.status(sandbox) is Status.RUNNING


def test_a_timeout_that_is_changed_counts_from_now(world: World, backend: FakeBackend):
    sandbox = running(world, idleTimeoutSeconds=0)
    world.pass_time(1000)
    sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(idle_timeout_seconds=60))

    world.pass_time(89)
    assert world.status(sandbox) is Status.RUNNING
    world.pass_time(1)
    assert world.status(sandbox) is Status.PAUSED

    run(world, sandbox)
    sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(idle_timeout_seconds=0))
    world.pass_time(1000)
    assert world.status(sandbox) is Status.RUNNING


def test_a_time_to_live_ends_what_sleeps_and_no_use_brings_it_back(world: World, backend: FakeBackend):
    """Issue 4, item 3: expiry wins over a wake."""
    sandbox = asleep(world, ttlSeconds=100)
    world.clock.advance(10)

    with pytest.raises(InvalidState):
        run(world, sandbox)

    world.pass_time(0)
    assert world.status(sandbox) is Status.TERMINATED
    assert [instance for instance in backend.instances() if instance.state is InstanceState.RUNNING] == []
