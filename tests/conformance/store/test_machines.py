"""Random stories: the memory store beside a dictionary, and DynamoDB beside the memory store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from differently_core.model.due import due_index, due_shard, stamp
from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.quota import Counter
from differently_core.model.record import Key, Record
from differently_core.model.sandbox import Sandbox, Status, list_index
from differently_core.store.dynamo import DynamoStore
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import (
    Absent,
    Action,
    AnyOf,
    AtLeast,
    AtMost,
    Check,
    Condition,
    Delete,
    DueRow,
    Equals,
    Missing,
    OneOf,
    Outcome,
    Page,
    Present,
    Put,
    Refused,
    Store,
    Update,
)
from tests.conformance.store.plain import PlainStore
from tests.conformance.store.samples import NOW, Samples

_NUMBERS = itertools.count(10**6)
STATUSES = (Status.QUEUED, Status.RUNNING, Status.TERMINATING, Status.FAILED)
MOMENTS = (NOW, NOW + timedelta(seconds=1), NOW + timedelta(seconds=2))


class Row(NamedTuple):
    """One of the few rows that every story is about, so that its transactions meet."""

    record: type[Record]
    number: int

    def key(self, some: Samples) -> Key:
        if self.record is Counter:
            return some.counter_key("ab"[self.number])
        return some.key(self.number) if self.record is Sandbox else some.idempotency(self.number).key()


ROWS = (Row(Counter, 0), Row(Counter, 1), Row(Sandbox, 0), Row(Sandbox, 1), Row(IdempotencyRow, 0))


class Move(NamedTuple):
    """An action that is about to happen to a row, in whichever story it is drawn."""

    row: Row
    make: Callable[[Samples], Action]


def moves() -> Iterator[Move]:
    for row in ROWS:
        for when in conditions(row):
            yield Move(row, partial(a_delete, row, when))
            if when:
                yield Move(row, partial(a_check, row, when))
            for facts in records(row):
                yield Move(row, partial(a_put, row, facts, when))
            for change in changes(row):
                yield Move(row, partial(an_update, row, change, when))


def a_put(row: Row, facts: dict[str, Any], when: tuple[Condition, ...], some: Samples) -> Action:
    make: dict[type[Record], Callable[..., Record]] = {
        Counter: lambda **facts: some.counter("ab"[row.number], **facts),
        Sandbox: partial(some.sandbox, row.number),
        IdempotencyRow: partial(some.idempotency, row.number),
    }
    return Put(make[row.record](**facts), when, str(row))


def a_delete(row: Row, when: tuple[Condition, ...], some: Samples) -> Action:
    return Delete(row.record, row.key(some), str(row), when)


def a_check(row: Row, when: tuple[Condition, ...], some: Samples) -> Action:
    return Check(row.record, row.key(some), str(row), when)


def an_update(row: Row, change: dict[str, Any], when: tuple[Condition, ...], some: Samples) -> Action:
    changed = dict(change)
    move: Status | None = changed.pop("move", None)
    delay: datetime | None = changed.pop("delay", None)
    if move is not None:
        changed["set"] = {"status": move.value, **list_index(some.project, some.id(row.number), move)}
    if delay is not None:
        changed["set"] = {"due_at": stamp(delay), **due_index(some.id(row.number), delay)}
    return Update(row.record, row.key(some), str(row), when=when, **changed)


def records(row: Row) -> list[dict[str, Any]]:
    if row.record is Counter:
        return [{"free": 0}, {"free": 2}, {"free": 1, "waiting": 1}]
    if row.record is IdempotencyRow:
        return [{"digest": "d1"}, {"digest": "d2"}]
    return [{"status": status, "due_at": at, "version": 1} for status in STATUSES for at in (None, *MOMENTS[:2])]


def changes(row: Row) -> list[dict[str, Any]]:
    if row.record is Counter:
        return [
            {"set": {"waiting": 2}}, {"set": {"closed": "drained"}, "add": {"free_sandboxes": 2}},
            {"add": {"free_sandboxes": -1}}, {"add": {"waiting": 1}, "remove": ("closed",)},
            {"remove": ("waiting", "closed")},
        ]  # fmt: skip
    if row.record is IdempotencyRow:
        return [{"set": {"digest": "d1"}}, {"set": {"digest": "d3"}}]
    again = {"add": {"version": 1}}
    return [
        *({"move": status, **again} for status in STATUSES), *({"delay": at, **again} for at in MOMENTS),
        {"remove": ("due_at", "due_pk", "due_sk"), **again},
    ]  # fmt: skip


def conditions(row: Row) -> list[tuple[Condition, ...]]:
    own: dict[type[Record], list[Condition]] = {
        Counter: [
            Equals("free_sandboxes", 2), Equals("waiting", 1), AtLeast("free_sandboxes", 1), AtLeast("waiting", 2),
            AtMost("free_sandboxes", 1),
            Missing("waiting"), Missing("closed"), OneOf("waiting", (1, 2)), Equals("closed", "drained"),
        ],
        Sandbox: [
            Equals("version", 1), Equals("version", 2), OneOf("status", STATUSES[:2]), OneOf("status", STATUSES[2:]),
            Missing("due_pk"), Missing("due_at"), Equals("due_pk", "DUE#0"),
        ],
        IdempotencyRow: [Equals("digest", "d1"), OneOf("digest", ("d2", "d3"))],
    }  # fmt: skip
    single = [Absent(), Present(), *own[row.record]]
    first, second, *_ = own[row.record]
    either = [AnyOf((Absent(), first)), AnyOf((first, second))]
    return [(), (), *((condition,) for condition in (*single, *either)), (first, second), (single[-1], either[0])]


MOVES = list(moves())
# Numbers, because Hypothesis would write out the whole list of moves to describe the strategy.
TRANSACTIONS = st.lists(
    st.integers(0, len(MOVES) - 1), min_size=1, max_size=4, unique_by=lambda number: MOVES[number].row
)


def actions_of(drawn: Sequence[int], some: Samples) -> list[Action]:
    actions = [MOVES[number].make(some) for number in drawn]
    note("\n".join(["-", *map(str, actions)]))
    return actions


def listed(store: Store, pk: str, limit: int) -> Iterator[Record]:
    after: str | None = ""
    while after is not None:
        page: Page = store.query_list(pk, after=after or None, limit=limit)
        yield from page.rows
        after = page.next


def due_rows(store: Store, shard: str, until: str, limit: int) -> Iterator[DueRow]:
    after: str | None = ""
    while after is not None:
        rows, after = store.query_due(shard, until=until, after=after or None, limit=limit)
        yield from rows


class MemoryBesideADictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.some = Samples(next(_NUMBERS))
        self.plain = PlainStore()
        self.store = MemoryStore(during=self._during)
        self.inner: list[Action] = []
        self.inner_outcome: Outcome | None = None

    def _during(self, actions: Sequence[Action]) -> None:
        if self.inner:
            inner, self.inner = self.inner, []
            self.inner_outcome = self.store.transact(inner)

    @rule(drawn=TRANSACTIONS)
    def one(self, drawn: list[int]) -> None:
        actions = actions_of(drawn, self.some)

        assert self.store.transact(actions) == self.plain.transact(actions)

    @rule(outer=TRANSACTIONS, inner=TRANSACTIONS)
    def two_that_overlap(self, outer: list[int], inner: list[int]) -> None:
        self.inner, self.inner_outcome = actions_of(inner, self.some), None

        outcome = self.store.transact(actions_of(outer, self.some))

        happened, self.inner = not self.inner, []
        if happened:
            taken = {MOVES[number].row.key(self.some) for number in outer}
            assert self.inner_outcome == self.plain.transact(actions_of(inner, self.some), taken)
        else:
            assert isinstance(outcome, Refused) or len(outer) == 1, "a plain write has no middle"
        assert self.plain.transact(actions_of(outer, self.some)) == outcome

    @invariant()
    def the_rows_are_the_same(self) -> None:
        assert self.store.rows() == {key: self.plain.get(key) for key in self.plain.rows}

    @rule(limit=st.integers(1, 3), seconds=st.integers(-1, 3))
    def read_everything(self, limit: int, seconds: int) -> None:
        for row in ROWS:
            key = row.key(self.some)
            assert self.store.get(row.record, key) == self.plain.get(key)
            assert list(self.store.query(key.table, key.pk).rows) == self.plain.partition(key.table, key.pk)
        for side in ("LIVE", "GONE"):
            entries = self.plain.index("list_pk", "list_sk", f"{side}#{self.some.project}")
            expected = [self.plain.get(key) for _, key in reversed(entries)]
            assert list(listed(self.store, f"{side}#{self.some.project}", limit)) == expected
        until = stamp(NOW + timedelta(seconds=seconds))
        for shard in {due_shard(self.some.id(n)) for n in (0, 1)}:
            entries = self.plain.index("due_pk", "due_sk", shard)
            rows = list(due_rows(self.store, shard, until, limit))
            assert [(row.due, row.key) for row in rows] == [
                entry for entry in entries if entry[0][: len(until)] <= until
            ]


def dynamo_beside_memory(dynamo: DynamoStore) -> type[RuleBasedStateMachine]:
    class DynamoBesideMemory(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.some = Samples(next(_NUMBERS))
            self.memory = MemoryStore()

        @rule(drawn=TRANSACTIONS)
        def write(self, drawn: list[int]) -> None:
            actions = actions_of(drawn, self.some)

            assert dynamo.transact(actions) == self.memory.transact(actions)

        @rule(limit=st.integers(1, 3))
        def read_everything(self, limit: int) -> None:
            asked = [(row.record, row.key(self.some)) for row in ROWS]
            assert dynamo.batch_get(asked) == self.memory.batch_get(asked)
            for side in ("LIVE", "GONE"):
                pk = f"{side}#{self.some.project}"
                assert list(listed(dynamo, pk, limit)) == list(listed(self.memory, pk, limit))
            mine = {key for _, key in asked}
            shard, until = due_shard(self.some.id(0)), stamp(NOW + timedelta(seconds=1))
            found = [row for row in due_rows(dynamo, shard, until, 50) if row.key in mine]
            assert found == list(due_rows(self.memory, shard, until, limit))

    return DynamoBesideMemory


QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck))


def test_the_memory_store_tells_the_story_of_a_dictionary() -> None:
    run_state_machine_as_test(
        MemoryBesideADictionary, settings=settings(QUICK, max_examples=80, stateful_step_count=30)
    )


def test_dynamodb_tells_the_story_of_the_memory_store(dynamo: DynamoStore) -> None:
    run_state_machine_as_test(
        dynamo_beside_memory(dynamo), settings=settings(QUICK, max_examples=12, stateful_step_count=25)
    )
