"""What a plugin said that it can do, and what we make of that where it lacks a route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from differently_core.contract import (
    BACKED_BY,
    REQUIRED,
    SUPPORTED,
    Capabilities,
    Declaration,
    Operation,
    Supported,
    Unsupported,
)
from differently_core.model import features

from .wire import ToldInfo, ToldPlugin

_VERSION_1: Final[Mapping[str, frozenset[Operation]]] = {
    features.EXEC_STREAM: frozenset({Operation.EXEC_STREAM}),
    features.FILES: frozenset({Operation.FILE_READ, Operation.FILE_WRITE, Operation.FILE_LIST}),
    features.STOP_START: frozenset({Operation.STOP, Operation.START}),
    features.PAUSE_RESUME: frozenset({Operation.PAUSE, Operation.RESUME}),
    features.SNAPSHOTS_DISK: frozenset({Operation.SNAPSHOT, Operation.SNAPSHOT_DELETE}),
    features.SNAPSHOTS_MEMORY: frozenset({Operation.SNAPSHOT, Operation.SNAPSHOT_DELETE}),
    features.PORTS_EXPOSE: frozenset({Operation.PORT_EXPOSE}),
}
"""The routes that a version 1 plugin has, by the features that it declares."""

MADE_FROM: Final[Mapping[Operation, Operation]] = {
    Operation.JOB_START: Operation.EXEC,
    Operation.JOB_STATUS: Operation.EXEC,
    Operation.JOB_OUTPUT: Operation.EXEC,
    Operation.JOB_STOP: Operation.EXEC,
    Operation.JOB_INTERRUPT: Operation.EXEC,
    Operation.FILE_STAT: Operation.FILE_LIST,
    Operation.FILE_DELETE: Operation.FILE_LIST,
    Operation.DISCOVER: Operation.CAPABILITIES,
    Operation.VERIFY_CREDENTIAL: Operation.INFO,
}
"""What we offer without a route of its own, if there is the other operation to make it from."""
NOT_OFFERED: Final = Unsupported("not_offered_by_plugin")


@dataclass(frozen=True)
class Plugin:
    """`checks_owner`: it compares the owner we send with the instance's, on every call."""

    told: ToldPlugin

    @property
    def info(self) -> ToldInfo:
        return self.told.info

    @property
    def checks_owner(self) -> bool:
        return self.told.operations is not None

    @cached_property
    def routes(self) -> frozenset[Operation]:
        """The operations that have a route."""
        if self.told.operations is not None:
            return REQUIRED | {operation for operation in Operation if operation.value in self.told.operations}
        by_feature = [_VERSION_1[feature] for feature in self.told.capabilities.features & _VERSION_1.keys()]
        return REQUIRED.union(*by_feature)

    @cached_property
    def operations(self) -> Declaration:
        """What a pool behind it supports."""
        return {operation: self._support(operation) for operation in Operation}

    def _support(self, operation: Operation) -> Supported | Unsupported:
        if operation in self.routes or MADE_FROM.get(operation) in self.routes:
            return SUPPORTED
        return NOT_OFFERED

    def capabilities(self) -> Capabilities:
        told = self.told.capabilities
        backed = frozenset(
            feature
            for feature in told.features & features.KNOWN
            if feature not in BACKED_BY or BACKED_BY[feature] in self.routes
        )
        return told.value(backed | {features.EXEC})
