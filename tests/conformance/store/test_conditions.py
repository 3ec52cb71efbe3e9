"""Each kind of condition, where it holds, where it does not, and on a row that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.model.quota import Counter
from differently_core.model.sandbox import Sandbox, Status
from differently_core.store.ports import (
    Absent,
    AnyOf,
    AtLeast,
    AtMost,
    Check,
    Condition,
    Delete,
    Equals,
    Missing,
    OneOf,
    Present,
    Put,
    Refused,
    Store,
    Update,
)
from tests.conformance.store.samples import Samples, committed, keep, refused

CASES: list[tuple[Condition, bool, bool]] = [
    # condition, on the row {free_sandboxes: 7, waiting: 2, no closed}, on no row
    (Absent(), False, True),
    (Present(), True, False),
    (Equals("free_sandboxes", 7), True, False),
    (Equals("free_sandboxes", 8), False, False),
    (Equals("free_sandboxes", -7), False, False),
    (Equals("closed", "drained"), False, False),
    (OneOf("free_sandboxes", (1, 7)), True, False),
    (OneOf("free_sandboxes", (7,)), True, False),
    (OneOf("free_sandboxes", (1, 2)), False, False),
    (OneOf("closed", ("a", "b")), False, False),
    (AtLeast("free_sandboxes", 7), True, False),
    (AtLeast("free_sandboxes", 6), True, False),
    (AtLeast("free_sandboxes", 8), False, False),
    (AtLeast("free_sandboxes", -1), True, False),
    (AtLeast("waiting", 10), False, False),
    (AtMost("free_sandboxes", 7), True, False),
    (AtMost("free_sandboxes", 8), True, False),
    (AtMost("free_sandboxes", 6), False, False),
    (AtMost("free_sandboxes", -1), False, False),
    (AtMost("free_sandboxes", 10**21), True, False),
    (AtMost("waiting", 10), True, False),
    (Missing("closed"), True, False),
    (Missing("waiting"), False, False),
    (AnyOf((Absent(), Equals("waiting", 2))), True, True),
    (AnyOf((Absent(), Equals("waiting", 3))), False, True),
    (AnyOf((Missing("closed"), Absent())), True, True),
    (AnyOf((Equals("waiting", 3), Equals("waiting", 4))), False, False),
    (AnyOf((Equals("waiting", 3), AnyOf((AtLeast("waiting", 2), Absent())))), True, True),
    (AnyOf((Present(),)), True, False),
]
IDS = [str(condition) for condition, _, _ in CASES]


@pytest.mark.parametrize(("condition", "on_row", "on_none"), CASES, ids=IDS)
def test_a_check_says_whether_it_holds(
    store: Store, some: Samples, condition: Condition, on_row: bool, on_none: bool
) -> None:
    keep(store, some.counter(waiting=2))

    for name, holds in (("one", on_row), ("none", on_none)):
        outcome = store.transact([Check(Counter, some.counter_key(name), "check", (condition,))])
        assert isinstance(outcome, Refused) is not holds


@pytest.mark.parametrize(("condition", "on_row", "on_none"), CASES, ids=IDS)
def test_it_holds_alike_for_puts_and_deletes_and_for_updates_of_rows_that_are_there(
    store: Store, some: Samples, condition: Condition, on_row: bool, on_none: bool
) -> None:
    for kind in (Put, Delete):
        here, none = some.counter(f"here{kind.__name__}", waiting=2), some.counter(f"none{kind.__name__}", waiting=5)
        keep(store, here)
        for counter, holds in ((here, on_row), (none, on_none)):
            if kind is Put:
                outcome = store.transact([Put(counter, (condition,), "put")])
            else:
                outcome = store.transact([Delete(Counter, counter.key(), "delete", (condition,))])
            assert isinstance(outcome, Refused) is not holds

    here = some.counter("here", waiting=2)
    keep(store, here)
    changed = store.transact([Update(Counter, here.key(), "update", add={"free_disk_gib": 1}, when=(condition,))])
    made = store.transact([Update(Counter, some.counter_key("gone"), "update", set={"waiting": 1}, when=(condition,))])
    assert isinstance(changed, Refused) is not on_row
    assert refused(made).failed == {"update": None}
    assert store.get(Counter, some.counter_key("gone")) is None


def test_all_of_several_conditions_must_hold(store: Store, some: Samples) -> None:
    keep(store, some.counter())
    room, closed = AtLeast("free_sandboxes", 1), Equals("closed", "drained")

    def take(*when: Condition) -> Any:
        return store.transact([Update(Counter, some.counter_key(), "take", add={"free_sandboxes": -1}, when=when)])

    committed(take(room, Missing("waiting"), Missing("closed")))
    refused(take(room, closed))
    refused(take(closed, room))
    assert store.get(Counter, some.counter_key()) == some.counter(free=6, limit_sandboxes=7)


def test_texts_and_enumerations_compare_by_their_value(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(status=Status.PAUSED))

    for condition in (Equals("status", "paused"), Equals("status", Status.PAUSED), OneOf("status", (Status.PAUSED,))):
        committed(store.transact([Check(Sandbox, some.key(), "check", (condition,))]))


def test_an_index_attribute_can_be_a_condition(store: Store, some: Samples) -> None:
    keep(store, some.sandbox())
    live = Equals("list_pk", f"LIVE#{some.project}")

    committed(store.transact([Check(Sandbox, some.key(), "check", (live, Missing("due_pk"), Missing("purge_at")))]))


def test_a_hundred_options_are_allowed(store: Store, some: Samples) -> None:
    keep(store, some.counter())
    options = OneOf("free_sandboxes", tuple(range(100)))

    committed(store.transact([Check(Counter, some.counter_key(), "check", (options,))]))
