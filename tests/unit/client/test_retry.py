"""What is sent again, and when: the server's advice, and never a command."""

from __future__ import annotations

import pytest

from differently._answer import failure
from differently._failure import ConnectionFailed, DifferentlyError, UnexpectedAnswer
from differently._request import Repeat, request
from differently._retry import ATTEMPTS_MAX, WAIT_SECONDS_MAX, wait_before_repeat
from differently.errors import Internal, NotFound, ProviderUnavailable, QueueFull, QuotaExceeded, RateLimited

LOST = ConnectionFailed("lost", sent=True)
UNSENT = ConnectionFailed("refused", sent=False)
REPEATS: list[Repeat] = ["always", "refused", "never"]


def wait(repeat: Repeat, failed: DifferentlyError, attempts: int = 1, chance: float = 0.0) -> float | None:
    return wait_before_repeat(request("POST", "/v1/x", repeat=repeat), attempts, failed, chance)


@pytest.mark.parametrize(
    ("failed", "repeated"),
    [
        (LOST, ["always"]),
        (UNSENT, ["always", "refused"]),
        (RateLimited("slower"), ["always", "refused"]),
        (ProviderUnavailable("down"), ["always"]),
        (Internal("ours"), ["always"]),
        (UnexpectedAnswer("a gateway's page", 502), ["always"]),
        (UnexpectedAnswer("a redirect", 302), []),
        (QuotaExceeded("full"), []),
        (QueueFull("full"), []),
        (NotFound("none"), []),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DifferentlyError) else None,
)
def test_only_what_may_be_sent_twice_is(failed: DifferentlyError, repeated: list[Repeat]) -> None:
    assert [repeat for repeat in REPEATS if wait(repeat, failed) is not None] == repeated


def test_a_command_is_never_sent_again() -> None:
    for failed in (LOST, UNSENT, RateLimited("x", retry_after_seconds=1), ProviderUnavailable("x"), Internal("x")):
        assert wait("never", failed) is None


def test_the_servers_advice_comes_first_and_is_spread() -> None:
    advised = RateLimited("slower", retry_after_seconds=2)
    assert wait("always", advised, chance=0.0) == 2
    assert wait("always", advised, chance=0.99) == pytest.approx(2.495)


def test_advice_to_come_back_much_later_is_the_callers() -> None:
    assert wait("always", ProviderUnavailable("down", retry_after_seconds=600)) is None


def test_waits_grow_up_to_a_bound_and_end() -> None:
    waits = [wait("always", LOST, attempts, 0.999) for attempts in range(1, ATTEMPTS_MAX + 1)]
    assert waits[-1] is None
    told = [seconds for seconds in waits if seconds is not None]
    assert told == sorted(told)
    assert max(told) <= WAIT_SECONDS_MAX


def test_a_fault_of_the_server_is_tried_twice_more_at_most() -> None:
    assert [wait("always", Internal("x"), attempts) is not None for attempts in (1, 2, 3)] == [True, True, False]


def test_retry_after_is_read_from_the_answer() -> None:
    body = b'{"error": {"code": "rate_limited", "message": "slower", "details": {}, "requestId": "r"}}'
    read = failure(429, {"retry-after": "7"}, body)
    assert isinstance(read, RateLimited)
    assert read.retry_after_seconds == 7
    odd = failure(429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, body)
    assert isinstance(odd, RateLimited)
    assert odd.retry_after_seconds is None
