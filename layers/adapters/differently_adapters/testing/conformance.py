"""The whole suite: what an adapter promises, one class a topic."""

from __future__ import annotations

from .commands import CommandTests, StreamTests
from .declaration import DeclarationTests
from .files import FileTests
from .jobs import JobTests
from .lifecycle import LifecycleTests
from .ownership import OwnershipTests


class AdapterConformance(
    DeclarationTests, LifecycleTests, OwnershipTests, CommandTests, StreamTests, JobTests, FileTests
):
    """Inherit it, give the fixtures of `AdapterFixtures`, and change no test."""
