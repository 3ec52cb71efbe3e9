"""Pools: registered and probed, drained and removed; what a probe says, and what it must not say."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import FakeBackend, LoseAnswer, Refuse
from differently_core.contract import Capabilities, Operation
from differently_core.errors import DifferentlyError, InvalidState, NotFound, ProviderUnavailable
from differently_core.model.attempt import AttemptState
from differently_core.model.pool import PoolState, PoolView
from differently_core.model.quota import Scope
from differently_core.model.resources import Size
from differently_core.model.sandbox import Status
from differently_core.operations import pool_release, pools, worker
from differently_core.store.ports import StoreThrottled, StoreUnavailable
from tests.support.world import OPERATOR, World

DOWN = Refuse(ProviderUnavailable("Connection refused.", settled=True))


def view(world: World, pool: str = "pool") -> PoolView:
    found = world.memory.get(PoolView, PoolView.key_of(pool))
    assert found is not None
    return found


def test_a_registered_pool_has_a_counter_and_was_probed(world: World, backend: FakeBackend):
    counter = world.counter(Scope.POOL, "pool")

    assert (counter.free_sandboxes, counter.limit_sandboxes) == (10, 10)
    assert view(world).healthy
    assert "exec" in view(world).features


def test_a_name_is_taken_once(world: World, backend: FakeBackend):
    with pytest.raises(InvalidState, match="already"):
        world.add_pool("pool")


@pytest.mark.parametrize("operation", [Operation.HEALTH, Operation.CAPABILITIES, Operation.CAPACITY])
@pytest.mark.parametrize("fault", [DOWN, LoseAnswer(float("inf"))], ids=["refused", "hanging"])
def test_a_failed_probe_makes_a_pool_unhealthy_and_forgets_nothing(
    world: World, backend: FakeBackend, operation: Operation, fault: Refuse | LoseAnswer
):
    features = view(world).features
    backend.expect(operation, fault)
    pools.probe_all(world.core)

    found = view(world)
    assert not found.healthy
    assert found.message
    assert found.features == features, "a pool that is down can still do what it could"

    pools.probe_all(world.core)
    assert view(world).healthy


def test_a_pool_that_was_down_when_it_was_registered_is_waited_for(world: World):
    """What it can do is not known yet: asking for a capability is no reason to be refused for good."""
    backend = FakeBackend(world.clock)
    backend.up = False
    world.add_pool(backend=backend)
    assert not view(world).healthy

    sandbox = world.create(capabilities=["files"])
    assert world.status(sandbox) is Status.QUEUED

    backend.up = True
    pools.probe_all(world.core)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING


def test_one_pools_failure_keeps_no_other_from_being_looked_at(world: World, backend: FakeBackend):
    world.add_pool("zz-last")
    backend.up = False
    del world.pools._backends["zz-last"]
    world.pools._adapters.clear()
    world.add_pool("zz-other")
    world.clock.advance(60)

    pools.probe_all(world.core)

    assert [view(world, name).healthy for name in ("pool", "zz-last", "zz-other")] == [False, False, True]
    assert view(world, "zz-other").at == world.clock.now()


def test_a_bug_of_an_adapter_is_caught_in_a_probe(world: World, backend: FakeBackend):
    def broken(call: object) -> None:
        raise KeyError("no such attribute")

    backend.plan = broken
    pools.probe_all(world.core)

    assert not view(world).healthy


@pytest.mark.parametrize("error", [StoreThrottled("busy"), StoreUnavailable("no answer")])
def test_a_store_that_is_busy_is_no_pool_that_is_down(world: World, backend: FakeBackend, error: DifferentlyError):
    """The catalog cannot be read; the pool has nothing to do with it."""
    sandbox = world.create()

    def fails(*_: object, **__: object) -> None:
        raise error

    world.core.catalog._read_pools = fails  # type: ignore[assignment,method-assign]  # a read that fails
    with pytest.raises(type(error)):
        worker.step(world.core, sandbox)
    del world.core.catalog._read_pools

    assert view(world).healthy
    assert (world.sandbox(sandbox).failures, world.status(sandbox)) == (0, Status.PROVISIONING)


def test_a_probe_that_ends_late_brings_no_removed_pool_back(world: World, backend: FakeBackend):
    pool = world.core.catalog.pool("pool")
    pool_release.remove(world.core, OPERATOR, "pool")

    pools.probe(world.core, pool)

    assert world.rows(PoolView) == []


def test_what_a_pool_can_do_follows_its_probes(world: World, backend: FakeBackend):
    backend.capabilities = Capabilities(frozenset({"exec", "gpu"}), max_cpu_millis=2000, templates=("default",))
    pools.probe_all(world.core)

    sandbox = world.create(capabilities=["gpu"])
    world.deliver_all()

    assert world.status(sandbox) is Status.RUNNING
    assert (view(world).max_cpu_millis, view(world).templates) == (2000, ("default",))


def test_a_bounded_backend_says_what_is_free(world: World):
    room = Size(sandboxes=2, cpu_millis=1500, memory_mib=4096, disk_gib=100)
    world.add_pool(backend=FakeBackend(world.clock, room=room))
    world.create()
    world.deliver_all()
    pools.probe_all(world.core)
    assert (view(world).bounded, view(world).free_cpu_millis) == (True, 500)

    waiting = world.create()
    world.deliver_all()

    assert world.status(waiting) is Status.QUEUED
    assert [entry.reason for entry in world.sandbox(waiting).rejections] == ["no_node_with_room"]


def test_a_pool_is_removed_when_it_holds_nothing(world: World, backend: FakeBackend):
    sandbox = world.create()
    world.deliver_all()
    with pytest.raises(InvalidState, match="1 slots"):
        pool_release.remove(world.core, OPERATOR, "pool")

    world.delete(sandbox)
    world.deliver_all()
    pool_release.remove(world.core, OPERATOR, "pool")

    assert world.core.catalog.pools().pools == {}
    with pytest.raises(NotFound):
        pools.detail(world.core, "pool")


def test_a_pool_is_not_removed_while_a_debt_holds_its_slot(world: World, backend: FakeBackend):
    sandbox = world.create()
    world.deliver_all()
    backend.up = False
    world.delete(sandbox)
    world.deliver_all()
    assert world.status(sandbox) is Status.TERMINATING

    with pytest.raises(InvalidState):
        pool_release.remove(world.core, OPERATOR, "pool")
    assert world.attempts(sandbox)[0].status is AttemptState.LIVE


def test_to_drain_twice_is_to_drain_once(world: World, backend: FakeBackend):
    first = pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)
    again = pools.set_state(world.core, OPERATOR, "pool", PoolState.DRAINING)

    assert first.pool == again.pool
    assert world.counter(Scope.POOL, "pool").closed == "draining"
    pools.set_state(world.core, OPERATOR, "pool", PoolState.ACTIVE)
    assert world.counter(Scope.POOL, "pool").closed is None
