"""What Fly and the ways to it are known to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.fly import FlyAdapter, FlyConfig
from differently_adapters.providers.fly.machine import PART_BYTES
from differently_adapters.providers.fly.wire import KEY_INSTALLATION, KEY_SANDBOX
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
from tests.conformance.adapters.fly_fake import FakeFly
from tests.conformance.adapters.fly_fake.server import APP, refused
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Fault, cut_body, drop_after, html, reflect
from tests.conformance.adapters.stand_in.http import Reply

TOKEN = "fo1_token-of-the-operator"
CREATE = ("POST", "/machines$")
EXEC = ("POST", "/exec$")
SECONDS = 30.0
SHORT = ExecRequest(command="echo out", timeout_seconds=10)
LONG = ExecRequest(command="echo out", timeout_seconds=100)
Make = Callable[..., FlyAdapter]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeFly]:
    fake = FakeFly(tmp_path, token=TOKEN)
    yield fake
    fake.close()


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def make(fake: FakeFly, clock: QuickClock) -> Iterator[Make]:
    made: list[FlyAdapter] = []

    def make(token: str = TOKEN, **config: object) -> FlyAdapter:
        told = {"apiUrl": f"{fake.url}/v1", "app": APP, "image": "python:3.12", "allowHttp": True,
                "allowLoopback": True, **config}  # fmt: skip
        context = AdapterContext("pool", "inst_a", FlyConfig.model_validate(told), clock, {"token": token})
        made.append(FlyAdapter(context))
        return made[-1]

    yield make
    for adapter in made:
        adapter.close()


@pytest.fixture
def adapter(make: Make) -> FlyAdapter:
    return make()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_a", sandbox)), **changes)


OWNER = wanted().owner


def created(adapter: FlyAdapter, **changes: Any) -> Target:
    request = wanted(**changes)
    return Target(request.owner, adapter.create(request, SECONDS).ref)


def befall(fake: FakeFly, route: tuple[str, str], act: Any, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def say(status: int, message: str, kind: str = "unknown", **headers: str) -> Any:
    def act(*_: object) -> Reply:
        reply = refused(status, message, kind)
        reply.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return reply

    return act


def bodies(fake: FakeFly, method: str, path: str) -> list[Any]:
    return [asked.json() for asked in fake.requests if asked.method == method and re.search(path, asked.path)]


def test_a_create_says_whose_it_is_and_that_its_disk_is_kept(fake: FakeFly, make: Make) -> None:
    size = Size(sandboxes=1, cpu_millis=1_500, memory_mib=600, disk_gib=1)
    created(make(region="ams"), env={"A": "1"}, size=size)
    assert bodies(fake, *CREATE) == [
        {
            "name": sandbox_name(OWNER),
            "config": {
                "image": "python:3.12",
                "env": {"A": "1"},
                "metadata": {KEY_INSTALLATION: "inst_a", KEY_SANDBOX: "sbx_a"},
                "guest": {"cpu_kind": "shared", "cpus": 2, "memory_mb": 768, "persist_rootfs": "always"},
                "init": {"exec": ["/bin/sleep", "inf"]},
                "restart": {"policy": "no"},
                "auto_destroy": False,
            },
            "region": "ams",
        }
    ]


def test_without_any_image_nothing_is_asked_for(fake: FakeFly, make: Make) -> None:
    with pytest.raises(InvalidRequest, match="image"):
        created(make(image=None))
    assert bodies(fake, *CREATE) == []


@pytest.mark.parametrize(
    ("status", "message", "kind", "error", "reason"),
    [
        (422, "could not reserve a host", "insufficient_capacity", InsufficientCapacity, "capacity"),
        (409, "insufficient resources to create a machine", "unknown", InsufficientCapacity, "capacity"),
        (400, "failed to get manifest: not found", "unknown", InvalidRequest, None),
        (422, "memory must be a multiple of 256", "unknown", InvalidRequest, None),
        (401, "unauthorized", "unknown", ProviderUnavailable, None),
        (403, "forbidden", "unknown", ProviderUnavailable, None),
    ],
)
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeFly, adapter: FlyAdapter, status: int, message: str, kind: str, error: type[DifferentlyError],
    reason: str | None,
) -> None:  # fmt: skip
    befall(fake, CREATE, say(status, message, kind, retry_after="7"))
    with pytest.raises(error) as told:
        created(adapter)
    assert type(told.value) is error
    assert told.value.details.get("reason") == reason
    assert told.value.details["retry_after_seconds"] == 7
    assert not isinstance(told.value, BackendError) or told.value.settled
    assert len(bodies(fake, *CREATE)) == 1


def test_being_asked_too_often_is_waited_for_once_and_then_told(
    fake: FakeFly, adapter: FlyAdapter, clock: QuickClock
) -> None:
    """Fly takes about one call a second, so this is no news."""
    befall(fake, CREATE, say(429, "rate limit exceeded", retry_after="2"))
    before = clock.waited
    target = created(adapter)
    assert clock.waited - before >= 2.0
    befall(fake, EXEC, say(429, "rate limit exceeded"), 2)
    with pytest.raises(InsufficientCapacity) as told:
        adapter.exec(target, SHORT, 100)
    assert told.value.details["reason"] == "rate_limited"
    assert told.value.settled


@pytest.mark.parametrize("act", [drop_after, html(504)])
def test_a_create_whose_answer_was_lost_is_found_by_its_metadata(fake: FakeFly, adapter: FlyAdapter, act: Any) -> None:
    befall(fake, CREATE, act)
    assert created(adapter).ref in fake.machines
    assert len(bodies(fake, *CREATE)) == 1


def test_a_name_that_was_taken_meanwhile_by_ourselves_is_ours(fake: FakeFly, adapter: FlyAdapter) -> None:
    def meanwhile(go: Callable[[], Reply], *_: object) -> Reply:
        go()
        return go()

    befall(fake, CREATE, meanwhile)
    assert created(adapter).ref in fake.machines
    assert fake.count() == 1


def test_a_name_that_is_somebody_elses_is_left_alone(fake: FakeFly, adapter: FlyAdapter) -> None:
    fake.plant(sandbox_name(OWNER), {KEY_INSTALLATION: "inst_b", KEY_SANDBOX: "sbx_a"})
    with pytest.raises(InvalidState):
        created(adapter)
    adapter.delete(Target(OWNER))
    assert fake.count() == 1


def test_a_machine_that_fails_is_the_callers_to_remove(fake: FakeFly, adapter: FlyAdapter) -> None:
    fake.next_fails = True
    with pytest.raises(SandboxFailed) as failed:
        created(adapter)
    assert not failed.value.settled
    adapter.delete(Target(OWNER))
    assert fake.count() == 0


def test_a_machine_that_is_gone_is_told_of_for_a_while_and_is_gone(fake: FakeFly, adapter: FlyAdapter) -> None:
    target = created(adapter)
    adapter.delete(target)
    assert target.ref in fake.destroyed
    with pytest.raises(NotFound):
        adapter.get(target)
    adapter.delete(target)


def test_a_stop_keeps_the_disk_because_it_was_asked_for(adapter: FlyAdapter) -> None:
    target = created(adapter)
    adapter.file_write(target, "kept", [b"kept"])
    assert adapter.stop(target, SECONDS).state is InstanceState.STOPPED
    assert adapter.start(target, SECONDS).state is InstanceState.RUNNING
    assert b"".join(adapter.file_read(target, "kept").chunks) == b"kept"


def test_a_list_that_was_cut_is_an_error(fake: FakeFly, adapter: FlyAdapter) -> None:
    created(adapter)
    befall(fake, ("GET", "/machines$"), cut_body(50))
    with pytest.raises(BackendError):
        adapter.list("inst_a")


# Inside.


def test_a_short_command_is_one_call_and_a_long_one_is_looked_at(fake: FakeFly, adapter: FlyAdapter) -> None:
    """Calls of half a minute come back as 408 at random, whatever timeout they ask for."""
    target = created(adapter)
    assert adapter.exec(target, SHORT, 100).stdout == b"out\n"
    assert len(bodies(fake, *EXEC)) == 1
    assert adapter.exec(target, LONG, 100).stdout == b"out\n"
    assert len(bodies(fake, *EXEC)) == 3
    assert all(body["timeout"] <= 55 for body in bodies(fake, *EXEC))


@pytest.mark.parametrize("request_", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("act", [say(408, "deadline_exceeded"), say(500, "x"), html(502), drop_after])
def test_a_command_whose_start_is_not_told_is_unconfirmed(
    fake: FakeFly, adapter: FlyAdapter, act: Any, request_: ExecRequest
) -> None:
    target = created(adapter)
    befall(fake, EXEC, act)
    with pytest.raises(ExecUnconfirmed) as told:
        adapter.exec(target, request_, 100)
    assert not told.value.settled


def test_a_look_that_fails_is_made_again_and_the_command_is_not(fake: FakeFly, adapter: FlyAdapter) -> None:
    target = created(adapter)

    def not_the_start(go: Callable[[], Reply], request: Any, *_: object) -> Reply:
        return go() if b"END-OF-SUPERVISOR" in request.body else refused(408, "deadline_exceeded")

    befall(fake, EXEC, not_the_start, 3)
    command = ExecRequest(command="echo ran >> ran; cat ran", timeout_seconds=100)
    assert adapter.exec(target, command, 100).stdout == b"ran\n"


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1])
def test_a_file_goes_through_the_input_of_commands(fake: FakeFly, adapter: FlyAdapter, size: int) -> None:
    target, data = created(adapter), bytes(number % 251 for number in range(size))
    adapter.file_write(target, "odd 'name'", [data[:10], data[10:]])
    assert b"".join(adapter.file_read(target, "odd 'name'").chunks) == data
    sent = [body for body in bodies(fake, *EXEC) if body["stdin"]]
    assert len(sent) == -(-size // PART_BYTES)


def test_a_part_that_was_lost_leaves_the_old_file(fake: FakeFly, adapter: FlyAdapter) -> None:
    target = created(adapter)
    adapter.file_write(target, "file", [b"old"])

    def lost(go: Callable[[], Reply], request: Any, *_: object) -> Reply:
        return Reply(dropped=True) if request.json()["stdin"] else go()

    befall(fake, EXEC, lost, 5)
    with pytest.raises(BackendError):
        adapter.file_write(target, "file", [b"new"])
    fake.faults.clear()
    assert b"".join(adapter.file_read(target, "file").chunks) == b"old"


# Secrets.


def test_no_error_repeats_the_token_or_the_environment(fake: FakeFly, adapter: FlyAdapter) -> None:
    target = created(adapter)
    for route, call in {
        CREATE: lambda: created(adapter, sandbox="sbx_b", env={"SECRET": "canary-of-the-caller"}),
        EXEC: lambda: adapter.exec(target, SHORT.model_copy(update={"env": {"S": "canary-of-the-caller"}}), 100),
        ("GET", "/machines$"): lambda: adapter.list("inst_a"),
    }.items():
        for status in (400, 403, 500):
            befall(fake, route, reflect(status))
            with pytest.raises(DifferentlyError) as told:
                call()
            shown = f"{told.value!r} {told.value.details}"
            assert TOKEN not in shown
            assert "canary-of-the-caller" not in shown


def test_a_token_of_the_newer_kind_is_sent_as_it_is(fake: FakeFly, make: Make) -> None:
    with pytest.raises(ProviderUnavailable):
        make(token="FlyV1 fm2_abc,fm2_def").health()
    assert fake.requests[-1].headers["authorization"] == "FlyV1 fm2_abc,fm2_def"
