"""Control planes for the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.plane import Client, Plane

HOSTILE = {
    "AWS_PROFILE": "no-such-profile",
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_ENDPOINT_URL": "http://192.0.2.1:1",
    "AWS_REGION": "eu-central-1",
    "HTTP_PROXY": "http://192.0.2.1:1",
    "http_proxy": "http://192.0.2.1:1",
}
"""A shell that is set up for somebody else's account, behind a proxy that does not answer: none of it may matter."""


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """One that tests share, each with sandboxes of its own."""
    running = Plane(tmp_path_factory.mktemp("plane"))
    try:
        running.start(**HOSTILE, WEBHOOKS_ALLOW_LOOPBACK="true")
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
