"""What every test may use."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.emulator import Emulator, running_emulator

# A shell starts what it puts in the background with SIGINT ignored, and every process below inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How long one example took says how busy the machine was; pytest-timeout bounds a whole test.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """The embedded AWS of this test worker; see `tests.support.emulator`."""
    with running_emulator(tmp_path_factory.mktemp("emulator")) as running:
        yield running
