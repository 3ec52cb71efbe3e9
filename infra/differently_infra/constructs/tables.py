"""One table as all of ours are: on demand, restorable, and hard to lose."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from ..configuration import Configuration

RESTORABLE_DAYS = 35
"""The most that DynamoDB offers: a mistake noticed after a month can still be undone."""


class Table(dynamodb.TableV2):
    """A table with the keys `pk` and `sk`. It has no name of its own: who needs it reads the stack's outputs."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        configuration: Configuration,
        *,
        indexes: Sequence[dynamodb.GlobalSecondaryIndexPropsV2] = (),
        stream: dynamodb.StreamViewType | None = None,
        time_to_live: str | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            partition_key=text("pk"),
            sort_key=text("sk"),
            billing=dynamodb.Billing.on_demand(
                max_read_request_units=configuration.data.max_read_units,
                max_write_request_units=configuration.data.max_write_units,
            ),
            global_secondary_indexes=list(indexes),
            dynamo_stream=stream,
            time_to_live_attribute=time_to_live,
            encryption=dynamodb.TableEncryptionV2.dynamo_owned_key(),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True,
                recovery_period_in_days=RESTORABLE_DAYS,
            ),
            deletion_protection=configuration.keep_data,
            removal_policy=RemovalPolicy.RETAIN if configuration.keep_data else RemovalPolicy.DESTROY,
        )


def index(
    name: str, configuration: Configuration, *, partition: str, sort: str, carries: Sequence[str]
) -> dynamodb.GlobalSecondaryIndexPropsV2:
    """A sparse index: only rows that have both its keys are in it, with the attributes in `carries`."""
    return dynamodb.GlobalSecondaryIndexPropsV2(
        index_name=name,
        partition_key=text(partition),
        sort_key=text(sort),
        projection_type=dynamodb.ProjectionType.INCLUDE,
        non_key_attributes=list(carries),
        max_read_request_units=configuration.data.max_read_units,
        max_write_request_units=configuration.data.max_write_units,
    )


def text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
