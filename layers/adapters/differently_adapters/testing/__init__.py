"""The conformance suite that every adapter passes, ours and other people's.

    class TestLabFleet(AdapterConformance):
        kind = "lab-fleet"

        @pytest.fixture
        def backend(self) -> LabFleetBackend: ...      # a `BackendUnderTest`: your system, or a stand-in for it

        @pytest.fixture
        def adapter(self, backend) -> LabFleetAdapter: ...

Every test is inherited. A test is skipped only for a reason that the adapter's declaration or its backend gives.
Needs pytest.
"""

from __future__ import annotations

import pytest

# A failed assertion then shows its values, as in a test file.
TOPICS = (
    "declaration", "lifecycle", "listing", "ownership", "observation", "failures", "states", "snapshots", "network",
    "commands", "jobs", "files",
)  # fmt: skip
pytest.register_assert_rewrite(*(f"{__name__}.{topic}" for topic in TOPICS))

from .backend import BackendUnderTest, CannotHappen, Mishap  # noqa: E402
from .conformance import AdapterConformance  # noqa: E402
from .fixtures import a_create_request  # noqa: E402
from .shell import HostShell  # noqa: E402

__all__ = ["AdapterConformance", "BackendUnderTest", "CannotHappen", "HostShell", "Mishap", "a_create_request"]
