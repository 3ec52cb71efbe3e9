"""One call of each operation on a target, for tests that ask the same of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pytest

from differently_core.contract import (
    Adapter,
    CreateRequest,
    EgressAction,
    EgressRules,
    Operation,
    Owner,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Transition,
)
from differently_core.errors import BackendError, DifferentlyError
from differently_core.model.exec import ExecRequest

ECHO = ExecRequest(command="echo unexpected")
SECONDS = 5.0
MUCH_LATER = datetime(2100, 1, 1, tzinfo=UTC)
DENY = EgressRules(EgressAction.DENY, allow=("example.com",))
SNAPSHOT = SnapshotRequest(SnapshotKind.DISK, operation="op-conformance")
MOVE = Transition(operation="op-conformance", incarnation="1")


def _drain(adapter: Adapter, target: Target) -> None:
    for _ in adapter.exec_stream(target, ECHO, 1.0):
        pass


def _read(adapter: Adapter, target: Target) -> None:
    for _ in adapter.file_read(target, "conformance/kept").chunks:
        pass


ON_TARGET: Mapping[Operation, Callable[[Adapter, Target], object]] = {
    Operation.GET: lambda adapter, target: adapter.get(target),
    Operation.DELETE: lambda adapter, target: adapter.delete(target),
    Operation.EXEC: lambda adapter, target: adapter.exec(target, ECHO, 1_000),
    Operation.EXEC_STREAM: _drain,
    Operation.JOB_START: lambda adapter, target: adapter.job_start(target, "job", ECHO),
    Operation.JOB_STATUS: lambda adapter, target: adapter.job_status(target, "job"),
    Operation.JOB_OUTPUT: lambda adapter, target: adapter.job_output(target, "job", "stdout", 0, 100),
    Operation.JOB_STOP: lambda adapter, target: adapter.job_stop(target, "job"),
    Operation.FILE_READ: _read,
    Operation.FILE_WRITE: lambda adapter, target: adapter.file_write(target, "conformance/kept", [b"changed"]),
    Operation.FILE_LIST: lambda adapter, target: adapter.file_list(target, "conformance"),
    Operation.FILE_STAT: lambda adapter, target: adapter.file_stat(target, "conformance/kept"),
    Operation.FILE_DELETE: lambda adapter, target: adapter.file_delete(target, "conformance/kept"),
    Operation.JOB_INTERRUPT: lambda adapter, target: adapter.job_interrupt(target, "job"),
    Operation.RENEW: lambda adapter, target: adapter.renew(target, MUCH_LATER),
    Operation.STOP: lambda adapter, target: adapter.stop(target, SECONDS),
    Operation.START: lambda adapter, target: adapter.start(target, SECONDS),
    Operation.PAUSE: lambda adapter, target: adapter.pause(target, MOVE, SECONDS),
    Operation.RESUME: lambda adapter, target: adapter.resume(target, MOVE, SECONDS),
    Operation.CALL_OFF: lambda adapter, target: adapter.call_off(target, MOVE, SECONDS),
    Operation.SNAPSHOT: lambda adapter, target: adapter.snapshot(target, SNAPSHOT, SECONDS),
    Operation.PORT_EXPOSE: lambda adapter, target: adapter.port_expose(target, 8080, 60),
    Operation.PORT_REVOKE: lambda adapter, target: adapter.port_revoke(target, 8080),
    Operation.EGRESS_SET: lambda adapter, target: adapter.egress_set(target, DENY),
}
"""Everything that names one instance and nothing else."""

ON_SNAPSHOT: Mapping[Operation, Callable[[Adapter, Owner, str], object]] = {
    Operation.SNAPSHOT_GET: lambda adapter, owner, ref: adapter.snapshot_get(owner, ref),
    Operation.SNAPSHOT_DELETE: lambda adapter, owner, ref: adapter.snapshot_delete(owner, ref),
}


def on_pool(request: CreateRequest) -> Mapping[Operation, Callable[[Adapter], object]]:
    """Everything else, except `info`, which asks nobody."""
    return {
        Operation.OBSERVE_MANY: lambda adapter: adapter.observe_many([Target(request.owner)]),
        Operation.DISCOVER: lambda adapter: adapter.discover(),
        Operation.VERIFY_CREDENTIAL: lambda adapter: adapter.verify_credential(),
        Operation.CAPABILITIES: lambda adapter: adapter.capabilities(),
        Operation.CAPACITY: lambda adapter: adapter.capacity(),
        Operation.HEALTH: lambda adapter: adapter.health(),
        Operation.CREATE: lambda adapter: adapter.create(request, SECONDS),
        Operation.LIST: lambda adapter: adapter.list(request.owner.installation),
    }


def every_call(request: CreateRequest, ref: str) -> Mapping[Operation, Callable[[Adapter], object]]:
    """Every operation but `info`, on what is named by the request's owner and `ref`."""
    target = Target(request.owner, ref)
    return {
        **on_pool(request),
        **{operation: _bound(call, target) for operation, call in ON_TARGET.items()},
        **{operation: _bound(call, request.owner, ref) for operation, call in ON_SNAPSHOT.items()},
    }


def unheard(call: Callable[[], object]) -> None:
    """Make a call and never hear its answer. If the adapter noticed, it says that it does not know."""
    try:
        call()
    except BackendError as error:
        if error.settled:
            pytest.fail("a lost answer was reported as settled")
    except DifferentlyError as error:
        pytest.fail(f"a lost answer was reported as {error.code}")


def _bound(call: Callable[..., object], *what: object) -> Callable[[Adapter], object]:
    return lambda adapter: call(adapter, *what)
