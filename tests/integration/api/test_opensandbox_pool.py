"""An OpenSandbox server that wants a key, used through the API: the key goes to the server and nowhere else."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from differently_core.model.record import Table
from differently_core.runtime.telemetry import JsonFormatter
from tests.conformance.adapters.opensandbox_fake import FakeOpenSandbox
from tests.support.api import World

FIRST, SECOND = "canary-key-of-the-operator-1", "canary-key-of-the-operator-2"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeOpenSandbox]:
    fake = FakeOpenSandbox(tmp_path, api_key=FIRST, keep_alive=False)
    yield fake
    fake.close()


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonFormatter("test"))
    root = logging.getLogger()
    root.addHandler(handler)
    yield text
    root.removeHandler(handler)


def test_a_server_with_a_key_is_used_and_its_key_changed_while_sandboxes_run(
    server: FakeOpenSandbox, log: io.StringIO
) -> None:
    """Issue 4, 9; features.md 1 Secrets: replaced value used without restart, no value told."""
    world = World()
    tenant = world.tenant()
    answers: list[bytes] = []

    def op(method: str, path: str, body: object = None) -> int:
        reply = world.call(method, path, body, token=world.operator)
        answers.append(reply.raw)
        return reply.status

    def put(key: str) -> int:
        return op("PUT", "/v1/admin/secrets/eu", {"fields": {"api_key": key}})

    def says(word: str) -> bool:
        reply = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": f"echo {word}"}, token=tenant.token)
        answers.append(reply.raw)
        return reply.status == 200 and reply.json()["stdout"] == f"{word}\n"

    assert put(FIRST) == 201
    config = {
        "apiUrl": server.url,
        "runtime": "docker",
        "image": "local/base:dev",
        "allowHttp": True,
        "allowLoopback": True,
    }
    pool = {
        "name": "eu", "adapter": "opensandbox", "trust": "private", "maxConcurrency": 5, "credential": "secret:eu",
        "config": config,
    }  # fmt: skip
    assert op("POST", "/v1/admin/pools", pool) == 201
    sandbox = world.running(tenant)
    assert says("hello")

    assert put("canary-wrong-key-of-the-operator") == 409, "the server does not take it"
    assert says("still")
    server.api_key = SECOND
    assert put(SECOND) == 200
    assert says("again")

    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=tenant.token)
    world.settle()
    assert server.count() == 0
    assert op("GET", "/v1/admin/pools/eu") == 200
    assert op("DELETE", "/v1/admin/pools/eu") == 204
    assert op("DELETE", "/v1/admin/secrets/eu") == 204
    events = [str(row.model_dump()) for slot, row in world.store.rows().items() if slot[0] is Table.LOG]  # type: ignore[attr-defined]
    assert len(events) >= 6
    assert "canary" not in log.getvalue() + "".join(events)
    assert not any(b"canary" in answer for answer in answers)
