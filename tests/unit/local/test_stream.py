"""A consumer of the log's stream on one machine sees what Lambda would hand it, at least once and in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from differently_core.model.record import Table
from differently_core.operations.core import Core
from differently_core.runtime.clock import VirtualClock
from differently_core.store.dynamo import Credentials, DynamoStore
from differently_core.store.ports import Absent, Put
from differently_local import data_stack, stream
from differently_local.failure import StartFailure
from differently_local.stream import Follower, Source
from differently_scheduler import sealer
from tests.support.emulator import Emulator
from tests.support.stream import delivery
from tests.support.world import World
from tests.unit.core.test_sealing import an_event, chain


class Given:
    """A source of what a test says."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.records = list(records)

    def read(self) -> list[dict[str, Any]]:
        given, self.records = self.records, []
        return given


class Consumer:
    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.answers: list[Any] = []

    def __call__(self, core: Core, event: Mapping[str, Any]) -> object:
        self.seen.append([record["dynamodb"]["SequenceNumber"][-1] for record in event["Records"]])
        answer = self.answers.pop(0) if self.answers else {"batchItemFailures": []}
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def core() -> Core:
    return World().core


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def follower(core: Core, consumer: Consumer) -> Follower:
    return Follower(consumer, core, Given(*(delivery(an_event(core, n), n) for n in range(1, 5))))  # type: ignore[arg-type]


def failed(number: int) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": f"{number:021d}"}]}


def test_what_failed_comes_again_from_there_on(follower: Follower, consumer: Consumer) -> None:
    consumer.answers = [failed(3), RuntimeError("boom")]
    pauses = [follower.beat() for _ in range(4)]
    assert consumer.seen == [["1", "2", "3", "4"], ["3", "4"], ["3", "4"]]
    assert pauses[0] > 0
    assert pauses[1] > pauses[0]
    assert pauses[2:] == [0.0, stream.IDLE_SECONDS]


def test_a_record_that_fails_for_ever_is_given_up(follower: Follower, consumer: Consumer) -> None:
    consumer.answers = [failed(1)] * stream.TRIES_MAX
    for _ in range(stream.TRIES_MAX + 1):
        follower.beat()
    assert consumer.seen[-1] == ["2", "3", "4"]


def test_an_endpoint_elsewhere_is_refused() -> None:
    with pytest.raises(StartFailure, match="not a loopback"):
        Source("http://10.0.0.1:1", "arn")


def test_events_of_the_embedded_aws_are_sealed_through_its_stream(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The embedded AWS tells accounts apart by the key.
    monkeypatch.setattr(stream, "KEY_ID", emulator.key_id)
    tables = emulator.tables()
    names = {Table.CONFIG: tables.config, Table.STATE: tables.state, Table.LOG: tables.log}
    store = DynamoStore(
        names, region=emulator.region, host=emulator.url, clock=VirtualClock(),
        credentials=Credentials(emulator.key_id, emulator.secret),
    )  # fmt: skip
    core = World(wrap=lambda _: store).core
    follower = Follower(sealer.handle, core, Source(emulator.url, tables.log_stream_arn))
    events = [an_event(core, number, details={"count": number, "name": "é", "no": None}) for number in range(5)]
    for event in events:
        store.transact([Put(event, (Absent(),), "event")])

    beats = [follower.beat() for _ in range(3)]

    # The chain's own rows come by on the stream as well, and are kept back.
    assert beats[-1] == stream.IDLE_SECONDS
    assert chain(core) == [event.id for event in events]
    again = Follower(sealer.handle, core, Source(emulator.url, tables.log_stream_arn))
    assert again.beat() == 0.0
    assert chain(core) == [event.id for event in events]


def test_the_stream_is_that_of_the_data_stack() -> None:
    assert data_stack._STREAM_OUTPUT == "LogStreamArn"
