"""The security rules that every stack is held to. A finding makes the synthesis fail.

A finding that is accepted is acknowledged where the construct is made, with its reason:
`Validations.of(construct).acknowledge(id="AwsSolutions-...", reason="...")`.
"""

from __future__ import annotations

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks, ServerlessChecks


def guard(app: App) -> None:
    """Check all of `app` when it is synthesized."""
    Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
