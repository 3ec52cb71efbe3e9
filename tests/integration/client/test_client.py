"""The client against the API itself, in memory: what users write, and what goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from differently import Client, Exit, Output, Progress
from differently._failure import ConfigurationError, ConnectionFailed, SandboxEnded, StreamCut, WaitTimeout
from differently.errors import (
    Forbidden,
    IdempotencyConflict,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    Unauthenticated,
    UnexpectedAnswer,
    UnsupportedOperation,
)
from differently.models import SandboxView
from differently_adapters.providers.fake import FakeAdapter
from differently_api.openapi import document
from differently_api.routes import ROUTES
from differently_core.contract import Operation, Unsupported
from tests.support.api import Tenant, World
from tests.support.client import URL, WorldTransport, async_client_of, client_of

LOST = httpx.ReadError("reset")


@pytest.fixture
def world() -> World:
    made = World()
    made.pool()
    return made


@pytest.fixture
def acme(world: World) -> Tenant:
    return world.tenant()


@pytest.fixture
def client(world: World, acme: Tenant) -> Iterator[Client]:
    made, _ = client_of(world, acme.token)
    with made:
        yield made


@pytest.fixture
def operator(world: World) -> Iterator[Client]:
    made, _ = client_of(world, world.operator)
    with made:
        yield made


def transport_of(client: Client) -> WorldTransport:
    found = client._transport._http._transport
    assert isinstance(found, WorldTransport)
    return found


def once(transport: WorldTransport, failure: Exception | httpx.Response, *, method: str, after: bool = True) -> None:
    """The next call of that method is lost: before it arrives, or on the way back."""
    left = [failure]

    def strike(request: httpx.Request, response: httpx.Response | None = None) -> httpx.Response | None:
        if request.method != method or not left:
            return None
        struck = left.pop()
        if isinstance(struck, Exception):
            raise struck
        return struck

    if after:
        transport.after = strike  # type: ignore[assignment]
    else:
        transport.before = strike


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client(URL, "dk_x", transport=httpx.MockTransport(answer))


# Sandboxes


def test_a_sandbox_runs_when_it_is_given_and_is_gone_after_its_block(client: Client, world: World) -> None:
    with client.sandboxes.create(labels={"run": "7"}, memory_mib=256) as sandbox:
        assert (sandbox.status, sandbox.info.labels) == ("running", {"run": "7"})
        assert sandbox.info.resources.memory_mib == 256
    world.settle()
    assert client.sandboxes.get(sandbox.id).status == "terminated"


def test_one_that_was_only_found_is_not_deleted_by_a_block(client: Client) -> None:
    made = client.sandboxes.create()
    with client.sandboxes.get(made.id):
        pass
    assert made.refresh().status == "running"


def test_a_create_whose_answer_was_lost_is_sent_again_and_makes_one(client: Client) -> None:
    once(transport_of(client), LOST, method="POST")
    made = client.sandboxes.create()
    assert [found.id for found in client.sandboxes.list()] == [made.id]
    keys = {request.headers.get("idempotency-key") for request in transport_of(client).seen[:2]}
    assert len(keys) == 1
    assert None not in keys


def test_an_own_key_names_the_same_sandbox(client: Client) -> None:
    first = client.sandboxes.create(idempotency_key="mine")
    assert client.sandboxes.create(idempotency_key="mine").id == first.id
    with pytest.raises(IdempotencyConflict):
        client.sandboxes.create(idempotency_key="mine", ttl_seconds=60)
    assert [found.id for found in client.sandboxes.list(idempotency_key="mine")] == [first.id]


def test_progress_tells_place_and_reason_of_one_that_waits(world: World, client: Client, operator: Client) -> None:
    operator.pools.update("main", {"maxConcurrency": 1})
    first = client.sandboxes.create()
    told: list[Progress] = []

    def on_progress(progress: Progress) -> None:
        told.append(progress)
        if len(told) == 2:
            first.delete()
            world.settle()
        assert len(told) < 50

    second = client.sandboxes.create(on_progress=on_progress)
    assert second.status == "running"
    assert (told[0].status, told[0].position) == ("queued", 1)
    assert str(told[0]).startswith("queued, place 1: ")
    assert "main" in str(told[0])
    assert told[-1].status == "running"


def test_one_that_does_not_come_in_time_is_left_nowhere(client: Client, operator: Client) -> None:
    operator.pools.drain("main")
    with pytest.raises(WaitTimeout, match="is queued, not running") as raised:
        client.sandboxes.create(wait_seconds=0)
    assert client.sandboxes.get(raised.value.seen.id).status in ("terminating", "terminated")


def test_one_that_fails_says_why(client: Client, operator: Client) -> None:
    operator.pools.drain("main")
    with pytest.raises(SandboxEnded) as raised:
        client.sandboxes.create(queue_timeout_seconds=5, on_progress=lambda progress: None)
    assert isinstance(raised.value.info, SandboxView)
    assert raised.value.info.status_reason is not None
    assert raised.value.info.status_reason.code in str(raised.value)


def test_lists_walk_every_page_and_stop_where_they_are_told(client: Client) -> None:
    made = {client.sandboxes.create(labels={"n": str(n % 2)}).id for n in range(7)}
    assert {found.id for found in client.sandboxes.list()} == made
    transport_of(client).seen.clear()
    assert len(list(client.sandboxes.list(at_most=3))) == 3
    assert len(transport_of(client).seen) == 1
    assert len(list(client.sandboxes.list(labels={"n": "1"}))) == 3
    assert list(client.sandboxes.list(status=["paused"])) == []


def test_moves_wait_for_their_end(client: Client) -> None:
    sandbox = client.sandboxes.create()
    assert sandbox.stop().status == "stopped"
    assert sandbox.start().status == "running"
    assert sandbox.pause().status == "paused"
    assert sandbox.resume().status == "running"
    assert sandbox.keepalive().status == "running"
    assert sandbox.update(ttl_seconds=60, labels={"a": "b"}).info.ttl_seconds == 60


def test_fork_and_snapshot_give_sandboxes(client: Client) -> None:
    sandbox = client.sandboxes.create()
    sandbox.files.write("note", "kept")
    snapshot = sandbox.snapshot("first")
    assert (snapshot.status, snapshot.info.name) == ("ready", "first")
    assert snapshot.restore().files.read_text("note") == "kept"
    assert sandbox.fork(labels={"b": "1"}).info.forked_from == sandbox.id
    named = [found for found in client.snapshots.list(sandbox=sandbox.id) if found.info.name == "first"]
    assert [found.id for found in named] == [snapshot.id]
    snapshot.delete()


def test_an_explanation_makes_nothing(client: Client) -> None:
    told = client.explain(pools=["main"])
    assert (told.decision, told.pool, [found.pool for found in told.candidates]) == ("place", "main", ["main"])
    assert list(client.sandboxes.list()) == []


# Commands. The fake backend writes a command's own text; tests/e2e/test_client.py runs real ones.


def test_a_command_whose_answer_was_lost_is_not_sent_again(client: Client) -> None:
    sandbox = client.sandboxes.create()
    transport_of(client).seen.clear()
    once(transport_of(client), LOST, method="POST")
    with pytest.raises(ConnectionFailed) as raised:
        sandbox.run("echo x >> log")
    assert raised.value.sent
    assert raised.value.advice
    assert transport_of(client).paths() == [f"POST /v1/sandboxes/{sandbox.id}/exec"]


@pytest.mark.parametrize("seconds", [60, 240, 241, 8100])
def test_a_command_gives_its_result_however_long_it_may_take(client: Client, seconds: int) -> None:
    sandbox = client.sandboxes.create()
    result = sandbox.run("some text", timeout_seconds=seconds)
    assert (result.exit_code, result.stdout, result.ok) == (0, "some text\n", True)
    used_a_job = any(path.endswith("/jobs") for path in transport_of(client).paths())
    assert used_a_job == (seconds > 240)


@pytest.mark.parametrize("seconds", [60, 8100])
def test_a_stream_has_exactly_one_end(client: Client, seconds: int) -> None:
    events = list(client.sandboxes.create().stream("text", timeout_seconds=seconds))
    assert "".join(event.text for event in events if isinstance(event, Output)) == "text\n"
    assert [event.exit_code for event in events if isinstance(event, Exit)] == [0]
    assert isinstance(events[-1], Exit)


def test_a_stream_is_bounded_by_silence_alone(client: Client) -> None:
    """A limit of the whole client once cut streams after ten minutes; the server is never silent for 15 seconds."""
    sandbox = client.sandboxes.create()
    list(sandbox.stream("text"))
    bounds = transport_of(client).seen[-1].extensions["timeout"]
    assert bounds["read"] == 45
    assert set(bounds) == {"connect", "read", "write", "pool"}


def test_a_pool_without_jobs_streams_what_it_can(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = (Operation.JOB_START, Operation.JOB_STATUS, Operation.JOB_OUTPUT, Operation.JOB_STOP)
    declared = {**FakeAdapter.operations, **dict.fromkeys(jobs, Unsupported("no_background_commands"))}
    sandbox = client.sandboxes.create()
    monkeypatch.setattr(FakeAdapter, "operations", declared)
    assert sandbox.run("text", timeout_seconds=870).stdout == "text\n"
    with pytest.raises(UnsupportedOperation):
        sandbox.run("text", timeout_seconds=871)


# Files


@pytest.mark.parametrize("size", [0, 1, 4 * 1024 * 1024])
def test_files_come_back_as_they_went(client: Client, size: int) -> None:
    sandbox = client.sandboxes.create()
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    sandbox.files.write("-odd name/ü.bin", content)
    assert sandbox.files.read("-odd name/ü.bin") == content
    assert [found.name for found in sandbox.files.list("-odd name")] == ["ü.bin"]


def test_a_file_is_listed_looked_at_and_deleted(client: Client) -> None:
    sandbox = client.sandboxes.create()
    sandbox.files.write("a/b.txt", "text")
    assert sandbox.files.stat("a/b.txt").size == 4
    sandbox.files.delete("a")
    sandbox.files.delete("a")
    with pytest.raises(NotFound):
        sandbox.files.read("a/b.txt")


# What goes wrong


def test_errors_are_told_by_class_with_their_request(client: Client, world: World) -> None:
    with pytest.raises(NotFound) as raised:
        client.sandboxes.get("sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA")
    assert raised.value.request_id
    with pytest.raises(InvalidRequest) as refused:
        client.sandboxes.create(more={"ttlSecond": 60})
    assert refused.value.details["field"] == "ttlSecond"
    with pytest.raises(Forbidden):
        list(client.orgs.list())
    other, _ = client_of(world, "dk_wrong")
    with other, pytest.raises(Unauthenticated) as unknown:
        other.sandboxes.create()
    assert "dk_wrong" not in f"{unknown.value!r} {unknown.value} {other!r} {vars(unknown.value)}"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_never_leads_to_another_route(client: Client, name: str) -> None:
    with pytest.raises(ConfigurationError):
        client.sandboxes.get(name)
    assert transport_of(client).seen == []


def test_a_name_with_slashes_is_a_name(client: Client) -> None:
    with pytest.raises((NotFound, InvalidRequest)):
        client.sandboxes.get("../orgs?x=1#y")
    assert transport_of(client).seen[-1].url.raw_path == b"/v1/sandboxes/..%2Forgs%3Fx%3D1%23y"


def test_what_waiting_was_refused_for_is_not_tried_again(client: Client, operator: Client) -> None:
    project = client.sandboxes.create().info.project
    operator.projects.set_quota(project, {"maxConcurrent": 1})
    transport_of(client).seen.clear()
    with pytest.raises(QuotaExceeded):
        client.sandboxes.create(queue_timeout_seconds=0)
    assert len(transport_of(client).seen) == 1


def test_advice_of_the_server_is_followed(client: Client, world: World) -> None:
    body = {"error": {"code": "rate_limited", "message": "slower", "details": {}, "requestId": "r"}}
    answer = httpx.Response(429, headers={"Retry-After": "7"}, content=json.dumps(body))
    once(transport_of(client), answer, method="GET", after=False)
    began = world.clock.now()
    assert list(client.sandboxes.list()) == []
    assert 7 <= (world.clock.now() - began).total_seconds() <= 8.75


def test_a_redirect_is_not_followed(client: Client) -> None:
    answer = httpx.Response(307, headers={"Location": "https://evil.example/"})
    once(transport_of(client), answer, method="GET", after=False)
    with pytest.raises(UnexpectedAnswer, match=r"evil\.example"):
        list(client.sandboxes.list())
    assert {request.url.host for request in transport_of(client).seen} == {"sandboxes.test"}


def test_a_server_that_is_not_there_is_named(world: World) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with Client(URL, "dk_x", transport=httpx.MockTransport(refuse), _pause=lambda seconds: None) as client:
        with pytest.raises(ConnectionFailed, match="cannot be reached") as raised:
            client.version()
        assert not raised.value.sent


EVENT, END = b'{"id": "evt_1"}\n', b'{"export":{"org":"o","fromSeq":0,"toSeq":1,"size":1,"root":"r"}}\n'


@pytest.mark.parametrize("body", [b"", EVENT, EVENT + END[:-1], EVENT + END[:-30], END + EVENT])
def test_an_export_that_was_cut_is_not_taken_for_the_log(body: bytes) -> None:
    with answering(lambda request: httpx.Response(200, content=body)) as client, pytest.raises(StreamCut):
        list(client.audit.export())


def test_a_whole_export_comes_as_it_is() -> None:
    with answering(lambda request: httpx.Response(200, content=EVENT + END)) as client:
        assert b"".join(client.audit.export()) == EVENT + END


@pytest.mark.parametrize(("size", "calls"), [(2, 1), (4, 2), (9, 3)])
def test_a_check_of_the_log_goes_on_until_it_ends_or_finds_something(size: int, calls: int) -> None:
    stretches = [{"toSeq": 2, "intact": True}, {"toSeq": 4, "intact": True}, {"toSeq": 5, "intact": False}]
    with answering(lambda request: httpx.Response(200, json={"size": size, **stretches.pop(0)})) as client:
        assert len(list(client.audit.verify())) == calls


# asyncio, and what the API has


def test_the_same_with_asyncio(world: World, acme: Tenant) -> None:
    async def story() -> list[str]:
        client, transport = async_client_of(world, acme.token)
        once(transport, LOST, method="POST")
        async with client, await client.sandboxes.create() as sandbox:
            told = [(await sandbox.run("run")).stdout]
            told += [event.text async for event in sandbox.stream("stream") if isinstance(event, Output)]
            told.append((await sandbox.run("job", timeout_seconds=600)).stdout)
            await sandbox.files.write("note", "kept")
            told.append(await sandbox.files.read_text("note"))
            told += [str(found.id == sandbox.id) async for found in client.sandboxes.list()]
            forks = await asyncio.gather(*(sandbox.fork() for _ in range(3)))
            told.append(str(len({fork.id for fork in forks})))
        return told

    assert asyncio.run(story()) == ["run\n", "stream\n", "job\n", "kept", "True", "3"]


def test_a_create_takes_every_field_that_the_api_takes(client: Client) -> None:
    """A field that is new there fails here until the client has it."""
    described = document(ROUTES, "v1")["components"]["schemas"]["CreateSandbox"]["properties"]
    client.sandboxes.create(
        wait=False, project=None, profile=None, template="default", image="any", snapshot=None, cpu=1, memory_mib=128,
        disk_gib=1, env={}, secrets={}, labels={}, capabilities=[], pools=["main"], regions=[], preferred_pools=[],
        ttl_seconds=60, max_run_seconds=60, idle_timeout_seconds=60, queue_timeout_seconds=60, priority=1, egress=None,
        preemptible=False, classification="default",
    )  # fmt: skip
    sent = set(json.loads(transport_of(client).seen[-1].content))
    assert set(described) - sent == {"projectId", "profile", "snapshotId", "egress"}
