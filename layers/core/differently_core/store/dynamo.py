"""The store on DynamoDB, through PynamoDB: the only door to the tables.

No error of PynamoDB or botocore leaves this module, and no attribute map does. A transaction is sent in the order of
its actions (PynamoDB's own `TransactWrite` sorts them by kind), so the reasons of a cancellation come back in that
order too, and only here are they turned into names. A transaction of one action is a plain conditional write: half
the price.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from pynamodb.connection import Connection

from ..errors import DifferentlyError, PayloadTooLarge
from ..model.attempt import pool_partition
from ..model.record import Key, Record, Table
from ..runtime.clock import Clock, SystemClock
from . import checks
from .codec import KINDS, STORED_NAMES, from_row, of_kind, to_row
from .expressions import Expressions, Wire, native, wire_item
from .ledger import Ledger, refused_units
from .ports import (
    ACTIONS_MAX,
    PAGE_ROWS_MAX,
    Action,
    Check,
    Committed,
    Delete,
    DueRow,
    Outcome,
    Page,
    Present,
    Put,
    R,
    Refused,
    StoreThrottled,
    StoreUnavailable,
    Update,
)
from .resend import DOUBT, IN_PROGRESS, THROTTLES, Resend
from .tables import models

CONNECT_SECONDS_MAX = 1.0
READ_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 32
BATCH_ROUNDS_MAX = 5
EMPTY_ANSWERS_MAX = 20
BACKOFF_SECONDS = 0.05


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
        self._names: dict[Table, str] = {table: model.Meta.table_name for table, model in self._models.items()}
        self._connection = Connection(
            region=region, host=host, connect_timeout_seconds=CONNECT_SECONDS_MAX,
            read_timeout_seconds=READ_SECONDS_MAX, max_pool_connections=connections_max,
            retry_configuration={"total_max_attempts": 1, "mode": "standard"},
            aws_access_key_id=credentials.key_id if credentials else None,
            aws_secret_access_key=credentials.secret if credentials else None,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._prepared: object = None

    # Reads

    def get(self, record: type[R], key: Key) -> R | None:
        answer = self._call("GetItem", {"TableName": self._names[key.table], "Key": _key(key), "ConsistentRead": True})
        item = answer.get("Item")
        return of_kind(record, _record(item)) if item else None

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
        rows = [(record, found.get((self._names[key.table], key.pk, key.sk))) for record, key in keys]
        return [of_kind(record, row) if row is not None else None for record, row in rows]

    def query(
        self, table: Table, pk: str, *, prefix: str = "", after: str | None = None, limit: int = PAGE_ROWS_MAX,
        reverse: bool = False,
    ) -> Page:  # fmt: skip
        # DynamoDB refuses a position outside of the prefix, where either all of its rows follow or none.
        outside = after is not None and not after.startswith(prefix)
        if after is not None and outside and (after > prefix) is not reverse:
            return Page((), None)
        start = None if not after or outside else _key(Key(table, pk, after))
        items, more = self._query(
            table, None, pk, "begins_with({}, {})" if prefix else "", (prefix,), limit=limit, reverse=reverse,
            start=start,
        )  # fmt: skip
        return Page(tuple(_record(item) for item in items), items[-1]["sk"]["S"] if more else None)

    def query_list(self, pk: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        text = "" if after is None else "{} < {}"
        items, more = self._query(Table.STATE, "list", pk, text, (after or "",), limit=limit, reverse=True)
        rows = tuple(_record(item) for item in items)
        return Page(rows, items[-1][STORED_NAMES["list_sk"]]["S"] if more else None)

    def query_pool(self, pool: str, *, after: str | None = None, limit: int = PAGE_ROWS_MAX) -> Page:
        text = "" if after is None else "{} > {}"
        items, more = self._query(Table.STATE, "pool", pool_partition(pool), text, (after or "",), limit=limit)
        rows = tuple(_record(item) for item in items)
        return Page(rows, items[-1][STORED_NAMES["pool_sk"]]["S"] if more else None)

    def query_due(
        self, shard: str, *, until: str, after: str | None = None, limit: int = PAGE_ROWS_MAX
    ) -> tuple[tuple[DueRow, ...], str | None]:
        last = until + "\U0010ffff"
        # Entries are unique, so the next text after one excludes it and nothing else.
        first = "" if after is None else after + "\x00"
        if first > last:
            return (), None
        text, bounds = ("{} BETWEEN {} AND {}", (first, last)) if first else ("{} <= {}", (last,))
        items, more = self._query(Table.STATE, "due", shard, text, bounds, limit=limit)
        rows = tuple(_due_row(item) for item in items)
        return rows, rows[-1].due if more else None

    def _query(
        self, table: Table, index: str | None, pk: str, text: str, bounds: Sequence[str], *, limit: int,
        reverse: bool = False, start: Wire | None = None,
    ) -> tuple[list[Wire], bool]:  # fmt: skip
        """Up to `limit` items, and whether there are more.

        One more item than asked for is read, because DynamoDB gives a position to go on from also at the end. An
        answer may be cut short, or even be empty, with more to come.
        """
        model = self._models[table]
        expressions = Expressions(model)
        keys = (f"{index}_pk", f"{index}_sk") if index else ("pk", "sk")
        arguments = {
            "TableName": self._names[table], "ScanIndexForward": not reverse,
            "KeyConditionExpression": expressions.key_range(keys[0], pk, keys[1], text, bounds),
            **expressions.arguments(), **({"IndexName": index} if index else {"ConsistentRead": True}),
        }  # fmt: skip
        items: list[Wire] = []
        for _ in range(limit + 1 + EMPTY_ANSWERS_MAX):
            position = {"ExclusiveStartKey": start} if start else {}
            answer = self._call("Query", {**arguments, **position, "Limit": limit + 1 - len(items)})
            items.extend(answer["Items"])
            start = answer.get("LastEvaluatedKey")
            if not start or len(items) > limit:
                return items[:limit], len(items) > limit
        raise StoreUnavailable("The store answers without rows and without an end.")

    # Writes

    def transact(self, actions: Sequence[Action]) -> Outcome:
        checks.check(actions)
        outcome = self._write(actions[0]) if checks.is_plain(actions) else self._transact(actions)
        if isinstance(outcome, Refused) and self.ledger.measuring:
            self.ledger.charge(refused_units(actions, outcome))
        return outcome

    def _write(self, action: Action) -> Outcome:
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

    def _transact(self, actions: Sequence[Action]) -> Outcome:
        sent = [{_MEMBERS[type(action)]: self._arguments(action)} for action in actions]
        try:
            self._send("TransactWriteItems", {"TransactItems": sent})
        except ClientError as error:
            return self._cancelled(actions, error)
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
        """One action as a member of a transaction, or as the arguments of its plain operation."""
        key = checks.key_of(action)
        model = self._models[key.table]
        expressions = Expressions(model)
        arguments: dict[str, Any] = {
            "TableName": self._names[key.table], "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }  # fmt: skip
        if isinstance(action, Put):
            arguments["Item"] = wire_item(model, to_row(action.record))
        else:
            arguments["Key"] = _key(key)
        if isinstance(action, Update):
            arguments["UpdateExpression"] = expressions.changes(action)
        when = (Present(), *action.when) if isinstance(action, Update) else action.when
        if when:
            arguments["ConditionExpression"] = expressions.all_of(when)
        return {**arguments, **expressions.arguments()}

    # The connection

    def _call(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._send(operation, arguments)
        except ClientError as error:
            raise _failure(operation, error) from error

    def _send(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """One call. A refusal is left to the caller, as `ClientError`."""
        arguments["ReturnConsumedCapacity"] = "TOTAL" if self.ledger.measuring else "NONE"
        try:
            return self._connected().dispatch(operation, arguments)
        except (BotoCoreError, ResponseParserError) as error:
            raise StoreUnavailable(f"The store did not answer {operation}; the call may be repeated.") from error

    def hooks(self) -> Any:
        """botocore's events of our client: where tests inject faults."""
        return self._connected().client.meta.events

    def _connected(self) -> Connection:
        """The connection with our hooks on its client, which PynamoDB makes anew while it finds no credentials."""
        with self._lock:
            client = self._connection.client
            if client is not self._prepared:
                events = client.meta.events
                events.register("needs-retry.dynamodb", Resend(self._clock, self._backoff_seconds))
                events.register("response-received.dynamodb", self.ledger.received)
                self._prepared = client
        return self._connection


_MEMBERS = {Put: "Put", Update: "Update", Delete: "Delete", Check: "ConditionCheck"}


def _key(key: Key) -> Wire:
    return {"pk": {"S": key.pk}, "sk": {"S": key.sk}}


def _record(item: Wire) -> Record:
    known = KINDS.get(item["kind"]["S"])
    wanted = ("kind", "doc", *(known.record.native if known else ()))
    return from_row({name: native(item[name]) for name in wanted if name in item})


def _due_row(item: Wire) -> DueRow:
    key = Key(Table.STATE, item["pk"]["S"], item["sk"]["S"])
    status = item["status"]["S"] if "status" in item else ""
    return DueRow(item["kind"]["S"], key, status, item[STORED_NAMES["due_sk"]]["S"])


def _answer(error: ClientError) -> dict[str, Any]:
    """What DynamoDB answered; PynamoDB keeps it only on the cause of its own error."""
    original = error.__cause__
    return cast(dict[str, Any], original.response if isinstance(original, ClientError) else error.response)


def _failure(operation: str, error: ClientError) -> DifferentlyError:
    answer = _answer(error)
    code = answer["Error"]["Code"]
    if code in THROTTLES and not answer.get(DOUBT):
        return StoreThrottled("The store has too much to do right now; repeat the call in a second.")
    if code == "ValidationException" and "size" in answer["Error"].get("Message", ""):
        return PayloadTooLarge("This would make a row larger than the store keeps.")
    return StoreUnavailable(f"The store refused {operation} ({code}).")
