"""What Blaxel and the ways to it are known to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.blaxel import BlaxelAdapter, BlaxelConfig
from differently_adapters.providers.blaxel.api import VERSION, external_id
from differently_adapters.providers.blaxel.process import PART_BYTES
from differently_adapters.providers.blaxel.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import a_create_request
from differently_core.contract import AdapterContext, CreateRequest, InstanceState, Owner, Target
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model.exec import ExecRequest
from differently_core.model.resources import Size
from tests.conformance.adapters.blaxel_fake import FakeBlaxel
from tests.conformance.adapters.blaxel_fake.server import WORKSPACE, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Fault, cut_body, drop_after, edit, html, reflect
from tests.conformance.adapters.stand_in.http import Reply

API_KEY = "bl_key-of-the-operator"
CREATE = ("POST", "/sandboxes$")
PROCESS = ("POST", "/process$")
SECONDS = 30.0


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeBlaxel]:
    fake = FakeBlaxel(tmp_path, api_key=API_KEY)
    yield fake
    fake.close()


@pytest.fixture
def adapter(fake: FakeBlaxel) -> Iterator[BlaxelAdapter]:
    told = {"apiUrl": f"{fake.url}/v0", "workspace": WORKSPACE, "region": "us-pdx-1", "allowHttp": True,
            "allowLoopback": True}  # fmt: skip
    config = BlaxelConfig.model_validate(told)
    adapter = BlaxelAdapter(AdapterContext("pool", "inst_a", config, QuickClock(), {"api_key": API_KEY}))
    yield adapter
    adapter.close()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_a", sandbox)), **changes)


OWNER = wanted().owner


def created(adapter: BlaxelAdapter, **changes: Any) -> Target:
    request = wanted(**changes)
    return Target(request.owner, adapter.create(request, SECONDS).ref)


def befall(fake: FakeBlaxel, route: tuple[str, str], act: Any, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def say(status: int, code: str, **headers: str) -> Any:
    def act(*_: object) -> Reply:
        reply = refused(status, code)
        reply.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return reply

    return act


def bodies(fake: FakeBlaxel, method: str, path: str) -> list[Any]:
    return [asked.json() for asked in fake.requests if asked.method == method and re.search(path, asked.path)]


def test_a_create_says_whose_it_is_and_gets_what_has_the_name(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    size = Size(sandboxes=1, cpu_millis=1_500, memory_mib=600, disk_gib=1)
    created(adapter, env={"A": "1"}, size=size)
    assert bodies(fake, *CREATE) == [
        {
            "metadata": {
                "name": sandbox_name(OWNER),
                "externalId": external_id("inst_a"),
                "labels": {KEY_INSTALLATION: "inst_a", KEY_SANDBOX: "sbx_a"},
            },
            "spec": {
                "enabled": True,
                "region": "us-pdx-1",
                "runtime": {
                    "image": "blaxel/base-image:latest", "memory": 3_072, "envs": [{"name": "A", "value": "1"}]
                },
            },
        }
    ]  # fmt: skip
    asked = next(asked for asked in fake.requests if asked.method == "POST")
    assert asked.one("createIfNotExist") == "true"
    assert asked.headers["blaxel-version"] == VERSION
    assert re.fullmatch("[a-z0-9-]{1,49}", sandbox_name(OWNER))
    assert re.fullmatch("[a-z0-9-]{1,64}", external_id("inst_a"))


def test_a_name_that_is_somebody_elses_is_left_alone(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    """The call that makes it or gives back what has the name gives back anybody's."""
    fake.plant(sandbox_name(OWNER), {KEY_INSTALLATION: "inst_b", KEY_SANDBOX: "sbx_a"})
    with pytest.raises(InvalidState):
        created(adapter)
    adapter.delete(Target(OWNER))
    assert fake.count() == 1


@pytest.mark.parametrize(
    ("status", "code", "error", "reason"),
    [
        (400, "QUOTA_EXCEEDED", InsufficientCapacity, "quota"),
        (429, "TOO_MANY_REQUESTS", InsufficientCapacity, "rate_limited"),
        (400, "INVALID_IMAGE", InvalidRequest, None),
        (404, "INVALID_IMAGE", InvalidRequest, None),
        (401, "UNAUTHORIZED", ProviderUnavailable, None),
        (403, "FORBIDDEN", ProviderUnavailable, None),
    ],
)
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeBlaxel, adapter: BlaxelAdapter, status: int, code: str, error: type[DifferentlyError], reason: str | None
) -> None:
    befall(fake, CREATE, say(status, code, retry_after="7"))
    with pytest.raises(error) as told:
        created(adapter)
    assert type(told.value) is error
    assert told.value.details.get("reason") == reason
    assert told.value.details["retry_after_seconds"] == 7
    assert not isinstance(told.value, BackendError) or told.value.settled
    assert len(bodies(fake, *CREATE)) == 1


@pytest.mark.parametrize("act", [drop_after, html(504)])
def test_a_create_whose_answer_was_lost_is_found_by_its_name(
    fake: FakeBlaxel, adapter: BlaxelAdapter, act: Any
) -> None:
    befall(fake, CREATE, act)
    assert created(adapter).ref in fake.sandboxes
    assert len(bodies(fake, *CREATE)) == 1


def test_one_that_fails_is_the_callers_to_remove(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    fake.next_fails = True
    with pytest.raises(SandboxFailed) as failed:
        created(adapter)
    assert not failed.value.settled
    adapter.delete(Target(OWNER))
    assert fake.count() == 0


def test_one_that_is_gone_is_told_of_for_a_while_and_is_gone(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    target = created(adapter)
    adapter.delete(target)
    assert target.ref in fake.terminated
    with pytest.raises(NotFound):
        adapter.get(target)
    adapter.delete(target)
    assert created(adapter).ref == target.ref


def test_a_delete_that_goes_on_for_long_is_no_success(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    target = created(adapter)
    fake.reads_until_gone = 1_000
    with pytest.raises(ProviderUnavailable) as going:
        adapter.delete(target)
    assert not going.value.settled
    assert adapter.get(target).state is InstanceState.STOPPED


def test_looking_wakes_nobody_and_using_does(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    target = created(adapter)
    fake.sandboxes[target.ref or ""].state = "STANDBY"
    assert adapter.capabilities().idles_by_itself
    seen = adapter.get(target)
    assert (seen.state, seen.idle) == (InstanceState.RUNNING, True)
    adapter.exec(target, ExecRequest(command="true"), 100)
    assert not adapter.get(target).idle


def test_a_list_that_goes_on_nowhere_is_an_error(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    befall(fake, ("GET", "/sandboxes$"), edit(lambda body: {**body, "meta": {"hasMore": True, "nextCursor": ""}}))
    with pytest.raises(ProviderUnavailable):
        adapter.list("inst_a")
    befall(fake, ("GET", "/sandboxes$"), edit(lambda body: body["data"]))  # as it was before the pinned version
    with pytest.raises(ProviderUnavailable):
        adapter.list("inst_a")


# Inside.


def lines(*told: object) -> Callable[..., Reply]:
    body = "\n".join(json.dumps(line) for line in told).encode()
    return lambda *_: Reply(200, body, {"content-type": "application/x-ndjson"})


@pytest.mark.parametrize(
    "act",
    [
        lines(),
        lines({"type": "keepalive"}),
        lines({"type": "result", "data": json.dumps({"exitCode": 0})}),
        lines({"type": "error", "data": "gone"}),
        lambda *_: Reply(200, b'{"type": "stdo', {"content-type": "application/x-ndjson"}),
        lambda *_: Reply(200, b'{"stdout": "", "exitCode": 0}', {"content-type": "application/json"}),
        say(504, "GATEWAY_TIMEOUT"),
        html(502),
        drop_after,
    ],
)
def test_a_command_whose_end_is_not_told_is_unconfirmed(fake: FakeBlaxel, adapter: BlaxelAdapter, act: Any) -> None:
    """What stands between gives up after a silent minute, while the command goes on."""
    target = created(adapter)
    befall(fake, PROCESS, act)
    with pytest.raises(ExecUnconfirmed) as told:
        adapter.exec(target, ExecRequest(command="true"), 100)
    assert not told.value.settled


def test_a_command_is_streamed_named_once_and_has_a_time_limit(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    """A plain answer holds only the end of what was written."""
    target = created(adapter)
    command = "head -c 300000 /dev/zero | tr '\\0' x; echo; printf end"
    result = adapter.exec(target, ExecRequest(command=command, timeout_seconds=20), 1_000_000)
    assert result.stdout == b"x" * 300_000 + b"\nend"
    adapter.exec(target, ExecRequest(command="true"), 100)
    asked = [asked for asked in fake.requests if asked.path.endswith("/process")]
    assert {one.headers["accept"] for one in asked} == {"text/event-stream"}
    assert len({one.json()["name"] for one in asked}) == 2
    assert asked[0].json()["timeout"] > 20


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1])
def test_a_file_travels_in_parts_that_are_put_together(fake: FakeBlaxel, adapter: BlaxelAdapter, size: int) -> None:
    target, content = created(adapter), bytes(number % 251 for number in range(size))
    adapter.file_write(target, "odd 'name' %41", [content[:10], content[10:]])
    assert b"".join(adapter.file_read(target, "odd 'name' %41").chunks) == content
    sent = [asked.path for asked in fake.requests if asked.method == "PUT"]
    assert len(sent) == max(1, -(-size // PART_BYTES))
    assert all("/filesystem//" in path for path in sent)


def test_a_file_that_was_cut_is_an_error(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    target = created(adapter)
    adapter.file_write(target, "file", [b"0123456789"])
    befall(fake, ("GET", "/filesystem/"), cut_body(4))
    with pytest.raises(BackendError):
        b"".join(adapter.file_read(target, "file").chunks)


@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "ftp://x.example", None, "https://u:p@x.example"])
def test_a_data_plane_that_the_service_tells_is_nowhere_that_may_not_be_reached(
    fake: FakeBlaxel, adapter: BlaxelAdapter, url: str | None
) -> None:
    target = created(adapter)
    change = edit(lambda body: {**body, "metadata": {**body["metadata"], "url": url}})
    befall(fake, ("GET", "/sandboxes/[^/]+$"), change)
    with pytest.raises((InvalidRequest, ProviderUnavailable)):
        adapter.exec(target, ExecRequest(command="true"), 100)


def test_no_error_repeats_the_key_or_the_environment(fake: FakeBlaxel, adapter: BlaxelAdapter) -> None:
    target = created(adapter)
    canary = {"SECRET": "canary-of-the-caller"}
    for route, call in {
        CREATE: lambda: created(adapter, sandbox="sbx_b", env=canary),
        PROCESS: lambda: adapter.exec(target, ExecRequest(command="true", env=canary), 100),
        ("GET", "/sandboxes$"): lambda: adapter.list("inst_a"),
    }.items():
        for status in (400, 403, 500):
            befall(fake, route, reflect(status))
            with pytest.raises(DifferentlyError) as told:
                call()
            shown = f"{told.value!r} {told.value.details}"
            assert API_KEY not in shown
            assert "canary-of-the-caller" not in shown
