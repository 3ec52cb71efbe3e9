"""Control planes for the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.plane import Client, Plane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """One that runs for a whole module."""
    running = Plane(tmp_path_factory.mktemp("plane"))
    try:
        running.start()
        yield running
    finally:
        running.clean_up()


@pytest.fixture
def client(plane: Plane) -> Iterator[Client]:
    with plane.client() as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[[], Plane]]:
    """Makes planes that a test starts, kills and starts again; all on one data directory."""
    made: list[Plane] = []

    def make() -> Plane:
        made.append(Plane(tmp_path / "data"))
        return made[-1]

    try:
        yield make
    finally:
        for plane in made:
            plane.clean_up()
