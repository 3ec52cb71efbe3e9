"""Every status and every exception of httpx means something, and says whether the call may have had an effect."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import httpx
import pytest

from differently_adapters.http import STATUSES, Status, error_inside, retry_after
from differently_adapters.http.failures import (
    EXCEPTIONS,
    EXCERPT_CHARACTERS_MAX,
    RETRY_AFTER_SECONDS_MAX,
    excerpt,
    refused,
    status_row,
    told_in,
    trouble,
    unanswered,
)
from differently_core.errors import (
    AdapterFault,
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
HTTPX_EXCEPTIONS = [
    value
    for _, value in sorted(vars(httpx).items())
    if inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("httpx")
]
NOTHING_SENT = {
    "ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol", "InvalidURL",
}  # fmt: skip
OURS = {
    "LocalProtocolError", "InvalidURL", "CookieConflict", "StreamError", "StreamConsumed", "StreamClosed",
    "ResponseNotRead", "RequestNotRead",
}  # fmt: skip


def test_the_table_of_exceptions_is_exactly_those_of_httpx() -> None:
    assert len(HTTPX_EXCEPTIONS) >= 25
    assert set(EXCEPTIONS) == {exception.__name__ for exception in HTTPX_EXCEPTIONS}


@pytest.mark.parametrize("exception", HTTPX_EXCEPTIONS, ids=lambda exception: exception.__name__)
@pytest.mark.parametrize("mutates", [True, False])
def test_an_exception_says_what_may_have_happened(exception: type[Exception], mutates: bool) -> None:
    name = exception.__name__
    error = unanswered(trouble(exception.__new__(exception)), mutates=mutates)
    assert type(error) is (AdapterFault if name in OURS else ProviderUnavailable)
    assert error.settled is (not mutates or name in NOTHING_SENT)
    assert name not in error.message


def test_an_exception_that_nobody_knows_is_a_fault_of_ours() -> None:
    assert isinstance(unanswered(trouble(KeyError("x")), mutates=True), AdapterFault)


def test_an_unknown_outcome_is_called_what_the_operation_calls_it() -> None:
    lost = unanswered(trouble(httpx.ReadTimeout("")), mutates=True, lost=ExecUnconfirmed)
    assert type(lost) is ExecUnconfirmed
    assert not lost.settled
    assert type(unanswered(trouble(httpx.ConnectError("")), mutates=True, lost=ExecUnconfirmed)) is ProviderUnavailable


SPECIAL: dict[int, tuple[type[DifferentlyError], bool | None]] = {
    400: (InvalidRequest, None),
    401: (ProviderUnavailable, True),
    403: (ProviderUnavailable, True),
    404: (NotFound, None),
    408: (ProviderUnavailable, False),
    409: (InvalidState, None),
    410: (NotFound, None),
    422: (InvalidRequest, None),
    429: (InsufficientCapacity, True),
    303: (ProviderUnavailable, False),
}


def expected(status: int) -> tuple[type[DifferentlyError], bool | None]:
    """The class, and whether a change is known not to have been made."""
    return SPECIAL.get(status, (ProviderUnavailable, 300 <= status < 500))


@pytest.mark.parametrize("status", [100, 101, *range(300, 600), 600, 999])
def test_every_status_has_a_row(status: int) -> None:
    wanted, settled = expected(status)
    for mutates in (True, False):
        error = refused(status_row(status, STATUSES), mutates=mutates, status=status)
        assert type(error) is wanted
        assert error.details == {"status": status}
        if isinstance(error, BackendError):
            assert error.settled is (settled or not mutates)


def test_rejected_credentials_are_named_as_such() -> None:
    assert "credentials were rejected" in refused(status_row(401, STATUSES), mutates=False).message


def test_a_provider_adds_rows() -> None:
    rows = {**STATUSES, 402: Status(InsufficientCapacity, "The account's plan is used up.", settled=True)}
    assert type(refused(status_row(402, rows), mutates=True)) is InsufficientCapacity
    assert type(refused(status_row(409, rows), mutates=True)) is InvalidState


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("999999999", RETRY_AFTER_SECONDS_MAX),
        ("Thu, 01 Jan 2026 12:01:30 GMT", 90.0),
        ("Thursday, 01-Jan-26 12:01:30 GMT", 90.0),
        ("Thu, 01 Jan 2026 14:01:30 +0200", 90.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Fri, 01 Jan 2199 00:00:00 GMT", RETRY_AFTER_SECONDS_MAX),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("1e9", None),
        ("99999999999999999999", None),
        ("Thu, 99 Jan 2026 12:01:30 GMT", None),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": text}, NOW) == seconds


def test_retry_after_may_have_a_suffix() -> None:
    headers = {"Retry-After-Sandbox-Create": "3", "x-other": "1"}
    assert retry_after(headers, NOW) == 3.0
    assert retry_after({**headers, "Retry-After": "2"}, NOW) == 2.0
    assert retry_after({}, NOW) is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"code": "x", "message": "why"}}, "why"),
        ({"error": "why"}, "why"),
        ({"message": "why"}, "why"),
        ({"detail": "why"}, "why"),
        ({"title": "why"}, "why"),
        ("why", "why"),
        ({"error": {"error": {"message": "why"}}}, "why"),
        ({"message": 5}, None),
        (["why"], None),
        (None, None),
    ],
)
def test_what_an_error_body_tells_is_found(body: object, told: str | None) -> None:
    assert told_in(body) == told  # type: ignore[arg-type]


def test_an_error_inside_a_success_is_seen() -> None:
    assert error_inside({"error": {"message": "why"}}) == "why"
    assert error_inside({"error": {"code": 7}}) == "error"
    assert error_inside({"error": None, "id": "x"}) is None
    assert error_inside([{"error": "x"}]) is None


def test_an_excerpt_is_one_short_line() -> None:
    assert excerpt("a\r\n\x1b[31m b\x00c\u2028d") == "a [31m b c d"
    assert len(excerpt("x" * 10_000)) == EXCERPT_CHARACTERS_MAX + 1
