"""The bucket where large files lie between the client that sends them and the sandbox that gets them."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ..configuration import Configuration
from ..nag import accept

KEPT_DAYS = 1
"""The shortest that S3 offers; an upload is removed when it is used, and this is for those that are not."""


class StagingBucket(s3.Bucket):
    """Nothing in it is public, unencrypted, sent in clear, versioned or old."""

    def __init__(self, scope: Construct, construct_id: str, configuration: Configuration) -> None:
        super().__init__(
            scope,
            construct_id,
            # The account's own key of S3: no role is given anything on it, and it costs nothing while nobody uploads.
            encryption=s3.BucketEncryption.KMS_MANAGED,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="forget",
                    expiration=Duration.days(KEPT_DAYS),
                    abort_incomplete_multipart_upload_after=Duration.days(KEPT_DAYS),
                )
            ],
            cors=[_from_browsers(configuration)] if configuration.api.allowed_origins else [],
            removal_policy=RemovalPolicy.RETAIN if configuration.keep_data else RemovalPolicy.DESTROY,
        )
        accept(
            self,
            "AwsSolutions-S1",
            "Whoever sends or reads a file is in the API's own log; a second bucket would outlive what it tells about.",
        )


def _from_browsers(configuration: Configuration) -> s3.CorsRule:
    """The origins that may call the API may send a file to an address that it gave them."""
    return s3.CorsRule(
        allowed_methods=[s3.HttpMethods.PUT],
        allowed_origins=list(configuration.api.allowed_origins),
        allowed_headers=["x-amz-checksum-sha256", "content-type"],
        max_age=600,
    )
