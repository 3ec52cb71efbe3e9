"""What Lambda starts: each module makes its function from the environment, sends nothing, and loads no more than it
needs. A cold start is time that somebody waits, so what it loads is counted here by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from differently_api.proxy import whole
from tests.support.functions import BOOTS, ENVIRON

LOOK = """
import importlib, json, socket, sys

def refuse(*arguments, **named):
    raise AssertionError("the network was asked for")

socket.socket.connect = refuse
socket.getaddrinfo = refuse
module = importlib.import_module(sys.argv[1])
print(json.dumps({"modules": sorted(sys.modules), "callable": callable(module.handler)}))
"""
HEAVY = {"httpx", "h11", "boto3", "aws_lambda_powertools", "asyncio", "unittest", "pydoc"}
"""Not for a cold start: clients of providers load with the first pool of their kind."""


def started(module: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOOK, module], env={"PATH": os.environ["PATH"], **environ}, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip


@pytest.fixture(scope="module", params=sorted(BOOTS))
def loaded(request: pytest.FixtureRequest) -> Any:
    done = started(BOOTS[request.param], dict(ENVIRON))
    assert done.returncode == 0, done.stderr
    return {"function": request.param, **json.loads(done.stdout)}


def test_a_function_is_made_without_the_network(loaded: Any) -> None:
    assert loaded["callable"]


def test_no_heavy_module_is_loaded(loaded: Any) -> None:
    assert not HEAVY & set(loaded["modules"])
    assert not [name for name in loaded["modules"] if name.startswith("differently_adapters.providers")]


def test_only_what_serves_the_api_loads_its_routes(loaded: Any) -> None:
    serves = loaded["function"] in {"control", "admin", "data"}
    assert ("differently_api.routes" in loaded["modules"]) is serves


def test_a_function_that_is_told_nothing_says_what_is_missing() -> None:
    done = started(BOOTS["worker"], {})
    assert done.returncode != 0
    assert "Misconfigured: AWS_REGION" in done.stderr


@pytest.mark.parametrize(("pieces", "sent"), [([b"a\n", "é".encode()], "a\né"), ([b"\xff", b"\x00"], "/wA="), ([], "")])
def test_an_answer_that_cannot_be_streamed_is_sent_whole(pieces: list[bytes], sent: str) -> None:
    answer = whole({"statusCode": 200, "headers": {}, "body": iter(pieces), "isBase64Encoded": False})
    assert (answer["body"], answer["isBase64Encoded"]) == (sent, sent == "/wA=")


def test_an_answer_that_no_function_can_send_is_refused_and_its_source_let_go() -> None:
    """Sent, it would be a 502 of the gateway's that names nothing."""
    left: list[str] = []

    def pieces() -> Iterator[bytes]:
        try:
            while True:
                yield bytes(1024 * 1024)
        finally:
            left.append("closed")

    headers = {"Content-Length": "104857600", "Content-Type": "application/octet-stream", "X-Request-Id": "r-1"}
    answer = whole({"statusCode": 200, "headers": headers, "body": pieces(), "isBase64Encoded": False})
    error = json.loads(answer["body"])["error"]
    assert (answer["statusCode"], error["code"], error["requestId"]) == (413, "payload_too_large", "r-1")
    assert "api.streaming" in error["message"]
    assert answer["headers"] == {"X-Request-Id": "r-1", "Content-Type": "application/json"}
    assert left == ["closed"]
