"""Every class of the error tree has a row in the table, and every row a class."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differently_core import errors
from differently_core.errors import (
    REACTIONS,
    BackendError,
    DifferentlyError,
    InsufficientCapacity,
    ProviderUnavailable,
    SandboxFailed,
)

DIFFERENT_INSIDE = {
    "policy_unreadable": "provider_unavailable",
    "insufficient_capacity": "provider_unavailable",
    "sandbox_failed": "provider_unavailable",
}
"""Codes that a caller is not shown as they are."""


def classes(root: type[DifferentlyError] = DifferentlyError) -> Iterator[type[DifferentlyError]]:
    yield root
    for child in root.__subclasses__():
        yield from classes(child)


OURS = [found for found in classes() if found.__module__ == errors.__name__]


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_a_class_has_a_row(error: type[DifferentlyError]):
    assert error.code in REACTIONS


def test_a_row_has_a_class():
    assert {error.code for error in OURS} == set(REACTIONS)


@pytest.mark.parametrize("error", OURS, ids=lambda error: error.__name__)
def test_a_class_is_drawn_in_the_tree(error: type[DifferentlyError]):
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


@pytest.mark.parametrize("code", REACTIONS)
def test_a_code_is_shown_as_itself_or_as_a_known_one(code: str):
    assert REACTIONS[code].public == DIFFERENT_INSIDE.get(code, code)


@pytest.mark.parametrize(
    ("code", "status", "counts", "unhealthy"),
    [
        # section 5 of the adapter specification
        ("insufficient_capacity", 503, False, False),
        ("sandbox_failed", 503, True, False),
        ("provider_unavailable", 503, True, True),
        ("invalid_request", 400, False, False),
        ("unsupported_operation", 501, False, False),
        ("not_found", 404, False, False),
        ("invalid_state", 409, False, False),
        # ours: a bug of our own counts, and never poisons a pool
        ("internal", 500, True, False),
        ("quota_exceeded", 429, False, False),
        ("rate_limited", 429, False, False),
        ("forbidden", 403, False, False),
    ],
)
def test_a_reaction_is_as_specified(code: str, status: int, counts: bool, unhealthy: bool):
    found = REACTIONS[code]

    assert (found.http_status, found.counts_attempt, found.marks_pool_unhealthy) == (status, counts, unhealthy)


def test_only_an_unavailable_provider_marks_a_pool():
    assert [code for code, found in REACTIONS.items() if found.marks_pool_unhealthy] == ["provider_unavailable"]


@pytest.mark.parametrize(
    ("error", "settled"),
    [(BackendError, False), (ProviderUnavailable, False), (SandboxFailed, False), (InsufficientCapacity, True)],
)
def test_an_outcome_is_unknown_unless_told_otherwise(error: type[BackendError], settled: bool):
    """Being full is a refusal: nothing was made."""
    assert error("why").settled is settled


def test_details_travel_with_an_error():
    error = ProviderUnavailable("No answer.", settled=True, pool="pool")

    assert (error.message, error.details, error.settled) == ("No answer.", {"pool": "pool"}, True)
