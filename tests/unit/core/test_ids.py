"""Ids sort by time, tell their kind, and a keyed one can be found from its key alone."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_core.model.idempotency import IdempotencyRow
from differently_core.runtime.clock import VirtualClock
from differently_core.runtime.ids import (
    RANDOM_BYTES,
    SandboxId,
    SeededIds,
    SystemIds,
    is_id,
    keyed_bytes,
    random_part,
    ulid,
)
from tests.support.builders import NOON, an_id

MOMENTS = st.timedeltas(timedelta(days=-20_000), timedelta(days=60_000)).map(lambda since: NOON + since)
BITS = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


@given(MOMENTS, BITS)
def test_a_ulid_has_26_characters_and_keeps_its_random_bits(at: datetime, bits: bytes):
    made = ulid(at, bits)

    assert is_id("sbx", f"sbx_{made}")
    assert random_part(f"sbx_{made}") == random_part(f"sbx_{ulid(at + timedelta(days=1), bits)}")


@given(MOMENTS, MOMENTS, BITS, BITS)
def test_ulids_sort_by_their_millisecond(one: datetime, other: datetime, bits: bytes, others: bytes):
    if one + timedelta(milliseconds=1) <= other:
        assert ulid(one, bits) < ulid(other, others)


@pytest.mark.parametrize("bits", [b"", b"123456789", b"12345678901"])
def test_a_ulid_needs_exactly_ten_random_bytes(bits: bytes):
    with pytest.raises(ValueError, match="10 random bytes"):
        ulid(NOON, bits)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sbx", "no ULID"),
        ("sbx_", "an empty one"),
        (an_id()[4:], "no prefix"),
        ("key" + an_id()[3:], "another kind"),
        (an_id().lower(), "lower case"),
        (an_id()[:-1], "one character short"),
        (an_id() + "0", "one too many"),
        ("sbx_8" + an_id()[5:], "more than 128 bits"),
        (an_id().replace("0", "O", 1), "a letter that Crockford leaves out"),
        (an_id() + "\n", "a line end"),
        ("x" + an_id(), "something before it"),
    ],
)
def test_what_is_no_id_is_seen(text: str, why: str):
    assert not is_id("sbx", text), why


def test_an_id_is_seen():
    assert is_id("sbx", an_id())


def test_keyed_bytes_depend_on_the_secret_and_on_each_part():
    seen = {
        keyed_bytes(b"secret", "project", "key"),
        keyed_bytes(b"another", "project", "key"),
        keyed_bytes(b"secret", "project2", "key"),
        keyed_bytes(b"secret", "project", "key2"),
        keyed_bytes(b"secret", "projectk", "ey"),  # no part runs into the next
    }

    assert len(seen) == 5
    assert all(len(bits) == RANDOM_BYTES for bits in seen)


def test_the_row_of_a_key_is_found_from_any_sandbox_made_with_it():
    """The time part differs, the row does not: a delete needs no read to free the key."""
    bits = keyed_bytes(b"secret", "project", "key")
    ids = [SandboxId(f"sbx_{ulid(NOON + timedelta(hours=hour), bits)}") for hour in range(3)]

    assert len({IdempotencyRow.key_of(identity) for identity in ids}) == 1


def test_seeded_ids_repeat_and_differ():
    clock = VirtualClock()
    one, again, other = SeededIds(clock, 1), SeededIds(clock, 1), SeededIds(clock, 2)
    made = [one.new("sbx") for _ in range(5)]

    assert [again.new("sbx") for _ in range(5)] == made
    assert len({*made, other.new("sbx")}) == 6
    assert one.secret() != one.secret()


def test_system_ids_differ():
    ids = SystemIds(VirtualClock())

    assert len({ids.new("sbx") for _ in range(100)}) == 100
    assert len({ids.secret() for _ in range(100)}) == 100
