"""An image of AWS Lambda MicroVMs for this installation alone, from which its pool makes sandboxes.

The image is built by AWS from an archive: the Dockerfile and agent of examples/lambda-microvm-image, or a folder of the
operator's own, with the agent's program in it. Nothing of this was run against AWS yet; see
docs/providers/aws-lambda-microvms.md.
"""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Aws, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from ..configuration import Configuration
from ..constructs.function import retention
from ..names import Names
from ..permissions import LOGGING

HOOK_PORT: Final = 9000
RUN_SECONDS: Final = 30
READY_SECONDS: Final = 300
INTERNET: Final = "aws:network-connector:aws-network-connector:INTERNET_EGRESS"


class MicrovmsStack(Stack):
    def __init__(
        self, scope: Construct, construct_id: str, configuration: Configuration, names: Names, **stack: Any
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        chosen = configuration.microvms
        artifact = assets.Asset(self, "Artifact", path=chosen.folder)
        log = logs.LogGroup(
            self, "Log", log_group_name=f"/differently/{names.installation}/microvms",
            retention=retention(configuration.logs.days), removal_policy=RemovalPolicy.DESTROY,
        )  # fmt: skip
        role = iam.Role(
            self, "BuildRole", role_name=names.role("microvms-build", self.region),
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )  # fmt: skip
        archive = f"{artifact.bucket.bucket_arn}/{artifact.s3_object_key}"
        role.add_to_policy(iam.PolicyStatement(sid="Archive", actions=["s3:GetObject"], resources=[archive]))
        role.add_to_policy(iam.PolicyStatement(sid="Logs", actions=list(LOGGING), resources=[log.log_group_arn]))
        image = lambda_.CfnMicrovmImage(
            self,
            "Image",
            name=names.microvms,
            description="Differently: sandboxes of this installation",
            base_image_arn=chosen.base_image_arn or "",
            base_image_version=chosen.base_image_version or "",
            build_role_arn=role.role_arn,
            code_artifact=lambda_.CfnMicrovmImage.CodeArtifactProperty(uri=artifact.s3_object_url),
            cpu_configurations=[lambda_.CfnMicrovmImage.CpuConfigurationProperty(architecture="ARM_64")],
            resources=[lambda_.CfnMicrovmImage.ResourcesProperty(minimum_memory_in_mib=chosen.memory_mib)],
            # While it is built the image installs what its Dockerfile names; a sandbox made from it reaches nothing.
            egress_network_connectors=[f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{INTERNET}"],
            additional_os_capabilities=[],
            environment_variables=[],
            hooks=lambda_.CfnMicrovmImage.HooksProperty(
                port=HOOK_PORT,
                microvm_hooks=lambda_.CfnMicrovmImage.MicrovmHooksProperty(
                    run="ENABLED", run_timeout_in_seconds=RUN_SECONDS
                ),
                microvm_image_hooks=lambda_.CfnMicrovmImage.MicrovmImageHooksProperty(
                    ready="ENABLED", ready_timeout_in_seconds=READY_SECONDS
                ),
            ),
            logging=lambda_.CfnMicrovmImage.LoggingProperty(
                cloud_watch=lambda_.CfnMicrovmImage.CloudWatchLoggingProperty(log_group=log.log_group_name)
            ),
        )
        image.node.add_dependency(role)
        CfnOutput(self, "ImageArn", value=self._arn(names))

    @staticmethod
    def _arn(names: Names) -> str:
        return f"arn:{Aws.PARTITION}:lambda:{Aws.REGION}:{Aws.ACCOUNT_ID}:microvm-image:{names.microvms}"
