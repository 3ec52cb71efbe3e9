"""The workflow `wait`: it keeps time for a sandbox on its way somewhere, and knows nothing else."""

from __future__ import annotations

import json
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ..constructs.function import TRACED
from ..nag import accept
from ..names import Names

HOURS_MAX: Final = 1
"""Far below the 25,000 events that an execution may have; what takes longer is paced by the due index."""
TRANSIENT: Final = ["Lambda.ServiceException", "Lambda.AWSLambdaException", "Lambda.TooManyRequestsException"]


def states(worker: str) -> dict[str, Any]:
    """Wait, settle, choose: in the States Language, so that what runs is what is written here."""
    return {
        "Comment": "Look at one generation of one sandbox until it is settled",
        "StartAt": "Wait",
        "TimeoutSeconds": HOURS_MAX * 3600,
        "States": {
            "Wait": {"Type": "Wait", "SecondsPath": "$.seconds", "Next": "Settle"},
            "Settle": {
                "Type": "Task",
                "Resource": worker,
                "Parameters": {"kind": "settle", "sandbox.$": "$.sandbox", "generation.$": "$.generation"},
                "Retry": [
                    {
                        "ErrorEquals": [*TRANSIENT, "States.TaskFailed"],
                        "IntervalSeconds": 2,
                        "BackoffRate": 2,
                        "MaxAttempts": 5,
                        "MaxDelaySeconds": 60,
                        "JitterStrategy": "FULL",
                    }
                ],
                "Next": "Settled",
            },
            "Settled": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.settled", "BooleanEquals": True, "Next": "Done"}],
                "Default": "Wait",
            },
            "Done": {"Type": "Succeed"},
        },
    }


class WorkflowStack(Stack):
    def __init__(
        self, scope: Construct, construct_id: str, names: Names, worker: lambda_.IFunction, **stack: Any
    ) -> None:
        super().__init__(scope, construct_id, **stack)
        role = iam.Role(
            self,
            "Role",
            role_name=names.role("wait", self.region),
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            permissions_boundary=iam.ManagedPolicy.from_managed_policy_name(
                self, "Boundary", names.boundary(self.region)
            ),
        )
        role.add_to_policy(
            iam.PolicyStatement(sid="Settle", actions=["lambda:InvokeFunction"], resources=[worker.function_arn])
        )
        self.machine = sfn.StateMachine(
            self,
            "Wait",
            state_machine_name=names.machine,
            definition_body=sfn.DefinitionBody.from_string(json.dumps(states(worker.function_arn))),
            role=role,
            timeout=Duration.hours(HOURS_MAX),
        )
        accept(
            self.machine,
            "AwsSolutions-SF1",
            "Its history, kept for 90 days, holds all that there is: ids, a number and how each step ended.",
        )
        for rule in ("AwsSolutions-SF2", "Serverless-StepFunctionStateMachineXray"):
            accept(self.machine, rule, TRACED)
        CfnOutput(self, "WaitMachineArn", value=self.machine.state_machine_arn)
