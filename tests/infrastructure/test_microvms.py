"""The image of Lambda MicroVMs, the pool that is made from it, and what functions may do with both."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aws_cdk import App
from aws_cdk.assertions import Template
from botocore.validate import ParamValidator

from differently_infra.admin import microvm_pool
from differently_infra.configuration import Configuration, Microvms, Unusable, parse
from differently_infra.functions import FUNCTIONS
from differently_infra.names import Names
from differently_infra.packages import Unbuilt, check_image
from differently_infra.permissions import Resources, all_actions, statements
from differently_infra.stacks.microvms import MicrovmsStack

BASE = {"baseImageArn": "arn:aws:lambda:eu-west-1:aws:microvm-image:base", "baseImageVersion": "1"}
IMAGE = "arn:aws:lambda:eu-west-1:123456789012:microvm-image:differently"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("Dockerfile", "agent.py", "execd"):
        (tmp_path / name).write_text(name)
    return tmp_path


def configuration(folder: Path, **more: Any) -> Configuration:
    return parse({"microvms": {"enabled": True, "folder": str(folder), **BASE, **more}}, "test")


def image_of(chosen: Configuration) -> dict[str, Any]:
    stack = MicrovmsStack(App(), "Microvms", chosen, Names(chosen.name, chosen.prefix))
    (image,) = Template.from_stack(stack).find_resources("AWS::Lambda::MicrovmImage").values()
    properties: dict[str, Any] = image["Properties"]
    return properties


def as_request(value: Any) -> Any:
    """CloudFormation's names as the service's own: only their first letter differs. References become some text."""
    if isinstance(value, dict):
        if set(value) & {"Fn::GetAtt", "Ref", "Fn::Join", "Fn::Sub"}:
            return "arn:aws:iam::123456789012:role/some-role"
        return {key[0].lower() + key[1:]: as_request(inner) for key, inner in value.items()}
    return [as_request(inner) for inner in value] if isinstance(value, list) else value


def test_the_image_is_what_the_service_takes(folder: Path) -> None:
    properties = image_of(configuration(folder, memoryMib=4096))
    assert properties["Name"] == "differently"
    assert properties["Resources"] == [{"MinimumMemoryInMiB": 4096}]
    assert properties["Hooks"]["MicrovmHooks"]["Run"] == properties["Hooks"]["MicrovmImageHooks"]["Ready"] == "ENABLED"

    request = as_request({**properties, "EnvironmentVariables": {}})
    model = botocore.session.get_session().get_service_model("lambda-microvms")
    report = ParamValidator().validate(request, model.operation_model("CreateMicrovmImage").input_shape)
    assert not report.has_errors(), report.generate_report()


def test_it_is_built_by_a_role_that_reads_the_archive_and_nothing_else(folder: Path) -> None:
    chosen = configuration(folder)
    template = Template.from_stack(MicrovmsStack(App(), "Microvms", chosen, Names(chosen.name, chosen.prefix)))
    (policy,) = template.find_resources("AWS::IAM::Policy").values()
    found = {entry["Sid"]: entry for entry in policy["Properties"]["PolicyDocument"]["Statement"]}
    assert set(found) == {"Archive", "Logs"}
    assert found["Archive"]["Action"] == "s3:GetObject"
    assert str(found["Archive"]["Resource"]).count("*") == 0


def test_its_pool_is_declared() -> None:
    pool = microvm_pool(Microvms.model_validate({"enabled": True, **BASE, "maxConcurrency": 7}), IMAGE)
    assert pool.name == "microvms"
    assert pool.wanted()["config"] == {"imageArn": IMAGE, "memoryMiB": 2048}
    assert (pool.wanted()["trust"], pool.wanted()["max_concurrency"]) == ("private", 7)


def allowed(function: str, *microvms: str) -> set[str]:
    named: dict[str, Any] = {field.name: field.name for field in fields(Resources)}
    resources = Resources(**{**named, "credentials": (), "microvms": microvms})
    return {action for statement in statements(FUNCTIONS[function], resources) for action in statement.actions}


def test_functions_that_reach_backends_may_run_it_where_there_is_one() -> None:
    for name, function in FUNCTIONS.items():
        may = "lambda:RunMicrovm" in allowed(name, IMAGE)
        assert may is function.reaches_backends, name
        assert "lambda:RunMicrovm" not in allowed(name)
    assert "lambda:RunMicrovm" not in all_actions(vpc=False)
    assert "lambda:RunMicrovm" in all_actions(vpc=False, microvms=True)


def test_what_is_missing_is_named_before_anything_is_built(folder: Path) -> None:
    check_image(configuration(folder).microvms)
    (folder / "execd").unlink()
    with pytest.raises(Unbuilt, match="has no execd"):
        check_image(configuration(folder).microvms)
    check_image(Microvms())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"microvms": {"enabled": True}}, "baseImageArn"),
        ({"microvms": {"memoryMib": 3000}}, "memoryMib"),
        (
            {
                "microvms": {"enabled": True, **BASE},
                "pools": {"microvms": {"adapter": "fake", "trust": "private", "maxConcurrency": 1}},
            },
            "another name",
        ),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Unusable, match=said):
        parse(given, "test")
