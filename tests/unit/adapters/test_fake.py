"""Each fault of the fake backend does what it says, and nothing else."""

from __future__ import annotations

from math import inf

import pytest

from differently_adapters.providers.fake import (
    Duplicate,
    Fail,
    FakeAdapter,
    FakeBackend,
    Fault,
    Late,
    Linger,
    LoseAnswer,
    LoseCall,
    Pending,
    Refuse,
    Slow,
    Unlisted,
    Vanish,
)
from differently_adapters.testing import a_create_request
from differently_core.contract import CommandResult, Exit, Instance, InstanceState, Operation, Owner, Quiet, Target
from differently_core.errors import (
    BackendError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model.exec import ExecRequest, JobState
from differently_core.model.resources import Size
from differently_core.runtime.clock import VirtualClock
from differently_core.runtime.ids import SeededIds

DEADLINE = 20.0
INSTALLATION = "inst_a"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def backend(clock: VirtualClock) -> FakeBackend:
    return FakeBackend(clock)


@pytest.fixture
def adapter(backend: FakeBackend) -> FakeAdapter:
    return FakeAdapter.over(backend)


@pytest.fixture
def owner(clock: VirtualClock) -> Owner:
    return Owner(INSTALLATION, SeededIds(clock, 7).new("sbx"))


def create(adapter: FakeAdapter, owner: Owner, *faults: Fault) -> Instance:
    adapter.backend.expect(Operation.CREATE, *faults)
    return adapter.create(a_create_request(owner), DEADLINE)


def listed(adapter: FakeAdapter) -> list[str]:
    return [instance.ref for instance in adapter.list(INSTALLATION)]


def test_a_refused_call_had_no_effect(adapter: FakeAdapter, owner: Owner) -> None:
    with pytest.raises(ProviderUnavailable) as refused:
        create(adapter, owner, Refuse())
    assert refused.value.settled
    assert listed(adapter) == []


def test_any_error_can_be_planned(adapter: FakeAdapter, owner: Owner) -> None:
    with pytest.raises(InvalidState, match="busy"):
        create(adapter, owner, Refuse(InvalidState("busy")))


def test_a_lost_answer_had_its_effect(adapter: FakeAdapter, owner: Owner) -> None:
    with pytest.raises(ProviderUnavailable) as lost:
        create(adapter, owner, LoseAnswer())
    assert not lost.value.settled
    assert len(listed(adapter)) == 1


def test_a_lost_call_had_none_and_looks_the_same(adapter: FakeAdapter, owner: Owner) -> None:
    with pytest.raises(ProviderUnavailable) as lost:
        create(adapter, owner, LoseCall())
    assert not lost.value.settled
    assert listed(adapter) == []


@pytest.mark.parametrize("fault", [LoseAnswer(inf), LoseCall(inf)])
def test_a_call_that_hangs_ends_at_its_deadline(
    adapter: FakeAdapter, owner: Owner, clock: VirtualClock, fault: Fault
) -> None:
    with pytest.raises(ProviderUnavailable):
        create(adapter, owner, fault)
    assert clock.monotonic() == DEADLINE


def test_a_late_instance_comes_when_it_is_due(adapter: FakeAdapter, owner: Owner, clock: VirtualClock) -> None:
    with pytest.raises(BackendError) as lost:
        create(adapter, owner, Late(30))
    assert not lost.value.settled
    clock.advance(29)
    assert listed(adapter) == []
    assert adapter.backend.late_creates() == 1
    clock.advance(1)
    assert len(listed(adapter)) == 1
    assert adapter.backend.late_creates() == 0


def test_a_late_instance_finds_the_one_made_meanwhile(adapter: FakeAdapter, owner: Owner, clock: VirtualClock) -> None:
    with pytest.raises(BackendError):
        create(adapter, owner, Late(30))
    first = create(adapter, owner)
    clock.advance(60)
    assert listed(adapter) == [first.ref]


def test_where_creates_repeat_a_late_instance_is_a_second_one(clock: VirtualClock, owner: Owner) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, idempotent_create=False))
    with pytest.raises(BackendError):
        create(adapter, owner, Late(30))
    create(adapter, owner)
    create(adapter, owner)
    clock.advance(60)
    assert len(listed(adapter)) == 3


def test_a_late_instance_comes_even_after_a_delete(adapter: FakeAdapter, owner: Owner, clock: VirtualClock) -> None:
    with pytest.raises(BackendError):
        create(adapter, owner, Late(30))
    adapter.delete(Target(owner))
    clock.advance(60)
    assert len(listed(adapter)) == 1


@pytest.mark.parametrize("fault", [Late(61), Unlisted(61)])
def test_a_fault_cannot_break_the_declared_settling_time(backend: FakeBackend, fault: Fault) -> None:
    with pytest.raises(ValueError, match="settling"):
        backend.expect(Operation.CREATE, fault)


def test_a_slow_create_takes_its_time_or_outlives_its_caller(
    adapter: FakeAdapter, owner: Owner, clock: VirtualClock
) -> None:
    create(adapter, owner, Slow(5))
    assert clock.monotonic() == 5
    adapter.delete(Target(owner))
    with pytest.raises(BackendError) as lost:
        create(adapter, owner, Slow(DEADLINE + 10))
    assert not lost.value.settled
    assert clock.monotonic() == 5 + DEADLINE
    assert listed(adapter) == []
    clock.advance(10)
    assert len(listed(adapter)) == 1


def test_a_pending_instance_runs_later(adapter: FakeAdapter, owner: Owner, clock: VirtualClock) -> None:
    assert create(adapter, owner, Pending(10)).state is InstanceState.PENDING
    with pytest.raises(InvalidState):
        adapter.exec(Target(owner), ExecRequest(command="true"), 100)
    clock.advance(10)
    assert adapter.get(Target(owner)).state is InstanceState.RUNNING


def test_a_pending_instance_may_never_run(adapter: FakeAdapter, owner: Owner, clock: VirtualClock) -> None:
    create(adapter, owner, Pending(inf))
    clock.advance(10**6)
    assert adapter.get(Target(owner)).state is InstanceState.PENDING


def test_an_unlisted_instance_is_found_by_its_ref_alone(
    adapter: FakeAdapter, owner: Owner, clock: VirtualClock
) -> None:
    made = create(adapter, owner, Unlisted(30))
    assert adapter.get(Target(owner, made.ref)).ref == made.ref
    assert listed(adapter) == []
    with pytest.raises(NotFound):
        adapter.get(Target(owner))
    clock.advance(30)
    assert listed(adapter) == [made.ref]


def test_a_failed_create_leaves_a_failed_instance(adapter: FakeAdapter, owner: Owner) -> None:
    with pytest.raises(SandboxFailed) as failed:
        create(adapter, owner, Fail())
    assert not failed.value.settled
    assert adapter.get(Target(owner)).state is InstanceState.ERROR


def test_a_failed_create_may_leave_nothing(adapter: FakeAdapter, owner: Owner) -> None:
    with pytest.raises(SandboxFailed) as failed:
        create(adapter, owner, Fail(leaves=False))
    assert failed.value.settled
    assert listed(adapter) == []


def test_a_duplicate_is_listed_and_removed_by_its_own_ref(adapter: FakeAdapter, owner: Owner) -> None:
    told = create(adapter, owner, Duplicate())
    (extra,) = set(listed(adapter)) - {told.ref}
    adapter.delete(Target(owner, extra))
    assert listed(adapter) == [told.ref]


def test_a_delete_by_owner_removes_every_instance_of_it(adapter: FakeAdapter, owner: Owner) -> None:
    create(adapter, owner, Duplicate())
    adapter.delete(Target(owner))
    assert listed(adapter) == []


def test_a_lingering_instance_stays_listed_and_stopped(adapter: FakeAdapter, owner: Owner, clock: VirtualClock) -> None:
    ref = create(adapter, owner).ref
    adapter.backend.expect(Operation.DELETE, Linger(30))
    adapter.delete(Target(owner, ref))
    adapter.delete(Target(owner, ref))
    assert adapter.get(Target(owner, ref)).state is InstanceState.STOPPED
    clock.advance(30)
    assert listed(adapter) == []


def test_a_delete_in_transition_conflicts_until_it_is_through(
    adapter: FakeAdapter, owner: Owner, clock: VirtualClock
) -> None:
    ref = create(adapter, owner).ref
    adapter.backend.expect(Operation.DELETE, Linger(30, conflict=True))
    for _ in range(2):
        with pytest.raises(InvalidState):
            adapter.delete(Target(owner, ref))
    clock.advance(30)
    adapter.delete(Target(owner, ref))
    assert listed(adapter) == []


def test_a_delete_that_never_completes_does_once_the_backend_heals(
    adapter: FakeAdapter, owner: Owner, clock: VirtualClock
) -> None:
    create(adapter, owner)
    adapter.backend.expect(Operation.DELETE, Linger(inf))
    adapter.delete(Target(owner))
    clock.advance(10**6)
    assert len(listed(adapter)) == 1
    adapter.backend.heal()
    assert listed(adapter) == []


def test_a_late_delete_fails_and_comes_later(adapter: FakeAdapter, owner: Owner, clock: VirtualClock) -> None:
    create(adapter, owner)
    adapter.backend.expect(Operation.DELETE, Late(10))
    with pytest.raises(ProviderUnavailable):
        adapter.delete(Target(owner))
    assert len(listed(adapter)) == 1
    clock.advance(10)
    assert listed(adapter) == []


def test_an_instance_may_vanish(adapter: FakeAdapter, owner: Owner) -> None:
    ref = create(adapter, owner).ref
    adapter.backend.expect(Operation.EXEC, Vanish())
    with pytest.raises(NotFound):
        adapter.exec(Target(owner, ref), ExecRequest(command="true"), 100)
    assert listed(adapter) == []


def test_a_command_whose_end_is_lost_is_unconfirmed(adapter: FakeAdapter, owner: Owner) -> None:
    create(adapter, owner)
    adapter.backend.expect(Operation.EXEC, LoseAnswer())
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(Target(owner), ExecRequest(command="true"), 100)


def test_room_is_bounded_and_comes_back(clock: VirtualClock, owner: Owner) -> None:
    room = Size(sandboxes=2, cpu_millis=1500, memory_mib=4096, disk_gib=10)
    adapter = FakeAdapter.over(FakeBackend(clock, room=room))
    create(adapter, owner)
    assert adapter.capacity().free_cpu_millis == 500
    other = Owner(INSTALLATION, owner.sandbox[:-1] + "0")
    with pytest.raises(InsufficientCapacity) as full:
        create(adapter, other)
    assert full.value.settled
    adapter.delete(Target(owner))
    create(adapter, other)
    assert len(listed(adapter)) == 1


def test_a_backend_that_is_down_refuses_everything_and_keeps_what_it_has(adapter: FakeAdapter, owner: Owner) -> None:
    create(adapter, owner)
    adapter.backend.up = False
    for call in (adapter.health, lambda: adapter.list(INSTALLATION), lambda: adapter.get(Target(owner))):
        with pytest.raises(ProviderUnavailable) as down:
            call()
        assert down.value.settled
    adapter.backend.up = True
    assert len(listed(adapter)) == 1


def test_a_plan_decides_by_operation_and_number_and_calls_are_counted(clock: VirtualClock, owner: Owner) -> None:
    backend = FakeBackend(
        clock, plan=lambda call: Refuse() if call.operation is Operation.GET and call.number % 2 else None
    )
    adapter = FakeAdapter.over(backend)
    create(adapter, owner)
    with pytest.raises(ProviderUnavailable):
        adapter.get(Target(owner))
    assert adapter.get(Target(owner)).owner == owner
    assert (backend.calls[Operation.CREATE], backend.calls[Operation.GET]) == (1, 2)


def test_latency_passes_on_the_clock(clock: VirtualClock, owner: Owner) -> None:
    create(FakeAdapter.over(FakeBackend(clock, latency_seconds=0.25)), owner)
    assert clock.monotonic() == 0.25


def test_by_default_a_command_writes_itself_and_its_input(adapter: FakeAdapter, owner: Owner) -> None:
    create(adapter, owner)
    assert adapter.exec(Target(owner), ExecRequest(command="hello", stdin="in"), 100).stdout == b"hello\nin"
    assert adapter.exec(Target(owner), ExecRequest(args=["a", "b"]), 100).stdout == b"a b\n"


def test_a_command_takes_the_time_it_reports_and_no_more_than_its_timeout(clock: VirtualClock, owner: Owner) -> None:
    result = CommandResult(0, b"out", b"", duration_ms=90_000)
    adapter = FakeAdapter.over(FakeBackend(clock, exec_function=lambda *_: result))
    create(adapter, owner)
    assert not adapter.exec(Target(owner), ExecRequest(command="x", timeout_seconds=100), 10).timed_out
    assert clock.monotonic() == 90
    late = adapter.exec(Target(owner), ExecRequest(command="x", timeout_seconds=10), 10)
    assert (late.timed_out, late.exit_code, late.duration_ms) == (True, 124, 10_000)
    assert clock.monotonic() == 100
    events = list(adapter.exec_stream(Target(owner), ExecRequest(command="x", timeout_seconds=100), 40.0))
    assert [type(event) for event in events].count(Quiet) == 2
    assert isinstance(events[-1], Exit)


def test_a_job_can_be_lost(adapter: FakeAdapter, owner: Owner) -> None:
    ref = create(adapter, owner).ref
    adapter.job_start(Target(owner), "j", ExecRequest(command="x"))
    found = adapter.backend.find(ref)
    assert found is not None
    found.jobs["j"].lost = True
    job = adapter.job_status(Target(owner), "j")
    assert (job.state, job.exit_code) == (JobState.LOST, None)


def test_two_runs_are_equal(owner: Owner) -> None:
    def story() -> list[object]:
        clock = VirtualClock()
        adapter = FakeAdapter.over(FakeBackend(clock))
        seen: list[object] = [create(adapter, owner, Duplicate())]
        clock.advance(3)
        adapter.backend.expect(Operation.DELETE, Linger(5))
        adapter.delete(Target(owner, adapter.list(INSTALLATION)[0].ref))
        seen.append(adapter.list(INSTALLATION))
        clock.advance(6)
        return [*seen, adapter.list(INSTALLATION)]

    assert story() == story()
