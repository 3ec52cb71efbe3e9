"""What proves and what bounds: the peppers of API keys, and the most that any function may do."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from ..configuration import Configuration
from ..nag import accept
from ..names import Names
from ..permissions import all_actions

PEPPER_CHARACTERS = 64


class SecretsStack(Stack):
    def __init__(
        self, scope: Construct, construct_id: str, configuration: Configuration, names: Names, **stack: Any
    ) -> None:
        super().__init__(scope, construct_id, **stack)

        self.pepper = secretsmanager.Secret(
            self,
            "Pepper",
            description="Peppers of API keys by version; a new version is added, never put in an old one's place",
            generate_secret_string=secretsmanager.SecretStringGenerator(
                secret_string_template="{}",
                generate_string_key="1",
                password_length=PEPPER_CHARACTERS,
                exclude_punctuation=True,
            ),
            removal_policy=RemovalPolicy.RETAIN if configuration.keep_data else RemovalPolicy.DESTROY,
        )
        accept(
            self.pepper,
            "AwsSolutions-SMG4",
            "Rotation by a timer would end every key: a version is added by the operator, see docs/how-to/deploy.md.",
        )

        boundary = iam.ManagedPolicy(
            self,
            "Boundary",
            managed_policy_name=names.boundary(self.region),
            description="The most that a function of Differently may do, whatever its own policy says",
            statements=[
                iam.PolicyStatement(
                    sid="Most",
                    actions=all_actions(vpc=configuration.network.vpc, microvms=configuration.microvms.enabled),
                    resources=["*"],
                )
            ],
        )
        accept(
            boundary,
            "AwsSolutions-IAM5[Resource::*]",
            "A boundary gives nothing; each role names its own resources, and this names every action there is.",
        )

        CfnOutput(self, "PepperSecretArn", value=self.pepper.secret_arn)
