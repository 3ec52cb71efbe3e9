"""A receiver written with the standard library is killed and started again, over a real socket, and misses nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from differently_adapters.webhooks import HttpCourier
from differently_core.model.webhook import Receipt
from differently_core.operations import deliveries, webhooks
from differently_core.runtime.clock import SystemClock
from tests.support.receiver import ReceiverProcess
from tests.unit.core.test_webhooks import Scene


class Counting(HttpCourier):
    """Tells how often something was sent."""

    def __init__(self) -> None:
        super().__init__(SystemClock(), loopback=True)
        self.sent: list[str] = []

    def post(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Receipt:
        self.sent.append(headers["webhook-id"])
        return super().post(url, headers, body, seconds)


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ReceiverProcess]:
    made = ReceiverProcess(tmp_path)
    made.start()
    yield made
    made.kill()


def test_a_receiver_that_is_killed_and_started_again_misses_nothing_and_drops_what_comes_twice(
    receiver: ReceiverProcess,
) -> None:
    """Issue 7, done when: a webhook receiver written with the standard library, killed and restarted."""
    scene, courier = Scene(webhook_parallel=4), Counting()
    scene.core = replace(scene.core, courier=courier)
    # The receiver refuses what is older than five minutes, so the virtual clock begins now.
    scene.world.clock.advance((datetime.now(UTC) - scene.world.clock.now()).total_seconds())
    receiver.kill()
    url = receiver.start()
    made = webhooks.create(scene.core, scene.world.caller, scene.owner, url, ("*",))
    receiver.knows(made.secret)

    told = scene.tell(40)
    scene.serve()
    receiver.kill()
    told += scene.tell(20)
    scene.serve()
    assert scene.lane(made.webhook).pending == 20
    receiver.start()
    for _ in range(12):
        scene.pass_time(10)
    killing = threading.Timer(0.05, receiver.kill)
    told += scene.tell(200)
    killing.start()
    scene.serve()
    killing.join()
    receiver.start()
    for event in told[:5]:
        deliveries.redeliver(scene.core, scene.world.caller, made.webhook.id, event)
    for _ in range(20):
        scene.pass_time(8)

    kept = receiver.events()
    assert [event["id"] for event in kept] == sorted(told), "each once, and none is missing"
    assert len(courier.sent) > len(told), "some were sent twice"
    scene.settled(made.webhook)
    courier.close()


def test_a_receiver_takes_nothing_that_is_not_signed_with_its_secret(receiver: ReceiverProcess) -> None:
    scene, courier = Scene(), Counting()
    scene.core = replace(scene.core, courier=courier)
    scene.world.clock.advance((datetime.now(UTC) - scene.world.clock.now()).total_seconds())
    receiver.kill()
    made = webhooks.create(scene.core, scene.world.caller, scene.owner, receiver.start(), ("*",))
    other = webhooks.rotate(scene.core, scene.world.caller, made.webhook.id, 0)
    receiver.knows(made.secret)
    (event,) = scene.tell()
    scene.serve()
    assert receiver.events() == []
    found = scene.delivery(made.webhook, event)
    assert found.last is not None
    assert found.last.status == 401

    receiver.knows(made.secret, other.secret)
    scene.pass_time(10)
    assert [kept["id"] for kept in receiver.events()] == [event]
    courier.close()
