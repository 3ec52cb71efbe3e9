"""Batches of the log table's stream, as Lambda delivers them: the only place that knows their form.

A record that cannot be read ends nothing else: it is told with its place, and the rest of the batch is read. No
delivery can make it right, and nothing is lost by passing it over, because its row stays in the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import DifferentlyError
from ..model.event import Event
from .codec import from_row
from .expressions import native

INSERT = "INSERT"
EVENTS_PREFIX = "EVT#"
"""Consumers are sent what has this at the beginning of its partition key, and nothing else of the table."""


@dataclass(frozen=True)
class Delivered:
    """An event and its place in the stream, by which a consumer says what it could not work off."""

    sequence: str
    event: Event


@dataclass(frozen=True)
class Unreadable:
    """A record that is no event of this version. `why` names a rule, never a value."""

    sequence: str
    why: str


@dataclass(frozen=True)
class Touched:
    """A row of the log that was changed or removed, which nothing of ours does."""

    sequence: str
    how: str
    org: str
    event: str


@dataclass(frozen=True)
class Batch:
    events: list[Delivered] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    touched: list[Touched] = field(default_factory=list)


def read(message: Mapping[str, Any]) -> Batch:
    """Never raises for what a record holds."""
    batch = Batch()
    for record in message.get("Records", []):
        _read_one(batch, record)
    return batch


def failures(sequences: list[str]) -> dict[str, Any]:
    """What a consumer answers: the stream is delivered again from the first of these on."""
    return {"batchItemFailures": [{"itemIdentifier": sequence} for sequence in sequences]}


def _read_one(batch: Batch, record: Any) -> None:
    sequence = ""
    try:
        change = record["dynamodb"]
        sequence = str(change["SequenceNumber"])
        pk, sk = change["Keys"]["pk"]["S"], change["Keys"]["sk"]["S"]
        if not pk.startswith(EVENTS_PREFIX):
            return
        if record["eventName"] != INSERT:
            batch.touched.append(Touched(sequence, record["eventName"], pk.removeprefix(EVENTS_PREFIX), sk))
            return
        batch.events.append(Delivered(sequence, _event(change["NewImage"])))
    except (DifferentlyError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        batch.unreadable.append(Unreadable(sequence, getattr(error, "rule", None) or type(error).__name__))


class _Unknown(ValueError):
    rule = "fields of another version"


def _event(image: Mapping[str, Any]) -> Event:
    row = {name: native(value) for name, value in image.items()}
    # A field that this version does not know would be left out of what is made of the event, its hash included.
    if not set(json.loads(str(row.get("doc", "{}")))) <= set(Event.model_fields):
        raise _Unknown
    found = from_row(row)
    if not isinstance(found, Event) or (row["pk"], row["sk"]) != found.key()[1:]:
        raise ValueError("not an event")
    return found
