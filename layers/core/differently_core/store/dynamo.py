"""The store on DynamoDB, through PynamoDB: the only door to the tables.

No error of PynamoDB or botocore leaves this module, and no attribute map does. A transaction is sent in the
order of its actions (PynamoDB's own `TransactWrite` sorts them by kind), so that the reasons of a
cancellation come back in that order too, and only here are they turned into names.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, NamedTuple, cast

from botocore.exceptions import BotoCoreError, ClientError
from pynamodb.connection import Connection
from pynamodb.exceptions import PynamoDBException
from pynamodb.expressions.condition import And, Or
from pynamodb.expressions.condition import Condition as Expression
from pynamodb.expressions.update import Action as Change

from ..errors import DifferentlyError, PayloadTooLarge
from ..model.record import Key, Native, Record, Table
from ..runtime.clock import Clock, SystemClock
from . import shape
from .codec import SHAPES, STORED_NAMES, Row, from_row, to_row
from .ledger import Ledger
from .ports import (
    ACTIONS_MAX,
    PAGE_ROWS_MAX,
    Absent,
    Action,
    AnyOf,
    AtLeast,
    Check,
    Committed,
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
    R,
    Refused,
    StoreThrottled,
    StoreUnavailable,
    Update,
)  # fmt: skip
from .resend import DOUBT, IN_PROGRESS, THROTTLES, Resend
from .tables import Item, meta_table, models

CONNECT_SECONDS_MAX = 1.0
READ_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 32
BATCH_ROUNDS_MAX = 5
BACKOFF_SECONDS = 0.05

Wire = dict[str, dict[str, Any]]
"""An item as DynamoDB spells it: `{"status": {"S": "running"}}`."""


class Credentials(NamedTuple):
    """Fixed ones, for an emulator; on AWS they are found by botocore."""

    key_id: str
    secret: str


class DynamoStore:
    """Nothing is sent, and no file of botocore's is read, before the first call."""

    def __init__(
        self, tables: Mapping[Table, str], *, region: str, host: str | None = None,
        credentials: Credentials | None = None, ledger: Ledger | None = None, clock: Clock | None = None,
        connections_max: int = CONNECTIONS_MAX, backoff_seconds: float = BACKOFF_SECONDS,
    ) -> None:  # fmt: skip
        self.ledger = ledger or Ledger()
        self._clock = clock or SystemClock()
        self._backoff_seconds = backoff_seconds
        self._models = models(tables)
        self._names = {table: model.Meta.table_name for table, model in self._models.items()}
        self._connection = Connection(
            region=region, host=host, connect_timeout_seconds=CONNECT_SECONDS_MAX,
            read_timeout_seconds=READ_SECONDS_MAX, max_pool_connections=connections_max,
            retry_configuration={"total_max_attempts": 1, "mode": "standard"},
            aws_access_key_id=credentials.key_id if credentials else None,
            aws_secret_access_key=credentials.secret if credentials else None,
        )  # fmt: skip
        for model in self._models.values():
            self._connection.add_meta_table(meta_table(model))
        self._lock = threading.Lock()
        self._prepared: object = None

    # Reads

    def get(self, record: type[R], key: Key) -> R | None:
        answer = self._call("GetItem", {"TableName": self._names[key.table], "Key": _key(key), "ConsistentRead": True})
        item = answer.get("Item")
        return cast(R, _record(item)) if item else None

    def batch_get(self, keys: Sequence[tuple[type[Record], Key]]) -> list[Record | None]:
        if len(keys) > ACTIONS_MAX:
            raise ValueError(f"batch_get takes at most {ACTIONS_MAX} keys")
        asked: dict[str, Any] = {}
        for key in dict.fromkeys(key for _, key in keys):
            entry = asked.setdefault(self._names[key.table], {"Keys": [], "ConsistentRead": True})
            entry["Keys"].append(_key(key))
        found: dict[tuple[str, str, str], Record] = {}
        for attempt in range(BATCH_ROUNDS_MAX):
            if not asked:
                break
            if attempt:
                self._clock.sleep(self._backoff_seconds * 2 ** (attempt - 1))
            answer = self._call("BatchGetItem", {"RequestItems": asked})
            for name, items in answer.get("Responses", {}).items():
                found.update({(name, item["pk"]["S"], item["sk"]["S"]): _record(item) for item in items})
            asked = answer.get("UnprocessedKeys") or {}
        if asked:
            raise StoreThrottled("The store keeps handing rows back; repeat the call in a second.")
        return [found.get((self._names[key.table], key.pk, key.sk)) for _, key in keys]

    def query(
        self, table: Table, pk: str, *, prefix: str = "", after: str | None = None, limit: int = PAGE_ROWS_MAX,
        reverse: bool = False,
    ) -> Page:  # fmt: skip
        start = _start(prefix, after, reverse)
        if start is _BEYOND:
            return Page((), None)
        items, more = self._query(
            table, pk, condition=Item.sk.startswith(prefix) if prefix else None, limit=limit, reverse=reverse,
            start=_key(Key(table, pk, start)) if start is not None else None, consistent=True,
        )  # fmt: skip
        return Page(tuple(_record(item) for item in items), items[-1]["sk"]["S"] if more else None)

    def query_list(self, pk: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        sort_key = self._attribute(Table.STATE, "list_sk")
        items, more = self._query(
            Table.STATE, pk, index="list", condition=sort_key < after if after is not None else None, limit=limit,
            reverse=True,
        )  # fmt: skip
        return Page(tuple(_record(item) for item in items), items[-1][STORED_NAMES["list_sk"]]["S"] if more else None)

    def query_due(
        self, shard: str, *, until: str, after: str | None = None, limit: int = PAGE_ROWS_MAX
    ) -> tuple[tuple[DueRow, ...], str | None]:
        sort_key = self._attribute(Table.STATE, "due_sk")
        last = until + "\U0010ffff"
        if after is not None and after >= last:
            return (), None
        # Entries are unique, so the next text after one excludes it and nothing else.
        condition = sort_key <= last if after is None else sort_key.between(after + "\x00", last)
        items, more = self._query(Table.STATE, shard, index="due", condition=condition, limit=limit)
        rows = tuple(_due_row(item) for item in items)
        return rows, rows[-1].due if more else None

    def _query(
        self, table: Table, pk: str, *, condition: Expression | None, limit: int, index: str | None = None,
        reverse: bool = False, start: Wire | None = None, consistent: bool = False,
    ) -> tuple[list[Wire], bool]:  # fmt: skip
        """Up to `limit` items, and whether there are more.

        One more item than asked for is read, because DynamoDB gives a position to go on from also at the end. An
        answer may be cut short, or even be empty, with more to come.
        """
        items: list[Wire] = []
        while len(items) <= limit:
            with self._translated("Query"):
                answer = self._connected().query(
                    self._names[table], pk, range_key_condition=condition, index_name=index,
                    limit=limit + 1 - len(items), scan_index_forward=not reverse, exclusive_start_key=start,
                    consistent_read=consistent, return_consumed_capacity=self._capacity(),
                )  # fmt: skip
            items.extend(answer["Items"])
            start = answer.get("LastEvaluatedKey")
            if not start:
                break
        return items[:limit], len(items) > limit

    # Writes

    def transact(self, actions: Sequence[Action]) -> Outcome:
        shape.check(actions)
        if len(actions) == 1 and not isinstance(actions[0], Check):
            return self._write(actions[0])
        sent = [{_MEMBERS[type(action)]: self._arguments(action)} for action in actions]
        try:
            self._send("TransactWriteItems", {"TransactItems": sent})
        except ClientError as error:
            return self._cancelled(actions, error)
        return Committed()

    def _write(self, action: Action) -> Outcome:
        """A transaction of one is a plain conditional write: half the price, and nobody to conflict with but others."""
        operation = f"{_MEMBERS[type(action)]}Item"
        try:
            self._send(operation, self._arguments(action))
        except ClientError as error:
            answer = _answer(error)
            code = answer["Error"]["Code"]
            if code == "ConditionalCheckFailedException":
                return Refused(failed={action.name: _record(answer["Item"]) if answer.get("Item") else None})
            if code == "TransactionConflictException":
                return Refused(conflicts=frozenset({action.name}))
            raise _failure(operation, error) from error
        return Committed()

    def _cancelled(self, actions: Sequence[Action], error: ClientError) -> Refused:
        answer = _answer(error)
        if answer["Error"]["Code"] != "TransactionCanceledException":
            raise _failure("TransactWriteItems", error) from error
        failed: dict[str, Record | None] = {}
        conflicts: set[str] = set()
        others: set[str] = set()
        for action, reason in zip(actions, answer.get("CancellationReasons", []), strict=False):
            match reason["Code"]:
                case "None":
                    pass
                case "ConditionalCheckFailed":
                    failed[action.name] = _record(reason["Item"]) if reason.get("Item") else None
                case "TransactionConflict":
                    conflicts.add(action.name)
                case "ValidationError" if "size" in reason.get("Message", ""):
                    raise PayloadTooLarge(f"{action.name} would make a row larger than the store keeps.") from error
                case code:
                    others.add(code)
        if failed or conflicts:
            return Refused(failed, frozenset(conflicts))
        if others and others <= THROTTLES | IN_PROGRESS:
            raise StoreThrottled("The store has too much to do right now; repeat the call in a second.") from error
        raise StoreUnavailable(f"The store cancelled a transaction ({', '.join(sorted(others))}).") from error

    def _arguments(self, action: Action) -> dict[str, Any]:
        table = shape.key_of(action).table
        model = self._models[table]
        conditions = [self._expression(table, condition) for condition in action.when]
        changes: list[Change] | None = None
        attributes: Wire | None = None
        if isinstance(action, Put):
            attributes = _item(to_row(action.record))
        elif isinstance(action, Update):
            conditions.append(model.pk.exists())
            changes = [self._attribute(table, field).set(value) for field, value in action.set.items()]
            changes += [self._attribute(table, field).add(amount) for field, amount in action.add.items()]
            changes += [self._attribute(table, field).remove() for field in action.remove]
        key = shape.key_of(action)
        return self._connection.get_operation_kwargs(
            self._names[table], key.pk, key.sk, key="Item" if attributes else "Key", attributes=attributes,
            actions=changes, condition=_all(conditions), return_values_on_condition_failure="ALL_OLD",
        )  # fmt: skip

    def _expression(self, table: Table, condition: Condition) -> Expression:
        match condition:
            case Absent():
                return Item.pk.does_not_exist()
            case Present():
                return Item.pk.exists()
            case Equals(field, value):
                return cast(Expression, self._attribute(table, field) == value)
            case OneOf(field, values):
                return cast(Expression, self._attribute(table, field).is_in(*values))
            case AtLeast(field, value):
                return cast(Expression, self._attribute(table, field) >= value)
            case Missing(field):
                return And(Item.pk.exists(), self._attribute(table, field).does_not_exist())
            case AnyOf(options):
                return reduce(Or, (self._expression(table, option) for option in options))

    def _attribute(self, table: Table, field: str) -> Any:
        return getattr(self._models[table], field)

    # The connection

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        with self._translated(operation):
            return self._send(operation, arguments)

    def _send(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        arguments["ReturnConsumedCapacity"] = self._capacity()
        try:
            return self._connected().dispatch(operation, arguments)
        except BotoCoreError as error:
            raise _failure(operation, error) from error

    def _connected(self) -> Connection:
        """The connection with our hooks on its client, which PynamoDB may have made anew."""
        with self._lock:
            client = self._connection.client
            if client is not self._prepared:
                events = client.meta.events
                events.register("needs-retry.dynamodb", Resend(self._clock, self._backoff_seconds))
                events.register("response-received.dynamodb", self.ledger.received)
                self._prepared = client
        return self._connection

    def _capacity(self) -> str:
        return "TOTAL" if self.ledger.measuring else "NONE"

    @contextmanager
    def _translated(self, operation: str) -> Iterator[None]:
        try:
            yield
        except (PynamoDBException, ClientError, BotoCoreError) as error:
            raise _failure(operation, error) from error


_MEMBERS = {Put: "Put", Update: "Update", Delete: "Delete", Check: "ConditionCheck"}
_BEYOND = "\U0010ffff" * 2


def _start(prefix: str, after: str | None, reverse: bool) -> str | None:
    """Where to go on from: DynamoDB refuses a position outside of the prefix, where either all or nothing follows."""
    if after is None or after.startswith(prefix):
        return after
    return None if (after > prefix) is reverse else _BEYOND


def _all(conditions: Sequence[Expression]) -> Expression | None:
    return reduce(And, conditions) if conditions else None


def _key(key: Key) -> Wire:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def _item(row: Row) -> Wire:
    return {STORED_NAMES.get(name, name): _value(value) for name, value in row.items()}


def _value(value: Native) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    return {"BOOL": value} if isinstance(value, bool) else {"N": str(value)}


def _native(value: Mapping[str, Any]) -> Native:
    ((kind, inner),) = value.items()
    return int(inner) if kind == "N" else cast(Native, inner)


def _record(item: Wire) -> Record:
    shape_of = SHAPES.get(item["kind"]["S"])
    wanted = ("kind", "doc", *(shape_of.record.native if shape_of else ()))
    return from_row({name: _native(item[name]) for name in wanted if name in item})


def _due_row(item: Wire) -> DueRow:
    key = Key(Table.STATE, item["pk"]["S"], item["sk"]["S"])
    status = item["status"]["S"] if "status" in item else ""
    return DueRow(item["kind"]["S"], key, status, item[STORED_NAMES["due_sk"]]["S"])


def _answer(error: ClientError) -> dict[str, Any]:
    """What DynamoDB answered; PynamoDB keeps it only on the cause of its own error."""
    original = error.__cause__
    return cast(dict[str, Any], original.response if isinstance(original, ClientError) else error.response)


def _failure(operation: str, error: Exception) -> DifferentlyError:
    cause = error.cause if isinstance(error, PynamoDBException) else error
    if not isinstance(cause, ClientError):
        return StoreUnavailable(f"The store did not answer {operation}; the call may be repeated.")
    answer = _answer(cause)
    code = answer["Error"]["Code"]
    if code in THROTTLES and not answer.get(DOUBT):
        return StoreThrottled("The store has too much to do right now; repeat the call in a second.")
    if code == "ValidationException" and "size" in answer["Error"].get("Message", ""):
        return PayloadTooLarge("This would make a row larger than the store keeps.")
    return StoreUnavailable(f"The store refused {operation} ({code}); the call may be repeated.")
