"""What becomes of a call when DynamoDB throttles, fails, or its answer is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from differently_core.errors import PayloadTooLarge
from differently_core.model.quota import Counter
from differently_core.model.record import Table
from differently_core.model.sandbox import Sandbox, SandboxEnv
from differently_core.runtime.clock import VirtualClock
from differently_core.store.dynamo import BATCH_ROUNDS_MAX, EMPTY_ANSWERS_MAX, Credentials, DynamoStore
from differently_core.store.ports import Absent, Put, Refused, StoreThrottled, StoreUnavailable, Update
from differently_core.store.resend import TRIES_MAX
from tests.conformance.store.faults import (
    Fault,
    Faults,
    answer_lost,
    answers,
    cancels,
    fails,
    never_sent,
    passes,
)
from tests.conformance.store.samples import Samples, committed, keep, refused

Call = Callable[[DynamoStore, Samples], object]

READS: dict[str, Call] = {
    "GetItem": lambda store, some: store.get(Sandbox, some.key()),
    "BatchGetItem": lambda store, some: store.batch_get([(Sandbox, some.key())]),
    "Query": lambda store, some: store.query(Table.STATE, some.key().pk),
}
TRANSACTION: dict[str, Call] = {
    "TransactWriteItems": lambda store, some: store.transact(
        [Put(some.sandbox(), (), "sandbox"), Put(some.event(), (), "event")]
    )
}
PLAIN: dict[str, Call] = {
    "PutItem": lambda store, some: store.transact([Put(some.sandbox(), (), "sandbox")]),
    "UpdateItem": lambda store, some: store.transact(
        [Update(Counter, some.counter_key(), "counter", add={"free_sandboxes": 1})]
    ),
}
ALL = {**READS, **TRANSACTION, **PLAIN}
REPEATED = {**READS, **TRANSACTION}

THROTTLES = ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"]
UNKNOWN: dict[str, Fault] = {
    "a lost answer": answer_lost,
    "a server's error": fails("InternalServerError", 500),
    "an unavailable service": answers(503, b"<html>busy</html>"),
    "an answer that is cut off": answers(200, b'{"Item": {"pk":'),
    "a page of a proxy": answers(200, b"<html>sign in</html>"),
}


@pytest.fixture
def dynamo(dynamo: DynamoStore, some: Samples) -> DynamoStore:
    keep(dynamo, some.counter())
    return dynamo


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("code", THROTTLES)
def test_a_throttled_call_is_sent_again(
    dynamo: DynamoStore, faults: Faults, some: Samples, operation: str, code: str
) -> None:
    faults.next(operation, fails(code), fails(code))

    ALL[operation](dynamo, some)

    assert faults.count(operation) == 3


@pytest.mark.parametrize("operation", ALL)
def test_a_call_that_stays_throttled_is_throttled_and_wrote_nothing(
    dynamo: DynamoStore, faults: Faults, some: Samples, operation: str
) -> None:
    faults.next(operation, *[fails("ThrottlingException")] * TRIES_MAX)

    with pytest.raises(StoreThrottled):
        ALL[operation](dynamo, some)

    assert faults.count(operation) == TRIES_MAX
    assert dynamo.batch_get([(Sandbox, some.key()), (Counter, some.counter_key())]) == [None, some.counter()]


@pytest.mark.parametrize("operation", ALL)
def test_a_call_that_was_never_sent_is_sent_again(
    dynamo: DynamoStore, faults: Faults, some: Samples, operation: str
) -> None:
    faults.next(operation, never_sent, never_sent)

    ALL[operation](dynamo, some)

    assert faults.count(operation) == 3


@pytest.mark.parametrize("operation", REPEATED)
@pytest.mark.parametrize("unknown", UNKNOWN)
def test_reads_and_transactions_of_unknown_outcome_are_sent_again(
    dynamo: DynamoStore, faults: Faults, some: Samples, operation: str, unknown: str
) -> None:
    faults.next(operation, UNKNOWN[unknown])

    outcome = REPEATED[operation](dynamo, some)

    assert not isinstance(outcome, Refused), "the request token tells the second send from a second request"
    assert faults.count(operation) == 2


@pytest.mark.parametrize("operation", PLAIN)
@pytest.mark.parametrize("unknown", UNKNOWN)
def test_a_plain_write_of_unknown_outcome_is_never_repeated(
    dynamo: DynamoStore, faults: Faults, some: Samples, operation: str, unknown: str
) -> None:
    faults.next(operation, UNKNOWN[unknown])

    with pytest.raises(StoreUnavailable):
        PLAIN[operation](dynamo, some)

    assert faults.count(operation) == 1


def test_an_answer_lost_after_the_commit_is_unavailable_and_the_rows_are_there(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    faults.next("TransactWriteItems", *[answer_lost] * TRIES_MAX)

    with pytest.raises(StoreUnavailable):
        dynamo.transact([Put(some.sandbox(), (Absent(),), "sandbox"), Put(some.event(), (Absent(),), "event")])

    assert dynamo.get(Sandbox, some.key()) == some.sandbox()


def test_a_conditional_transaction_whose_answer_was_lost_commits_once(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    faults.next("TransactWriteItems", answer_lost)

    committed(
        dynamo.transact(
            [
                Put(some.sandbox(), (Absent(),), "sandbox"),
                Update(Counter, some.counter_key(), "counter", add={"free_sandboxes": -1}),
            ]
        )
    )

    assert dynamo.get(Counter, some.counter_key()) == some.counter(free=6, limit_sandboxes=7)


def test_a_count_whose_answer_was_lost_is_counted_once(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    faults.next("UpdateItem", answer_lost)

    with pytest.raises(StoreUnavailable):
        dynamo.transact([Update(Counter, some.counter_key(), "counter", add={"free_sandboxes": -1})])

    assert dynamo.get(Counter, some.counter_key()) == some.counter(free=6, limit_sandboxes=7)


def test_a_throttle_after_a_lost_answer_does_not_claim_that_nothing_was_written(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    faults.next("TransactWriteItems", answer_lost, *[fails("ThrottlingException")] * TRIES_MAX)

    with pytest.raises(StoreUnavailable):
        TRANSACTION["TransactWriteItems"](dynamo, some)

    assert dynamo.get(Sandbox, some.key()) == some.sandbox()


def test_a_transaction_still_in_progress_is_asked_for_again(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    faults.next("TransactWriteItems", fails("TransactionInProgressException"))

    committed(dynamo.transact([Put(some.sandbox(), (), "sandbox"), Put(some.event(), (), "event")]))

    first, second = faults.bodies("TransactWriteItems")
    assert first["ClientRequestToken"] == second["ClientRequestToken"]


def test_a_cancelled_transaction_is_not_sent_again(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    faults.next("TransactWriteItems", cancels("ConditionalCheckFailed", "None"))

    assert refused(dynamo.transact([Put(some.sandbox(), (), "a"), Put(some.event(), (), "b")])).failed == {"a": None}
    assert faults.count("TransactWriteItems") == 1


@pytest.mark.parametrize("operation", ALL)
@pytest.mark.parametrize("code", ["AccessDeniedException", "ResourceNotFoundException", "ValidationException"])
def test_a_refusal_that_nobody_expects_is_unavailable_and_named(
    dynamo: DynamoStore, faults: Faults, some: Samples, operation: str, code: str
) -> None:
    faults.next(operation, fails(code))

    with pytest.raises(StoreUnavailable, match=code):
        ALL[operation](dynamo, some)

    assert faults.count(operation) == 1


def test_the_waits_between_sends_grow_and_are_spread(some: Samples) -> None:
    clock = VirtualClock()
    store = DynamoStore(
        {table: table.value for table in Table}, region="us-east-1", host="http://127.0.0.1:9",
        credentials=Credentials("test", "test"), clock=clock, backoff_seconds=1.0,
    )  # fmt: skip

    with pytest.raises(StoreUnavailable):
        store.get(Sandbox, some.key())

    assert 0.5 + 1.0 <= clock.monotonic() <= 1.5 + 3.0


def test_without_credentials_or_a_service_the_store_is_unavailable(
    some: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = DynamoStore({table: table.value for table in Table}, region="us-east-1", host="http://127.0.0.1:9")

    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.get(Sandbox, some.key())


def test_rows_that_a_batch_hands_back_are_asked_for_again(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    keep(dynamo, some.env(0), some.env(1), some.sandbox(2))
    table = dynamo._names[Table.STATE]
    env = some.env(1).key()
    handed_back = {table: {"Keys": [{"pk": {"S": env.pk}, "sk": {"S": env.sk}}], "ConsistentRead": True}}
    none_yet = answers(200, {"Responses": {table: []}, "UnprocessedKeys": handed_back})
    faults.next("BatchGetItem", none_yet, none_yet)

    assert dynamo.batch_get([(SandboxEnv, env)]) == [some.env(1)]
    assert faults.count("BatchGetItem") == 3
    assert [body["RequestItems"] for body in faults.bodies("BatchGetItem")][1:] == [handed_back, handed_back]


def test_a_batch_that_hands_rows_back_for_ever_is_throttled(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    table = dynamo._names[Table.STATE]
    key = {"pk": {"S": some.key().pk}, "sk": {"S": "META"}}
    answer = answers(200, {"Responses": {}, "UnprocessedKeys": {table: {"Keys": [key], "ConsistentRead": True}}})
    faults.next("BatchGetItem", *[answer] * (BATCH_ROUNDS_MAX + 1))

    with pytest.raises(StoreThrottled):
        dynamo.batch_get([(Sandbox, some.key())])

    assert faults.count("BatchGetItem") == BATCH_ROUNDS_MAX


def test_pages_that_come_empty_or_short_are_read_on(dynamo: DynamoStore, faults: Faults, some: Samples) -> None:
    envs = [some.sandbox(), some.env()]
    keep(dynamo, *envs)
    pk = some.key().pk
    before = {"pk": {"S": pk}, "sk": {"S": "A"}}
    faults.next("Query", answers(200, {"Items": [], "Count": 0, "ScannedCount": 0, "LastEvaluatedKey": before}), passes)

    page = dynamo.query(Table.STATE, pk)

    assert page.rows == (some.env(), some.sandbox())
    assert page.next is None
    assert [body.get("ExclusiveStartKey") for body in faults.bodies("Query")] == [None, before]


def test_answers_without_rows_and_without_an_end_are_not_read_for_ever(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    position = {"pk": {"S": some.key().pk}, "sk": {"S": "A"}}
    nothing = answers(200, {"Items": [], "Count": 0, "ScannedCount": 0, "LastEvaluatedKey": position})
    faults.next("Query", *[nothing] * 100)

    with pytest.raises(StoreUnavailable, match="without an end"):
        dynamo.query(Table.STATE, some.key().pk, limit=5)

    assert faults.count("Query") == 5 + 1 + EMPTY_ANSWERS_MAX


def test_a_size_that_only_the_service_sees_is_still_too_large(
    dynamo: DynamoStore, faults: Faults, some: Samples
) -> None:
    message = "Item size has exceeded the maximum allowed size"
    faults.next("PutItem", fails("ValidationException", message=message))
    with pytest.raises(PayloadTooLarge):
        PLAIN["PutItem"](dynamo, some)

    faults.next("TransactWriteItems", cancels("ValidationError", "None", message=message))
    with pytest.raises(PayloadTooLarge, match="sandbox"):
        TRANSACTION["TransactWriteItems"](dynamo, some)


def test_nothing_is_sent_and_no_client_is_made_before_the_first_call() -> None:
    store = DynamoStore({table: table.value for table in Table}, region="us-east-1")

    assert store._connection._client is None
