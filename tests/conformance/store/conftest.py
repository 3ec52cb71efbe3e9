"""Both stores, behind one fixture: what a test asks of `store`, it asks of memory and of DynamoDB."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from differently_core.model.record import Table
from differently_core.runtime.clock import VirtualClock
from differently_core.store.dynamo import Credentials, DynamoStore
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Store
from tests.conformance.store.faults import Faults
from tests.conformance.store.samples import Samples
from tests.support.emulator import Emulator

_NUMBERS = itertools.count(1)


def dynamo_store(emulator: Emulator) -> DynamoStore:
    """On tables of its own; its waits pass at once."""
    tables = emulator.tables()
    names = {Table.CONFIG: tables.config, Table.STATE: tables.state, Table.LOG: tables.log}
    credentials = Credentials(emulator.key_id, emulator.secret)
    return DynamoStore(names, region=emulator.region, host=emulator.url, credentials=credentials, clock=VirtualClock())


@pytest.fixture(scope="module")
def dynamo(emulator: Emulator) -> DynamoStore:
    return dynamo_store(emulator)


@pytest.fixture(params=["memory", "dynamo"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return MemoryStore()
    made: DynamoStore = request.getfixturevalue("dynamo")
    return made


@pytest.fixture
def some() -> Samples:
    """Records that no other test has: the tables of a module are shared."""
    return Samples(next(_NUMBERS))


@pytest.fixture
def faults(dynamo: DynamoStore) -> Iterator[Faults]:
    with Faults.injected_into(dynamo) as faults:
        yield faults
