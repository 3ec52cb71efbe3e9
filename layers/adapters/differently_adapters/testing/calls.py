"""One call of each operation on a target, for tests that ask the same of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from differently_core.contract import Adapter, CreateRequest, Operation, Target
from differently_core.model.exec import ExecRequest

ECHO = ExecRequest(command="echo unexpected")


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
}
"""Everything that names one instance."""


def on_pool(request: CreateRequest) -> Mapping[Operation, Callable[[Adapter], object]]:
    """Everything else, except `info`, which asks nobody."""
    return {
        Operation.CAPABILITIES: lambda adapter: adapter.capabilities(),
        Operation.CAPACITY: lambda adapter: adapter.capacity(),
        Operation.HEALTH: lambda adapter: adapter.health(),
        Operation.CREATE: lambda adapter: adapter.create(request, 5.0),
        Operation.LIST: lambda adapter: adapter.list(request.owner.installation),
    }
