"""Faults that the emulator does not have, put in between the store and the network by botocore's `before-send` hook."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
from botocore.httpsession import URLLib3Session

from differently_core.store.dynamo import DynamoStore

Fault = Callable[[AWSPreparedRequest], AWSResponse | None]


class Faults:
    """What becomes of the next calls of an operation, one fault for each; afterwards all is well again."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Fault]] = {}
        self.sent: list[tuple[str, dict[str, Any]]] = []
        """Each send of any operation, with its body."""

    @classmethod
    @contextmanager
    def injected_into(cls, store: DynamoStore) -> Iterator[Faults]:
        faults = cls()
        store.hooks().register_first("before-send.dynamodb", faults)
        try:
            yield faults
        finally:
            store.hooks().unregister("before-send.dynamodb", faults)

    def next(self, operation: str, *faults: Fault) -> None:
        self.waiting.setdefault(operation, []).extend(faults)

    def bodies(self, operation: str) -> list[dict[str, Any]]:
        return [body for name, body in self.sent if name == operation]

    def count(self, operation: str) -> int:
        return len(self.bodies(operation))

    def __call__(self, request: AWSPreparedRequest, event_name: str, **_: object) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        self.sent.append((operation, json.loads(request.body or "{}")))
        waiting = self.waiting.get(operation)
        return waiting.pop(0)(request) if waiting else None


def passes(request: AWSPreparedRequest) -> None:
    """The call goes through."""


def never_sent(request: AWSPreparedRequest) -> AWSResponse | None:
    raise ConnectTimeoutError(endpoint_url=request.url)


def answer_lost(request: AWSPreparedRequest) -> AWSResponse | None:
    """The service does its work, and nobody hears of it."""
    session = URLLib3Session()
    try:
        assert session.send(request).status_code == 200
    finally:
        session.close()
    raise ReadTimeoutError(endpoint_url=request.url)


def answers(status: int, body: dict[str, Any] | bytes) -> Fault:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def fault(request: AWSPreparedRequest) -> AWSResponse:
        return AWSResponse(request.url, status, {"content-type": "application/x-amz-json-1.0"}, _Raw(content))

    return fault


def fails(code: str, status: int = 400, message: str = "injected", **more: Any) -> Fault:
    return answers(status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more})


def cancels(*codes: str, message: str = "injected") -> Fault:
    """A cancelled transaction; one code for each action, in the order sent."""
    reasons = [{"Code": code} if code == "None" else {"Code": code, "Message": message} for code in codes]
    return fails("TransactionCanceledException", message=f"[{', '.join(codes)}]", CancellationReasons=reasons)


class _Raw(io.BytesIO):
    """What botocore reads a body from."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()
