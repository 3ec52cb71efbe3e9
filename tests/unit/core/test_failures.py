"""What each class of failure does to the attempt, the sandbox and the pool.

The numbers are those of the adapter specification: a full backend is asked again after 2 s and costs nothing; every
other failure waits 2 s x 2^n and the third one is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from differently_adapters.providers.fake import (
    Fail,
    FakeBackend,
    Fault,
    LoseAnswer,
    LoseCall,
    Pending,
    Refuse,
)
from differently_core.contract import InstanceState, Operation
from differently_core.errors import (
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model.attempt import AttemptState
from differently_core.model.pool import PoolView
from differently_core.model.quota import Scope
from differently_core.model.sandbox import Status
from differently_core.operations import pools
from differently_core.runtime.ids import SandboxId
from tests.support.world import World

FULL = InsufficientCapacity("The backend is full.")
FAILED = SandboxFailed("It never became ready.", settled=True)
DOWN = ProviderUnavailable("Connection refused.", settled=True)


def healthy(world: World, pool: str = "pool") -> bool:
    view = world.memory.get(PoolView, PoolView.key_of(pool))
    assert view is not None
    return view.healthy


def reason(world: World, sandbox: SandboxId) -> str | None:
    found = world.sandbox(sandbox).reason
    return found.code if found is not None else None


def stepped(world: World, backend: FakeBackend, *faults: Fault, **request: Any) -> SandboxId:
    """A sandbox whose first creates met these faults."""
    backend.expect(Operation.CREATE, *faults)
    sandbox = world.create(**request)
    world.deliver_all()
    return sandbox


def waits_seconds(world: World, sandbox: SandboxId) -> float:
    found = world.sandbox(sandbox)
    assert found.not_before is not None
    return (found.not_before - world.clock.now()).total_seconds()


@dataclass(frozen=True)
class Case:
    error: DifferentlyError
    status: Status
    failures: int
    waits: float | None
    pool_healthy: bool
    why: str


CASES = (
    Case(FULL, Status.QUEUED, 0, 2.0, True, "full is nobody's fault: not counted, and soon again"),
    Case(FAILED, Status.QUEUED, 1, 4.0, True, "one tenant's failing image says nothing about the pool"),
    Case(DOWN, Status.QUEUED, 1, 4.0, False, "nobody else is sent there before a probe succeeds"),
    Case(InvalidState("The name is being freed."), Status.QUEUED, 1, 4.0, True, "a wrong moment, not a wrong request"),
    Case(InvalidRequest("No such image."), Status.FAILED, 0, None, True, "it can never start"),
    Case(UnsupportedOperation("Cannot."), Status.FAILED, 0, None, True, "the pool can never do it"),
    Case(NotFound("No such template."), Status.FAILED, 0, None, True, "what it needs does not exist"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.error.code)
def test_a_refused_create(world: World, backend: FakeBackend, case: Case):
    sandbox = stepped(world, backend, Refuse(case.error))

    found = world.sandbox(sandbox)
    assert (found.status, found.failures) == (case.status, case.failures), case.why
    assert reason(world, sandbox) == case.error.code
    assert case.waits is None or waits_seconds(world, sandbox) == case.waits
    assert healthy(world) is case.pool_healthy, case.why


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.error.code)
def test_a_refused_create_gives_back_what_was_taken(world: World, backend: FakeBackend, case: Case):
    stepped(world, backend, Refuse(case.error))

    scopes = ((Scope.ORG, world.org.id), (Scope.PROJECT, world.project.id), (Scope.POOL, "pool"))
    assert [world.held(scope, name) for scope, name in scopes] == [0, 0, 0]


def test_a_full_backend_is_asked_again_after_two_seconds_as_often_as_it_takes(world: World, backend: FakeBackend):
    sandbox = stepped(world, backend, *[Refuse(FULL)] * 20)

    for _ in range(19):
        world.pass_time(1.9)
        assert waits_seconds(world, sandbox) == pytest.approx(0.1)
        world.pass_time(0.1)
        assert world.status(sandbox) is Status.QUEUED
    world.pass_time(2)

    assert world.status(sandbox) is Status.RUNNING
    assert (world.sandbox(sandbox).attempt, world.sandbox(sandbox).failures) == (21, 0)


def test_what_fails_is_tried_three_times_with_growing_pauses(world: World, backend: FakeBackend):
    sandbox = stepped(world, backend, *[Refuse(FAILED)] * 3)

    assert waits_seconds(world, sandbox) == 4.0
    world.pass_time(4)
    assert (world.status(sandbox), waits_seconds(world, sandbox)) == (Status.QUEUED, 8.0)
    world.pass_time(8)

    found = world.sandbox(sandbox)
    assert (found.status, reason(world, sandbox)) == (Status.FAILED, "sandbox_failed")
    assert found.reason is not None
    assert found.reason.detail == "3 attempts failed; the last: It never became ready."
    assert backend.instances() == []


def test_a_pool_that_is_down_gets_nothing_until_a_probe_succeeds(world: World, backend: FakeBackend):
    sandbox = stepped(world, backend, Refuse(DOWN))
    later = world.create()
    world.pass_time(60)
    assert world.status(sandbox) is world.status(later) is Status.QUEUED

    pools.probe_all(world.core)
    world.deliver_all()

    assert world.status(sandbox) is world.status(later) is Status.RUNNING


def test_a_failure_moves_the_sandbox_to_a_pool_that_works(world: World, backend: FakeBackend):
    other = world.add_pool("dear", cpu_hour=1.0)
    backend.up = False
    sandbox = stepped(world, backend)
    assert (world.status(sandbox), reason(world, sandbox)) == (Status.QUEUED, "provider_unavailable")

    world.pass_time(4)

    assert (world.status(sandbox), world.sandbox(sandbox).pool) == (Status.RUNNING, "dear")
    assert len(other.instances()) == 1


def test_one_pools_failure_touches_no_other_pool(world: World, backend: FakeBackend):
    world.add_pool("other")
    backend.up = False
    elsewhere = world.create(placement={"allowedPools": ["other"]})
    here = world.create(placement={"allowedPools": ["pool"]})
    world.deliver_all()

    assert world.status(elsewhere) is Status.RUNNING
    assert world.status(here) is Status.QUEUED
    assert (healthy(world), healthy(world, "other")) == (False, True)


def test_a_hanging_pool_delays_nobody_elsewhere(world: World, backend: FakeBackend):
    """A create that hangs takes its own minute; the next message is served with no memory of it."""
    world.add_pool("other")
    backend.expect(Operation.CREATE, LoseAnswer(float("inf")))
    world.create(placement={"allowedPools": ["pool"]})
    elsewhere = world.create(placement={"allowedPools": ["other"]})
    world.deliver_all()

    assert world.status(elsewhere) is Status.RUNNING
    assert healthy(world, "other")


def test_a_pool_whose_adapter_cannot_be_built_is_a_pool_that_is_down(world: World, backend: FakeBackend):
    del world.pools._backends["pool"]
    world.pools._adapters.clear()
    sandbox = world.create()
    world.deliver_all()

    assert (world.status(sandbox), reason(world, sandbox)) == (Status.QUEUED, "provider_unavailable")
    assert not healthy(world)
    assert world.attempts(sandbox) == [], "nothing was called"


def test_a_bug_of_the_adapter_counts_and_leaves_the_pool_healthy(world: World, backend: FakeBackend):
    def broken(call: object) -> Fault | None:
        raise KeyError("no such attribute")

    backend.plan = broken
    sandbox = world.create()
    world.deliver_all()

    found = world.sandbox(sandbox)
    assert found.status is Status.PROVISIONING, "its outcome is unknown, so it is looked at again"
    world.pass_time(2)
    assert (world.sandbox(sandbox).failures, reason(world, sandbox)) == (1, "internal")
    assert healthy(world)


# An instance that fails to become ready.


def test_a_failed_instance_is_removed_before_the_pool_is_used_again(world: World, backend: FakeBackend):
    backend.expect(Operation.CREATE, Fail(leaves=True))
    backend.expect(Operation.DELETE, Refuse(DOWN))
    sandbox = world.create()
    world.deliver_all()

    (attempt,) = world.attempts(sandbox)
    assert (attempt.status, attempt.holds_slot) == (AttemptState.DEBT, True)
    assert (world.held(Scope.ORG, world.org.id), world.held(Scope.POOL, "pool")) == (0, 1)

    for _ in range(12):
        world.pass_time(10)

    assert [one.status for one in world.attempts(sandbox)] == [AttemptState.SETTLED, AttemptState.LIVE]
    assert (world.status(sandbox), len(backend.instances())) == (Status.RUNNING, 1)


@pytest.mark.parametrize(
    ("pending", "status"),
    [(0.0, Status.RUNNING), (170.0, Status.RUNNING), (float("inf"), Status.QUEUED)],
    ids=["at once", "just in time", "never"],
)
def test_an_instance_has_three_minutes_to_become_ready(
    world: World, backend: FakeBackend, pending: float, status: Status
):
    sandbox = stepped(world, backend, Pending(pending))
    for _ in range(91):
        world.pass_time(2)

    assert world.status(sandbox) is status
    if status is Status.QUEUED:
        assert reason(world, sandbox) == "sandbox_failed"


def test_an_instance_in_error_is_given_up_at_once(world: World, backend: FakeBackend):
    sandbox = stepped(world, backend, Pending(10))
    (instance,) = backend.instances()
    instance.state = InstanceState.ERROR
    world.pass_time(2)

    assert (world.status(sandbox), reason(world, sandbox)) == (Status.QUEUED, "sandbox_failed")
    assert backend.instances() == []


def test_an_instance_that_runs_no_command_is_not_handed_out(world: World, backend: FakeBackend):
    backend.expect(Operation.EXEC, LoseCall(), LoseAnswer())
    sandbox = world.create()
    world.deliver_all()
    assert world.status(sandbox) is Status.PROVISIONING

    world.pass_time(2)
    assert world.status(sandbox) is Status.PROVISIONING
    world.pass_time(2)
    assert world.status(sandbox) is Status.RUNNING


# How long it waits in all.


def test_patience_bounds_the_retries_of_a_full_backend(world: World, backend: FakeBackend):
    sandbox = stepped(world, backend, *[Refuse(FULL)] * 1000, queueTimeoutSeconds=100)

    for _ in range(60):
        world.pass_time(2)

    assert (world.status(sandbox), reason(world, sandbox)) == (Status.FAILED, "queue_timeout")
    found = world.sandbox(sandbox).reason
    assert found is not None
    assert found.detail == "insufficient_capacity: The backend is full."


def test_one_who_did_not_want_to_wait_gets_one_look_when_the_backend_is_full(world: World, backend: FakeBackend):
    """It was admitted, so the promise of an immediate answer is kept; then its retry is bounded by a minute."""
    sandbox = stepped(world, backend, *[Refuse(FULL)] * 1000, queueTimeoutSeconds=0)

    deadline = world.sandbox(sandbox).queue_deadline
    assert deadline is not None
    assert (deadline - world.clock.now()).total_seconds() == 62.0


def test_a_failure_that_counts_is_worth_another_try_even_after_the_patience(world: World, backend: FakeBackend):
    """It waited its 5 s, was admitted, and failed after that: the retry still happens."""
    first = world.add_pool("only", FakeBackend(world.clock, pending_seconds=20), concurrency=1)
    first.expect(Operation.CREATE, Fail(leaves=False))
    sandbox = world.create(placement={"allowedPools": ["only"]}, queueTimeoutSeconds=5)
    for _ in range(4):
        world.pass_time(10)

    assert world.status(sandbox) is Status.RUNNING
