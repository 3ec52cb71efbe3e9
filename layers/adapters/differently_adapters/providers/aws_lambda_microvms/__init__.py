"""AWS Lambda MicroVMs: sandboxes in the operator's own account, with no cluster and no server that is kept alive."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from ...aws.signing import CREDENTIAL_FIELDS
from .adapter import LambdaMicrovmAdapter
from .config import LambdaMicrovmConfig

__all__ = ["REGISTRATION", "LambdaMicrovmAdapter", "LambdaMicrovmConfig"]

REGISTRATION = Registration(
    kind="aws-lambda-microvms",
    config=LambdaMicrovmConfig,
    trust=None,
    dev_only=False,
    summary="MicroVMs of AWS Lambda in your own account, made from an image of yours with execd in it.",
    requirements=Requirements(credential=Need.OPTIONAL, credential_fields=CREDENTIAL_FIELDS),
    verification=Verification.FAKE,
    limits=(
        "A sandbox lives for at most 8 hours, the time that it is paused included, and its end cannot be moved.",
        "CPU, memory and disk are those of the image; a pool has one image and one size.",
        "The environment of a sandbox has room for 4,096 characters with what we add to it.",
        "Ports are not exposed: the endpoint wants a token in a header, which no address can carry.",
        "There are no snapshots and no forks.",
        "Egress is what the pool's network connectors permit, for the whole pool.",
        "AWS keeps no name or tag on a MicroVM, so whose one is is asked of the agent inside, and is not known of one "
        "that is paused unless this process saw it run.",
    ),
)
