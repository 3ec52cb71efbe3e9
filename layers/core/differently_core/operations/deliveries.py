"""What was sent to a webhook and what became of it; asked for again one by one, or by a stretch of time."""

from __future__ import annotations

from datetime import datetime

from ..errors import InvalidRequest, InvalidState, NotFound
from ..model.due import ENDED_KEPT
from ..model.lifecycle import TEST_TYPE, Lifecycle, LifecycleData
from ..model.webhook import Delivery, DeliveryStatus, Replay, Webhook
from ..runtime.ids import is_id
from ..store.ports import Absent, Action, Committed, Equals, Put, StoreThrottled
from . import offering
from .core import Caller, Core
from .replaying import first_position
from .webhooks import check_sends, find

PAGES_MAX = 5
"""Pages that one call reads for those of one status."""
REPLAYED = ENDED_KEPT
"""How far back a replay reaches."""


def listed(
    core: Core, webhook: Webhook, statuses: frozenset[DeliveryStatus], after: str | None, limit: int
) -> tuple[list[Delivery], str | None]:
    """Newest events first, and where to go on. With a filter a page may be short, or empty, and there be more."""
    table, pk, prefix = Delivery.key_of(webhook.id, "")
    found: list[Delivery] = []
    for _ in range(PAGES_MAX):
        page = core.store.query(table, pk, prefix=prefix, after=after, limit=limit, reverse=True)
        for row in page.rows:
            if isinstance(row, Delivery) and (not statuses or row.status in statuses):
                found.append(row)
                if len(found) == limit:
                    last = row is page.rows[-1] and page.next is None
                    return found, None if last else row.key().sk
        after = page.next
        if after is None:
            break
    return found, after


def get(core: Core, webhook: Webhook, delivery: str) -> Delivery:
    found = core.store.get(Delivery, Delivery.key_of(webhook.id, delivery)) if is_id("evt", delivery) else None
    if found is None:
        raise NotFound(f"This webhook has no delivery {delivery[:64]!r}.")
    return found


def redeliver(core: Core, caller: Caller, webhook: str, delivery: str) -> Delivery:
    """Send it now, whatever became of it before, with all its tries anew and under the same event id."""
    for _ in range(core.tuning.conflict_tries_max):
        owner = find(core, caller, webhook)
        check_sends(owner)
        before = get(core, owner, delivery)
        now = core.clock.now()
        after = before.with_(
            status=DeliveryStatus.PENDING, tries=0, due_at=now, ended_at=None, version=before.version + 1
        )
        added = 0 if before.status is DeliveryStatus.PENDING else 1
        actions: list[Action] = [
            Put(after, (Equals("version", before.version),), "delivery"), offering.poke(core, owner.id, added),
        ]  # fmt: skip
        if isinstance(core.commit(actions), Committed):
            core.nudges.deliver(owner.id)
            return after
    raise StoreThrottled("This delivery is being changed by others right now; repeat the call.")


def test(core: Core, caller: Caller, webhook: str) -> Delivery:
    """Send an event of the type `webhook.test`, once, whatever types the webhook is told of."""
    owner = find(core, caller, webhook)
    check_sends(owner)
    data = LifecycleData(
        org=owner.org, project=owner.project, actor=caller.actor, request_id=caller.request_id, facts={}
    )
    event = Lifecycle(
        id=core.ids.new("evt"), source=f"/differently/{core.catalog.installation().id}", type=TEST_TYPE,
        subject=owner.id, time=core.clock.now(), data=data,
    )  # fmt: skip
    offering.add(core, owner.id, event)
    return get(core, owner, event.id)


def replay(core: Core, caller: Caller, webhook: str, since: datetime, until: datetime | None) -> Replay:
    """Offer the events of a stretch of time again, those that were delivered too; receivers know them by their ids.

    Raises `InvalidRequest` for a stretch that is none or is too long ago, `InvalidState` while another is under way.
    """
    owner = find(core, caller, webhook)
    check_sends(owner)
    now = core.clock.now()
    end = now if until is None else min(until, now)
    if since >= end:
        raise InvalidRequest("from must lie before to, and in the past.", field="from")
    if since < now - REPLAYED:
        raise InvalidRequest(f"from may lie at most {REPLAYED.days} days back.", field="from")
    row = Replay(webhook=owner.id, since=since, until=end, position=first_position(since))
    outcome = core.commit([Put(row, (Absent(),), "replay"), offering.poke(core, owner.id, 0, replaying=True)])
    if not isinstance(outcome, Committed):
        raise InvalidState("A replay of this webhook is under way; wait until it is over.", webhook=owner.id)
    core.nudges.deliver(owner.id)
    return row


def replay_of(core: Core, webhook: Webhook) -> Replay | None:
    return core.store.get(Replay, Replay.key_of(webhook.id))
