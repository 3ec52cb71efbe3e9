"""What a pool of Lambda MicroVMs is told."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from differently_core.errors import InvalidRequest

from ...configuration import ReachingConfig
from ...http import Endpoint, parse_endpoint

LIFETIME_SECONDS_MAX: Final = 28_800
"""AWS ends a MicroVM then, whatever it did meanwhile."""
CONNECTORS_MAX: Final = 10
MANAGED: Final = "arn:{partition}:lambda:{region}:aws:network-connector:aws-network-connector:{name}"

Arn = Annotated[str, Field(max_length=2048, pattern=r"^arn:[A-Za-z0-9:/_.*+=,@$-]+$")]
ImageArn = Annotated[
    str, Field(max_length=2048, pattern=r"^arn:[a-z0-9-]+:lambda:[a-z0-9-]+:[0-9]{12}:microvm-image:[A-Za-z0-9_-]+$")
]
RoleArn = Annotated[str, Field(max_length=2048, pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$")]
Text = Annotated[str, Field(min_length=1, max_length=512)]


class LambdaMicrovmConfig(ReachingConfig):
    """`imageArn` is an image of one installation alone: what is made from it is taken to be that installation's.

    Without a credential the control plane's own role is used, and `roleArn` is assumed by it or by the stored key.
    """

    image_arn: ImageArn
    """The image of every sandbox; its Region is the pool's."""
    image_version: Text | None = None
    """By default the newest one that is active."""
    memory_mib: Literal[512, 1024, 2048, 4096, 8192]
    """The image's memory, which AWS does not tell of a MicroVM: what the image was built with."""
    architecture: Literal["arm64", "amd64"] = "arm64"
    """As the image is."""
    execution_role_arn: RoleArn | None = None
    """What processes in a sandbox may do at AWS; nothing without it."""
    ingress_connectors: Annotated[tuple[Arn, ...], Field(max_length=CONNECTORS_MAX)] | None = None
    """By default AWS's own ALL_INGRESS, by which the control plane reaches the agent; each call carries a token."""
    egress_connectors: Annotated[tuple[Arn, ...], Field(max_length=CONNECTORS_MAX)] = ()
    """None: a sandbox reaches nothing outside."""
    kms_key: Text | None = None
    """Encrypts a MicroVM's state; by default a key of AWS's own."""
    log_group: Text | None = None
    """CloudWatch logs of the MicroVMs; off without it."""
    lifetime_seconds: Annotated[int, Field(ge=60, le=LIFETIME_SECONDS_MAX)] = LIFETIME_SECONDS_MAX
    """AWS's own end of every MicroVM, for what we forgot. Longer sandboxes are refused."""
    role_arn: RoleArn | None = None
    """A role to assume, for a pool in another account."""
    external_id: Text | None = None
    """Of the role to assume, where its trust asks for one."""
    endpoint: Annotated[str, Field(max_length=2048)] | None = None
    """Of the API, in place of the region's: an interface endpoint in a VPC, say."""
    microvm_scheme: Literal["http", "https"] = "https"
    """How agents inside are reached; http is for tests."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        self.api()
        if self.microvm_scheme == "http" and not self.allow_http:
            raise ValueError("http sends tokens and contents in the clear; set allowHttp to accept that")
        if self.external_id is not None and self.role_arn is None:
            raise ValueError("externalId goes with a roleArn to assume")
        return self

    @property
    def region(self) -> str:
        return self.image_arn.split(":")[3]

    @property
    def ingress(self) -> tuple[str, ...]:
        if self.ingress_connectors is not None:
            return self.ingress_connectors
        partition = self.image_arn.split(":")[1]
        return (MANAGED.format(partition=partition, region=self.region, name="ALL_INGRESS"),)

    def api(self) -> Endpoint:
        """Raises `InvalidRequest` for an address that this pool may not use."""
        suffix = "amazonaws.com.cn" if self.image_arn.startswith("arn:aws-cn:") else "amazonaws.com"
        try:
            return parse_endpoint(self.endpoint or f"https://lambda.{self.region}.{suffix}", self.rules())
        except InvalidRequest as error:
            error.details["field"] = "config.endpoint"
            raise
