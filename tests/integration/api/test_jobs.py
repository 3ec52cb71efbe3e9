"""Jobs, and reading their output by cursor."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter, FakeInstance
from differently_api.routes.jobs import view_of
from differently_core.contract import CommandResult, JobOutput, Operation, Unsupported
from differently_core.model.exec import Encoding, ExecRequest
from tests.support.api import Tenant, World

TEXT = "zß水🍌" * 40


def writes(data: bytes, seconds: float = 0.0) -> Any:
    def run(instance: FakeInstance, request: ExecRequest) -> CommandResult:
        return CommandResult(0, data, b"", int(seconds * 1000))

    return run


def test_a_job_runs_in_the_background_and_its_end_is_seen(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    jobs = f"/v1/sandboxes/{sandbox}/jobs"
    world.backend("main").exec_function = writes(b"done\n", seconds=600)
    body = {"id": "build-7", "command": "make", "timeoutSeconds": 8_100}
    started = world.call("POST", jobs, body, token=acme.token)
    assert started.status == 202
    assert started.headers["Location"] == f"{jobs}/build-7"
    assert started.json()["state"] == "running"

    again = world.call("POST", jobs, body, token=acme.token)
    assert (again.status, again.json()["id"]) == (202, "build-7")
    other = world.call("POST", jobs, {**body, "command": "make all"}, token=acme.token)
    assert (other.status, other.code) == (409, "invalid_state")

    world.clock.advance(601)
    ended = world.call("GET", f"{jobs}/build-7", token=acme.token).json()
    assert (ended["state"], ended["exitCode"], ended["stdoutBytes"]) == ("exited", 0, 5)
    output = world.call("GET", f"{jobs}/build-7/output", token=acme.token).json()
    assert output == {"data": "done\n", "next": 5, "ended": True}


def test_a_job_without_an_id_gets_one(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    started = world.call("POST", f"/v1/sandboxes/{sandbox}/jobs", {"command": "x"}, token=acme.token)
    assert started.json()["id"].startswith("job_")


def test_a_job_can_be_stopped(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    path = f"/v1/sandboxes/{sandbox}/jobs/build"
    world.backend("main").exec_function = writes(b"", seconds=600)
    world.call("POST", f"/v1/sandboxes/{sandbox}/jobs", {"id": "build", "command": "x"}, token=acme.token)
    stopped = world.call("DELETE", path, token=acme.token)
    assert (stopped.status, stopped.json()["state"]) == (200, "stopped")
    assert world.call("DELETE", path, token=acme.token).json()["state"] == "stopped"


@pytest.mark.parametrize("limit", [16, 17, 18, 19, 64, 65_536])
def test_output_read_piece_by_piece_is_whole_at_every_size(memory: World, limit: int) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.backend("main").exec_function = writes(TEXT.encode())
    path = f"/v1/sandboxes/{sandbox}/jobs"
    memory.call("POST", path, {"id": "a", "command": "x"}, token=tenant.token)
    text, offset, ended = "", 0, False
    while not ended:
        query = f"?offset={offset}&limit={limit}"
        piece = memory.call("GET", f"{path}/a/output{query}", token=tenant.token).json()
        assert piece["next"] > offset or piece["ended"]
        text, offset, ended = text + piece["data"], piece["next"], piece["ended"]
    assert text == TEXT
    assert offset == len(TEXT.encode())


def test_output_as_base64_is_lossless(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.backend("main").exec_function = writes(b"\xff\x00\xe2\x82")
    path = f"/v1/sandboxes/{sandbox}/jobs"
    memory.call("POST", path, {"id": "a", "command": "x"}, token=tenant.token)
    piece = memory.call("GET", f"{path}/a/output?encoding=base64", token=tenant.token).json()
    assert base64.b64decode(piece["data"]) == b"\xff\x00\xe2\x82"
    assert piece["next"] == 4


def test_a_character_still_being_written_waits_for_its_rest() -> None:
    half = JobOutput(b"a\xe2\x82", 3, ended=False)
    assert view_of(half, Encoding.UTF8).model_dump() == {"data": "a", "next": 1, "ended": False}
    cut = JobOutput(b"a\xe2\x82", 3, ended=True)
    assert view_of(cut, Encoding.UTF8).model_dump() == {"data": "a�", "next": 3, "ended": True}


@pytest.mark.parametrize("job", ["nothing", "a%2Fb", "..", "-x", "x" * 65])
def test_a_job_that_is_not_there_is_404(memory: World, job: str) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    for method, tail in (("GET", ""), ("GET", "/output"), ("DELETE", "")):
        reply = memory.call(method, f"/v1/sandboxes/{sandbox}/jobs/{job}{tail}", token=tenant.token)
        assert (reply.status, reply.code) == (404, "not_found")


def test_a_pool_without_jobs_is_501_before_anything_is_sent(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    jobs = (Operation.JOB_START, Operation.JOB_STATUS, Operation.JOB_OUTPUT, Operation.JOB_STOP)
    declared = {**FakeAdapter.operations, **dict.fromkeys(jobs, Unsupported("no_background_commands"))}
    monkeypatch.setattr(FakeAdapter, "operations", declared)
    reply = memory.call("POST", f"/v1/sandboxes/{sandbox}/jobs", {"command": "x"}, token=tenant.token)
    assert (reply.status, reply.code) == (501, "unsupported_operation")
    assert reply.json()["error"]["details"] == {
        "operation": "job_start", "pool": "main", "adapter": "fake", "reason": "no_background_commands",
    }  # fmt: skip
    assert memory.backend("main").calls[Operation.JOB_START] == 0
