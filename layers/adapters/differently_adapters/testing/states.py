"""Renew, stop and start, pause, resume and call off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest

from differently_core.contract import (
    Adapter,
    InstanceState,
    Operation,
    Owner,
    Progress,
    Target,
    Transition,
    Transitioned,
    supports,
)
from differently_core.errors import DifferentlyError, InvalidState, NotFound
from differently_core.model.exec import ExecRequest, JobState
from differently_core.runtime.clock import Clock

from .backend import BackendUnderTest, Mishap
from .calls import unheard
from .fixtures import MOVE_SECONDS, Arrange, Asked, Run, SuiteFixtures, Until, needs

IMPATIENT_SECONDS = 0.5
LONG = ExecRequest(command="sleep 600", timeout_seconds=600)
ROUNDING = timedelta(seconds=1)
Become = Callable[[InstanceState], None]
Moved = Callable[..., Transitioned]


class StateFixtures(SuiteFixtures):
    @pytest.fixture
    def become(self, adapter: Adapter, sandbox: Target, until: Until) -> Become:
        """Wait until the sandbox is seen in a state."""
        return lambda state: until(lambda: adapter.get(sandbox).state is state)

    @pytest.fixture
    def stopped(self, adapter: Adapter, sandbox: Target, become: Become) -> Target:
        needs(adapter, Operation.STOP)
        adapter.stop(sandbox, MOVE_SECONDS)
        become(InstanceState.STOPPED)
        return sandbox


class RenewTests(StateFixtures):
    def test_a_renewal_moves_the_end_no_further_than_asked(
        self, adapter: Adapter, sandbox: Target, clock: Clock
    ) -> None:
        needs(adapter, Operation.RENEW)
        before = adapter.get(sandbox).expires_at
        until = (before or clock.now()) + timedelta(minutes=10)
        told = adapter.renew(sandbox, until)
        after = adapter.get(sandbox).expires_at
        if told is None:
            assert after is None
        else:
            assert after is not None
            assert abs(after - told) <= ROUNDING
            assert before is None or before - ROUNDING <= told <= until + ROUNDING

    def test_a_renewal_starts_nothing(self, adapter: Adapter, stopped: Target, clock: Clock) -> None:
        needs(adapter, Operation.RENEW)
        with contextlib.suppress(InvalidState):
            adapter.renew(stopped, clock.now() + timedelta(hours=1))
        assert adapter.get(stopped).state is InstanceState.STOPPED

    def test_a_renewal_revives_nothing(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, clock: Clock
    ) -> None:
        needs(adapter, Operation.RENEW)
        adapter.delete(sandbox)
        for target in (sandbox, Target(sandbox.owner)):
            with pytest.raises(NotFound):
                adapter.renew(target, clock.now() + timedelta(hours=1))
        assert backend.count() == 0

    def test_a_renewal_whose_answer_was_lost_is_observed(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target, clock: Clock
    ) -> None:
        needs(adapter, Operation.RENEW)
        before = adapter.get(sandbox).expires_at
        backend.lose_answer(Operation.RENEW)
        unheard(lambda: adapter.renew(sandbox, (before or clock.now()) + timedelta(minutes=10)))
        after = restarted.get(sandbox).expires_at
        assert (before is None) == (after is None)
        assert before is None or after is None or after >= before


class StopTests(StateFixtures):
    def test_a_stop_keeps_the_disk_and_a_start_goes_on_from_it(
        self, adapter: Adapter, sandbox: Target, run: Run, become: Become
    ) -> None:
        needs(adapter, Operation.STOP)
        run("echo kept > kept")
        assert adapter.stop(sandbox, MOVE_SECONDS).ref == sandbox.ref
        become(InstanceState.STOPPED)
        with pytest.raises(InvalidState):
            run("cat kept")
        assert adapter.start(sandbox, MOVE_SECONDS).ref == sandbox.ref
        become(InstanceState.RUNNING)
        assert run('cat kept; printf %s "$FROM_CREATE"').stdout == b"kept\nyes"

    def test_being_there_already_is_success(
        self, adapter: Adapter, restarted: Adapter, sandbox: Target, stopped: Target, become: Become
    ) -> None:
        assert restarted.stop(stopped, MOVE_SECONDS).state is InstanceState.STOPPED
        adapter.start(stopped, MOVE_SECONDS)
        become(InstanceState.RUNNING)
        assert restarted.start(stopped, MOVE_SECONDS).state is InstanceState.RUNNING

    def test_a_stopped_instance_is_still_there_and_can_be_removed(
        self, adapter: Adapter, backend: BackendUnderTest, stopped: Target
    ) -> None:
        assert [instance.state for instance in adapter.list(stopped.owner.installation)] == [InstanceState.STOPPED]
        assert adapter.get(Target(stopped.owner)).ref == stopped.ref
        adapter.delete(stopped)
        assert backend.count() == 0

    def test_what_ran_is_gone_after_a_stop(self, adapter: Adapter, sandbox: Target, become: Become) -> None:
        needs(adapter, Operation.STOP, Operation.JOB_START)
        adapter.job_start(sandbox, "long", LONG)
        adapter.stop(sandbox, MOVE_SECONDS)
        become(InstanceState.STOPPED)
        adapter.start(sandbox, MOVE_SECONDS)
        become(InstanceState.RUNNING)
        with contextlib.suppress(NotFound):
            assert adapter.job_status(sandbox, "long").state is not JobState.RUNNING

    def test_a_start_is_another_incarnation_where_it_has_any(
        self, adapter: Adapter, sandbox: Target, stopped: Target, become: Become
    ) -> None:
        before = adapter.get(sandbox).incarnation
        if not before:
            pytest.skip(f"{self.kind} tells no incarnation")
        adapter.start(stopped, MOVE_SECONDS)
        become(InstanceState.RUNNING)
        assert adapter.get(sandbox).incarnation not in {"", before}

    def test_a_stop_or_start_whose_answer_was_lost_is_observed(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target, become: Become
    ) -> None:
        needs(adapter, Operation.STOP)
        backend.lose_answer(Operation.STOP)
        unheard(lambda: adapter.stop(sandbox, MOVE_SECONDS))
        become(InstanceState.STOPPED)
        assert restarted.stop(sandbox, MOVE_SECONDS).state is InstanceState.STOPPED
        backend.lose_answer(Operation.START)
        unheard(lambda: adapter.start(sandbox, MOVE_SECONDS))
        become(InstanceState.RUNNING)
        assert backend.count() == 1

    def test_what_is_missing_is_neither_stopped_nor_started(self, adapter: Adapter, owner: Owner) -> None:
        needs(adapter, Operation.STOP)
        for call in (adapter.stop, adapter.start):
            with pytest.raises(NotFound):
                call(Target(owner), MOVE_SECONDS)


class PauseTests(StateFixtures):
    @pytest.fixture(autouse=True)
    def _needs_pauses(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in vars(PauseTests):
            needs(request.getfixturevalue("adapter"), Operation.PAUSE)

    @pytest.fixture
    def moved(self, adapter: Adapter, sandbox: Target, until: Until) -> Moved:
        """Pause or resume the incarnation that is there, to the end; later calls of the same name only observe."""

        def moved(operation: Operation, name: str, incarnation: str | None = None) -> Transitioned:
            named = adapter.get(sandbox).incarnation if incarnation is None else incarnation
            call = adapter.pause if operation is Operation.PAUSE else adapter.resume
            told = [call(sandbox, Transition(name, named), MOVE_SECONDS)]

            def is_over() -> bool:
                if told[-1].progress is Progress.UNDERWAY:
                    told.append(call(sandbox, Transition(name, named, observe_only=True), MOVE_SECONDS))
                return told[-1].progress is not Progress.UNDERWAY

            until(is_over)
            return told[-1]

        return moved

    @pytest.fixture
    def paused(self, sandbox: Target, moved: Moved) -> Target:
        done = moved(Operation.PAUSE, "pause-1")
        assert (done.progress, done.instance.state) == (Progress.DONE, InstanceState.PAUSED)
        return sandbox

    def test_a_pause_keeps_what_runs_and_a_resume_goes_on(
        self, adapter: Adapter, sandbox: Target, moved: Moved, run: Run
    ) -> None:
        run("echo kept > kept")
        if supports(adapter, Operation.JOB_START):
            adapter.job_start(sandbox, "long", LONG)
        assert moved(Operation.PAUSE, "pause-1").instance.state is InstanceState.PAUSED
        assert adapter.get(sandbox).state is InstanceState.PAUSED
        resumed = moved(Operation.RESUME, "resume-1")
        assert (resumed.progress, resumed.instance.state) == (Progress.DONE, InstanceState.RUNNING)
        assert run("cat kept").stdout == b"kept\n"
        if supports(adapter, Operation.JOB_START):
            assert adapter.job_status(sandbox, "long").state is JobState.RUNNING

    def test_a_paused_instance_takes_no_command_and_does_not_hang(self, paused: Target, run: Run) -> None:
        with pytest.raises(InvalidState):
            run("true")

    def test_a_pause_that_is_observed_again_is_the_first_and_never_another(
        self, adapter: Adapter, restarted: Adapter, paused: Target, asked: Asked
    ) -> None:
        again = Transition("pause-1", adapter.get(paused).incarnation, observe_only=True)
        before = asked(Operation.PAUSE)
        for client in (adapter, restarted):
            assert client.pause(paused, again, MOVE_SECONDS).progress is Progress.DONE
        assert asked(Operation.PAUSE) == before

    @pytest.mark.parametrize("operation", [Operation.PAUSE, Operation.RESUME])
    def test_observing_what_never_was_begins_nothing(
        self, adapter: Adapter, sandbox: Target, moved: Moved, asked: Asked, operation: Operation
    ) -> None:
        state = InstanceState.RUNNING
        if operation is Operation.RESUME:
            state = moved(Operation.PAUSE, "pause-1").instance.state
        before = asked(operation)
        call = adapter.pause if operation is Operation.PAUSE else adapter.resume
        never = Transition("never", adapter.get(sandbox).incarnation, observe_only=True)
        assert call(sandbox, never, MOVE_SECONDS).progress is not Progress.DONE
        assert adapter.get(sandbox).state is state
        assert asked(operation) == before

    @pytest.mark.parametrize("operation", [Operation.PAUSE, Operation.RESUME, Operation.CALL_OFF])
    def test_another_incarnation_is_left_alone(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, moved: Moved, operation: Operation
    ) -> None:
        needs(adapter, operation)
        if operation is not Operation.PAUSE:
            moved(Operation.PAUSE, "pause-1")
        before = backend.state_digest()
        call: Callable[..., object] = getattr(adapter, operation.value)
        with pytest.raises(InvalidState):
            call(sandbox, Transition("wrong", "another-incarnation"), MOVE_SECONDS)
        assert backend.state_digest() == before

    def test_a_resume_of_what_was_stopped_is_no_cold_start(
        self, adapter: Adapter, sandbox: Target, stopped: Target
    ) -> None:
        with pytest.raises(InvalidState):
            adapter.resume(sandbox, Transition("cold", adapter.get(sandbox).incarnation), MOVE_SECONDS)
        assert adapter.get(sandbox).state is InstanceState.STOPPED

    def test_a_checkpoint_is_resumed_once(self, adapter: Adapter, paused: Target, moved: Moved, run: Run) -> None:
        consumed = adapter.get(paused).incarnation
        moved(Operation.RESUME, "resume-1")
        run("echo later > later")
        now = adapter.get(paused).incarnation
        try:
            again = moved(Operation.RESUME, "resume-2", consumed)
        except InvalidState:
            pass
        else:
            assert now == consumed
            assert again.progress is Progress.DONE
        assert run("cat later").stdout == b"later\n"

    @pytest.mark.parametrize("operation", [Operation.PAUSE, Operation.RESUME])
    def test_one_whose_answer_was_lost_is_observed(
        self,
        adapter: Adapter,
        restarted: Adapter,
        backend: BackendUnderTest,
        sandbox: Target,
        moved: Moved,
        until: Until,
        operation: Operation,
    ) -> None:
        if operation is Operation.RESUME:
            moved(Operation.PAUSE, "pause-1")
        incarnation = adapter.get(sandbox).incarnation
        call: Callable[..., Transitioned] = getattr(adapter, operation.value)
        observe: Callable[..., Transitioned] = getattr(restarted, operation.value)
        backend.lose_answer(operation)
        unheard(lambda: call(sandbox, Transition("lost", incarnation), MOVE_SECONDS))
        told = Transition("lost", incarnation, observe_only=True)
        until(lambda: observe(sandbox, told, MOVE_SECONDS).progress is Progress.DONE)

    def test_a_pause_that_fails_half_way_leaves_it_running(
        self, adapter: Adapter, sandbox: Target, moved: Moved, arrange: Arrange, run: Run
    ) -> None:
        arrange(Mishap.PAUSE_REVERTS)
        failed = moved(Operation.PAUSE, "pause-1")
        assert (failed.progress, failed.instance.state) == (Progress.FAILED, InstanceState.RUNNING)
        assert run("echo runs").stdout == b"runs\n"
        assert moved(Operation.PAUSE, "pause-2").progress is Progress.DONE

    def test_a_pause_that_hangs_is_under_way_and_may_be_done_later(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, arrange: Arrange, become: Become
    ) -> None:
        arrange(Mishap.PAUSE_HANGS)
        told = Transition("slow", adapter.get(sandbox).incarnation)
        assert _progress(lambda: adapter.pause(sandbox, told, IMPATIENT_SECONDS)) is Progress.UNDERWAY
        backend.settle()
        become(InstanceState.PAUSED)

    def test_a_pause_that_is_called_off_leaves_the_same_incarnation_running(
        self,
        adapter: Adapter,
        backend: BackendUnderTest,
        sandbox: Target,
        arrange: Arrange,
        become: Become,
        run: Run,
    ) -> None:
        needs(adapter, Operation.CALL_OFF)
        run("echo kept > kept")
        arrange(Mishap.PAUSE_HANGS)
        told = Transition("slow", adapter.get(sandbox).incarnation)
        _progress(lambda: adapter.pause(sandbox, told, IMPATIENT_SECONDS))
        called_off = adapter.call_off(sandbox, told, MOVE_SECONDS)
        backend.settle()
        if called_off.progress is Progress.FAILED:  # too late: then it is paused as if nobody had asked
            become(InstanceState.PAUSED)
            return
        become(InstanceState.RUNNING)
        assert adapter.get(sandbox).incarnation == told.incarnation
        assert run("cat kept").stdout == b"kept\n"

    def test_a_paused_instance_is_removed_whole(
        self, adapter: Adapter, backend: BackendUnderTest, paused: Target
    ) -> None:
        adapter.delete(paused)
        assert backend.count() == 0


def _progress(call: Callable[[], Transitioned]) -> Progress:
    """How it stands; an answer that never came leaves it under way too."""
    try:
        return call().progress
    except DifferentlyError as error:
        if getattr(error, "settled", True):
            raise
        return Progress.UNDERWAY
