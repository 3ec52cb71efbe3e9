"""A control plane for each test: in memory, and where the embedded AWS is there, on DynamoDB too."""

from __future__ import annotations

import pytest

from differently_core.model.record import Table
from differently_core.store.dynamo import Credentials, DynamoStore
from differently_core.store.kms import KmsSealer
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Store
from differently_core.store.sealing import MemorySealer, Sealer
from tests.support.api import Tenant, World
from tests.support.emulator import PYTHON, Emulator


def _parts(request: pytest.FixtureRequest) -> tuple[Store, Sealer]:
    if request.param == "memory":
        return MemoryStore(), MemorySealer()
    if not PYTHON.exists():
        pytest.skip("the embedded AWS is not installed: run the tests with `make test`")
    emulator: Emulator = request.getfixturevalue("emulator")
    tables = emulator.tables()
    names = {Table.CONFIG: tables.config, Table.STATE: tables.state, Table.LOG: tables.log}
    credentials = Credentials(emulator.key_id, emulator.secret)
    store = DynamoStore(names, region=emulator.region, host=emulator.url, credentials=credentials)
    return store, KmsSealer(emulator.secrets_key(), region=emulator.region, host=emulator.url, credentials=credentials)


@pytest.fixture(params=["memory", "dynamo"])
def world(request: pytest.FixtureRequest) -> World:
    """With one pool named `main`."""
    store, sealer = _parts(request)
    made = World(store, sealer=sealer)
    made.pool()
    return made


@pytest.fixture
def memory() -> World:
    """In memory alone: for what does not depend on the store."""
    made = World()
    made.pool()
    return made


@pytest.fixture
def acme(world: World) -> Tenant:
    return world.tenant("acme")
