"""When a call to DynamoDB may be sent again.

botocore's own retries repeat a plain write after a lost answer, and a repeated `ADD` counts twice. So they are off,
and this decides: what certainly had no effect is repeated for every call, an unknown outcome only for reads and for
transactions, whose request token makes a second send harmless.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError
from botocore.parsers import ResponseParserError

from ..runtime.clock import Clock

THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "ThrottlingError",
        "ProvisionedThroughputExceeded", "Throttling", "ThrottledException",
    }
)  # fmt: skip
"""Refusals for load: the call had no effect. The last words without `Exception` are cancellation reasons."""
IN_PROGRESS = frozenset({"TransactionInProgressException", "TransactionInProgress"})
REPEATABLE = frozenset({"GetItem", "BatchGetItem", "Query", "TransactWriteItems"})
NEVER_SENT = (ConnectTimeoutError, EndpointConnectionError)
TRIES_MAX = 3
DOUBT = "DifferentlyDoubt"
"""Marks a request, and the error that ends it, of which an earlier send may have had its effect."""


class Resend:
    """botocore's `needs-retry` hook."""

    def __init__(self, clock: Clock, backoff_seconds: float) -> None:
        self._clock = clock
        self._backoff_seconds = backoff_seconds

    def __call__(
        self, response: tuple[Any, dict[str, Any]] | None, operation: Any, attempts: int,
        caught_exception: Exception | None, request_dict: dict[str, Any], **_: object,
    ) -> float | None:  # fmt: skip
        context = request_dict["context"]
        without_effect, unknown = _outcome(response, caught_exception)
        if context.get(DOUBT) and response is not None:
            response[1][DOUBT] = True
        if not (without_effect or (unknown and operation.name in REPEATABLE)) or attempts >= TRIES_MAX:
            if response is not None and _is_broken(response[0]):
                raise ResponseParserError("The answer is not a whole JSON object.")
            return None
        if unknown:
            context[DOUBT] = True
        # The invocation id is random already, so it serves as the jitter.
        spread = zlib.crc32(f"{context['retries']['invocation-id']}{attempts}".encode()) % 1000 / 1000
        self._clock.sleep(self._backoff_seconds * 2 ** (attempts - 1) * (0.5 + spread))
        return 0


def _outcome(response: tuple[Any, Mapping[str, Any]] | None, caught: Exception | None) -> tuple[bool, bool]:
    """(certainly had no effect, may have had its effect) of one send; neither for an answer that stands."""
    if caught is not None:
        never_sent = isinstance(caught, NEVER_SENT)
        return never_sent, not never_sent
    if response is None:
        return False, True
    http, parsed = response
    code = str(parsed.get("Error", {}).get("Code", ""))
    return code in THROTTLES, code in IN_PROGRESS or http.status_code >= 500 or _is_broken(http)


def _is_broken(http: Any) -> bool:
    """botocore takes a success that it cannot read for an empty one: a row would seem not to exist."""
    return http.status_code < 300 and not (http.content.startswith(b"{") and http.content.endswith(b"}"))
