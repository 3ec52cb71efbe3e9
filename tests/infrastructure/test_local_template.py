"""The template that ships for one machine: it is current, and the embedded AWS makes the real tables from it."""

from __future__ import annotations

import json

import pytest

from differently_infra.local_template import SHIPPED, rendered
from tests.support.emulator import Emulator, Tables


def test_the_shipped_template_is_what_the_data_stack_synthesizes_to() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == rendered(), "run `make template`"


def test_it_needs_no_bootstrapped_account_and_no_asset() -> None:
    shipped = json.loads(SHIPPED.read_text(encoding="utf-8"))

    assert set(shipped) == {"Outputs", "Resources"}
    assert {resource["Type"] for resource in shipped["Resources"].values()} == {
        "AWS::DynamoDB::GlobalTable",
        "AWS::KMS::Key",
        "AWS::S3::Bucket",
        "AWS::S3::BucketPolicy",
    }
    assert len(SHIPPED.read_bytes()) < 51_200, "CreateStack takes no larger template inline"


@pytest.fixture(scope="module", params=["CloudFormation", "CreateTable"])
def tables(request: pytest.FixtureRequest, emulator: Emulator) -> Tables:
    return emulator.create_stack() if request.param == "CloudFormation" else emulator.tables()


def test_the_emulator_makes_three_tables_with_indexes_and_one_stream(emulator: Emulator, tables: Tables) -> None:
    client = emulator.client("dynamodb")
    made = {name: client.describe_table(TableName=name)["Table"] for name in (tables.config, tables.state, tables.log)}

    assert {table["TableStatus"] for table in made.values()} == {"ACTIVE"}
    indexes = {index["IndexName"]: index for index in made[tables.state]["GlobalSecondaryIndexes"]}
    assert set(indexes) == {"list", "due", "pool"}
    assert {index["Projection"]["ProjectionType"] for index in indexes.values()} == {"INCLUDE"}
    assert "GlobalSecondaryIndexes" not in made[tables.config]
    assert made[tables.log]["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    assert "StreamSpecification" not in made[tables.state]


def test_a_row_is_found_through_both_indexes(emulator: Emulator, tables: Tables) -> None:
    client = emulator.client("dynamodb")
    row = {"pk": "a", "sk": "b", "listPk": "l", "listSk": "1", "duePk": "d", "dueSk": "2", "kind": "k", "doc": "{}"}
    client.put_item(TableName=tables.state, Item={name: {"S": value} for name, value in row.items()})

    def found(index: str, key: str, value: str) -> set[str]:
        answer = client.query(
            TableName=tables.state,
            IndexName=index,
            KeyConditionExpression=f"{key} = :value",
            ExpressionAttributeValues={":value": {"S": value}},
        )
        (item,) = answer["Items"]
        return set(item)

    assert found("list", "listPk", "l") == {"pk", "sk", "listPk", "listSk", "kind", "doc"}
    assert found("due", "duePk", "d") == {"pk", "sk", "duePk", "dueSk", "kind"}


def test_a_log_row_comes_out_of_the_stream(emulator: Emulator, tables: Tables) -> None:
    emulator.client("dynamodb").put_item(TableName=tables.log, Item={"pk": {"S": "a"}, "sk": {"S": "b"}})

    streams = emulator.client("dynamodbstreams")
    shards = streams.describe_stream(StreamArn=tables.log_stream_arn)["StreamDescription"]["Shards"]
    records = []
    for shard in shards:
        iterator = streams.get_shard_iterator(
            StreamArn=tables.log_stream_arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records += streams.get_records(ShardIterator=iterator)["Records"]
    assert [(record["eventName"], record["dynamodb"]["NewImage"]["sk"]) for record in records] == [
        ("INSERT", {"S": "b"})
    ]
