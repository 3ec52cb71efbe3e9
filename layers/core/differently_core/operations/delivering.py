"""One run over one webhook's lane: what is due is signed, sent and settled, a few at a time.

A lane has one owner, so a receiver that hangs holds up itself alone, and events about one thing go out one after the
other. Whatever dies in between, the lane is due when the claim runs out; what was sent and not settled is sent again.
A receiver that fails three times in a row is left alone for a while, the longer the longer it fails, and so are all
that wait for it: it costs a try now and then, however much has piled up.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..errors import DifferentlyError
from ..model.due import due_index, stamp
from ..model.lifecycle import TEST_TYPE
from ..model.record import Key, Native, Record
from ..model.webhook import (
    Delivery,
    DeliveryStatus,
    Disabled,
    Failure,
    Lane,
    Receipt,
    Replay,
    Try,
    Webhook,
    delivery_shard,
)
from ..runtime.ids import WebhookId
from ..store.ports import Absent, Action, Committed, Condition, Delete, Equals, Missing, Put, Update
from . import replaying, signing
from .core import Core, system

log = logging.getLogger(__name__)
WEBHOOKS = system("webhooks")
BATCH_MAX = 40
PAGES_MAX = 5
TRIPS_AT = 3
"""Failures in a row after which the receiver is left alone."""
LAG_SECONDS = 30
"""So long after an addition the index may not show it yet, and the lane is looked at again soon."""
SOON_SECONDS = 5
LOOK_SECONDS_MAX = 900
"""A lane with something on its way is looked at this often, whatever the index shows."""
BUSY_SECONDS_MAX = 3600
"""The longest that one answer puts all of a receiver's deliveries off."""
_BUSY = frozenset({429, 503})
_FAR = "9999"


def step(core: Core, webhook: WebhookId) -> None:
    """Serve the lane for a while, if something is due and nobody else does. Raises only for faults of the store."""
    run = _claim(core, webhook)
    if run is None:
        return
    try:
        if run.webhook is None or run.webhook.disabled is not None:
            _drain(core, run)
        else:
            _serve(core, run, run.webhook)
    finally:
        _release(core, run)


@dataclass
class _Run:
    """What one owner knows of the lane it serves."""

    lane: Lane
    webhook: Webhook | None
    owner: str
    end: float
    """Monotonic."""
    health: _Health = field(init=False)
    next_due: datetime | None = None
    """The earliest of what this run put off: the index may not show it yet."""

    def __post_init__(self) -> None:
        self.health = _Health(self.lane.failures, self.lane.failing_since)

    @property
    def id(self) -> WebhookId:
        return self.lane.webhook


@dataclass
class _Health:
    failures: int
    failing_since: datetime | None
    rest_until: datetime | None = None
    gone: bool = False

    def note(self, core: Core, receipt: Receipt) -> None:
        now = core.clock.now()
        if receipt.failure is None:
            self.failures, self.failing_since, self.rest_until = 0, None, None
            return
        self.failures += 1
        self.failing_since = self.failing_since or now
        self.gone = self.gone or receipt.failure is Failure.GONE
        if receipt.status in _BUSY and receipt.retry_after_seconds:
            self.rest_until = now + timedelta(seconds=min(receipt.retry_after_seconds, BUSY_SECONDS_MAX))
        elif self.failures >= TRIPS_AT:
            seconds = core.tuning.webhook_backoff_seconds * 2 ** min(self.failures - TRIPS_AT, 16)
            self.rest_until = now + timedelta(seconds=min(seconds, core.tuning.webhook_rest_seconds_max))

    @property
    def well(self) -> bool:
        return self.rest_until is None and not self.gone


# Whose turn it is.


def _claim(core: Core, webhook: WebhookId) -> _Run | None:
    """The lane is ours for a while, or None: nothing there, somebody else's, or its receiver rests."""
    keys: list[tuple[type[Record], Key]] = [(Lane, Lane.key_of(webhook)), (Webhook, Webhook.key_of(webhook))]
    lane, found = core.store.batch_get(keys)
    if not isinstance(lane, Lane):
        return None
    now = core.clock.now()
    if lane.owner is not None and lane.claim_until is not None and now < lane.claim_until:
        return None
    current = found if isinstance(found, Webhook) else None
    sends = current is not None and current.disabled is None
    if sends and lane.rest_until is not None and now < lane.rest_until:
        _put_off(core, lane, lane.rest_until)
        return None
    owner = core.ids.new("run")
    until = core.after(core.tuning.webhook_run_seconds + core.tuning.webhook_post_seconds + SOON_SECONDS)
    claim = Update(
        Lane, lane.key(), "lane",
        set={"owner": owner, "claim_until": stamp(until), "due_at": stamp(until), **due_index(webhook, until)},
        when=(Missing("owner") if lane.owner is None else Equals("owner", lane.owner),),
    )  # fmt: skip
    if not isinstance(core.commit([claim]), Committed):
        return None
    end = core.clock.monotonic() + core.tuning.webhook_run_seconds
    return _Run(lane.with_(owner=owner), current, owner, end)


def _put_off(core: Core, lane: Lane, until: datetime) -> None:
    """Whatever was added meanwhile waits for the receiver too."""
    if lane.due_at is not None and lane.due_at < until:
        later = {"due_at": stamp(until), **due_index(lane.webhook, until)}
        core.commit([Update(Lane, lane.key(), "lane", set=later, when=(Equals("pokes", lane.pokes),))])


def _release(core: Core, run: _Run) -> None:
    """Let go, with the moment of the next look; not before what was added since has been taken into account."""
    for _ in range(core.tuning.conflict_tries_max):
        lane = core.store.get(Lane, run.lane.key())
        if lane is None or lane.owner != run.owner:
            return
        due = _next_look(core, run, lane)
        kept: dict[str, datetime | None] = {
            "due_at": due, "failing_since": run.health.failing_since, "rest_until": run.health.rest_until,
        }  # fmt: skip
        changes: dict[str, Native] = {name: stamp(at) for name, at in kept.items() if at is not None}
        gone = [name for name, at in kept.items() if at is None]
        let_go = Update(
            Lane, lane.key(), "lane",
            set={**changes, **due_index(run.id, due), "failures": run.health.failures},
            remove=("owner", "claim_until", *gone, *(("due_pk", "due_sk") if due is None else ())),
            when=(Equals("owner", run.owner), Equals("pokes", lane.pokes)),
        )  # fmt: skip
        if isinstance(core.commit([let_go]), Committed):
            if due is not None and due <= core.clock.now():
                core.nudges.deliver(run.id)
            return


def _next_look(core: Core, run: _Run, lane: Lane) -> datetime | None:
    """The earliest of what is on its way; sooner while the index may lag, and never before the receiver has rested."""
    poked = lane.pokes != run.lane.pokes
    now = core.clock.now()
    webhook = run.webhook
    sends = webhook is not None and webhook.disabled is None
    moments = [_compares_at(core, webhook, lane)] if webhook is not None and sends else []
    if lane.pending == 0 and not (lane.replaying or poked or webhook is None):
        return max(moments[0], now) if moments else None
    moments.append(now + timedelta(seconds=LOOK_SECONDS_MAX))
    if lane.replaying or poked:
        moments.append(now)  # there is more, or its owner decided something meanwhile
    if webhook is None:
        moments.append(now + timedelta(seconds=SOON_SECONDS))  # the lane itself has to go
    if run.next_due is not None:
        moments.append(run.next_due)
    if lane.poked_at is not None and (now - lane.poked_at).total_seconds() < LAG_SECONDS:
        moments.append(now + timedelta(seconds=SOON_SECONDS))
    rows, _ = core.store.query_due(delivery_shard(run.id), until=_FAR, limit=1)
    for row in rows:
        found = core.store.get(Delivery, row.key)
        if found is not None and found.due_at is not None:
            moments.append(found.due_at)
    look = max(min(moments), now)
    return look if run.health.rest_until is None else max(look, run.health.rest_until)


def _compares_at(core: Core, webhook: Webhook, lane: Lane) -> datetime:
    reached = lane.compared_to or webhook.created_at
    return reached + timedelta(seconds=core.tuning.webhook_compare_seconds)


# Sending.


def _serve(core: Core, run: _Run, webhook: Webhook) -> None:
    if run.lane.replaying:
        replaying.advance(core, webhook)
    if core.clock.now() >= _compares_at(core, webhook, run.lane):
        run.lane = run.lane.with_(compared_to=replaying.compare(core, webhook, run.lane))
    try:
        secrets = signing.opened(core, webhook, core.clock.now())
    except DifferentlyError as error:
        # Nothing is sent unsigned; the key may answer again.
        log.warning("webhook not signed", extra={"webhook": webhook.id, "code": error.code})
        run.health.rest_until = core.after(core.tuning.webhook_rest_seconds_max)
        return
    while run.health.well and core.clock.monotonic() < run.end:
        batch = _due(core, webhook)
        if not batch:
            break
        _send_all(core, run, webhook, secrets, batch)
    failing = run.health.failing_since
    if run.health.gone:
        _disable(core, run, webhook, "gone")
    elif failing is not None and core.clock.now() >= failing + timedelta(seconds=core.tuning.webhook_failing_seconds):
        _disable(core, run, webhook, "failing")


def _due(core: Core, webhook: Webhook) -> list[Delivery]:
    """The oldest that are due, as they stand: the index still shows what was settled a moment ago."""
    now = core.clock.now()
    after: str | None = None
    for _ in range(PAGES_MAX):
        found, after = _page(core, webhook.id, stamp(now), after)
        batch = [row for row in found if row.due_at is not None and row.due_at <= now]
        if batch or after is None:
            return batch
    return []


def _page(core: Core, webhook: WebhookId, until: str, after: str | None) -> tuple[list[Delivery], str | None]:
    rows, position = core.store.query_due(delivery_shard(webhook), until=until, after=after, limit=BATCH_MAX)
    keys: list[tuple[type[Record], Key]] = [(Delivery, row.key) for row in rows]
    found = core.store.batch_get(keys) if keys else []
    return [row for row in found if isinstance(row, Delivery) and row.status is DeliveryStatus.PENDING], position


def _send_all(core: Core, run: _Run, webhook: Webhook, secrets: Sequence[str], batch: Sequence[Delivery]) -> None:
    """Several at once, those about one thing one after the other. Settled here, so that the lane has one writer."""
    about: dict[str, deque[Delivery]] = {}
    for delivery in batch:
        about.setdefault(delivery.subject, deque()).append(delivery)
    turns = deque(about.values())
    flying: dict[Future[tuple[Receipt, Try]], tuple[Delivery, deque[Delivery]]] = {}
    with ThreadPoolExecutor(core.tuning.webhook_parallel, thread_name_prefix="webhook") as threads:
        while True:
            while (
                turns and len(flying) < core.tuning.webhook_parallel and run.health.well
                and core.clock.monotonic() < run.end
            ):  # fmt: skip
                rest = turns.popleft()
                delivery = rest.popleft()
                flying[threads.submit(_post, core, webhook, secrets, delivery)] = (delivery, rest)
            if not flying:
                return
            for done in wait(flying, return_when=FIRST_COMPLETED).done:
                delivery, rest = flying.pop(done)
                receipt, tried = done.result()
                run.health.note(core, receipt)
                _settle(core, run, delivery, receipt, tried)
                if rest:
                    turns.append(rest)


def _post(core: Core, webhook: Webhook, secrets: Sequence[str], delivery: Delivery) -> tuple[Receipt, Try]:
    body = delivery.body.encode()
    now, started = core.clock.now(), core.clock.monotonic()
    headers = {"content-type": "application/json", **signing.headers(secrets, delivery.event, now, body)}
    receipt = judged(core.courier.post(webhook.url, headers, body, core.tuning.webhook_post_seconds))
    took = int((core.clock.monotonic() - started) * 1000)
    return receipt, Try(at=now, status=receipt.status, failure=receipt.failure, duration_ms=took)


def judged(receipt: Receipt) -> Receipt:
    """With the failure that a status means; 2xx alone is success."""
    status = receipt.status
    if status is None or receipt.failure is not None or 200 <= status < 300:
        return receipt
    named = {410: Failure.GONE, 429: Failure.BUSY, 503: Failure.BUSY}.get(status)
    by_class = {3: Failure.REDIRECT, 4: Failure.REFUSED, 5: Failure.ERROR}.get(status // 100, Failure.BROKEN)
    return receipt.model_copy(update={"failure": named or by_class})


def _settle(core: Core, run: _Run, before: Delivery, receipt: Receipt, tried: Try) -> None:
    """Write what became of a try; refused if the delivery was asked for again meanwhile, and then it is sent again."""
    now = core.clock.now()
    after = before.with_(tries=before.tries + 1, last=tried, version=before.version + 1)
    again = None
    if receipt.failure is None:
        after = after.with_(status=DeliveryStatus.DELIVERED, due_at=None, ended_at=now)
    else:
        again = next_try(core, after, receipt)
        ended = {"status": DeliveryStatus.FAILED, "due_at": None, "ended_at": now}
        after = after.with_(**(ended if again is None else {"due_at": again}))
    actions: list[Action] = [Put(after, (Equals("version", before.version),), "delivery")]
    if after.due_at is None:
        actions.append(Update(Lane, run.lane.key(), "lane", add={"pending": -1}))
    core.commit(actions)
    if again is not None:
        run.next_due = min(again, run.next_due or again)
    log.info(
        "webhook sent",
        extra={
            "webhook": before.webhook, "event": before.event, "status": receipt.status,
            "failure": receipt.failure.value if receipt.failure is not None else None, "tries": after.tries,
            "delivery": after.status.value,
        },
    )  # fmt: skip


def next_try(core: Core, delivery: Delivery, receipt: Receipt) -> datetime | None:
    """When it is sent again after its `tries`-th try, or None when it is given up on: about three days in all.

    Each wait is four times the one before, up to twelve hours, somewhat sooner or later so that what failed together
    does not come back together; and at least what the receiver asked for.
    """
    if receipt.failure is Failure.GONE or delivery.type == TEST_TYPE or delivery.tries >= core.tuning.webhook_tries_max:
        return None
    seconds = min(
        core.tuning.webhook_backoff_seconds * 4 ** (delivery.tries - 1), core.tuning.webhook_backoff_seconds_max
    )
    asked = receipt.retry_after_seconds if receipt.status in _BUSY else None
    return core.after(max(seconds * core.jitter(), asked or 0.0))


# Giving up on a whole webhook.


def _disable(core: Core, run: _Run, webhook: Webhook, code: str) -> None:
    now = core.clock.now()
    stopped = webhook.with_(disabled=Disabled(code=code, at=now), version=webhook.version + 1, updated_at=now)
    event = core.event(
        WEBHOOKS, "webhook.disable", webhook.id, webhook.org, project=webhook.project, details={"code": code}
    )
    actions: list[Action] = [
        Put(stopped, (Equals("version", webhook.version),), "webhook"), Put(event, (Absent(),), "event"),
    ]  # fmt: skip
    if isinstance(core.commit(actions), Committed):
        log.warning("webhook disabled", extra={"webhook": webhook.id, "org": webhook.org, "code": code})
        run.webhook = stopped
        _drain(core, run)


def _drain(core: Core, run: _Run) -> None:
    """Nothing more is sent: what was on its way is given up on; a webhook that was removed leaves nothing behind."""
    core.commit([Delete(Replay, Replay.key_of(run.id), "replay")])
    core.commit([Update(Lane, run.lane.key(), "lane", remove=("replaying",))])
    tried = Try(at=core.clock.now(), failure=Failure.DISABLED)
    after: str | None = None
    while core.clock.monotonic() < run.end:
        found, after = _page(core, run.id, _FAR, after)
        if found:
            _give_up(core, run, found, tried)
        if after is None:
            break
    run.health = _Health(0, None)
    if run.webhook is None:
        empty: tuple[Condition, ...] = (Equals("owner", run.owner), Equals("pending", 0))
        core.commit([Delete(Lane, run.lane.key(), "lane", empty)])


def _give_up(core: Core, run: _Run, deliveries: Sequence[Delivery], tried: Try) -> None:
    over = [
        Put(
            delivery.with_(
                status=DeliveryStatus.FAILED, due_at=None, ended_at=tried.at, last=tried, version=delivery.version + 1
            ),
            (Equals("version", delivery.version),), delivery.event,
        )
        for delivery in deliveries
    ]  # fmt: skip
    core.commit([*over, Update(Lane, run.lane.key(), "lane", add={"pending": -len(over)})])
