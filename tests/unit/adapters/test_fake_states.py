"""The rarer half of the fake: leases, stops, pauses, snapshots, ports, egress, lists in pages, credentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import inf

import pytest

from differently_adapters.providers.fake import (
    Broken,
    FakeAdapter,
    FakeBackend,
    Fault,
    Ignored,
    IgnoreFilter,
    Late,
    LoseAnswer,
    LoseCall,
    LosePage,
    OverlapPages,
    Partly,
    Refuse,
    RepeatCursor,
    Revert,
    Slow,
    TooLate,
)
from differently_adapters.providers.fake.network import open_ports
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    CommandResult,
    EgressAction,
    EgressRules,
    Instance,
    InstanceState,
    Operation,
    Owner,
    Progress,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
    Target,
    Transition,
    Transitioned,
)
from differently_core.errors import (
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest, JobState
from differently_core.model.resources import Size
from differently_core.runtime.clock import VirtualClock
from differently_core.runtime.ids import SeededIds

DEADLINE = 20.0
INSTALLATION = "inst_a"
ECHO = ExecRequest(command="hello")
CAPABILITIES = FakeBackend(VirtualClock()).capabilities


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
def new_owner(clock: VirtualClock) -> Callable[[], Owner]:
    ids = SeededIds(clock, 7)
    return lambda: Owner(INSTALLATION, ids.new("sbx"))


@pytest.fixture
def target(adapter: FakeAdapter, new_owner: Callable[[], Owner]) -> Target:
    return made(adapter, new_owner())


def made(adapter: FakeAdapter, owner: Owner, **changes: object) -> Target:
    request = replace(a_create_request(owner), **changes)  # type: ignore[arg-type]
    return Target(owner, adapter.create(request, DEADLINE).ref)


def state(adapter: FakeAdapter, target: Target) -> InstanceState:
    return adapter.get(target).state


def pause(adapter: FakeAdapter, target: Target, *faults: Fault, name: str = "p1", **more: object) -> Transitioned:
    adapter.backend.expect(Operation.PAUSE, *faults)
    incarnation = str(more.pop("incarnation", adapter.get(target).incarnation))
    return adapter.pause(target, Transition(name, incarnation, **more), DEADLINE)  # type: ignore[arg-type]


def resume(adapter: FakeAdapter, target: Target, *faults: Fault, name: str = "r1", **more: object) -> Transitioned:
    adapter.backend.expect(Operation.RESUME, *faults)
    incarnation = str(more.pop("incarnation", adapter.get(target).incarnation))
    return adapter.resume(target, Transition(name, incarnation, **more), DEADLINE)  # type: ignore[arg-type]


def observe(adapter: FakeAdapter, target: Target, name: str = "p1") -> Progress:
    return adapter.pause(target, Transition(name, "1", observe_only=True), DEADLINE).progress


# --- a life that ends by itself ---


@pytest.mark.parametrize(("lease", "life", "seconds"), [(60, 0, 60), (0, 90, 90), (60, 30, 30)])
def test_a_lease_or_the_longest_life_ends_an_instance(
    clock: VirtualClock, new_owner: Callable[[], Owner], lease: int, life: int, seconds: int
) -> None:
    told = replace(CAPABILITIES, lease_seconds=lease, max_lifetime_seconds=life)
    adapter = FakeAdapter.over(FakeBackend(clock, capabilities=told))
    target = made(adapter, new_owner())
    assert adapter.get(target).expires_at == clock.now() + timedelta(seconds=seconds)
    clock.advance(seconds - 1)
    assert state(adapter, target) is InstanceState.RUNNING
    clock.advance(1)
    with pytest.raises(NotFound):
        adapter.get(target)
    with pytest.raises(NotFound):
        adapter.renew(target, clock.now() + timedelta(hours=1))
    assert adapter.backend.instances() == []


def test_a_renewal_goes_as_far_as_lease_and_life_let_it(clock: VirtualClock, new_owner: Callable[[], Owner]) -> None:
    told = replace(CAPABILITIES, lease_seconds=60, max_lifetime_seconds=100)
    adapter = FakeAdapter.over(FakeBackend(clock, capabilities=told))
    target = made(adapter, new_owner())
    start = clock.now()
    clock.advance(30)
    assert adapter.renew(target, start + timedelta(seconds=70)) == start + timedelta(seconds=70)
    assert adapter.renew(target, start + timedelta(hours=1)) == start + timedelta(seconds=90)
    clock.advance(30)
    assert adapter.renew(target, start + timedelta(hours=1)) == start + timedelta(seconds=100)
    clock.advance(39)
    assert adapter.get(target).expires_at == start + timedelta(seconds=100)
    clock.advance(1)
    with pytest.raises(NotFound):
        adapter.get(target)


def test_without_a_lease_there_is_nothing_to_renew(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    assert adapter.renew(target, clock.now() + timedelta(hours=1)) is None
    with pytest.raises(InvalidRequest):
        adapter.renew(target, clock.now())


def test_a_renewal_whose_answer_was_lost_is_seen(clock: VirtualClock, new_owner: Callable[[], Owner]) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, capabilities=replace(CAPABILITIES, lease_seconds=60)))
    target = made(adapter, new_owner())
    clock.advance(10)
    adapter.backend.expect(Operation.RENEW, LoseAnswer())
    with pytest.raises(ProviderUnavailable) as lost:
        adapter.renew(target, clock.now() + timedelta(seconds=60))
    assert not lost.value.settled
    assert adapter.get(target).expires_at == clock.now() + timedelta(seconds=60)


def test_an_unused_instance_falls_asleep_and_wakes_when_it_is_used(
    clock: VirtualClock, new_owner: Callable[[], Owner]
) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, idle_seconds=300))
    target = made(adapter, new_owner())
    clock.advance(299)
    adapter.exec(target, ECHO, 100)
    clock.advance(299)
    assert not adapter.get(target).idle
    clock.advance(1)
    for _ in range(2):
        assert (adapter.get(target).state, adapter.get(target).idle) == (InstanceState.PAUSED, True)
    adapter.file_list(target, "")
    assert (adapter.get(target).state, adapter.get(target).idle) == (InstanceState.RUNNING, False)


# --- stop and start ---


def test_a_stop_keeps_files_and_ends_jobs_and_ports(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    slow = CommandResult(0, b"out", b"", duration_ms=600_000)
    adapter.backend.exec_function = lambda *_: slow
    adapter.file_write(target, "kept", [b"kept"])
    adapter.job_start(target, "job", ExecRequest(command="x", timeout_seconds=900))
    adapter.port_expose(target, 8080, 60)
    assert adapter.stop(target, DEADLINE).state is InstanceState.STOPPED
    with pytest.raises(InvalidState):
        adapter.exec(target, ECHO, 100)
    assert adapter.stop(target, DEADLINE).state is InstanceState.STOPPED
    started = adapter.start(target, DEADLINE)
    assert (started.state, started.incarnation) == (InstanceState.RUNNING, "2")
    assert adapter.start(target, DEADLINE).incarnation == "2"
    assert adapter.job_status(target, "job").state is JobState.LOST
    assert b"".join(adapter.file_read(target, "kept").chunks) == b"kept"
    assert adapter.backend.instances()[0].ports == {}


def test_a_stopped_instance_keeps_only_its_disk(clock: VirtualClock, new_owner: Callable[[], Owner]) -> None:
    room = Size(sandboxes=3, cpu_millis=1000, memory_mib=512, disk_gib=9)
    adapter = FakeAdapter.over(FakeBackend(clock, room=room))
    first = made(adapter, new_owner())
    adapter.stop(first, DEADLINE)
    second = made(adapter, new_owner())
    with pytest.raises(InsufficientCapacity):
        adapter.start(first, DEADLINE)
    assert state(adapter, first) is InstanceState.STOPPED
    adapter.delete(second)
    adapter.start(first, DEADLINE)
    adapter.stop(first, DEADLINE)
    adapter.delete(first)
    assert adapter.backend.free() == room


def test_a_slow_stop_outlives_its_caller(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    adapter.backend.expect(Operation.STOP, Slow(DEADLINE + 10))
    with pytest.raises(ProviderUnavailable) as lost:
        adapter.stop(target, DEADLINE)
    assert not lost.value.settled
    assert (state(adapter, target), clock.monotonic()) == (InstanceState.RUNNING, DEADLINE)
    for call in (adapter.stop, adapter.start):
        with pytest.raises(InvalidState, match="in the middle of stop"):
            call(target, DEADLINE)
    clock.advance(10)
    assert state(adapter, target) is InstanceState.STOPPED


@pytest.mark.parametrize("operation", [Operation.STOP, Operation.START])
def test_a_stop_or_start_may_fail_half_way(adapter: FakeAdapter, target: Target, operation: Operation) -> None:
    call = {Operation.STOP: adapter.stop, Operation.START: adapter.start}[operation]
    if operation is Operation.START:
        adapter.stop(target, DEADLINE)
    before = adapter.get(target)
    free = adapter.backend._used
    adapter.backend.expect(operation, Revert(3))
    with pytest.raises(SandboxFailed) as failed:
        call(target, DEADLINE)
    assert failed.value.settled
    assert adapter.get(target) == before
    assert adapter.backend._used == free
    call(target, DEADLINE)


def test_an_ignored_stop_never_comes(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    adapter.backend.expect(Operation.STOP, Ignored())
    with pytest.raises(ProviderUnavailable):
        adapter.stop(target, DEADLINE)
    clock.advance(10**6)
    adapter.exec(target, ECHO, 100)
    assert state(adapter, target) is InstanceState.RUNNING


def test_a_late_stop_fails_and_comes_later(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    adapter.backend.expect(Operation.STOP, Late(500))
    with pytest.raises(ProviderUnavailable):
        adapter.stop(target, DEADLINE)
    clock.advance(500)
    assert state(adapter, target) is InstanceState.STOPPED


# --- pause and resume ---


def test_a_pause_holds_jobs_and_a_resume_goes_on(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    adapter.backend.exec_function = lambda *_: CommandResult(0, b"out", b"", duration_ms=10_000)
    adapter.job_start(target, "job", ECHO)
    clock.advance(4)
    assert pause(adapter, target).instance.state is InstanceState.PAUSED
    with pytest.raises(InvalidState):
        adapter.exec(target, ECHO, 100)
    clock.advance(3_600)
    resumed = resume(adapter, target)
    assert (resumed.progress, resumed.instance.incarnation) == (Progress.DONE, "1")
    assert adapter.job_status(target, "job").state is JobState.RUNNING
    clock.advance(6)
    assert adapter.job_status(target, "job").state is JobState.EXITED


def test_a_slow_pause_is_under_way_until_it_is_done(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    assert pause(adapter, target, Slow(5)).progress is Progress.DONE
    assert clock.monotonic() == 5
    resume(adapter, target)
    assert pause(adapter, target, Slow(DEADLINE + 30), name="p2").progress is Progress.UNDERWAY
    with pytest.raises(InvalidState):
        adapter.exec(target, ECHO, 100)
    assert observe(adapter, target, "p2") is Progress.UNDERWAY
    clock.advance(30)
    assert observe(adapter, target, "p2") is Progress.DONE
    assert state(adapter, target) is InstanceState.PAUSED


def test_a_pause_may_finish_after_its_caller_gave_up(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    with pytest.raises(ProviderUnavailable) as lost:
        pause(adapter, target, Late(100))
    assert not lost.value.settled
    assert observe(adapter, target) is Progress.UNDERWAY
    clock.advance(100)
    assert observe(adapter, target) is Progress.DONE


def test_a_pause_may_fail_half_way(adapter: FakeAdapter, target: Target) -> None:
    assert pause(adapter, target, Revert(5)).progress is Progress.FAILED
    assert state(adapter, target) is InstanceState.RUNNING
    assert observe(adapter, target) is Progress.FAILED
    assert pause(adapter, target).progress is Progress.FAILED  # one name is one attempt
    assert pause(adapter, target, name="p2").progress is Progress.DONE


def test_a_pause_may_never_start(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    assert pause(adapter, target, Ignored()).progress is Progress.UNDERWAY
    clock.advance(10**6)
    assert observe(adapter, target) is Progress.UNDERWAY
    adapter.exec(target, ECHO, 100)
    assert adapter.call_off(target, Transition("p1", "1"), DEADLINE).progress is Progress.DONE
    assert observe(adapter, target) is Progress.FAILED


def test_a_pause_that_hangs_is_done_once_the_backend_heals(adapter: FakeAdapter, target: Target) -> None:
    assert pause(adapter, target, Slow(inf)).progress is Progress.UNDERWAY
    adapter.backend.heal()
    assert observe(adapter, target) is Progress.DONE


def test_a_pause_that_never_arrived_is_told_as_failed_and_not_begun(adapter: FakeAdapter, target: Target) -> None:
    with pytest.raises(ProviderUnavailable):
        pause(adapter, target, LoseCall())
    assert observe(adapter, target) is Progress.FAILED
    assert state(adapter, target) is InstanceState.RUNNING


def test_a_pause_whose_answer_was_lost_is_told(adapter: FakeAdapter, target: Target) -> None:
    with pytest.raises(ProviderUnavailable):
        pause(adapter, target, LoseAnswer())
    assert observe(adapter, target) is Progress.DONE


def test_another_incarnation_is_neither_paused_nor_resumed_nor_thawed(adapter: FakeAdapter, target: Target) -> None:
    for call in (adapter.pause, adapter.resume, adapter.call_off):
        with pytest.raises(InvalidState, match="incarnation"):
            call(target, Transition("x", "2"), DEADLINE)
    assert state(adapter, target) is InstanceState.RUNNING


def test_where_a_resume_restores_it_consumes_the_checkpoint(
    clock: VirtualClock, new_owner: Callable[[], Owner]
) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, resume_restores=True))
    target = made(adapter, new_owner())
    pause(adapter, target)
    assert adapter.call_off(target, Transition("p1", "1"), DEADLINE).progress is Progress.FAILED
    first = resume(adapter, target)
    assert (first.progress, first.instance.incarnation) == (Progress.DONE, "2")
    again = resume(adapter, target, incarnation="1", observe_only=True)
    assert (again.progress, again.instance.incarnation) == (Progress.DONE, "2")
    with pytest.raises(InvalidState):
        resume(adapter, target, name="r2", incarnation="1")


def test_a_stopped_instance_is_not_resumed(adapter: FakeAdapter, target: Target) -> None:
    pause(adapter, target)
    adapter.stop(target, DEADLINE)
    for call in (resume, pause):
        with pytest.raises(InvalidState):
            call(adapter, target, name="other")
    with pytest.raises(InvalidState):
        adapter.call_off(target, Transition("p1", "1"), DEADLINE)
    assert state(adapter, target) is InstanceState.STOPPED


def test_a_resume_may_fail_half_way_and_be_tried_again(adapter: FakeAdapter, target: Target) -> None:
    pause(adapter, target)
    assert resume(adapter, target, Revert(1)).progress is Progress.FAILED
    assert state(adapter, target) is InstanceState.PAUSED
    assert resume(adapter, target, name="r2").progress is Progress.DONE
    assert resume(adapter, target, name="r3").progress is Progress.DONE


@pytest.mark.parametrize("fault", [Slow(100), Ignored(), Late(100)])
def test_a_pause_that_is_called_off_does_not_come(
    adapter: FakeAdapter, target: Target, clock: VirtualClock, fault: Fault
) -> None:
    try:
        pause(adapter, target, fault)
    except ProviderUnavailable:
        assert isinstance(fault, Late)
    called_off = adapter.call_off(target, Transition("p1", "1"), DEADLINE)
    assert (called_off.progress, called_off.instance.incarnation) == (Progress.DONE, "1")
    clock.advance(1_000)
    assert state(adapter, target) is InstanceState.RUNNING
    assert observe(adapter, target) is Progress.FAILED


def test_it_may_be_too_late_to_call_a_pause_off(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    pause(adapter, target, Slow(100))
    adapter.backend.expect(Operation.CALL_OFF, TooLate())
    assert adapter.call_off(target, Transition("p1", "1"), DEADLINE).progress is Progress.FAILED
    clock.advance(100)
    assert state(adapter, target) is InstanceState.PAUSED


def test_a_pause_that_is_done_is_thawed_and_a_resume_is_not_called_off(adapter: FakeAdapter, target: Target) -> None:
    pause(adapter, target)
    assert adapter.call_off(target, Transition("p1", "1"), DEADLINE).instance.state is InstanceState.RUNNING
    pause(adapter, target, name="p2")
    resume(adapter, target)
    with pytest.raises(InvalidState):
        adapter.call_off(target, Transition("r1", "1"), DEADLINE)


def test_an_instance_that_is_leaving_is_not_moved(adapter: FakeAdapter, target: Target, clock: VirtualClock) -> None:
    pause(adapter, target, Slow(100))
    adapter.delete(target)
    clock.advance(100)
    assert adapter.backend.instances() == []
    assert adapter.backend._used == Size()


# --- snapshots ---


def take(adapter: FakeAdapter, target: Target, *faults: Fault, name: str = "s1", kind: str = "disk") -> SnapshotInfo:
    adapter.backend.expect(Operation.SNAPSHOT, *faults)
    return adapter.snapshot(target, SnapshotRequest(SnapshotKind(kind), name), DEADLINE)


def test_a_snapshot_is_captured_once_and_restored_apart(
    adapter: FakeAdapter, target: Target, new_owner: Callable[[], Owner]
) -> None:
    adapter.file_write(target, "a/file", [b"first"])
    taken = take(adapter, target)
    adapter.file_write(target, "a/file", [b"second"])
    assert (taken.state, taken.size_bytes, take(adapter, target)) == (SnapshotState.READY, 5, taken)
    adapter.delete(target)
    child = made(adapter, new_owner(), from_snapshot=taken.ref)
    assert b"".join(adapter.file_read(child, "a/file").chunks) == b"first"
    adapter.file_write(child, "a/file", [b"third"])
    other = made(adapter, new_owner(), from_snapshot=taken.ref)
    assert b"".join(adapter.file_read(other, "a/file").chunks) == b"first"


def test_a_slow_snapshot_is_being_made_until_it_is_ready(
    adapter: FakeAdapter, target: Target, clock: VirtualClock, new_owner: Callable[[], Owner]
) -> None:
    taken = take(adapter, target, Slow(DEADLINE + 5))
    assert (taken.state, taken.size_bytes) == (SnapshotState.CREATING, None)
    with pytest.raises(InvalidState):
        made(adapter, new_owner(), from_snapshot=taken.ref)
    clock.advance(5)
    assert adapter.snapshot_get(target.owner, taken.ref).state is SnapshotState.READY


@pytest.mark.parametrize("fault", [Late(50), LoseAnswer()])
def test_a_snapshot_whose_answer_was_lost_is_found_by_its_operation(
    adapter: FakeAdapter, target: Target, fault: Fault
) -> None:
    with pytest.raises(ProviderUnavailable):
        take(adapter, target, fault)
    assert take(adapter, target).ref == adapter.backend.snapshots()[0].ref
    assert len(adapter.backend.snapshots()) == 1


def test_a_snapshot_may_fail(adapter: FakeAdapter, target: Target, new_owner: Callable[[], Owner]) -> None:
    failed = take(adapter, target, Revert(1))
    assert failed.state is SnapshotState.FAILED
    assert failed.message
    with pytest.raises(InvalidState):
        made(adapter, new_owner(), from_snapshot=failed.ref)
    adapter.snapshot_delete(target.owner, failed.ref)
    adapter.snapshot_delete(target.owner, failed.ref)
    assert adapter.backend.snapshots() == []


def test_a_snapshot_may_be_ready_and_of_no_use(
    adapter: FakeAdapter, target: Target, new_owner: Callable[[], Owner]
) -> None:
    taken = take(adapter, target, Broken())
    assert taken.state is SnapshotState.READY
    owner = new_owner()
    with pytest.raises(SandboxFailed):
        made(adapter, owner, from_snapshot=taken.ref)
    assert adapter.get(Target(owner)).state is InstanceState.ERROR


def test_a_snapshot_may_stop_its_instance(clock: VirtualClock, new_owner: Callable[[], Owner]) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, capabilities=replace(CAPABILITIES, snapshot_stops=True)))
    target = made(adapter, new_owner())
    take(adapter, target)
    assert state(adapter, target) is InstanceState.STOPPED
    take(adapter, target, name="s2")
    with pytest.raises(InvalidState):
        take(adapter, target, name="s3", kind="memory")


def test_a_snapshot_may_hold_more_than_was_asked_for(clock: VirtualClock, new_owner: Callable[[], Owner]) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, captures=SnapshotKind.MEMORY))
    assert take(adapter, made(adapter, new_owner())).kind is SnapshotKind.MEMORY


def test_memory_is_refused_where_it_is_not_offered(clock: VirtualClock, new_owner: Callable[[], Owner]) -> None:
    told = replace(CAPABILITIES, features=CAPABILITIES.features - {features.SNAPSHOTS_MEMORY})
    adapter = FakeAdapter.over(FakeBackend(clock, capabilities=told))
    with pytest.raises(UnsupportedOperation):
        take(adapter, made(adapter, new_owner()), kind="memory")
    assert adapter.backend.calls[Operation.SNAPSHOT] == 0


def test_a_snapshot_is_its_owners_and_of_use_in_its_installation(
    adapter: FakeAdapter, target: Target, new_owner: Callable[[], Owner]
) -> None:
    taken = take(adapter, target)
    for stranger in (new_owner(), Owner("inst_b", target.owner.sandbox)):
        for call in (adapter.snapshot_get, adapter.snapshot_delete):
            with pytest.raises(NotFound):
                call(stranger, taken.ref)
    for owner, ref in ((Owner("inst_b", target.owner.sandbox), taken.ref), (new_owner(), "snap_missing")):
        with pytest.raises(NotFound):
            made(adapter, owner, from_snapshot=ref)
    assert len(adapter.backend.instances()) == 1


# --- ports and egress ---


def test_a_port_is_open_for_its_time_or_until_it_is_revoked(
    adapter: FakeAdapter, target: Target, clock: VirtualClock
) -> None:
    (instance,) = adapter.backend.instances()
    first = adapter.port_expose(target, 8080, 60)
    assert first.expires_at == clock.now() + timedelta(seconds=60)
    assert adapter.port_expose(target, 8080, 60) == first
    adapter.port_expose(target, 9090, 600)
    assert open_ports(adapter.backend, instance) == [8080, 9090]
    clock.advance(60)
    assert open_ports(adapter.backend, instance) == [9090]
    assert adapter.port_expose(target, 8080, 60).url != first.url
    for _ in range(2):
        adapter.port_revoke(target, 8080)
    assert open_ports(adapter.backend, instance) == [9090]
    assert first.url not in repr(first)
    for port in (0, 65_536):
        with pytest.raises(InvalidRequest):
            adapter.port_expose(target, port, 60)


def test_rules_are_recorded_and_those_that_are_not_in_force_are_told(adapter: FakeAdapter, target: Target) -> None:
    (instance,) = adapter.backend.instances()
    rules = EgressRules(EgressAction.DENY, allow=("*.example.com", "10.0.0.0/8", "2001:db8::/32"))
    adapter.egress_set(target, rules)
    assert instance.egress == rules
    adapter.backend.expect(Operation.EGRESS_SET, Ignored())
    with pytest.raises(ProviderUnavailable) as unsure:
        adapter.egress_set(target, EgressRules(EgressAction.ALLOW))
    assert not unsure.value.settled
    with pytest.raises(InvalidRequest):
        adapter.egress_set(target, EgressRules(EgressAction.DENY, allow=("no host!",)))
    assert instance.egress == rules


# --- the pool ---


def test_a_batch_tells_of_each_by_itself(adapter: FakeAdapter, target: Target, new_owner: Callable[[], Owner]) -> None:
    other, missing = made(adapter, new_owner()), Target(new_owner())
    adapter.backend.expect(Operation.OBSERVE_MANY, Partly({other.owner.sandbox: ProviderUnavailable("busy")}))
    first, second, third = adapter.observe_many([missing, other, target])
    assert isinstance(first, NotFound)
    assert isinstance(second, ProviderUnavailable)
    assert isinstance(third, Instance)
    assert (third.ref, adapter.observe_many([])) == (target.ref, [])


@pytest.mark.parametrize("fault", [LosePage(2), RepeatCursor(), Refuse()])
def test_a_list_that_is_cut_or_has_no_end_is_an_error(
    clock: VirtualClock, new_owner: Callable[[], Owner], fault: Fault
) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, page_size=2))
    for _ in range(5):
        made(adapter, new_owner())
    adapter.backend.expect(Operation.LIST, fault)
    with pytest.raises(ProviderUnavailable):
        adapter.list(INSTALLATION)
    assert len(adapter.list(INSTALLATION)) == 5


def test_pages_that_overlap_and_a_filter_that_does_not_filter_change_nothing(
    clock: VirtualClock, new_owner: Callable[[], Owner]
) -> None:
    adapter = FakeAdapter.over(FakeBackend(clock, page_size=2))
    refs = [made(adapter, new_owner()).ref for _ in range(5)]
    for number in range(5):
        adapter.backend.plant(Owner("inst_b", f"sbx_{number}"))
    for fault in (OverlapPages(), IgnoreFilter()):
        adapter.backend.expect(Operation.LIST, fault)
        assert [instance.ref for instance in adapter.list(INSTALLATION)] == refs


def test_a_credential_that_was_revoked_is_refused_everywhere(
    clock: VirtualClock, new_owner: Callable[[], Owner]
) -> None:
    backend = FakeBackend(clock, token="right")
    adapter = FakeAdapter.over(backend, credential={"token": "right"})
    adapter.verify_credential()
    target = made(adapter, new_owner())
    backend.token = "rotated"
    for call in (adapter.verify_credential, adapter.health, lambda: adapter.get(target)):
        with pytest.raises(ProviderUnavailable, match="credential") as refused:
            call()
        assert "right" not in str(refused.value)
    FakeAdapter.over(backend, credential={"token": "rotated"}).get(target)


def test_the_catalog_is_what_the_backend_offers(adapter: FakeAdapter) -> None:
    assert adapter.discover() is adapter.backend.catalog
