"""Backups of an installation, and its way back from one.

    python -m differently_infra.recovery backup         an on-demand backup of the three tables
    python -m differently_infra.recovery list           which there are, and how far back each table can go
    python -m differently_infra.recovery restore        --at TIME or --backup LABEL: into new tables beside the old ones
    python -m differently_infra.recovery check          --suffix SUFFIX: whether restored tables are whole and ours
    python -m differently_infra.recovery stop           no function runs any more
    python -m differently_infra.recovery bring-back     --suffix SUFFIX: their rows into the tables in use, when stopped
    python -m differently_infra.recovery start          functions run again

Nothing is removed but by `bring-back`, which makes `config` and `state` what the restored tables hold; `log` is what
happened, and is never set back. How to use it: docs/how-to/back-up-and-restore.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import botocore.session
from boto3.dynamodb.types import TypeDeserializer
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from differently_core.model.record import Table
from differently_core.model.tenancy import Installation as InstallationRow
from differently_core.runtime.clock import Clock, SystemClock
from differently_core.store.codec import from_row

from .admin import Installation, Refused, configuration
from .configuration import FILE, Unusable
from .functions import FUNCTIONS

Client = Callable[[str], Any]
OUTPUTS: Final = {Table.CONFIG: "ConfigTableName", Table.STATE: "StateTableName", Table.LOG: "LogTableName"}
BROUGHT_BACK: Final = (Table.CONFIG, Table.STATE)
POLL_SECONDS: Final = 15.0
RESTORE_SECONDS_MAX: Final = 4 * 3600.0
BATCH_ROWS: Final = 25
"""DynamoDB's own bound on one write of a batch."""
RESENDS_MAX: Final = 10
Key = tuple[str, str]


class Recovery:
    """`tables` are those in use, `functions` the names of what may be running."""

    def __init__(
        self, client: Client, tables: Mapping[Table, str], functions: Sequence[str], clock: Clock,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._dynamo = client("dynamodb")
        self._lambda = client("lambda")
        self._tables = tables
        self._functions = functions
        self._clock = clock
        self._say = say

    # Backups

    def backup(self) -> str:
        """The label under which all three can be restored."""
        label = self._stamp(self._clock.now())
        for table in self._tables.values():
            self._dynamo.create_backup(TableName=table, BackupName=f"{table}-{label}"[-255:])
            self._say(f"{table}: backup {label}")
        return label

    def backups(self) -> dict[str, dict[Table, str]]:
        """ARNs by label; one that lacks a table was broken off."""
        found: dict[str, dict[Table, str]] = {}
        for which, table in self._tables.items():
            start: dict[str, str] = {}
            while True:
                page = self._dynamo.list_backups(TableName=table, BackupType="USER", **start)
                for entry in page["BackupSummaries"]:
                    label = entry["BackupName"].rpartition("-")[2]
                    found.setdefault(label, {})[which] = entry["BackupArn"]
                if "LastEvaluatedBackupArn" not in page:
                    break
                start = {"ExclusiveStartBackupArn": page["LastEvaluatedBackupArn"]}
        return found

    def show(self) -> None:
        for label, tables in sorted(self.backups().items()):
            missing = [table.value for table in self._tables if table not in tables]
            self._say(f"backup {label}" + (f": without {', '.join(missing)}, of no use" if missing else ""))
        for table in self._tables.values():
            described = self._dynamo.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
            window = described.get("PointInTimeRecoveryDescription", {})
            if window.get("PointInTimeRecoveryStatus") == "ENABLED":
                self._say(
                    f"{table}: any second from {window.get('EarliestRestorableDateTime', 'its beginning')} "
                    f"to {window.get('LatestRestorableDateTime', 'five minutes ago')}"
                )
            else:
                self._say(f"{table}: no second of the past: point-in-time recovery is off")

    # Restored tables

    def restore(self, *, at: datetime | None = None, label: str | None = None) -> str:
        """Into new tables, which are told as a suffix; the tables in use are not touched. Safe to repeat."""
        suffix = f"restored-{self._stamp(at) if at is not None else label}"
        arns = self.backups().get(label, {}) if label is not None else {}
        if label is not None and set(arns) != set(self._tables):
            raise Refused(f"There is no whole backup {label}; `list` tells which there are.")
        for which, table in self._tables.items():
            target = self.restored(table, suffix)
            if self._exists(target):
                self._say(f"{target} is there already")
            elif at is not None:
                self._dynamo.restore_table_to_point_in_time(
                    SourceTableName=table, TargetTableName=target, RestoreDateTime=at
                )
            else:
                self._dynamo.restore_table_from_backup(TargetTableName=target, BackupArn=arns[which])
        for table in self._tables.values():
            self._await(self.restored(table, suffix))
        self._say(f"restored, under the suffix {suffix}")
        return suffix

    @staticmethod
    def restored(table: str, suffix: str) -> str:
        return f"{table}-{suffix}"

    def _exists(self, table: str) -> bool:
        try:
            self._dynamo.describe_table(TableName=table)
        except self._dynamo.exceptions.ResourceNotFoundException:
            return False
        return True

    def _await(self, table: str) -> None:
        end = self._clock.monotonic() + RESTORE_SECONDS_MAX
        while self._dynamo.describe_table(TableName=table)["Table"]["TableStatus"] != "ACTIVE":
            if self._clock.monotonic() > end:
                raise Refused(f"{table} is not ready after {RESTORE_SECONDS_MAX / 3600:.0f} hours; repeat the command.")
            self._clock.sleep(POLL_SECONDS)

    def check(self, suffix: str) -> bool:
        """Whether every row can be read by this version, and they are the rows of this installation."""
        whole = True
        for which, table in self._tables.items():
            kinds, unreadable = self._kinds(self.restored(table, suffix))
            self._say(f"{which}: " + (", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds)) or "no row"))
            if unreadable:
                self._say(f"{which}: {unreadable} rows cannot be read by this version; run the one that wrote them")
                whole = False
        theirs, ours = (
            self._id(self.restored(self._tables[Table.CONFIG], suffix)),
            self._id(self._tables[Table.CONFIG]),
        )
        if theirs is None or ours not in (None, theirs):
            self._say(f"the restored tables are of installation {theirs}, and those in use of {ours}")
            whole = False
        return whole

    def _kinds(self, table: str) -> tuple[Counter[str], int]:
        kinds: Counter[str] = Counter()
        unreadable = 0
        for item in self._items(table):
            row = {name: _plain(value) for name, value in item.items()}
            try:
                kinds[from_row(row).kind] += 1
            except Exception:
                unreadable += 1
        return kinds, unreadable

    def _id(self, table: str) -> str | None:
        key = InstallationRow.key_of()
        found = self._dynamo.get_item(
            TableName=table, Key={"pk": {"S": key.pk}, "sk": {"S": key.sk}}, ConsistentRead=True
        ).get("Item")
        if found is None:
            return None
        record = from_row({name: _plain(value) for name, value in found.items()})
        return record.id if isinstance(record, InstallationRow) else None

    # And back

    def stop(self) -> None:
        """Nothing new begins; what runs ends within fifteen minutes."""
        for function in self._functions:
            self._lambda.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=0)
        self._say("stopped: wait fifteen minutes, so that what still runs has ended")

    def start(self) -> None:
        for function in self._functions:
            self._lambda.delete_function_concurrency(FunctionName=function)
        self._say("started")

    def bring_back(self, suffix: str) -> None:
        """Make `config` and `state` what the restored ones hold. Safe to repeat, and to undo by point-in-time recovery.

        Raises `Refused` while functions may run, or when `check` is not content.
        """
        running = [name for name in self._functions if self._reserved(name) != 0]
        if running:
            raise Refused(f"{', '.join(running)} may still run: `stop` first, and wait until calls have ended.")
        if not self.check(suffix):
            raise Refused("What was restored is not whole, or of another installation; nothing was changed.")
        for which in BROUGHT_BACK:
            self._copy(self.restored(self._tables[which], suffix), self._tables[which])

    def _reserved(self, function: str) -> int | None:
        found = self._lambda.get_function_concurrency(FunctionName=function).get("ReservedConcurrentExecutions")
        return int(found) if found is not None else None

    def _copy(self, source: str, target: str) -> None:
        """Rows first and removals last: what dies in between has lost nothing, and is repeated."""
        kept: set[Key] = set()

        def puts() -> Iterator[dict[str, Any]]:
            for item in self._items(source):
                kept.add(_key(item))
                yield {"PutRequest": {"Item": item}}

        written = self._write(target, puts())
        gone = [_key(item) for item in self._items(target, keys_alone=True) if _key(item) not in kept]
        self._write(target, ({"DeleteRequest": {"Key": {"pk": {"S": pk}, "sk": {"S": sk}}}} for pk, sk in gone))
        self._say(f"{target}: {written} rows written, {len(gone)} removed")

    def _write(self, table: str, requests: Iterator[dict[str, Any]]) -> int:
        count = 0
        batch: list[dict[str, Any]] = []
        for request in requests:
            batch.append(request)
            count += 1
            if len(batch) == BATCH_ROWS:
                self._send(table, batch)
                batch = []
        if batch:
            self._send(table, batch)
        return count

    def _send(self, table: str, batch: list[dict[str, Any]]) -> None:
        for attempt in range(RESENDS_MAX):
            left = self._dynamo.batch_write_item(RequestItems={table: batch}).get("UnprocessedItems", {})
            if not left:
                return
            batch = left[table]
            self._clock.sleep(0.1 * 2**attempt)
        raise Refused(f"{table} takes no more writes right now; repeat the command, which goes on from the beginning.")

    def _items(self, table: str, *, keys_alone: bool = False) -> Iterator[dict[str, Any]]:
        some = {"ProjectionExpression": "pk, sk"} if keys_alone else {}
        for page in self._dynamo.get_paginator("scan").paginate(TableName=table, ConsistentRead=True, **some):
            yield from page["Items"]

    @staticmethod
    def _stamp(at: datetime) -> str:
        return at.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")


def _key(item: Mapping[str, Any]) -> Key:
    return item["pk"]["S"], item["sk"]["S"]


_DESERIALIZER: Final = TypeDeserializer()


def _plain(value: Mapping[str, Any]) -> Any:
    found = _DESERIALIZER.deserialize(value)
    return found if isinstance(found, str | bool) else int(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m differently_infra.recovery")
    parser.add_argument("--config", type=Path, help=f"the configuration; {FILE} in this folder if there is one")
    parser.add_argument("--name", help="the installation's name, if it is another than the configuration's")
    commands = parser.add_subparsers(required=True, dest="command")
    for name in ("backup", "list", "stop", "start"):
        commands.add_parser(name)
    restore = commands.add_parser("restore").add_mutually_exclusive_group(required=True)
    restore.add_argument("--at", type=_time, help="a time with its offset, such as 2026-11-30T10:00:00Z")
    restore.add_argument("--backup")
    for name in ("check", "bring-back"):
        commands.add_parser(name).add_argument("--suffix", required=True)
    return parser


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError("say its offset, such as 2026-11-30T10:00:00Z")
    return found


def main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    try:
        chosen = configuration(given)
        installation = Installation(chosen)
        session = botocore.session.get_session()
        recovery = Recovery(
            lambda service: session.create_client(service, config=Config(retries={"mode": "standard"})),
            {table: installation.output("Data", output) for table, output in OUTPUTS.items()},
            [f"{chosen.name}-{function}" for function in FUNCTIONS],
            SystemClock(),
            lambda text: print(text, flush=True),
        )
        return int(not _run(recovery, given))
    except (Refused, Unusable) as refusal:
        print(f"recovery: {refusal}", file=sys.stderr)
    except ClientError as error:
        said = error.response["Error"]
        print(f"recovery: AWS refused: {said.get('Code')}: {said.get('Message')}", file=sys.stderr)
    except BotoCoreError as error:
        print(f"recovery: AWS was not reached: {type(error).__name__}", file=sys.stderr)
    return 1


def _run(recovery: Recovery, given: Any) -> bool:
    match given.command:
        case "backup":
            recovery.backup()
        case "list":
            recovery.show()
        case "restore":
            recovery.restore(at=given.at, label=given.backup)
        case "check":
            return recovery.check(given.suffix)
        case "bring-back":
            recovery.bring_back(given.suffix)
        case "stop":
            recovery.stop()
        case _:
            recovery.start()
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
