"""Batches of the log's stream as Lambda delivers them, for tests that have no stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from differently_core.model.record import Record, Table
from differently_core.store.codec import to_row
from differently_core.store.expressions import wire_item
from differently_core.store.tables import models

_LOG = models({Table.LOG: "log"})[Table.LOG]


def delivery(record: Record, number: int, how: str = "INSERT") -> dict[str, Any]:
    image = wire_item(_LOG, to_row(record))
    return {
        "eventName": how,
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "SequenceNumber": f"{number:021d}",
            "Keys": {name: image[name] for name in ("pk", "sk")},
            "NewImage": image,
            "StreamViewType": "NEW_IMAGE",
        },
    }


def batch(records: Iterable[Record], start: int = 1) -> dict[str, Any]:
    return {"Records": [delivery(record, number) for number, record in enumerate(records, start)]}
