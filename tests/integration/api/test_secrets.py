"""Canaries: values that callers keep secret go to the backend and nowhere else."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from differently_adapters.providers.fake import FakeAdapter, FakeInstance
from differently_core.contract import CommandResult
from differently_core.model.exec import ExecRequest
from differently_core.model.record import Table
from differently_core.runtime.telemetry import JsonFormatter
from tests.support.api import World

ENV, STDIN, COMMAND, EXEC_ENV = "canary-env-91f3", "canary-stdin-27ab", "canary-command-5d0c", "canary-exec-env-c4e8"
FILE, KEY = "canary-file-77d1", "canary-idempotency-key-3b6e"
EVERY = (ENV, STDIN, COMMAND, EXEC_ENV, FILE)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that is logged, as it would be written."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonFormatter("test"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)


def quiet(instance: FakeInstance, request: ExecRequest) -> CommandResult:
    """Unlike the default, it does not repeat the command."""
    return CommandResult(0, b"", b"", 0)


def test_no_canary_is_answered_logged_or_kept_in_an_event(
    memory: World, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = memory.tenant()
    memory.backend("main").exec_function = quiet
    answers: list[bytes] = []

    def call(method: str, path: str, body: object = None, **headers: str) -> bytes:
        reply = memory.call(method, path, body, token=tenant.token, headers=headers)
        answers.append(reply.raw)
        answers.append(json.dumps(dict(reply.headers)).encode())
        return answers[-2]

    sandbox = json.loads(call("POST", "/v1/sandboxes", {"env": {"TOKEN": ENV}}, **{"Idempotency-Key": KEY}))["id"]
    call("POST", "/v1/sandboxes", {"env": {"TOKEN": ENV}, "bad": 1}, **{"Idempotency-Key": KEY})
    call("POST", "/v1/sandboxes", {"env": {"TOKEN": ENV + "2"}}, **{"Idempotency-Key": KEY})
    memory.settle()
    assert memory.backend("main").instances()[0].env["TOKEN"] == ENV

    base = f"/v1/sandboxes/{sandbox}"
    body = {"command": f"echo {COMMAND}", "stdin": STDIN, "env": {"KEY": EXEC_ENV}}
    for query in ("", "?stream=true"):
        call("POST", f"{base}/exec{query}", body)
        call("POST", f"{base}/exec{query}", {**body, "timeoutSeconds": "1"})
        call("POST", f"{base}/exec{query}", {**body, "args": [COMMAND]})
    call("POST", f"{base}/jobs", {**body, "id": "j"})
    call("GET", f"{base}/jobs/j")
    call("PUT", f"{base}/files/content?path=a", FILE.encode())

    def broken(self: FakeAdapter, *arguments: object) -> None:
        raise ValueError(f"{arguments} {COMMAND} {STDIN} {EXEC_ENV}")

    monkeypatch.setattr(FakeAdapter, "exec", broken)
    monkeypatch.setattr(FakeAdapter, "exec_stream", broken)
    call("POST", f"{base}/exec", body)
    call("POST", f"{base}/exec?stream=true", body)
    call("DELETE", base)
    memory.settle()

    written = log.getvalue()
    assert '"message":"request"' in written
    assert '"message":"adapter bug"' in written
    events = [str(record.model_dump()) for slot, record in memory.store.rows().items() if slot[0] is Table.LOG]  # type: ignore[attr-defined]
    assert len(events) >= 4
    secret = tenant.token.rpartition("_")[2]
    for canary in (*EVERY, KEY, secret):
        assert canary not in written
        assert not any(canary in event for event in events)
        assert not any(canary.encode() in answer for answer in answers)


def test_the_environment_goes_with_its_sandbox(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant, {"env": {"TOKEN": ENV}})
    memory.call("DELETE", f"/v1/sandboxes/{sandbox}", token=tenant.token)
    memory.settle()
    rows = memory.store.rows()  # type: ignore[attr-defined]
    assert not any(ENV in str(record.model_dump()) for record in rows.values())


def test_a_key_is_kept_as_a_hash_alone(memory: World) -> None:
    tenant = memory.tenant()
    secret = tenant.token.rpartition("_")[2]
    rows = memory.store.rows()  # type: ignore[attr-defined]
    assert not any(secret in str(record.model_dump()) for record in rows.values())


def test_nothing_that_holds_a_secret_shows_it_when_printed(memory: World) -> None:
    from differently_api.routes.jobs import StartJob
    from differently_api.routes.keys import NewKeyView
    from differently_core.operations.requests import CreateSandbox

    shown = [
        repr(CreateSandbox.model_validate({"env": {"A": ENV}})),
        str(StartJob.model_validate({"command": COMMAND, "stdin": STDIN, "env": {"A": EXEC_ENV}})),
        repr(memory.peppers),
        repr(
            NewKeyView.model_validate(
                {
                    "id": "key_1", "name": "k", "scope": "operator", "createdAt": "2026-01-01T00:00:00Z",
                    "createdBy": "key_1", "token": ENV,
                }
            )
        ),
    ]  # fmt: skip
    assert not any(canary in text for canary in (*EVERY, "pppp") for text in shown)
