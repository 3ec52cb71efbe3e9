"""What the world is told of changes: one type each, a reason on every end, and nothing that somebody wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import differently_core.operations
from differently_adapters.providers.fake import FakeBackend, Refuse
from differently_adapters.providers.fake.backend import FEATURES
from differently_core.contract import Capabilities, Operation, Unsupported
from differently_core.errors import InvalidRequest, ProviderUnavailable, SandboxFailed
from differently_core.model.event import Event
from differently_core.model.lifecycle import TYPES, Cause, Lifecycle, cause_of, published, type_of
from differently_core.model.sandbox import ENDED, MoveKind, Status
from differently_core.model.snapshot import Snapshot
from differently_core.model.tenancy import TenantState
from differently_core.operations import closing, forking, moves, pool_release, reconcile, snapshots
from differently_core.operations.core import Tuning
from differently_core.runtime.ids import SandboxId
from tests.support.builders import NOON, ORG, PROJECT, an_id
from tests.support.world import OPERATOR, World

HOUR = 3600
INSIDE = {"pool.force_release", "pool.recount", "quota.recount", "secret.put", "secret.delete", "project_secret.put",
          "project_secret.delete", "template.update", "template.delete", "profile.update", "profile.delete",
          "sandbox.release"}  # fmt: skip
"""Changes that are for auditors alone."""


def an_event(action: str, **facts: object) -> Event:
    given = {
        "id": "evt_01KDVDNA000000000000000001", "org": ORG, "project": PROJECT, "at": NOON, "actor": "key_1",
        "request_id": "req_1", "action": action, "target": an_id(),
    }  # fmt: skip
    return Event.model_validate({**given, **facts})


def told(world: World) -> list[Lifecycle]:
    """Everything that is published, in the order in which it was written."""
    events = sorted(world.rows(Event), key=lambda event: event.id)
    found = [published(event, world.core.catalog.installation().id) for event in events]
    return [entry for entry in found if entry is not None]


def running(world: World, **request: object) -> SandboxId:
    sandbox = world.create(**request)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


# Every way to end, with what a subscriber is told of it.


def by_a_user(world: World, backend: FakeBackend) -> SandboxId:
    sandbox = running(world)
    world.delete(sandbox)
    return sandbox


def by_a_user_while_it_waits(world: World, backend: FakeBackend) -> SandboxId:
    backend.plan = lambda call: Refuse(ProviderUnavailable("Down.", settled=True))
    sandbox = world.create()
    world.deliver_all()
    world.delete(sandbox)
    return sandbox


def with_its_tenant(world: World, backend: FakeBackend) -> SandboxId:
    sandbox = running(world)
    closing.close(world.core, OPERATOR, world.org.id, world.project.id, TenantState.DELETED)
    for _ in range(4):
        closing.step(world.core, world.project.id)
        world.pass_time(60)
    return sandbox


def at_its_time(world: World, backend: FakeBackend) -> SandboxId:
    sandbox = running(world, ttlSeconds=600)
    world.pass_time(600)
    return sandbox


def after_a_run_where_it_cannot_rest(world: World, backend: FakeBackend) -> SandboxId:
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    moving = (Operation.PAUSE, Operation.RESUME, Operation.CALL_OFF, Operation.STOP, Operation.START)
    adapter.operations = {**adapter.operations, **dict.fromkeys(moving, Unsupported("not_here"))}  # type: ignore[misc]
    sandbox = running(world, maxRunSeconds=600)
    world.pass_time(600)
    return sandbox


def after_a_long_rest(world: World, backend: FakeBackend) -> SandboxId:
    sandbox = running(world, ttlSeconds=86_400)
    moves.ask(world.core, world.caller, sandbox, MoveKind.STOP)
    world.deliver_all()
    world.pass_time(1000)
    return sandbox


def out_of_patience(world: World, backend: FakeBackend) -> SandboxId:
    backend.plan = lambda call: Refuse(ProviderUnavailable("Down.", settled=True))
    sandbox = world.create(queueTimeoutSeconds=100)
    for _ in range(6):
        world.pass_time(60)
    return sandbox


def never_ready(world: World, backend: FakeBackend) -> SandboxId:
    backend.expect(Operation.CREATE, *[Refuse(SandboxFailed("It never became ready.", settled=True))] * 3)
    sandbox = world.create()
    for _ in range(4):
        world.pass_time(20)
    return sandbox


def refused_by_its_backend(world: World, backend: FakeBackend) -> SandboxId:
    backend.expect(Operation.CREATE, Refuse(InvalidRequest("Not with this image.")))
    sandbox = world.create()
    world.deliver_all()
    return sandbox


def vanished(world: World, backend: FakeBackend) -> SandboxId:
    sandbox = running(world)
    backend.vanish(world.sandbox(sandbox).backend_ref or "")
    for _ in range(3):
        reconcile.reconcile_all(world.core)
        world.clock.advance(31)
    return sandbox


def with_its_lease(world: World, backend: FakeBackend) -> SandboxId:
    leased = FakeBackend(world.clock, capabilities=Capabilities(features=FEATURES, lease_seconds=600))
    world.add_pool("leased", leased)
    sandbox = running(world, ttlSeconds=HOUR, placement={"allowedPools": ["leased"]})
    leased.plan = lambda call: Refuse() if call.operation is Operation.RENEW else None
    for _ in range(11):
        world.pass_time(60)
    return sandbox


def with_its_pool(world: World, backend: FakeBackend) -> SandboxId:
    sandbox = running(world)
    pool_release.remove(world.core, OPERATOR, "pool", force=True)
    return sandbox


def without_what_it_is_made_from(world: World, backend: FakeBackend) -> SandboxId:
    child = forking.fork(world.core, world.caller, running(world), forking.ForkSandbox(), None).sandbox
    (snapshot,) = [row.id for row in world.rows(Snapshot)]
    snapshots.delete(world.core, world.caller, snapshot)
    world.deliver_all()
    world.pass_time(60)
    return child


ENDS: dict[Callable[[World, FakeBackend], SandboxId], tuple[str, str, Cause]] = {
    by_a_user: ("terminated", "deleted", Cause.USER),
    by_a_user_while_it_waits: ("terminated", "deleted", Cause.USER),
    with_its_tenant: ("terminated", "deleted", Cause.USER),
    at_its_time: ("terminated", "ttl_expired", Cause.TTL),
    after_a_run_where_it_cannot_rest: ("terminated", "max_run_reached", Cause.TTL),
    after_a_long_rest: ("terminated", "retention_expired", Cause.POLICY),
    out_of_patience: ("failed", "queue_timeout", Cause.CAPACITY),
    never_ready: ("failed", "sandbox_failed", Cause.BACKEND),
    refused_by_its_backend: ("failed", "invalid_request", Cause.BACKEND),
    vanished: ("failed", "instance_lost", Cause.BACKEND),
    with_its_lease: ("failed", "lease_lost", Cause.LEASE),
    with_its_pool: ("failed", "pool_removed", Cause.POLICY),
    without_what_it_is_made_from: ("failed", "snapshot_failed", Cause.BACKEND),
}


@pytest.mark.parametrize("way", ENDS, ids=lambda way: way.__name__)
def test_every_end_tells_its_reason_once(way: Callable[[World, FakeBackend], SandboxId]) -> None:
    """Issue 7, part 5: reason on every end (user, ttl, idle, budget, policy, backend, lease, error)."""
    world = World(tuning=Tuning(retention_seconds=1000))
    backend = world.add_pool()

    sandbox = way(world, backend)
    world.deliver_all()

    assert world.status(sandbox) in ENDED
    (end,) = [entry for entry in told(world) if entry.type == "sandbox.ended" and entry.subject == sandbox]
    assert end.data.reason is not None
    assert (end.data.after, end.data.reason.code, end.data.reason.cause) == ENDS[way]


def test_no_code_that_the_operations_write_is_an_error_by_omission() -> None:
    """Every reason's code and source as they stand in the code leads to a cause other than `error`, except ours."""
    source = "\n".join(path.read_text() for path in Path(differently_core.operations.__path__[0]).glob("*.py"))
    written = set(re.findall(r'code="(\w+)",\s+source="(\w+)"', source))
    assert {code for code, _ in written} >= {"deleted", "ttl_expired", "lease_lost", "instance_lost", "queue_timeout"}
    errors = {(code, said) for code, said in written if cause_of(code, said) is Cause.ERROR}
    assert errors == {("cleanup_pending", "worker"), ("not_reachable", "worker")}, "give it a row in CAUSES"


# What is told, and under which type.


def test_every_change_that_is_written_is_told_or_left_inside_on_purpose() -> None:
    source = "\n".join(path.read_text() for path in Path(differently_core.operations.__path__[0]).glob("*.py"))
    actions = set(re.findall(r'event(?:_of)?\(\s*(?:core, )?\w+,\s+"([a-z_]+\.[a-z_]+)"', source))
    assert "sandbox.create" in actions
    silent = {action for action in actions if type_of(an_event(action, before="running", after="terminating")) is None}
    assert silent <= INSIDE


@pytest.mark.parametrize("status", Status)
def test_a_sandbox_that_reaches_a_state_is_told_by_it(status: Status) -> None:
    kind = type_of(an_event("sandbox.whatever", before="elsewhere", after=status.value))
    assert kind == ("sandbox.ended" if status in ENDED else f"sandbox.{status.value}")
    assert kind in TYPES


def test_a_step_that_leaves_it_where_it_was_is_not_told() -> None:
    assert type_of(an_event("sandbox.release", before="terminating", after="terminating")) is None
    assert type_of(an_event("sandbox.resume")) is None, "wanted back while it pauses: the state tells"


def test_one_life_is_told_in_order(world: World, backend: FakeBackend) -> None:
    def later() -> None:
        """Ids sort by the millisecond."""
        world.clock.advance(1)
        world.deliver_all()
        world.clock.advance(1)

    sandbox = world.create()
    later()
    for kind in (MoveKind.PAUSE, MoveKind.RESUME):
        moves.ask(world.core, world.caller, sandbox, kind)
        later()
    world.delete(sandbox)
    later()

    life = [entry.type.removeprefix("sandbox.") for entry in told(world) if entry.subject == sandbox]
    assert life == [
        "created", "running", "pausing", "paused", "resuming", "running", "terminating", "ended",
    ]  # fmt: skip


def test_what_somebody_wrote_is_not_told(world: World, backend: FakeBackend) -> None:
    """Labels, commands, environments and an operator's words stay inside; so does what no type documents."""
    canary = "CANARY"
    sandbox = running(world, labels={"team": canary}, env={"TOKEN": canary})
    world.delete(sandbox)
    world.deliver_all()
    row = an_event("project.suspended", before="active", after="suspended", details={"reason": canary})
    shown = published(row, "inst_1")
    assert shown is not None
    assert (shown.type, shown.data.reason) == ("project.changed", None)
    assert canary not in "".join([shown.text(), *(entry.text() for entry in told(world))])
    assert published(an_event("secret.put", target=canary), "inst_1") is None


def test_facts_are_those_that_the_type_documents() -> None:
    row = an_event("key.rotate", details={"successor": "key_2", "graceSeconds": 60, "other": "x", "reason": None})
    shown = published(row, "inst_1")
    assert shown is not None
    assert shown.data.facts == {"successor": "key_2", "graceSeconds": 60}


def test_it_is_a_cloudevent() -> None:
    shown = published(an_event("sandbox.create", after="queued"), "inst_1")
    assert shown is not None
    envelope = json.loads(shown.text())
    assert {"specversion", "id", "source", "type"} <= set(envelope), "what the specification requires"
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in envelope), "its rule for names of attributes"
    assert envelope["time"] == "2026-01-01T12:00:00Z"
    assert shown.time - NOON == timedelta(0)
