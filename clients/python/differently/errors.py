"""Every error that this package raises; `BY_CODE` finds the class of a code of the API."""

from __future__ import annotations

from ._codes import *  # noqa: F403
from ._codes import BY_CODE
from ._failure import (
    ApiError,
    CommandFailed,
    ConfigurationError,
    ConnectionFailed,
    DifferentlyError,
    SandboxEnded,
    SnapshotFailed,
    StreamCut,
    UnexpectedAnswer,
    UploadFailed,
    WaitTimeout,
)

__all__ = [
    "BY_CODE",
    "ApiError",
    "CommandFailed",
    "ConfigurationError",
    "ConnectionFailed",
    "DifferentlyError",
    "SandboxEnded",
    "SnapshotFailed",
    "StreamCut",
    "UnexpectedAnswer",
    "UploadFailed",
    "WaitTimeout",
    *(kind.__name__ for kind in BY_CODE.values()),
]
