"""Each failure in its class, nothing asked for twice, and nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from differently_core.contract import (
    Adapter,
    EgressAction,
    EgressRules,
    Operation,
    Output,
    Owner,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Transition,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import Clock

from .backend import BackendUnderTest, Mishap
from .calls import MUCH_LATER, unheard
from .fixtures import (
    CREATE_SECONDS,
    MOVE_SECONDS,
    SNAPSHOT_SECONDS,
    Arrange,
    Asked,
    Make,
    Run,
    SuiteFixtures,
    Until,
    needs,
)

Effect = Callable[[Adapter, Target, str], object]
EFFECTS: Mapping[Operation, Effect] = {
    Operation.DELETE: lambda adapter, target, _: adapter.delete(target),
    Operation.EXEC: lambda adapter, target, _: adapter.exec(target, ExecRequest(command="true"), 100),
    Operation.RENEW: lambda adapter, target, _: adapter.renew(target, MUCH_LATER),
    Operation.STOP: lambda adapter, target, _: adapter.stop(target, MOVE_SECONDS),
    Operation.START: lambda adapter, target, _: adapter.start(target, MOVE_SECONDS),
    Operation.PAUSE: lambda adapter, target, now: adapter.pause(target, Transition("once", now), MOVE_SECONDS),
    Operation.RESUME: lambda adapter, target, now: adapter.resume(target, Transition("once", now), MOVE_SECONDS),
    Operation.SNAPSHOT: lambda adapter, target, _: adapter.snapshot(
        target, SnapshotRequest(_kind(adapter), "once"), SNAPSHOT_SECONDS
    ),
    Operation.EGRESS_SET: lambda adapter, target, _: adapter.egress_set(target, EgressRules(EgressAction.DENY)),
}


def _kind(adapter: Adapter) -> SnapshotKind:
    return SnapshotKind.DISK if features.SNAPSHOTS_DISK in adapter.capabilities().features else SnapshotKind.MEMORY


class FailureTests(SuiteFixtures):
    def test_no_room_is_insufficient_capacity_and_nothing_was_made(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, make: Make, arrange: Arrange
    ) -> None:
        arrange(Mishap.NO_ROOM)
        with pytest.raises(InsufficientCapacity) as full:
            adapter.create(make(owner), CREATE_SECONDS)
        assert full.value.settled
        assert backend.count() == 0
        adapter.create(make(owner), CREATE_SECONDS)

    @pytest.mark.parametrize(
        ("mishap", "expected"),
        [
            (Mishap.INSTANCE_FAILS, SandboxFailed),
            (Mishap.BOOTSTRAP_FAILS, BackendError),
            (Mishap.REQUEST_REFUSED, InvalidRequest),
        ],
    )
    def test_a_create_that_fails_says_whose_fault_it_is_and_what_is_left_can_be_removed(
        self,
        adapter: Adapter,
        restarted: Adapter,
        backend: BackendUnderTest,
        owner: Owner,
        make: Make,
        arrange: Arrange,
        mishap: Mishap,
        expected: type[DifferentlyError],
    ) -> None:
        arrange(mishap)
        with pytest.raises(expected) as failed:
            adapter.create(make(owner, {"SECRET": "canary-of-the-caller"}), CREATE_SECONDS)
        assert not isinstance(failed.value, InsufficientCapacity)
        assert "canary-of-the-caller" not in f"{failed.value!r} {failed.value.details}"
        if getattr(failed.value, "settled", False):
            assert backend.count() == 0
        restarted.delete(Target(owner))
        assert backend.count() == 0

    def test_a_rejected_credential_is_an_outage_of_the_pool_and_is_not_told(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, sandbox: Target, make: Make, arrange: Arrange
    ) -> None:
        arrange(Mishap.CREDENTIAL_REVOKED)
        calls: list[Callable[[], object]] = [
            adapter.health,
            lambda: adapter.get(sandbox),
            lambda: adapter.list(owner.installation),
            lambda: adapter.create(make(owner), CREATE_SECONDS),
            lambda: adapter.delete(sandbox),
        ]
        for call in calls:
            with pytest.raises(ProviderUnavailable) as refused:
                call()
            told = f"{refused.value!r} {refused.value.details}"
            assert not any(secret in told for secret in self.secrets)
        backend.come_up()
        assert adapter.get(sandbox).ref == sandbox.ref

    def test_a_create_is_asked_for_once(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, make: Make, asked: Asked
    ) -> None:
        before = asked(Operation.CREATE)
        backend.lose_answer(Operation.CREATE)
        unheard(lambda: adapter.create(make(owner), CREATE_SECONDS))
        assert asked(Operation.CREATE) == before + 1

    @pytest.mark.parametrize("operation", EFFECTS)
    def test_what_changes_something_is_asked_for_once(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, asked: Asked, operation: Operation
    ) -> None:
        needs(adapter, operation)
        incarnation = adapter.get(sandbox).incarnation
        for before_it, first in ((Operation.START, Operation.STOP), (Operation.RESUME, Operation.PAUSE)):
            if operation is before_it:
                EFFECTS[first](adapter, sandbox, incarnation)
        before = asked(operation)
        backend.lose_answer(operation)
        unheard(partial(EFFECTS[operation], adapter, sandbox, adapter.get(sandbox).incarnation))
        assert asked(operation) == before + 1

    def test_a_stream_that_nobody_reads_to_its_end_leaves_nothing_running_here(
        self, adapter: Adapter, sandbox: Target, run: Run, until: Until
    ) -> None:
        needs(adapter, Operation.EXEC_STREAM)
        before = set(threading.enumerate())
        request = ExecRequest(command="echo one; until [ -e go ]; do sleep 0.02; done", timeout_seconds=20)
        events = adapter.exec_stream(sandbox, request, 5.0)
        next(event for event in events if isinstance(event, Output))
        _close(events)
        run("touch go")
        until(lambda: not set(threading.enumerate()) - before)

    def test_a_file_that_nobody_reads_to_its_end_leaves_nothing_running_here(
        self, adapter: Adapter, sandbox: Target, until: Until
    ) -> None:
        needs(adapter, Operation.FILE_READ)
        before = set(threading.enumerate())
        adapter.file_write(sandbox, "conformance/long", [bytes(2_000_000)])
        _close(adapter.file_read(sandbox, "conformance/long").chunks)
        chunks = adapter.file_read(sandbox, "conformance/long").chunks
        next(chunks)
        _close(chunks)
        assert adapter.file_stat(sandbox, "conformance/long").size == 2_000_000
        until(lambda: not set(threading.enumerate()) - before)

    def test_a_closed_client_has_no_threads(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, until: Until, clock: Clock
    ) -> None:
        before = set(threading.enumerate())
        adapter.get(sandbox)
        adapter.exec(sandbox, ExecRequest(command="true"), 100)
        adapter.close()
        until(lambda: not set(threading.enumerate()) - before)


def _close(iterator: object) -> None:
    close = getattr(iterator, "close", None)
    if callable(close):
        close()
