"""Least privilege, read off the templates: who may do what to what, and nothing wider than the listed set."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from differently_infra.functions import FUNCTIONS
from differently_infra.permissions import IN_VPC, all_actions
from tests.infrastructure.conftest import CREDENTIAL, Deployed


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def named(deployed: Deployed, function: str) -> list[dict[str, Any]]:
    """The statements of one function's own policy."""
    found = [
        statement
        for key, statements in deployed.statements().items()
        if key.split(".")[1].startswith(f"{function.capitalize()}Role")
        for statement in statements
    ]
    assert found, function
    return found


def actions(deployed: Deployed, function: str) -> set[str]:
    return {action for statement in named(deployed, function) for action in listed(statement["Action"])}


@pytest.mark.parametrize("which", ["deployed", "private"])
def test_no_policy_of_a_role_has_a_wildcard_but_for_the_interfaces_of_a_vpc(
    which: str, request: pytest.FixtureRequest
) -> None:
    """reliability.md 5, API8."""
    made: Deployed = request.getfixturevalue(which)
    for place, statements in made.statements().items():
        for statement in statements:
            assert not any("*" in action for action in listed(statement["Action"])), place
            if set(listed(statement["Action"])) == set(IN_VPC):
                assert which == "private", place
                continue
            if statement.get("Sid") == "Archive":
                # Roots are named by organization and size, under one prefix of a bucket of their own.
                assert json.dumps(statement["Resource"]).count("/roots/*") == 1
                continue
            if statement.get("Sid") == "Stage":
                # Names of uploads are not known beforehand; they lie under one prefix of a bucket of their own.
                assert json.dumps(statement["Resource"]).count("/uploads/*") == 1
                continue
            assert "*" not in json.dumps(statement["Resource"]), (place, statement)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_has_a_role_of_its_own_within_the_boundary(deployed: Deployed, function: str) -> None:
    role = deployed.role(function.capitalize())

    assert "differently-functions-" in json.dumps(role["PermissionsBoundary"])
    assert "ManagedPolicyArns" not in role
    assert role["AssumeRolePolicyDocument"]["Statement"][0]["Principal"] == {"Service": "lambda.amazonaws.com"}


def test_the_boundary_lists_what_functions_do_and_nothing_that_changes_the_installation(deployed: Deployed) -> None:
    (boundary,) = deployed.resources("AWS::IAM::ManagedPolicy").values()
    (statement,) = boundary["Properties"]["PolicyDocument"]["Statement"]

    assert statement["Action"] == all_actions(vpc=False)
    assert not [action for action in statement["Action"] if action.startswith("iam:") or "*" in action]
    for function in FUNCTIONS:
        assert actions(deployed, function) <= set(statement["Action"]), function


def test_the_authorizer_reads_keys_and_peppers_and_nothing_else(deployed: Deployed) -> None:
    statements = {entry["Sid"]: entry for entry in named(deployed, "authorizer")}

    assert set(statements) == {"Keys", "Pepper", "Logs"}
    assert statements["Keys"]["Action"] == "dynamodb:GetItem"
    assert statements["Keys"]["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["KEY#*"]}}


@pytest.mark.parametrize(
    ("action", "functions"),
    [
        ("kms:Encrypt", {"admin"}),
        ("kms:Decrypt", {"admin", "data", "worker", "reconcile", "tick", "deliver"}),
        ("secretsmanager:GetSecretValue", {"authorizer", "admin"}),
        ("states:StartExecution", {"worker"}),
        ("sqs:ReceiveMessage", {"dispatch", "deliver"}),
        ("events:PutEvents", {"projector"}),
        ("s3:GetObject", {"data"}),
        ("s3:PutObject", {"data", "sealer"}),
    ],
)
def test_what_is_sensitive_is_given_to_few(deployed: Deployed, action: str, functions: set[str]) -> None:
    assert {name for name in FUNCTIONS if action in actions(deployed, name)} == functions


def test_only_named_credentials_are_read_and_only_where_backends_are_reached(
    deployed: Deployed, private: Deployed
) -> None:
    """A pool may name an ARN; whether it is read is the deployment's to say."""
    for function in FUNCTIONS:
        assert not [entry for entry in named(deployed, function) if entry.get("Sid") == "Vault"]
        allowed = [entry for entry in named(private, function) if entry.get("Sid") == "Vault"]
        assert [entry["Resource"] for entry in allowed] == (
            [CREDENTIAL] if FUNCTIONS[function].reaches_backends else []
        )
        level = private.functions()[function]["Environment"]["Variables"]["ADAPTERS_MINIMUM_LEVEL"]
        assert level == "vendor SDK"


def test_only_admin_changes_what_operators_decide(deployed: Deployed) -> None:
    changing = {
        name
        for name in FUNCTIONS
        for statement in named(deployed, name)
        if "Config" in json.dumps(statement["Resource"]) and "dynamodb:PutItem" in listed(statement["Action"])
    }
    assert changing == {"admin"}


def test_nobody_changes_or_removes_what_is_in_the_log(deployed: Deployed) -> None:
    for name in FUNCTIONS:
        for statement in named(deployed, name):
            if "Log" in json.dumps(statement["Resource"]):
                writing = {"dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:BatchWriteItem"}
                assert not writing & set(listed(statement["Action"])), name


@pytest.mark.parametrize("function", ["admin", "reconcile"])
def test_what_counts_again_reads_the_log(deployed: Deployed, function: str) -> None:
    """Recounts ask the log what changed lately; one that may only write events would be refused once deployed."""
    reading = [entry for entry in named(deployed, function) if "dynamodb:Query" in listed(entry["Action"])]
    assert any("Log" in json.dumps(entry["Resource"]) for entry in reading)


def test_the_sealer_writes_chains_and_no_event(deployed: Deployed) -> None:
    statements = {entry.get("Sid", ""): entry for entry in named(deployed, "sealer")}

    assert statements["Chain"]["Action"] == "dynamodb:PutItem"
    assert statements["Chain"]["Condition"] == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["CHAINS#*", "ROOT#*", "SEG#*"]}
    }
    assert not [sid for sid, entry in statements.items() if sid != "Chain" and "PutItem" in json.dumps(entry)]
    assert [name for name in FUNCTIONS if "dynamodb:GetRecords" in actions(deployed, name)] == [
        "sealer", "projector",
    ]  # fmt: skip


@pytest.mark.parametrize("function", ["admin", "worker"])
def test_a_credential_is_opened_only_under_its_own_name(deployed: Deployed, function: str) -> None:
    (statement,) = [entry for entry in named(deployed, function) if entry.get("Sid") == "Unseal"]

    conditions = statement["Condition"]["Null"]
    assert conditions == {
        f"kms:EncryptionContext:{key}": "false" for key in ("installation", "secret", "field", "revision")
    }


def test_every_index_can_be_asked_and_none_that_is_not_there(deployed: Deployed) -> None:
    tables = deployed.resources("AWS::DynamoDB::GlobalTable").values()
    there = {entry["IndexName"] for table in tables for entry in table["Properties"].get("GlobalSecondaryIndexes", [])}
    (state,) = [entry for entry in named(deployed, "control") if entry.get("Sid") == "State"]

    assert set(re.findall(r"/index/(\w+)", json.dumps(state["Resource"]))) == there
