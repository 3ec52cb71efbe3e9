"""Deletes and cleanups: everything ends, however stuck a backend is, and nothing that is in use is removed."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest

from differently_adapters.providers.fake import (
    Fail,
    FakeBackend,
    Late,
    Linger,
    LoseAnswer,
    LoseCall,
    Refuse,
)
from differently_core.contract import Operation, Owner
from differently_core.errors import InsufficientCapacity, ProviderUnavailable
from differently_core.model.attempt import AttemptState
from differently_core.model.quota import Scope
from differently_core.model.sandbox import Status
from differently_core.operations import backends, cleanup, worker
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome, Refused
from tests.support.world import World

DOWN = Refuse(ProviderUnavailable("Connection refused.", settled=True))


def running(world: World, **request: object) -> SandboxId:
    sandbox = world.create(None, **request)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def tenant_and_pool(world: World) -> tuple[int, int]:
    return world.held(Scope.ORG, world.org.id), world.held(Scope.POOL, "pool")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (DOWN, "refused"),
        (LoseCall(inf), "never arrived"),
        (LoseAnswer(inf), "done, and not answered"),
        (Late(30.0), "done later"),
        (Linger(30.0), "accepted, and slow"),
        (Linger(30.0, conflict=True), "in transition"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_delete_is_repeated_until_the_backend_says_gone(world: World, backend: FakeBackend, fault: object, why: str):
    sandbox = running(world)
    backend.expect(Operation.DELETE, fault)  # type: ignore[arg-type]  # one of the faults above
    world.delete(sandbox)
    world.deliver_all()
    for _ in range(20):
        world.pass_time(5)

    assert (world.status(sandbox), backend.instances()) == (Status.TERMINATED, []), why
    assert tenant_and_pool(world) == (0, 0)


def test_a_stuck_delete_gives_the_tenant_its_quota_at_once_and_the_pool_its_slot_with_the_proof(
    world: World, backend: FakeBackend
):
    sandbox = running(world)
    backend.expect(Operation.DELETE, Linger(inf))
    world.delete(sandbox)
    world.deliver_all()
    assert (world.status(sandbox), *tenant_and_pool(world)) == (Status.TERMINATING, 0, 1)

    world.pass_time(3600)
    assert (world.status(sandbox), *tenant_and_pool(world)) == (Status.TERMINATING, 0, 1)

    backend.heal()
    world.pass_time(300)
    assert (world.status(sandbox), *tenant_and_pool(world)) == (Status.TERMINATED, 0, 0)


@pytest.mark.parametrize(
    ("tries", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (20, 300)]
)
def test_a_stuck_delete_is_tried_less_and_less_often(world: World, backend: FakeBackend, tries: int, seconds: int):
    """5 s x 2^n, five minutes at most: a backend that is down for a day is not drowned when it comes back."""
    sandbox = running(world)
    backend.up = False
    world.delete(sandbox)
    world.clock.advance(600)  # past every late instance, so that nothing but the retry is waited for
    world.lose_messages()
    for _ in range(tries):
        worker.step(world.core, sandbox)

    due = world.sandbox(sandbox).due_at
    assert due is not None
    assert (due - world.clock.now()).total_seconds() == seconds


def test_a_pool_whose_adapter_cannot_be_built_keeps_its_slot(world: World, backend: FakeBackend):
    sandbox = running(world)
    kept = world.pools._backends.pop("pool")
    world.pools._adapters.clear()
    world.delete(sandbox)
    world.deliver_all()
    assert (world.status(sandbox), *tenant_and_pool(world)) == (Status.TERMINATING, 0, 1)

    world.pools.lead("pool", kept)
    world.pass_time(5)
    assert (world.status(sandbox), *tenant_and_pool(world)) == (Status.TERMINATED, 0, 0)


@pytest.mark.parametrize("late", [1.0, 59.0])
def test_a_delete_while_the_create_is_under_way_waits_for_what_may_still_come(
    world: World, backend: FakeBackend, late: float
):
    backend.expect(Operation.CREATE, Late(late))
    sandbox = world.create()
    world.deliver_all()
    world.delete(sandbox)
    world.deliver_all()
    assert (world.status(sandbox), *tenant_and_pool(world)) == (Status.TERMINATING, 0, 1)

    for _ in range(12):
        world.pass_time(6)

    assert (world.status(sandbox), backend.instances()) == (Status.TERMINATED, [])
    assert tenant_and_pool(world) == (0, 0)


def test_a_delete_before_anything_was_called_ends_at_once(world: World, backend: FakeBackend):
    sandbox = world.create()
    world.delete(sandbox)
    world.deliver_all()

    assert (world.status(sandbox), backend.calls[Operation.CREATE]) == (Status.TERMINATED, 0)


def test_an_old_sandbox_ends_although_its_key_names_a_new_one(world: World, backend: FakeBackend):
    """The backend is stuck when the delete comes; the key is free at once, and used again."""
    old = world.create("k")
    world.deliver_all()
    backend.expect(Operation.DELETE, DOWN)
    world.delete(old)
    world.deliver_all()
    new = world.create("k")
    world.deliver_all()
    assert (world.status(old), world.status(new)) == (Status.TERMINATING, Status.RUNNING)

    world.pass_time(5)

    assert (world.status(old), world.status(new)) == (Status.TERMINATED, Status.RUNNING)
    assert world.created("k").replayed


# Debts.


def failed_and_moved(world: World, backend: FakeBackend, other: FakeBackend) -> SandboxId:
    """A sandbox that runs on `other`, with a debt on the pool of `backend`, whose instance cannot be removed."""
    backend.expect(Operation.CREATE, Fail(leaves=True))
    backend.expect(Operation.DELETE, *[DOWN] * 20)
    sandbox = world.create()
    world.deliver_all()
    world.pass_time(4)
    assert (world.status(sandbox), world.sandbox(sandbox).pool) == (Status.RUNNING, "other")
    return sandbox


def test_a_debt_keeps_its_pools_slot_until_it_is_settled(world: World, backend: FakeBackend):
    other = world.add_pool("other", cpu_hour=1.0)
    sandbox = failed_and_moved(world, backend, other)
    assert [attempt.status for attempt in world.attempts(sandbox)] == [AttemptState.DEBT, AttemptState.LIVE]
    assert (*tenant_and_pool(world), world.held(Scope.POOL, "other")) == (1, 1, 1)

    backend.heal()
    for _ in range(10):
        world.pass_time(60)

    assert [attempt.status for attempt in world.attempts(sandbox)] == [AttemptState.SETTLED, AttemptState.LIVE]
    assert (*tenant_and_pool(world), world.held(Scope.POOL, "other")) == (1, 0, 1)
    assert (backend.instances(), len(other.instances())) == ([], 1)


def test_a_debt_outlives_its_sandbox(world: World, backend: FakeBackend):
    other = world.add_pool("other", cpu_hour=1.0)
    sandbox = failed_and_moved(world, backend, other)
    world.delete(sandbox)
    world.deliver_all()
    assert (world.status(sandbox), *tenant_and_pool(world)) == (Status.TERMINATED, 0, 1)

    backend.heal()
    for _ in range(10):
        world.pass_time(60)

    assert (backend.instances(), *tenant_and_pool(world)) == ([], 0, 0)


def test_a_sandbox_does_not_go_back_to_a_pool_that_it_owes(world: World, backend: FakeBackend):
    """A cleanup there must never meet a new instance."""
    backend.expect(Operation.CREATE, Fail(leaves=True))
    backend.expect(Operation.DELETE, *[DOWN] * 3)
    sandbox = world.create()
    world.deliver_all()

    world.pass_time(4)
    world.pass_time(5)
    assert world.status(sandbox) is Status.QUEUED
    for _ in range(20):
        world.pass_time(10)

    assert (world.status(sandbox), len(backend.instances())) == (Status.RUNNING, 1)


def test_a_debt_is_settled_however_many_attempts_came_after_it(world: World, backend: FakeBackend):
    """An hour at a full backend makes hundreds of attempts; the first one is still found."""
    other = world.add_pool("other", cpu_hour=1.0)
    full = Refuse(InsufficientCapacity("Full."))
    backend.expect(Operation.CREATE, Fail(leaves=True))
    backend.expect(Operation.DELETE, *[DOWN] * 50)
    other.expect(Operation.CREATE, *[full] * 250)
    sandbox = world.create()
    world.deliver_all()
    world.clock.advance(2)
    for _ in range(260):
        world.pass_time(2)
    assert world.sandbox(sandbox).attempt > 250

    backend.heal()
    for _ in range(10):
        world.pass_time(60)

    assert [attempt.number for attempt in world.attempts(sandbox) if attempt.status is AttemptState.DEBT] == []
    assert (world.status(sandbox), backend.instances()) == (Status.RUNNING, [])


# Two pools that lead to one backend.


@pytest.fixture
def shared(world: World) -> FakeBackend:
    """`pool` and `other` lead to the same backend, which gives a sandbox the instance that it has already."""
    backend = world.add_pool(backend=FakeBackend(world.clock, settles_seconds=60.0))
    world.add_pool("other", backend, cpu_hour=1.0)
    return backend


def test_what_runs_through_one_pool_is_not_cleaned_up_through_the_other(world: World, shared: FakeBackend):
    """The answer was lost and could not be looked for, so the sandbox moved on, and was given the same instance."""
    shared.expect(Operation.CREATE, LoseAnswer())
    shared.expect(Operation.GET, DOWN)
    sandbox = world.create()
    world.deliver_all()
    world.pass_time(2)
    world.pass_time(4)
    assert (world.status(sandbox), world.sandbox(sandbox).pool) == (Status.RUNNING, "other")

    for _ in range(20):
        world.pass_time(10)

    assert world.status(sandbox) is Status.RUNNING
    assert [instance.ref for instance in shared.instances()] == [world.sandbox(sandbox).backend_ref]
    assert [attempt.status for attempt in world.attempts(sandbox)] == [AttemptState.SETTLED, AttemptState.LIVE]
    assert (world.held(Scope.POOL, "pool"), world.held(Scope.POOL, "other")) == (0, 1)


def test_two_backends_may_call_their_instances_the_same(world: World, backend: FakeBackend):
    """The one in use on the second backend is no reason to leave the first one's where it is, nor the other way."""
    other = world.add_pool("other", cpu_hour=1.0)
    sandbox = failed_and_moved(world, backend, other)
    (left,), (used,) = backend.instances(), other.instances()
    assert left.ref == used.ref == world.sandbox(sandbox).backend_ref

    backend.heal()
    for _ in range(10):
        world.pass_time(60)

    assert (backend.instances(), other.instances()) == ([], [used])


def test_a_pool_of_another_kind_is_another_backend(world: World, backend: FakeBackend):
    assert backends.share_a_backend(world.core, "pool", "pool")
    world.add_pool("twin", backend)
    world.add_pool("other")

    assert backends.share_a_backend(world.core, "pool", "twin")
    assert not backends.share_a_backend(world.core, "pool", "other")

    backend.name = ""
    assert backends.share_a_backend(world.core, "pool", "other"), "what cannot be told is taken to be so"
    del world.pools._backends["other"]
    world.pools._adapters.clear()
    assert backends.share_a_backend(world.core, "pool", "other"), "what cannot be asked, too"


def test_an_instance_that_is_being_removed_is_not_handed_out_again(world: World, shared: FakeBackend):
    """The first attempt's instance never became ready and is a debt; the second attempt is given the very same."""
    shared.pending_seconds = inf
    shared.expect(Operation.DELETE, *[DOWN] * 3)
    sandbox = world.create()
    world.deliver_all()
    for _ in range(92):
        world.pass_time(2)
    (doomed,) = shared.instances()
    doomed.runs_at = 0.0
    shared.pending_seconds = 0.0
    assert world.attempts(sandbox)[0].status is AttemptState.DEBT

    for _ in range(30):
        world.pass_time(5)

    assert world.status(sandbox) is Status.RUNNING
    assert world.sandbox(sandbox).backend_ref != doomed.ref
    assert [instance.ref for instance in shared.instances()] == [world.sandbox(sandbox).backend_ref]


def test_a_second_instance_behind_the_one_in_use_is_found_and_removed(world: World):
    """Found by owner, the one in use hides the other; so the backend is listed."""
    backend = world.add_pool(backend=FakeBackend(world.clock, idempotent_create=False))
    world.add_pool("other", backend, cpu_hour=1.0)
    backend.expect(Operation.CREATE, Late(50.0))
    backend.expect(Operation.GET, DOWN)
    sandbox = world.create()
    world.deliver_all()
    world.pass_time(2)
    world.pass_time(4)
    assert (world.status(sandbox), world.sandbox(sandbox).pool) == (Status.RUNNING, "other")
    used = world.sandbox(sandbox).backend_ref

    for _ in range(20):
        world.pass_time(10)

    assert [instance.ref for instance in backend.instances()] == [used]
    assert world.held(Scope.POOL, "pool") == 0


def test_a_cleanup_waits_while_an_attempt_is_being_made(world: World, shared: FakeBackend):
    """What is found by owner alone may be the one that is coming up."""
    shared.expect(Operation.CREATE, LoseCall())
    shared.expect(Operation.GET, DOWN)
    sandbox = world.create()
    world.deliver_all()
    world.pass_time(2)
    shared.pending_seconds = 100.0
    world.pass_time(4)
    assert world.status(sandbox) is Status.PROVISIONING

    cleanup.settle(world.core, sandbox, 1)

    assert len(shared.instances()) == 1
    assert world.attempts(sandbox)[0].status is AttemptState.DEBT


# What is not ours.


def test_another_installations_instance_is_left_alone(world: World, backend: FakeBackend):
    sandbox = running(world)
    theirs = backend.plant(Owner("inst_another", sandbox))
    world.delete(sandbox)
    world.deliver_all()

    assert backend.instances() == [theirs]
    assert world.status(sandbox) is Status.TERMINATED


def test_a_bug_of_the_adapter_ends_no_cleanup(world: World, backend: FakeBackend):
    def broken(call: object) -> None:
        raise KeyError("no such attribute")

    other = world.add_pool("other", cpu_hour=1.0)
    sandbox = failed_and_moved(world, backend, other)
    backend.heal()
    backend.plan = broken
    world.pass_time(60)
    assert world.attempts(sandbox)[0].status is AttemptState.DEBT

    backend.plan = None
    for _ in range(10):
        world.pass_time(60)
    assert world.attempts(sandbox)[0].status is AttemptState.SETTLED


class HeldUp:
    """A store whose next delete meets another's write of the sandbox: of that row nothing is told, of others all is."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self.armed = False

    def transact(self, actions: Sequence[Action]) -> Outcome:
        outcome = self._memory.transact(actions)
        if self.armed and isinstance(outcome, Refused) and "idempotency" in outcome.failed:
            self.armed = False
            failed = {name: row for name, row in outcome.failed.items() if name != "sandbox"}
            return Refused(failed, frozenset({"sandbox"}))
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


def test_a_delete_again_is_success_while_the_worker_writes_and_the_key_has_a_new_sandbox() -> None:
    """A recorded history (seed 1) had a 404 here: a refusal that told of the key alone was taken for a whole one."""
    held: list[HeldUp] = []
    world = World(wrap=lambda memory: held.append(HeldUp(memory)) or held[0])  # type: ignore[func-returns-value]
    world.add_pool()
    first = world.create("key")
    world.delete(first)
    assert world.create("key") != first
    held[0].armed = True
    world.delete(first)
    assert not held[0].armed
    assert world.status(first) in (Status.TERMINATING, Status.TERMINATED)
