"""The bucket where the roots of the audit log are kept: what is in it cannot be changed, and not removed for a time."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct

from ..configuration import Configuration
from ..nag import accept


class ArchiveBucket(s3.Bucket):
    """Locked by default: whoever puts an object need not ask for it, and the sealer may not do without.

    An installation that is thrown away has one without a lock, or its destroy would fail for years.
    """

    def __init__(self, scope: Construct, construct_id: str, configuration: Configuration) -> None:
        chosen = configuration.audit
        kept = Duration.days(chosen.roots_days)
        mode = s3.ObjectLockRetention.compliance if chosen.compliance else s3.ObjectLockRetention.governance
        locked = {"object_lock_default_retention": mode(kept)} if configuration.keep_data else {}
        super().__init__(
            scope,
            construct_id,
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=True,
            removal_policy=RemovalPolicy.RETAIN if configuration.keep_data else RemovalPolicy.DESTROY,
            **locked,
        )
        accept(self, "AwsSolutions-S1", "Only the sealer may write, and CloudTrail's data events tell who reads.")
