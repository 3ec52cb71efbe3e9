"""Who ran what: written before it is run, as much of it as the policies say, and with its end.

users/reports 3, number 8; reliability.md I10 and I15.
"""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.model.event import Event
from differently_core.model.policy import CommandLog, PolicyRules
from differently_core.model.record import Table
from differently_core.operations import policies
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Put, StoreUnavailable
from tests.support.api import BOOT, Tenant, World

SECRET = "canary-d7c1e0a4b5f60718"


def logged(world: World, tenant: Tenant) -> list[Event]:
    rows = world.store.query(Table.LOG, f"EVT#{tenant.org}").rows
    watched = ("sandbox.exec", "sandbox.job", "sandbox.file")
    found = [row for row in rows if isinstance(row, Event) and row.action.startswith(watched)]
    # Time stands still within a call, so ids do not tell the order of its events.
    return sorted(found, key=lambda event: (event.at, event.action.endswith(".end")))


def keep(world: World, scope: str, kept: CommandLog | None) -> None:
    policies.replace(world.core, BOOT, scope, PolicyRules(command_log=kept))
    world.core.catalog.forget()


def run(world: World, tenant: Tenant, sandbox: str, **body: Any) -> Any:
    world.clock.advance(1)
    answer = world.call(
        "POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "echo forty-two", **body}, token=tenant.token
    )
    assert answer.status == 200, answer.raw
    return answer.json()


@pytest.fixture
def sandbox(world: World, acme: Tenant) -> str:
    return world.running(acme)


def test_a_command_is_written_down_before_and_after(world: World, acme: Tenant, sandbox: str) -> None:
    result = run(world, acme, sandbox)
    before, after = logged(world, acme)
    assert (before.action, before.target, before.project) == ("sandbox.exec", sandbox, acme.project)
    assert before.actor.startswith("key_")
    assert before.request_id
    assert len(str(before.details["hash"])) == 64
    assert after.action == "sandbox.exec.end"
    assert after.details["began"] == before.id
    assert after.details["exitCode"] == result["exitCode"]
    assert after.details["stdoutBytes"] == len(result["stdout"].encode())
    assert "forty" not in before.model_dump_json() + after.model_dump_json()


def test_the_hash_tells_equal_commands_and_nothing_else(world: World, acme: Tenant, sandbox: str) -> None:
    """A plain hash of a short command is found by trying; this one is keyed, for each organization anew."""
    import hashlib

    other = world.tenant("other")
    elsewhere = world.running(other)
    for command in ("ls", "ls", "pwd"):
        run(world, acme, sandbox, command=command)
    run(world, other, elsewhere, command="ls")
    hashes = [event.details["hash"] for event in logged(world, acme) if event.action == "sandbox.exec"]
    (foreign,) = [event.details["hash"] for event in logged(world, other) if event.action == "sandbox.exec"]
    assert hashes[0] == hashes[1] != hashes[2]
    assert foreign not in hashes
    assert hashlib.sha256(b"ls").hexdigest() not in hashes


@pytest.mark.parametrize(
    ("said", "effective"),
    [
        ((None, None, None), "hash"),
        ((CommandLog.NONE, None, None), "none"),
        ((CommandLog.NONE, CommandLog.HASH, None), "hash"),
        ((CommandLog.HASH, CommandLog.NONE, CommandLog.TEXT), "text"),
        ((CommandLog.TEXT, CommandLog.NONE, CommandLog.NONE), "text"),
        ((None, None, CommandLog.NONE), "none"),
    ],
)
def test_of_several_policies_the_one_that_keeps_most_counts(
    memory: World, said: tuple[CommandLog | None, ...], effective: str
) -> None:
    acme = memory.tenant("acme")
    sandbox = memory.running(acme)
    for scope, kept in zip(("global", acme.org, acme.project), said, strict=True):
        keep(memory, scope, kept)
    run(memory, acme, sandbox)
    details: dict[str, Any] = {key: value for event in logged(memory, acme) for key, value in event.details.items()}
    assert ("hash" in details, "text" in details) == (effective == "hash", effective == "text")


def test_text_is_kept_without_secrets_and_within_bounds(world: World, acme: Tenant) -> None:
    keep(world, "global", CommandLog.TEXT)
    rules = PolicyRules(command_log=CommandLog.TEXT, secrets_in_env=True)
    policies.replace(world.core, BOOT, "global", rules)
    world.core.catalog.forget()
    assert world.call("PUT", "/v1/secrets/token", {"value": SECRET}, token=acme.token).status in (200, 201)
    sandbox = world.running(acme, {"secrets": [{"secret": "token", "env": "TOKEN"}]})
    run(world, acme, sandbox, command=f"curl -H 'X: {SECRET}' x", stdin=f"stdin {SECRET}", env={"A": SECRET})
    run(world, acme, sandbox, command="x" * 10_000)
    begun = [event for event in logged(world, acme) if event.action == "sandbox.exec"]
    assert begun[0].details["text"] == f"curl -H 'X: {'*' * len(SECRET)}' x"
    assert (len(str(begun[1].details["text"])), begun[1].details["cut"]) == (4096, True)
    assert SECRET not in "".join(event.model_dump_json() for event in logged(world, acme))


def test_arguments_are_written_as_a_shell_would_read_them(memory: World) -> None:
    acme = memory.tenant("acme")
    sandbox = memory.running(acme)
    keep(memory, "global", CommandLog.TEXT)
    body = {"args": ["printf", "%s", "a b"]}
    assert memory.call("POST", f"/v1/sandboxes/{sandbox}/exec", body, token=acme.token).status == 200
    assert logged(memory, acme)[0].details["text"] == "printf %s 'a b'"


def test_a_streamed_command_ends_in_the_log_too(world: World, acme: Tenant, sandbox: str) -> None:
    answer = world.call(
        "POST", f"/v1/sandboxes/{sandbox}/exec?stream=true", {"command": "echo forty-two"}, token=acme.token
    )
    last = answer.lines()[-1]
    before, after = logged(world, acme)
    assert (before.action, after.action) == ("sandbox.exec", "sandbox.exec.end")
    assert (after.details["began"], after.details["exitCode"]) == (before.id, last["exitCode"])


def test_jobs_and_files_are_written_down(world: World, acme: Tenant, sandbox: str) -> None:
    keep(world, "global", CommandLog.TEXT)
    base = f"/v1/sandboxes/{sandbox}"
    assert world.call("POST", f"{base}/jobs", {"id": "build", "command": "make"}, token=acme.token).status < 300
    world.clock.advance(1)
    assert world.call("PUT", f"{base}/files/content?path=a", b"x", token=acme.token).status < 300
    world.clock.advance(1)
    assert world.call("GET", f"{base}/files/content?path=a", token=acme.token).status == 200
    world.clock.advance(1)
    assert world.call("DELETE", f"{base}/files/content?path=a", token=acme.token).status < 300
    events = logged(world, acme)
    found = [(event.action, event.details.get("text")) for event in events if not event.action.endswith(".end")]
    assert found == [
        ("sandbox.job", "make"), ("sandbox.file.write", "a"), ("sandbox.file.read", "a"), ("sandbox.file.delete", "a"),
    ]  # fmt: skip
    assert events[0].details["job"] == "build"


class NoLog:
    """A store that takes everything but events of commands."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.refusing = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def transact(self, actions: Any) -> Any:
        for action in actions:
            if isinstance(action, Put) and isinstance(action.record, Event) and action.record.action == self.refusing:
                raise StoreUnavailable("The log cannot be written.")
        return self._store.transact(actions)


@pytest.mark.parametrize(
    ("action", "method", "path", "body"),
    [
        ("sandbox.exec", "POST", "exec", {"command": "touch ran"}),
        ("sandbox.exec", "POST", "exec?stream=true", {"command": "touch ran"}),
        ("sandbox.job", "POST", "jobs", {"id": "j", "command": "touch ran"}),
        ("sandbox.file.write", "PUT", "files/content?path=ran", b"x"),
        ("sandbox.file.read", "GET", "files/content?path=there", None),
        ("sandbox.file.delete", "DELETE", "files/content?path=there", None),
    ],
)
def test_what_cannot_be_written_down_is_not_done(action: str, method: str, path: str, body: Any) -> None:
    """features.md: a store that is down means 503 and no action."""
    store = NoLog(MemoryStore())
    world = World(store)
    backend = world.pool()
    acme = world.tenant("acme")
    sandbox = world.running(acme)
    base = f"/v1/sandboxes/{sandbox}"
    world.call("PUT", f"{base}/files/content?path=there", b"x", token=acme.token)
    before = backend.calls.total()
    store.refusing = action
    answer = world.call(method, f"{base}/{path}", body, token=acme.token)
    assert answer.status == 503, answer.raw
    assert backend.calls.total() == before


def test_an_end_that_cannot_be_written_does_not_undo_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    store = NoLog(MemoryStore())
    world = World(store)
    world.pool()
    acme = world.tenant("acme")
    sandbox = world.running(acme)
    store.refusing = "sandbox.exec.end"
    assert run(world, acme, sandbox)["exitCode"] == 0
    assert "end not logged" in caplog.messages
