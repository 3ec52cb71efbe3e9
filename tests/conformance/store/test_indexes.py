"""Updates move rows through the sparse indexes without having read them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from differently_core.model.attempt import AttemptState
from differently_core.model.due import due_index, due_shard, stamp
from differently_core.model.record import Record
from differently_core.model.sandbox import Sandbox, Status, list_index
from differently_core.store.ports import Equals, Put, Store, Update
from tests.conformance.store.samples import NOW, Samples, committed, keep

SOON = NOW + timedelta(minutes=5)


def update(some: Samples, **changes: object) -> Update:
    return Update(Sandbox, some.key(), "sandbox", add={"version": 1}, **changes)  # type: ignore[arg-type]


def due(store: Store, some: Samples) -> list[str]:
    rows, _ = store.query_due(due_shard(some.id()), until=stamp(SOON))
    return [row.due for row in rows if row.key == some.key()]


def test_an_update_moves_a_row_to_the_list_of_the_gone(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(0), some.sandbox(1))
    gone = list_index(some.project, some.id(), Status.TERMINATING)

    committed(store.transact([update(some, set={"status": Status.TERMINATING, **gone})]))

    assert store.query_list(f"LIVE#{some.project}").rows == (some.sandbox(1),)
    assert store.query_list(f"GONE#{some.project}").rows == (some.sandbox(0, status=Status.TERMINATING, version=2),)


def test_an_update_makes_a_row_due_puts_it_off_and_takes_it_out(store: Store, some: Samples) -> None:
    keep(store, some.sandbox())
    assert due(store, some) == []

    for at in (NOW, SOON):
        committed(store.transact([update(some, set={"due_at": stamp(at), **due_index(some.id(), at)})]))
        assert due(store, some) == [f"{stamp(at)}#{some.id()}"]
    committed(store.transact([update(some, remove=("due_at", "due_pk", "due_sk"))]))
    assert due(store, some) == []

    assert store.get(Sandbox, some.key()) == some.sandbox(version=4)


def test_a_row_with_half_of_an_index_key_is_not_in_the_index(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(due_at=NOW))

    committed(store.transact([update(some, remove=("due_pk", "list_sk"))]))

    assert due(store, some) == []
    assert store.query_list(f"LIVE#{some.project}").rows == ()


def test_a_refused_update_moves_nothing(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(due_at=NOW))

    store.transact([update(some, remove=("due_pk", "due_sk"), when=(Equals("version", 9),))])

    assert due(store, some) == [f"{stamp(NOW)}#{some.id()}"]


def test_the_status_of_a_due_entry_is_the_one_of_now(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(due_at=NOW))

    committed(store.transact([update(some, set={"status": Status.PAUSING})]))

    rows, _ = store.query_due(due_shard(some.id()), until=stamp(NOW))
    assert [row.status for row in rows if row.key == some.key()] == ["pausing"]


def test_a_listed_row_shows_the_last_update(store: Store, some: Samples) -> None:
    keep(store, some.sandbox())

    committed(store.transact([update(some, set={"last_activity_at": stamp(SOON)})]))

    assert store.query_list(f"LIVE#{some.project}").rows == (some.sandbox(version=2, last_activity_at=SOON),)


def test_a_pool_lists_its_attempts_until_they_are_settled(store: Store, some: Samples) -> None:
    pool = f"pool-{some.number}"
    made = [some.attempt(n, pool=pool) for n in range(3)]
    keep(store, *made, some.attempt(3, pool=f"{pool}-other"))
    assert store.query_pool(pool).rows == tuple(made)

    over = made[1].with_(status=AttemptState.SETTLED, settled_at=NOW, version=2)
    committed(store.transact([Put(over, (Equals("version", 1),), "attempt")]))

    assert store.query_pool(pool).rows == (made[0], made[2])


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_attempts_of_a_pool_come_once_at_any_page_size(store: Store, some: Samples, limit: int) -> None:
    pool = f"pool-{some.number}"
    made = [some.attempt(n, pool=pool) for n in range(3)]
    keep(store, *made)
    found: list[Record] = []
    after: str | None = None
    for _ in range(4):
        page = store.query_pool(pool, after=after, limit=limit)
        found.extend(page.rows)
        after = page.next
        if after is None:
            break
    assert found == made
