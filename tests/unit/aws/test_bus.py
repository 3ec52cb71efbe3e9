"""Events reach the bus ten at a time, and what it did not take is told by its id."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import EndpointConnectionError

from differently_aws.bus import Bus
from differently_core.model.lifecycle import Lifecycle, LifecycleData
from tests.support.builders import NOON, ORG


class Clients:
    def __init__(self, *answers: Any) -> None:
        self.calls: list[list[dict[str, Any]]] = []
        self._answers = list(answers)

    def client(self, service: str) -> Any:
        assert service == "events"
        return self

    def put_events(self, Entries: list[dict[str, Any]]) -> Any:
        self.calls.append(Entries)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        refused = answer or ()
        return {"Entries": [{"ErrorCode": "ThrottlingException"} if number in refused else {"EventId": "1"}
                            for number in range(len(Entries))]}  # fmt: skip


def events(count: int) -> list[Lifecycle]:
    data = LifecycleData(org=ORG, actor="key_1", request_id="req_1")
    return [
        Lifecycle(id=f"evt_{number}", source="/differently/i", type="pool.active", subject="eu", time=NOON, data=data)
        for number in range(count)
    ]


def published(clients: Any, count: int) -> frozenset[str]:
    return Bus(clients, "bus").publish(events(count))


def test_ten_go_in_one_call() -> None:
    clients = Clients()
    assert published(clients, 23) == frozenset()
    assert [len(call) for call in clients.calls] == [10, 10, 3]
    entry = clients.calls[0][0]
    assert (entry["EventBusName"], entry["Source"], entry["DetailType"]) == ("bus", "differently", "pool.active")
    assert entry["Detail"] == events(1)[0].text()


def test_only_what_was_refused_is_sent_again() -> None:
    clients = Clients((1, 3))
    assert published(clients, 5) == frozenset()
    assert [entry["Detail"] for entry in clients.calls[1]] == [events(5)[number].text() for number in (1, 3)]


def test_what_is_refused_again_is_told() -> None:
    assert published(Clients((0, 1), (1,)), 3) == {"evt_1"}


def test_a_bus_that_does_not_answer_took_nothing() -> None:
    away = EndpointConnectionError(endpoint_url="https://events")
    assert published(Clients(away, away), 2) == {"evt_0", "evt_1"}
    assert published(Clients(away), 2) == frozenset()
