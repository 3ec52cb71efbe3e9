"""Eight clients at once, answers that get lost, and a model that must explain what each of them saw."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from differently_core.model.record import Key, Table
from differently_core.model.sandbox import Sandbox
from differently_core.store.dynamo import Credentials, DynamoStore
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Committed, Outcome, Put, R, Store
from tests.support.emulator import PYTHON, Emulator
from tests.support.scale import PROVING, scaled

from .model import Call, Kind, Told, Unexplained, explain
from .recording import LIMIT, Recording, give_way

HISTORIES = scaled(8, 500)
CALLS = scaled(60, 200)
HISTORIES_ON_DYNAMO = 10


@pytest.fixture(autouse=True)
def _restless() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual, so that calls meet in more places."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    yield
    sys.setswitchinterval(usual)


def judge(seed: int, store: Store, calls: int) -> Recording:
    recording = Recording(seed, store)
    recording.run(calls)
    assert recording.faults == []
    for key, history in recording.histories.items():
        try:
            explain(history)
        except Unexplained as unexplained:
            raise AssertionError(f"seed {seed}, {key}: {unexplained}") from None
    judge_counts(recording)
    return recording


def judge_counts(recording: Recording) -> None:
    """What is held is never more than the limit, or than what can have been made; and in the end it is nothing."""
    calls = [call for history in recording.histories.values() for call in history]
    for ended, held in recording.uses:
        assert held <= LIMIT
        assert held <= sum(call.began < ended for call in calls if call.kind is Kind.CREATE and _may_have_made(call))
    for path in (f"/v1/orgs/{recording.tenant.org}/quota", f"/v1/projects/{recording.tenant.project}/quota"):
        told = recording.world.call("GET", path, token=recording.world.operator).json()
        assert (told["used"]["concurrent"], told["waiting"]) == (0, 0), "all is deleted, and something is still held"
    assert recording.world.backend("main").instances() == []


def _may_have_made(call: Call) -> bool:
    return call.told in (Told.MADE, Told.UNKNOWN, Told.REPLAYED)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_what_clients_saw_is_explained(seed: int) -> None:
    recording = judge(seed, MemoryStore(during=give_way), CALLS)
    told = [call.told for history in recording.histories.values() for call in history]
    assert {Told.MADE, Told.REPLAYED, Told.CONFLICT, Told.LIVE, Told.GONE, Told.DONE, Told.UNKNOWN} <= set(told)


@pytest.mark.skipif(not PROVING, reason="minutes long: run it with `make prove`")
@pytest.mark.parametrize("seed", range(HISTORIES_ON_DYNAMO))
def test_what_clients_saw_over_dynamodb_is_explained(seed: int, emulator: Emulator) -> None:
    if not PYTHON.exists():
        pytest.skip("the embedded AWS is not installed: run the tests with `make test`")
    tables = emulator.tables()
    names = {Table.CONFIG: tables.config, Table.STATE: tables.state, Table.LOG: tables.log}
    credentials = Credentials(emulator.key_id, emulator.secret)
    judge(seed, DynamoStore(names, region=emulator.region, host=emulator.url, credentials=credentials), 40)


@pytest.mark.parametrize("fault", ["a read that is stale", "a write that is forgotten"])
def test_a_store_that_lies_is_found_out(fault: str) -> None:
    """Else an explanation of everything would explain nothing."""
    for seed in range(20):
        try:
            judge(seed, Lying(fault, random.Random(seed)), 60)
        except AssertionError:
            return
    pytest.fail("twenty histories over a store that lies were all explained")


class Lying(MemoryStore):
    """It gives an old row now and then, or says that it has written and has not."""

    def __init__(self, fault: str, chance: random.Random) -> None:
        super().__init__()
        self._fault = fault
        self._chance = chance
        self._old: dict[Key, Any] = {}

    def get(self, record: type[R], key: Key) -> R | None:
        found = super().get(record, key)
        if self._fault == "a read that is stale" and record is Sandbox and self._chance.random() < 0.3:
            old: R | None = self._old.setdefault(key, found)
            return old
        return found

    def transact(self, actions: Sequence[Action]) -> Outcome:
        changes = any(isinstance(action, Put) and action.name == "sandbox" for action in actions)
        forgets = self._fault == "a write that is forgotten" and changes and len(actions) == 2
        if forgets and self._chance.random() < 0.3:
            return Committed()
        return super().transact(actions)
