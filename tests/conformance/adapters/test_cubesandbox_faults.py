"""What CubeSandbox and the ways to it were seen to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from differently_adapters import registry
from differently_adapters.providers.cubesandbox import CubeSandboxAdapter
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    CreateRequest,
    InstanceState,
    Operation,
    Owner,
    Progress,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Transition,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock, VirtualClock
from tests.conformance.adapters.cubesandbox_fake import FakeCubeSandbox
from tests.conformance.adapters.stand_in.faults import Act, Fault, drop_after, drop_before, html, reflect
from tests.conformance.adapters.stand_in.http import Reply, Request
from tests.conformance.adapters.test_cubesandbox import API_KEY, client, relay, say

OWNER = Owner("inst_any", "sbx_a")
CREATE = ("POST", "^/sandboxes$")
GET = ("GET", "^/sandboxes/[^/]+$")
SECONDS = 30.0
MOVE = Transition("op", "")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeCubeSandbox]:
    fake = FakeCubeSandbox(tmp_path, api_key=API_KEY)
    yield fake
    fake.close()


@pytest.fixture
def adapter(fake: FakeCubeSandbox) -> Iterator[CubeSandboxAdapter]:
    with closing(client(fake)) as adapter:
        yield adapter


@pytest.fixture
def target(adapter: CubeSandboxAdapter) -> Target:
    return Target(OWNER, adapter.create(wanted(), SECONDS).ref)


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_any", sandbox)), **changes)


def befall(fake: FakeCubeSandbox, route: tuple[str, str], act: Act, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def creates(fake: FakeCubeSandbox) -> list[Request]:
    return [asked for asked in fake.requests if (asked.method, asked.path) == ("POST", "/sandboxes")]


def inside(fake: FakeCubeSandbox) -> list[Request]:
    return [asked for asked in fake.requests if asked.headers["host"].startswith("49983-")]


# Create.


def test_a_create_says_whose_it_is_and_that_its_timeout_pauses(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter
) -> None:
    """A sandbox that was paused on purpose is deleted at a timeout that kills (TencentCloud/CubeSandbox#1780), without
    a timeout it lives for fifteen seconds, and a key of the metadata mounts folders of the host."""
    adapter.create(wanted(ttl_seconds=600, env={"A": "secret"}, labels={"host-mount": "/"}, image="tpl-other"), SECONDS)
    (sent,) = creates(fake)
    assert sent.json() == {
        "templateID": "tpl-other",
        "timeout": 900,
        "metadata": {"differently-installation": "inst_any", "differently-sandbox-id": "sbx_a"},
        "lifecycle": {"onTimeout": "pause", "autoResume": False},
    }


def test_the_environment_is_applied_though_cubesandbox_does_not(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter
) -> None:
    made = adapter.create(wanted(env={"A": "it's"}), SECONDS)
    assert adapter.exec(Target(OWNER, made.ref), ExecRequest(command='printf %s "$A"'), 100).stdout == b"it's"


def test_a_restored_sandbox_has_its_own_environment_and_owner(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter
) -> None:
    source = Target(OWNER, adapter.create(wanted(env={"OF_SOURCE": "secret"}), SECONDS).ref)
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.MEMORY, "op"), SECONDS)
    child = adapter.create(wanted("sbx_b", from_snapshot=taken.ref), SECONDS)
    printed = adapter.exec(Target(child.owner, child.ref), ExecRequest(command='echo "$OF_SOURCE"'), 100)
    assert printed.stdout == b"\n"
    with pytest.raises(NotFound):
        adapter.create(wanted(owner=Owner("inst_b", "sbx_c"), from_snapshot=taken.ref), SECONDS)


@pytest.mark.parametrize(
    ("act", "error", "settled"),
    [
        (relay(130597, "SelectNodesNoRes"), InsufficientCapacity, True),
        (relay(130519, "DiskNotEnough"), InsufficientCapacity, True),
        (say(429, "too many requests: Rate limit exceeded. Slow down."), InsufficientCapacity, True),
        (relay(130404, "NotFound"), InvalidRequest, None),
        (say(500, "internal error: template tpl-x not found"), InvalidRequest, None),
        (relay(130508, "StartContainerFailed"), SandboxFailed, True),
        (relay(130593, "MasterInternalError"), ProviderUnavailable, False),
        (say(500), ProviderUnavailable, False),
        (say(408), ProviderUnavailable, False),
        (say(401, "unauthorized"), ProviderUnavailable, True),
    ],
)
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, act: Act, error: type[DifferentlyError], settled: bool | None
) -> None:
    """The scheduler's codes stand in the text of a 500; a 408 is CubeAPI's own limit, and the create goes on."""
    befall(fake, CREATE, act)
    with pytest.raises(error) as failed:
        adapter.create(wanted(), SECONDS)
    assert getattr(failed.value, "settled", None) is settled
    assert len(creates(fake)) == 1


@pytest.mark.parametrize("lost", [drop_after, html(504)])
def test_a_create_whose_answer_was_lost_is_looked_for(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, lost: Act
) -> None:
    befall(fake, CREATE, lost)
    assert adapter.create(wanted(), SECONDS).ref in fake.sandboxes
    assert len(creates(fake)) == 1


def test_a_create_that_nobody_saw_is_unknown_and_never_sent_again(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter
) -> None:
    befall(fake, CREATE, drop_before)
    with pytest.raises(ProviderUnavailable) as unknown:
        adapter.create(wanted(), SECONDS)
    assert not unknown.value.settled
    assert len(creates(fake)) == 1


def test_of_two_creates_that_overlapped_the_older_one_stays(fake: FakeCubeSandbox, adapter: CubeSandboxAdapter) -> None:
    """CubeSandbox gives a create no name and no key."""
    first: list[str] = []

    def beside(go: Callable[[], Reply], *_: Any) -> Reply:
        labels = {"differently-installation": "inst_any", "differently-sandbox-id": "sbx_a"}
        first.append(fake.plant(labels).box.id)
        return go()

    befall(fake, CREATE, beside)
    assert adapter.create(wanted(), SECONDS).ref == first[0]
    assert list(fake.sandboxes) == first


def test_a_sandbox_whose_agent_does_not_answer_was_made(fake: FakeCubeSandbox, adapter: CubeSandboxAdapter) -> None:
    """After a restart of its network agent CubeSandbox tells sandboxes as running that nobody reaches (#1206)."""
    befall(fake, ("POST", "/process.Process/Start$"), html(502, effect=False))
    with pytest.raises(BackendError) as failed:
        adapter.create(wanted(), SECONDS)
    assert not failed.value.settled
    adapter.delete(Target(OWNER))
    assert fake.count() == 0


# Looking.


def test_a_node_that_is_missing_is_no_sandbox_that_is_missing(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, target: Target
) -> None:
    """CubeAPI looks a sandbox up, then its node; both are told by the scheduler's code for what it cannot find."""
    befall(fake, GET, relay(130404, "NotFound"))
    with pytest.raises(ProviderUnavailable):
        adapter.get(target)


def test_a_list_that_may_be_cut_is_an_error(fake: FakeCubeSandbox) -> None:
    """In May's source `limit` counts nodes and there are no pages; in a release where it counts sandboxes and there is
    no next page, as many as were asked for may not be all."""
    with closing(client(fake, nodesMax=2)) as adapter:
        adapter.create(wanted("sbx_1"), SECONDS)
        with pytest.raises(ProviderUnavailable, match="nodesMax"):
            adapter.create(wanted("sbx_2"), SECONDS)
        fake.plant({})
        assert len(adapter.list("inst_any")) == 2  # more than were asked for: nodes were counted


def test_an_end_that_is_not_known_is_none(fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, target: Target) -> None:
    found = fake.sandboxes[target.ref or ""]
    found.end_at = found.started_at
    assert adapter.get(target).expires_at is None


def test_a_state_that_is_new_to_us_is_no_end(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, target: Target
) -> None:
    fake.sandboxes[target.ref or ""].state = "pausing"
    assert adapter.get(target).state is InstanceState.PENDING


# What reaches a sandbox.


def test_the_pools_key_never_reaches_a_sandbox(fake: FakeCubeSandbox, adapter: CubeSandboxAdapter) -> None:
    """Who is root in a sandbox can stand in for its agent, and would read it."""
    fake.access_token = "of-the-agent"
    target = Target(OWNER, adapter.create(wanted(), SECONDS).ref)
    adapter.file_write(target, "file", [b"content"])
    assert b"".join(adapter.file_read(target, "file").chunks) == b"content"
    assert len(inside(fake)) > 3
    assert not any(API_KEY in f"{asked.headers}" for asked in inside(fake))
    assert {asked.headers["x-access-token"] for asked in inside(fake)} == {"of-the-agent"}


def test_an_installation_that_asks_for_no_key_is_sent_none(fake: FakeCubeSandbox) -> None:
    fake.api_key = None
    config: dict[str, Any] = {"apiUrl": fake.url, "template": "tpl-base", "allowHttp": True, "allowLoopback": True}
    built = registry.build("cubesandbox", config, pool="p", installation="inst_any", clock=SystemClock())
    with closing(built):
        built.health()
    assert not any("x-api-key" in asked.headers for asked in fake.requests)


def test_without_a_proxy_address_each_port_has_its_host(fake: FakeCubeSandbox) -> None:
    with closing(client(fake, proxyUrl=None, domain="cube.example.test", scheme="https", publicPorts=True)) as adapter:
        planted = fake.plant({"differently-installation": "inst_any", "differently-sandbox-id": "sbx_a"})
        exposed = adapter.port_expose(Target(OWNER), 8080, 60)
    assert exposed.url == f"https://8080-{planted.box.id}.cube.example.test"


# Pause and resume.


def test_a_pause_is_done_when_it_is_seen(fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, target: Target) -> None:
    """It is answered at once and done later, and meanwhile the sandbox is told as running."""
    fake.sandboxes[target.ref or ""].looks = 1_000
    paused = adapter.pause(target, MOVE, 1.0)
    assert (paused.progress, paused.instance.state) == (Progress.UNDERWAY, InstanceState.RUNNING)
    fake.sandboxes[target.ref or ""].looks = 1
    seen = adapter.pause(target, dataclasses.replace(MOVE, observe_only=True), 1.0)
    assert seen.progress is Progress.DONE


@pytest.mark.parametrize("act", [say(409, "conflict: sandbox x cannot be paused"), relay(130588, "TaskPauseFailed")])
def test_a_pause_that_is_refused_leaves_it_running(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, target: Target, act: Act
) -> None:
    befall(fake, ("POST", "/pause$"), act)
    assert adapter.pause(target, MOVE, SECONDS).progress is Progress.FAILED


def test_a_resume_that_fails_is_told_and_one_that_was_lost_is_under_way(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, target: Target
) -> None:
    """Resumes were seen to fail with 130589 for ever (#1137); a timeout is sent, for without one it is short."""
    adapter.pause(target, MOVE, SECONDS)
    befall(fake, ("POST", "/connect$"), relay(130589, "TaskResumeFailed"))
    assert adapter.resume(target, MOVE, SECONDS).progress is Progress.FAILED
    befall(fake, ("POST", "/connect$"), drop_before)
    assert adapter.resume(target, MOVE, SECONDS).progress is Progress.UNDERWAY
    assert adapter.resume(target, MOVE, SECONDS).progress is Progress.DONE
    assert {asked.json()["timeout"] for asked in fake.requests if asked.path.endswith("/connect")} == {3_600}


def test_an_incarnation_cannot_be_named(adapter: CubeSandboxAdapter, target: Target) -> None:
    with pytest.raises(InvalidState):
        adapter.pause(target, Transition("op", "another"), SECONDS)


# Snapshots.


def test_a_snapshot_that_is_not_listed_was_not_taken(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, target: Target
) -> None:
    """May's CubeAPI answers with an id of its own making where the scheduler cannot capture."""
    fake.loses_snapshots = True
    with pytest.raises(ProviderUnavailable, match="does not list"):
        adapter.snapshot(target, SnapshotRequest(SnapshotKind.MEMORY, "op"), SECONDS)


def test_an_older_release_has_no_snapshots(fake: FakeCubeSandbox) -> None:
    with closing(client(fake, legacy=True)) as adapter:
        with pytest.raises(UnsupportedOperation):
            adapter.snapshot(Target(OWNER), SnapshotRequest(SnapshotKind.MEMORY, "op"), SECONDS)
        assert not adapter.capabilities().features & {features.SNAPSHOTS_MEMORY, features.FORK}
        assert adapter.operations[Operation.SNAPSHOT] != CubeSandboxAdapter.operations[Operation.SNAPSHOT]
    assert fake.requests == []


# Messages and configuration.


@pytest.mark.parametrize("route", [CREATE, ("POST", "/process.Process/Start$")])
def test_no_error_tells_the_key_or_the_environment(
    fake: FakeCubeSandbox, adapter: CubeSandboxAdapter, route: tuple[str, str]
) -> None:
    befall(fake, route, reflect(400))
    with pytest.raises(DifferentlyError) as failed:
        adapter.create(wanted(env={"A": "canary-of-the-caller"}), SECONDS)
    told = f"{failed.value!r} {failed.value.details}"
    assert API_KEY not in told
    assert "canary-of-the-caller" not in told


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"apiUrl": "http://cube.example.test"}, "allowHttp"),
        ({"scheme": "http"}, "http"),
        ({"apiKey": "canary"}, "apiKey"),
        ({"template": ""}, "template"),
        ({"user": "root; id"}, "user"),
        ({"domain": "Cube App"}, "domain"),
        ({"features": ["arch.none"]}, "features"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_when_it_is_written(changes: dict[str, Any], field: str) -> None:
    told = {"apiUrl": "https://cube.example.test", "template": "tpl", "scheme": "https", **changes}
    with pytest.raises(InvalidRequest, match=field) as failed:
        registry.build("cubesandbox", told, pool="p", installation="inst_a", clock=VirtualClock(SystemClock().now()))
    assert "canary" not in f"{failed.value!r} {failed.value.details}"
