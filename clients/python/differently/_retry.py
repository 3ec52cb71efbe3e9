"""Whether a call that failed is sent again, and after how long: a decision, made here and carried out elsewhere.

The server's own advice (`Retry-After`) comes first. Waits are spread by chance, so that a thousand clients that failed
together do not come back together. A command is never sent again by itself.
"""

from __future__ import annotations

from ._failure import ApiError, ConnectionFailed, DifferentlyError, UnexpectedAnswer, UploadFailed
from ._request import Request

ATTEMPTS_MAX = 5
FIRST_SECONDS = 0.25
WAIT_SECONDS_MAX = 8.0
ADVICE_SECONDS_MAX = 30.0
"""Advice to wait longer than that is the caller's to follow."""
REFUSED = ("rate_limited",)
"""Said before anything was done."""
PASSING = ("rate_limited", "provider_unavailable", "internal")
"""What a repeat may change. A quota or a full queue is not among them: who would wait for those, queues."""
INTERNAL_ATTEMPTS_MAX = 3
UNREACHED_ATTEMPTS_MAX = 3
"""A server that restarts is back soon; one that is not there is told of soon."""
GATEWAY_STATUSES = (502, 503, 504)


def wait_before_repeat(request: Request, attempts: int, failure: DifferentlyError, chance: float) -> float | None:
    """Seconds until the call is sent again, or None to raise `failure`. `attempts` were made; `chance` is in [0, 1)."""
    if attempts >= ATTEMPTS_MAX or not _may_repeat(request, attempts, failure):
        return None
    advised = failure.retry_after_seconds if isinstance(failure, ApiError) else None
    if advised is None:
        return min(WAIT_SECONDS_MAX, FIRST_SECONDS * 2.0 ** (attempts - 1)) * (0.5 + chance / 2)
    return advised * (1 + chance / 4) if advised <= ADVICE_SECONDS_MAX else None


def _may_repeat(request: Request, attempts: int, failure: DifferentlyError) -> bool:
    if request.repeat == "never":
        return False
    if isinstance(failure, ConnectionFailed):
        if not failure.sent and attempts >= UNREACHED_ATTEMPTS_MAX:
            return False
        return request.repeat == "always" or not failure.sent
    if isinstance(failure, ApiError):
        if failure.code in request.final:
            return False
        if failure.code == "internal" and attempts >= INTERNAL_ATTEMPTS_MAX:
            return False
        return failure.code in (PASSING if request.repeat == "always" else REFUSED)
    if isinstance(failure, UnexpectedAnswer):
        return request.repeat == "always" and failure.status in GATEWAY_STATUSES
    return isinstance(failure, UploadFailed) and failure.repeats
