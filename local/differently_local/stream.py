"""What Lambda's event source mapping is when deployed: each consumer of the log's stream follows it on a thread of its
own, is handed batches in the form that Lambda delivers, and says from where on to deliver again.

To add a consumer, add its entry point to `CONSUMERS`. A start delivers again what the stream still holds, which a
consumer must bear in any case.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from differently_core.operations.core import Core
from differently_core.store.stream import EVENTS_PREFIX
from differently_scheduler import projector, sealer

from .data_stack import KEY_ID, REGION, SECRET, require_loopback
from .dispatcher import Entry, Pulse, attempt

log = logging.getLogger(__name__)
CONSUMERS: Final[Mapping[str, Entry]] = {
    "sealer": sealer.handle,
    "projector": projector.handle,
}
BATCH_MAX: Final = 100
READ_MAX: Final = 1000
IDLE_SECONDS: Final = 0.5
AGAIN_SECONDS: Final = 1.0
AGAIN_SECONDS_MAX: Final = 30.0
COMPARE_SECONDS: Final = 300.0
TRIES_MAX: Final = 10
"""Then the record is passed over, as Lambda sends it to the queue of what failed."""
Record = dict[str, Any]


class Source:
    """One reader's place in a stream. Never raises: without an answer there are no records."""

    def __init__(self, endpoint: str, arn: str) -> None:
        require_loopback(endpoint)
        self._client = botocore.session.Session().create_client(
            "dynamodbstreams", region_name=REGION, endpoint_url=endpoint, aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            config=Config(proxies={}, connect_timeout=2, read_timeout=10, retries={"total_max_attempts": 1}),
        )  # fmt: skip
        self._arn = arn
        self._iterator: str | None = None
        self._last: str | None = None

    def read(self) -> list[Record]:
        try:
            self._iterator = self._iterator or self._from_last()
            answer = self._client.get_records(ShardIterator=self._iterator, Limit=READ_MAX)
        except (BotoCoreError, ClientError) as error:
            log.info("stream not read", extra={"why": type(error).__name__})
            self._iterator = None
            return []
        self._iterator = answer.get("NextShardIterator")
        records: list[Record] = answer["Records"]
        if records:
            self._last = records[-1]["dynamodb"]["SequenceNumber"]
        return records

    def _from_last(self) -> str:
        # The emulator has one shard for each stream.
        shard = self._client.describe_stream(StreamArn=self._arn)["StreamDescription"]["Shards"][0]["ShardId"]
        place: dict[str, str] = {"ShardIteratorType": "TRIM_HORIZON"}
        if self._last is not None:
            place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": self._last}
        made: str = self._client.get_shard_iterator(StreamArn=self._arn, ShardId=shard, **place)["ShardIterator"]
        return made


class Follower:
    """Hands one consumer what its source yields, in order; `beat` answers the pause until its next call."""

    def __init__(self, consumer: Entry, core: Core, source: Source) -> None:
        self._consumer = consumer
        self._core = core
        self._source = source
        self._waiting: list[Record] = []
        self._tries = 0

    def beat(self) -> float:
        if not self._waiting:
            self._waiting = [wire for record in self._source.read() if (wire := delivered(record)) is not None]
        if not self._waiting:
            return IDLE_SECONDS
        batch = self._waiting[:BATCH_MAX]
        done = self._done(batch, attempt(self._consumer, self._core, {"Records": batch}))
        self._waiting = self._waiting[done:]
        if done == len(batch):
            self._tries = 0
            return 0.0
        self._tries = 1 if done else self._tries + 1
        if self._tries >= TRIES_MAX:
            passed, self._waiting, self._tries = self._waiting[0], self._waiting[1:], 0
            log.error("record given up", extra={"sequence": passed["dynamodb"]["SequenceNumber"]})
        return min(AGAIN_SECONDS_MAX, AGAIN_SECONDS * (1 << self._tries))

    def _done(self, batch: Sequence[Record], answer: object) -> int:
        """How many from the beginning are done. A consumer that failed as a whole answered None."""
        if not isinstance(answer, Mapping):
            return 0
        failed = {entry["itemIdentifier"] for entry in answer.get("batchItemFailures", ())}
        places = (number for number, record in enumerate(batch) if record["dynamodb"]["SequenceNumber"] in failed)
        return next(places, len(batch))


class Followers:
    """All consumers of one stream."""

    def __init__(self, core: Core, endpoint: str, arn: str, consumers: Mapping[str, Entry] = CONSUMERS) -> None:
        self._core = core
        self._pulses = [
            Pulse(name, Follower(consumer, core, Source(endpoint, arn)).beat) for name, consumer in consumers.items()
        ]
        self._pulses.append(Pulse("compare", self._compare))

    def start(self) -> None:
        for pulse in self._pulses:
            pulse.start()

    def _compare(self) -> float:
        """What was written just before the last run ended, whose stream is gone, is sealed now."""
        attempt(sealer.handle, self._core, sealer.Compare(everything=True).event())
        return COMPARE_SECONDS

    def stop(self, seconds: float = 3.0) -> bool:
        end = time.monotonic() + seconds
        for pulse in self._pulses:
            pulse.halt()
        return all(pulse.ended(end) for pulse in self._pulses)


def delivered(record: Record) -> Record | None:
    """A record as Lambda delivers it; None for one that the mapping's filter keeps back."""
    change = dict(record["dynamodb"])
    if not change["Keys"]["pk"].get("S", "").startswith(EVENTS_PREFIX):
        return None
    made = change.get("ApproximateCreationDateTime")
    if made is not None:
        change["ApproximateCreationDateTime"] = made.timestamp()
    return {**record, "dynamodb": change, "eventSource": "aws:dynamodb"}
