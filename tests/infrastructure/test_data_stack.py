"""The data stack as CloudFormation gets it."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App
from aws_cdk.assertions import Match, Template

from differently_core.model.record import Table
from differently_infra.configuration import Api, Audit, Configuration, Data
from differently_infra.stacks.data import DataStack

TABLE = "AWS::DynamoDB::GlobalTable"


def tables(template: Template) -> dict[str, dict]:
    """Each table's resource, by the lower-case name that it has in the stack."""
    return {logical_id[:-8].lower(): resource for logical_id, resource in template.find_resources(TABLE).items()}


def attribute(name: str) -> dict[str, str]:
    return {"AttributeName": name, "AttributeType": "S"}


def test_there_is_one_table_for_each_that_the_store_knows(data_template: Template) -> None:
    assert set(tables(data_template)) == {table.value for table in Table}


@pytest.mark.parametrize("table", [table.value for table in Table])
def test_a_table_is_on_demand_restorable_and_hard_to_lose(data_template: Template, table: str) -> None:
    resource = tables(data_template)[table]
    properties = resource["Properties"]

    assert properties["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    assert attribute("pk") in properties["AttributeDefinitions"]
    assert attribute("sk") in properties["AttributeDefinitions"]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"
    (replica,) = properties["Replicas"]
    assert replica["DeletionProtectionEnabled"] is True
    assert replica["PointInTimeRecoverySpecification"] == {
        "PointInTimeRecoveryEnabled": True,
        "RecoveryPeriodInDays": 35,
    }
    assert properties["SSESpecification"] == {"SSEEnabled": False}, "AWS-owned key: no charge for each request"
    assert "TableName" not in properties


def test_state_has_its_three_indexes_and_no_other_table_has_any(data_template: Template) -> None:
    made = tables(data_template)

    assert [name for name, table in made.items() if "GlobalSecondaryIndexes" in table["Properties"]] == ["state"]
    indexes = {index["IndexName"]: index for index in made["state"]["Properties"]["GlobalSecondaryIndexes"]}
    assert {name: [key["AttributeName"] for key in index["KeySchema"]] for name, index in indexes.items()} == {
        "list": ["listPk", "listSk"],
        "due": ["duePk", "dueSk"],
        "pool": ["poolPk", "poolSk"],
    }
    for name in ("listPk", "listSk", "duePk", "dueSk", "poolPk", "poolSk"):
        assert attribute(name) in made["state"]["Properties"]["AttributeDefinitions"]


def test_the_list_index_carries_whole_records_and_the_due_index_only_what_a_sweep_needs(
    data_template: Template,
) -> None:
    indexes = tables(data_template)["state"]["Properties"]["GlobalSecondaryIndexes"]
    carried = {index["IndexName"]: index["Projection"] for index in indexes}

    assert {projection["ProjectionType"] for projection in carried.values()} == {"INCLUDE"}
    assert {"kind", "doc", "version", "status", "generation", "org", "project"} <= set(
        carried["list"]["NonKeyAttributes"]
    )
    assert set(carried["due"]["NonKeyAttributes"]) == {"kind", "status"}


def test_only_state_purges_and_only_log_streams(data_template: Template) -> None:
    made = tables(data_template)

    purging = {
        name: table["Properties"]["TimeToLiveSpecification"]
        for name, table in made.items()
        if "TimeToLiveSpecification" in table["Properties"]
    }
    assert purging == {"state": {"AttributeName": "purgeAt", "Enabled": True}}
    streaming = {
        name: table["Properties"]["StreamSpecification"]
        for name, table in made.items()
        if "StreamSpecification" in table["Properties"]
    }
    assert streaming == {"log": {"StreamViewType": "NEW_IMAGE"}}


def test_the_key_of_secrets_rotates_and_outlives_the_stack(data_template: Template) -> None:
    (key,) = data_template.find_resources("AWS::KMS::Key").values()

    assert key["DeletionPolicy"] == key["UpdateReplacePolicy"] == "Retain"
    assert key["Properties"]["EnableKeyRotation"] is True


def test_the_outputs_name_what_the_other_parts_need(data_template: Template) -> None:
    outputs = data_template.find_outputs("*")

    tables = {"ConfigTableName", "StateTableName", "LogTableName"}
    assert set(outputs) == {*tables, "LogStreamArn", "SecretsKeyArn", "StagingBucketName", "ArchiveBucketName"}


def test_throughput_has_no_ceiling_unless_one_is_chosen(data_template: Template) -> None:
    data_template.resource_properties_count_is(TABLE, {"WriteOnDemandThroughputSettings": Match.absent()}, 3)

    chosen = Template.from_stack(
        DataStack(App(), "Data", Configuration(data=Data(max_read_units=400, max_write_units=200)))
    )
    chosen.resource_properties_count_is(TABLE, {"WriteOnDemandThroughputSettings": {"MaxWriteRequestUnits": 200}}, 3)
    for table in tables(chosen).values():
        (replica,) = table["Properties"]["Replicas"]
        assert replica["ReadOnDemandThroughputSettings"] == {"MaxReadRequestUnits": 400}
        for index in replica.get("GlobalSecondaryIndexes", []):
            assert index["ReadOnDemandThroughputSettings"] == {"MaxReadRequestUnits": 400}


def test_a_thrown_away_installation_takes_its_data_with_it() -> None:
    template = Template.from_stack(DataStack(App(), "Data", Configuration(keep_data=False)))

    for kind in (TABLE, "AWS::KMS::Key"):
        for resource in template.find_resources(kind).values():
            assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Delete"
    for table in tables(template).values():
        assert table["Properties"]["Replicas"][0]["DeletionProtectionEnabled"] is False


def bucket(template: Template, name: str) -> dict[str, Any]:
    """The properties of the bucket whose logical id begins so."""
    found = template.find_resources("AWS::S3::Bucket").items()
    (properties,) = [resource["Properties"] for logical_id, resource in found if logical_id.startswith(name)]
    made: dict[str, Any] = properties
    return made


def denied(template: Template, name: str) -> list[Any]:
    """The conditions on which the bucket's policy denies."""
    found = template.find_resources("AWS::S3::BucketPolicy").items()
    (policy,) = [resource for logical_id, resource in found if logical_id.startswith(name)]
    statements = policy["Properties"]["PolicyDocument"]["Statement"]
    return [entry["Condition"] for entry in statements if entry["Effect"] == "Deny"]


def test_what_lies_in_the_archive_is_private_and_locked(data_template: Template) -> None:
    properties = bucket(data_template, "Archive")

    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    assert properties["ObjectLockEnabled"] is True
    assert properties["ObjectLockConfiguration"]["Rule"]["DefaultRetention"] == {"Mode": "GOVERNANCE", "Days": 400}
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied(data_template, "Archive")


def test_a_lock_can_be_one_that_nobody_lifts_and_is_left_out_where_all_is_thrown_away() -> None:
    sure = Configuration(audit=Audit(roots_days=3_650, compliance=True))
    locked = bucket(Template.from_stack(DataStack(App(), "Data", sure)), "Archive")["ObjectLockConfiguration"]
    assert locked["Rule"]["DefaultRetention"] == {"Mode": "COMPLIANCE", "Days": 3_650}

    thrown_away = Template.from_stack(DataStack(App(), "Data", Configuration(keep_data=False)))
    assert "ObjectLockConfiguration" not in bucket(thrown_away, "Archive")


def test_what_lies_in_staging_is_private_encrypted_and_forgotten(data_template: Template) -> None:
    properties = bucket(data_template, "Staging")

    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms"}
    (lifecycle,) = properties["LifecycleConfiguration"]["Rules"]
    assert (lifecycle["ExpirationInDays"], lifecycle["Status"]) == (1, "Enabled")
    assert "Prefix" not in lifecycle
    assert "VersioningConfiguration" not in properties
    assert "CorsConfiguration" not in properties
    conditions = denied(data_template, "Staging")
    assert {"Bool": {"aws:SecureTransport": "false"}} in conditions
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in conditions


def test_a_listed_origin_may_send_to_staging() -> None:
    configuration = Configuration(api=Api(allowed_origins=("https://console.example.com",)))
    template = Template.from_stack(DataStack(App(), "Data", configuration))
    (rule,) = bucket(template, "Staging")["CorsConfiguration"]["CorsRules"]
    assert (rule["AllowedMethods"], rule["AllowedOrigins"]) == (["PUT"], ["https://console.example.com"])
