"""What a deployed function is told, for tests that make one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ENVIRON: Final[Mapping[str, str]] = {
    "AWS_REGION": "us-east-1",
    "CONFIG_TABLE": "config-1",
    "STATE_TABLE": "state-1",
    "LOG_TABLE": "log-1",
    "DIFFERENTLY_VERSION": "1.2.3",
    "WORKER_FUNCTION": "worker-1",
    "RECONCILE_FUNCTION": "reconcile-1",
    "DISPATCH_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/000000000000/dispatch-1",
    "DELIVER_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/000000000000/deliver-1",
    "EVENT_BUS": "events-1",
    "WAIT_MACHINE": "arn:aws:states:us-east-1:000000000000:stateMachine:wait-1",
    "SECRETS_KEY": "arn:aws:kms:us-east-1:000000000000:key/00000000-0000-0000-0000-000000000000",
    "PEPPER_SECRET": "arn:aws:secretsmanager:us-east-1:000000000000:secret:pepper-1",
}
BOOTS: Final[Mapping[str, str]] = {
    "authorizer": "differently_api.boot.authorizer",
    "control": "differently_api.boot.control",
    "admin": "differently_api.boot.admin",
    "data": "differently_api.boot.data",
    "worker": "differently_scheduler.boot.worker",
    "dispatch": "differently_scheduler.boot.dispatch",
    "tick": "differently_scheduler.boot.tick",
    "projector": "differently_scheduler.boot.projector",
    "deliver": "differently_scheduler.boot.deliver",
    "sealer": "differently_scheduler.boot.sealer",
    "reconcile": "differently_reconciler.boot.reconcile",
}
"""The module that Lambda starts for each function."""
