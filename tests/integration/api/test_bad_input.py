"""What is refused, and how: status, code and the field in the words of the wire. Nothing that was sent is quoted."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from differently_api.parsing import JSON_BYTES_MAX, JSON_DEPTH_MAX
from differently_core.operations.requests import ENV_BYTES_MAX, ENV_MAX, LABELS_MAX
from tests.support.api import Reply, World

CANARY = "c4n4ry-7d1f"
"""Put where a secret could be; it must not come back."""
SANDBOXES, EXEC, JOBS, PATCH = "POST /v1/sandboxes", "POST …/exec", "POST …/jobs", "PATCH …"
POOLS, KEYS, ORGS = "POST /v1/admin/pools", "POST /v1/api-keys", "POST /v1/orgs"
POOL = {"name": "p", "adapter": "fake", "maxConcurrency": 1}


def nested(levels: int) -> str:
    """JSON whose innermost object is on that level."""
    return '{"config":' * (levels - 1) + "{}" + "}" * (levels - 1)


@dataclass(frozen=True)
class Case:
    route: str
    body: Any
    field: str | None = None
    status: int = 400
    code: str = "invalid_request"


BODIES = [
    # JSON that is none
    Case(SANDBOXES, "{", "body"),
    Case(SANDBOXES, "not json", "body"),
    Case(SANDBOXES, "[]", "body"),
    Case(SANDBOXES, '"text"', "body"),
    Case(SANDBOXES, "null", "body"),
    Case(SANDBOXES, "7", "body"),
    Case(SANDBOXES, "{} {}", "body"),
    Case(SANDBOXES, "{'a': 1}", "body"),
    Case(SANDBOXES, '{"template": "a",}', "body"),
    Case(SANDBOXES, '{"ttlSeconds": 01}', "body"),
    Case(SANDBOXES, b'{"template": "\xff"}', "body"),
    Case(SANDBOXES, b"\xef\xbb\xbf{}", "body"),
    Case(SANDBOXES, '{"image": "\\ud800"}', "body"),
    Case(SANDBOXES, '{"resources": {"cpu": NaN}}', "body"),
    Case(SANDBOXES, '{"resources": {"cpu": Infinity}}', "body"),
    Case(SANDBOXES, '{"resources": {"cpu": 1e999}}', "body"),
    Case(SANDBOXES, '{"ttlSeconds": ' + "9" * 5000 + "}", "body"),
    Case(SANDBOXES, '{"ttlSeconds": 1, "ttlSeconds": 2}', "ttlSeconds"),
    Case(SANDBOXES, '{"env": {"A": "1", "A": "2"}}', "A"),
    Case(SANDBOXES, '{"template": "default", "\\u0074emplate": "x"}', "template"),
    Case(POOLS, nested(JSON_DEPTH_MAX + 1), "body"),
    Case(POOLS, "[" * 100_000, "body"),
    Case(POOLS, '{"config":' * 100_000, "body"),
    # Fields
    Case(SANDBOXES, {"templte": "x"}, "templte"),
    Case(SANDBOXES, {"ttl_seconds": 5}, "ttl_seconds"),
    Case(SANDBOXES, {"resources": {"memory_mib": 512}}, "resources.memory_mib"),
    Case(SANDBOXES, {"resources": {"gpu": 1}}, "resources.gpu"),
    Case(SANDBOXES, {"id": "sbx_1"}, "id"),
    Case(SANDBOXES, {"status": "running"}, "status"),
    Case(SANDBOXES, {"placement": {"pools": []}}, "placement.pools"),
    # Types: nothing is guessed
    Case(SANDBOXES, {"ttlSeconds": "60"}, "ttlSeconds"),
    Case(SANDBOXES, {"ttlSeconds": True}, "ttlSeconds"),
    Case(SANDBOXES, {"ttlSeconds": 1.5}, "ttlSeconds"),
    Case(SANDBOXES, {"ttlSeconds": [1]}, "ttlSeconds"),
    Case(SANDBOXES, {"template": 7}, "template"),
    Case(SANDBOXES, {"template": None}, "template"),
    Case(SANDBOXES, {"resources": []}, "resources"),
    Case(SANDBOXES, {"resources": {"cpu": "2"}}, "resources.cpu"),
    Case(SANDBOXES, {"labels": [["a", "b"]]}, "labels"),
    Case(SANDBOXES, {"labels": {"a": 1}}, "labels.a"),
    Case(SANDBOXES, {"capabilities": "exec"}, "capabilities"),
    Case(SANDBOXES, {"env": {"A": 1}}, "env.A"),
    # Bounds
    Case(SANDBOXES, {"ttlSeconds": -1}, "ttlSeconds"),
    Case(SANDBOXES, {"ttlSeconds": 10 * 365 * 24 * 3600 + 1}, "ttlSeconds"),
    Case(SANDBOXES, {"queueTimeoutSeconds": -1}, "queueTimeoutSeconds"),
    Case(SANDBOXES, {"queueTimeoutSeconds": 86_401}, "queueTimeoutSeconds"),
    Case(SANDBOXES, {"priority": 10}, "priority"),
    Case(SANDBOXES, {"resources": {"cpu": 0}}, "resources.cpu"),
    Case(SANDBOXES, {"resources": {"memoryMiB": 15}}, "resources.memoryMiB"),
    Case(SANDBOXES, {"resources": {"diskGiB": -1}}, "resources.diskGiB"),
    Case(SANDBOXES, {"image": ""}, "image"),
    Case(SANDBOXES, {"image": "a b"}, "image"),
    Case(SANDBOXES, {"template": "UPPER"}, "template"),
    Case(SANDBOXES, {"template": "../etc"}, "template"),
    Case(SANDBOXES, {"template": "nothing"}, "template"),
    Case(SANDBOXES, {"labels": {f"k{n}": "" for n in range(LABELS_MAX + 1)}}, "labels"),
    Case(SANDBOXES, {"labels": {"k": "x" * 257}}, "labels.k"),
    Case(SANDBOXES, {"labels": {"k": "a\nb"}}, "labels.k"),
    Case(SANDBOXES, {"labels": {"": "x"}}, "labels."),
    Case(SANDBOXES, {"labels": {"differently.dev/sandbox-id": "x"}}, "labels.differently.dev/sandbox-id"),
    Case(SANDBOXES, {"labels": {"Differently.DEV/x": "x"}}, "labels.Differently.DEV/x"),
    Case(SANDBOXES, {"labels": {" differently.dev/x": "x"}}, "labels. differently.dev/x"),
    Case(SANDBOXES, {"labels": {"dіfferently.dev/x": "x"}}, "labels.d?fferently.dev/x"),
    Case(SANDBOXES, {"env": {f"K{n}": "" for n in range(ENV_MAX + 1)}}, "env"),
    Case(SANDBOXES, {"env": {"A": CANARY + "x" * 32_768}}, "env.A"),
    Case(SANDBOXES, {"env": {"A": CANARY + "x" * 30_000, "B": "x" * 30_000, "C": "x" * 6_000}}, "env"),
    Case(SANDBOXES, {"env": {"A": f"{CANARY}\0"}}, "env.A"),
    Case(SANDBOXES, {"env": {"1A": CANARY}}, "env.1A"),
    Case(SANDBOXES, {"env": {"A=B": CANARY}}, "env.A=B"),
    Case(SANDBOXES, {"env": {"A": {"nested": CANARY}}}, "env.A"),
    Case(SANDBOXES, {"capabilities": ["telepathy"]}, "capabilities[0]"),
    Case(SANDBOXES, {"capabilities": ["exec", "isolation.none"]}, "capabilities[1]"),
    Case(SANDBOXES, {"projectId": "proj_other"}, "projectId"),
    # Commands
    Case(EXEC, {}, "body"),
    Case(EXEC, {"command": "a", "args": ["b"]}, "body"),
    Case(EXEC, {"command": ""}, "command"),
    Case(EXEC, {"command": f"echo {CANARY}\0"}, "command"),
    Case(EXEC, {"command": CANARY + "x" * 131_072}, "command"),
    Case(EXEC, {"args": []}, "args"),
    Case(EXEC, {"args": "ls"}, "args"),
    Case(EXEC, {"args": ["a", 7]}, "args[1]"),
    Case(EXEC, {"args": ["x"] * 1025}, "args"),
    Case(EXEC, {"command": "x", "stdin": CANARY * 100_000}, "stdin"),
    Case(EXEC, {"command": "x", "stdin": [CANARY]}, "stdin"),
    Case(EXEC, {"command": "x", "timeoutSeconds": 0}, "timeoutSeconds"),
    Case(EXEC, {"command": "x", "timeoutSeconds": 8_101}, "timeoutSeconds"),
    Case(EXEC, {"command": "x", "encoding": "latin-1"}, "encoding"),
    Case(EXEC, {"command": "x", "cwd": ""}, "cwd"),
    Case(EXEC, {"command": "x", "env": {"A B": CANARY}}, "env.A B"),
    Case(EXEC, {"command": "x", "id": "job"}, "id"),
    Case(JOBS, {"command": "x", "id": "a/b"}, "id"),
    Case(JOBS, {"command": "x", "id": ""}, "id"),
    Case(JOBS, {"command": "x", "id": "x" * 65}, "id"),
    Case(JOBS, {"command": "x", "timeoutSeconds": 8_101}, "timeoutSeconds"),
    # Changes
    Case(PATCH, {"ttlSeconds": 0}, "ttlSeconds"),
    Case(PATCH, {"ttlSeconds": -5}, "ttlSeconds"),
    Case(PATCH, {"template": "x"}, "template"),
    Case(PATCH, {"labels": {"differently.dev/x": "y"}}, "labels.differently.dev/x"),
    # Operators
    Case(POOLS, {**POOL, "name": "a b"}, "name"),
    Case(POOLS, {**POOL, "maxConcurrency": None}, "maxConcurrency"),
    Case(POOLS, {**POOL, "trust": "somewhat"}, "trust"),
    Case(POOLS, {**POOL, "credential": CANARY}, "credential"),
    Case(POOLS, {**POOL, "config": {"token": CANARY}}, "config.token"),
    Case(POOLS, {**POOL, "costModel": {"cpuHour": -1}}, "costModel.cpuHour"),
    Case(POOLS, {"name": "p", "adapter": "fake"}, "maxConcurrency"),
    Case(KEYS, {"name": "k"}, "scope"),
    Case(KEYS, {"name": "", "scope": "operator"}, "name"),
    Case(KEYS, {"name": "a\x00b", "scope": "operator"}, "name"),
    Case(KEYS, {"name": "k", "scope": "operator", "expiresAt": "soon"}, "expiresAt"),
    Case(KEYS, {"name": "k", "scope": "operator", "expiresAt": 1893456000}, "expiresAt"),
    Case(ORGS, {"name": "x", "weight": 0}, "weight"),
    Case(ORGS, {"name": "x", "quota": {"maxConcurrent": -1}}, "quota.maxConcurrent"),
    Case(ORGS, {"name": "x", "quota": {"maxTTLSeconds": 0}}, "quota.maxTTLSeconds"),
    Case(ORGS, {"name": "x", "quota": {"perSandbox": {"maxGpu": 1}}}, "quota.perSandbox.maxGpu"),
    # Too large
    Case(SANDBOXES, '{"image": "' + "x" * JSON_BYTES_MAX + '"}', None, 413, "payload_too_large"),
    Case(EXEC, b"x" * (JSON_BYTES_MAX + 1), None, 413, "payload_too_large"),
]


@pytest.fixture(scope="module")
def plane() -> tuple[World, str, str]:
    """A control plane, a tenant's token and the path of a running sandbox; refusals leave them as they are."""
    world = World()
    world.pool()
    tenant = world.tenant()
    return world, tenant.token, f"/v1/sandboxes/{world.running(tenant)}"


def send(plane: tuple[World, str, str], route: str, body: Any = None, **headers: str) -> Reply:
    world, token, sandbox = plane
    method, _, path = route.partition(" ")
    operators = ("/v1/admin", "/v1/orgs", "/v1/api-keys")
    return world.call(
        method, path.replace("…", sandbox), body, token=world.operator if path.startswith(operators) else token,
        headers=headers,
    )  # fmt: skip


def _name(case: Case) -> str:
    body = case.body if isinstance(case.body, str) else repr(case.body)
    return f"{case.route} {body[:60]}"


@pytest.mark.parametrize("case", BODIES, ids=_name)
def test_a_bad_body_is_refused_by_name(plane: tuple[World, str, str], case: Case) -> None:
    reply = send(plane, case.route, case.body)
    assert (reply.status, reply.code) == (case.status, case.code), reply.raw[:500]
    error = reply.json()["error"]
    assert error["details"].get("field") == case.field, error
    assert set(error) == {"code", "message", "details", "requestId"}
    assert error["requestId"] == reply.headers["X-Request-Id"]
    assert len(error["message"]) < 600
    assert CANARY.encode() not in reply.raw
    if case.field not in (None, "body"):
        assert str(case.field) in error["message"]


QUERIES = [
    ("GET /v1/sandboxes?limit=0", "limit"),
    ("GET /v1/sandboxes?limit=201", "limit"),
    ("GET /v1/sandboxes?limit=ten", "limit"),
    ("GET /v1/sandboxes?limit=1&limit=2", "limit"),
    ("GET /v1/sandboxes?Limit=1", "Limit"),
    ("GET /v1/sandboxes?project_id=x", "project_id"),
    ("GET /v1/sandboxes?status=happy", "status[0]"),
    ("GET /v1/sandboxes?status=running&status=", "status[1]"),
    ("GET /v1/sandboxes?label=novalue", "label[0]"),
    ("GET /v1/sandboxes?label==x", "label[0]"),
    ("GET /v1/sandboxes?label=a=1&label=a=2", "label"),
    ("GET /v1/sandboxes?ended=perhaps", "ended"),
    ("GET /v1/sandboxes?cursor=", "cursor"),
    ("GET …?expand=all", "expand"),
    ("GET …/wait?for=asleep", "for[0]"),
    ("GET …/wait?timeoutSeconds=841", "timeoutSeconds"),
    ("GET …/wait?timeoutSeconds=-1", "timeoutSeconds"),
    ("GET …/files/content", "path"),
    ("GET …/files/content?path=", "path"),
    ("GET …/files/content?path=a&path=b", "path"),
    ("GET …/files/content?path=a%00b", "path"),
    ("GET …/files/stat?path=" + "x" * 4097, "path"),
    ("PUT …/files/content?file=a", "path"),
    ("DELETE …/files/content", "path"),
    ("GET …/jobs/a/output?stream=stdin", "stream"),
    ("GET …/jobs/a/output?offset=-1", "offset"),
    ("GET …/jobs/a/output?limit=15", "limit"),
    ("GET …/jobs/a/output?limit=1048577", "limit"),
    ("GET …/jobs/a/output?encoding=hex", "encoding"),
    ("POST …/exec?stream=maybe", "stream"),
    ("GET /v1/orgs?limit=101", "limit"),
    ("GET /v1/admin/pools?after=x", "after"),
    ("GET /v1/api-keys?cursor=AAAA", "cursor"),
    ("GET /healthz?deep=1", "deep"),
]


@pytest.mark.parametrize(("route", "field"), QUERIES)
def test_a_bad_query_is_refused_by_name(plane: tuple[World, str, str], route: str, field: str) -> None:
    body = {"command": "x"} if route.startswith("POST") else b"x" if route.startswith("PUT") else None
    reply = send(plane, route, body)
    assert (reply.status, reply.code) == (400, "invalid_request"), reply.raw
    assert reply.json()["error"]["details"]["field"] == field


def test_a_query_that_is_no_text_is_refused(plane: tuple[World, str, str]) -> None:
    world, token, sandbox = plane
    event = world.event("GET", f"{sandbox}/files/content", token=token)
    event["multiValueQueryStringParameters"] = {"path": ["a\udc80"]}
    reply = world.deliver(event)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "path")


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "a\tb", "ä", "a\x7f", "\x00"])
def test_a_bad_idempotency_key_is_refused(plane: tuple[World, str, str], key: str) -> None:
    reply = send(plane, SANDBOXES, {}, **{"Idempotency-Key": key})
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize("key", ["x", "x" * 255, "!~\"'{}"])
def test_any_visible_ascii_is_an_idempotency_key(plane: tuple[World, str, str], key: str) -> None:
    assert send(plane, SANDBOXES, {}, **{"idempotency-key": key}).status == 202


@pytest.mark.parametrize(
    "sandbox",
    ["x", "sbx_1", "sbx_" + "0" * 26, "SBX_01JBM2ZQ5KD3V9T7C8R1X4W6YA", "sbx_01jbm2zq5kd3v9t7c8r1x4w6ya",
     "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA%0A", "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA%2F..", "%F0%9F%8D%8C", "x" * 3000],
)  # fmt: skip
def test_what_is_no_id_is_not_found(plane: tuple[World, str, str], sandbox: str) -> None:
    world, token, _ = plane
    for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/wait"), ("GET", "/files")):
        reply = world.call(method, f"/v1/sandboxes/{sandbox}{tail}", token=token)
        assert (reply.status, reply.code) == (404, "not_found")
        assert len(reply.raw) < 1000


def test_a_body_that_is_no_base64_is_refused(plane: tuple[World, str, str]) -> None:
    world, token, _ = plane
    event = world.event("POST", "/v1/sandboxes", "not base64!", token=token)
    event["isBase64Encoded"] = True
    assert world.deliver(event).status == 400


def test_a_body_may_be_just_as_large_as_the_limit(plane: tuple[World, str, str]) -> None:
    padded = "{" + " " * (JSON_BYTES_MAX - 2) + "}"
    assert send(plane, SANDBOXES, padded).status == 202
    assert send(plane, SANDBOXES, padded.encode()).status == 202
    assert send(plane, SANDBOXES, padded + " ").status == 413
    assert send(plane, SANDBOXES, (padded + " ").encode()).status == 413


def test_a_body_may_be_just_as_deep_as_the_limit(plane: tuple[World, str, str]) -> None:
    world, _, _ = plane
    deepest = json.loads(nested(JSON_DEPTH_MAX - 1))
    reply = world.call("POST", "/v1/admin/pools", {**POOL, "config": deepest}, token=world.operator)
    assert reply.json()["error"]["details"]["field"] == "config.config"
    deeper = json.loads(nested(JSON_DEPTH_MAX))
    reply = world.call("POST", "/v1/admin/pools", {**POOL, "config": deeper}, token=world.operator)
    assert reply.json()["error"]["details"]["field"] == "body"


@pytest.mark.parametrize(
    "body",
    [
        {"env": {"A": "x" * 32_768, "B": "x" * (ENV_BYTES_MAX - 32_768 - 2)}},
        {"env": {f"K{n}": "" for n in range(ENV_MAX)}},
        {"labels": {f"k{n}": "x" * 256 for n in range(LABELS_MAX)}},
        {"labels": {"a/b.c_d-e": "日本 語", "x" * 128: ""}},
        {"resources": {"cpu": 0.001, "memoryMiB": 16, "diskGiB": 0}},
        {"priority": 9},
        {"ttlSeconds": 0},
        {"queueTimeoutSeconds": 86_400},
        {"image": None, "projectId": None},
    ],
)
def test_what_is_just_within_the_bounds_is_taken(plane: tuple[World, str, str], body: Any) -> None:
    reply = send(plane, SANDBOXES, body)
    assert reply.status == 202, reply.raw


def test_a_body_without_anything_is_an_empty_object(plane: tuple[World, str, str]) -> None:
    for body in (None, "", "  \n", b""):
        assert send(plane, SANDBOXES, body).status == 202


def test_every_problem_of_a_body_is_listed_up_to_a_bound(plane: tuple[World, str, str]) -> None:
    error = send(plane, SANDBOXES, {"ttlSeconds": "x", **{f"f{n}": 1 for n in range(50)}}).json()["error"]
    assert len(error["details"]["problems"]) == 10
    assert error["details"]["problems"][0] == "ttlSeconds: must be a valid integer"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "HEAD", "TRACE", "get", ""])
def test_a_known_path_without_the_method_is_405_and_says_which_there_are(memory: World, method: str) -> None:
    event = memory.event("GET", "/v1/sandboxes")
    event["httpMethod"] = method
    reply = memory.deliver(event)
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert reply.headers["Allow"] == "GET, POST"


def test_text_bodies_may_come_as_base64(plane: tuple[World, str, str]) -> None:
    world, token, _ = plane
    event = world.event("POST", "/v1/sandboxes", base64.b64encode(b'{"labels": {"a": "b"}}').decode(), token=token)
    event["isBase64Encoded"] = True
    assert world.deliver(event).json()["labels"] == {"a": "b"}


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, identity", "x-unheard-of"])
@pytest.mark.parametrize("sent", ["{}", ""])
def test_a_compressed_body_is_refused_and_never_taken_as_it_is(
    plane: tuple[World, str, str], encoding: str, sent: str
) -> None:
    """A newcomer's gzip was stored as the file's own bytes."""
    world, token, _ = plane
    reply = world.call("POST", "/v1/sandboxes", sent, token=token, headers={"Content-Encoding": encoding})
    assert (reply.status, reply.json()["error"]["details"]) == (400, {"field": "Content-Encoding"})
    plain = world.call("POST", "/v1/sandboxes", sent, token=token, headers={"Content-Encoding": "Identity"})
    assert plain.status == 202


def test_names_in_messages_are_short_and_printable(plane: tuple[World, str, str]) -> None:
    for name in ("x" * 100_000, "a\nb\u202e", "🍌"):
        reply = send(plane, SANDBOXES, {name: 1})
        message = reply.json()["error"]["message"]
        assert reply.status == 400
        assert len(message) < 300
        assert message.isprintable()
    assert send(plane, f"GET /v1/sandboxes?{quote('a' * 5000)}=1").json()["error"]["details"]["field"] == "a" * 64


@pytest.mark.parametrize("path", ["/v1/api-keys/{}/rotate", "/v1/sandboxes/{}", "/v1/{}", "/v1/sandboxes/%20{}"])
def test_a_key_in_a_path_is_not_repeated(plane: tuple[World, str, str], path: str) -> None:
    """A newcomer's key came back in "There is no API key …"."""
    world, token, _ = plane
    reply = world.call("POST", path.format("dk_canary_canary"), "{}", token=token)
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert b"canary" not in reply.raw
