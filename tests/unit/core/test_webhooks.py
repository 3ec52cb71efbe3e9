"""Webhooks over memory: what is offered arrives, whatever dies, and one receiver's trouble is its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from differently_core.errors import InvalidRequest, InvalidState, NotFound, QuotaExceeded
from differently_core.model.due import DUE_SHARDS, stamp
from differently_core.model.event import Event
from differently_core.model.tenancy import OPERATOR_ORG, TenantState
from differently_core.model.webhook import (
    Delivery,
    DeliveryStatus,
    Failure,
    Lane,
    Receipt,
    Replay,
    Webhook,
    WebhookEntry,
    delivery_shard,
)
from differently_core.operations import closing, deliveries, delivering, offering, signing, webhooks
from differently_core.operations.core import Caller, Tuning
from differently_core.runtime.ids import WebhookId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Absent, DueRow, Put, StoreUnavailable
from differently_core.store.sealing import MemorySealer
from tests.support.receivers import TAKEN, Receivers, Request
from tests.support.world import OPERATOR, World
from tests.unit.core.test_pool_release import Dying

HOUR = 3600
DAY = 24 * HOUR


class Scene:
    """A project with webhooks, whose receivers do what a test says."""

    def __init__(self, wrap: Callable[[MemoryStore], Any] | None = None, **tuning: Any) -> None:
        self.world = World(wrap=wrap)
        self.receivers = Receivers(self.world.clock)
        self.core = replace(
            self.world.core, courier=self.receivers, sealer=MemorySealer(),
            tuning=Tuning(**{"webhook_parallel": 1, **tuning}),
        )  # fmt: skip
        self.owner = webhooks.Owner(self.world.org.id, self.world.project.id)

    def hook(self, url: str = "https://hooks.example.com/a", events: tuple[str, ...] = ("*",)) -> Webhook:
        return webhooks.create(self.core, self.world.caller, self.owner, url, events).webhook

    def event(self, action: str = "sandbox.create", target: str = "sbx_1", **facts: Any) -> Event:
        """Written to the log, each a millisecond later than the one before."""
        self.world.clock.advance(0.001)
        given = {"project": self.world.project.id, "after": "queued", **facts}
        row = self.core.event(self.world.caller, action, target, given.pop("org", self.world.org.id), **given)
        self.core.store.transact([Put(row, (Absent(),), "event")])
        return row

    def tell(self, count: int = 1, **facts: Any) -> list[str]:
        """Ids of fresh events, offered to whoever wants them."""
        rows = [self.event(target=f"sbx_{number}", **facts) for number in range(count)]
        offering.offer(self.core, rows)
        return [row.id for row in rows]

    def serve(self) -> None:
        """Everything that is due, as the sweep finds it."""
        for _ in range(100):
            until = stamp(self.core.clock.now())
            due = [row.key.pk.removeprefix("WEBHOOK#") for shard in range(DUE_SHARDS)
                   for row in self.core.store.query_due(f"DUE#{shard}", until=until)[0]
                   if row.kind == Lane.kind]  # fmt: skip
            if not due:
                return
            for identity in due:
                delivering.step(self.core, WebhookId(identity))
        raise AssertionError("the lanes never come to rest")

    def pass_time(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.serve()

    def sent(self, url: str | None = None) -> list[str]:
        return [request.id for request in self.receivers.requests if url in (None, request.url)]

    def lane(self, hook: Webhook) -> Lane:
        return webhooks.lane_of(self.core, hook)

    def delivery(self, hook: Webhook, event: str) -> Delivery:
        return deliveries.get(self.core, hook, event)

    def settled(self, hook: Webhook) -> None:
        """Nothing is on its way, and nobody will look again but for the comparison, if it still sends."""
        lane = self.lane(hook)
        assert (lane.pending, lane.owner) == (0, None)
        found = self.core.store.get(Webhook, hook.key())
        if found is None or found.disabled is not None:
            assert lane.due_at is None
        else:
            assert lane.compared_to is not None
            assert lane.due_at == lane.compared_to + timedelta(seconds=HOUR)
        assert self.world.memory.query_due(delivery_shard(hook.id), until="9999")[0] == ()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def answers(*receipts: Receipt) -> Callable[[Request], Receipt]:
    """In turn; the last for ever."""
    left = list(receipts)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def down(request: Request) -> Receipt:
    return Receipt(failure=Failure.UNREACHABLE)


# Who is told of what.


@pytest.mark.parametrize(
    ("events", "wanted"),
    [(("*",), 3), (("sandbox.*",), 2), (("sandbox.created", "key.created"), 2), (("snapshot.*",), 0)],
)
def test_a_webhook_is_told_of_the_types_it_names(scene: Scene, events: tuple[str, ...], wanted: int) -> None:
    scene.hook(events=events)
    rows = [scene.event(), scene.event("sandbox.running", before="queued", after="running"),
            scene.event("key.create", target="key_1", after=None)]  # fmt: skip
    assert offering.offer(scene.core, rows) == wanted


def test_a_project_is_told_of_its_own_and_the_organization_of_all(scene: Scene) -> None:
    scene.hook("https://hooks.example.com/project")
    whole = webhooks.Owner(scene.world.org.id, None)
    webhooks.create(scene.core, OPERATOR, whole, "https://hooks.example.com/org", ("*",))
    other_org, _ = scene.world.add_tenant()
    rows = [scene.event(), scene.event(project="proj_other"), scene.event(project=None),
            scene.event(org=other_org.id)]  # fmt: skip
    offering.offer(scene.core, rows)
    scene.serve()
    assert scene.sent("https://hooks.example.com/project") == [rows[0].id]
    assert set(scene.sent("https://hooks.example.com/org")) == {row.id for row in rows[:3]}


def test_what_happens_to_pools_is_told_to_operators(scene: Scene) -> None:
    scene.hook()
    webhooks.create(scene.core, OPERATOR, webhooks.Owner(OPERATOR_ORG, None), "https://ops.example.com", ("pool.*",))
    offering.offer(scene.core, [scene.event("pool.draining", target="eu", org=OPERATOR_ORG, project=None, after=None)])
    scene.serve()
    assert [request.url for request in scene.receivers.requests] == ["https://ops.example.com"]


def test_an_event_is_one_delivery_however_often_it_is_offered(scene: Scene) -> None:
    hook = scene.hook()
    rows = [scene.event(target=f"sbx_{number}") for number in range(3)]
    assert offering.offer(scene.core, rows[:2]) == 2
    assert offering.offer(scene.core, rows) == 1, "a stream delivers again"
    scene.serve()
    assert offering.offer(scene.core, rows) == 0
    scene.serve()
    assert sorted(scene.sent()) == [row.id for row in rows]
    scene.settled(hook)


def test_what_happened_before_it_was_made_is_not_for_it(scene: Scene) -> None:
    """`make run` reads its stream from the beginning at each start."""
    before = scene.event()
    scene.world.clock.advance(60)
    scene.hook()
    assert offering.offer(scene.core, [before, scene.event()]) == 1


def test_what_the_stream_did_not_bring_is_found_within_the_hour(scene: Scene) -> None:
    """The sure half of the rule of two, for events: a stream keeps a day and passes over what fails too often."""
    hook = scene.hook(events=("sandbox.*",))
    rows = [scene.event(target=f"sbx_{number}") for number in range(450)]
    scene.event("key.create", target="key_1", after=None)
    offering.offer(scene.core, rows[::2])
    scene.serve()
    assert len(scene.sent()) == 225
    for _ in range(13):
        scene.pass_time(300)
    assert sorted(scene.sent()) == [row.id for row in rows]
    scene.settled(hook)
    for _ in range(30):
        scene.pass_time(300)
    assert len(scene.sent()) == 450, "nothing is found twice"
    scene.settled(hook)


def test_what_happened_while_it_was_disabled_is_not_found(scene: Scene) -> None:
    hook = scene.hook()
    webhooks.update(scene.core, scene.world.caller, hook.id, webhooks.Change(enabled=False))
    scene.serve()
    scene.event()
    scene.world.clock.advance(HOUR)
    webhooks.update(scene.core, scene.world.caller, hook.id, webhooks.Change(enabled=True))
    for _ in range(20):
        scene.pass_time(600)
    # Its own change of that moment is an event too, which it was not offered before.
    assert {request.event["type"] for request in scene.receivers.requests} == {"webhook.updated"}


# What is sent.


def test_the_reference_vector_of_standard_webhooks() -> None:
    """The vector that the specification's own libraries are tested with."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    assert signing.sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def proves(secret: str, request: Request) -> bool:
    """The receiver's side, written from the specification alone."""
    content = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    digest = hmac.new(base64.b64decode(secret.split("_")[1]), content, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}" in request.headers["webhook-signature"].split(" ")


def test_a_request_carries_the_event_and_proves_its_sender(scene: Scene) -> None:
    made = webhooks.create(scene.core, scene.world.caller, scene.owner, "https://hooks.example.com/?key=1", ("*",))
    (event,) = scene.tell()
    scene.serve()
    (request,) = scene.receivers.requests
    assert request.url == "https://hooks.example.com/?key=1"
    assert (request.id, request.event["id"], request.event["type"]) == (event, event, "sandbox.created")
    assert len(base64.b64decode(made.secret.removeprefix("whsec_"))) == 32
    assert proves(made.secret, request)
    assert not proves(signing.fresh(scene.core), request)


def test_both_secrets_sign_in_the_grace_and_only_the_new_one_after_it(scene: Scene) -> None:
    first = webhooks.create(scene.core, scene.world.caller, scene.owner, "https://hooks.example.com", ("sandbox.*",))
    second = webhooks.rotate(scene.core, scene.world.caller, first.webhook.id, HOUR)
    scene.tell()
    scene.serve()
    scene.world.clock.advance(HOUR)
    scene.tell()
    scene.serve()
    within, after = scene.receivers.requests
    assert [proves(first.secret, within), proves(second.secret, within)] == [True, True]
    assert [proves(first.secret, after), proves(second.secret, after)] == [False, True]

    third = webhooks.rotate(scene.core, scene.world.caller, first.webhook.id, 0)
    assert len(third.webhook.secrets) == 1, "without a grace the old one ends at once"


def test_no_row_holds_a_secret_in_clear(scene: Scene) -> None:
    made = webhooks.create(scene.core, scene.world.caller, scene.owner, "https://hooks.example.com", ("*",))
    rotated = webhooks.rotate(scene.core, scene.world.caller, made.webhook.id, HOUR)
    rows = "".join(row.model_dump_json() for row in scene.world.memory.rows().values())
    for secret in (made.secret, rotated.secret):
        assert secret not in rows
        assert secret.removeprefix("whsec_") not in rows


def test_nothing_goes_out_unsigned(scene: Scene) -> None:
    hook = scene.hook()
    assert isinstance(scene.core.sealer, MemorySealer)
    scene.core.sealer.up = False
    scene.tell()
    scene.serve()
    assert scene.sent() == []
    scene.core.sealer.up = True
    scene.pass_time(301)
    assert len(scene.sent()) == 1
    scene.settled(hook)


def test_events_go_out_in_the_order_of_their_times(scene: Scene) -> None:
    scene.hook()
    rows = [scene.event(target=f"sbx_{number}") for number in range(60)]
    for chunk in (rows[40:], rows[:20], rows[20:40]):
        offering.offer(scene.core, chunk)
    scene.serve()
    assert scene.sent() == [row.id for row in rows]


# A receiver in trouble.


def test_a_failure_is_tried_again_later_and_later_for_three_days(scene: Scene) -> None:
    scene.hook(events=("sandbox.*",))
    scene.receivers.answer = lambda request: Receipt(status=500)
    (event,) = scene.tell()
    (hook,) = webhooks.listed(scene.core, scene.owner)
    began = scene.core.clock.now()
    times: list[float] = []
    for _ in range(4 * 24 * 60):
        before = len(scene.sent())
        scene.pass_time(60 if times else 0)
        if len(scene.sent()) > before:
            times.append((scene.core.clock.now() - began).total_seconds())
    found = scene.delivery(hook, event)
    assert (found.status, found.tries, len(scene.sent())) == (DeliveryStatus.FAILED, 13, 13)
    assert found.last is not None
    assert (found.last.status, found.last.failure) == (500, Failure.ERROR)
    assert 1.5 * DAY < times[-1] < 4 * DAY
    scene.settled(hook)


@pytest.mark.parametrize(
    ("receipt", "failure"),
    [
        (Receipt(status=301), Failure.REDIRECT), (Receipt(status=400), Failure.REFUSED),
        (Receipt(status=401), Failure.REFUSED), (Receipt(status=500), Failure.ERROR),
        (Receipt(status=503), Failure.BUSY), (Receipt(status=429), Failure.BUSY),
        (Receipt(status=101), Failure.BROKEN), (Receipt(failure=Failure.TIMEOUT), Failure.TIMEOUT),
        (Receipt(failure=Failure.ADDRESS), Failure.ADDRESS),
    ],
)  # fmt: skip
def test_only_2xx_is_taken_for_delivered(scene: Scene, receipt: Receipt, failure: Failure) -> None:
    hook = scene.hook()
    scene.receivers.answer = answers(receipt, TAKEN)
    (event,) = scene.tell()
    scene.serve()
    found = scene.delivery(hook, event)
    assert found.last is not None
    assert (found.status, found.last.failure) == (DeliveryStatus.PENDING, failure)
    scene.pass_time(60)
    assert scene.delivery(hook, event).status is DeliveryStatus.DELIVERED
    scene.settled(hook)


@pytest.mark.parametrize("status", [429, 503])
def test_a_receiver_that_asks_for_a_pause_gets_it(scene: Scene, status: int) -> None:
    scene.hook()
    scene.receivers.answer = answers(Receipt(status=status, retry_after_seconds=600), TAKEN)
    scene.tell()
    scene.serve()
    scene.tell()
    scene.pass_time(590)
    assert len(scene.sent()) == 1, "neither this event nor the next"
    scene.pass_time(15)
    assert len(set(scene.sent())) == 2


def test_a_receiver_that_is_down_costs_a_try_now_and_then_however_much_waits(scene: Scene) -> None:
    hook = scene.hook()
    scene.receivers.answer = down
    scene.tell(200)
    scene.serve()
    assert len(scene.sent()) == 3, "three in a row are enough to know"
    for _ in range(60):
        scene.pass_time(60)
    assert len(scene.sent()) < 40
    scene.receivers.answer = lambda request: TAKEN
    scene.pass_time(301)
    for _ in range(40):
        scene.pass_time(60)
    assert {row.status for row in scene.world.rows(Delivery)} == {DeliveryStatus.DELIVERED}
    scene.settled(hook)


def test_one_receiver_that_is_down_holds_up_no_other(scene: Scene) -> None:
    dead, well = "https://dead.example.com", "https://well.example.com"
    scene.hook(dead)
    scene.hook(well)
    scene.receivers.answer = lambda request: down(request) if request.url == dead else TAKEN
    told = scene.tell(100)
    scene.serve()
    assert scene.sent(well) == told


def test_one_that_answers_410_is_asked_no_more(scene: Scene) -> None:
    hook = scene.hook()
    scene.receivers.answer = lambda request: Receipt(status=410)
    told = scene.tell(5)
    scene.serve()
    assert len(scene.sent()) == 1
    (found,) = webhooks.listed(scene.core, scene.owner)
    assert found.disabled is not None
    assert found.disabled.code == "gone"
    assert {scene.delivery(hook, event).status for event in told} == {DeliveryStatus.FAILED}
    assert [event.details["code"] for event in scene.world.rows(Event) if event.action == "webhook.disable"] == ["gone"]
    scene.settled(hook)
    scene.tell()
    assert len(scene.sent()) == 1


def test_one_that_takes_nothing_for_five_days_is_switched_off_and_told_of(scene: Scene) -> None:
    hook = scene.hook()
    scene.receivers.answer = down
    for _ in range(6 * 24):
        scene.tell()
        scene.pass_time(HOUR)
    (found,) = webhooks.listed(scene.core, scene.owner)
    assert found.disabled is not None
    assert found.disabled.code == "failing"
    scene.settled(hook)

    webhooks.update(scene.core, scene.world.caller, hook.id, webhooks.Change(enabled=True))
    scene.receivers.answer = lambda request: TAKEN
    (event,) = scene.tell()
    scene.serve()
    assert scene.sent()[-1] == event, "enabling it forgives everything"


# What owners do.


def test_disabling_gives_up_what_is_on_its_way(scene: Scene) -> None:
    hook = scene.hook()
    scene.receivers.answer = down
    told = scene.tell(2)
    scene.serve()
    webhooks.update(scene.core, scene.world.caller, hook.id, webhooks.Change(enabled=False))
    scene.serve()
    assert {scene.delivery(hook, event).status for event in told} == {DeliveryStatus.FAILED}
    scene.settled(hook)
    for refused in (
        lambda: deliveries.test(scene.core, scene.world.caller, hook.id),
        lambda: deliveries.redeliver(scene.core, scene.world.caller, hook.id, told[0]),
        lambda: deliveries.replay(scene.core, scene.world.caller, hook.id, hook.created_at, None),
    ):
        with pytest.raises(InvalidState):
            refused()


def test_a_removed_webhook_leaves_nothing_that_is_looked_at(scene: Scene) -> None:
    hook = scene.hook()
    scene.receivers.answer = down
    scene.tell(60)
    scene.serve()
    webhooks.remove(scene.core, scene.world.caller, hook.id)
    scene.serve()
    assert [*scene.world.rows(Webhook), *scene.world.rows(WebhookEntry), *scene.world.rows(Lane)] == []
    assert {row.status for row in scene.world.rows(Delivery)} == {DeliveryStatus.FAILED}
    with pytest.raises(NotFound):
        webhooks.remove(scene.core, scene.world.caller, hook.id)
    assert offering.offer_to(scene.core, hook, []) == 0


def test_a_project_on_its_way_out_takes_its_webhooks_along(scene: Scene) -> None:
    scene.hook()
    closing.close(scene.core, OPERATOR, scene.world.org.id, scene.world.project.id, TenantState.DELETED)
    for _ in range(6):
        closing.step(scene.core, scene.world.project.id)
        scene.pass_time(60)
    assert [*scene.world.rows(Webhook), *scene.world.rows(Lane)] == []


def test_an_event_is_sent_again_on_request_under_its_own_id(scene: Scene) -> None:
    hook = scene.hook()
    (event,) = scene.tell()
    scene.serve()
    again = deliveries.redeliver(scene.core, scene.world.caller, hook.id, event)
    assert (again.status, again.tries) == (DeliveryStatus.PENDING, 0)
    deliveries.redeliver(scene.core, scene.world.caller, hook.id, event)
    scene.serve()
    assert scene.sent() == [event, event]
    scene.settled(hook)


def test_a_test_event_is_sent_once_whatever_becomes_of_it(scene: Scene) -> None:
    hook = scene.hook(events=("snapshot.*",))
    scene.receivers.answer = down
    made = deliveries.test(scene.core, scene.world.caller, hook.id)
    scene.serve()
    assert scene.receivers.requests[0].event["type"] == "webhook.test"
    found = scene.delivery(hook, made.event)
    assert (found.status, found.tries) == (DeliveryStatus.FAILED, 1)
    scene.settled(hook)


def test_a_stretch_of_the_log_is_replayed_to_one_webhook(scene: Scene) -> None:
    other = scene.hook("https://hooks.example.com/other")
    early = scene.event()
    scene.world.clock.advance(10)
    since = scene.core.clock.now()
    lost = [scene.event(target=f"sbx_{number}") for number in range(450)]
    scene.world.clock.advance(1)
    until = scene.core.clock.now()
    scene.event()
    hook = scene.hook("https://hooks.example.com/new", events=("sandbox.*",))
    offering.offer_to(scene.core, hook, [])
    deliveries.replay(scene.core, scene.world.caller, hook.id, since, until)
    with pytest.raises(InvalidState):
        deliveries.replay(scene.core, scene.world.caller, hook.id, since, until)
    scene.serve()
    assert sorted(scene.sent("https://hooks.example.com/new")) == [row.id for row in lost]
    assert early.id not in scene.sent()
    assert scene.world.rows(Replay) == []
    assert scene.lane(other).pending == 0
    scene.settled(hook)

    deliveries.replay(scene.core, scene.world.caller, hook.id, since, until)
    scene.serve()
    assert len(scene.sent("https://hooks.example.com/new")) == 900, "what was delivered is sent again too"


@pytest.mark.parametrize(("since", "until"), [(0, 0), (60, 0), (-31 * DAY, 0), (-10, -20)])
def test_a_stretch_that_is_none_is_refused(scene: Scene, since: int, until: int) -> None:
    hook, now = scene.hook(), scene.core.clock.now()
    with pytest.raises(InvalidRequest):
        deliveries.replay(
            scene.core, scene.world.caller, hook.id, now + timedelta(seconds=since), now + timedelta(seconds=until)
        )


def test_deliveries_are_listed_newest_first_and_by_status(scene: Scene) -> None:
    hook = scene.hook()
    scene.receivers.answer = lambda request: Receipt(status=204 if int(request.event["subject"][4:]) % 3 else 400)
    told = scene.tell(30)
    for _ in range(3):
        scene.serve()
    found: list[str] = []
    after = None
    while True:
        page, after = deliveries.listed(scene.core, hook, frozenset(), after, 7)
        found += [row.event for row in page]
        if after is None:
            break
    assert found == told[::-1]
    waiting, _ = deliveries.listed(scene.core, hook, frozenset({DeliveryStatus.PENDING}), None, 100)
    assert [row.event for row in waiting] == told[::3][::-1]


def test_there_are_only_so_many(scene: Scene) -> None:
    for number in range(webhooks.OF_PROJECT_MAX):
        scene.hook(f"https://hooks.example.com/{number}")
    with pytest.raises(QuotaExceeded):
        scene.hook()


@pytest.mark.parametrize("events", [(), ("sandbox",), ("sandbox.exploded",), ("*.*",), ("Sandbox.*",), ("nothing.*",)])
def test_types_that_there_are_not_are_refused(scene: Scene, events: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        scene.hook(events=events)
    assert refused.value.details["field"] == "events"


def test_a_sibling_project_finds_no_webhook_of_another(scene: Scene) -> None:
    hook = scene.hook()
    whole = webhooks.create(
        scene.core, OPERATOR, webhooks.Owner(scene.world.org.id, None), "https://x.example.com", ("*",)
    )
    _, sibling = scene.world.add_tenant()
    stranger = Caller("key_x", "req_x", scene.world.caller.scope, sibling.org, sibling.id)
    for caller, identity in ((stranger, hook.id), (stranger, whole.webhook.id), (scene.world.caller, whole.webhook.id)):
        with pytest.raises(NotFound):
            webhooks.find(scene.core, caller, identity)


def test_what_it_costs(scene: Scene) -> None:
    hook = scene.hook()
    rows = [scene.event(target=f"sbx_{number}") for number in range(40)]
    with scene.world.memory.ledger.measure() as offered:
        offering.offer(scene.core, rows)
    assert offered.calls == ["Query", "BatchGetItem", "TransactWriteItems"]
    with scene.world.memory.ledger.measure() as served:
        delivering.step(scene.core, hook.id)
    assert served.trips <= len(rows) + 7
    assert (offered.write_units + served.write_units) / len(rows) < 10


# Whatever dies.


def crashing(after: bool) -> tuple[Scene, Dying]:
    dying: list[Dying] = []

    def wrap(memory: MemoryStore) -> Any:
        dying.append(Dying(memory))
        return dying[0]

    scene = Scene(wrap=wrap)
    dying[0].after = after
    return scene, dying[0]


def offered_and_served(scene: Scene, hook: Webhook, events: list[Event]) -> None:
    offering.offer(scene.core, events)
    delivering.step(scene.core, hook.id)


def sent_again(scene: Scene, hook: Webhook, events: list[Event]) -> None:
    offering.offer(scene.core, events)
    delivering.step(scene.core, hook.id)
    for event in events:
        deliveries.redeliver(scene.core, scene.world.caller, hook.id, event.id)
    delivering.step(scene.core, hook.id)


def replayed(scene: Scene, hook: Webhook, events: list[Event]) -> None:
    deliveries.replay(scene.core, scene.world.caller, hook.id, hook.created_at, None)
    delivering.step(scene.core, hook.id)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("way", [offered_and_served, sent_again, replayed], ids=lambda way: way.__name__)
def test_whatever_write_a_worker_dies_at_every_event_arrives(way: Callable[..., None], after: bool) -> None:
    """The crash matrix of delivery: each run dies at another write; then the caller repeats and the sweep goes on."""
    for number in range(1, 40):
        scene, dying = crashing(after)
        hook = scene.hook()
        scene.world.clock.advance(0.001)
        events = [scene.event(target=f"sbx_{count}") for count in range(3)]
        dying.left = number
        try:
            way(scene, hook, events)
        except StoreUnavailable:
            dying.left = None
            with suppress(InvalidState):  # a replay that is under way already
                way(scene, hook, events)
        else:
            if dying.left is not None:
                assert number > 5, "the run has more writes than that"
                dying.left = None
                break
        scene.pass_time(60)
        scene.pass_time(60)
        assert set(scene.sent()) >= {event.id for event in events}, f"died at write {number}"
        assert len(scene.sent()) <= 4 * len(events)
        scene.settled(hook)
    else:
        raise AssertionError("the run never came to its end")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whatever_write_a_removal_dies_at_nothing_stays_due(after: bool) -> None:
    for number in range(1, 20):
        scene, dying = crashing(after)
        hook = scene.hook()
        scene.receivers.answer = down
        scene.tell(3)
        dying.left = number
        ended = False
        try:
            webhooks.remove(scene.core, scene.world.caller, hook.id)
            delivering.step(scene.core, hook.id)
            ended = dying.left is not None
        except StoreUnavailable:
            dying.left = None
            with suppress(NotFound):
                webhooks.remove(scene.core, scene.world.caller, hook.id)
        dying.left = None
        scene.pass_time(60)
        assert scene.world.rows(Lane) == [], f"died at write {number}"
        assert scene.sent() == []
        if ended:
            return
    raise AssertionError("the run never came to its end")


class Lagging:
    """A store whose index of deliveries shows what was so some calls ago, as DynamoDB's may."""

    def __init__(self, memory: MemoryStore, calls: int) -> None:
        self._memory = memory
        self._seen: list[tuple[DueRow, ...]] = [()] * (calls + 1)

    def transact(self, actions: Any) -> Any:
        outcome = self._memory.transact(actions)
        self._look()
        return outcome

    def query_due(self, shard: str, *, until: str, after: str | None = None, limit: int = 200) -> Any:
        if not shard.startswith("DELIVER#"):
            return self._memory.query_due(shard, until=until, after=after, limit=limit)
        self._look()
        rows = [row for row in self._seen[0] if row.due[: len(until)] <= until and row.due > (after or "")]
        return tuple(rows[:limit]), rows[limit - 1].due if len(rows) > limit else None

    def _look(self) -> None:
        hooks = [row.webhook for row in self._memory.rows().values() if isinstance(row, Lane)]
        shown = (self._memory.query_due(delivery_shard(hook), until="9999")[0] for hook in hooks)
        self._seen = [*self._seen[1:], tuple(row for rows in shown for row in rows)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


@pytest.mark.parametrize("calls", [1, 3, 10, 40])
def test_an_index_that_lags_loses_nothing(calls: int) -> None:
    """The count of what is pending is exact, so a lane is not let go of because the index shows nothing yet."""
    scene = Scene(wrap=lambda memory: Lagging(memory, calls))
    hook = scene.hook(events=("sandbox.*",))
    scene.receivers.answer = lambda request: Receipt(status=500) if len(scene.receivers.requests) % 5 == 0 else TAKEN
    told: list[str] = []
    for _ in range(3):
        told += scene.tell(10)
        scene.serve()
    for _ in range(60):
        scene.pass_time(30)
    assert set(scene.sent()) == set(told)
    assert {scene.delivery(hook, event).status for event in told} == {DeliveryStatus.DELIVERED}
    scene.settled(hook)


def test_two_workers_at_once_send_an_event_once(scene: Scene) -> None:
    hook = scene.hook()
    scene.tell(3)

    def interrupt(request: Request) -> Receipt:
        delivering.step(scene.core, hook.id)
        return TAKEN

    scene.receivers.answer = interrupt
    delivering.step(scene.core, hook.id)
    assert len(scene.sent()) == 3


def test_one_that_is_removed_while_it_is_served_leaves_nothing(scene: Scene) -> None:
    hook = scene.hook()
    scene.tell(3)

    def remove(request: Request) -> Receipt:
        with suppress(NotFound):
            webhooks.remove(scene.core, scene.world.caller, hook.id)
        return TAKEN

    scene.receivers.answer = remove
    scene.serve()
    assert scene.world.rows(Lane) == []


def test_what_is_offered_while_the_lane_is_let_go_is_not_overlooked(scene: Scene) -> None:
    hook = scene.hook()
    scene.tell()
    late: list[str] = []

    def tell(request: Request) -> Receipt:
        if not late:
            late.extend(scene.tell(after="x"))
        return TAKEN

    scene.receivers.answer = tell
    scene.serve()
    assert late[0] in scene.sent()
    scene.settled(hook)


def test_several_are_sent_at_once_and_one_things_events_in_turn() -> None:
    scene = Scene(webhook_parallel=4)
    hook = scene.hook()
    rows = [scene.event(target=f"sbx_{number % 3}") for number in range(30)]
    offering.offer(scene.core, rows)
    scene.serve()
    for thing in range(3):
        mine = [row.id for row in rows if row.target == f"sbx_{thing}"]
        assert [identity for identity in scene.sent() if identity in set(mine)] == mine
    scene.settled(hook)
