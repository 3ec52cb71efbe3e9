"""Reading a partition, a project's list and the due entries, page by page."""

from __future__ import annotations

from datetime import timedelta

import pytest

from differently_core.model.due import DUE_SHARDS, due_shard, stamp
from differently_core.model.record import Record, Table
from differently_core.model.sandbox import Status
from differently_core.runtime.ids import SandboxId
from differently_core.store.dynamo import DynamoStore
from differently_core.store.ports import Delete, DueRow, Page, Put, Store
from tests.conformance.store.faults import Faults
from tests.conformance.store.samples import NOW, Samples, committed, keep


def events(store: Store, some: Samples, count: int) -> list[Record]:
    made: list[Record] = [some.event(n) for n in range(count)]
    keep(store, *made)
    return made


def all_pages(store: Store, some: Samples, limit: int, *, reverse: bool = False, prefix: str = "") -> list[Page]:
    pages: list[Page] = []
    after: str | None = None
    while not pages or after is not None:
        page = store.query(Table.LOG, f"EVT#{some.org}", prefix=prefix, after=after, limit=limit, reverse=reverse)
        pages.append(page)
        after = page.next
        assert len(pages) < 30
    return pages


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7, 200])
def test_pages_of_any_size_give_every_row_once_and_in_order(
    store: Store, some: Samples, limit: int, reverse: bool
) -> None:
    made = events(store, some, 6)

    pages = all_pages(store, some, limit, reverse=reverse)

    assert [row for page in pages for row in page.rows] == (made[::-1] if reverse else made)
    assert [len(page.rows) for page in pages] == [limit] * (6 // limit) + [6 % limit] * (6 % limit > 0)


def test_a_partition_without_rows_is_one_empty_page(store: Store, some: Samples) -> None:
    for reverse in (False, True):
        assert store.query(Table.LOG, f"EVT#{some.org}", reverse=reverse) == Page((), None)
    assert store.query_list(f"LIVE#{some.project}") == Page((), None)
    assert store.query_due(f"DUE#none-{some.number}", until=stamp(NOW)) == ((), None)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_prefix_takes_only_its_rows(store: Store, some: Samples, reverse: bool) -> None:
    made = [some.event(id=name) for name in ("a", "b", "b#1", "b#2", "ba", "b\U0010ffff", "c")]
    keep(store, *made)

    for limit in (1, 2, 200):
        pages = all_pages(store, some, limit, reverse=reverse, prefix="b")
        assert [row for page in pages for row in page.rows] == (made[1:6][::-1] if reverse else made[1:6])
    assert all_pages(store, some, 2, prefix="d") == [Page((), None)]


def test_rows_are_in_the_order_of_their_bytes(store: Store, some: Samples) -> None:
    names = ["~", "a", "B", "é", "\uffff", "\U0001f9ea", "0", "a#", "a\x00"]
    keep(store, *(some.event(id=name) for name in names))

    page = store.query(Table.LOG, f"EVT#{some.org}")

    assert [row.key().sk for row in page.rows] == sorted(names, key=str.encode)


@pytest.mark.parametrize(
    ("after", "forward", "backward"),
    [
        ("b#2", ["b#3"], ["b#1"]), ("b#1x", ["b#2", "b#3"], ["b#1"]), ("b#3", [], ["b#2", "b#1"]),
        ("b#", ["b#1", "b#2", "b#3"], []),
        ("a", ["b#1", "b#2", "b#3"], []), ("b", ["b#1", "b#2", "b#3"], []), ("c", [], ["b#3", "b#2", "b#1"]),
        ("zz", [], ["b#3", "b#2", "b#1"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["b#", ""])
def test_a_position_need_not_be_a_row_nor_within_the_prefix(
    store: Store, some: Samples, after: str, forward: list[str], backward: list[str], prefix: str
) -> None:
    keep(store, *(some.event(id=name) for name in ("b#1", "b#2", "b#3")))
    partition = f"EVT#{some.org}"

    ahead = store.query(Table.LOG, partition, prefix=prefix, after=after)
    behind = store.query(Table.LOG, partition, prefix=prefix, after=after, reverse=True)

    assert [row.key().sk for row in ahead.rows] == forward
    assert [row.key().sk for row in behind.rows] == backward
    assert (ahead.next, behind.next) == (None, None)


def test_a_row_deleted_between_pages_does_not_lose_the_place(store: Store, some: Samples) -> None:
    made = events(store, some, 5)
    first = store.query(Table.LOG, f"EVT#{some.org}", limit=2)
    assert first.next is not None

    committed(store.transact([Delete(type(some.event()), made[1].key(), "event")]))
    second = store.query(Table.LOG, f"EVT#{some.org}", limit=2, after=first.next)

    assert second.rows == tuple(made[2:4])


def test_the_list_is_newest_first(store: Store, some: Samples) -> None:
    made = [some.sandbox(n) for n in range(5)]
    keep(store, *made, some.sandbox(9, status=Status.TERMINATED, ended_at=NOW))
    found: list[Record] = []
    after: str | None = None

    for size in (2, 2, 1):
        page = store.query_list(f"LIVE#{some.project}", after=after, limit=2)
        assert len(page.rows) == size
        found.extend(page.rows)
        after = page.next

    assert after is None
    assert found == made[::-1]
    assert store.query_list(f"LIVE#{some.project}", after=some.id(2)).rows == tuple(made[1::-1])
    assert store.query_list(f"LIVE#{some.project}", after=SandboxId("sbx_9")).rows == tuple(made[::-1])
    assert store.query_list(f"LIVE#{some.project}", limit=5).next is None


def test_a_listed_row_is_the_whole_record(store: Store, some: Samples) -> None:
    full = some.sandbox(due_at=NOW, last_activity_at=NOW, region="eu", failures=2, started_at=NOW, has_env=True)
    keep(store, full)

    assert store.query_list(f"LIVE#{some.project}").rows == (full,)


def in_one_shard(some: Samples, count: int) -> list[int]:
    """Numbers of sandboxes that share a due shard."""
    first = due_shard(some.id(0))
    return [n for n in range(count * DUE_SHARDS * 8) if due_shard(some.id(n)) == first][:count]


def test_due_entries_come_oldest_first_and_only_up_to_now(store: Store, some: Samples) -> None:
    numbers = in_one_shard(some, 6)
    shard = due_shard(some.id(numbers[0]))
    late = dict(zip(numbers, (3, 1, 2, 0, 1, 9), strict=True))
    base = NOW + timedelta(days=some.number)
    keep(store, *(some.sandbox(n, due_at=base + timedelta(seconds=seconds)) for n, seconds in late.items()))
    expected = sorted((late[n], some.id(n)) for n in numbers if late[n] <= 3)
    floor = stamp(base - timedelta(seconds=1))

    for limit in (1, 2, 4, 5, 200):
        found: list[DueRow] = []
        after: str | None = floor
        while after is not None:
            rows, after = store.query_due(shard, until=stamp(base + timedelta(seconds=3)), after=after, limit=limit)
            found.extend(rows)
        assert [(row.key.pk, row.kind, row.status) for row in found] == [
            (f"SBX#{sandbox}", "sandbox", "running") for _, sandbox in expected
        ]
        assert [row.due for row in found] == [
            f"{stamp(base + timedelta(seconds=seconds))}#{sandbox}" for seconds, sandbox in expected
        ]


def test_an_entry_is_due_at_its_very_moment_and_not_a_microsecond_before(store: Store, some: Samples) -> None:
    due_at = NOW - timedelta(days=some.number)
    keep(store, some.sandbox(due_at=due_at))
    shard = due_shard(some.id())

    def found(until: timedelta) -> list[str]:
        rows, _ = store.query_due(shard, until=stamp(due_at + until))
        return [row.key.pk for row in rows if row.key.pk == some.key().pk]

    assert found(timedelta()) == [some.key().pk]
    assert found(timedelta(microseconds=-1)) == []
    assert store.query_due(shard, until=stamp(due_at), after=stamp(due_at + timedelta(days=400))) == ((), None)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_answer_that_ends_after_every_item_loses_none(
    dynamo: DynamoStore, faults: Faults, some: Samples, reverse: bool
) -> None:
    """DynamoDB may end a page anywhere; here it does after each item, whatever was asked."""
    made = events(dynamo, some, 5)
    keep(dynamo, *(some.sandbox(n, due_at=NOW) for n in range(3)))

    def one_by_one(params: dict[str, object], **_: object) -> None:
        params["Limit"] = 1

    dynamo.hooks().register("provide-client-params.dynamodb.Query", one_by_one)
    try:
        page = dynamo.query(Table.LOG, f"EVT#{some.org}", limit=4, reverse=reverse)
        listed = dynamo.query_list(f"LIVE#{some.project}", limit=2)
        due, _ = dynamo.query_due(due_shard(some.id(0)), until=stamp(NOW))
    finally:
        dynamo.hooks().unregister("provide-client-params.dynamodb.Query", one_by_one)

    assert page.rows == tuple((made[::-1] if reverse else made)[:4])
    assert page.next == page.rows[-1].key().sk
    assert listed.rows == (some.sandbox(2, due_at=NOW), some.sandbox(1, due_at=NOW))
    assert some.key(0) in [row.key for row in due]
    assert faults.count("Query") > 10


def test_reads_of_tables_are_strongly_consistent_and_reads_of_indexes_are_not(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    dynamo.query(Table.STATE, some.key().pk)
    dynamo.get(type(some.sandbox()), some.key())
    dynamo.batch_get([(type(some.sandbox()), some.key())])
    dynamo.query_list("LIVE#x")
    dynamo.query_due("DUE#0", until=stamp(NOW))

    bodies = [body for _, body in faults.sent]
    assert [body.get("ConsistentRead", False) for body in bodies] == [True, True, False, False, False]
    assert all(request["ConsistentRead"] for request in bodies[2]["RequestItems"].values())


def test_indexes_follow_every_kind_of_write(store: Store, some: Samples) -> None:
    live, gone, shard = f"LIVE#{some.project}", f"GONE#{some.project}", due_shard(some.id())

    def where() -> tuple[int, int, int]:
        entries, _ = store.query_due(shard, until=stamp(NOW + timedelta(days=9)))
        return (
            len(store.query_list(live).rows), len(store.query_list(gone).rows),
            sum(1 for entry in entries if entry.key == some.key()),
        )  # fmt: skip

    assert where() == (0, 0, 0)
    keep(store, some.sandbox(due_at=NOW))
    assert where() == (1, 0, 1)
    committed(store.transact([Put(some.sandbox(due_at=None, version=2), (), "sandbox")]))
    assert where() == (1, 0, 0)
    committed(store.transact([Put(some.sandbox(due_at=NOW, status=Status.TERMINATED, version=3), (), "sandbox")]))
    assert where() == (0, 1, 1)
    committed(store.transact([Delete(type(some.sandbox()), some.key(), "sandbox")]))
    assert where() == (0, 0, 0)
