"""Every failure that a caller, a worker or an adapter can meet, in one tree and one table.

    DifferentlyError
    ├── InvalidRequest            the request can never succeed as written
    │   ├── PayloadTooLarge       a body, file or output is over its limit
    │   └── MethodNotAllowed      the path exists, without this method
    ├── RateLimited               more calls at once than this installation takes
    ├── Unauthenticated           no key, or a key that is not valid
    ├── Forbidden                 a valid key without the scope
    │   ├── Suspended             the organization or project takes nothing new
    │   └── BudgetExceeded        it would cost more than may be spent this month
    ├── NotFound                  absent, or another tenant's
    ├── InvalidState              right object, wrong moment
    │   └── IdempotencyConflict   a key used again for another request
    ├── UnsupportedCapability     no permitted pool offers what was asked
    ├── NoEligiblePool            no permitted pool could ever take it
    ├── LimitExceeded             larger than a limit for one sandbox
    ├── QuotaExceeded             full, and the caller does not want to wait
    │   └── QueueFull             the backlog itself is full
    ├── UnsupportedOperation      the pool cannot do this at all
    ├── PolicyUnreadable          what is permitted cannot be told, so nothing is
    ├── BackendError              what a backend did
    │   ├── InsufficientCapacity  no room now
    │   ├── SandboxFailed         this one sandbox failed, the backend is well
    │   ├── ProviderUnavailable   the backend did not answer, or refused us
    │   ├── ExecUnconfirmed       a command started; its end was not seen
    │   └── AdapterFault          our adapter broke; the backend is not to blame
    └── Internal                  a fault of ours

An expected outcome (queued, refused by policy) is a value, not an exception. Codes and reactions follow
section 5 of the adapter specification; `forbidden`, `quota_exceeded` and the rule that our own bug never marks a
pool unhealthy are our choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

Detail = str | int | float | bool | None | list[str]


@dataclass(frozen=True)
class Reaction:
    """What an error code means to everyone who meets it.

    `public` is the code that clients see: two backend codes are shown as `provider_unavailable`.
    """

    http_status: int
    retry: Literal["no", "after_read", "later", "soon", "backoff"]
    counts_attempt: bool
    marks_pool_unhealthy: bool
    public: str
    meaning: str


def _reaction(
    status: int,
    retry: Literal["no", "after_read", "later", "soon", "backoff"],
    public: str,
    meaning: str,
    *,
    counts: bool = False,
    unhealthy: bool = False,
) -> Reaction:
    return Reaction(status, retry, counts, unhealthy, public, meaning)


REACTIONS: Mapping[str, Reaction] = {
    "invalid_request": _reaction(400, "no", "invalid_request", "The request can never succeed as written."),
    "payload_too_large": _reaction(413, "no", "payload_too_large", "A body, file or output is over its limit."),
    "method_not_allowed": _reaction(405, "no", "method_not_allowed", "This path does not have that method."),
    "rate_limited": _reaction(
        429, "soon", "rate_limited", "More requests at once than this installation takes; its gateway says so."
    ),
    "unauthenticated": _reaction(401, "no", "unauthenticated", "The API key is missing or not valid."),
    "forbidden": _reaction(403, "no", "forbidden", "The API key is valid but lacks the scope."),
    "budget_exceeded": _reaction(403, "no", "budget_exceeded", "It would go beyond what may be spent this month."),
    "suspended": _reaction(403, "no", "suspended", "Nothing new may start in this organization or project."),
    "not_found": _reaction(404, "no", "not_found", "It does not exist, or is not yours."),
    "invalid_state": _reaction(409, "after_read", "invalid_state", "Not possible in the sandbox's current state."),
    "idempotency_conflict": _reaction(
        409, "no", "idempotency_conflict", "This Idempotency-Key names a live sandbox made with another body."
    ),
    "unsupported_capability": _reaction(
        422, "no", "unsupported_capability", "No permitted pool offers a requested capability."
    ),
    "no_eligible_pool": _reaction(422, "no", "no_eligible_pool", "No permitted pool could ever take this sandbox."),
    "limit_exceeded": _reaction(422, "no", "limit_exceeded", "Larger than a limit for one sandbox."),
    "quota_exceeded": _reaction(429, "later", "quota_exceeded", "The quota is used up and waiting was refused."),
    "queue_full": _reaction(429, "later", "queue_full", "Too many sandboxes are waiting already."),
    "unsupported_operation": _reaction(501, "no", "unsupported_operation", "The pool cannot do this at all."),
    "insufficient_capacity": _reaction(503, "soon", "provider_unavailable", "The backend has no room now."),
    "sandbox_failed": _reaction(
        503, "backoff", "provider_unavailable", "This sandbox failed on a healthy backend.", counts=True
    ),
    "provider_unavailable": _reaction(
        503, "backoff", "provider_unavailable", "The backend cannot be used now.", counts=True, unhealthy=True
    ),
    "policy_unreadable": _reaction(
        503, "backoff", "provider_unavailable", "A placement policy cannot be read, so nothing is placed."
    ),
    "exec_unconfirmed": _reaction(
        502, "no", "exec_unconfirmed", "The command was started but its end was not seen; it is never repeated."
    ),
    "internal": _reaction(500, "backoff", "internal", "A fault of ours.", counts=True),
}


class DifferentlyError(Exception):
    """Base of all failures; `details` is shown to the caller, so it never carries a secret."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Detail] = details

    @property
    def reaction(self) -> Reaction:
        return REACTIONS[self.code]


class InvalidRequest(DifferentlyError):
    code = "invalid_request"


class PayloadTooLarge(InvalidRequest):
    code = "payload_too_large"


class MethodNotAllowed(InvalidRequest):
    code = "method_not_allowed"


class RateLimited(DifferentlyError):
    """Answered by the gateway in front of a deployed installation, before any of our code runs."""

    code = "rate_limited"


class Unauthenticated(DifferentlyError):
    code = "unauthenticated"


class Forbidden(DifferentlyError):
    code = "forbidden"


class Suspended(Forbidden):
    code = "suspended"


class BudgetExceeded(Forbidden):
    code = "budget_exceeded"


class NotFound(DifferentlyError):
    code = "not_found"


class InvalidState(DifferentlyError):
    code = "invalid_state"


class IdempotencyConflict(InvalidState):
    code = "idempotency_conflict"


class UnsupportedCapability(DifferentlyError):
    code = "unsupported_capability"


class NoEligiblePool(DifferentlyError):
    code = "no_eligible_pool"


class LimitExceeded(DifferentlyError):
    code = "limit_exceeded"


class QuotaExceeded(DifferentlyError):
    code = "quota_exceeded"


class QueueFull(QuotaExceeded):
    code = "queue_full"


class UnsupportedOperation(DifferentlyError):
    """Raised before any I/O; names the operation, the pool and the adapter kind, and the authored reason code."""

    code = "unsupported_operation"


class PolicyUnreadable(DifferentlyError):
    """A stored policy does not parse. Its scope is placed nowhere until an operator replaces it."""

    code = "policy_unreadable"


class BackendError(DifferentlyError):
    """A backend's doing.

    `settled` is True only when the failed call can no longer have an effect at the backend (it was refused, or
    never sent). When False the outcome is unknown: whoever holds the attempt observes it and never replays it.
    """

    code = "provider_unavailable"

    def __init__(self, message: str, *, settled: bool = False, **details: Detail) -> None:
        super().__init__(message, **details)
        self.settled = settled


class InsufficientCapacity(BackendError):
    code = "insufficient_capacity"

    def __init__(self, message: str, *, settled: bool = True, **details: Detail) -> None:
        super().__init__(message, settled=settled, **details)


class SandboxFailed(BackendError):
    code = "sandbox_failed"


class ProviderUnavailable(BackendError):
    code = "provider_unavailable"


class ExecUnconfirmed(BackendError):
    """A command was handed over and its completion was not seen.

    `details` may carry `stdout` and `stderr` seen so far, with `partial: true`. Nobody repeats the command.
    """

    code = "exec_unconfirmed"


class AdapterFault(BackendError):
    """An adapter raised something outside this tree: a bug of ours, with an unknown outcome."""

    code = "internal"


class Internal(DifferentlyError):
    code = "internal"
