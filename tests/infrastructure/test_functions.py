"""The functions as CloudFormation gets them: each is told what it may use, and its failures go somewhere."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from differently_aws.environment import Environment
from differently_infra.functions import FUNCTIONS, STREAM_HANDLER, Grant
from differently_infra.packaging import ROOT
from tests.infrastructure.conftest import Deployed
from tests.support.functions import BOOTS


def test_each_function_of_the_table_is_deployed(deployed: Deployed) -> None:
    assert set(deployed.functions()) == set(FUNCTIONS) == set(BOOTS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_handler_is_a_module_that_lies_in_the_function_s_package(name: str) -> None:
    function = FUNCTIONS[name]
    module = function.handler.rpartition(".")[0]

    assert module == BOOTS[name]
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(ROOT / "functions" / function.package)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_told_only_what_it_reads(deployed: Deployed, name: str) -> None:
    properties = deployed.functions()[name]
    known = {str(field.alias) for field in Environment.model_fields.values()} | {"AWS_LAMBDA_EXEC_WRAPPER"}

    assert set(properties["Environment"]["Variables"]) <= known
    assert properties["Runtime"] == "python3.13"
    assert properties["Architectures"] == ["arm64"]
    assert properties["RecursiveLoop"] == "Allow"
    assert "VpcConfig" not in properties
    assert properties["LoggingConfig"]["LogGroup"]


def test_data_streams_through_our_own_runtime(deployed: Deployed, packages: Path) -> None:
    data = deployed.functions()["data"]
    assert (data["Handler"], data["Timeout"]) == (STREAM_HANDLER, 900)
    assert data["Environment"]["Variables"]["AWS_LAMBDA_EXEC_WRAPPER"] == "/opt/bin/stream"
    assert (ROOT / "layers" / "aws" / "bin" / "stream").stat().st_mode & 0o111

    whole = Deployed(packages, api={"streaming": False}).functions()["data"]
    assert whole["Handler"] == FUNCTIONS["data"].handler
    assert "AWS_LAMBDA_EXEC_WRAPPER" not in whole["Environment"]["Variables"]


def test_a_message_that_cannot_be_delivered_ends_in_a_queue(deployed: Deployed) -> None:
    configured = {
        json.dumps(entry["Properties"]["FunctionName"]): entry["Properties"]
        for entry in deployed.resources("AWS::Lambda::EventInvokeConfig").values()
    }
    assert len(configured) == 4
    for entry in configured.values():
        assert "Failed" in json.dumps(entry["DestinationConfig"]["OnFailure"])
        assert entry["MaximumEventAgeInSeconds"] == 300

    mappings = [entry["Properties"] for entry in deployed.resources("AWS::Lambda::EventSourceMapping").values()]
    assert all(mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for mapping in mappings)
    queues = [mapping for mapping in mappings if "StartingPosition" not in mapping]
    assert sorted((queue["BatchSize"], queue["ScalingConfig"]["MaximumConcurrency"]) for queue in queues) == [
        (1, 20), (10, 2),
    ]  # fmt: skip


def test_a_consumer_of_the_stream_begins_at_its_beginning_and_is_sent_events_alone(deployed: Deployed) -> None:
    from differently_infra.functions import STREAM_FUNCTIONS

    mappings = [
        entry["Properties"]
        for entry in deployed.resources("AWS::Lambda::EventSourceMapping").values()
        if "StartingPosition" in entry["Properties"]
    ]
    assert len(mappings) == len(STREAM_FUNCTIONS)
    for mapping in mappings:
        assert (mapping["StartingPosition"], mapping["BisectBatchOnFunctionError"]) == ("TRIM_HORIZON", True)
        assert "Failed" in json.dumps(mapping["DestinationConfig"]["OnFailure"])
        (only,) = mapping["FilterCriteria"]["Filters"]
        assert json.loads(only["Pattern"]) == {"dynamodb": {"Keys": {"pk": {"S": [{"prefix": "EVT#"}]}}}}


def test_queues_are_encrypted_and_the_one_that_is_read_has_dead_letters(deployed: Deployed) -> None:
    queues = {
        entry["Properties"]["QueueName"]: entry["Properties"]
        for entry in deployed.resources("AWS::SQS::Queue").values()
    }

    read = {"differently-dispatch": "dispatch", "differently-deliver-queue": "deliver"}
    assert set(queues) == {*read, *(f"{name}-dead" for name in read), "differently-failed"}
    assert all(queue["SqsManagedSseEnabled"] is True for queue in queues.values())
    for name, function in read.items():
        assert queues[name]["RedrivePolicy"]["maxReceiveCount"] == 5
        assert queues[name]["VisibilityTimeout"] == 6 * FUNCTIONS[function].seconds


def test_the_bus_has_the_name_that_the_projector_is_told(deployed: Deployed) -> None:
    (bus,) = deployed.resources("AWS::Events::EventBus").values()
    assert bus["Properties"]["Name"] == "differently-events"
    told = deployed.functions()["projector"]["Environment"]["Variables"]
    assert told["EVENT_BUS"] == "differently-events"
    assert [name for name, made in deployed.functions().items() if "EVENT_BUS" in made["Environment"]["Variables"]] == [
        "projector"
    ]


def test_the_clock_sends_three_messages_that_the_tick_reads(deployed: Deployed) -> None:
    from differently_scheduler.messages import TICK, Account, Passes, Probe, Sweep, read

    (rule,) = deployed.resources("AWS::Events::Rule").values()
    targets = [target for target in rule["Properties"]["Targets"] if "Tick" in json.dumps(target["Arn"])]
    messages = [read(TICK, json.loads(target["Input"])) for target in targets]
    assert rule["Properties"]["ScheduleExpression"] == "rate(1 minute)"
    assert {type(message) for message in messages} == {Sweep, Probe, Passes, Account}


def test_the_clock_has_the_log_compared_with_its_chains(deployed: Deployed) -> None:
    from differently_scheduler.messages import read
    from differently_scheduler.sealer import CLOCK, Compare

    (rule,) = deployed.resources("AWS::Events::Rule").values()
    targets = [target for target in rule["Properties"]["Targets"] if "Sealer" in json.dumps(target["Arn"])]
    assert {type(read(CLOCK, json.loads(target["Input"]))) for target in targets} == {Compare}


def test_logs_are_kept_for_as_long_as_is_said(packages: Path, deployed: Deployed) -> None:
    for made, days in ((deployed, 30), (Deployed(packages, logs={"days": 365}), 365)):
        groups = made.resources("AWS::Logs::LogGroup").values()
        assert len(groups) == len(FUNCTIONS) + 1
        assert {group["Properties"]["RetentionInDays"] for group in groups} == {days}


def test_in_a_vpc_are_those_that_reach_backends_and_no_others(private: Deployed) -> None:
    inside = {name for name, properties in private.functions().items() if "VpcConfig" in properties}

    assert inside == {"admin", "data", "worker", "reconcile", "tick"}
    assert not private.resources("AWS::EC2::NatGateway")
    assert not private.resources("AWS::EC2::InternetGateway")
    endpoints = json.dumps(list(private.resources("AWS::EC2::VPCEndpoint").values()))
    for service in ("dynamodb", "s3", "kms", "lambda", "secretsmanager", "sqs", "states"):
        assert f".{service}" in endpoints, service


def test_stateful_stacks_are_protected_and_everything_is_tagged(deployed: Deployed) -> None:
    tags = [
        {"Key": "differently:installation", "Value": "differently"} in entry["Properties"]["Tags"]
        for kind in ("AWS::Lambda::Function", "AWS::SQS::Queue", "AWS::IAM::Role")
        for entry in deployed.resources(kind).values()
    ]
    assert tags
    assert all(tags)


@pytest.mark.parametrize("name", ["control", "admin", "tick"])
def test_who_adds_up_what_the_log_holds_may_read_it(name: str) -> None:
    """Reports, a budget that is set, a quota that is counted again, and the clock: only AWS would refuse them."""
    assert Grant.HISTORY in FUNCTIONS[name].grants
