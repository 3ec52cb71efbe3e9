"""Who may call is settled before a function is invoked, and each answer is owed within its limit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from differently_core.errors import Internal
from differently_local.functions import Context, Functions, Target
from differently_local.gateway import Answer, Request

KEY = "Bearer dk_1"
CONSOLE = "https://console.example.org"


def a_request(path: str = "/v1/sandboxes", **headers: str) -> Request:
    given = {"Host": "localhost:8080", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Request("GET", path, list(given.items()), b"", "127.0.0.1", "req_1", datetime(2026, 1, 1, tzinfo=UTC))


def code_of(answer: Answer) -> str:
    return str(json.loads(answer.body)["error"]["code"])


class Gateway:
    """Functions whose authorizer and handler are a test's own."""

    def __init__(self) -> None:
        self.asked = 0
        self.events: list[Mapping[str, Any]] = []
        self.release = threading.Event()
        self.functions = Functions(self.authorize, self.resolve, frozenset({CONSOLE}), gateway_seconds=0.2)

    def authorize(self, event: Mapping[str, Any], context: object) -> dict[str, Any]:
        self.asked += 1
        token = event["headers"]["Authorization"]
        if "broken" in token:
            raise Internal("the store is away")
        if "dk_" not in token:
            raise Exception("Unauthorized")
        allowed = "*" if "admin" not in token else "arn:aws:execute-api:us-east-1:000000000000:local/v1/GET/v1/admin"
        statement = {"Effect": "Allow", "Resource": allowed}
        return {"principalId": "key_1", "policyDocument": {"Statement": [statement]}, "context": {"keyId": "key_1"}}

    def resolve(self, method: str, path: str) -> Target:
        return Target("control", self.handle, public=path == "/healthz", timed=not path.startswith("/stream"))

    def handle(self, event: Mapping[str, Any], context: object) -> dict[str, Any]:
        self.events.append(event)
        if event["path"] == "/slow":
            self.release.wait(30)
        if event["path"] == "/raises":
            raise TimeoutError("a socket of the function's own")
        assert isinstance(context, Context)
        return {"statusCode": 200, "body": json.dumps({"left": context.get_remaining_time_in_millis()})}


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    made = Gateway()
    yield made
    made.release.set()
    made.functions.close()


def test_a_public_path_is_served_without_asking_the_authorizer(gateway: Gateway) -> None:
    assert gateway.functions.answer(a_request("/healthz")).status == 200
    assert gateway.asked == 0
    assert "authorizer" not in gateway.events[0]["requestContext"]


def test_a_call_without_a_key_is_refused_without_asking_the_authorizer(gateway: Gateway) -> None:
    answer = gateway.functions.answer(a_request())
    assert (answer.status, code_of(answer)) == (401, "unauthenticated")
    assert (gateway.asked, gateway.events) == (0, [])


def test_the_callers_context_reaches_the_function(gateway: Gateway) -> None:
    assert gateway.functions.answer(a_request(Authorization=KEY)).status == 200
    assert gateway.events[0]["requestContext"]["authorizer"] == {"principalId": "key_1", "keyId": "key_1"}


def test_the_authorizer_is_asked_once_for_each_header(gateway: Gateway) -> None:
    for token in (KEY, KEY, "Bearer dk_2", KEY):
        gateway.functions.answer(a_request(Authorization=token))
    assert gateway.asked == 2


def test_a_refused_key_is_asked_about_again(gateway: Gateway) -> None:
    for _ in range(2):
        assert gateway.functions.answer(a_request(Authorization="Bearer nothing")).status == 401
    assert gateway.asked == 2


def test_an_authorizer_that_fails_is_a_fault_and_not_a_refusal(gateway: Gateway) -> None:
    assert gateway.functions.answer(a_request(Authorization="Bearer dk_broken")).status == 502


def test_a_kept_policy_is_checked_for_each_method(gateway: Gateway) -> None:
    assert gateway.functions.answer(a_request("/v1/admin", Authorization="Bearer dk_admin")).status == 200
    answer = gateway.functions.answer(a_request("/v1/other", Authorization="Bearer dk_admin"))
    assert (answer.status, code_of(answer)) == (403, "forbidden")


def test_a_function_that_is_too_late_is_answered_for(gateway: Gateway) -> None:
    answer = gateway.functions.answer(a_request("/slow", Authorization=KEY))
    assert (answer.status, code_of(answer)) == (504, "internal")


def test_a_time_out_of_the_functions_own_is_a_failure_and_not_lateness(gateway: Gateway) -> None:
    answer = gateway.functions.answer(a_request("/raises", Authorization=KEY))
    assert (answer.status, code_of(answer)) == (502, "internal")
    assert b"socket" not in answer.body


def test_a_data_function_may_take_fifteen_minutes(gateway: Gateway) -> None:
    answer = gateway.functions.answer(a_request("/stream", Authorization=KEY))
    assert 890_000 < json.loads(answer.body)["left"] <= 900_000


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "LOCALHOST", "127.0.0.1:1", "127.1.2.3", "[::1]:8080", "x.localhost"]
)
def test_names_of_this_machine_are_answered(gateway: Gateway, host: str) -> None:
    assert gateway.functions.answer(a_request("/healthz", Host=host)).status == 200


@pytest.mark.parametrize(
    "host", ["", "example.org", "localhost.example.org", "10.0.0.1", "127.0.0.1.example.org", "[::2]", "[", "0"]
)
def test_a_name_that_a_foreign_page_points_here_is_refused(gateway: Gateway, host: str) -> None:
    assert gateway.functions.answer(a_request("/healthz", Host=host)).status == 403


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://localhost.example.org:8080", "http://["])
def test_a_foreign_page_is_refused(gateway: Gateway, origin: str) -> None:
    assert gateway.functions.answer(a_request("/healthz", Origin=origin)).status == 403


def test_a_page_of_this_machine_is_not(gateway: Gateway) -> None:
    assert gateway.functions.answer(a_request("/healthz", Origin="http://localhost:3000")).status == 200


def test_a_listed_origin_may_call(gateway: Gateway) -> None:
    """features.md 1, #52."""
    assert gateway.functions.answer(a_request("/healthz", Origin=CONSOLE)).status == 200
    assert gateway.functions.answer(a_request("/healthz", Origin=f"{CONSOLE}:8443")).status == 403
