"""Backups of an installation and the way back from one, on the embedded AWS's tables."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.model.record import Table
from differently_core.runtime.clock import SystemClock, VirtualClock
from differently_core.store.dynamo import Credentials, DynamoStore
from differently_infra.admin import Refused
from differently_infra.recovery import Recovery
from tests.support.api import World
from tests.support.emulator import Emulator, Tables

FUNCTIONS = ["differently-worker", "differently-admin"]


class Lambda:
    """Reserved concurrency, of which the emulator would want whole functions."""

    def __init__(self) -> None:
        self.reserved: dict[str, int] = {}

    def put_function_concurrency(self, *, FunctionName: str, ReservedConcurrentExecutions: int) -> None:
        self.reserved[FunctionName] = ReservedConcurrentExecutions

    def delete_function_concurrency(self, *, FunctionName: str) -> None:
        del self.reserved[FunctionName]

    def get_function_concurrency(self, *, FunctionName: str) -> dict[str, int]:
        known = FunctionName in self.reserved
        return {"ReservedConcurrentExecutions": self.reserved[FunctionName]} if known else {}


class House:
    """An installation on tables of its own, and the means to recover it."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        made: Tables = emulator.tables()
        self.names = {Table.CONFIG: made.config, Table.STATE: made.state, Table.LOG: made.log}
        self.functions = Lambda()
        self.said: list[str] = []
        self.clock = VirtualClock()
        self.recovery = Recovery(self._client, self.names, FUNCTIONS, self.clock, self.said.append)
        self.world = World(self.store(self.names))
        self.world.pool("blue")
        self.tenant = self.world.tenant()

    def _client(self, service: str) -> Any:
        return self.functions if service == "lambda" else self._emulator.client(service)

    def store(self, names: dict[Table, str]) -> DynamoStore:
        credentials = Credentials(self._emulator.key_id, self._emulator.secret)
        return DynamoStore(names, region=self._emulator.region, host=self._emulator.url, credentials=credentials)

    def pools(self) -> list[str]:
        """As a fresh process sees them."""
        self.world.core.catalog.forget()
        found = self.world.call("GET", "/v1/admin/pools", token=self.world.operator).json()
        return [entry["name"] for entry in found["items"]]

    def live(self) -> list[str]:
        found = self.world.call("GET", "/v1/sandboxes", token=self.tenant.token).json()
        return [entry["id"] for entry in found["items"]]


@pytest.fixture
def house(emulator: Emulator) -> House:
    return House(emulator)


def test_an_installation_comes_back_as_it_was_backed_up(house: House) -> None:
    first = house.world.running(house.tenant)
    label = house.recovery.backup()
    second = house.world.running(house.tenant)
    house.world.pool("green")
    assert house.world.call("DELETE", f"/v1/sandboxes/{first}", token=house.tenant.token).status == 202
    house.world.settle()
    events = house.recovery._kinds(house.names[Table.LOG])

    suffix = house.recovery.restore(label=label)
    assert house.pools() == ["blue", "green"]
    assert house.recovery.check(suffix)
    house.recovery.stop()
    for _ in range(2):
        house.recovery.bring_back(suffix)
    house.recovery.start()

    assert house.pools() == ["blue"]
    assert house.live() == [first]
    assert house.world.call("GET", f"/v1/sandboxes/{second}", token=house.tenant.token).status == 404
    assert house.recovery._kinds(house.names[Table.LOG]) == events
    assert house.functions.reserved == {}


def test_it_works_after_it_came_back(house: House) -> None:
    """Whole rows were carried: indexes find them, conditions hold on them."""
    first = house.world.running(house.tenant)
    suffix = house.recovery.restore(label=house.recovery.backup())
    house.recovery.stop()
    house.recovery.bring_back(suffix)
    ran = house.world.call("POST", f"/v1/sandboxes/{first}/exec", {"command": "true"}, token=house.tenant.token)
    assert ran.json()["exitCode"] == 0
    assert house.world.call("DELETE", f"/v1/sandboxes/{first}", token=house.tenant.token).status == 202
    house.world.settle()
    assert house.live() == []


def test_a_moment_of_the_past_is_restored_too(house: House) -> None:
    """The embedded AWS gives the present one; that the call is right is all that it shows."""
    at = SystemClock().now()
    suffix = house.recovery.restore(at=at)
    assert suffix == f"restored-{at:%Y%m%dT%H%M%SZ}"
    assert house.recovery.restore(at=at) == suffix
    assert house.recovery.check(suffix)


def test_nothing_is_brought_back_while_functions_run(house: House) -> None:
    suffix = house.recovery.restore(label=house.recovery.backup())
    with pytest.raises(Refused, match="worker, differently-admin may still run"):
        house.recovery.bring_back(suffix)
    house.functions.reserved[FUNCTIONS[0]] = 0
    with pytest.raises(Refused, match="differently-admin may still run"):
        house.recovery.bring_back(suffix)


def test_what_is_not_whole_is_not_brought_back(house: House, emulator: Emulator) -> None:
    suffix = house.recovery.restore(label=house.recovery.backup())
    house.recovery.stop()
    restored = house.recovery.restored(house.names[Table.STATE], suffix)
    row = {"pk": {"S": "SBX#x"}, "sk": {"S": "META"}, "kind": {"S": "of a later version"}}
    emulator.client("dynamodb").put_item(TableName=restored, Item=row)
    with pytest.raises(Refused, match="not whole"):
        house.recovery.bring_back(suffix)
    assert any("1 rows cannot be read" in line for line in house.said)
    assert house.pools() == ["blue"]


def test_another_installation_s_rows_are_refused(house: House, emulator: Emulator) -> None:
    other = House(emulator)
    suffix = other.recovery.restore(label=other.recovery.backup())
    client = emulator.client("dynamodb")
    arns = other.recovery.backups()[suffix.removeprefix("restored-")]
    for which, table in house.names.items():
        client.restore_table_from_backup(TargetTableName=f"{table}-foreign", BackupArn=arns[which])
    house.recovery.stop()
    with pytest.raises(Refused, match="of another installation"):
        house.recovery.bring_back("foreign")


def test_a_backup_that_was_broken_off_is_told_and_not_used(house: House, emulator: Emulator) -> None:
    client = emulator.client("dynamodb")
    table = house.names[Table.CONFIG]
    client.create_backup(TableName=table, BackupName=f"{table}-20260101T000001Z")
    house.recovery.show()
    assert "backup 20260101T000001Z: without state, log, of no use" in house.said
    with pytest.raises(Refused, match="no whole backup"):
        house.recovery.restore(label="20260101T000001Z")


def test_a_write_that_is_put_off_is_sent_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    suffix = house.recovery.restore(label=house.recovery.backup())
    house.recovery.stop()
    send = house.recovery._dynamo.batch_write_item
    calls = 0

    def some(*, RequestItems: dict[str, list[Any]]) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        ((table, requests),) = RequestItems.items()
        if calls == 1:
            send(RequestItems={table: requests[:1]})
            return {"UnprocessedItems": {table: requests[1:]}}
        answer: dict[str, Any] = send(RequestItems=RequestItems)
        return answer

    monkeypatch.setattr(house.recovery._dynamo, "batch_write_item", some)
    house.recovery.bring_back(suffix)
    assert house.pools() == ["blue"]
    assert calls > 1
