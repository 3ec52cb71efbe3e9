"""One Lambda function as all of ours are: its own role with exact permissions, its own log, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from ..configuration import Configuration
from ..functions import FUNCTIONS, STREAM_HANDLER, Function, Grant, in_vpc, memory
from ..nag import accept
from ..names import Names
from ..packages import Packages
from ..permissions import IN_VPC, LOGGING, Resources, statements

WRAPPER = "/opt/bin/stream"
TRACED = "A request is followed by its id through every log line instead."
ARCHIVED = "Roots are named by organization and size; they lie under one prefix of a bucket that holds nothing else."
STAGED = "The names of uploads are not known beforehand; they lie under one prefix of a bucket that holds nothing else."
MICROVM_FINDING = "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:microvm:*]"
MICROVMS = "A MicroVM has its name from AWS; only this installation's image can be run."
VPC_REASON = "Lambda makes the interfaces of a VPC function in its name; EC2 knows no resource for that beforehand."


@dataclass(frozen=True)
class Surroundings:
    """What functions find around them. `tables`, the buckets, `queue_url` and the ARNs are of other stacks."""

    configuration: Configuration
    names: Names
    packages: Packages
    resources: Resources
    tables: Mapping[str, str]
    """Environment variable to table name."""
    staging_bucket: str
    archive_bucket: str
    queue_url: str
    deliver_url: str
    version: str
    vpc: ec2.IVpc | None = None
    security_group: ec2.ISecurityGroup | None = None


class Layers:
    """The two layers, made in each stack that has functions: sharing one would tie the stacks' updates together."""

    def __init__(self, scope: Construct, packages: Packages) -> None:
        self.all = [
            lambda_.LayerVersion(
                scope,
                f"{name.capitalize()}Layer",
                code=lambda_.Code.from_asset(str(folder)),
                compatible_runtimes=[lambda_.Runtime.PYTHON_3_13],
                compatible_architectures=[lambda_.Architecture.ARM_64],
                removal_policy=RemovalPolicy.DESTROY,
            )
            for name, folder in packages.layers.items()
        ]


class Handler(lambda_.Function):
    """`name` is a key of `FUNCTIONS`."""

    def __init__(self, scope: Construct, name: str, around: Surroundings, layers: Layers) -> None:
        function = FUNCTIONS[name]
        log_group = logs.LogGroup(
            scope,
            f"{name.capitalize()}Log",
            log_group_name=f"/aws/lambda/{around.names.function(name)}",
            retention=retention(around.configuration.logs.days),
            removal_policy=RemovalPolicy.DESTROY,
        )
        streamed = name == "data" and around.configuration.api.streaming
        inside = in_vpc(around.configuration, name)
        super().__init__(
            scope,
            name.capitalize(),
            function_name=around.names.function(name),
            description=f"Differently: {function.about}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=STREAM_HANDLER if streamed else function.handler,
            code=lambda_.Code.from_asset(str(around.packages.functions[function.package])),
            layers=layers.all,
            memory_size=memory(around.configuration, name),
            timeout=Duration.seconds(function.seconds),
            environment={**environment(function, around), **({"AWS_LAMBDA_EXEC_WRAPPER": WRAPPER} if streamed else {})},
            role=_role(scope, name, around, log_group),
            log_group=log_group,
            # A create that fails and is tried again passes worker and dispatch in turn, each time on a decision of its
            # own with a bound of its own; Lambda would take sixteen of them for a loop and drop the rest.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
            **({"vpc": around.vpc, "security_groups": [around.security_group]} if inside else {}),
        )
        for rule in ("AwsSolutions-L1", "Serverless-LambdaLatestVersion"):
            accept(self, rule, "The version that the byte code is made for and that is tested; raised with them.")
        accept(
            self,
            "Serverless-LambdaDLQ",
            "Invocations are synchronous, or their failure goes to a queue by the event invoke configuration.",
        )
        accept(self, "Serverless-LambdaTracing", TRACED)


def environment(function: Function, around: Surroundings) -> dict[str, str]:
    """Names of what the function may use, and of nothing else."""
    told = {
        Grant.STEP: {"WORKER_FUNCTION": around.names.function("worker")},
        Grant.RECONCILE: {"RECONCILE_FUNCTION": around.names.function("reconcile")},
        Grant.QUEUE: {"DISPATCH_QUEUE_URL": around.queue_url},
        Grant.TELL: {"DELIVER_QUEUE_URL": around.deliver_url},
        Grant.PUBLISH: {"EVENT_BUS": around.names.bus},
        Grant.WAIT: {"WAIT_MACHINE": around.resources.machine},
        Grant.PEPPER: {"PEPPER_SECRET": around.resources.pepper},
        Grant.UNSEAL: {"SECRETS_KEY": around.resources.secrets_key},
        Grant.STAGE: {"STAGING_BUCKET": around.staging_bucket},
        Grant.ARCHIVE: {"ARCHIVE_BUCKET": around.archive_bucket},
    }
    chosen = around.configuration
    made = {
        **around.tables,
        "DIFFERENTLY_VERSION": around.version,
        "LOG_LEVEL": chosen.logs.level,
        "METRICS": str(chosen.logs.metrics).lower(),
        "ADAPTERS_MINIMUM_LEVEL": chosen.adapters.minimum_level,
        **{name: str(seconds) for name, seconds in chosen.retention.seconds().items()},
    }
    for grant in function.grants:
        made.update(told.get(grant, {}))
    if function.package == "api" and chosen.api.allowed_origins:
        made["ALLOWED_ORIGINS"] = " ".join(chosen.api.allowed_origins)
    return made


def _role(scope: Construct, name: str, around: Surroundings, log_group: logs.LogGroup) -> iam.Role:
    chosen = around.configuration
    region = Stack.of(scope).region
    boundary = iam.ManagedPolicy.from_managed_policy_name(
        scope, f"{name.capitalize()}Boundary", around.names.boundary(region)
    )
    role = iam.Role(
        scope,
        f"{name.capitalize()}Role",
        role_name=around.names.role(name, region),
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        permissions_boundary=boundary,
    )
    # CloudWatch names a group's streams by the group's ARN and a star.
    role.add_to_policy(iam.PolicyStatement(sid="Logs", actions=list(LOGGING), resources=[log_group.log_group_arn]))
    for statement in statements(FUNCTIONS[name], around.resources):
        role.add_to_policy(statement)
    if in_vpc(chosen, name):
        role.add_to_policy(iam.PolicyStatement(sid="Vpc", actions=list(IN_VPC), resources=["*"]))
        accept(role, "AwsSolutions-IAM5[Resource::*]", VPC_REASON)
    if Grant.STAGE in FUNCTIONS[name].grants:
        accept(role, f"AwsSolutions-IAM5[Resource::{_imported(scope, around.resources.staged)}]", STAGED)
    if Grant.ARCHIVE in FUNCTIONS[name].grants:
        accept(role, f"AwsSolutions-IAM5[Resource::{_imported(scope, around.resources.archived)}]", ARCHIVED)
    accept(
        role, "AwsSolutions-IAM5", f"A log group's own streams. {VPC_REASON if in_vpc(chosen, name) else ''}".strip()
    )
    if Grant.MICROVMS in FUNCTIONS[name].all_grants and around.resources.microvms:
        accept(role, MICROVM_FINDING, MICROVMS)
    return role


def _imported(scope: Construct, arn: str) -> str:
    """How a rule names an ARN that another stack exports: by the export, and what comes behind it."""
    _, (exported, behind) = Stack.of(scope).resolve(arn)["Fn::Join"]
    return f"{exported['Fn::ImportValue']}{behind}"


def retention(days: int) -> Any:
    """CDK's name of a number of days."""
    names = {
        1: "ONE_DAY", 3: "THREE_DAYS", 5: "FIVE_DAYS", 7: "ONE_WEEK", 14: "TWO_WEEKS", 30: "ONE_MONTH",
        60: "TWO_MONTHS", 90: "THREE_MONTHS", 120: "FOUR_MONTHS", 150: "FIVE_MONTHS", 180: "SIX_MONTHS",
        365: "ONE_YEAR", 400: "THIRTEEN_MONTHS", 545: "EIGHTEEN_MONTHS", 731: "TWO_YEARS", 1096: "THREE_YEARS",
        1827: "FIVE_YEARS", 3653: "TEN_YEARS",
    }  # fmt: skip
    return logs.RetentionDays[names[days]]
