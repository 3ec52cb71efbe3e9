"""What Azure's dynamic sessions are said to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from differently_adapters import registry
from differently_adapters.providers.azure_sessions import AzureSessionsAdapter
from differently_adapters.testing import a_create_request
from differently_core.contract import CreateRequest, Owner, Target
from differently_core.errors import (
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock, VirtualClock
from tests.conformance.adapters.azure_sessions_fake import FakeAzureSessions
from tests.conformance.adapters.stand_in.faults import Act, Fault, Go, drop_after, drop_before, html, reflect
from tests.conformance.adapters.stand_in.http import Reply, Request, told
from tests.conformance.adapters.test_azure_sessions import EXECUTE, SECRET, client, say

OWNER = Owner("inst_any", "sbx_a")
NAME = "differently-inst_any-sbx_a"
TOKEN = ("POST", "/oauth2/v2.0/token$")
LIST = ("GET", "/listSessions$")
SECONDS = 30.0


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAzureSessions]:
    fake = FakeAzureSessions(tmp_path, secret=SECRET)
    yield fake
    fake.close()


@pytest.fixture
def adapter(fake: FakeAzureSessions) -> Iterator[AzureSessionsAdapter]:
    with closing(client(fake)) as adapter:
        yield adapter


@pytest.fixture
def target(adapter: AzureSessionsAdapter) -> Target:
    return Target(OWNER, adapter.create(wanted(env={"A": "it's"}), SECONDS).ref)


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_any", sandbox)), **changes)


def befall(fake: FakeAzureSessions, route: tuple[str, str], act: Act, times: int = 1) -> None:
    fake.faults.append(Fault(*route, act, times))


def executions(fake: FakeAzureSessions) -> list[Request]:
    return [asked for asked in fake.requests if asked.method == "POST" and asked.path.endswith("/executions")]


# Sessions that are made by whoever names them.


def test_a_create_is_one_command_under_a_name_made_of_the_owner(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter
) -> None:
    made = adapter.create(wanted(), SECONDS)
    (sent,) = executions(fake)
    assert (made.ref, sent.one("identifier")) == (NAME, NAME)
    assert sent.json()["executionType"] == "Synchronous"
    assert made.incarnation == fake.sessions[NAME].etag


def test_a_create_that_is_repeated_leaves_the_first_environment(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, target: Target
) -> None:
    adapter.create(wanted(env={"A": "another"}), SECONDS)
    assert adapter.exec(target, ExecRequest(command='printf %s "$A"'), 100).stdout == b"it's"
    assert fake.count() == 1


def test_a_session_that_ended_is_not_made_again_by_looking(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, target: Target
) -> None:
    fake.end(NAME)
    for call in (
        lambda: adapter.get(target),
        lambda: adapter.exec(target, ExecRequest(command="true"), 100),
        lambda: adapter.renew(target, SystemClock().now()),
    ):
        with pytest.raises(NotFound):
            call()
    assert fake.count() == 0


def test_a_session_that_ends_between_a_look_and_a_command_runs_nothing_and_is_removed(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, target: Target
) -> None:
    """The command makes another session under the name, and that one would pass for the sandbox."""

    def ended_meanwhile(go: Go, request: Request, closing: object) -> Reply:
        fake.end(NAME)
        return go()

    befall(fake, EXECUTE, ended_meanwhile)
    with pytest.raises(NotFound):
        adapter.exec(target, ExecRequest(command="echo ran > ran"), 100)
    assert fake.count() == 0


def test_every_use_moves_the_end_and_nothing_else_does(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, target: Target
) -> None:
    before = adapter.get(target).expires_at
    assert adapter.get(target).expires_at == before
    until = SystemClock().now().replace(year=2100)
    renewed = adapter.renew(target, until)
    assert before is not None
    assert renewed is not None
    assert before < renewed < until
    assert adapter.capabilities().lease_seconds == 300


# Refusals.


@pytest.mark.parametrize(
    ("act", "error", "settled"),
    [
        (say(429, "SessionPoolMaxSessionsReached"), InsufficientCapacity, True),
        (say(400, "InvalidRequest"), InvalidRequest, None),
        (say(404, "SessionPoolNotFound"), InvalidRequest, None),
        (say(403, "Forbidden"), ProviderUnavailable, True),
        (say(500, "InternalError"), ProviderUnavailable, False),
        (html(504), ProviderUnavailable, False),
        (drop_before, ProviderUnavailable, False),
        (drop_after, ProviderUnavailable, False),
        (lambda *_: told(200, {"id": "x", "status": "Failed", "error": {"code": "x"}}), SandboxFailed, False),
    ],
)
def test_each_refusal_of_a_create_has_its_class(
    fake: FakeAzureSessions,
    adapter: AzureSessionsAdapter,
    act: Act,
    error: type[DifferentlyError],
    settled: bool | None,
) -> None:
    befall(fake, EXECUTE, act)
    with pytest.raises(error) as failed:
        adapter.create(wanted(), SECONDS)
    assert type(failed.value) is error
    assert getattr(failed.value, "settled", None) is settled
    assert len(executions(fake)) == 1
    assert adapter.create(wanted(), SECONDS).ref == NAME  # it may be asked for again


def test_an_image_is_the_session_pools(fake: FakeAzureSessions, adapter: AzureSessionsAdapter) -> None:
    with pytest.raises(InvalidRequest, match="image"):
        adapter.create(wanted(image="python:3.12"), SECONDS)
    assert fake.requests == []


# Executions.


def test_an_execution_that_is_answered_early_is_followed(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, target: Target
) -> None:
    fake.answers_early = True
    before = len(executions(fake))
    befall(fake, ("GET", "/executions/"), say(503))
    assert adapter.exec(target, ExecRequest(command="echo done; exit 3"), 100).exit_code == 3
    assert len(executions(fake)) == before + 1
    fake.executions.clear()
    befall(fake, ("GET", "/executions/"), say(404, "ExecutionNotFound"))
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ExecRequest(command="true"), 100)


def test_a_command_that_may_take_long_is_a_job(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, target: Target
) -> None:
    """One call is ended after 220 seconds."""
    ended = adapter.exec(target, ExecRequest(command="sleep 0.1; echo done", timeout_seconds=600), 100)
    assert (ended.exit_code, ended.stdout) == (0, b"done\n")
    assert max(asked.json()["timeoutInSeconds"] for asked in executions(fake)) <= 220


@pytest.mark.parametrize("act", [drop_after, say(500), say(409)])
def test_a_command_whose_end_was_not_seen_is_unconfirmed(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, target: Target, act: Act
) -> None:
    befall(fake, EXECUTE, act)
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ExecRequest(command="true"), 100)


# Lists.


def test_a_list_whose_pages_move_is_read_again(fake: FakeAzureSessions, adapter: AzureSessionsAdapter) -> None:
    """Pages are cut by number, so an entry slips over an edge when another one ends."""
    for number in range(5):
        fake.use(f"differently-inst_any-sbx_{number}")
    fake.page_size = 2

    def slipped(go: Go, request: Request, closing: object) -> Reply:
        if request.one("skip", "0") != "2":
            return go()
        page = json.loads(go().body)
        return told(200, {**page, "sessions": page["sessions"][1:]})

    befall(fake, LIST, slipped, times=3)
    assert len(adapter.list("inst_any")) == 5


def test_a_list_that_never_stands_still_is_an_error(fake: FakeAzureSessions, adapter: AzureSessionsAdapter) -> None:
    fake.page_size = 2
    for number in range(3):
        fake.use(f"differently-inst_any-sbx_{number}")

    def another(go: Go, request: Request, closing: object) -> Reply:
        fake.use(f"differently-inst_any-sbx_{len(fake.sessions)}")
        return go()

    befall(fake, LIST, another, times=1_000)
    with pytest.raises(ProviderUnavailable):
        adapter.list("inst_any")


# Tokens.


def test_a_token_is_asked_for_once_and_again_before_it_ends(fake: FakeAzureSessions) -> None:
    with closing(client(fake)) as adapter:
        for _ in range(3):
            adapter.health()
        assert len(fake.tokens) == 1
    fake.token_seconds = 60
    with closing(client(fake)) as adapter:
        for _ in range(3):
            adapter.health()
    assert len(fake.tokens) == 4


def test_a_token_that_is_rejected_is_not_used_again(fake: FakeAzureSessions, adapter: AzureSessionsAdapter) -> None:
    adapter.health()
    fake.tokens.clear()
    with pytest.raises(ProviderUnavailable):
        adapter.health()
    adapter.health()


@pytest.mark.parametrize("act", [reflect(400), reflect(401), reflect(500), html(200)])
def test_no_error_tells_the_secret(fake: FakeAzureSessions, adapter: AzureSessionsAdapter, act: Act) -> None:
    befall(fake, TOKEN, act)
    with pytest.raises(ProviderUnavailable) as failed:
        adapter.health()
    assert SECRET not in f"{failed.value!r} {failed.value.details}"


@pytest.mark.parametrize("route", [EXECUTE, ("GET", "/session$")])
def test_no_error_tells_a_token_or_the_environment(
    fake: FakeAzureSessions, adapter: AzureSessionsAdapter, route: tuple[str, str]
) -> None:
    befall(fake, route, reflect(400))
    with pytest.raises(DifferentlyError) as failed:
        adapter.create(wanted(env={"A": "canary-of-the-caller"}), SECONDS)
    text = f"{failed.value!r} {failed.value.details}"
    assert not any(secret in text for secret in ("canary-of-the-caller", SECRET, *fake.tokens))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"poolUrl": "http://pool.example.test"}, "allowHttp"),
        ({"clientSecret": "canary"}, "clientSecret"),
        ({"tenant": "../other"}, "tenant"),
        ({"cooldownSeconds": 1}, "cooldownSeconds"),
        ({"directSecondsMax": 220}, "directSecondsMax"),
        ({"features": ["arch.none"]}, "features"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_when_it_is_written(changes: dict[str, Any], field: str) -> None:
    config = {
        "poolUrl": "https://pool.example.test/p",
        "tenant": "t",
        "clientId": "c",
        "cooldownSeconds": 300,
        **changes,
    }
    with pytest.raises(InvalidRequest, match=field) as failed:
        registry.build("azure-sessions", config, pool="p", installation="inst_a", clock=VirtualClock())
    assert "canary" not in f"{failed.value!r} {failed.value.details}"
