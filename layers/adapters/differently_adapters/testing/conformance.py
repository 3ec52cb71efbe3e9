"""The whole suite: what an adapter promises, one class a topic."""

from __future__ import annotations

from .commands import CommandTests, StreamTests
from .declaration import DeclarationTests
from .failures import FailureTests
from .files import FileTests
from .jobs import JobTests
from .lifecycle import LifecycleTests
from .listing import ListTests
from .network import EgressTests, PortTests
from .observation import ObservationTests
from .ownership import OwnershipTests
from .snapshots import SnapshotTests
from .states import PauseTests, RenewTests, StopTests


class AdapterConformance(
    DeclarationTests,
    LifecycleTests,
    ListTests,
    OwnershipTests,
    ObservationTests,
    FailureTests,
    RenewTests,
    StopTests,
    PauseTests,
    SnapshotTests,
    PortTests,
    EgressTests,
    CommandTests,
    StreamTests,
    JobTests,
    FileTests,
):
    """Inherit it, give the fixtures of `AdapterFixtures`, and change no test."""
