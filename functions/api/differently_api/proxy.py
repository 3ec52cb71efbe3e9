"""Between API Gateway's REST proxy events and our requests and answers.

A body that is an iterator is passed on as it is: whoever owns the connection (the local front, the Lambda boot file)
sends its chunks. If the iterator raises, the connection must be broken off, so that a cut answer never looks whole.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from differently_core.errors import InvalidRequest, PayloadTooLarge

from .failures import failure
from .route import Answer

Event = Mapping[str, Any]
Response = dict[str, Any]
REQUEST_ID_MAX = 128
WHOLE_BYTES_MAX = 4 * 1024 * 1024
"""A function answers with 6 MB at most, and bytes that are no text grow by a third on the way."""


@dataclass(frozen=True)
class Request:
    id: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    """Names in lower case."""
    query: Mapping[str, Sequence[str]] = field(repr=False)
    authorizer: Mapping[str, Any] = field(repr=False)
    raw_body: str | bytes = field(repr=False)
    is_base64: bool = False
    seconds_left: float | None = None
    """Until this function is ended, where the platform tells."""

    @classmethod
    def of(cls, event: Event, context: object, request_id: str) -> Request:
        remaining = getattr(context, "get_remaining_time_in_millis", None)
        return cls(
            id=request_id,
            method=str(event.get("httpMethod", "")),
            path=str(event.get("path", "")),
            headers={name.lower(): str(value) for name, value in (event.get("headers") or {}).items()},
            query=_query(event),
            authorizer=(event.get("requestContext") or {}).get("authorizer") or {},
            raw_body=event.get("body") or "",
            is_base64=bool(event.get("isBase64Encoded")),
            seconds_left=remaining() / 1000 if callable(remaining) else None,
        )

    def body(self, bytes_max: int, what: str, instead: str = "send less") -> bytes:
        """The body as sent; raises `PayloadTooLarge` before decoding what cannot fit.

        Compressed bodies are refused: unpacked unasked they would be a bomb, and taken as they are a file of rubbish.
        """
        if self.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise InvalidRequest("Bodies are taken uncompressed; leave Content-Encoding out.", field="Content-Encoding")
        size = len(self.raw_body) * 3 // 4 - 2 if self.is_base64 else len(self.raw_body)
        data = self._decoded() if size <= bytes_max else b""
        if size > bytes_max or len(data) > bytes_max:
            raise PayloadTooLarge(f"{what} can hold {bytes_max} bytes at most; {instead}.", limit=bytes_max)
        return data

    def _decoded(self) -> bytes:
        raw = self.raw_body
        if isinstance(raw, bytes):
            return raw
        try:
            return base64.b64decode(raw, validate=True) if self.is_base64 else raw.encode()
        except (binascii.Error, UnicodeError):
            raise InvalidRequest("The body could not be read; send it again.") from None


def request_id(event: Event) -> str | None:
    found = (event.get("requestContext") or {}).get("requestId")
    return str(found)[:REQUEST_ID_MAX] if found else None


def _query(event: Event) -> Mapping[str, Sequence[str]]:
    several = event.get("multiValueQueryStringParameters")
    if several:
        return {str(name): [str(value) for value in values] for name, values in several.items()}
    return {str(name): [str(value)] for name, value in (event.get("queryStringParameters") or {}).items()}


def response(answer: Answer) -> Response:
    body = answer.body
    is_bytes = isinstance(body, bytes)
    return {
        "statusCode": answer.status,
        "headers": dict(answer.headers),
        "body": base64.b64encode(body).decode() if isinstance(body, bytes) else "" if body is None else body,
        "isBase64Encoded": is_bytes,
    }


def whole(answer: Response) -> Response:
    """An answer with its iterator in one piece, where nothing else can be sent. Raises what the iterator raises.

    A piece that no function could answer with is refused: sent, it would be lost with an error that says nothing.
    """
    body = bytearray()
    for chunk in answer["body"]:
        body += chunk
        if len(body) > WHOLE_BYTES_MAX:
            close = getattr(answer["body"], "close", None)
            if close is not None:
                close()
            return _over(answer)
    try:
        return {**answer, "body": body.decode(), "isBase64Encoded": False}
    except UnicodeDecodeError:
        return {**answer, "body": base64.b64encode(body).decode(), "isBase64Encoded": True}


def _over(answer: Response) -> Response:
    error = PayloadTooLarge(
        f"The answer has more than {WHOLE_BYTES_MAX} bytes, and this installation sends none in pieces: read it in "
        "parts with a command, or have the operator switch api.streaming on.",
        limit=WHOLE_BYTES_MAX,
    )
    refused = failure(error, str(answer["headers"].get("X-Request-Id", "")))
    said = {name: value for name, value in answer["headers"].items() if not name.startswith("Content-")}
    return response(Answer(refused.status, refused.body, {**said, **refused.headers}))
