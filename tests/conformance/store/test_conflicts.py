"""Transactions that meet on a row. The emulator never answers with a conflict, so DynamoDB's is injected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from differently_core.model.quota import Counter
from differently_core.model.sandbox import Sandbox
from differently_core.store.dynamo import DynamoStore
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import (
    Absent,
    Action,
    AtLeast,
    Check,
    Committed,
    Delete,
    Equals,
    Outcome,
    Present,
    Put,
    Refused,
    StoreThrottled,
    StoreUnavailable,
    Update,
)
from tests.conformance.store.faults import Faults, cancels, fails
from tests.conformance.store.samples import Samples, committed, keep, refused

WAIT_SECONDS_MAX = 20


def take(some: Samples, name: str, free: int = 1) -> Update:
    return Update(
        Counter, some.counter_key(name), name, add={"free_sandboxes": -1}, when=(AtLeast("free_sandboxes", free),)
    )


class Interrupted:
    """A memory store in which one thing happens in the middle of the first transaction."""

    def __init__(self) -> None:
        self.then: Callable[[], Outcome] | None = None
        self.outcome: Outcome | None = None
        self.store = MemoryStore(during=self._during)

    def _during(self, actions: Sequence[Action]) -> None:
        if self.then is not None:
            then, self.then = self.then, None
            self.outcome = then()


@pytest.fixture
def interrupted() -> Interrupted:
    return Interrupted()


def test_the_later_of_two_that_overlap_is_cancelled_and_the_first_commits(
    interrupted: Interrupted, some: Samples
) -> None:
    store = interrupted.store
    keep(store, some.counter("a"), some.counter("b"), some.counter("c"))
    interrupted.then = lambda: store.transact([take(some, "b"), take(some, "c")])

    committed(store.transact([take(some, "a"), take(some, "b")]))

    assert interrupted.outcome == Refused(conflicts=frozenset({"b"}))
    assert [store.get(Counter, some.counter_key(name)) for name in "abc"] == [
        some.counter(name, free=free, limit_sandboxes=7) for name, free in (("a", 6), ("b", 6), ("c", 7))
    ]


def test_a_conflict_is_told_apart_from_a_failed_condition_beside_it(interrupted: Interrupted, some: Samples) -> None:
    store = interrupted.store
    keep(store, some.counter("a"), some.counter("b"), some.counter("c", free=0))
    interrupted.then = lambda: store.transact([take(some, "b"), take(some, "c")])

    committed(store.transact([take(some, "a"), take(some, "b")]))

    assert interrupted.outcome == Refused({"c": some.counter("c", free=0)}, frozenset({"b"}))


@pytest.mark.parametrize("kind", ["check", "delete", "put", "update"])
@pytest.mark.parametrize("others", [0, 1])
def test_every_kind_of_action_meets_a_conflict_also_alone(
    interrupted: Interrupted, some: Samples, kind: str, others: int
) -> None:
    store = interrupted.store
    keep(store, some.counter("a"), some.counter("b"))
    actions: dict[str, Action] = {
        "check": Check(Counter, some.counter_key("a"), "it", (Present(),)),
        "delete": Delete(Counter, some.counter_key("a"), "it"),
        "put": Put(some.counter("a", free=1), (), "it"),
        "update": Update(Counter, some.counter_key("a"), "it", set={"waiting": 1}),
    }
    more = [Put(some.sandbox(), (Absent(),), "sandbox")][:others]
    interrupted.then = lambda: store.transact([actions[kind], *more])

    committed(store.transact([take(some, "a"), take(some, "b")]))

    assert interrupted.outcome == Refused(conflicts=frozenset({"it"}))
    assert store.get(Counter, some.counter_key("a")) == some.counter("a", free=6, limit_sandboxes=7)
    assert store.get(Sandbox, some.key()) is None


def test_a_row_that_is_only_checked_conflicts_with_a_writer(interrupted: Interrupted, some: Samples) -> None:
    store = interrupted.store
    keep(store, some.counter("a"), some.counter("b"))
    interrupted.then = lambda: store.transact([take(some, "a")])

    committed(store.transact([Check(Counter, some.counter_key("a"), "a", (Present(),)), take(some, "b")]))

    assert interrupted.outcome == Refused(conflicts=frozenset({"a"}))


def test_a_row_that_is_being_made_conflicts_too(interrupted: Interrupted, some: Samples) -> None:
    store = interrupted.store
    first = [Put(some.idempotency(), (Absent(),), "key"), Put(some.sandbox(0), (Absent(),), "sandbox")]
    second = [Put(some.idempotency(), (Absent(),), "key"), Put(some.sandbox(1), (Absent(),), "sandbox")]
    interrupted.then = lambda: store.transact(second)

    committed(store.transact(first))

    assert interrupted.outcome == Refused(conflicts=frozenset({"key"}))
    assert refused(store.transact(second)).failed == {"key": some.idempotency()}


def test_what_does_not_overlap_does_not_conflict(interrupted: Interrupted, some: Samples) -> None:
    store = interrupted.store
    keep(store, *(some.counter(name) for name in "abcd"))
    interrupted.then = lambda: store.transact([take(some, "c"), take(some, "d")])

    committed(store.transact([take(some, "a"), take(some, "b")]))

    assert interrupted.outcome == Committed()


def test_a_reader_in_between_sees_the_rows_as_they_were(interrupted: Interrupted, some: Samples) -> None:
    store = interrupted.store
    keep(store, some.counter("a"), some.counter("b"))
    seen: list[object] = []

    def look() -> Outcome:
        seen.append(store.get(Counter, some.counter_key("a")))
        return Committed()

    interrupted.then = look
    committed(store.transact([take(some, "a"), take(some, "b")]))

    assert seen == [some.counter("a")]


def test_a_transaction_that_dies_in_between_writes_nothing_and_frees_its_rows(
    interrupted: Interrupted, some: Samples
) -> None:
    store = interrupted.store
    keep(store, some.counter("a"), some.counter("b"))

    def die() -> Outcome:
        raise KeyboardInterrupt

    interrupted.then = die
    with pytest.raises(KeyboardInterrupt):
        store.transact([take(some, "a"), take(some, "b")])

    assert store.get(Counter, some.counter_key("a")) == some.counter("a")
    committed(store.transact([take(some, "a"), take(some, "b")]))


def test_another_thread_meets_the_conflict_as_well(some: Samples) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def during(actions: Sequence[Action]) -> None:
        if {action.name for action in actions} == {"a", "b"}:
            reached.set()
            assert go_on.wait(WAIT_SECONDS_MAX)

    store = MemoryStore(during=during)
    keep(store, *(some.counter(name) for name in "abc"))
    outcomes: list[Outcome] = []
    first = threading.Thread(target=lambda: outcomes.append(store.transact([take(some, "a"), take(some, "b")])))
    first.start()
    assert reached.wait(WAIT_SECONDS_MAX)

    assert store.transact([take(some, "b"), take(some, "c")]) == Refused(conflicts=frozenset({"b"}))
    assert store.transact([take(some, "a")]) == Refused(conflicts=frozenset({"a"}))
    committed(store.transact([take(some, "c")]))
    go_on.set()
    first.join(WAIT_SECONDS_MAX)

    assert outcomes == [Committed()]


# DynamoDB's answers


def four(some: Samples) -> list[Action]:
    """In an order that is not the one PynamoDB's own transaction would send."""
    return [
        take(some, "update"), Put(some.sandbox(0), (Absent(),), "put"),
        Delete(Sandbox, some.key(1), "delete", (Equals("version", 1),)),
        Check(Counter, some.counter_key("check"), "check", (Present(),)),
    ]  # fmt: skip


@pytest.mark.parametrize("k", range(4))
def test_a_conflict_on_the_kth_action_is_named(dynamo: DynamoStore, faults: Faults, some: Samples, k: int) -> None:
    actions = four(some)
    faults.next("TransactWriteItems", cancels(*("TransactionConflict" if n == k else "None" for n in range(4))))

    assert dynamo.transact(actions) == Refused(conflicts=frozenset({actions[k].name}))
    assert dynamo.get(Sandbox, some.key(0)) is None
    assert faults.count("TransactWriteItems") == 1, "whether to try again is the operation's decision"


def test_conflicts_and_failed_conditions_come_back_together(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    faults.next(
        "TransactWriteItems", cancels("ConditionalCheckFailed", "None", "TransactionConflict", "TransactionConflict")
    )

    assert dynamo.transact(four(some)) == Refused({"update": None}, frozenset({"delete", "check"}))


def test_a_conflict_beside_a_throttle_is_still_a_refusal(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    faults.next("TransactWriteItems", cancels("TransactionConflict", "ThrottlingError", "None", "None"))

    assert dynamo.transact(four(some)) == Refused(conflicts=frozenset({"update"}))


@pytest.mark.parametrize("operation", ["PutItem", "UpdateItem", "DeleteItem"])
def test_a_plain_write_meets_the_conflict_of_a_transaction(
    dynamo: DynamoStore, faults: Faults, some: Samples, operation: str
) -> None:
    action = next(action for action in four(some) if f"{type(action).__name__}Item" == operation)
    faults.next(operation, fails("TransactionConflictException"))

    assert dynamo.transact([action]) == Refused(conflicts=frozenset({action.name}))
    assert faults.count(operation) == 1


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionInProgress"])
def test_a_transaction_cancelled_for_its_load_is_throttled(
    dynamo: DynamoStore, faults: Faults, some: Samples, code: str
) -> None:
    faults.next("TransactWriteItems", cancels("None", code, "None", "None"))

    with pytest.raises(StoreThrottled):
        dynamo.transact(four(some))


def test_a_transaction_cancelled_for_another_reason_is_unavailable(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    faults.next("TransactWriteItems", cancels("None", "ItemCollectionSizeLimitExceeded", "None", "None"))

    with pytest.raises(StoreUnavailable, match="ItemCollectionSizeLimitExceeded"):
        dynamo.transact(four(some))
