"""A plugin of version 1 and no newer: the real handler behind a filter that lets nothing through that version 1 lacks.

It is strict where a real plugin would shrug: a field that version 1 does not have is an error here, so that a test sees
that none is sent.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from differently_adapters.remote.handler import Answer, Body, Handler

ROUTES = re.compile(
    r"GET /adapter/v1/(info|capacity|health)"
    r"|POST /adapter/v1/instances"
    r"|GET /adapter/v1/instances\?installation=[^&]+"
    r"|(GET|DELETE) /adapter/v1/instances/[^/?]+"
    r"|POST /adapter/v1/instances/[^/?]+/(exec(\?stream=1)?|stop|start|pause|resume|snapshots|ports)"
    r"|GET /adapter/v1/instances/[^/?]+/files\?path=[^&]*"
    r"|(GET|PUT) /adapter/v1/instances/[^/?]+/files/content\?path=[^&]*"
    r"|DELETE /adapter/v1/snapshots/[^/?]+"
)
FIELDS = {
    "instances": {"id", "template", "image", "resources", "ttlSeconds", "labels", "env", "fromSnapshot"},
    "exec": {"command", "args", "env", "cwd", "stdin", "timeoutSeconds"},
    "snapshots": {"kind"},
    "ports": {"port"},
}
TOLD = {
    "ref", "sandboxId", "state", "region", "message", "exitCode", "stdout", "stderr", "durationMs", "truncated",
    "stream", "data", "error", "code", "details", "info", "capabilities", "kind", "version", "trust", "isolation",
    "protocol", "description", "features", "maxCPU", "maxMemoryMiB", "maxDiskGiB", "templates", "regions", "bounded",
    "freeCPU", "freeMemoryMiB", "largestFreeCPU", "largestFreeMemoryMiB", "status", "name", "path", "size", "isDir",
    "mode", "modifiedAt", "sizeBytes", "url",
}  # fmt: skip


class Version1(Handler):
    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: Body) -> Answer:
        if not ROUTES.fullmatch(f"{method} {path}"):
            return Answer(501, _protocol(), [_json({"error": {"code": "unsupported_operation", "message": path}})])
        known = {name: value for name, value in headers.items() if not name.startswith(("differently-", "prefer"))}
        kind = path.partition("?")[0].rpartition("/")[2]
        if method == "POST" and kind in FIELDS:
            body = _checked(body, FIELDS[kind])
        answer = super().__call__(method, path, known, body)
        kinds = dict(answer.headers).get("Content-Type", "")
        if "json" not in kinds:
            return answer
        if "ndjson" in kinds:
            return Answer(answer.status, answer.headers, _lines(answer.body))
        plain = [header for header in answer.headers if header[0] != "Content-Length"]
        return Answer(answer.status, plain, [_json(_stripped(json.loads(b"".join(answer.body))))])


def _checked(body: Body, fields: set[str]) -> Body:
    raw = b""
    while chunk := body.read(65_536):
        raw += chunk
    new = json.loads(raw).keys() - fields
    assert not new, f"version 1 has no {new}"
    return io.BytesIO(raw)


def _lines(pieces: Any) -> Iterator[bytes]:
    for piece in pieces:
        told = json.loads(piece)
        yield _json({"error": told["error"]} if "error" in told else _stripped(told)) + b"\n"


def _stripped(value: Any) -> Any:
    match value:
        case {"error": {"code": code, "message": message}}:
            return {"error": {"code": code, "message": message, "details": {}}}
        case dict():
            return {name: _stripped(inner) for name, inner in value.items() if name in TOLD}
        case list():
            return [_stripped(inner) for inner in value]
        case _:
            return value


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _protocol() -> list[tuple[str, str]]:
    return [("Differently-Adapter-Protocol", "1"), ("Content-Type", "application/json")]
