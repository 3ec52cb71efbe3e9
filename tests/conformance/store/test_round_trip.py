"""Every kind of record comes back from both stores as it went in, whatever its fields hold."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from differently_core.model.sandbox import Sandbox
from differently_core.store.codec import KINDS, from_row, row_bytes, to_row
from differently_core.store.dynamo import DynamoStore
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Put
from tests.conformance.store.samples import NOW, Samples, committed
from tests.conformance.store.strategies import records

RECORDS = [pytest.param(kind.record, id=name) for name, kind in sorted(KINDS.items())]
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@pytest.mark.parametrize("record", RECORDS)
@given(data=st.data())
@settings(quick, max_examples=40)
def test_a_record_survives_the_row(record: type[Sandbox], data: st.DataObject) -> None:
    made = data.draw(records(record))

    assert from_row(to_row(made)) == made


@pytest.mark.parametrize("record", RECORDS)
@given(data=st.data())
@settings(quick, max_examples=20)
def test_a_record_survives_the_memory_store(record: type[Sandbox], data: st.DataObject) -> None:
    made, store = data.draw(records(record)), MemoryStore()

    committed(store.transact([Put(made, (), "it")]))

    assert [store.get(record, made.key()) for _ in range(2)] == [made, made]
    assert store.query(made.key().table, made.key().pk).rows == (made,)


@pytest.mark.parametrize("record", RECORDS)
@given(data=st.data())
@settings(quick, max_examples=12)
def test_a_record_survives_dynamodb(dynamo: DynamoStore, record: type[Sandbox], data: st.DataObject) -> None:
    made = data.draw(records(record))

    committed(dynamo.transact([Put(made, (), "it")]))

    assert dynamo.get(record, made.key()) == made
    assert made in dynamo.query(made.key().table, made.key().pk, prefix=made.key().sk).rows


@given(data=st.data())
@settings(quick, max_examples=20)
def test_a_refusal_and_a_list_bring_back_the_same_record(dynamo: DynamoStore, data: st.DataObject) -> None:
    from differently_core.store.ports import Absent, Refused

    made = data.draw(records(Sandbox))
    committed(dynamo.transact([Put(made, (), "it")]))

    assert dynamo.transact([Put(made, (Absent(),), "it")]) == Refused({"it": made})
    assert made in dynamo.query_list(str(made.index()["list_pk"])).rows


def test_a_usual_sandbox_fits_one_write_unit(some: Samples) -> None:
    """What equals its default is left out; twice this size would make every write of it twice as dear."""
    usual = some.sandbox(due_at=NOW, started_at=NOW, expires_at=NOW, backend_ref="i-0123456789abcdef0", attempt=1)

    assert row_bytes(to_row(usual)) <= 1024
