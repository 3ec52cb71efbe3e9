"""The log is read again for one webhook, a page at a time: for a replay, and to find what the stream did not bring.

A stream keeps a day and passes over what fails too often, so it is the fast way; the comparison, for which each lane is
due once an hour, is the sure one. Both go on whatever dies in between, and a page that is offered twice adds nothing.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Final

from ..model.due import stamp
from ..model.event import Event
from ..model.lifecycle import published
from ..model.webhook import Lane, Replay, Webhook
from ..runtime.ids import RANDOM_BYTES, ulid
from ..store.ports import Action, Committed, Delete, Equals, Put, Update
from . import offering
from .core import Core

log = logging.getLogger(__name__)
PAGE_ROWS: Final = 200
LATE_SECONDS: Final = 300
"""Younger events are the stream's to bring, and a write that began before may still come."""
PAGES_MAX: Final = 5
"""Of one run of the lane: what is offered is sent in between."""


def first_position(since: datetime) -> str:
    """Below every event of this moment: ids sort by their millisecond."""
    return f"evt_{ulid(since, bytes(RANDOM_BYTES))}"


def advance(core: Core, webhook: Webhook) -> None:
    """A few pages further. Called by the owner of the lane alone."""
    row = core.store.get(Replay, Replay.key_of(webhook.id))
    if row is None:
        core.commit([Update(Lane, Lane.key_of(webhook.id), "lane", remove=("replaying",))])
        return
    installation = core.catalog.installation().id
    for _ in range(PAGES_MAX):
        table, pk, _sk = Event.key_of(webhook.org, "")
        page = core.store.query(table, pk, after=row.position, limit=PAGE_ROWS)
        events = [event for event in page.rows if isinstance(event, Event) and event.at <= row.until]
        shown = [told for event in events if (told := published(event, installation)) is not None]
        offered = row.offered + offering.offer_to(core, webhook, shown, again=True)
        if page.next is None or len(events) < len(page.rows):
            _finish(core, webhook, row.with_(offered=offered))
            return
        moved = row.with_(position=page.next, offered=offered, version=row.version + 1)
        if not isinstance(core.commit([Put(moved, (Equals("version", row.version),), "replay")]), Committed):
            return  # cancelled meanwhile
        row = moved


def compare(core: Core, webhook: Webhook, lane: Lane) -> datetime:
    """Offer what this webhook wants and was never offered; how far the comparison has come."""
    installation = core.catalog.installation().id
    horizon = core.clock.now() - timedelta(seconds=LATE_SECONDS)
    reached = lane.compared_to or webhook.created_at
    table, pk, position = Event.key_of(webhook.org, first_position(reached))
    missed = 0
    for _ in range(PAGES_MAX):
        page = core.store.query(table, pk, after=position, limit=PAGE_ROWS)
        events = [event for event in page.rows if isinstance(event, Event) and event.at <= horizon]
        shown = [told for event in events if (told := published(event, installation)) is not None]
        missed += offering.offer_missing(core, webhook, shown)
        if page.next is None or len(events) < len(page.rows):
            reached = max(reached, horizon)
            break
        position, reached = page.next, events[-1].at
    if missed:
        log.warning("events not offered before", extra={"webhook": webhook.id, "org": webhook.org, "events": missed})
    done = Update(Lane, lane.key(), "lane", set={"compared_to": stamp(reached)})
    core.commit([done])
    return reached


def _finish(core: Core, webhook: Webhook, row: Replay) -> None:
    actions: list[Action] = [
        Delete(Replay, row.key(), "replay", (Equals("version", row.version),)),
        Update(Lane, Lane.key_of(webhook.id), "lane", remove=("replaying",)),
    ]
    core.commit(actions)
    log.info("webhook replayed", extra={"webhook": webhook.id, "offered": row.offered})
