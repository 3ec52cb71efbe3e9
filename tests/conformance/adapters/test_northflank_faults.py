"""What Northflank and the ways to it are known to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.northflank import NorthflankAdapter, NorthflankConfig
from differently_adapters.providers.northflank.shell import PART_BYTES
from differently_adapters.providers.northflank.wire import description
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
from tests.conformance.adapters.northflank_fake import FakeNorthflank
from tests.conformance.adapters.northflank_fake.server import PROJECT, refused
from tests.conformance.adapters.northflank_fake.socket import ServerSocket
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.faults import Fault, drop_after, drop_before, edit, html, reflect
from tests.conformance.adapters.stand_in.http import Reply

TOKEN = "nf-token-of-the-operator"
CREATE = ("POST", "/services/deployment$")
LIST = ("GET", "/services$")
LOOK = ("GET", "^/v1/projects/[^/]+/services/[^/]+$")
EXEC = ("GET", "^/v1/command-exec/")
SECONDS = 30.0
ECHO = ExecRequest(command="echo out", timeout_seconds=10)
PLANS = [
    {"name": "large", "cpuMillis": 4000, "memoryMiB": 8192},
    {"name": "middle", "cpuMillis": 2000, "memoryMiB": 2048},
    {"name": "small", "cpuMillis": 500, "memoryMiB": 1024},
]
Make = Callable[..., NorthflankAdapter]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeNorthflank]:
    fake = FakeNorthflank(tmp_path, token=TOKEN, keep_alive=False)
    yield fake
    fake.close()


@pytest.fixture
def make(fake: FakeNorthflank) -> Iterator[Make]:
    made: list[NorthflankAdapter] = []

    def make(**config: object) -> NorthflankAdapter:
        told = {"apiUrl": f"{fake.url}/v1", "project": PROJECT, "image": "python:3.12", "plans": PLANS,
                "allowHttp": True, "allowLoopback": True, **config}  # fmt: skip
        parsed = NorthflankConfig.model_validate(told)
        made.append(NorthflankAdapter(AdapterContext("pool", "inst_a", parsed, QuickClock(), {"token": TOKEN})))
        return made[-1]

    yield make
    for adapter in made:
        adapter.close()


@pytest.fixture
def adapter(make: Make) -> NorthflankAdapter:
    return make()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_a", sandbox)), **changes)


OWNER = wanted().owner


def created(adapter: NorthflankAdapter, **changes: Any) -> Target:
    request = wanted(**changes)
    return Target(request.owner, adapter.create(request, SECONDS).ref)


def befall(fake: FakeNorthflank, route: tuple[str, str], act: Any, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def say(status: int, message: str, name: str = "", **headers: str) -> Any:
    def act(*_: object) -> Reply:
        reply = refused(status, message, name)
        reply.headers |= {key.replace("_", "-"): value for key, value in headers.items()}
        return reply

    return act


def asked(fake: FakeNorthflank, method: str, path: str) -> list[Any]:
    return [one for one in fake.requests if one.method == method and re.search(path, one.path)]


def test_a_create_says_whose_it_is_and_takes_the_smallest_plan_that_holds_it(fake: FakeNorthflank, make: Make) -> None:
    size = Size(sandboxes=1, cpu_millis=1_500, memory_mib=600, disk_gib=1)
    created(make(ephemeralStorageMiB=2048), env={"A": "1"}, size=size)
    assert [one.json() for one in asked(fake, *CREATE)] == [
        {
            "name": sandbox_name(OWNER),
            "description": "differently inst_a sbx_a",
            "billing": {"deploymentPlan": "middle"},
            "deployment": {
                "instances": 1,
                "external": {"imagePath": "python:3.12"},
                "docker": {"configType": "customCommand", "customCommand": "sleep infinity"},
                "storage": {"ephemeralStorage": {"storageSize": 2048}},
            },
            "runtimeEnvironment": {"A": "1"},
        }
    ]


def test_what_cannot_be_made_is_not_asked_for(fake: FakeNorthflank, make: Make) -> None:
    with pytest.raises(InvalidRequest, match="image"):
        created(make(image=None))
    with pytest.raises(InvalidRequest, match="plan"):
        created(make(), size=Size(sandboxes=1, cpu_millis=1_000, memory_mib=9_000, disk_gib=1))
    assert fake.requests == []


def test_the_team_stands_in_every_path(fake: FakeNorthflank, make: Make) -> None:
    """In that of commands it stands behind, and not before, what says that they are commands."""
    adapter = make(team="a-team")
    with pytest.raises(NotFound):
        adapter.get(Target(OWNER))
    assert fake.requests[-1].path == f"/v1/teams/a-team/projects/{PROJECT}/services/{sandbox_name(OWNER)}"
    assert adapter._api.command_path("one") == f"/command-exec/teams/a-team/projects/{PROJECT}/services/one"


@pytest.mark.parametrize(
    ("status", "message", "error", "reason"),
    [
        (403, "Resource quota exceeded", InsufficientCapacity, "quota"),
        (402, "A payment method is needed", InsufficientCapacity, "quota"),
        (429, "Too many requests", InsufficientCapacity, "rate_limited"),
        (400, "The image could not be found", InvalidRequest, None),
        (401, "Unauthorized", ProviderUnavailable, None),
        (403, "Forbidden", ProviderUnavailable, None),
    ],
)
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeNorthflank, adapter: NorthflankAdapter, status: int, message: str, error: type[DifferentlyError],
    reason: str | None,
) -> None:  # fmt: skip
    befall(fake, CREATE, say(status, message, retry_after="7"))
    with pytest.raises(error) as told:
        created(adapter)
    assert type(told.value) is error
    assert told.value.details.get("reason") == reason
    assert told.value.details["retry_after_seconds"] == 7
    assert not isinstance(told.value, BackendError) or told.value.settled
    assert len(asked(fake, *CREATE)) == 1


@pytest.mark.parametrize("status", [400, 409])
def test_a_name_that_was_taken_meanwhile_by_ourselves_is_ours(
    fake: FakeNorthflank, adapter: NorthflankAdapter, status: int
) -> None:
    def meanwhile(go: Callable[[], Reply], *_: object) -> Reply:
        go()
        return refused(status, "Whatever words there are.")

    befall(fake, CREATE, meanwhile)
    assert created(adapter).ref in fake.services
    assert fake.count() == 1


@pytest.mark.parametrize("act", [drop_after, html(504)])
def test_a_create_whose_answer_was_lost_is_found_by_its_id(
    fake: FakeNorthflank, adapter: NorthflankAdapter, act: Any
) -> None:
    befall(fake, CREATE, act)
    assert created(adapter).ref in fake.services
    assert len(asked(fake, *CREATE)) == 1


def test_a_name_that_is_somebody_elses_is_left_alone(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    fake.plant(sandbox_name(OWNER), description(Owner("inst_b", "sbx_a")))
    with pytest.raises(InvalidState):
        created(adapter)
    adapter.delete(Target(OWNER))
    assert fake.count() == 1


def test_a_service_that_fails_is_the_callers_to_remove(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    fake.next_fails = True
    with pytest.raises(SandboxFailed) as failed:
        created(adapter)
    assert not failed.value.settled
    adapter.delete(Target(OWNER))
    assert fake.services == {}


def test_a_delete_is_done_when_the_service_is_gone(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    target = created(adapter)
    fake.leaving = 3
    adapter.delete(target)
    assert fake.services == {}
    target = created(adapter)
    fake.leaving = 1_000
    with pytest.raises(ProviderUnavailable) as told:
        adapter.delete(target)
    assert not told.value.settled


def test_a_service_that_was_paused_elsewhere_is_stopped(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    target = created(adapter)
    fake.services[str(target.ref)].paused = True
    assert adapter.get(target).state is InstanceState.STOPPED
    with pytest.raises(InvalidState):
        adapter.exec(target, ECHO, 100)


def test_a_next_page_that_nothing_leads_to_is_an_error(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    created(adapter)
    befall(fake, LIST, edit(lambda page: {**page, "pagination": {"hasNextPage": True}}))
    with pytest.raises(ProviderUnavailable):
        adapter.list("inst_a")


# Commands.


def test_a_command_is_asked_for_once_and_its_messages_may_come_in_parts(
    fake: FakeNorthflank, adapter: NorthflankAdapter
) -> None:
    target = created(adapter)
    fake.inits = 2
    assert adapter.exec(target, ECHO, 100).stdout == b"out\n"
    (first,) = fake.asked
    assert first["data"]["context"].keys() == {"command", "shell", "encoding", "tty"}  # it takes no nulls
    assert len(asked(fake, *EXEC)) == 1


@pytest.mark.parametrize("act", [drop_before, html(502), say(500, "failed"), say(401, "Unauthorized")])
def test_a_command_that_was_never_told_has_not_begun(
    fake: FakeNorthflank, adapter: NorthflankAdapter, act: Any
) -> None:
    target = created(adapter)
    befall(fake, EXEC, act)
    with pytest.raises(ProviderUnavailable) as told:
        adapter.exec(target, ECHO, 100)
    assert told.value.settled
    assert fake.asked == []


def test_an_answer_that_proves_no_websocket_gets_no_token(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    target = created(adapter)
    befall(fake, EXEC, lambda *_: Reply(101, headers={"upgrade": "websocket"}, switched=lambda *ends: None))
    with pytest.raises(ProviderUnavailable) as told:
        adapter.exec(target, ECHO, 100)
    assert told.value.settled


def instead(act: Callable[[ServerSocket], None]) -> Any:
    """A server that hears what is asked for and does something else."""

    def answer(go: Callable[[], Reply], *_: object) -> Reply:
        def switched(*ends: Any) -> None:
            socket = ServerSocket(*ends)
            next(socket.heard())
            act(socket)

        return dataclasses.replace(go(), switched=switched)

    return answer


@pytest.mark.parametrize(
    "act",
    [
        lambda socket: None,
        lambda socket: socket.frame(0x88, b""),
        lambda socket: socket.tell("error", {"message": f"no: {TOKEN}"}),
        lambda socket: socket.frame(0x81, b"not JSON"),
        lambda socket: socket.frame(0x81, b"\xff\xfe"),
        lambda socket: socket.frame(0x81, b'{"data": "no type"}'),
        lambda socket: socket.frame(0xF1, b"{}"),
        lambda socket: socket.frame(0x80, b"goes on with nothing"),
        lambda socket: socket.tell("completion", {"exitCode": "0"}),
    ],
    ids=["gone", "closed", "error", "no json", "no text", "no type", "reserved", "continued", "nothing told"],
)
def test_a_command_whose_end_is_not_told_is_unconfirmed(
    fake: FakeNorthflank, adapter: NorthflankAdapter, act: Callable[[ServerSocket], None]
) -> None:
    target = created(adapter)
    befall(fake, EXEC, instead(act))
    with pytest.raises(ExecUnconfirmed) as told:
        adapter.exec(target, ECHO, 100)
    assert not told.value.settled
    assert TOKEN not in f"{told.value!r} {told.value.details}"
    assert len(asked(fake, *EXEC)) == 1


def test_a_token_that_commands_are_refused_for_is_told_as_that(
    fake: FakeNorthflank, adapter: NorthflankAdapter
) -> None:
    target = created(adapter)
    befall(fake, EXEC, instead(lambda socket: socket.tell("init", {"auth": "failed", "message": TOKEN})))
    with pytest.raises(ProviderUnavailable) as told:
        adapter.exec(target, ECHO, 100)
    assert told.value.settled
    assert TOKEN not in str(told.value)


def test_a_ping_gets_its_pong(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    target, pongs, over = created(adapter), list[bytes](), threading.Event()

    def asks(socket: ServerSocket) -> None:
        socket.frame(0x89, b"are you there")
        socket.frame(0x88, b"")
        assert list(socket.heard()) == []  # which ends when the client closes
        pongs.extend(socket.pongs)
        over.set()

    befall(fake, EXEC, instead(asks))
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ECHO, 100)
    assert over.wait(10)
    assert pongs == [b"are you there"]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1])
def test_a_file_goes_through_the_input_of_commands(fake: FakeNorthflank, adapter: NorthflankAdapter, size: int) -> None:
    target, data = created(adapter), bytes(number % 251 for number in range(size))
    adapter.file_write(target, "odd 'name'", [data[:10], data[10:]])
    assert b"".join(adapter.file_read(target, "odd 'name'").chunks) == data


def test_a_part_that_was_lost_leaves_the_old_file(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    target = created(adapter)
    adapter.file_write(target, "file", [b"old"])

    def lost(data: Iterator[bytes]) -> Iterator[bytes]:
        yield from data
        fake.untold = 1

    with pytest.raises(BackendError):
        adapter.file_write(target, "file", lost(iter([b"new"])))
    assert b"".join(adapter.file_read(target, "file").chunks) == b"old"


def test_no_error_repeats_the_token_or_the_environment(fake: FakeNorthflank, adapter: NorthflankAdapter) -> None:
    target = created(adapter)
    for route, call in {
        CREATE: lambda: created(adapter, sandbox="sbx_b", env={"SECRET": "canary-of-the-caller"}),
        LOOK: lambda: adapter.get(target),
        LIST: lambda: adapter.list("inst_a"),
    }.items():
        for status in (400, 403, 500):
            befall(fake, route, reflect(status))
            with pytest.raises(DifferentlyError) as told:
                call()
            shown = f"{told.value!r} {told.value.details}"
            assert TOKEN not in shown
            assert "canary-of-the-caller" not in shown
