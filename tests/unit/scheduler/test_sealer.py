"""The sealer works off what it can read, says where to begin again, and is stopped by nothing that a record holds."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from typing import Any

import pytest

from differently_core.model.event import Event
from differently_core.model.record import Table
from differently_core.operations.core import Core
from differently_core.store import stream
from differently_core.store.ports import StoreThrottled
from differently_scheduler import sealer
from tests.support.stream import batch, delivery
from tests.support.world import World
from tests.unit.core.test_sealing import an_event, chain


@pytest.fixture
def core() -> Core:
    return World().core


def numbered(event: Event, org: str) -> Event:
    return event.with_(org=org)


def test_a_batch_is_sealed_by_organization(core: Core) -> None:
    one, two = an_event(core, 1), numbered(an_event(core, 2), "org_2")
    assert sealer.handle(core, batch([one, two])) == {"batchItemFailures": []}
    assert (chain(core), chain(core, "org_2")) == ([one.id], [two.id])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record["dynamodb"]["NewImage"].update(doc={"S": "not json"}),
        lambda record: record["dynamodb"]["NewImage"].update(doc={"S": "[]"}),
        lambda record: record["dynamodb"]["NewImage"].update(doc={"S": "[" * 100_000}),
        lambda record: record["dynamodb"]["NewImage"].update(kind={"S": "unheard-of"}),
        lambda record: record["dynamodb"]["NewImage"].update(kind={"S": "chain"}, size={"N": "1"}),
        lambda record: record["dynamodb"]["NewImage"].update(org={"S": "org_9"}),
        lambda record: record["dynamodb"].pop("NewImage"),
        lambda record: record.pop("eventName"),
        lambda record: record.pop("dynamodb"),
    ],
)
def test_a_poison_record_is_told_and_the_rest_goes_on(core: Core, spoil: Any, caplog: pytest.LogCaptureFixture) -> None:
    """reliability.md I12, F12."""
    events = [an_event(core, number) for number in range(3)]
    poisoned = batch(events)
    spoil(poisoned["Records"][1])
    with caplog.at_level(logging.ERROR):
        assert sealer.handle(core, poisoned) == {"batchItemFailures": []}
    assert chain(core) == [events[0].id, events[2].id]
    assert "event unreadable" in caplog.messages


def test_a_field_of_a_later_version_is_not_sealed_without_it(core: Core) -> None:
    record = delivery(an_event(core, 1), 1)
    record["dynamodb"]["NewImage"]["doc"]["S"] = record["dynamodb"]["NewImage"]["doc"]["S"][:-1] + ',"later":1}'
    (unreadable,) = stream.read({"Records": [record]}).unreadable
    assert unreadable.why == "fields of another version"


def test_what_is_no_event_is_passed_over(core: Core) -> None:
    sealer.handle(core, batch([an_event(core, 1)]))
    rows = core.store.query(Table.LOG, "SEG#org_1").rows
    assert rows
    assert stream.read(batch(rows)) == stream.Batch()


@pytest.mark.parametrize("how", ["MODIFY", "REMOVE"])
def test_an_event_that_was_touched_is_told(core: Core, how: str, caplog: pytest.LogCaptureFixture) -> None:
    event = an_event(core, 1)
    record = delivery(event, 1, how)
    if how == "REMOVE":
        del record["dynamodb"]["NewImage"]
    with caplog.at_level(logging.ERROR):
        assert sealer.handle(core, {"Records": [record]}) == {"batchItemFailures": []}
    (line,) = [line for line in caplog.records if line.msg == "event touched"]
    assert (line.org, line.event, line.why) == (event.org, event.id, how)  # type: ignore[attr-defined]
    assert chain(core) == []


def test_a_fault_with_one_organization_holds_up_no_other(core: Core) -> None:
    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(core.store, name)

        def transact(self, actions: Any) -> Any:
            if any("org_2" in action.record.key().sk for action in actions):
                raise StoreThrottled("busy")
            return core.store.transact(actions)

    one, two = an_event(core, 1), numbered(an_event(core, 2), "org_2")
    answer = sealer.handle(replace(core, store=Refusing()), batch([two, one, numbered(an_event(core, 3), "org_2")]))
    assert answer == {"batchItemFailures": [{"itemIdentifier": f"{1:021d}"}]}
    assert (chain(core), chain(core, "org_2")) == ([one.id], [])


def test_a_batch_is_not_changed_by_reading_it(core: Core) -> None:
    message = batch([an_event(core, 1)])
    before = copy.deepcopy(message)
    stream.read(message)
    assert message == before
