"""The API as API Gateway imports it: each route of the API's own declaration, on the function that serves it.

What no route matches goes to control without a key, which answers 404 or 405 as it does everywhere; so a mistake in
this table can hide a route and can never open one, because handlers take callers from the authorizer alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from differently_api.app import BODY_TOO_LARGE, EXPOSED, RAW_BYTES_MAX
from differently_api.failures import RETRY_AFTER_SECONDS, UNAUTHENTICATED
from differently_api.route import Access, AnyRoute, Group
from differently_core.errors import REACTIONS, RateLimited

AUTHORIZER: Final = "key"
AUTHORIZER_SECONDS: Final = 60
"""How long a proof is remembered, and so how long a revoked key may still be taken on routes that do not look again."""
BUFFERED_MS: Final = 29_000
STREAMED_MS: Final = 900_000
REST: Final = ("get", "post", "put", "patch", "delete", "head", "options")


@dataclass(frozen=True)
class Uris:
    """Where the gateway invokes: a URI for each function, and the streaming one of data."""

    invoke: Mapping[str, str]
    stream: str | None


def definition(name: str, routes: Iterable[AnyRoute], uris: Uris, origins: Sequence[str] = ()) -> dict[str, Any]:
    """An OpenAPI document with API Gateway's extensions, and without schemas: bodies are checked by the functions.

    `origins` are those whose pages may read answers, the gateway's own among them.
    """
    paths: dict[str, dict[str, Any]] = {path: dict.fromkeys(REST, _fallback(uris)) for path in ("/", "/{proxy+}")}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.value.lower()] = _operation(route, uris)
    return {
        "openapi": "3.0.1",
        "info": {"title": name, "version": "v1"},
        "paths": paths,
        "components": {"securitySchemes": {AUTHORIZER: _authorizer(uris)}},
        "x-amazon-apigateway-binary-media-types": ["*/*"],
        # Here and not as resources: an import takes away what is not in the document.
        "x-amazon-apigateway-gateway-responses": {answer.kind: answer.document(origins) for answer in ANSWERS},
    }


def _operation(route: AnyRoute, uris: Uris) -> dict[str, Any]:
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.params]
    return {
        **({"parameters": parameters} if parameters else {}),
        "security": [] if route.access is Access.PUBLIC else [{AUTHORIZER: []}],
        "x-amazon-apigateway-integration": _integration(route.group, uris),
    }


def _fallback(uris: Uris) -> dict[str, Any]:
    return {"security": [], "x-amazon-apigateway-integration": _integration(Group.CONTROL, uris)}


def _integration(group: Group, uris: Uris) -> dict[str, Any]:
    common = {"type": "aws_proxy", "httpMethod": "POST", "passthroughBehavior": "when_no_match"}
    if group is Group.DATA and uris.stream is not None:
        streamed = {"responseTransferMode": "STREAM", "timeoutInMillis": STREAMED_MS}
        return {**common, "uri": uris.stream, **streamed}
    return {**common, "uri": uris.invoke[group.value], "timeoutInMillis": BUFFERED_MS}


def _authorizer(uris: Uris) -> dict[str, Any]:
    return {
        "type": "apiKey",
        "name": "Authorization",
        "in": "header",
        "x-amazon-apigateway-authtype": "custom",
        "x-amazon-apigateway-authorizer": {
            "type": "request",
            # Without the header the gateway answers 401 itself, and no function runs.
            "identitySource": "method.request.header.Authorization",
            "authorizerUri": uris.invoke["authorizer"],
            "authorizerResultTtlInSeconds": AUTHORIZER_SECONDS,
        },
    }


# What the gateway answers by itself, in the shape of every other error


@dataclass(frozen=True)
class GatewayAnswer:
    """`kind` is API Gateway's name of the occasion; `status` is left to it where it has several."""

    kind: str
    status: int | None
    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def document(self, origins: Sequence[str] = ()) -> dict[str, Any]:
        """Headers as the gateway maps them: a text in quotes, or something of the request.

        Without them a page sees a failed fetch where its key has expired. The gateway knows no list, so of several
        origins the one that asks is named: these answers tell nothing but that they are refusals.
        """
        headers = {
            "Cache-Control": "'no-store'",
            "X-Content-Type-Options": "'nosniff'",
            "X-Request-Id": "context.requestId",
        }
        if self.status == 429:
            headers["Retry-After"] = f"'{RETRY_AFTER_SECONDS[REACTIONS[self.code].retry]}'"
        if self.status == 401:
            headers["WWW-Authenticate"] = "'Bearer'"
        if origins:
            headers["Access-Control-Allow-Origin"] = (
                f"'{origins[0]}'" if len(origins) == 1 else "method.request.header.Origin"
            )
            headers["Access-Control-Expose-Headers"] = f"'{EXPOSED}'"
            headers["Vary"] = "'Origin'"
        return {
            **({"statusCode": str(self.status)} if self.status is not None else {}),
            "responseParameters": {f"gatewayresponse.header.{name}": value for name, value in headers.items()},
            "responseTemplates": {"application/json": self.body()},
        }

    def body(self) -> str:
        """The envelope; `$context.requestId` is filled in by the gateway."""
        error = {
            "code": self.code, "message": self.message, "details": self.details, "requestId": "$context.requestId",
        }  # fmt: skip
        return json.dumps({"error": error})


_LATE: Final = f"The call took longer than {BUFFERED_MS // 1000} s; what it began may still finish."
_FAULT: Final = "Something went wrong on our side; the request id tells us what."
ANSWERS: Final = (
    GatewayAnswer("DEFAULT_4XX", None, "invalid_request", "The gateway refused this request; check its form."),
    GatewayAnswer("DEFAULT_5XX", None, "internal", _FAULT),
    GatewayAnswer("UNAUTHORIZED", 401, "unauthenticated", UNAUTHENTICATED),
    GatewayAnswer("ACCESS_DENIED", 403, "forbidden", "This key may not call this."),
    GatewayAnswer("WAF_FILTERED", 403, "forbidden", "This address is refused, for what it sent or for how often."),
    GatewayAnswer("MISSING_AUTHENTICATION_TOKEN", 404, "not_found", "There is no such path and method in this API."),
    GatewayAnswer("RESOURCE_NOT_FOUND", 404, "not_found", "There is no such path in this API."),
    GatewayAnswer("REQUEST_TOO_LARGE", 413, "payload_too_large", BODY_TOO_LARGE, {"limit": RAW_BYTES_MAX}),
    GatewayAnswer("THROTTLED", 429, RateLimited.code, "More requests than this installation takes; repeat it later."),
    GatewayAnswer(
        "QUOTA_EXCEEDED", 429, RateLimited.code, "More requests than this installation takes; repeat it later."
    ),
    GatewayAnswer("AUTHORIZER_FAILURE", 500, "internal", _FAULT),
    GatewayAnswer("AUTHORIZER_CONFIGURATION_ERROR", 500, "internal", _FAULT),
    GatewayAnswer("API_CONFIGURATION_ERROR", 500, "internal", _FAULT),
    GatewayAnswer("INTEGRATION_FAILURE", 502, "internal", "The function failed; its log says why."),
    GatewayAnswer("INTEGRATION_TIMEOUT", 504, "internal", _LATE),
)
