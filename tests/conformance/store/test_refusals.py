"""A refused transaction names each action that refused it, in whatever order and mix they were given."""

from __future__ import annotations

import itertools

import pytest

from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.quota import Counter
from differently_core.model.record import Record
from differently_core.model.sandbox import Sandbox, SandboxEnv
from differently_core.store.ports import (
    ACTIONS_MAX,
    Absent,
    Action,
    AtLeast,
    Check,
    Delete,
    Equals,
    Present,
    Put,
    Store,
    Update,
)
from tests.conformance.store.samples import Samples, committed, keep, refused

KINDS = ("check", "delete", "put", "update")


def actions_of(some: Samples, failing: tuple[str, ...]) -> dict[str, Action]:
    """One of each kind, and whether its condition holds."""
    version = {kind: 2 if kind in failing else 1 for kind in KINDS}
    free = 8 if "update" in failing else 7
    return {
        "check": Check(Sandbox, some.key(0), "check", (Equals("version", version["check"]),)),
        "delete": Delete(Sandbox, some.key(1), "delete", (Equals("version", version["delete"]),)),
        "put": Put(some.sandbox(2, version=2), (Equals("version", version["put"]),), "put"),
        "update": Update(
            Counter, some.counter_key(), "update", add={"free_sandboxes": -1}, when=(AtLeast("free_sandboxes", free),)
        ),
    }


def rows_of(some: Samples) -> dict[str, Record]:
    return {
        "check": some.sandbox(0), "delete": some.sandbox(1), "put": some.sandbox(2), "update": some.counter(),
    }  # fmt: skip


FAILING = [subset for size in range(1, 5) for subset in itertools.combinations(KINDS, size)]


@pytest.mark.parametrize("failing", FAILING, ids="+".join)
def test_every_failure_is_named_with_its_row_in_every_order(
    store: Store, some: Samples, failing: tuple[str, ...]
) -> None:
    rows = rows_of(some)
    keep(store, *rows.values())
    actions = actions_of(some, failing)

    for order in itertools.permutations(KINDS):
        outcome = refused(store.transact([actions[kind] for kind in order]))
        assert outcome.failed == {kind: rows[kind] for kind in failing}
        assert outcome.conflicts == frozenset()

    found = store.batch_get([(type(row), row.key()) for row in rows.values()])
    assert found == list(rows.values()), "a refused transaction writes nothing"


@pytest.mark.parametrize("order", list(itertools.permutations(KINDS)), ids="-".join)
def test_it_commits_whole_in_every_order(store: Store, some: Samples, order: tuple[str, ...]) -> None:
    keep(store, *rows_of(some).values())

    committed(store.transact([actions_of(some, ())[kind] for kind in order]))

    assert store.batch_get([(type(row), row.key()) for row in rows_of(some).values()]) == [
        some.sandbox(0), None, some.sandbox(2, version=2), some.counter(free=6, limit_sandboxes=7),
    ]  # fmt: skip


def test_several_of_one_kind_are_told_apart(store: Store, some: Samples) -> None:
    keep(store, some.counter("a"), some.counter("b", free=0), some.counter("c"), some.idempotency(1))

    def take(name: str) -> Update:
        return Update(
            Counter, some.counter_key(name), name, add={"free_sandboxes": -1}, when=(AtLeast("free_sandboxes", 1),)
        )

    outcome = refused(
        store.transact(
            [
                take("a"), Put(some.idempotency(0), (Absent(),), "key 0"), take("b"),
                Put(some.idempotency(1), (Absent(),), "key 1"), take("c"), take("missing"),
            ]
        )
    )  # fmt: skip

    assert outcome.failed == {"b": some.counter("b", free=0), "key 1": some.idempotency(1), "missing": None}
    assert store.get(IdempotencyRow, some.idempotency(0).key()) is None


def test_tables_may_be_mixed(store: Store, some: Samples) -> None:
    keep(store, some.event(0))

    outcome = refused(
        store.transact([Put(some.event(0), (Absent(),), "event"), Put(some.sandbox(), (Absent(),), "sandbox")])
    )
    assert outcome.failed == {"event": some.event(0)}
    assert store.get(Sandbox, some.key()) is None
    committed(store.transact([Put(some.event(1), (Absent(),), "event"), Put(some.sandbox(), (Absent(),), "sandbox")]))


def test_a_hundred_actions_go_in_one_transaction(store: Store, some: Samples) -> None:
    keep(store, some.env(3), some.env(77))
    actions = [Put(some.env(n), (Absent(),), f"env {n}") for n in range(ACTIONS_MAX)]

    assert refused(store.transact(actions)).failed == {"env 3": some.env(3), "env 77": some.env(77)}
    rest = [Delete(SandboxEnv, some.env(n).key(), f"env {n}") for n in (3, 77)]
    committed(store.transact(rest))
    committed(store.transact(actions))


def test_a_transaction_of_one_check_is_possible(store: Store, some: Samples) -> None:
    keep(store, some.counter())

    committed(store.transact([Check(Counter, some.counter_key(), "check", (Present(),))]))
    assert refused(store.transact([Check(Counter, some.counter_key(), "check", (Absent(),))])).failed == {
        "check": some.counter()
    }
