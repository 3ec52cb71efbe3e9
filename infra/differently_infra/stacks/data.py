"""Where everything exact is kept. This stack changes rarely and is never deleted with the rest."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from constructs import Construct

from differently_core.store.codec import DUE_PROJECTION, LIST_PROJECTION, POOL_PROJECTION, STORED_NAMES

from ..configuration import Configuration
from ..constructs.archive import ArchiveBucket
from ..constructs.staging import StagingBucket
from ..constructs.tables import Table, index


class DataStack(Stack):
    """Three tables: `config` what operators decide, `state` what is, `log` what happened. The key of secrets, the
    bucket where large files lie on their way, and the one that keeps roots of the log."""

    def __init__(self, scope: Construct, construct_id: str, configuration: Configuration, **stack: Any) -> None:
        super().__init__(scope, construct_id, **stack)

        self.config = Table(self, "Config", configuration)
        self.state = Table(
            self,
            "State",
            configuration,
            indexes=[
                index(
                    "list",
                    configuration,
                    partition=STORED_NAMES["list_pk"],
                    sort=STORED_NAMES["list_sk"],
                    carries=LIST_PROJECTION,
                ),
                index(
                    "due",
                    configuration,
                    partition=STORED_NAMES["due_pk"],
                    sort=STORED_NAMES["due_sk"],
                    carries=DUE_PROJECTION,
                ),
                index(
                    "pool",
                    configuration,
                    partition=STORED_NAMES["pool_pk"],
                    sort=STORED_NAMES["pool_sk"],
                    carries=POOL_PROJECTION,
                ),
            ],
            time_to_live=STORED_NAMES["purge_at"],
        )
        # The only stream: audit chain, usage and lifecycle events all start from it.
        self.log = Table(self, "Log", configuration, stream=dynamodb.StreamViewType.NEW_IMAGE)

        # Whoever loses this key loses every stored credential, so it stays when the stack goes.
        self.secrets_key = kms.Key(
            self,
            "SecretsKey",
            description="Seals the stored credentials of Differently, each field by itself",
            enable_key_rotation=True,
            removal_policy=RemovalPolicy.RETAIN if configuration.keep_data else RemovalPolicy.DESTROY,
        )

        self.staging = StagingBucket(self, "Staging", configuration)

        self.archive = ArchiveBucket(self, "Archive", configuration)

        CfnOutput(self, "ConfigTableName", value=self.config.table_name)
        CfnOutput(self, "StateTableName", value=self.state.table_name)
        CfnOutput(self, "LogTableName", value=self.log.table_name)
        CfnOutput(self, "LogStreamArn", value=self.log.table_stream_arn)
        CfnOutput(self, "SecretsKeyArn", value=self.secrets_key.key_arn)
        CfnOutput(self, "StagingBucketName", value=self.staging.bucket_name)
        CfnOutput(self, "ArchiveBucketName", value=self.archive.bucket_name)
