"""AWS's own client against the stand-in, so that what the stand-in says has the shape that AWS gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from differently_core.contract import InstanceState, Owner, Target
from differently_core.model.exec import ExecRequest
from tests.conformance.adapters.aws_lambda_microvms_fake import KEY, REGION, FakeMicrovms
from tests.conformance.adapters.aws_lambda_microvms_fake.server import IMAGE
from tests.conformance.adapters.stand_in.faults import answer
from tests.conformance.adapters.test_aws_lambda_microvms import client

OWNER = {"installation": "inst_any", "sandbox": "sbx_sdk"}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMicrovms]:
    fake = FakeMicrovms(tmp_path, pending_looks=0)
    yield fake
    fake.close()


@pytest.fixture
def aws(fake: FakeMicrovms) -> Iterator[Any]:
    aws = botocore.session.get_session().create_client(
        "lambda-microvms", region_name=REGION, endpoint_url=fake.url, aws_access_key_id=KEY[0],
        aws_secret_access_key=KEY[1], config=Config(retries={"total_max_attempts": 1}, proxies={}),
    )  # fmt: skip
    yield aws
    aws.close()


def test_the_life_of_a_microvm_as_awss_own_client_sees_it(fake: FakeMicrovms, aws: Any) -> None:
    asked = {"imageIdentifier": IMAGE, "clientToken": "t-1", "runHookPayload": json.dumps(OWNER)}
    made = aws.run_microvm(**asked)
    ref = made["microvmId"]
    assert aws.run_microvm(**asked)["microvmId"] == ref
    assert made["startedAt"].tzinfo is not None
    assert aws.get_microvm(microvmIdentifier=ref)["state"] == "RUNNING"
    token = aws.create_microvm_auth_token(
        microvmIdentifier=ref, expirationInMinutes=5, allowedPorts=[{"port": 44772}]
    )["authToken"]  # fmt: skip
    assert list(token) == ["X-aws-proxy-auth"]
    aws.suspend_microvm(microvmIdentifier=ref)
    aws.get_microvm(microvmIdentifier=ref)
    assert aws.get_microvm(microvmIdentifier=ref)["state"] == "SUSPENDED"
    aws.resume_microvm(microvmIdentifier=ref)
    assert aws.get_microvm_image(imageIdentifier=IMAGE)["tags"] == fake.tags
    assert aws.list_microvm_images()["items"][0]["imageArn"] == IMAGE
    for _ in range(2):
        aws.terminate_microvm(microvmIdentifier=ref)
    assert aws.get_microvm(microvmIdentifier=ref)["state"] == "TERMINATED"


def test_awss_own_paginator_reads_the_list(fake: FakeMicrovms, aws: Any) -> None:
    refs = {aws.run_microvm(imageIdentifier=IMAGE)["microvmId"] for _ in range(5)}
    fake.page_size_max = 2
    pages = list(aws.get_paginator("list_microvms").paginate(imageIdentifier=IMAGE))
    assert len(pages) == 3
    assert {item["microvmId"] for page in pages for item in page["items"]} == refs


@pytest.mark.parametrize(
    ("status", "code"), [(500, "InsufficientCapacityException"), (402, "ServiceQuotaExceededException")]
)
def test_awss_own_client_knows_the_errors_by_their_code(fake: FakeMicrovms, aws: Any, status: int, code: str) -> None:
    fake.expect("POST", "/microvms$", answer(status, code, "no", x_amzn_errortype=code))
    with pytest.raises(ClientError) as refused:
        aws.run_microvm(imageIdentifier=IMAGE)
    assert type(refused.value).__name__ == code
    with pytest.raises(aws.exceptions.ResourceNotFoundException):
        aws.get_microvm(microvmIdentifier="nothing")
    with pytest.raises(aws.exceptions.ConflictException):
        aws.resume_microvm(microvmIdentifier=fake.plant(OWNER).id)


def test_the_adapter_and_awss_client_see_the_same_microvm(fake: FakeMicrovms, aws: Any) -> None:
    ref = aws.run_microvm(imageIdentifier=IMAGE, runHookPayload=json.dumps({**OWNER, "env": {"A": "1"}}))["microvmId"]
    adapter = client(fake)
    target = Target(Owner(**OWNER))
    assert (adapter.get(target).ref, adapter.get(target).state) == (ref, InstanceState.RUNNING)
    assert adapter.exec(target, ExecRequest(command="echo $A"), 100).stdout == b"1\n"
    adapter.delete(target)
    assert aws.get_microvm(microvmIdentifier=ref)["state"] == "TERMINATED"
    adapter.close()
