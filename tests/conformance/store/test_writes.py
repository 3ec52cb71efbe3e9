"""What puts, updates and deletes leave behind."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.model.event import Event
from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.quota import Counter
from differently_core.model.record import Key, Record
from differently_core.model.sandbox import Reason, Sandbox, SandboxEnv, Status, list_index
from differently_core.store.ports import (
    Absent,
    Action,
    AtLeast,
    Check,
    Delete,
    Equals,
    Missing,
    OneOf,
    Present,
    Put,
    Store,
    Update,
)
from tests.conformance.store.samples import NOW, Samples, committed, keep, refused


def test_what_was_put_is_got(store: Store, some: Samples) -> None:
    keep(store, some.sandbox())

    assert store.get(Sandbox, some.key()) == some.sandbox()
    assert store.get(Sandbox, some.key(1)) is None


def test_a_put_replaces_the_whole_row(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(due_at=NOW, labels={"team": "blue"}))
    bare = some.sandbox(labels={}, reason=None, pool=None, reservation=None, version=2)

    committed(store.transact([Put(bare, (Equals("version", 1),), "sandbox")]))

    assert store.get(Sandbox, some.key()) == bare


def test_a_put_without_a_condition_always_succeeds(store: Store, some: Samples) -> None:
    for digest in ("d1", "d2"):
        committed(store.transact([Put(some.idempotency(digest=digest), (), "row")]))

    assert store.get(IdempotencyRow, some.idempotency().key()) == some.idempotency(digest="d2")


def test_a_put_that_must_be_the_first_gets_the_first_row_back(store: Store, some: Samples) -> None:
    first, second = some.idempotency(digest="d1"), some.idempotency(digest="d2")
    keep(store, first)

    outcome = refused(store.transact([Put(second, (Absent(),), "idempotency")]))

    assert outcome.failed == {"idempotency": first}
    assert store.get(IdempotencyRow, first.key()) == first


def test_a_decision_on_an_older_version_is_refused_and_sees_the_newer_row(store: Store, some: Samples) -> None:
    keep(store, some.sandbox())
    deleted = some.sandbox(status=Status.TERMINATING, version=2)
    committed(store.transact([Put(deleted, (Equals("version", 1),), "delete")]))

    stale = some.sandbox(status=Status.PAUSED, version=2)
    outcome = refused(store.transact([Put(stale, (Equals("version", 1),), "pause")]))

    assert outcome.failed == {"pause": deleted}
    assert store.get(Sandbox, some.key()) == deleted


def test_an_update_sets_adds_and_removes_in_one_write(store: Store, some: Samples) -> None:
    keep(store, some.counter(closed="drained", waiting=3))

    committed(
        store.transact(
            [
                Update(
                    Counter, some.counter_key(), "change", set={"waiting": 9}, remove=("closed",),
                    add={"free_sandboxes": -2, "free_memory_mib": 512},
                )
            ]
        )
    )  # fmt: skip

    before = some.counter()
    assert store.get(Counter, some.counter_key()) == before.with_(
        waiting=9, free_sandboxes=5, free_memory_mib=before.free_memory_mib + 512
    )


def test_adding_to_a_field_that_is_not_there_starts_at_zero(store: Store, some: Samples) -> None:
    keep(store, some.counter())

    committed(store.transact([Update(Counter, some.counter_key(), "wait", add={"waiting": 4})]))

    assert store.get(Counter, some.counter_key()) == some.counter(waiting=4)


def test_removing_a_field_that_is_not_there_is_nothing(store: Store, some: Samples) -> None:
    keep(store, some.counter())

    committed(store.transact([Update(Counter, some.counter_key(), "open", remove=("closed", "waiting"))]))

    assert store.get(Counter, some.counter_key()) == some.counter()


def test_counters_go_below_zero_and_stay_exact_when_large(store: Store, some: Samples) -> None:
    keep(store, some.counter(free=1))

    add = {"free_sandboxes": -5, "free_disk_gib": 10**15 + 1}
    committed(store.transact([Update(Counter, some.counter_key(), "shrink", add=add)]))

    found = store.get(Counter, some.counter_key())
    assert found is not None
    assert (found.free_sandboxes, found.free_disk_gib) == (-4, 10**12 + 10**15 + 1)


@pytest.mark.parametrize("others", [0, 1])
def test_an_update_never_makes_a_row(store: Store, some: Samples, others: int) -> None:
    keep(store, some.counter("other"))
    update = Update(Counter, some.counter_key(), "take", add={"free_sandboxes": -1})
    more = [Check(Counter, some.counter_key("other"), "other", (Present(),))][:others]

    assert refused(store.transact([update, *more])).failed == {"take": None}
    assert store.get(Counter, some.counter_key()) is None


def test_an_update_leaves_the_rest_of_the_row_alone(store: Store, some: Samples) -> None:
    keep(store, some.sandbox())
    reason = Reason(code="deleted", source="caller", at=NOW)

    committed(
        store.transact(
            [
                Update(
                    Sandbox, some.key(), "delete", add={"version": 1, "generation": 1},
                    set={
                        "status": Status.TERMINATING, "reason": reason.model_dump_json(),
                        **list_index(some.project, some.id(), Status.TERMINATING),
                    },
                    when=(OneOf("status", (Status.RUNNING, Status.QUEUED)),),
                )
            ]
        )
    )  # fmt: skip

    changes: dict[str, Any] = {"status": Status.TERMINATING, "reason": reason, "version": 2, "generation": 2}
    assert store.get(Sandbox, some.key()) == some.sandbox(**changes)


def test_a_delete_without_a_condition_succeeds_also_where_nothing_is(store: Store, some: Samples) -> None:
    keep(store, some.env())

    for _ in range(2):
        committed(store.transact([Delete(SandboxEnv, some.env().key(), "env")]))
        assert store.get(SandboxEnv, some.env().key()) is None


def test_a_conditional_delete_that_fails_returns_the_row_and_keeps_it(store: Store, some: Samples) -> None:
    keep(store, some.idempotency())
    key = some.idempotency().key()

    outcome = refused(store.transact([Delete(IdempotencyRow, key, "key", (Equals("digest", "d2"),))]))
    assert outcome.failed == {"key": some.idempotency()}
    assert refused(store.transact([Delete(IdempotencyRow, some.idempotency(5).key(), "key", (Present(),))])).failed == {
        "key": None
    }
    committed(store.transact([Delete(IdempotencyRow, key, "key", (Equals("digest", "d1"),))]))
    assert store.get(IdempotencyRow, key) is None


def test_a_reservation_is_given_back_exactly_once(store: Store, some: Samples) -> None:
    """The same write clears what it gives back, so the second worker finds nothing to give."""
    held = some.sandbox()
    keep(store, some.counter(free=3), held)
    ended = held.with_(reservation=None, status=Status.TERMINATED, version=2)
    give_back: list[Action] = [
        Put(ended, (Equals("version", held.version),), "sandbox"),
        Update(Counter, some.counter_key(), "org", add={"free_sandboxes": 1}),
    ]

    committed(store.transact(give_back))
    assert refused(store.transact(give_back)).failed == {"sandbox": ended}

    found = store.get(Counter, some.counter_key())
    assert found is not None
    assert found.free_sandboxes == 4


def test_a_queue_sign_is_taken_down_exactly_once(store: Store, some: Samples) -> None:
    keep(store, some.counter(waiting=2))
    take_down = Update(Counter, some.counter_key(), "org", remove=("waiting",), when=(AtLeast("waiting", 1),))

    committed(store.transact([take_down]))
    assert refused(store.transact([take_down])).failed == {"org": some.counter()}
    committed(store.transact([Check(Counter, some.counter_key(), "org", (Missing("waiting"),))]))


def test_what_a_reader_changes_in_its_copy_stays_there(store: Store, some: Samples) -> None:
    mine = some.sandbox()
    keep(store, mine, some.env())
    mine.labels["team"] = "red"
    for _ in range(2):
        found, env = store.get(Sandbox, some.key()), store.get(SandboxEnv, some.env().key())
        assert found is not None
        assert env is not None
        assert (found, env) == (some.sandbox(), some.env())
        found.labels["team"] = "red"
        env.env.clear()
    (row,) = store.query_list(f"LIVE#{some.project}").rows
    assert row == some.sandbox()


def test_a_batch_comes_back_in_the_order_asked(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(0), some.sandbox(1), some.counter(), some.event())
    asked: list[tuple[type[Record], Key]] = [
        (Sandbox, some.key(1)), (Sandbox, some.key(9)), (Counter, some.counter_key()), (Event, some.event().key()),
        (Sandbox, some.key(0)), (Sandbox, some.key(1)),
    ]  # fmt: skip

    assert store.batch_get(asked) == [
        some.sandbox(1), None, some.counter(), some.event(), some.sandbox(0), some.sandbox(1),
    ]  # fmt: skip
    assert store.batch_get([]) == []


def test_a_batch_takes_a_hundred_rows(store: Store, some: Samples) -> None:
    keep(store, some.env(99))
    asked: list[tuple[type[Record], Key]] = [(SandboxEnv, some.env(n).key()) for n in range(100)]

    assert store.batch_get(asked) == [*[None] * 99, some.env(99)]
