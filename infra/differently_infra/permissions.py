"""What each grant means in actions and exact resources.

Nothing else gives a function a permission. The permissions boundary is made from the same table, so a policy that is
added by mistake gives nothing that no function may do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import aws_iam as iam

from .functions import FUNCTIONS, Function, Grant

READ: Final = ("dynamodb:BatchGetItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query")
CHANGE: Final = ("dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
RECEIVING: Final = (
    "sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
)  # fmt: skip
ACTIONS: Final[Mapping[Grant, Sequence[str]]] = {
    Grant.KEYS: ("dynamodb:GetItem",),
    Grant.CONFIG: READ,
    Grant.DECIDE: CHANGE,
    Grant.STATE: (*READ, *CHANGE),
    Grant.LOG: ("dynamodb:PutItem",),
    Grant.FOLLOW: (
        "dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams",
    ),
    Grant.HISTORY: ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"),
    Grant.CHAIN: ("dynamodb:PutItem",),
    Grant.ARCHIVE: ("s3:PutObject",),
    Grant.STEP: ("lambda:InvokeFunction",),
    Grant.RECONCILE: ("lambda:InvokeFunction",),
    Grant.QUEUE: ("sqs:SendMessage",),
    Grant.RECEIVE: RECEIVING,
    Grant.TELL: ("sqs:SendMessage",),
    Grant.TOLD: RECEIVING,
    Grant.PUBLISH: ("events:PutEvents",),
    Grant.WAIT: ("states:StartExecution",),
    Grant.PEPPER: ("secretsmanager:GetSecretValue",),
    Grant.SEAL: ("kms:Encrypt",),
    Grant.UNSEAL: ("kms:Decrypt",),
    Grant.VAULT: ("secretsmanager:GetSecretValue", "ssm:GetParameter"),
    # HeadObject is GetObject, and whoever has an address does what the function that signed it may do.
    Grant.STAGE: ("s3:DeleteObject", "s3:GetObject", "s3:PutObject"),
    Grant.MICROVMS: (
        "lambda:CreateMicrovmAuthToken", "lambda:GetMicrovm", "lambda:GetMicrovmImage", "lambda:ListMicrovmImages",
        "lambda:ListMicrovms", "lambda:ListTags", "lambda:ResumeMicrovm", "lambda:RunMicrovm", "lambda:SuspendMicrovm",
        "lambda:TerminateMicrovm",
    ),
}  # fmt: skip
LOGGING: Final = ("logs:CreateLogStream", "logs:PutLogEvents")
FAILING: Final = ("sqs:SendMessage",)
"""What Lambda does in a function's name with an event that it gave up on."""
IN_VPC: Final = (
    "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets",
)  # fmt: skip
"""What Lambda does in a function's name to put it into a VPC; EC2 knows no resource for it beforehand."""


@dataclass(frozen=True)
class Resources:
    """ARNs of what functions use."""

    config: str
    state: str
    log: str
    log_stream: str
    worker: str
    reconcile: str
    queue: str
    deliver: str
    bus: str
    machine: str
    pepper: str
    secrets_key: str
    staged: str
    archived: str
    """The objects that hold large files on their way."""
    credentials: tuple[str, ...] = ()
    """What pools may name as their credential."""
    microvms: tuple[str, ...] = ()
    """The image of Lambda MicroVMs, and what is made from it; empty where there is none."""

    def of(self, grant: Grant) -> Sequence[str]:
        indexes = [f"{self.state}/index/{name}" for name in ("due", "list", "pool")]
        return {
            Grant.KEYS: [self.config],
            Grant.CONFIG: [self.config],
            Grant.DECIDE: [self.config],
            Grant.STATE: [self.state, *indexes],
            Grant.LOG: [self.log],
            Grant.FOLLOW: [self.log_stream],
            Grant.HISTORY: [self.log],
            Grant.CHAIN: [self.log],
            Grant.STEP: [self.worker],
            Grant.RECONCILE: [self.reconcile],
            Grant.QUEUE: [self.queue],
            Grant.RECEIVE: [self.queue],
            Grant.TELL: [self.deliver],
            Grant.TOLD: [self.deliver],
            Grant.PUBLISH: [self.bus],
            Grant.WAIT: [self.machine],
            Grant.PEPPER: [self.pepper],
            Grant.SEAL: [self.secrets_key],
            Grant.UNSEAL: [self.secrets_key],
            Grant.VAULT: list(self.credentials),
            Grant.STAGE: [self.staged],
            Grant.MICROVMS: list(self.microvms),
            Grant.ARCHIVE: [self.archived],
        }[grant]


_NAMED: Final[Mapping[str, Any]] = {
    "Null": {f"kms:EncryptionContext:{key}": "false" for key in ("installation", "secret", "field", "revision")}
}
"""A ciphertext is made and opened only by who says which installation, secret and field it is of."""
CONDITIONS: Final[Mapping[Grant, Mapping[str, Any]]] = {
    Grant.KEYS: {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["KEY#*"]}},
    Grant.CHAIN: {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["CHAINS#*", "ROOT#*", "SEG#*"]}},
    Grant.SEAL: _NAMED,
    Grant.UNSEAL: _NAMED,
}


def statements(function: Function, resources: Resources) -> Iterator[iam.PolicyStatement]:
    for grant in function.all_grants:
        if not resources.of(grant):
            continue
        yield iam.PolicyStatement(
            sid=grant.name.capitalize(),
            actions=list(ACTIONS[grant]),
            resources=list(resources.of(grant)),
            conditions=dict(CONDITIONS.get(grant, {})) or None,
        )


def all_actions(*, vpc: bool, microvms: bool = False) -> list[str]:
    """Everything that some function may do somewhere."""
    grants = {grant for function in FUNCTIONS.values() for grant in function.all_grants}
    granted = {action for grant in grants if microvms or grant is not Grant.MICROVMS for action in ACTIONS[grant]}
    return sorted(granted | set(LOGGING) | set(FAILING) | (set(IN_VPC) if vpc else set()))
