"""The sealer: follows the log's stream and appends what was written to the chains of its organizations.

The stream is the message; a clock that has the log compared with the chains is the sure way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from differently_core.model.audit import HEAD_SHARDS
from differently_core.operations import comparing, roots, sealing
from differently_core.operations.core import Core
from differently_core.store import stream
from differently_core.store.stream import Delivered

from .messages import Message, Poison, read

log = logging.getLogger(__name__)
MINUTE_SECONDS = 60
COMPARING_SECONDS_MAX = 40.0


class Compare(Message):
    """Compare older events with their chains and publish roots: one shard's, by the clock's minute, or everybody's."""

    kind: Literal["compare"] = "compare"
    everything: bool = False
    seconds: Annotated[float, Field(gt=0, le=600)] = COMPARING_SECONDS_MAX


CLOCK: TypeAdapter[Compare] = TypeAdapter(Compare)


def handle(core: Core, event: Mapping[str, Any]) -> dict[str, Any]:
    """A batch of the stream, or a message of the clock.

    To a batch the answer is from where on it has to come again. A fault with one organization's events holds up no
    other's. What cannot be read is passed over: its row stays in the table, where it is found by comparing.
    """
    if "Records" not in event:
        return _timed(core, event)
    batch = stream.read(event)
    for unreadable in batch.unreadable:
        log.error("event unreadable", extra={"entry": "sealer", "sequence": unreadable.sequence, "why": unreadable.why})
    for touched in batch.touched:
        facts = {"org": touched.org, "event": touched.event, "why": touched.how}
        log.error("event touched", extra={"entry": "sealer", **facts})
    failed = [again for org, events in _by_org(batch).items() if (again := _seal(core, org, events)) is not None]
    return stream.failures(failed)


def _by_org(batch: stream.Batch) -> dict[str, list[Delivered]]:
    grouped: dict[str, list[Delivered]] = {}
    for delivered in batch.events:
        grouped.setdefault(delivered.event.org, []).append(delivered)
    return grouped


def _seal(core: Core, org: str, delivered: list[Delivered]) -> str | None:
    """The sequence number to come again from, if this failed."""
    try:
        done = sealing.seal(core, org, (entry.event for entry in delivered))
    except Exception:
        log.exception("not sealed", extra={"entry": "sealer", "org": org, "events": len(delivered)})
        return delivered[0].sequence
    if done.events:
        log.info("sealed", extra={"org": org, "events": done.events, "lagSeconds": done.lag_seconds})
    return None


# What the clock asks for


def _timed(core: Core, event: Mapping[str, Any]) -> dict[str, Any]:
    try:
        message = read(CLOCK, event)
    except Poison as poison:
        log.error("message dropped", extra={"entry": "sealer", "why": str(poison)})
        return {}
    shard = None if message.everything else int(core.clock.now().timestamp()) // MINUTE_SECONDS % HEAD_SHARDS
    orgs = comparing.organizations(core, shard)
    return {"organizations": _each(core, orgs, message.seconds, _compare)}


def _each(core: Core, orgs: Iterable[str], seconds: float, work: Callable[[Core, str], None]) -> int:
    """What is not reached in time is reached when its shard's turn comes again."""
    end = core.clock.monotonic() + seconds
    done = 0
    for org in orgs:
        if core.clock.monotonic() >= end:
            log.warning("time is up", extra={"entry": "sealer", "reached": done})
            break
        try:
            work(core, org)
        except Exception:
            log.exception("not sealed", extra={"entry": "sealer", "org": org})
        done += 1
    return done


def _compare(core: Core, org: str) -> None:
    """And tell what the chain came to."""
    found = comparing.compare(core, org)
    if found.missed:
        log.warning("events missed", extra={"org": org, "events": found.missed})
    roots.publish(core, org)
