"""The security rules that every stack is held to. A finding makes the synthesis fail."""

from __future__ import annotations

from aws_cdk import Acknowledgment, App, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks
from constructs import Construct


def guard(app: App) -> None:
    """Check all of `app` when it is synthesized."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))


def accept(construct: Construct, rule: str, reason: str) -> None:
    """Accept a finding, where the construct is made, for the reason that is written down there."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
