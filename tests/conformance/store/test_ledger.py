"""What calls cost: trips, and units by DynamoDB's rounding; the same from both stores where the emulator reports it."""

from __future__ import annotations

import threading

import pytest

from differently_core.model.due import due_index, stamp
from differently_core.model.quota import Counter
from differently_core.model.record import Table
from differently_core.model.sandbox import Sandbox, SandboxEnv, Status, list_index
from differently_core.store.dynamo import DynamoStore
from differently_core.store.ledger import Cost, Ledger
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import (
    Absent,
    Action,
    AtLeast,
    Check,
    Delete,
    Equals,
    Present,
    Put,
    Update,
)
from tests.conformance.store.faults import Faults, fails, passes
from tests.conformance.store.samples import NOW, Samples, keep

Measured = DynamoStore | MemoryStore


@pytest.fixture(params=["memory", "dynamo"])
def measured(request: pytest.FixtureRequest) -> Measured:
    if request.param == "memory":
        return MemoryStore()
    made: DynamoStore = request.getfixturevalue("dynamo")
    return made


def cost_of(store: Measured, *actions: Action) -> Cost:
    with store.ledger.measure() as cost:
        store.transact(actions)
    return cost


def take(some: Samples, name: str, free: int = 1) -> Update:
    return Update(
        Counter, some.counter_key(name), name, add={"free_sandboxes": -1}, when=(AtLeast("free_sandboxes", free),)
    )


def test_a_plain_write_is_one_trip_at_single_price(measured: Measured, some: Samples) -> None:
    assert cost_of(measured, Put(some.counter(), (Absent(),), "put")) == Cost(1, 0.0, 1.0, ["PutItem"])
    assert cost_of(measured, take(some, "one")) == Cost(1, 0.0, 1.0, ["UpdateItem"])
    assert cost_of(measured, Delete(Counter, some.counter_key(), "delete")) == Cost(1, 0.0, 1.0, ["DeleteItem"])


def test_a_transaction_is_one_trip_at_double_price(measured: Measured, some: Samples) -> None:
    keep(measured, some.counter("a"), some.counter("b"), some.counter("c"))

    cost = cost_of(
        measured, take(some, "a"), Delete(Counter, some.counter_key("b"), "b"),
        Check(Counter, some.counter_key("c"), "c", (Present(),)), Put(some.event(), (Absent(),), "event"),
    )  # fmt: skip

    assert cost == Cost(1, 0.0, 8.0, ["TransactWriteItems"])


def test_a_row_costs_a_unit_for_each_kilobyte_of_its_larger_self(measured: Measured, some: Samples) -> None:
    large, small = some.env(value="x" * 2500), some.env()
    put, replace = Put(large, (), "env"), Put(small, (), "env")

    assert cost_of(measured, put).write_units == 3.0
    assert cost_of(measured, replace).write_units == 3.0
    assert cost_of(measured, replace).write_units == 1.0
    assert cost_of(measured, put, Put(some.event(), (), "event")).write_units == 8.0
    assert cost_of(measured, Delete(SandboxEnv, small.key(), "env")).write_units == 3.0


def test_an_index_entry_costs_a_unit_to_make_change_and_remove_and_two_to_move(
    measured: Measured, some: Samples
) -> None:
    later = {"due_at": stamp(NOW), **due_index(some.id(), NOW)}
    gone = list_index(some.project, some.id(), Status.TERMINATING)

    def update(**changes: object) -> float:
        change = Update(Sandbox, some.key(), "sandbox", add={"version": 1}, **changes)  # type: ignore[arg-type]
        return cost_of(measured, change).write_units

    assert cost_of(measured, Put(some.sandbox(), (), "sandbox")).write_units == 1.0 + 1.0
    assert update() == 1.0 + 1.0, "the version is in the list"
    assert update(set=later) == 1.0 + 1.0 + 1.0
    assert update() == 1.0 + 1.0, "the version is not in the due entry"
    assert update(set={"status": "paused"}) == 1.0 + 1.0 + 1.0
    assert update(set=gone) == 1.0 + 2.0
    assert update(remove=("due_at", "due_pk", "due_sk")) == 1.0 + 1.0 + 1.0
    assert cost_of(measured, Delete(Sandbox, some.key(), "sandbox")).write_units == 1.0 + 1.0


def test_indexes_are_not_doubled_by_a_transaction(measured: Measured, some: Samples) -> None:
    cost = cost_of(measured, Put(some.sandbox(due_at=NOW), (), "sandbox"), Put(some.event(), (), "event"))

    assert cost.write_units == 2.0 + 2.0 + 2.0


def test_a_refused_write_costs_what_it_met(measured: Measured, some: Samples) -> None:
    keep(measured, some.env(value="x" * 1500), some.counter())
    refused = Put(some.env(), (Absent(),), "env")

    assert cost_of(measured, refused) == Cost(1, 0.0, 2.0, ["PutItem"])
    assert cost_of(measured, refused, take(some, "one")) == Cost(1, 0.0, 4.0 + 2.0, ["TransactWriteItems"])
    assert cost_of(measured, take(some, "missing")) == Cost(1, 0.0, 1.0, ["UpdateItem"])


def test_a_small_read_costs_one_unit_and_half_of_one_from_an_index(measured: Measured, some: Samples) -> None:
    keep(measured, some.sandbox())

    with measured.ledger.measure() as cost:
        measured.get(Sandbox, some.key())
        measured.get(Sandbox, some.key(5))
        measured.query(Table.STATE, some.key().pk)
        measured.query_list(f"LIVE#{some.project}")
        measured.query_due("DUE#0", until=stamp(NOW))

    assert cost == Cost(5, 4.0, 0.0, ["GetItem", "GetItem", "Query", "Query", "Query"])


def test_the_memory_store_rounds_reads_as_dynamodb_does(some: Samples) -> None:
    """The emulator reports one unit for every read, so only the estimate is tested."""
    store = MemoryStore()
    keep(store, some.env(0, value="x" * 5000), some.env(1, value="x" * 3000), *(some.event(n) for n in range(40)))

    with store.ledger.measure() as cost:
        store.get(SandboxEnv, some.env(0).key())
    assert cost.read_units == 2.0
    with store.ledger.measure() as cost:
        store.batch_get([(SandboxEnv, some.env(n).key()) for n in range(3)])
    assert cost == Cost(1, 2.0 + 1.0 + 1.0, 0.0, ["BatchGetItem"])
    with store.ledger.measure() as cost:
        store.query(Table.LOG, f"EVT#{some.org}")
    assert cost.read_units == 3.0, "the rows of a query are rounded together"


def test_a_call_that_is_sent_again_is_another_trip(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    faults.next("GetItem", fails("ThrottlingException"), passes)

    with dynamo.ledger.measure() as cost:
        dynamo.get(Sandbox, some.key())

    assert cost == Cost(2, 1.0, 0.0, ["GetItem", "GetItem"])


def test_the_service_is_asked_for_its_figures_only_while_somebody_measures(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    dynamo.get(Sandbox, some.key())
    with dynamo.ledger.measure():
        dynamo.get(Sandbox, some.key())

    assert [body.get("ReturnConsumedCapacity") for _, body in faults.sent] == ["NONE", "TOTAL"]


def test_blocks_nest_and_end(measured: Measured, some: Samples) -> None:
    with measured.ledger.measure() as outer:
        measured.get(Sandbox, some.key())
        with measured.ledger.measure() as inner:
            measured.get(Sandbox, some.key())
    measured.get(Sandbox, some.key())

    assert (outer.trips, inner.trips) == (2, 1)


def test_a_block_counts_its_own_thread_and_its_own_store(measured: Measured, some: Samples) -> None:
    other = MemoryStore()
    with measured.ledger.measure() as cost, other.ledger.measure() as others:
        elsewhere = threading.Thread(target=lambda: measured.get(Sandbox, some.key()))
        elsewhere.start()
        elsewhere.join()
        other.get(Sandbox, some.key())
        measured.get(Sandbox, some.key())

    assert (cost.trips, others.trips) == (1, 1)


def test_a_block_ends_also_when_it_fails() -> None:
    ledger = Ledger()

    def fail() -> None:
        with ledger.measure():
            assert ledger.measuring
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not ledger.measuring


def test_both_stores_agree_on_the_price_of_a_create(dynamo: DynamoStore, some: Samples) -> None:
    """Sandbox, idempotency key, three counters and an event in one transaction."""
    costs = []
    for store in (dynamo, MemoryStore()):
        keep(store, *(some.counter(name) for name in ("org", "project", "pool")))
        create: list[Action] = [
            Put(some.sandbox(due_at=NOW), (Absent(),), "sandbox"), Put(some.idempotency(), (Absent(),), "key"),
            *(take(some, name) for name in ("org", "project", "pool")), Put(some.event(), (Absent(),), "event"),
        ]  # fmt: skip
        costs.append(cost_of(store, *create))
        moved = some.sandbox(version=2, status=Status.TERMINATED, ended_at=NOW)
        costs.append(cost_of(store, Put(moved, (Equals("version", 1),), "sandbox")))

    assert costs[:2] == costs[2:]
    assert costs[0] == Cost(1, 0.0, 6 * 2.0 + 2.0, ["TransactWriteItems"])
