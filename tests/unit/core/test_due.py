"""The due index: what is due sorts by time, and every shard is swept."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from differently_core.model.due import DUE_SHARDS, due_index, due_shard, stamp
from tests.support.builders import NOON, an_id

MOMENTS = st.timedeltas(timedelta(days=-9000), timedelta(days=60_000)).map(lambda since: NOON + since)


@given(MOMENTS, MOMENTS)
def test_stamps_sort_as_their_times(one: datetime, other: datetime):
    assert (stamp(one) < stamp(other)) == (one < other)


def test_a_stamp_is_utc_whatever_the_zone():
    there = NOON.astimezone(timezone(timedelta(hours=9)))

    assert stamp(there) == stamp(NOON) == "2026-01-01T12:00:00.000000Z"


def test_what_is_due_at_the_same_moment_is_kept_apart():
    one, other = due_index(an_id(1), NOON), due_index(an_id(2), NOON)

    assert one["due_sk"] != other["due_sk"]
    assert str(one["due_sk"]).startswith(stamp(NOON))


def test_a_row_that_is_due_is_found_by_a_sweep_up_to_that_moment():
    """The sweep asks for everything up to a stamp; the id behind it must not push the entry past that."""
    assert str(due_index(an_id(), NOON)["due_sk"]) < stamp(NOON + timedelta(microseconds=1))


def test_ids_spread_over_every_shard():
    shards = {due_shard(an_id(number)) for number in range(100)}

    assert shards == {f"DUE#{shard}" for shard in range(DUE_SHARDS)}
