"""A backend in memory, for the simulator and for tests, that can fail in every way a cloud does."""

from __future__ import annotations

from differently_core.contract import Registration

from .adapter import FakeAdapter, FakeConfig
from .backend import FakeBackend, FakeInstance
from .faults import (
    Call,
    Duplicate,
    Fail,
    Fault,
    Late,
    Linger,
    LoseAnswer,
    LoseCall,
    Pending,
    Plan,
    Refuse,
    Slow,
    Unlisted,
    Vanish,
)

__all__ = [
    "REGISTRATION",
    "Call",
    "Duplicate",
    "Fail",
    "FakeAdapter",
    "FakeBackend",
    "FakeConfig",
    "FakeInstance",
    "Fault",
    "Late",
    "Linger",
    "LoseAnswer",
    "LoseCall",
    "Pending",
    "Plan",
    "Refuse",
    "Slow",
    "Unlisted",
    "Vanish",
]

REGISTRATION = Registration(
    kind="fake",
    config=FakeConfig,
    trust=None,
    dev_only=True,
    summary="A backend in memory with planned faults. Runs nothing; simulation and tests only.",
)
