"""Times: the backend's own end, leases, lifetimes that a pool cannot give, limits of running and of resting."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeBackend, LoseAnswer, Refuse
from differently_adapters.providers.fake.backend import FEATURES
from differently_core.contract import Capabilities, InstanceState, Operation, Unsupported
from differently_core.errors import InvalidState, LimitExceeded, NoEligiblePool, ProviderUnavailable
from differently_core.model.exec import ExecRequest
from differently_core.model.policy import GLOBAL, Policy, PolicyRules
from differently_core.model.quota import Scope
from differently_core.model.sandbox import MoveKind, Sandbox, Status
from differently_core.operations import execution, moves, pools, reconcile, sandboxes
from differently_core.operations.core import Tuning
from differently_core.operations.requests import UpdateSandbox
from differently_core.runtime.ids import SandboxId
from differently_core.store.ports import Put
from tests.support.world import World

HOUR = 3600


def with_lease(world: World, lease: int = 0, life: int = 0, **backend: Any) -> FakeBackend:
    capabilities = Capabilities(features=FEATURES, lease_seconds=lease, max_lifetime_seconds=life)
    return world.add_pool(backend=FakeBackend(world.clock, capabilities=capabilities, **backend))


def running(world: World, **request: object) -> SandboxId:
    sandbox = world.create(**request)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def ask(world: World, sandbox: SandboxId, kind: MoveKind) -> None:
    moves.ask(world.core, world.caller, sandbox, kind)
    world.deliver_all()


def extend(world: World, sandbox: SandboxId, seconds: int) -> Sandbox:
    return sandboxes.update(world.core, world.caller, sandbox, UpdateSandbox(ttl_seconds=seconds))


def backstop(backend: FakeBackend) -> datetime:
    (instance,) = backend.instances()
    assert instance.expires_at is not None
    return instance.expires_at


def why(world: World, sandbox: SandboxId) -> str:
    reason = world.sandbox(sandbox).reason
    assert reason is not None
    return reason.code


def permit_shorter(world: World, scope: str = GLOBAL, *, permitted: bool = True) -> None:
    rules = PolicyRules(shorter_lifetime=permitted)
    world.core.store.transact([Put(Policy(scope=scope, rules=rules), (), "policy")])


# The backend's own end.


def test_a_longer_time_to_live_reaches_the_backend_five_minutes_behind_ours(world: World):
    """features.md 1 TTL, 2 #10 and #77: a PATCH extends it at the backend too; users/reports.md S3."""
    backend = with_lease(world, lease=2 * HOUR)
    sandbox = running(world, ttlSeconds=HOUR)
    world.pass_time(50 * 60)

    extend(world, sandbox, 90 * 60)
    world.pass_time(0)

    assert backend.calls[Operation.RENEW] == 1
    assert backstop(backend) == world.clock.now() + timedelta(minutes=95)


def test_a_backend_whose_end_is_behind_ours_is_left_alone(world: World):
    backend = with_lease(world, lease=2 * HOUR)
    sandbox = running(world, ttlSeconds=HOUR)

    extend(world, sandbox, 600)
    world.pass_time(599)

    assert backend.calls[Operation.RENEW] == 0
    assert world.status(sandbox) is Status.RUNNING


@pytest.mark.parametrize("at_rest", [None, MoveKind.PAUSE])
def test_a_lease_is_renewed_as_long_as_the_sandbox_lives(world: World, at_rest: MoveKind | None):
    """Issue 4, item 2: by the sweep, also while paused where the backend counts then."""
    backend = with_lease(world, lease=600)
    sandbox = running(world, ttlSeconds=HOUR)
    if at_rest is not None:
        ask(world, sandbox, at_rest)

    for _ in range(59):
        world.pass_time(60)
        assert len(backend.instances()) == 1

    assert world.status(sandbox) is (Status.RUNNING if at_rest is None else Status.PAUSED)
    world.pass_time(60)
    assert (world.status(sandbox), why(world, sandbox)) == (Status.TERMINATED, "ttl_expired")


def test_a_renewal_without_an_answer_is_looked_at_and_not_repeated(world: World):
    backend = with_lease(world, lease=600)
    sandbox = running(world, ttlSeconds=HOUR)
    backend.expect(Operation.RENEW, LoseAnswer())

    world.pass_time(300)

    assert backend.calls[Operation.RENEW] == 1
    assert world.sandbox(sandbox).lease_ends_at == backstop(backend)
    world.pass_time(60)
    assert backend.calls[Operation.RENEW] == 1


def test_a_backend_that_refuses_for_a_while_is_asked_again_in_time(world: World):
    backend = with_lease(world, lease=600)
    sandbox = running(world, ttlSeconds=HOUR)
    backend.expect(Operation.RENEW, *[Refuse(ProviderUnavailable("Down.", settled=True))] * 3)

    for _ in range(20):
        world.pass_time(60)

    assert world.status(sandbox) is Status.RUNNING
    assert backend.calls[Operation.RENEW] > 4


def test_a_lease_that_lapsed_ends_it_with_that_reason(world: World):
    """Issue 4, item 2: a lapse ends the sandbox as `lease_lost`, at once."""
    backend = with_lease(world, lease=600)
    sandbox = running(world, ttlSeconds=HOUR)
    backend.plan = lambda call: Refuse() if call.operation is Operation.RENEW else None

    for _ in range(11):
        world.pass_time(60)

    assert (world.status(sandbox), why(world, sandbox)) == (Status.FAILED, "lease_lost")
    world.pass_time(60)
    assert world.held(Scope.ORG, world.org.id) == world.held(Scope.POOL, "pool") == 0


def test_the_reconciler_tells_a_lapsed_lease_too(world: World):
    backend = with_lease(world, lease=600)
    sandbox = running(world, ttlSeconds=HOUR)
    backend.up = False
    world.clock.advance(601)
    backend.up = True

    for _ in range(3):
        reconcile.reconcile_all(world.core)
        world.clock.advance(31)

    assert (world.status(sandbox), why(world, sandbox)) == (Status.FAILED, "lease_lost")


def test_a_renewal_revives_nothing_that_was_stopped(world: World):
    backend = with_lease(world, lease=600)
    sandbox = running(world, ttlSeconds=HOUR)
    ask(world, sandbox, MoveKind.STOP)

    for _ in range(20):
        world.pass_time(60)

    assert world.status(sandbox) is Status.STOPPED
    assert [instance.state for instance in backend.instances()] == [InstanceState.STOPPED]


def test_a_pool_without_leases_is_never_asked(world: World, backend: FakeBackend):
    sandbox = running(world, ttlSeconds=HOUR)
    extend(world, sandbox, 2 * HOUR)
    world.pass_time(HOUR)

    assert backend.calls[Operation.RENEW] == 0


# Lifetimes.


def test_a_pool_that_cannot_keep_it_is_no_candidate(world: World):
    """Issue 4, item 2: placement refuses a pool that cannot hold the time to live."""
    with_lease(world, life=HOUR)
    running(world, ttlSeconds=HOUR)

    with pytest.raises(NoEligiblePool, match="lifetime_too_short"):
        world.create(ttlSeconds=HOUR + 1)


def test_a_lease_that_cannot_be_renewed_is_a_lifetime(world: World):
    with_lease(world, lease=600)
    pool = world.core.catalog.pool("pool")
    adapter = world.pools.adapter(pool)
    adapter.operations = {**adapter.operations, Operation.RENEW: Unsupported("no_renewal")}  # type: ignore[misc]
    pools.probe(world.core, pool)

    running(world, ttlSeconds=600)
    with pytest.raises(NoEligiblePool, match="lifetime_too_short"):
        world.create(ttlSeconds=601)


def test_where_policy_permits_it_the_shorter_end_is_shown_and_kept(world: World):
    backend = with_lease(world, life=HOUR)
    permit_shorter(world)
    sandbox = running(world, ttlSeconds=2 * HOUR)

    shown = sandboxes.view(world.caller, world.sandbox(sandbox))
    assert shown.ttl_seconds == 2 * HOUR
    assert shown.effective.expires_at == shown.expires_at == world.clock.now() + timedelta(seconds=HOUR - 30)
    world.pass_time(HOUR - 30)
    assert (world.status(sandbox), why(world, sandbox)) == (Status.TERMINATED, "ttl_expired")
    assert backend.instances() == []


@pytest.mark.parametrize("forbidding", ["org", "project", "global"])
def test_a_narrower_policy_can_forbid_it_and_never_permit_it(world: World, forbidding: str):
    with_lease(world, life=HOUR)
    if forbidding == "global":
        permit_shorter(world, world.org.id)
    else:
        permit_shorter(world)
        permit_shorter(world, world.org.id if forbidding == "org" else world.project.id, permitted=False)

    with pytest.raises(NoEligiblePool):
        world.create(ttlSeconds=2 * HOUR)


def test_an_extension_over_the_pools_lifetime_is_refused_or_shown_shorter(world: World):
    """A requested lifetime is never lowered in silence (users/reports.md 1, E2B#879)."""
    with_lease(world, life=HOUR)
    sandbox = running(world, ttlSeconds=600)

    with pytest.raises(LimitExceeded) as refused:
        extend(world, sandbox, 2 * HOUR)
    assert refused.value.details["limit"] == HOUR - 30

    permit_shorter(world)
    assert extend(world, sandbox, 2 * HOUR).expires_at == world.clock.now() + timedelta(seconds=HOUR - 30)


# Limits of running and resting.


def test_it_rests_when_it_has_run_for_as_long_as_it_may(world: World, backend: FakeBackend):
    sandbox = running(world, maxRunSeconds=600, ttlSeconds=86_400)

    world.pass_time(599)
    assert world.status(sandbox) is Status.RUNNING
    world.pass_time(1)
    assert (world.status(sandbox), why(world, sandbox)) == (Status.PAUSED, "max_run_reached")

    with pytest.raises(InvalidState):
        execution.run(world.core, world.caller, sandbox, ExecRequest(command="true"))
    ask(world, sandbox, MoveKind.RESUME)
    world.pass_time(599)
    assert world.status(sandbox) is Status.RUNNING, "it counts from its last start"
    world.pass_time(1)
    assert world.status(sandbox) is Status.PAUSED


def test_where_its_pool_can_do_neither_it_ends(world: World, backend: FakeBackend):
    adapter = world.pools.adapter(world.core.catalog.pool("pool"))
    moving = (Operation.PAUSE, Operation.RESUME, Operation.CALL_OFF, Operation.STOP, Operation.START)
    adapter.operations = {**adapter.operations, **dict.fromkeys(moving, Unsupported("not_here"))}  # type: ignore[misc]
    sandbox = running(world, maxRunSeconds=600)

    world.pass_time(600)

    assert (world.status(sandbox), why(world, sandbox)) == (Status.TERMINATED, "max_run_reached")


def test_what_rests_is_kept_for_a_while_and_then_ends():
    """Issue 4, item 3: what is kept but not running is bounded."""
    world = World(tuning=Tuning(retention_seconds=1000))
    backend = world.add_pool()
    sandbox = running(world, ttlSeconds=86_400)
    world.pass_time(5000)
    ask(world, sandbox, MoveKind.STOP)

    world.pass_time(999)
    assert world.status(sandbox) is Status.STOPPED
    world.clock.advance(1)
    with pytest.raises(InvalidState):
        moves.ask(world.core, world.caller, sandbox, MoveKind.START)
    world.pass_time(0)

    assert (world.status(sandbox), why(world, sandbox)) == (Status.TERMINATED, "retention_expired")
    assert backend.instances() == []


def test_what_was_woken_in_time_is_kept(world: World):
    world = World(tuning=Tuning(retention_seconds=1000))
    world.add_pool()
    sandbox = running(world, ttlSeconds=86_400)
    ask(world, sandbox, MoveKind.STOP)
    world.pass_time(900)
    ask(world, sandbox, MoveKind.START)

    world.pass_time(900)
    assert world.status(sandbox) is Status.RUNNING
