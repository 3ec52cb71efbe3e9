"""The projector tells webhooks and the bus of what was written, and says where to begin again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from differently_core.errors import DifferentlyError
from differently_core.model.lifecycle import Lifecycle
from differently_core.model.tenancy import OPERATOR_ORG
from differently_core.model.webhook import DeliveryStatus
from differently_core.operations import deliveries, webhooks
from differently_core.store.ports import Action, Outcome, StoreThrottled
from differently_scheduler import deliver, projector
from tests.support.stream import batch
from tests.support.world import OPERATOR
from tests.unit.core.test_webhooks import Scene

DONE: dict[str, Any] = {"batchItemFailures": []}


class Bus:
    def __init__(self, *refuses: str) -> None:
        self.refuses = set(refuses)
        self.taken: list[Lifecycle] = []

    def publish(self, events: Sequence[Lifecycle]) -> frozenset[str]:
        self.taken += [event for event in events if event.subject not in self.refuses]
        return frozenset(event.id for event in events if event.subject in self.refuses)


def test_what_was_written_is_offered_and_published() -> None:
    scene, bus = Scene(), Bus()
    hook = scene.hook()
    written = [scene.event(target=f"sbx_{number}") for number in range(3)]
    inside = scene.event("secret.put", target="s", org=OPERATOR_ORG, project=None, after=None)
    assert projector.handle(scene.core, batch([*written, inside]), bus.publish) == DONE
    assert [event.id for event in bus.taken] == [row.id for row in written]
    assert deliver.handle(scene.core, deliver.batch(hook.id)) == DONE
    assert sorted(scene.sent()) == [row.id for row in written]


def test_a_batch_that_comes_again_adds_nothing() -> None:
    scene = Scene()
    scene.hook()
    told = batch([scene.event()])
    for _ in range(3):
        assert projector.handle(scene.core, told) == DONE
    scene.serve()
    assert len(scene.sent()) == 1


def test_what_the_bus_did_not_take_comes_again() -> None:
    scene, bus = Scene(), Bus("sbx_1")
    rows = [scene.event(target=f"sbx_{number}") for number in range(3)]
    answer = projector.handle(scene.core, batch(rows), bus.publish)
    assert answer == {"batchItemFailures": [{"itemIdentifier": f"{2:021d}"}]}


class Refusing:
    """Refuses every write to one webhook."""

    def __init__(self, inner: Any, webhook: str) -> None:
        self._inner = inner
        self._webhook = webhook

    def transact(self, actions: Sequence[Action]) -> Outcome:
        if any(self._webhook in str(getattr(action, "key", "")) for action in actions):
            raise StoreThrottled("too much")
        outcome: Outcome = self._inner.transact(actions)
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_webhook_that_cannot_be_written_to_holds_up_no_other_and_no_bus(caplog: pytest.LogCaptureFixture) -> None:
    scene, bus = Scene(), Bus()
    stuck, well = scene.hook("https://stuck.example.com"), scene.hook("https://well.example.com")
    store = scene.core.store
    object.__setattr__(scene.core, "store", Refusing(store, stuck.id))
    rows = [scene.event()]
    with caplog.at_level(logging.ERROR):
        answer = projector.handle(scene.core, batch(rows), bus.publish)
    assert answer == {"batchItemFailures": [{"itemIdentifier": f"{1:021d}"}]}
    assert "not offered" in caplog.messages
    assert len(bus.taken) == 1
    object.__setattr__(scene.core, "store", store)
    assert deliveries.get(scene.core, well, rows[0].id).status is DeliveryStatus.PENDING
    assert projector.handle(scene.core, batch(rows)) == DONE
    assert deliveries.get(scene.core, stuck, rows[0].id).status is DeliveryStatus.PENDING


def test_a_record_that_cannot_be_read_is_told_and_the_rest_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    scene, bus = Scene(), Bus()
    told = batch([scene.event(), scene.event()])
    told["Records"][0]["dynamodb"]["NewImage"]["doc"] = {"S": "canary"}
    with caplog.at_level(logging.ERROR):
        assert projector.handle(scene.core, told, bus.publish) == DONE
    assert len(bus.taken) == 1
    assert "event unreadable" in caplog.messages
    assert "canary" not in str([vars(record) for record in caplog.records])


def test_a_message_that_is_none_is_refused_alone(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    hook = scene.hook()
    scene.tell()
    told = deliver.batch(hook.id)
    told["Records"].append({"messageId": "poison", "body": '{"kind": "deliver", "webhook": "canary"}'})
    assert deliver.handle(scene.core, told) == {"batchItemFailures": [{"itemIdentifier": "poison"}]}
    assert len(scene.sent()) == 1
    assert "canary" not in str([vars(record) for record in caplog.records])


def test_a_lane_that_the_store_fails_comes_again() -> None:
    scene = Scene()
    hook = scene.hook()

    class Away:
        def __getattr__(self, name: str) -> Any:
            raise StoreThrottled("away")

    object.__setattr__(scene.core, "store", Away())
    assert deliver.handle(scene.core, deliver.batch(hook.id)) == {"batchItemFailures": [{"itemIdentifier": hook.id}]}
    with pytest.raises(DifferentlyError):
        webhooks.listed(scene.core, webhooks.owner_of(scene.core, OPERATOR, None, None))
