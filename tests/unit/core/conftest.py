"""A world with one organization, one project and one private pool over a fake backend."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import FakeBackend
from tests.support.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def backend(world: World) -> FakeBackend:
    return world.add_pool()
