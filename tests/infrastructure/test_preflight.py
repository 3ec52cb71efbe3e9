"""What stands in the way of a deployment is told with what to do about it; AWS's answers are played by a stub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber

from differently_infra.configuration import parse
from differently_infra.preflight import (
    ADDRESSES_DEFAULT,
    BOOTSTRAP_VERSION_MIN,
    VPCS_DEFAULT,
    Finding,
    Preflight,
    Severity,
)
from tests.infrastructure.conftest import Deployed

ACCOUNT = "123456789012"
ROLE = f"arn:aws:sts::{ACCOUNT}:assumed-role/deployer/me"
ARN = f"arn:aws:secretsmanager:eu-central-1:{ACCOUNT}:secret:pools/main-AbCdEf"
Call = tuple[str, dict[str, Any] | str]
"""An operation, with its answer or the code of its refusal."""

CALM: dict[str, list[Call]] = {
    "sts": [("get_caller_identity", {"Account": ACCOUNT, "Arn": ROLE, "UserId": "x"})],
    "ssm": [("get_parameter", {"Parameter": {"Value": "27"}})],
    "cloudformation": [("describe_stacks", {"Stacks": []})],
    "logs": [("describe_log_groups", {"logGroups": []})] * 20,
    "lambda": [
        (
            "get_account_settings",
            {
                "AccountLimit": {"ConcurrentExecutions": 1000, "TotalCodeSize": 80_530_636_800},
                "AccountUsage": {"TotalCodeSize": 1000},
            },
        )
    ],
    "apigateway": [("get_account", {})],
    "dynamodb": [("list_tables", {"TableNames": []})],
    "stepfunctions": [("list_state_machines", {"stateMachines": []})],
    "sqs": [("list_queues", {})],
    "kms": [("list_keys", {"Keys": []})],
    "secretsmanager": [("list_secrets", {"SecretList": []})],
    "events": [("list_rules", {"Rules": []})],
    "ec2": [("describe_vpcs", {"Vpcs": []}), ("describe_addresses", {"Addresses": []})],
}


def stack(part: str, status: str, **tags: str) -> dict[str, Any]:
    named = {"differently:installation": "differently", **tags}
    return {
        "StackName": f"Differently-{part}", "StackStatus": status, "CreationTime": "2026-11-01T00:00:00Z",
        "Tags": [{"Key": key, "Value": value} for key, value in named.items()],
    }  # fmt: skip


class Account:
    """Clients whose answers are given, each checked against AWS's own description of the operation."""

    def __init__(self, **answers: list[Call]) -> None:
        self._answers = {**CALM, **answers}
        self._session = botocore.session.get_session()
        self._made: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._made:
            client = self._session.create_client(
                service, region_name="eu-central-1", aws_access_key_id="id", aws_secret_access_key="key"
            )
            stub = Stubber(client)
            for operation, answer in self._answers[service]:
                if isinstance(answer, str):
                    stub.add_client_error(operation, answer)
                else:
                    stub.add_response(operation, answer)
            stub.activate()
            self._made[service] = client
        return self._made[service]


def findings(
    account: Account, configuration: dict[str, Any] | None = None, *, region: str | None = "eu-central-1",
    secret: Callable[[str], bool | None] = lambda _: None,
) -> list[Finding]:  # fmt: skip
    return list(Preflight(parse(configuration or {}, "test"), account.client, region, secret).findings())


def told(found: list[Finding], severity: Severity) -> list[str]:
    """What is said, each with what to do: nothing is found wrong without that."""
    chosen = [finding for finding in found if finding.severity is severity]
    assert severity is Severity.OK or all(finding.remedy for finding in chosen)
    return [f"{finding.what} {finding.remedy}" for finding in chosen]


def test_an_account_that_is_ready_is_told_so() -> None:
    found = findings(Account())
    assert {finding.severity for finding in found} == {Severity.OK}
    assert f"account {ACCOUNT}, Region eu-central-1" in found[0].what


def test_without_a_region_or_credentials_nothing_else_is_asked() -> None:
    (only,) = told(findings(Account(), region=None), Severity.STOP)
    assert "AWS_REGION" in only
    found = findings(Account(sts=[("get_caller_identity", "ExpiredToken")]))
    assert len(found) == 1
    assert "ExpiredToken" in found[0].what


def test_root_is_warned() -> None:
    root: list[Call] = [("get_caller_identity", {"Account": ACCOUNT, "Arn": f"arn:aws:iam::{ACCOUNT}:root"})]
    assert "root" in told(findings(Account(sts=root)), Severity.WARNING)[0]


@pytest.mark.parametrize(
    ("service", "answers", "severity", "said"),
    [
        ("ssm", [("get_parameter", "ParameterNotFound")], Severity.STOP, "make cloud-bootstrap"),
        ("ssm", [("get_parameter", {"Parameter": {"Value": "3"}})], Severity.STOP, "version 3"),
        ("ssm", [("get_parameter", "AccessDeniedException")], Severity.WARNING, "AccessDeniedException"),
        ("kms", [("list_keys", "AccessDeniedException")], Severity.WARNING, "kms: AWS refused"),
        (
            "cloudformation",
            [("describe_stacks", {"Stacks": [stack("Api", "ROLLBACK_COMPLETE")]})],
            Severity.STOP,
            "delete-stack --stack-name Differently-Api",
        ),
        (
            "cloudformation",
            [("describe_stacks", {"Stacks": [stack("Api", "UPDATE_IN_PROGRESS")]})],
            Severity.STOP,
            "Wait",
        ),
        (
            "cloudformation",
            [("describe_stacks", {"Stacks": [stack("Api", "UPDATE_ROLLBACK_FAILED")]})],
            Severity.STOP,
            "continue-update-rollback",
        ),
        (
            "cloudformation",
            [
                (
                    "describe_stacks",
                    {"Stacks": [stack("Data", "CREATE_COMPLETE", **{"differently:installation": "another"})]},
                )
            ],
            Severity.STOP,
            "Choose another `name`",
        ),
        (
            "logs",
            [("describe_log_groups", {"logGroups": [{"logGroupName": "/aws/lambda/differently-worker"}]})]
            + [("describe_log_groups", {"logGroups": []})] * 20,
            Severity.STOP,
            "delete-log-group --log-group-name /aws/lambda/differently-worker",
        ),
        (
            "lambda",
            [
                (
                    "get_account_settings",
                    {
                        "AccountLimit": {"ConcurrentExecutions": 10, "TotalCodeSize": 80_530_636_800},
                        "AccountUsage": {"TotalCodeSize": 0},
                    },
                )
            ],
            Severity.WARNING,
            "L-B99A9384",
        ),
        (
            "lambda",
            [
                (
                    "get_account_settings",
                    {
                        "AccountLimit": {"ConcurrentExecutions": 1000, "TotalCodeSize": 100},
                        "AccountUsage": {"TotalCodeSize": 99},
                    },
                )
            ],
            Severity.STOP,
            "MiB of code",
        ),
        (
            "apigateway",
            [("get_account", {"cloudwatchRoleArn": f"arn:aws:iam::{ACCOUNT}:role/theirs"})],
            Severity.WARNING,
            "accessLogs = false",
        ),
    ],
)
def test_what_is_wrong_says_what_to_do(service: str, answers: list[Call], severity: Severity, said: str) -> None:
    found = findings(Account(**{service: answers}))
    assert any(said in text for text in told(found, severity)), found


def test_what_is_deployed_already_is_no_leftover() -> None:
    parts = ("Data", "Secrets", "Workers", "Workflow", "Api", "Observability")
    there = {"Stacks": [stack(part, "UPDATE_COMPLETE") for part in parts]}
    found = findings(
        Account(
            cloudformation=[("describe_stacks", there)],
            logs=[],
            apigateway=[("get_account", {"cloudwatchRoleArn": f"arn:aws:iam::{ACCOUNT}:role/ours"})],
        )
    )
    assert {finding.severity for finding in found} == {Severity.OK}


def test_a_service_that_a_region_does_not_have_is_named() -> None:
    account = Account()
    reach = account.client

    class Absent:
        def list_state_machines(self, **_: object) -> None:
            raise EndpointConnectionError(endpoint_url="https://states.example")

    def client(service: str) -> Any:
        return Absent() if service == "stepfunctions" else reach(service)

    found = list(Preflight(parse({}, "test"), client, "xx-west-1", lambda _: None).findings())
    assert any("stepfunctions" in text and "another Region" in text for text in told(found, Severity.WARNING))
    assert any("events answers" in text for text in told(found, Severity.OK))


def test_a_vpc_needs_room() -> None:
    full: list[Call] = [
        ("describe_vpcs", {"Vpcs": [{}] * VPCS_DEFAULT}),
        ("describe_addresses", {"Addresses": [{}] * ADDRESSES_DEFAULT}),
    ]
    said = told(findings(Account(ec2=full), {"network": {"vpc": True}}), Severity.WARNING)
    assert any("L-F678F1CE" in text for text in said)
    assert any("L-0263D0A3" in text for text in said)
    assert not told(findings(Account(ec2=full)), Severity.WARNING)


def test_an_image_of_microvms_needs_its_files_and_a_region(tmp_path: Path) -> None:
    base = {"baseImageArn": "arn:aws:lambda:eu-west-1:aws:microvm-image:base", "baseImageVersion": "1"}
    chosen = {"microvms": {"enabled": True, "folder": str(tmp_path), **base}}
    found = findings(Account(), chosen, region="eu-south-1")
    assert any("no Dockerfile and no agent.py and no execd" in text for text in told(found, Severity.STOP))
    assert any("not known to be offered in eu-south-1" in text for text in told(found, Severity.WARNING))


def declared(credential: str, **adapters: Any) -> dict[str, Any]:
    pool = {"adapter": "remote", "trust": "private", "maxConcurrency": 1, "credential": credential}
    return {"pools": {"main": {**pool, "config": {"endpoint": "https://sandboxes.example.com"}}}, "adapters": adapters}


@pytest.mark.parametrize(
    ("there", "severity", "said"),
    [
        (True, Severity.OK, "the secret 'main'"),
        (False, Severity.WARNING, "PUT /v1/admin/secrets/main"),
        (None, Severity.WARNING, "no installation yet"),
    ],
)
def test_a_stored_secret_is_looked_for(there: bool | None, severity: Severity, said: str) -> None:
    found = findings(Account(), declared("secret:main"), secret=lambda _: there)
    assert any(said in text for text in told(found, severity))


def test_a_variable_is_nothing_that_functions_have() -> None:
    found = findings(Account(), declared("env:DIFFERENTLY_CREDENTIAL_MAIN"))
    assert any('credential = "secret:NAME"' in text for text in told(found, Severity.STOP))


@pytest.mark.parametrize(
    ("allowed", "answer", "severity", "said"),
    [
        ((), {"ARN": ARN}, Severity.STOP, "adapters.credentialArns"),
        ((ARN,), "ResourceNotFoundException", Severity.STOP, "does not exist"),
        ((ARN,), {"ARN": ARN}, Severity.OK, "the credential of pool main"),
        ((ARN,), "AccessDeniedException", Severity.WARNING, "the credential of pool main: AWS refused"),
    ],
)
def test_a_credential_that_aws_keeps_must_be_there_and_be_listed(
    allowed: tuple[str, ...], answer: dict[str, Any] | str, severity: Severity, said: str
) -> None:
    vault: list[Call] = [("list_secrets", {"SecretList": []}), ("describe_secret", answer)]
    found = findings(Account(secretsmanager=vault), declared(ARN, credentialArns=list(allowed)))
    assert any(said in text for text in told(found, severity)), found


def test_the_bootstrap_that_is_asked_for_is_the_templates(deployed: Deployed) -> None:
    (rule,) = deployed.templates["workers"].to_json()["Rules"]["CheckBootstrapVersion"]["Assertions"]
    refused = rule["Assert"]["Fn::Not"][0]["Fn::Contains"][0]
    assert refused == [str(version) for version in range(1, BOOTSTRAP_VERSION_MIN)]
