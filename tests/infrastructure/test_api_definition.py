"""The gateway's table: every route on its function, behind the authorizer, and errors in our own shape."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from differently_api.failures import RETRY_AFTER_SECONDS, ErrorBody
from differently_api.route import Access, Group
from differently_api.routes import ROUTES
from differently_core.errors import REACTIONS
from differently_infra.api_definition import ANSWERS, REST, Uris, definition
from tests.infrastructure.conftest import Deployed

URIS = Uris({name: f"invoke:{name}" for name in ("authorizer", "control", "admin", "data")}, "stream:data")
MADE = definition("differently", ROUTES, URIS)
FALLBACKS = ("/", "/{proxy+}")


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in MADE["paths"].items()
        if path not in FALLBACKS
        for method, operation in methods.items()
    }


def test_what_the_gateway_knows_is_what_the_api_declares() -> None:
    assert set(operations()) == {(route.method.value, route.path) for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_route_is_on_its_function_and_behind_the_authorizer_unless_it_is_public(route: Any) -> None:
    operation = operations()[(route.method.value, route.path)]
    integration = operation["x-amazon-apigateway-integration"]

    assert operation["security"] == ([] if route.access is Access.PUBLIC else [{"key": []}])
    if route.group is Group.DATA:
        assert (integration["uri"], integration["responseTransferMode"]) == ("stream:data", "STREAM")
        assert integration["timeoutInMillis"] == 900_000
    else:
        assert (integration["uri"], integration["timeoutInMillis"]) == (f"invoke:{route.group.value}", 29_000)


def test_without_streaming_data_answers_whole() -> None:
    made = definition("differently", ROUTES, Uris(URIS.invoke, None))
    assert "responseTransferMode" not in json.dumps(made)


def test_every_other_path_and_method_is_answered_by_control_without_a_key() -> None:
    for path in FALLBACKS:
        assert set(MADE["paths"][path]) == set(REST)
        for operation in MADE["paths"][path].values():
            assert operation["security"] == []
            assert operation["x-amazon-apigateway-integration"]["uri"] == "invoke:control"


def test_siblings_call_a_parameter_by_one_name() -> None:
    """API Gateway holds one resource for each place in a path: two names for it do not import."""
    names: dict[str, set[str]] = {}
    for path in MADE["paths"]:
        segments = path.strip("/").split("/")
        for place, segment in enumerate(segments):
            if segment.startswith("{") and path not in FALLBACKS:
                names.setdefault("/".join(segments[:place]), set()).add(segment)
    assert {parent: found for parent, found in names.items() if len(found) > 1} == {}


def test_a_proof_is_remembered_for_a_minute_by_the_key_alone() -> None:
    told = MADE["components"]["securitySchemes"]["key"]["x-amazon-apigateway-authorizer"]
    assert told["authorizerResultTtlInSeconds"] == 60
    assert told["identitySource"] == "method.request.header.Authorization"


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.kind)
def test_the_gateway_s_own_answers_have_our_envelope(answer: Any) -> None:
    body = json.loads(answer.body().replace("$context.requestId", "req-1"))

    said = ErrorBody.model_validate(body).error
    assert said.code in {reaction.public for reaction in REACTIONS.values()}
    assert said.request_id == "req-1"
    assert answer.body().count("$context") == 1
    headers = answer.document()["responseParameters"]
    assert all(name.startswith("gatewayresponse.header.") for name in headers)
    assert ("gatewayresponse.header.Retry-After" in headers) is (answer.status == 429)
    if answer.status == 429:
        entry = REACTIONS[answer.code]
        assert entry.http_status == 429
        assert headers["gatewayresponse.header.Retry-After"] == f"'{RETRY_AFTER_SECONDS[entry.retry]}'"


@pytest.mark.parametrize(
    ("origins", "told"),
    [
        ((), None),
        (("https://console.example",), "'https://console.example'"),
        (("https://console.example", "https://docs.example"), "method.request.header.Origin"),
    ],
)
def test_a_page_that_may_read_answers_may_read_the_gateway_s_own(origins: tuple[str, ...], told: str | None) -> None:
    """An expired key looked like a network failure in a browser: 401 is the gateway's, and it named no origin."""
    made = definition("differently", ROUTES, URIS, origins)
    for answer in made["x-amazon-apigateway-gateway-responses"].values():
        assert answer["responseParameters"].get("gatewayresponse.header.Access-Control-Allow-Origin") == told


def test_a_body_that_is_too_large_is_told_the_limit() -> None:
    (answer,) = [answer for answer in ANSWERS if answer.kind == "REQUEST_TOO_LARGE"]
    assert answer.status == 413
    assert json.loads(answer.body())["error"]["details"] == {"limit": 4 * 1024 * 1024}


def test_no_answer_of_the_gateway_quotes_the_request(deployed: Deployed) -> None:
    (stage,) = deployed.resources("AWS::ApiGateway::Stage").values()
    logged = json.dumps(stage["Properties"]["AccessLogSetting"]["Format"])

    assert not re.search(r"context\.(path|requestOverride|identity\.userAgent)|\$input", logged)
    settings = stage["Properties"]["MethodSettings"]
    assert all(entry["DataTraceEnabled"] is False for entry in settings)


def test_the_api_is_regional_and_takes_any_bytes(deployed: Deployed) -> None:
    (api,) = deployed.resources("AWS::ApiGateway::RestApi").values()
    assert api["Properties"]["EndpointConfiguration"] == {"Types": ["REGIONAL"]}
    assert api["Properties"]["Body"]["x-amazon-apigateway-binary-media-types"] == ["*/*"]


def test_each_function_is_called_by_this_api_alone(deployed: Deployed) -> None:
    permissions = [
        entry["Properties"]
        for key, entry in deployed.resources("AWS::Lambda::Permission").items()
        if key.startswith("api.")
    ]
    assert len(permissions) == 4
    for permission in permissions:
        source = json.dumps(permission["SourceArn"])
        assert "execute-api" in source
        assert '"Ref": "Api' in source


def test_the_filter_is_a_switch_and_never_looks_at_bodies(deployed: Deployed, private: Deployed) -> None:
    assert not deployed.resources("AWS::WAFv2::WebACL")
    (acl,) = private.resources("AWS::WAFv2::WebACL").values()
    assert {rule["Name"] for rule in acl["Properties"]["Rules"]} == {"rate", "reputation"}
    assert len(private.resources("AWS::WAFv2::WebACLAssociation")) == 1
