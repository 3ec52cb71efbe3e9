"""The operations of the contract, and how an adapter declares each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..model import features


class Operation(StrEnum):
    """Every operation of the contract; each adapter declares each one."""

    INFO = "info"
    CAPABILITIES = "capabilities"
    CAPACITY = "capacity"
    HEALTH = "health"
    CREATE = "create"
    GET = "get"
    LIST = "list"
    DELETE = "delete"
    EXEC = "exec"
    EXEC_STREAM = "exec_stream"
    JOB_START = "job_start"
    JOB_STATUS = "job_status"
    JOB_OUTPUT = "job_output"
    JOB_STOP = "job_stop"
    FILE_READ = "file_read"
    FILE_WRITE = "file_write"
    FILE_LIST = "file_list"
    FILE_STAT = "file_stat"
    FILE_DELETE = "file_delete"
    JOB_INTERRUPT = "job_interrupt"
    RENEW = "renew"
    STOP = "stop"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    CALL_OFF = "call_off"
    SNAPSHOT = "snapshot"
    SNAPSHOT_GET = "snapshot_get"
    SNAPSHOT_DELETE = "snapshot_delete"
    PORT_EXPOSE = "port_expose"
    PORT_REVOKE = "port_revoke"
    EGRESS_SET = "egress_set"
    OBSERVE_MANY = "observe_many"
    DISCOVER = "discover"
    VERIFY_CREDENTIAL = "verify_credential"


REQUIRED = frozenset(
    {
        Operation.INFO, Operation.CAPABILITIES, Operation.CAPACITY, Operation.HEALTH, Operation.CREATE, Operation.GET,
        Operation.LIST, Operation.DELETE, Operation.EXEC,
    }
)  # fmt: skip
TOGETHER: tuple[frozenset[Operation], ...] = (
    frozenset({Operation.JOB_START, Operation.JOB_STATUS, Operation.JOB_OUTPUT, Operation.JOB_STOP}),
    frozenset(
        {
            Operation.FILE_READ, Operation.FILE_WRITE, Operation.FILE_LIST, Operation.FILE_STAT, Operation.FILE_DELETE,
        }
    ),
    frozenset({Operation.STOP, Operation.START}),
    frozenset({Operation.PAUSE, Operation.RESUME}),
    frozenset({Operation.SNAPSHOT, Operation.SNAPSHOT_GET, Operation.SNAPSHOT_DELETE}),
)  # fmt: skip
"""Operations that only make sense together are declared together."""


@dataclass(frozen=True)
class Supported:
    pass


@dataclass(frozen=True)
class Unsupported:
    """`reason` is an authored code such as `no_background_commands`, safe to show to a caller."""

    reason: str


Declaration = Mapping[Operation, Supported | Unsupported]
SUPPORTED = Supported()


NEEDS: Mapping[Operation, Operation] = {
    Operation.CALL_OFF: Operation.PAUSE,
    Operation.JOB_INTERRUPT: Operation.JOB_START,
    Operation.PORT_REVOKE: Operation.PORT_EXPOSE,
}
"""An operation that means nothing without another one."""

BACKED_BY: Mapping[str, Operation] = {
    features.EXEC: Operation.EXEC,
    features.EXEC_STREAM: Operation.EXEC_STREAM,
    features.FILES: Operation.FILE_READ,
    features.STOP_START: Operation.STOP,
    features.PERSISTENCE_DISK: Operation.STOP,
    features.PAUSE_RESUME: Operation.PAUSE,
    features.SNAPSHOTS_DISK: Operation.SNAPSHOT,
    features.SNAPSHOTS_MEMORY: Operation.SNAPSHOT,
    features.FORK: Operation.SNAPSHOT,
    features.PORTS_EXPOSE: Operation.PORT_EXPOSE,
    features.EGRESS_CONTROL: Operation.EGRESS_SET,
}
"""A feature that a pool may only advertise when its adapter declares the operation behind it."""
