"""What Lambda MicroVMs do that nobody would expect, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from differently_adapters import registry
from differently_adapters.providers.aws_lambda_microvms.api import TOKEN_MINUTES
from differently_adapters.providers.aws_lambda_microvms.config import LIFETIME_SECONDS_MAX
from differently_adapters.testing import a_create_request
from differently_core.contract import CreateRequest, InstanceState, Owner, Progress, Target, Transition
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock, VirtualClock
from tests.conformance.adapters.aws_lambda_microvms_fake import KEY, FakeMicrovms
from tests.conformance.adapters.aws_lambda_microvms_fake.server import IMAGE
from tests.conformance.adapters.stand_in.faults import answer, drop_after, edit, reflect
from tests.conformance.adapters.test_aws_lambda_microvms import client

CREATE = ("POST", "/microvms$")
SECONDS = 30.0
OWNER = Owner("inst_any", "sbx_a")


class Shifted(SystemClock):
    """The system's clock, some seconds on."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeMicrovms]:
    fake = FakeMicrovms(tmp_path)
    yield fake
    fake.close()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_any", sandbox)), **changes)


def runs(fake: FakeMicrovms) -> list[dict[str, Any]]:
    return [request.json() for request in fake.requests if request.path.endswith("/microvms") and request.body]


def true(adapter: Any, target: Target) -> int:
    code: int = adapter.exec(target, ExecRequest(command="true"), 10).exit_code
    return code


def test_a_create_says_all_that_must_not_be_left_to_a_default(fake: FakeMicrovms) -> None:
    made = client(fake).create(wanted(env={"A": "1"}), SECONDS)
    (sent,) = runs(fake)
    assert json.loads(sent.pop("runHookPayload")) == {"installation": "inst_any", "sandbox": "sbx_a", "env": {"A": "1"}}
    ingress = "arn:aws:lambda:eu-west-1:aws:network-connector:aws-network-connector:ALL_INGRESS"
    assert sent == {
        "imageIdentifier": IMAGE,
        "clientToken": "inst_any.sbx_a.1",
        "maximumDurationInSeconds": LIFETIME_SECONDS_MAX,
        "idlePolicy": {
            "maxIdleDurationSeconds": LIFETIME_SECONDS_MAX,
            "suspendedDurationSeconds": LIFETIME_SECONDS_MAX,
            "autoResumeEnabled": False,
        },
        "ingressNetworkConnectors": [ingress],
        "egressNetworkConnectors": [],
        "logging": {"disabled": {}},
    }
    assert made.expires_at is not None
    assert made.expires_at > SystemClock().now()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ttl_seconds": LIFETIME_SECONDS_MAX + 1}, "ttlSeconds"),
        ({"image": "python:3.12"}, "image"),
        ({"env": {"LONG": "x" * 4_096}}, "env"),
        ({"size": wanted().size.model_copy(update={"memory_mib": 4_096})}, "resources.memoryMiB"),
    ],
)
def test_what_can_never_be_made_is_refused_before_anything_is_sent(
    fake: FakeMicrovms, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        client(fake).create(wanted(**changes), SECONDS)
    assert refused.value.details["field"] == field
    assert fake.requests == []


def test_a_sandbox_whose_microvm_has_ended_is_made_again_and_only_once(fake: FakeMicrovms) -> None:
    """AWS answers a known token with what was made for it, dead or alive."""
    adapter = client(fake)
    first = adapter.create(wanted(), SECONDS)
    adapter.delete(Target(OWNER, first.ref))
    second = adapter.create(wanted(), SECONDS)
    assert second.ref != first.ref
    assert client(fake).create(wanted(), SECONDS).ref == second.ref
    assert len(fake.alive()) == 1


def test_a_pool_that_was_configured_anew_keeps_the_microvm_that_there_is(fake: FakeMicrovms) -> None:
    first = client(fake).create(wanted(), SECONDS)
    assert client(fake, logGroup="/sandboxes").create(wanted(), SECONDS).ref == first.ref
    assert len(fake.alive()) == 1


def test_a_create_that_is_found_by_its_token_needs_no_word_of_the_agent(fake: FakeMicrovms) -> None:
    fake.expect(*CREATE, drop_after)
    with pytest.raises(ProviderUnavailable) as unknown:
        client(fake).create(wanted(), SECONDS)
    assert not unknown.value.settled
    assert client(fake).create(wanted(), SECONDS).state is InstanceState.RUNNING
    assert len(fake.alive()) == 1


def test_an_agent_that_works_for_another_is_never_handed_out(fake: FakeMicrovms) -> None:
    fake.expect(*CREATE, edit(lambda told: {**told, **_planted(fake)}))
    with pytest.raises(ProviderUnavailable, match="works for another sandbox") as wrong:
        client(fake).create(wanted(), SECONDS)
    assert not wrong.value.settled


def _planted(fake: FakeMicrovms) -> dict[str, str]:
    vm = fake.plant({"installation": "inst_any", "sandbox": "sbx_other"})
    return {"microvmId": vm.id, "endpoint": vm.endpoint}


@pytest.mark.parametrize(
    ("status", "code", "kind", "settled"),
    [
        (500, "InsufficientCapacityException", InsufficientCapacity, True),
        (402, "ServiceQuotaExceededException", InsufficientCapacity, True),
        (429, "ThrottlingException", InsufficientCapacity, True),
        (403, "AccessDeniedException", ProviderUnavailable, True),
        (403, "ExpiredTokenException", ProviderUnavailable, True),
        (400, "ValidationException", InvalidRequest, True),
        (500, "InternalServerException", ProviderUnavailable, False),
        (503, "", ProviderUnavailable, False),
    ],
)
def test_a_refusal_is_told_by_its_code_and_not_by_its_status(
    fake: FakeMicrovms, status: int, code: str, kind: type[DifferentlyError], settled: bool
) -> None:
    fake.expect(*CREATE, answer(status, code, "no", retry_after="7"))
    with pytest.raises(kind) as refused:
        client(fake).create(wanted(), SECONDS)
    assert getattr(refused.value, "settled", True) is settled
    assert refused.value.details["retry_after_seconds"] == 7
    assert refused.value.details.get("reason", "") == code
    assert len(runs(fake)) == 1


def test_no_error_tells_a_key_a_token_or_the_environment(fake: FakeMicrovms) -> None:
    fake.expect(*CREATE, reflect(400))
    with pytest.raises(DifferentlyError) as refused:
        client(fake).create(wanted(env={"TOKEN": "canary-9d81"}), SECONDS)
    assert "canary-9d81" not in f"{refused.value!r} {refused.value.details}"
    assert KEY[1] not in f"{refused.value!r} {refused.value.details}"
    adapter = client(fake)
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.expect("GET", "/files/info$", reflect(500))
    with pytest.raises(DifferentlyError) as reflected:
        adapter.file_stat(target, "x")
    assert not any(token in f"{reflected.value!r} {reflected.value.details}" for token in fake.tokens)


def test_a_token_is_used_until_shortly_before_its_end_and_then_another(fake: FakeMicrovms) -> None:
    clock = Shifted()
    adapter = client(fake, clock)
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    for _ in range(3):
        assert true(adapter, target) == 0
    assert len(fake.tokens) == 1
    clock.ahead = TOKEN_MINUTES * 60 - 60
    assert true(adapter, target) == 0
    assert len(fake.tokens) == 2


def test_a_token_that_is_refused_is_not_used_again(fake: FakeMicrovms) -> None:
    adapter = client(fake)
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.tokens.clear()
    with pytest.raises(BackendError):
        true(adapter, target)
    assert true(adapter, target) == 0


def test_a_paused_one_that_cannot_be_asked_is_known_by_its_ref_and_concluded_from_by_nobody(fake: FakeMicrovms) -> None:
    """AWS keeps no name on it, and asking would mean to wake it."""
    before = client(fake)
    target = Target(OWNER, before.create(wanted(), SECONDS).ref)
    assert before.pause(target, Transition("op", ""), SECONDS).progress is Progress.DONE
    after = client(fake)
    assert after.get(target).state is InstanceState.PAUSED
    assert [(one.ref, one.owner) for one in after.list("inst_any")] == [(target.ref, Owner("inst_any", ""))]
    with pytest.raises(NotFound):
        after.get(Target(OWNER))
    resumed = after.resume(target, Transition("op", ""), SECONDS)
    assert resumed.progress is Progress.DONE
    assert [one.owner for one in after.list("inst_any")] == [OWNER]


def test_a_paused_one_that_turns_out_to_be_anothers_is_put_to_sleep_again(fake: FakeMicrovms) -> None:
    before = client(fake)
    theirs = Target(OWNER, before.create(wanted(), SECONDS).ref)
    before.pause(theirs, Transition("op", ""), SECONDS)
    with pytest.raises(NotFound):
        client(fake).resume(Target(Owner("inst_any", "sbx_b"), theirs.ref), Transition("op", ""), SECONDS)
    assert before.pause(theirs, Transition("op", "", observe_only=True), SECONDS).progress is not Progress.FAILED
    assert before.get(theirs).state is InstanceState.PAUSED


def test_one_that_is_being_suspended_is_not_resumed_yet(fake: FakeMicrovms) -> None:
    adapter = client(fake)
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    fake.suspend_turns = ["SUSPENDING"] * 100
    assert adapter.pause(target, Transition("op", ""), 0.5).progress is Progress.UNDERWAY
    with pytest.raises(InvalidState, match="being suspended"):
        adapter.resume(target, Transition("op2", ""), SECONDS)


@pytest.mark.parametrize(
    ("tags", "well", "warned"),
    [({"differently-installation": "inst_any"}, True, False), ({}, True, True),
     ({"differently-installation": "inst_other"}, False, False)],
)  # fmt: skip
def test_an_image_belongs_to_one_installation(
    fake: FakeMicrovms, tags: dict[str, str], well: bool, warned: bool
) -> None:
    fake.tags = tags
    adapter = client(fake)
    if well:
        adapter.health()
    else:
        with pytest.raises(ProviderUnavailable, match="another installation"):
            adapter.health()
    assert bool(adapter.info().warnings) is warned


def test_an_image_without_an_active_version_is_no_pool(fake: FakeMicrovms) -> None:
    fake.image_version = None
    with pytest.raises(ProviderUnavailable, match="no active version"):
        client(fake).health()


def test_without_credentials_nothing_is_sent(fake: FakeMicrovms, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    config: dict[str, JsonValue] = {
        "imageArn": IMAGE,
        "memoryMiB": 512,
        "endpoint": fake.url,
        "allowHttp": True,
        "allowLoopback": True,
    }
    adapter = registry.build(
        "aws-lambda-microvms", config, pool="p", installation="inst_any", clock=VirtualClock(SystemClock().now())
    )
    with pytest.raises(ProviderUnavailable, match="no AWS credentials") as refused:
        adapter.health()
    assert refused.value.settled
    assert fake.requests == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"imageArn": "differently"}, "imageArn"),
        ({"memoryMiB": 1000}, "memoryMiB"),
        ({"lifetimeSeconds": LIFETIME_SECONDS_MAX + 1}, "lifetimeSeconds"),
        ({"externalId": "x"}, "roleArn"),
        ({"microvmScheme": "http"}, "allowHttp"),
        ({"endpoint": "https://169.254.169.254"}, "link-local"),
        ({"secretAccessKey": "canary"}, "secretAccessKey"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_when_it_is_written(changes: dict[str, Any], field: str) -> None:
    told = {"imageArn": IMAGE, "memoryMiB": 2048, **changes}
    with pytest.raises(InvalidRequest, match=field) as refused:
        registry.build("aws-lambda-microvms", told, pool="p", installation="inst_a", clock=VirtualClock())
    assert "canary" not in str(refused.value)
