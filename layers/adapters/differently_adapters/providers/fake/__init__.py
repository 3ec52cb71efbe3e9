"""A backend in memory, for the simulator and for tests, that can fail in every way a cloud does."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from .adapter import FakeAdapter
from .backend import FakeBackend
from .config import FakeConfig
from .faults import (
    Broken,
    Call,
    Duplicate,
    Fail,
    Fault,
    Ignored,
    IgnoreFilter,
    Late,
    Linger,
    LoseAnswer,
    LoseCall,
    LosePage,
    OverlapPages,
    Partly,
    Pending,
    Plan,
    Refuse,
    RepeatCursor,
    Revert,
    Slow,
    TooLate,
    Unlisted,
    Vanish,
)
from .instances import FakeFile, FakeInstance, FakeJob, FakeSnapshot

__all__ = [
    "REGISTRATION",
    "Broken",
    "Call",
    "Duplicate",
    "Fail",
    "FakeAdapter",
    "FakeBackend",
    "FakeConfig",
    "FakeFile",
    "FakeInstance",
    "FakeJob",
    "FakeSnapshot",
    "Fault",
    "IgnoreFilter",
    "Ignored",
    "Late",
    "Linger",
    "LoseAnswer",
    "LoseCall",
    "LosePage",
    "OverlapPages",
    "Partly",
    "Pending",
    "Plan",
    "Refuse",
    "RepeatCursor",
    "Revert",
    "Slow",
    "TooLate",
    "Unlisted",
    "Vanish",
]

REGISTRATION = Registration(
    kind="fake",
    config=FakeConfig,
    trust=None,
    dev_only=True,
    summary="A backend in memory with planned faults. Runs nothing; simulation and tests only.",
    requirements=Requirements(credential=Need.OPTIONAL, credential_fields=("token",)),
    verification=Verification.FAKE,
    limits=("Nothing runs: a command writes its own text.",),
    identity=("backend",),
)
