"""The plain life of a sandbox: made, admitted or queued, run, changed, ended; and what each step leaves behind."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend
from differently_core.contract import LABEL_INSTALLATION, LABEL_SANDBOX
from differently_core.errors import (
    IdempotencyConflict,
    InvalidState,
    LimitExceeded,
    NoEligiblePool,
    NotFound,
    UnsupportedCapability,
)
from differently_core.model.attempt import AttemptState
from differently_core.model.event import Event
from differently_core.model.exec import ExecRequest
from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.pool import Trust
from differently_core.model.quota import Limits, Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import SandboxEnv, Status
from differently_core.operations import execution, sandboxes
from differently_core.operations.create import create
from differently_core.operations.requests import CreateSandbox, UpdateSandbox
from differently_core.runtime.ids import SandboxId
from tests.support.world import OPERATOR, World


def running(world: World, key: str | None = None, **request: Any) -> SandboxId:
    sandbox = world.create(key, **request)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def actions(world: World, sandbox: str) -> list[str]:
    """What the log tells of it, in the order of writing (ids order only milliseconds)."""
    return [event.action for event in world.rows(Event) if event.target == sandbox]


def test_with_room_a_create_is_admitted_at_once_and_one_step_later_it_runs(world: World, backend: FakeBackend):
    sandbox = world.create()
    assert world.status(sandbox) is Status.PROVISIONING
    assert world.held(Scope.ORG, world.org.id) == world.held(Scope.POOL, "pool") == 1

    world.deliver_all()

    found = world.sandbox(sandbox)
    (instance,) = backend.instances()
    assert (found.status, found.pool, found.backend_ref) == (Status.RUNNING, "pool", instance.ref)
    assert [attempt.status for attempt in world.attempts(sandbox)] == [AttemptState.LIVE]
    assert actions(world, sandbox) == ["sandbox.create", "sandbox.running"]


def test_an_instance_is_stamped_with_installation_and_sandbox(world: World, backend: FakeBackend):
    sandbox = running(world, labels={"team": "red"}, env={"TOKEN": "s3cret"})

    (instance,) = backend.instances()
    assert instance.labels == {
        "team": "red",
        LABEL_SANDBOX: sandbox,
        LABEL_INSTALLATION: world.core.catalog.installation().id,
    }
    assert instance.env == {"TOKEN": "s3cret"}


def test_running_means_four_facts_with_evidence(world: World, backend: FakeBackend):
    conditions = world.sandbox(running(world)).conditions

    assert conditions.seen is not None
    assert conditions.reachable is not None
    assert conditions.reachable.evidence == "exec `true` exited 0"
    assert conditions.prepared is not None
    assert conditions.admitted is not None
    assert conditions.admitted.evidence == "attempt 1, generation 1"


def test_a_delete_gives_everything_back(world: World, backend: FakeBackend):
    sandbox = running(world, key="k", env={"A": "1"})

    world.delete(sandbox)
    assert world.status(sandbox) is Status.TERMINATING
    world.deliver_all()

    assert world.status(sandbox) is Status.TERMINATED
    assert backend.instances() == []
    scopes = ((Scope.ORG, world.org.id), (Scope.PROJECT, world.project.id), (Scope.POOL, "pool"))
    assert [world.held(scope, name) for scope, name in scopes] == [0, 0, 0]
    assert world.rows(IdempotencyRow) == []
    assert world.rows(SandboxEnv) == []
    assert actions(world, sandbox)[-2:] == ["sandbox.delete", "sandbox.terminated"]


def test_a_delete_is_accepted_again(world: World, backend: FakeBackend):
    sandbox = running(world)

    first = sandboxes.delete(world.core, world.caller, sandbox)
    world.clock.advance(5)
    again = sandboxes.delete(world.core, world.caller, sandbox)
    world.deliver_all()
    after = sandboxes.delete(world.core, OPERATOR, sandbox)

    assert (first.status, again.status, after.status) == (
        Status.TERMINATING, Status.TERMINATING, Status.TERMINATED,
    )  # fmt: skip
    assert first.requested_at == again.requested_at == after.requested_at


def test_another_tenants_sandbox_is_not_found(world: World, backend: FakeBackend):
    sandbox = running(world)
    stranger = world.tenant(*world.add_tenant())

    for call in (sandboxes.find, sandboxes.delete):
        with pytest.raises(NotFound):
            call(world.core, stranger, sandbox)
    with pytest.raises(NotFound):
        execution.run(world.core, stranger, sandbox, ExecRequest(command="true"))
    assert world.status(sandbox) is Status.RUNNING


@pytest.mark.parametrize(
    ("seconds", "status", "why"),
    [
        (59.9, Status.RUNNING, "never before its time"),
        (60.0, Status.TERMINATED, "at its time, with the next sweep"),
        (10_000.0, Status.TERMINATED, "a sweep that comes late finds it too"),
    ],
)
def test_a_time_to_live_ends_it(world: World, backend: FakeBackend, seconds: float, status: Status, why: str):
    sandbox = running(world, ttlSeconds=60)

    world.pass_time(seconds)

    assert world.status(sandbox) is status, why


def test_the_time_to_live_counts_from_running(world: World):
    backend = FakeBackend(world.clock, pending_seconds=30)
    world.add_pool(backend=backend)
    sandbox = world.create(ttlSeconds=60)
    world.deliver_all()

    world.pass_time(31)

    assert world.sandbox(sandbox).expires_at == world.clock.now() + timedelta(seconds=60)


def test_an_extension_wins_over_an_expiry_that_was_decided_before(world: World, backend: FakeBackend):
    """The sweep has found it due; the message about it arrives after the extension."""
    sandbox = running(world, ttlSeconds=60)
    world.clock.advance(60)
    sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(ttl_seconds=600))

    world.core.nudges.worker(sandbox)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING

    world.pass_time(599)
    assert world.status(sandbox) is Status.RUNNING
    world.pass_time(1)
    assert world.status(sandbox) is Status.TERMINATED


def test_a_shorter_lifetime_counts_from_now(world: World, backend: FakeBackend):
    sandbox = running(world, ttlSeconds=3600)
    sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(ttl_seconds=10))

    world.pass_time(10)

    assert world.status(sandbox) is Status.TERMINATED
    reason = world.sandbox(sandbox).reason
    assert reason is not None
    assert (reason.code, reason.source) == ("ttl_expired", "timer")


def test_labels_and_lifetime_that_are_changed_while_it_starts_are_kept(world: World, backend: FakeBackend):
    sandbox = world.create(ttlSeconds=60)
    sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(ttl_seconds=600, labels={"team": "red"}))

    world.deliver_all()

    found = world.sandbox(sandbox)
    assert (found.status, found.labels) == (Status.RUNNING, {"team": "red"})
    assert found.expires_at == world.clock.now() + timedelta(seconds=600)


@pytest.mark.parametrize("status", [Status.TERMINATING, Status.TERMINATED])
def test_what_is_gone_cannot_be_changed(world: World, backend: FakeBackend, status: Status):
    sandbox = running(world)
    world.delete(sandbox)
    if status is Status.TERMINATED:
        world.deliver_all()

    with pytest.raises(InvalidState):
        sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(labels={}))


# Idempotency.


def test_a_key_and_the_same_body_are_answered_with_the_first_sandbox(world: World, backend: FakeBackend):
    first = world.created("k", ttlSeconds=60)
    world.deliver_all()
    world.clock.advance(3000)

    again = world.created("k", ttlSeconds=60)

    assert (again.sandbox, again.body, again.replayed) == (first.sandbox, first.body, True)
    assert json.loads(again.body)["status"] == "provisioning", "the answer is the first one, word for word"
    assert len(backend.instances()) == 1


def test_a_key_with_another_body_is_a_conflict_without_effect(world: World, backend: FakeBackend):
    first = world.create("k")
    before = dict(world.memory.rows())

    with pytest.raises(IdempotencyConflict) as refused:
        world.create("k", ttlSeconds=60)

    assert refused.value.details == {"sandboxId": first}
    assert dict(world.memory.rows()) == before


def test_a_key_is_free_again_as_soon_as_its_sandbox_is_deleted(world: World, backend: FakeBackend):
    first = running(world, key="k")
    world.delete(first)

    second = world.created("k", ttlSeconds=60)
    world.deliver_all()

    assert not second.replayed
    assert (world.status(first), world.status(second.sandbox)) == (Status.TERMINATED, Status.RUNNING)
    assert [row.sandbox for row in world.rows(IdempotencyRow)] == [second.sandbox]


def test_a_key_is_a_projects_own(world: World, backend: FakeBackend):
    first = world.create("k")
    other = world.tenant(*world.add_tenant())

    second = create(world.core, other, CreateSandbox(), "k")

    assert not second.replayed
    assert second.sandbox != first


def test_a_key_names_its_sandbox_even_when_nothing_new_could_be_made(world: World, backend: FakeBackend):
    """Full by now, and the caller does not want to wait: the retry of a create that succeeded succeeds."""
    org, project = world.add_tenant(project=Limits(total=Size.unlimited().model_copy(update={"sandboxes": 1})))
    caller = world.tenant(org, project)
    request = CreateSandbox(queue_timeout_seconds=0)
    first = create(world.core, caller, request, "k")

    again = create(world.core, caller, request, "k")

    assert (again.sandbox, again.replayed) == (first.sandbox, True)


# What is refused at once.


@pytest.mark.parametrize(
    ("request_body", "resource"),
    [
        ({"resources": {"cpu": 65}}, "cpuMillis"),
        ({"resources": {"memoryMiB": 262_145}}, "memoryMiB"),
        ({"resources": {"diskGiB": 2049}}, "diskGiB"),
        ({"ttlSeconds": 7 * 24 * 3600 + 1}, "ttlSeconds"),
    ],
)
def test_larger_than_a_limit_for_one_sandbox(
    world: World, backend: FakeBackend, request_body: dict[str, Any], resource: str
):
    with pytest.raises(LimitExceeded) as refused:
        world.create(**request_body)

    assert refused.value.details["resource"] == resource


def test_no_pool_is_no_place(world: World):
    with pytest.raises(NoEligiblePool, match="0/0 pools"):
        world.create()


def test_a_capability_that_no_pool_has_is_named(world: World, backend: FakeBackend):
    with pytest.raises(UnsupportedCapability, match="gpu"):
        world.create(capabilities=["gpu"])


def test_a_pool_that_policy_refuses_is_counted_and_not_named(world: World):
    world.add_pool("vendor", trust=Trust.EXTERNAL)

    with pytest.raises(NoEligiblePool) as refused:
        world.create()

    assert "vendor" not in f"{refused.value.message} {refused.value.details}"
    assert "1 external_not_allowed" in refused.value.message


def test_an_external_pool_that_policy_names_is_used(world: World):
    world.add_pool("vendor", trust=Trust.EXTERNAL)
    world.allow_external("vendor")

    assert world.sandbox(running(world)).pool == "vendor"


def test_a_wrong_pool_is_not_tried_for_one_who_named_others(world: World, backend: FakeBackend):
    with pytest.raises(NoEligiblePool):
        world.create(placement={"allowedPools": ["other"]})


# Commands.


def test_a_command_runs_in_what_runs(world: World, backend: FakeBackend):
    sandbox = running(world)

    result = execution.run(world.core, world.caller, sandbox, ExecRequest(command="echo hi"))

    assert (result.exit_code, result.stdout) == (0, b"echo hi\n")


@pytest.mark.parametrize("when", ["before it runs", "after its delete", "after its end"])
def test_a_command_is_refused_where_nothing_runs(world: World, backend: FakeBackend, when: str):
    sandbox = world.create()
    if when != "before it runs":
        world.deliver_all()
        world.delete(sandbox)
    if when == "after its end":
        world.deliver_all()

    with pytest.raises(InvalidState):
        execution.run(world.core, world.caller, sandbox, ExecRequest(command="true"))


def test_use_leaves_a_trace_at_most_every_thirty_seconds(world: World, backend: FakeBackend):
    sandbox = running(world)
    versions = []
    for _ in range(4):
        execution.run(world.core, world.caller, sandbox, ExecRequest(command="true"))
        versions.append(world.sandbox(sandbox).version)
        world.clock.advance(20)

    assert versions == [versions[0], versions[0], versions[0] + 1, versions[0] + 1]
