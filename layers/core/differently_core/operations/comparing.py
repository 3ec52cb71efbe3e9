"""The sure way to the chain: events that are older than a message ever takes are compared with what is sealed.

What the stream lost, or what could not be read from it, is found here. A position is kept below which nothing can
appear any more: nobody commits an event later than a quarter of an hour after giving it its id, because no function
runs for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from ..model.audit import HEAD_SHARDS, ChainHead
from ..model.event import Event
from ..model.record import Table
from ..model.tenancy import OPERATOR_ORG
from ..runtime.ids import ulid
from ..store.ports import Equals, Put
from . import sealing, tenants
from .core import Core
from .proving import head_of

MESSAGE_LATE = timedelta(minutes=2)
"""What is younger may still be on its way."""
FIRM = timedelta(minutes=20)
"""What is older is all there."""
PAGES_MAX = 50
ORGS_READ = 100


@dataclass(frozen=True)
class Compared:
    events: int
    missed: int


def compare(core: Core, org: str) -> Compared:
    """Seal what was missed among the organization's older events. Raises only for faults of the store."""
    head = head_of(core, org)
    until, firm = _id_before(core, MESSAGE_LATE), _id_before(core, FIRM)
    seen = missed = 0
    position = mark = head.compared
    for _ in range(PAGES_MAX):
        page = core.store.query(Table.LOG, Event.key_of(org, "").pk, after=position or None)
        events = [row for row in page.rows if isinstance(row, Event) and row.id < until]
        if events:
            known = sealing.sealed_among(core.store, head_of(core, org), [event.id for event in events])
            missed += sealing.seal(core, org, [event for event in events if event.id not in known]).events
            seen += len(events)
            position = events[-1].id
            mark = max([mark, *(event.id for event in events if event.id < firm)])
        if page.next is None or len(events) < len(page.rows):
            break
    if mark != head.compared:
        _keep(core, org, mark)
    return Compared(seen, missed)


def _keep(core: Core, org: str, mark: str) -> None:
    """Losing this is fine: then the next comparison begins where this one did."""
    head = core.store.get(ChainHead, ChainHead.key_of(org))
    if head is not None and mark > head.compared:
        core.store.transact([Put(head.with_(compared=mark), (Equals("size", head.size),), "head")])


def organizations(core: Core, shard: int | None = None) -> Iterator[str]:
    """Every organization that has events, or those of one shard of chains."""
    known = {OPERATOR_ORG, *_listed(core)}
    for number in range(HEAD_SHARDS) if shard is None else (shard,):
        partition = f"CHAINS#{number:02d}"
        known.update(_with_chains(core, partition))
        yield from sorted(org for org in known if ChainHead.shard_of(org) == partition)


def _listed(core: Core) -> Iterator[str]:
    after: str | None = None
    while True:
        orgs, after = tenants.list_orgs(core, after, ORGS_READ)
        yield from (org.id for org in orgs)
        if after is None:
            return


def _with_chains(core: Core, partition: str) -> Iterator[str]:
    """Deleted organizations are not listed any more; their chains stay."""
    after: str | None = None
    while True:
        page = core.store.query(Table.LOG, partition, after=after)
        yield from (row.org for row in page.rows if isinstance(row, ChainHead))
        if page.next is None:
            return
        after = page.next


def _id_before(core: Core, age: timedelta) -> str:
    """No event that is older than `age` has an id from here on."""
    return f"evt_{ulid(core.clock.now() - age, bytes(10))}"
