"""Secrets of a project, given to sandboxes: in their environment where policies allow it, and nowhere else."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeInstance, Refuse
from differently_core.contract import CommandResult, ExecEvent, Exit, Operation, Output, Quiet
from differently_core.errors import ExecUnconfirmed
from differently_core.model.exec import OUTPUT_BYTES_MAX, ExecRequest
from differently_core.model.record import Table
from differently_core.model.secret import SandboxSecrets
from differently_core.operations.core import Opened
from differently_core.runtime.ids import SandboxId
from differently_core.runtime.telemetry import JsonFormatter
from differently_core.store.sealing import MemorySealer
from tests.support.api import Reply, Tenant, World

FIRST, SECOND = "canary-first-value-9d02", "canary-second-value-51ce"
STARS = "*" * len(FIRST)
GIVEN = {"secrets": [{"env": "TOKEN", "secret": "pypi"}]}


def allow(world: World, scope: str = "global", **rules: Any) -> None:
    body = {"rules": {"secretsInEnv": True, **rules}}
    reply = world.call("PUT", f"/v1/policies/{scope}", body, token=world.operator)
    assert reply.status == 200, reply.raw


def put(world: World, tenant: Tenant, value: str = FIRST, name: str = "pypi") -> Reply:
    return world.call("PUT", f"/v1/secrets/{name}", {"value": value}, token=tenant.token)


def create(world: World, tenant: Tenant, body: Any = None, key: str | None = None) -> Reply:
    headers = {"Idempotency-Key": key} if key is not None else None
    return world.call("POST", "/v1/sandboxes", GIVEN if body is None else body, token=tenant.token, headers=headers)


def status(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def env_of(world: World, sandbox: str) -> dict[str, str]:
    (found,) = [one for one in world.backend("main").instances() if one.owner.sandbox == sandbox]
    return dict(found.env)


def prints(*pieces: bytes) -> Any:
    """A command that writes these pieces, one after the other."""

    def function(instance: FakeInstance, request: ExecRequest) -> CommandResult:
        return CommandResult(0, b"".join(pieces), b"", 0)

    return function


def writes(pieces: Sequence[bytes]) -> Any:
    def function(instance: FakeInstance, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        for piece in pieces:
            yield Output("stdout", piece)
            yield Quiet()
        yield Exit(0, 1, False)

    return function


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonFormatter("test"))
    root = logging.getLogger()
    root.addHandler(handler)
    yield text
    root.removeHandler(handler)


# Keeping


def test_a_secret_is_kept_told_of_replaced_and_forgotten(world: World, acme: Tenant) -> None:
    made = put(world, acme)
    assert (made.status, made.json()["version"], made.json()["name"]) == (201, 1, "pypi")
    assert world.call("GET", "/v1/secrets/pypi", token=acme.token).json() == made.json()
    world.clock.advance(5)
    replaced = put(world, acme, SECOND)
    assert (replaced.status, replaced.json()["version"]) == (200, 2)
    listed = world.call("GET", "/v1/secrets", token=acme.token)
    assert listed.json()["items"] == [replaced.json()]
    assert b"canary" not in made.raw + replaced.raw + listed.raw
    assert world.call("DELETE", "/v1/secrets/pypi", token=acme.token).status == 204
    assert world.call("DELETE", "/v1/secrets/pypi", token=acme.token).status == 404
    assert world.call("GET", "/v1/secrets", token=acme.token).json()["items"] == []


def test_nobody_else_learns_of_it(world: World, acme: Tenant) -> None:
    put(world, acme)
    for other in (world.tenant("sibling", org=acme.org), world.tenant("stranger")):
        assert world.call("GET", "/v1/secrets/pypi", token=other.token).status == 404
        assert world.call("GET", "/v1/secrets", token=other.token).json()["items"] == []
        allow(world)
        refused = create(world, other)
        assert (refused.status, refused.json()["error"]["details"]["secret"]) == (404, "pypi")
    operator = world.call("GET", f"/v1/secrets/pypi?projectId={acme.project}", token=world.operator)
    assert (operator.status, operator.json()["version"]) == (200, 1)
    assert world.call("GET", "/v1/secrets/pypi", token=world.operator).status == 400


@pytest.mark.parametrize(
    "value", [" canary-spaced ", "canary-line\r\n", "canary7", "c\0anary-value", "canary" * 700, 5, None]
)
def test_what_cannot_be_a_secret_is_refused_and_never_quoted(memory: World, value: Any) -> None:
    reply = memory.call("PUT", "/v1/secrets/pypi", {"value": value}, token=memory.tenant().token)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "value")
    assert b"canary" not in reply.raw


# Giving


def test_a_sandbox_gets_its_secret_in_its_environment_and_shows_only_the_name(world: World, acme: Tenant) -> None:
    allow(world)
    put(world, acme)
    sandbox = world.running(acme, {**GIVEN, "env": {"CI": "true"}})
    assert env_of(world, sandbox) == {"CI": "true", "TOKEN": FIRST}
    shown = status(world, acme, sandbox)
    assert shown["secrets"] == [{"env": "TOKEN", "secret": "pypi", "version": 1}]
    assert "canary" not in str(shown)


def test_without_permission_in_every_policy_nothing_is_given(world: World, acme: Tenant) -> None:
    """Policy fails closed: the default allows nothing, and a narrower one takes away."""
    put(world, acme)
    refused = create(world, acme)
    assert (refused.status, refused.code) == (422, "unsupported_capability")
    assert refused.json()["error"]["details"]["field"] == "secrets"
    allow(world)
    allow(world, acme.org, secretsInEnv=False)
    assert create(world, acme).status == 422
    allow(world, acme.org, classifications={"sensitive": {"secretsInEnv": False}})
    assert create(world, acme, {**GIVEN, "classification": "sensitive"}).status == 422
    assert create(world, acme).status == 202


def test_what_waited_is_asked_again(world: World, acme: Tenant) -> None:
    allow(world)
    put(world, acme)
    world.call("POST", "/v1/admin/pools/main/drain", token=world.operator)
    waiting = create(world, acme).json()["id"]
    allow(world, secretsInEnv=False)
    world.call("POST", "/v1/admin/pools/main/undrain", token=world.operator)
    world.settle()
    ended = status(world, acme, waiting)
    assert (ended["status"], ended["statusReason"]["code"]) == ("failed", "invalid_request")
    assert world.backend("main").instances() == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"secrets": [{"env": "A", "secret": "pypi"}, {"env": "A", "secret": "npm"}]}, "secrets"),
        ({"secrets": [{"env": "A", "secret": "pypi"}], "env": {"A": "x"}}, "body"),
        ({"secrets": [{"env": "1A", "secret": "pypi"}]}, "secrets[0].env"),
        ({"secrets": [{"env": "A", "secret": "canary A"}]}, "secrets[0].secret"),
        ({"secrets": [{"env": f"A{n}", "secret": "pypi"} for n in range(17)]}, "secrets"),
    ],
)
def test_what_cannot_be_given_is_refused(memory: World, body: Any, field: str) -> None:
    tenant = memory.tenant()
    allow(memory)
    put(memory, tenant)
    reply = create(memory, tenant, body)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, field)
    assert b"canary" not in reply.raw


def test_a_replacement_reaches_new_sandboxes_alone(world: World, acme: Tenant) -> None:
    allow(world)
    put(world, acme)
    old = world.running(acme, GIVEN)
    put(world, acme, SECOND)
    new = world.running(acme, GIVEN)
    assert (env_of(world, old)["TOKEN"], env_of(world, new)["TOKEN"]) == (FIRST, SECOND)
    assert status(world, acme, new)["secrets"][0]["version"] == 2
    world.backend("main").exec_function = prints(f"{FIRST} {SECOND}".encode())
    for sandbox, wanted in ((old, f"{STARS} {SECOND}"), (new, f"{FIRST} {'*' * len(SECOND)}")):
        said = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token).json()
        assert said["stdout"] == wanted, "each is masked with what it really holds"


def test_a_key_still_names_its_sandbox_when_the_secret_is_gone(world: World, acme: Tenant) -> None:
    allow(world)
    put(world, acme)
    first = create(world, acme, key="once")
    world.call("DELETE", "/v1/secrets/pypi", token=acme.token)
    again = create(world, acme, key="once")
    assert (again.status, again.json()) == (200, first.json())
    world.settle()
    assert env_of(world, first.json()["id"]) == {"TOKEN": FIRST}


def test_a_sealer_that_is_down_delays_and_never_gives_less(memory: World) -> None:
    tenant = memory.tenant()
    allow(memory)
    put(memory, tenant)
    sandbox = create(memory, tenant).json()["id"]
    assert isinstance(memory.sealer, MemorySealer)
    memory.sealer.up = False
    with pytest.raises(Exception, match="right now"):
        memory.settle()
    assert status(memory, tenant, sandbox)["status"] == "provisioning"
    assert memory.backend("main").instances() == []
    memory.sealer.up = True
    memory.pass_time(60)
    assert status(memory, tenant, sandbox)["status"] == "running"
    assert env_of(memory, sandbox) == {"TOKEN": FIRST}
    assert len(memory.backend("main").instances()) == 1


def test_output_that_cannot_be_masked_is_not_shown(memory: World) -> None:
    """A fresh process that cannot open the secrets does not know what to hide."""
    tenant = memory.tenant()
    allow(memory)
    put(memory, tenant)
    sandbox = memory.running(tenant, GIVEN)
    memory.backend("main").exec_function = prints(FIRST.encode())
    object.__setattr__(memory.core, "opened", Opened())
    assert isinstance(memory.sealer, MemorySealer)
    memory.sealer.up = False
    for query in ("", "?stream=true"):
        reply = memory.call("POST", f"/v1/sandboxes/{sandbox}/exec{query}", {"command": "x"}, token=tenant.token)
        assert (reply.status, b"canary" in reply.raw) == (503, False)


# Masking


@pytest.fixture
def sandbox(world: World, acme: Tenant) -> str:
    allow(world)
    put(world, acme)
    return world.running(acme, GIVEN)


def test_a_buffered_command_tells_nothing(world: World, acme: Tenant, sandbox: str) -> None:
    world.backend("main").exec_function = lambda *_: CommandResult(
        0, f"a {FIRST} b".encode(), f"{FIRST}{FIRST}\n".encode(), 1
    )
    said = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token).json()
    assert (said["stdout"], said["stderr"]) == (f"a {STARS} b", f"{STARS}{STARS}\n")


def test_a_value_at_a_dropped_middle_is_not_told_in_part(world: World, acme: Tenant, sandbox: str) -> None:
    half = OUTPUT_BYTES_MAX // 2
    value = FIRST.encode()
    head, tail = b"." * (half - 15) + value[:15], value[-12:] + b"." * (half - 12)
    world.backend("main").exec_function = lambda *_: CommandResult(0, head + b"x" * 50 + tail, b"", 1)
    said = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token).json()
    assert (said["truncated"], len(said["stdout"])) == (True, OUTPUT_BYTES_MAX)
    assert "canary" not in said["stdout"]
    assert said["stdout"].count("*") == 27


@pytest.mark.parametrize("size", [1, 3, 7, 22, 23, 24, 100])
def test_a_stream_tells_nothing_however_it_is_cut(world: World, acme: Tenant, sandbox: str, size: int) -> None:
    text = f"before {FIRST} {FIRST}canary after".encode()
    world.backend("main").stream_function = writes([text[at : at + size] for at in range(0, len(text), size)])
    reply = world.call("POST", f"/v1/sandboxes/{sandbox}/exec?stream=true", {"command": "x"}, token=acme.token)
    lines = reply.lines()
    assert "".join(line.get("data", "") for line in lines) == f"before {STARS} {STARS}canary after"
    assert lines[-1]["exitCode"] == 0


def test_an_ending_that_was_not_seen_tells_nothing_of_what_was(world: World, acme: Tenant, sandbox: str) -> None:
    seen = ExecUnconfirmed(f"Its end was not seen after {FIRST}.", stdout=f"{FIRST}\n", partial=True)
    world.backend("main").expect(Operation.EXEC, Refuse(seen))
    reply = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token)
    assert (reply.code, reply.json()["error"]["details"]["stdout"]) == ("exec_unconfirmed", f"{STARS}\n")
    assert b"canary" not in reply.raw


@pytest.mark.parametrize("limit", [16, 17, 40, 1000])
def test_a_jobs_output_tells_nothing_wherever_it_is_read_from(
    world: World, acme: Tenant, sandbox: str, limit: int
) -> None:
    text = f"one {FIRST} two {FIRST}{FIRST} three canary-f"
    wanted = text.replace(FIRST, STARS)
    world.backend("main").exec_function = prints(text.encode())
    base = f"/v1/sandboxes/{sandbox}/jobs"
    world.call("POST", base, {"id": "j", "command": "x"}, token=acme.token)
    world.clock.advance(1)

    def read(offset: int) -> Any:
        target = f"{base}/j/output?offset={offset}&limit={limit}"
        return world.call("GET", target, token=acme.token).json()

    whole, offset = "", 0
    while True:
        part = read(offset)
        whole, offset = whole + part["data"], part["next"]
        if part["ended"]:
            break
    assert whole == wanted
    for start in range(len(text)):
        assert read(start)["data"] == wanted[start : start + limit]


def test_the_beginning_of_a_value_waits_while_its_job_runs(world: World, acme: Tenant, sandbox: str) -> None:
    world.backend("main").exec_function = lambda *_: CommandResult(0, f"x {FIRST[:12]}".encode(), b"", 60_000)
    base = f"/v1/sandboxes/{sandbox}/jobs"
    world.call("POST", base, {"id": "j", "command": "x", "timeoutSeconds": 100}, token=acme.token)
    part = world.call("GET", f"{base}/j/output", token=acme.token).json()
    assert part == {"data": "x ", "next": 2, "ended": False}
    again = world.call("GET", f"{base}/j/output?offset=2", token=acme.token).json()
    assert again == {"data": "", "next": 2, "ended": False}


def test_copies_are_not_given_the_secret_and_mask_it_all_the_same(world: World, acme: Tenant, sandbox: str) -> None:
    """What was written down goes along with a disk, and with a memory even more."""
    base = f"/v1/sandboxes/{sandbox}"
    snapshot = world.call("POST", f"{base}/snapshots", {}, token=acme.token).json()["id"]
    fork = world.call("POST", f"{base}/fork", {}, token=acme.token).json()["id"]
    world.settle()
    put(world, acme, SECOND)
    restored = world.running(acme, {**GIVEN, "snapshotId": snapshot})
    again = world.call("POST", f"/v1/sandboxes/{fork}/fork", {}, token=acme.token).json()["id"]
    world.settle()
    world.backend("main").exec_function = prints(f"{FIRST} {SECOND}".encode())
    both = f"{STARS} {'*' * len(SECOND)}"
    for copy, given, wanted in ((fork, {}, f"{STARS} {SECOND}"), (again, {}, f"{STARS} {SECOND}"),
                                (restored, {"TOKEN": SECOND}, both)):  # fmt: skip
        assert env_of(world, copy) == given
        assert [entry["version"] for entry in status(world, acme, copy).get("secrets", [])] == ([2] if given else [])
        said = world.call("POST", f"/v1/sandboxes/{copy}/exec", {"command": "x"}, token=acme.token).json()
        assert said["stdout"] == wanted
        world.call("DELETE", f"/v1/sandboxes/{copy}", token=acme.token)
        world.settle()
        assert world.store.get(SandboxSecrets, SandboxSecrets.key_of(SandboxId(copy))) is None


# Nothing is left behind


def test_no_value_is_kept_logged_or_written_down(memory: World, log: io.StringIO) -> None:
    tenant = memory.tenant()
    allow(memory)
    put(memory, tenant)
    sandbox = memory.running(tenant, GIVEN)
    memory.backend("main").exec_function = prints(FIRST.encode())
    memory.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=tenant.token)
    rows = memory.store.rows()  # type: ignore[attr-defined]
    assert any(isinstance(row, SandboxSecrets) for row in rows.values())
    assert not any("canary" in str(row.model_dump()) for row in rows.values())
    memory.call("DELETE", f"/v1/sandboxes/{sandbox}", token=tenant.token)
    memory.settle()
    assert memory.store.get(SandboxSecrets, SandboxSecrets.key_of(SandboxId(sandbox))) is None
    events = [row for slot, row in memory.store.rows().items() if slot[0] is Table.LOG]  # type: ignore[attr-defined]
    assert [event.action for event in events if "secret" in event.action] == ["project_secret.put"]
    assert "canary" not in log.getvalue()
