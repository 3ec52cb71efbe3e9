"""A replay: a stretch of an organization's log is offered to one webhook again, a page at a time.

The lane is due for as long as there is one, so it goes on whatever dies in between; a page that is offered twice adds
nothing, since what is on its way already stays as it is.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from ..model.event import Event
from ..model.lifecycle import published
from ..model.webhook import Lane, Replay, Webhook
from ..runtime.ids import RANDOM_BYTES, ulid
from ..store.ports import Action, Committed, Delete, Equals, Put, Update
from . import offering
from .core import Core

log = logging.getLogger(__name__)
PAGE_ROWS: Final = 200
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


def _finish(core: Core, webhook: Webhook, row: Replay) -> None:
    actions: list[Action] = [
        Delete(Replay, row.key(), "replay", (Equals("version", row.version),)),
        Update(Lane, Lane.key_of(webhook.id), "lane", remove=("replaying",)),
    ]
    core.commit(actions)
    log.info("webhook replayed", extra={"webhook": webhook.id, "offered": row.offered})
