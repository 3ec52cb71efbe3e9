"""Events and answers have the shape that API Gateway gives them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from differently_core.errors import (
    Forbidden,
    Internal,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    Unauthenticated,
)
from differently_local import gateway
from differently_local.gateway import Policy, Request, answer_of, authorizer_event, method_arn, proxy_event, refusal


def a_request(**changes: Any) -> Request:
    return Request(
        **{
            "method": "POST",
            "target": "/v1/sandboxes?label=a%3Db&label=c%20d&limit=5",
            "headers": [
                ("Host", "localhost:8080"),
                ("Content-Type", "application/json"),
                ("X-Two", "1"),
                ("X-Two", "2"),
            ],
            "body": b'{"ttlSeconds": 60}',
            "source_ip": "127.0.0.1",
            "identifier": "req_1",
            "at": datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
            **changes,
        }
    )


def test_an_event_holds_everything_in_both_forms() -> None:
    event = proxy_event(a_request(), {"principalId": "key_1", "scope": "tenant"})
    assert event == {
        "resource": "/{proxy+}",
        "path": "/v1/sandboxes",
        "httpMethod": "POST",
        "headers": {"Host": "localhost:8080", "Content-Type": "application/json", "X-Two": "2"},
        "multiValueHeaders": {
            "Host": ["localhost:8080"],
            "Content-Type": ["application/json"],
            "X-Two": ["1", "2"],
        },
        "queryStringParameters": {"label": "c d", "limit": "5"},
        "multiValueQueryStringParameters": {"label": ["a=b", "c d"], "limit": ["5"]},
        "pathParameters": {"proxy": "v1/sandboxes"},
        "stageVariables": None,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "local",
            "authorizer": {"principalId": "key_1", "scope": "tenant"},
            "domainName": "localhost:8080",
            "domainPrefix": "local",
            "extendedRequestId": "req_1",
            "httpMethod": "POST",
            "identity": {"sourceIp": "127.0.0.1", "userAgent": None},
            "path": "/v1/v1/sandboxes",
            "protocol": "HTTP/1.1",
            "requestId": "req_1",
            "requestTime": "04/Mar/2026:05:06:07 +0000",
            "requestTimeEpoch": 1772600767000,
            "resourceId": "local",
            "resourcePath": "/{proxy+}",
            "stage": "v1",
        },
        "body": base64.b64encode(b'{"ttlSeconds": 60}').decode(),
        "isBase64Encoded": True,
    }


def test_what_is_absent_is_null() -> None:
    event = proxy_event(a_request(method="GET", target="/healthz", headers=[], body=b""), None)
    absent = ("headers", "multiValueHeaders", "queryStringParameters", "multiValueQueryStringParameters", "body")
    assert {event[name] for name in absent} == {None}
    assert event["isBase64Encoded"] is False
    assert "authorizer" not in event["requestContext"]


def test_only_types_declared_binary_travel_as_base64() -> None:
    binary = frozenset({"application/octet-stream"})
    text = proxy_event(a_request(body=b"\xffx"), None, binary)
    assert (text["body"], text["isBase64Encoded"]) == ("\ufffdx", False)
    bytes_type = [("content-type", "Application/Octet-Stream; x=y")]
    assert proxy_event(a_request(headers=bytes_type, body=b"\xff"), None, binary)["body"] == "/w=="


def test_a_body_that_no_function_could_be_given_is_refused() -> None:
    fits = gateway.PAYLOAD_BYTES_MAX // 4 * 3
    assert proxy_event(a_request(body=b"x" * fits), None)["isBase64Encoded"]
    with pytest.raises(PayloadTooLarge):
        proxy_event(a_request(body=b"x" * (fits + 1)), None)


@pytest.mark.parametrize("query", ["a=%ff", "&".join(f"a{n}=1" for n in range(201))])
def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequest):
        proxy_event(a_request(target=f"/v1/sandboxes?{query}"), None)


def test_an_authorizer_is_asked_without_the_body() -> None:
    event = authorizer_event(a_request())
    assert event["type"] == "REQUEST"
    assert event["methodArn"] == "arn:aws:execute-api:us-east-1:000000000000:local/v1/POST/v1/sandboxes"
    assert "body" not in event


# Policies


def a_policy(effect: str, *resources: str, context: dict[str, Any] | None = None) -> dict[str, Any]:
    statement = {"Action": "execute-api:Invoke", "Effect": effect, "Resource": list(resources)}
    return {"principalId": "key_1", "policyDocument": {"Statement": [statement]}, "context": context or {}}


STAGE = "arn:aws:execute-api:us-east-1:000000000000:local/v1"


@pytest.mark.parametrize(
    "pattern", ["*", f"{STAGE}/*", f"{STAGE}/POST/*", f"{STAGE}/POST/v1/sandboxes", f"{STAGE}/P?ST/v1/*boxes"]
)
def test_a_policy_that_covers_the_method_lets_it_through(pattern: str) -> None:
    Policy.of(a_policy("Allow", pattern)).check(method_arn(a_request()))


@pytest.mark.parametrize("pattern", ["", f"{STAGE}/GET/*", f"{STAGE}/POST/v1/sandboxe", f"{STAGE}/POST/v1/sandboxes?"])
def test_a_policy_that_does_not_cover_it_forbids_it(pattern: str) -> None:
    with pytest.raises(Forbidden):
        Policy.of(a_policy("Allow", pattern)).check(method_arn(a_request()))


def test_a_deny_wins() -> None:
    policy = a_policy("Allow", "*")
    policy["policyDocument"]["Statement"].append({"Effect": "Deny", "Resource": f"{STAGE}/POST/*"})
    with pytest.raises(Forbidden):
        Policy.of(policy).check(method_arn(a_request()))


def test_a_pattern_of_many_stars_is_not_slow() -> None:
    with pytest.raises(Forbidden):
        Policy.of(a_policy("Allow", "*a" * 2_000 + "b")).check("a" * 4_000)


def test_every_context_value_arrives_as_text() -> None:
    context = {"scope": "tenant", "limit": 5, "operator": True}
    policy = Policy.of(a_policy("Allow", "*", context=context))
    assert policy.context == {"principalId": "key_1", "scope": "tenant", "limit": "5", "operator": "true"}


@pytest.mark.parametrize(
    "answer", [{}, {"principalId": "x"}, {**a_policy("Allow", "*"), "context": {"nested": {"a": 1}}}]
)
def test_an_answer_that_is_no_policy_is_a_fault(answer: dict[str, Any]) -> None:
    with pytest.raises(Internal):
        Policy.of(answer)


# Answers


def test_headers_of_both_kinds_are_sent_once_each() -> None:
    answer = answer_of(
        {
            "statusCode": 202,
            "headers": {"Content-Type": "text/plain", "X-One": "1"},
            "multiValueHeaders": {"content-type": ["text/plain"], "Set-It": ["a", "b"]},
            "body": "höre",
        }
    )
    assert answer.status == 202
    assert answer.headers == [("Content-Type", "text/plain"), ("X-One", "1"), ("Set-It", "a"), ("Set-It", "b")]
    assert answer.body == "höre".encode()


def test_a_binary_answer_is_decoded() -> None:
    encoded = base64.b64encode(b"\x00\xff").decode()
    assert answer_of({"statusCode": 200, "body": encoded, "isBase64Encoded": True}).body == b"\x00\xff"


def test_an_iterator_body_stays_one() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"a"

    body = chunks()
    assert answer_of({"statusCode": 200, "body": body}).stream is body


@pytest.mark.parametrize(
    "result",
    [
        None, "text", {}, {"statusCode": "no"}, {"statusCode": 200, "body": 5},
        {"statusCode": 200, "body": "not base64!", "isBase64Encoded": True},
        {"statusCode": 200, "body": "x" * (gateway.PAYLOAD_BYTES_MAX + 1)},
    ],
)  # fmt: skip
def test_a_result_that_lambda_or_the_gateway_would_not_pass_on_is_a_fault(result: Any) -> None:
    with pytest.raises(Internal):
        answer_of(result)


def test_a_refusal_has_the_envelope_of_every_error() -> None:
    answer = refusal(NotFound("gone", sandboxId="sbx_1"), "req_1")
    assert answer.status == 404
    assert b'"code": "not_found"' in answer.body
    assert b'"requestId": "req_1"' in answer.body
    assert ("X-Request-Id", "req_1") in answer.headers
    assert ("WWW-Authenticate", "Bearer") in refusal(Unauthenticated("no key"), "req_1").headers


def test_an_answer_of_a_streamed_function_is_not_bounded_by_one_payload() -> None:
    """A buffered command may print 1 MiB of control characters on each stream; as JSON each takes six bytes."""
    large = {"statusCode": 200, "body": "x" * (gateway.PAYLOAD_BYTES_MAX + 1)}
    assert len(gateway.answer_of(large, None).body) == gateway.PAYLOAD_BYTES_MAX + 1
