"""One class for each code that the API answers with, as in docs/reference/errors.md."""

# Made from the API's description: python -m differently_api.reference docs/reference

from __future__ import annotations

from ._failure import ApiError


class InvalidRequest(ApiError):
    """The request can never succeed as written."""

    code = "invalid_request"
    status = 400


class PayloadTooLarge(InvalidRequest):
    """A body, file or output is over its limit."""

    code = "payload_too_large"
    status = 413


class MethodNotAllowed(InvalidRequest):
    """This path does not have that method."""

    code = "method_not_allowed"
    status = 405


class RateLimited(ApiError):
    """More requests at once than this installation takes; its gateway says so."""

    code = "rate_limited"
    status = 429


class Unauthenticated(ApiError):
    """The API key is missing or not valid."""

    code = "unauthenticated"
    status = 401


class Forbidden(ApiError):
    """The API key is valid but lacks the scope."""

    code = "forbidden"
    status = 403


class Suspended(Forbidden):
    """Nothing new may start in this organization or project."""

    code = "suspended"
    status = 403


class BudgetExceeded(Forbidden):
    """It would go beyond what may be spent this month."""

    code = "budget_exceeded"
    status = 403


class NotFound(ApiError):
    """It does not exist, or is not yours."""

    code = "not_found"
    status = 404


class InvalidState(ApiError):
    """Not possible in the sandbox's current state."""

    code = "invalid_state"
    status = 409


class IdempotencyConflict(InvalidState):
    """This Idempotency-Key names a live sandbox made with another body."""

    code = "idempotency_conflict"
    status = 409


class UnsupportedCapability(ApiError):
    """No permitted pool offers a requested capability."""

    code = "unsupported_capability"
    status = 422


class NoEligiblePool(ApiError):
    """No permitted pool could ever take this sandbox."""

    code = "no_eligible_pool"
    status = 422


class LimitExceeded(ApiError):
    """Larger than a limit for one sandbox."""

    code = "limit_exceeded"
    status = 422


class QuotaExceeded(ApiError):
    """The quota is used up and waiting was refused."""

    code = "quota_exceeded"
    status = 429


class QueueFull(QuotaExceeded):
    """Too many sandboxes are waiting already."""

    code = "queue_full"
    status = 429


class UnsupportedOperation(ApiError):
    """The pool cannot do this at all."""

    code = "unsupported_operation"
    status = 501


class ProviderUnavailable(ApiError):
    """The backend cannot be used now."""

    code = "provider_unavailable"
    status = 503


class ExecUnconfirmed(ApiError):
    """The command was started but its end was not seen; it is never repeated."""

    code = "exec_unconfirmed"
    status = 502


class Internal(ApiError):
    """A fault of ours."""

    code = "internal"
    status = 500


BY_CODE: dict[str, type[ApiError]] = {
    kind.code: kind
    for kind in (
        InvalidRequest,
        PayloadTooLarge,
        MethodNotAllowed,
        RateLimited,
        Unauthenticated,
        Forbidden,
        Suspended,
        BudgetExceeded,
        NotFound,
        InvalidState,
        IdempotencyConflict,
        UnsupportedCapability,
        NoEligiblePool,
        LimitExceeded,
        QuotaExceeded,
        QueueFull,
        UnsupportedOperation,
        ProviderUnavailable,
        ExecUnconfirmed,
        Internal,
    )
}
