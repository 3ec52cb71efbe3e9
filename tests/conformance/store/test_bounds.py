"""What can never be right is refused before anything is read or written, and a row that is too large by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from differently_core.errors import PayloadTooLarge
from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.quota import Counter, Scope
from differently_core.model.record import Table
from differently_core.model.sandbox import Sandbox, SandboxEnv
from differently_core.store.codec import ROW_BYTES_MAX
from differently_core.store.ports import (
    ACTIONS_MAX,
    Absent,
    Action,
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
    Store,
    Update,
)
from tests.conformance.store.samples import Samples, committed, keep

KEY = Counter.key_of(Scope.ORG, "bounds")


def update(**changes: object) -> Update:
    return Update(Counter, KEY, "update", **changes)  # type: ignore[arg-type]


def check(*when: Condition) -> Check:
    return Check(Counter, KEY, "check", when)


WRONG: dict[str, tuple[list[Action], str]] = {
    "no action": ([], "1 to 100 actions"),
    "a check without a condition": ([check()], "no condition"),
    "an update without a change": ([update()], "changes nothing"),
    "a field set and removed": ([update(set={"waiting": 1}, remove=("waiting",))], "one field twice"),
    "a field set and added to": ([update(set={"waiting": 1}, add={"waiting": 1})], "one field twice"),
    "a misspelt field set": ([update(set={"wating": 1})], "wating is not a native or index field of counter"),
    "a misspelt field added to": ([update(add={"free_sandbox": 1})], "free_sandbox"),
    "a misspelt field removed": ([update(remove=("close",))], "close is not"),
    "a field of the document": ([update(set={"scope": "org"})], "scope"),
    "a required field removed": ([update(remove=("free_sandboxes",))], "cannot be without free_sandboxes"),
    "a text added to": ([update(add={"closed": 1})], "not a number"),
    "a fraction added": ([update(add={"waiting": 0.5})], "is int"),
    "a number set to a text": ([update(set={"waiting": "1"})], "is int"),
    "a number set to a truth": ([update(set={"waiting": True})], "is int"),
    "a text set to a number": ([update(set={"closed": 1})], "is str"),
    "a text set to nothing": ([update(set={"closed": None})], "is str"),
    "a misspelt field in a condition": ([check(Equals("version", 1))], "version is not"),
    "a misspelt field missing": ([check(Missing("close"))], "close is not"),
    "a misspelt field in any of": ([check(AnyOf((Present(), AtLeast("free", 1))))], "free is not"),
    "a text at most": ([check(AtMost("closed", 1))], "not a number"),
    "a text at least": ([check(AtLeast("closed", 1))], "not a number"),
    "a number equal to a text": ([check(Equals("waiting", "1"))], "is int"),
    "one of numbers and texts": ([check(OneOf("waiting", (1, "2")))], "is int"),
    "one of nothing": ([check(OneOf("waiting", ()))], "1 to 100 values"),
    "one of too many": ([check(OneOf("waiting", tuple(range(101))))], "1 to 100 values"),
    "any of nothing": ([check(AnyOf(()))], "no conditions"),
    "a put with a misspelt condition": (
        [Put(IdempotencyRow(sandbox="s", digest="d", accepted="{}"), (Equals("sum", "x"),), "put")], "sum is not",
    ),
    "a delete with a misspelt condition": ([Delete(Counter, KEY, "delete", (Equals("digest", "x"),))], "digest is not"),
    "a key of another table": (
        [Delete(Counter, KEY._replace(table=Table.LOG), "delete")], "counter lives in the table state",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_can_never_be_right_is_a_value_error_that_says_why(store: Store, wrong: str) -> None:
    actions, why = WRONG[wrong]

    with pytest.raises(ValueError, match=why):
        store.transact(actions)


def test_one_wrong_action_among_right_ones_stops_them_all(store: Store, some: Samples) -> None:
    with pytest.raises(ValueError, match="wating"):
        store.transact([Put(some.sandbox(), (Absent(),), "sandbox"), update(set={"wating": 1})])

    assert store.get(Sandbox, some.key()) is None


def test_more_than_a_hundred_actions_are_refused(store: Store, some: Samples) -> None:
    actions = [Put(some.env(n), (), f"env {n}") for n in range(ACTIONS_MAX + 1)]

    with pytest.raises(ValueError, match="not 101"):
        store.transact(actions)


def test_one_row_twice_is_refused_whatever_is_done_to_it(store: Store, some: Samples) -> None:
    put = Put(some.counter(), (), "put")
    others: list[Action] = [
        Check(Counter, some.counter_key(), "other", (Present(),)), Delete(Counter, some.counter_key(), "other"),
        Update(Counter, some.counter_key(), "other", add={"waiting": 1}),
    ]  # fmt: skip

    for other in others:
        with pytest.raises(ValueError, match="one row twice"):
            store.transact([put, other])
    assert store.get(Counter, some.counter_key()) is None


def test_two_actions_of_one_name_are_refused(store: Store, some: Samples) -> None:
    with pytest.raises(ValueError, match="share a name"):
        store.transact([Put(some.env(0), (), "env"), Put(some.env(1), (), "env")])


def test_a_batch_of_more_than_a_hundred_is_refused(store: Store, some: Samples) -> None:
    with pytest.raises(ValueError, match="at most 100"):
        store.batch_get([(SandboxEnv, some.env(n).key()) for n in range(101)])


def test_a_row_read_as_another_kind_is_a_mistake_of_the_code(store: Store, some: Samples) -> None:
    keep(store, some.sandbox())

    with pytest.raises(ValueError, match="holds a sandbox, not a counter"):
        store.get(Counter, some.key())
    with pytest.raises(ValueError, match="holds a sandbox, not a counter"):
        store.batch_get([(Sandbox, some.key()), (Counter, some.key())])


def put_alone(some: Samples, value: str) -> list[Action]:
    return [Put(some.env(value=value), (), "env")]


def put_with_another(some: Samples, value: str) -> list[Action]:
    return [Put(some.sandbox(), (), "sandbox"), *put_alone(some, value)]


@pytest.mark.parametrize("actions", [put_alone, put_with_another])
@pytest.mark.parametrize("letter", ["x", "é", "\U0001f9ea"])
def test_a_row_that_no_store_could_keep_is_too_large(
    store: Store, some: Samples, actions: Callable[[Samples, str], list[Action]], letter: str
) -> None:
    size = len(letter.encode())
    fits = letter * ((ROW_BYTES_MAX - 400) // size)
    committed(store.transact(actions(some, fits)))

    with pytest.raises(PayloadTooLarge, match="sandbox_env"):
        store.transact(actions(some, letter * (ROW_BYTES_MAX // size)))

    assert store.get(SandboxEnv, some.env().key()) == some.env(value=fits)


@pytest.mark.parametrize("others", [0, 1])
def test_an_update_that_would_make_a_row_too_large_is_refused_and_changes_nothing(
    store: Store, some: Samples, others: int
) -> None:
    keep(store, some.counter(), some.counter("other"))
    more = [Update(Counter, some.counter_key("other"), "other", add={"waiting": 1})][:others]
    grown = Update(Counter, some.counter_key(), "close", set={"closed": "x" * ROW_BYTES_MAX})

    with pytest.raises(PayloadTooLarge):
        store.transact([grown, *more])
    assert store.batch_get([(Counter, some.counter_key()), (Counter, some.counter_key("other"))]) == [
        some.counter(), some.counter("other"),
    ]  # fmt: skip
