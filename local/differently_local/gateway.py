"""What API Gateway's REST front does to a request before a function sees it, and to its answer after. Pure.

The events have the same shape as deployed, so that the handlers cannot tell where they run. What API Gateway would
refuse is refused here with the same bounds.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from differently_api.app import BODY_TOO_LARGE, RAW_BYTES_MAX
from differently_core.errors import (
    DifferentlyError,
    Forbidden,
    Internal,
    InvalidRequest,
    PayloadTooLarge,
    Unauthenticated,
)  # fmt: skip

STAGE = "v1"
RESOURCE = "/{proxy+}"
API_ID = "local"
ACCOUNT = "000000000000"
REGION = "us-east-1"
BODY_BYTES_MAX = 10 * 1024 * 1024
"""Of a request at API Gateway. What is told is the API's own limit, whichever of the bounds is met first."""
PAYLOAD_BYTES_MAX = 6 * 1024 * 1024
"""Of an event into, or a buffered answer out of, a Lambda function."""
QUERY_FIELDS_MAX = 200
BINARY_TYPES = frozenset({"*/*"})
"""Media types whose bodies travel as base64. All of them: a file's bytes come under any type, or under none."""

Headers = Sequence[tuple[str, str]]
Event = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One whole request. `target` is the path and query as they were sent; header names keep their case."""

    method: str
    target: str
    headers: Headers
    body: bytes
    source_ip: str
    identifier: str
    at: datetime

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The last value, as API Gateway gives a header that was sent twice."""
        values = [value for key, value in self.headers if key.lower() == name]
        return values[-1] if values else None


# Events


def proxy_event(
    request: Request, authorizer: Mapping[str, Any] | None, binary_types: frozenset[str] = BINARY_TYPES
) -> Event:
    """The event of a Lambda proxy integration."""
    event = _common(request)
    if authorizer is not None:
        event["requestContext"]["authorizer"] = dict(authorizer)
    binary = _is_binary(request.header("content-type"), binary_types)
    event["body"] = _body(request.body, binary) if request.body else None
    event["isBase64Encoded"] = bool(request.body) and binary
    if len(event["body"] or "") > PAYLOAD_BYTES_MAX:
        raise PayloadTooLarge(BODY_TOO_LARGE, limit=RAW_BYTES_MAX)
    return event


def authorizer_event(request: Request) -> Event:
    """The event of a REQUEST authorizer: all but the body."""
    return {"type": "REQUEST", "methodArn": method_arn(request), **_common(request)}


def method_arn(request: Request) -> str:
    return f"arn:aws:execute-api:{REGION}:{ACCOUNT}:{API_ID}/{STAGE}/{request.method}{request.path}"


def _common(request: Request) -> Event:
    headers = [(name, value) for name, value in request.headers if name.lower() != "transfer-encoding"]
    query = _query(request.target)
    return {
        "resource": RESOURCE,
        "path": request.path,
        "httpMethod": request.method,
        "headers": _last(headers),
        "multiValueHeaders": _all(headers),
        "queryStringParameters": _last(query),
        "multiValueQueryStringParameters": _all(query),
        "pathParameters": {"proxy": request.path.removeprefix("/")},
        "stageVariables": None,
        "requestContext": _context(request),
    }


def _context(request: Request) -> Event:
    at = request.at.astimezone(UTC)
    return {
        "accountId": ACCOUNT,
        "apiId": API_ID,
        "domainName": request.header("host") or "localhost",
        "domainPrefix": API_ID,
        "extendedRequestId": request.identifier,
        "httpMethod": request.method,
        "identity": {"sourceIp": request.source_ip, "userAgent": request.header("user-agent")},
        "path": f"/{STAGE}{request.path}",
        "protocol": "HTTP/1.1",
        "requestId": request.identifier,
        "requestTime": at.strftime("%d/%b/%Y:%H:%M:%S +0000"),
        "requestTimeEpoch": int(at.timestamp() * 1000),
        "resourceId": API_ID,
        "resourcePath": RESOURCE,
        "stage": STAGE,
    }


def _query(target: str) -> list[tuple[str, str]]:
    text = target.partition("?")[2]
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict")
    except ValueError:
        raise InvalidRequest("The query string cannot be read: it is not UTF-8 or has too many fields.") from None


def _last(pairs: Iterable[tuple[str, str]]) -> dict[str, str] | None:
    return dict(pairs) or None


def _all(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]] | None:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found or None


def _is_binary(content_type: str | None, binary_types: frozenset[str]) -> bool:
    media = (content_type or "").partition(";")[0].strip().lower()
    return "*/*" in binary_types or media in binary_types


def _body(body: bytes, binary: bool) -> str:
    # Text that is not UTF-8 arrives damaged at a function, here as there.
    return base64.b64encode(body).decode() if binary else body.decode("utf-8", "replace")


# The authorizer's answer


@dataclass(frozen=True)
class Policy:
    """What an authorizer answered: who the caller is, and which methods it may call."""

    context: Mapping[str, Any]
    allowed: tuple[str, ...]
    denied: tuple[str, ...]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Policy:
        """Raises `Internal` for an answer that API Gateway would not take."""
        try:
            statements = answer["policyDocument"]["Statement"]
            patterns = [(entry["Effect"], pattern) for entry in statements for pattern in _listed(entry["Resource"])]
            context = {"principalId": str(answer["principalId"]), **_flat(answer.get("context") or {})}
        except (KeyError, TypeError):
            raise Internal("The authorizer gave an answer that is no policy.") from None
        return cls(
            context,
            tuple(pattern for effect, pattern in patterns if effect == "Allow"),
            tuple(pattern for effect, pattern in patterns if effect == "Deny"),
        )

    def check(self, arn: str) -> None:
        """Raises `Forbidden` unless the policy allows this method and does not deny it."""
        if not any(_covers(pattern, arn) for pattern in self.allowed) or any(
            _covers(pattern, arn) for pattern in self.denied
        ):
            raise Forbidden("This key may not call this.")


def _listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else value


def _flat(context: Mapping[str, Any]) -> dict[str, str | None]:
    """API Gateway hands every value of the context on as text."""
    if any(isinstance(value, dict | list) for value in context.values()):
        raise TypeError
    return {name: _text(value) for name, value in context.items()}


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _covers(pattern: str, arn: str) -> bool:
    """`*` and `?` as in IAM. Backtracks only to the last star, so no pattern is slow."""
    at = here = 0
    star, resume = -1, 0
    while here < len(arn):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", arn[here]):
            at += 1
            here += 1
        elif star >= 0:
            at, resume = star + 1, resume + 1
            here = resume
        else:
            return False
    return all(char == "*" for char in pattern[at:])


# Answers


@dataclass(frozen=True)
class Answer:
    """What goes to the client. A `stream` is relayed piece by piece; it is closed whatever happens."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    stream: Iterator[bytes] | None = None


def answer_of(result: Any, bytes_max: int | None = PAYLOAD_BYTES_MAX) -> Answer:
    """A function's result as an answer; raises `Internal` for what API Gateway would call malformed.

    `bytes_max` is None for a function whose answers are streamed: those are not bounded by one invocation's payload.
    """
    if not isinstance(result, Mapping):
        raise Internal("The function gave an answer that is no HTTP answer.")
    try:
        status = int(result["statusCode"])
        headers = _answer_headers(result)
        body = result.get("body") or ""
        if isinstance(body, Iterator):
            return Answer(status, headers, stream=body)
        data = base64.b64decode(body, validate=True) if result.get("isBase64Encoded") else body.encode()
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
        raise Internal("The function gave an answer that is no HTTP answer.") from None
    if bytes_max is not None and len(body) > bytes_max:
        raise Internal(f"The answer takes more than the {bytes_max} bytes that one call can carry.")
    return Answer(status, headers, data)


def _answer_headers(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Both kinds of headers; one named in both keeps all its values once."""
    pairs = [(name, str(value)) for name, value in (result.get("headers") or {}).items()]
    for name, values in (result.get("multiValueHeaders") or {}).items():
        pairs += [(name, str(value)) for value in values]
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for name, value in pairs:
        seen.setdefault((name.lower(), value), (name, value))
    return list(seen.values())


def refusal(error: DifferentlyError, identifier: str, status: int | None = None) -> Answer:
    """An error of the front itself, in the shape of every other error."""
    reaction = error.reaction
    document = {
        "error": {
            "code": reaction.public, "message": error.message, "details": error.details, "requestId": identifier,
        }
    }  # fmt: skip
    headers = [
        ("Content-Type", "application/json"),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Request-Id", identifier),
    ]
    if isinstance(error, Unauthenticated):
        headers.append(("WWW-Authenticate", "Bearer"))
    return Answer(status or reaction.http_status, headers, json.dumps(document).encode())
