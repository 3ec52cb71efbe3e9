"""What every test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.emulator import Emulator, running_emulator


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """The embedded AWS of this test worker; see `tests.support.emulator`."""
    with running_emulator(tmp_path_factory.mktemp("emulator")) as running:
        yield running
