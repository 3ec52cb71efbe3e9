"""The state machine as a table, and what a sandbox record says of itself."""

from __future__ import annotations

from datetime import timedelta

import pytest

from differently_core.model.sandbox import (
    ACTIVE,
    ENDED,
    GONE,
    LIVE,
    TRANSITIONS,
    Claim,
    SandboxEnv,
    Status,
    allows,
    list_index,
)
from tests.support.builders import NOON, PROJECT, a_sandbox, an_id


def test_every_state_has_a_row():
    assert set(TRANSITIONS) == set(Status)


def test_a_delete_is_possible_in_every_live_state():
    assert all(allows(status, Status.TERMINATING) for status in LIVE)


def test_what_has_ended_stays_so():
    assert all(not TRANSITIONS[status] for status in ENDED)
    assert TRANSITIONS[Status.TERMINATING] == {Status.TERMINATED}


def test_no_state_follows_itself():
    assert all(status not in targets for status, targets in TRANSITIONS.items())


def test_every_state_can_be_reached_from_a_create():
    reached = {Status.QUEUED, Status.PROVISIONING}
    for _ in Status:
        reached |= {after for before in reached for after in TRANSITIONS[before]}

    assert reached == set(Status)


def test_every_state_comes_to_an_end():
    """From anywhere there is a way to terminated: nothing can be stuck by the table itself."""
    for status in Status:
        reached = {status}
        for _ in Status:
            reached |= {after for before in reached for after in TRANSITIONS[before]}
        assert reached & ENDED


def test_live_and_gone_part_the_states():
    assert not LIVE & GONE
    assert set(LIVE | GONE) == set(Status)
    assert not ENDED - GONE
    assert [status for status in GONE if status not in ENDED] == [Status.TERMINATING]
    assert ACTIVE < LIVE
    assert not ACTIVE & {Status.QUEUED, Status.PAUSED, Status.STOPPED}, "they hold no concurrency"


@pytest.mark.parametrize(
    ("until", "generation", "claimed", "why"),
    [
        (10, 3, True, "a worker of this generation is at work"),
        (0, 3, False, "its time is over at that very moment"),
        (-1, 3, False, "it is long over"),
        (10, 2, False, "a newer intent voids it"),
    ],
)
def test_a_claim_holds_for_its_time_and_generation(until: int, generation: int, claimed: bool, why: str):
    claim = Claim(owner="worker", until=NOON + timedelta(seconds=until), generation=generation)

    assert a_sandbox(generation=3, claim=claim).claimed(NOON) is claimed, why


def test_nobody_claims_a_fresh_sandbox():
    assert not a_sandbox().claimed(NOON)


@pytest.mark.parametrize("status", Status)
def test_lists_never_page_over_the_dead(status: Status):
    expected = "GONE" if status in GONE else "LIVE"

    assert list_index(PROJECT, an_id(), status) == {"list_pk": f"{expected}#{PROJECT}", "list_sk": an_id()}


def test_what_is_not_due_is_in_no_due_index():
    assert "due_pk" not in a_sandbox().index()
    assert "due_pk" in a_sandbox(due_at=NOON).index()


def test_a_record_may_be_purged_thirty_days_after_its_end():
    assert "purge_at" not in a_sandbox().index()
    assert a_sandbox(ended_at=NOON).index()["purge_at"] == int((NOON + timedelta(days=30)).timestamp())


def test_an_environment_is_not_shown():
    env = SandboxEnv(id=an_id(), env={"TOKEN": "s3cret"})

    assert "s3cret" not in f"{env!r} {env}"
