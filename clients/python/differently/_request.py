"""One call as a value: what to send, how long silence may last, and whether it may be sent twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from ._failure import ConfigurationError
from ._model import camel

Repeat = Literal["always", "refused", "never"]
"""`always`: doing it twice is doing it once. `refused`: only when the server surely did nothing. `never`: a command."""
Query = Mapping[str, object]
"""Values are words, numbers, booleans (true is sent, false is the default) and lists; None is left out."""

CALL_SECONDS = 35.0
"""Longer than the 29 seconds that a call of control or admin may take."""
SILENCE_SECONDS = 45.0
"""Longer than the 15 seconds between keep-alives of a stream, three times over."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    repeat: Repeat = "always"
    silence_seconds: float = CALL_SECONDS
    """The longest that may pass without a byte. Nothing here limits how long a whole answer may take."""
    final: tuple[str, ...] = ()
    """Codes that are not waited out, since the caller has another way."""


def request(
    method: str, path: str, *, query: Query | None = None, body: Any = None, idempotency_key: str | None = None,
    repeat: Repeat = "always", silence_seconds: float = CALL_SECONDS, final: tuple[str, ...] = (),
) -> Request:  # fmt: skip
    """A call; `body` is sent as JSON unless it is bytes."""
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    content: bytes | None = None
    if isinstance(body, bytes):
        content, headers["Content-Type"] = body, "application/octet-stream"
    elif body is not None:
        content, headers["Content-Type"] = json.dumps(body, ensure_ascii=False).encode(), "application/json"
    return Request(method, path, _query(query or {}), content, headers, repeat, silence_seconds, final)


def _query(query: Query) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        if isinstance(value, list):
            pairs += [(name, item) for item in value]
        elif isinstance(value, bool):
            pairs += [(name, "true")] if value else []
        elif value is not None:
            pairs.append((name, str(value)))
    return tuple(pairs)


def at(template: str, *names: str | int) -> str:
    """`at("/v1/orgs/{}", "org_1")`: a path with names that cannot lead to another route."""
    for name in names:
        if str(name) in ("", ".", ".."):
            raise ConfigurationError(f"{str(name)!r} is no id or name.")
        if str(name).startswith("dk_"):
            raise ConfigurationError("An API key was given where an id or name belongs. It was not sent.")
    return template.format(*(quote(str(name), safe="") for name in names))


def given(**fields: Any) -> dict[str, Any]:
    """What was given, in the API's spelling: None is left out, which lets the server's default hold."""
    return {camel(name): value for name, value in fields.items() if value is not None}


def once(version: int | None) -> Repeat:
    """A replacement of a named version succeeds once: its repeat would be told that somebody else was faster."""
    return "always" if version is None else "refused"
