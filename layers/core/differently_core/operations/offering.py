"""From events to deliveries: each event becomes one row for each webhook that wants it, however often it is offered.

The write that adds deliveries pokes their webhook's lane in the same transaction, so they are found by the sweep if
every message about them is lost.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta

from ..errors import DifferentlyError
from ..model.due import due_index, stamp
from ..model.event import Event
from ..model.lifecycle import Lifecycle, published
from ..model.record import Key, Record
from ..model.webhook import Delivery, DeliveryStatus, Lane, Webhook, WebhookEntry
from ..runtime.ids import OrgId, WebhookId
from ..store.ports import Absent, Action, Committed, Condition, Equals, Put, StoreThrottled, Update
from .core import Core

log = logging.getLogger(__name__)
SKEW_SECONDS = 5
"""A stream may come again from its beginning; what happened before a webhook was made is not for it, give or take what
two clocks differ."""
ADDED_MAX = 40
"""Deliveries of one transaction."""


def offer(core: Core, events: Iterable[Event]) -> int:
    """Deliveries added. Raises what the store raised, after every other webhook had its own: a repeat adds the rest."""
    installation = core.catalog.installation().id
    told: defaultdict[OrgId, list[Lifecycle]] = defaultdict(list)
    for event in events:
        shown = published(event, installation)
        if shown is not None:
            told[OrgId(event.org)].append(shown)
    added = 0
    failure: DifferentlyError | None = None
    for org, shown_to in told.items():
        for webhook in of_org(core, org):
            try:
                added += offer_to(core, webhook, shown_to)
            except DifferentlyError as error:
                failure = error
    if failure is not None:
        raise failure
    return added


def offer_to(core: Core, webhook: Webhook, events: Sequence[Lifecycle], *, again: bool = False) -> int:
    """What this webhook wants of them. With `again` those that ended, delivered or not, are sent once more."""
    begins = webhook.created_at - timedelta(seconds=SKEW_SECONDS)
    wanted = [
        event for event in events if webhook.wants(event.type, event.data.project) and (again or event.time >= begins)
    ]
    added = sum(_add(core, webhook.id, chunk, again=again) for chunk in _chunks(wanted))
    if added:
        core.nudges.deliver(webhook.id)
    return added


def offer_missing(core: Core, webhook: Webhook, events: Sequence[Lifecycle]) -> int:
    """What this webhook wants of them and has no row for: a look first, since nearly always all are there."""
    wanted = [event for event in events if webhook.wants(event.type, event.data.project)]
    added = 0
    for chunk in _chunks(wanted):
        standing = _standing(core, webhook.id, chunk)
        added += _add(core, webhook.id, [event for event in chunk if event.id not in standing], again=False)
    return added


def add(core: Core, webhook: WebhookId, event: Lifecycle) -> None:
    """Whether it is wanted or not."""
    _add(core, webhook, [event], again=False)
    core.nudges.deliver(webhook)


def of_org(core: Core, org: OrgId) -> list[Webhook]:
    """Every webhook of an organization, strongly consistent: one that was just made misses nothing."""
    table, pk, _ = WebhookEntry.key_of(org, WebhookId(""))
    entries = [row for row in core.store.query(table, pk).rows if isinstance(row, WebhookEntry)]
    keys: list[tuple[type[Record], Key]] = [(Webhook, Webhook.key_of(entry.id)) for entry in entries]
    rows = core.store.batch_get(keys) if keys else []
    return [row for row in rows if isinstance(row, Webhook)]


def poke(core: Core, webhook: WebhookId, added: int, *, replaying: bool = False) -> Update:
    """Somebody must look at the lane now; refused where the webhook is gone for good."""
    now = core.clock.now()
    return Update(
        Lane, Lane.key_of(webhook), "lane",
        set={
            "due_at": stamp(now), "poked_at": stamp(now), **due_index(webhook, now),
            **({"replaying": True} if replaying else {}),
        },
        add={"pokes": 1, **({"pending": added} if added else {})},
    )  # fmt: skip


def _chunks(events: Sequence[Lifecycle]) -> Iterable[list[Lifecycle]]:
    return (list(events[at : at + ADDED_MAX]) for at in range(0, len(events), ADDED_MAX))


def _add(core: Core, webhook: WebhookId, events: Sequence[Lifecycle], *, again: bool) -> int:
    for _ in range(core.tuning.conflict_tries_max):
        standing = _standing(core, webhook, events) if again else {}
        puts = [put for event in events if (put := _put(core, webhook, event, standing)) is not None]
        if not puts:
            return 0
        actions: list[Action] = [*puts, poke(core, webhook, len(puts))]
        outcome = core.commit(actions)
        if isinstance(outcome, Committed):
            return len(puts)
        if "lane" in outcome.failed:
            return 0  # the webhook was removed meanwhile
        if not again:
            events = [event for event in events if event.id not in outcome.failed]
    raise StoreThrottled("This webhook's deliveries are being changed by others right now; repeat the call.")


def _standing(core: Core, webhook: WebhookId, events: Sequence[Lifecycle]) -> dict[str, Delivery]:
    keys: list[tuple[type[Record], Key]] = [(Delivery, Delivery.key_of(webhook, event.id)) for event in events]
    return {row.event: row for row in core.store.batch_get(keys) if isinstance(row, Delivery)}


def _put(core: Core, webhook: WebhookId, event: Lifecycle, standing: dict[str, Delivery]) -> Put | None:
    """The row of an event that is new here, or that ended and is wanted again; None while it is on its way."""
    before = standing.get(event.id)
    when: tuple[Condition, ...] = (Absent(),)
    version = 1
    if before is not None:
        if before.status is DeliveryStatus.PENDING:
            return None
        when, version = (Equals("version", before.version),), before.version + 1
    row = Delivery(
        webhook=webhook, event=event.id, type=event.type, subject=event.subject, body=event.text(), version=version,
        # The event's own time keeps the order in which things happened.
        due_at=event.time, created_at=core.clock.now(), last=before.last if before is not None else None,
    )  # fmt: skip
    return Put(row, when, event.id)
