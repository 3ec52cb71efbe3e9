"""What the store believes of the tables is what is deployed, and what it believes of records is what they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from differently_core.model.record import Record, Table
from differently_core.store.codec import INDEX_FIELDS, KINDS, STORED_NAMES
from differently_core.store.tables import models
from tests.support.emulator import TEMPLATE

DEFAULTS: dict[str, dict[str, Any]] = {
    "api_key": {"version": 1},
    "attempt": {"version": 1, "cleanup_failures": 0},
    "counter": {
        "free_cpu_millis": 10**12, "free_memory_mib": 10**12, "free_disk_gib": 10**12,
        "limit_cpu_millis": 10**12, "limit_memory_mib": 10**12, "limit_disk_gib": 10**12,
    },
    "org": {"version": 1, "weight": 1},
    "pool": {"version": 1, "state": "active"},
    "policy": {"version": 1},
    "project": {"version": 1},
    "sandbox": {"version": 1, "generation": 1, "attempt": 0, "failures": 0, "priority": 0, "idempotent": False},
    "template": {"version": 1, "cpu_millis": 1000, "memory_mib": 512, "disk_gib": 1},
}  # fmt: skip
NESTED_DEFAULTS: dict[str, dict[str, Any]] = {
    "org": {
        "limits": {
            "total": {"sandboxes": 100, "cpu_millis": 10**12, "memory_mib": 10**12, "disk_gib": 10**12},
            "each": {"sandboxes": 1, "cpu_millis": 64_000, "memory_mib": 262_144, "disk_gib": 2_048},
            "ttl_seconds_max": 604_800, "queued_max": 10_000, "snapshots_max": 100,
            "snapshot_gib_max": 10**12,
        }
    },
    "policy": {
        "rules": {
            "external": "never", "external_pools": [], "allowed_pools": None, "denied_pools": [],
            "classifications": {}, "egress": None, "pool_egress": {}, "shorter_lifetime": None,
            "secrets_in_env": False, "retention_seconds": None, "strategy": None,
            "command_log": None,
            "snapshot_retention_seconds": None,
        },
    },
}  # fmt: skip


def deployed() -> dict[str, dict[str, Any]]:
    """Each table's properties, from the template that ships."""
    resources = json.loads(TEMPLATE.read_text(encoding="utf-8"))["Resources"]
    return {
        logical_id[:-8].lower(): resource["Properties"]
        for logical_id, resource in resources.items()
        if resource["Type"] == "AWS::DynamoDB::GlobalTable"
    }


def shape(keys: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return sorted((key["AttributeName"], key["KeyType"]) for key in keys)


@pytest.mark.parametrize("table", list(Table))
def test_the_models_have_the_keys_and_indexes_of_the_deployed_tables(table: Table) -> None:
    model, properties = models({table: "any"})[table], deployed()[table.value]

    schema = model._get_schema()

    assert shape(schema["key_schema"]) == shape(properties["KeySchema"])
    indexes = {index["IndexName"]: index for index in properties.get("GlobalSecondaryIndexes", [])}
    assert {index["index_name"] for index in schema["global_secondary_indexes"]} == set(indexes)
    for index in schema["global_secondary_indexes"]:
        there = indexes[index["index_name"]]
        assert shape(index["key_schema"]) == shape(there["KeySchema"])
        assert set(index["projection"]["NonKeyAttributes"]) == set(there["Projection"]["NonKeyAttributes"])
    types = {
        definition["AttributeName"]: definition["AttributeType"] for definition in properties["AttributeDefinitions"]
    }
    assert {entry["AttributeName"]: entry["AttributeType"] for entry in schema["attribute_definitions"]} == types


def test_the_purge_time_is_the_attribute_that_the_table_purges_by() -> None:
    assert deployed()["state"]["TimeToLiveSpecification"]["AttributeName"] == STORED_NAMES["purge_at"]


def test_two_stores_in_one_process_have_their_own_tables() -> None:
    one, two = models({Table.STATE: "one"}), models({Table.STATE: "two"})

    assert (one[Table.STATE].Meta.table_name, two[Table.STATE].Meta.table_name) == ("one", "two")


@pytest.mark.parametrize("name", sorted(KINDS))
def test_what_a_kind_declares_is_there(name: str) -> None:
    kind = KINDS[name]
    model = models({table: table.value for table in Table})[kind.record.table]

    assert kind.record.kind == name
    assert not set(kind.record.native) & ({"pk", "sk", "kind", "doc"} | set(INDEX_FIELDS))
    for field, stored_as in kind.fields.items():
        attribute = model.get_attributes()[field]
        assert attribute.attr_type == {str: "S", int: "N", bool: "BOOL"}[stored_as]
        assert attribute.attr_name == STORED_NAMES.get(field, field)


def test_every_record_of_the_model_is_known_to_the_store() -> None:
    def below(record: type[Record]) -> set[type[Record]]:
        return {record}.union(*(below(child) for child in record.__subclasses__()))

    found = below(Record) - {Record}
    # One without a kind is what several kinds share, and is never stored itself.
    modelled = {
        record for record in found if record.__module__.startswith("differently_core.") and hasattr(record, "kind")
    }

    assert {kind.record for kind in KINDS.values()} == modelled


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_a_default_is_part_of_the_row_format(name: str) -> None:
    """Rows leave out what equals its default, so an old row would read as the new default.

    New fields may come with any default; one that changes needs a migration of the rows first, then a change here.
    """
    fields = KINDS[name].record.model_fields

    assert {field: fields[field].default for field in DEFAULTS[name]} == DEFAULTS[name]
    for field, value in NESTED_DEFAULTS.get(name, {}).items():
        told = json.loads(fields[field].default.model_dump_json())
        assert {key: told[key] for key in value} == value
