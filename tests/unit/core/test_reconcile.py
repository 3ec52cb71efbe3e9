"""What the backends say flows back, and nothing foreign, starting or in use is touched."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import FakeBackend, Pending, Refuse
from differently_core.contract import Instance, InstanceState, Operation, Owner
from differently_core.errors import ProviderUnavailable
from differently_core.model.attempt import AttemptState
from differently_core.model.quota import Scope
from differently_core.model.sandbox import Status
from differently_core.operations.difference import Changed, Missing, Strange, compare
from differently_core.operations.reconcile import GRACE, Report, reconcile, reconcile_all
from differently_core.runtime.ids import SandboxId
from differently_reconciler.reconcile import Reconcile, handle
from tests.support.world import World

AFTER_GRACE = GRACE.total_seconds() + 1


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def backend(world: World) -> FakeBackend:
    return world.add_pool()


def running(world: World, **request: object) -> SandboxId:
    sandbox = world.create(None, **request)
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def ours(world: World, sandbox: str) -> Owner:
    return Owner(world.core.catalog.installation().id, sandbox)


def twice(world: World, pool: str = "pool") -> Report:
    """Two passes a grace apart, as a finding needs to be acted on."""
    reconcile(world.core, pool)
    world.clock.advance(AFTER_GRACE)
    report = reconcile(world.core, pool)
    world.deliver_all()
    return report


def test_nothing_is_done_when_both_sides_agree(world: World, backend: FakeBackend) -> None:
    sandbox = running(world)

    report = twice(world)

    assert (report.instances, report.attempts) == (1, 1)
    assert (report.orphans_deleted, report.lost, report.followed, report.suspects) == (0, 0, 0, 0)
    assert world.status(sandbox) is Status.RUNNING


def test_an_instance_of_an_unknown_sandbox_is_deleted_when_it_was_seen_twice(
    world: World, backend: FakeBackend
) -> None:
    orphan = backend.plant(ours(world, world.core.ids.new("sbx")))

    first = reconcile(world.core, "pool")
    assert (first.orphans_deleted, first.suspects) == (0, 1)
    assert backend.find(orphan.ref) is not None

    world.clock.advance(AFTER_GRACE)
    assert reconcile(world.core, "pool").orphans_deleted == 1
    assert backend.find(orphan.ref) is None


def test_two_sightings_within_the_grace_are_not_enough(world: World, backend: FakeBackend) -> None:
    backend.plant(ours(world, world.core.ids.new("sbx")))

    reconcile(world.core, "pool")
    world.clock.advance(GRACE.total_seconds() / 2)

    assert reconcile(world.core, "pool").orphans_deleted == 0


@pytest.mark.parametrize(
    "owner",
    [
        Owner("inst_of_somebody_else", "sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        Owner("", ""),
        Owner("mine", "not-one-of-our-ids"),
        Owner("mine", ""),
    ],
    ids=["another installation", "no labels", "not an id", "no sandbox"],
)
def test_what_is_not_provably_ours_is_never_touched(world: World, backend: FakeBackend, owner: Owner) -> None:
    if owner.installation == "mine":
        owner = ours(world, owner.sandbox)
    foreign = backend.plant(owner)

    twice(world)
    twice(world)

    assert backend.find(foreign.ref) is not None


def test_a_second_instance_of_a_running_sandbox_goes_and_the_one_in_use_stays(
    world: World, backend: FakeBackend
) -> None:
    sandbox = running(world)
    in_use = world.sandbox(sandbox).backend_ref
    extra = backend.plant(ours(world, sandbox))

    assert twice(world).orphans_deleted == 1

    assert backend.find(extra.ref) is None
    assert in_use is not None
    assert backend.find(in_use) is not None
    assert world.status(sandbox) is Status.RUNNING


def test_an_instance_that_is_still_starting_is_no_orphan(world: World, backend: FakeBackend) -> None:
    backend.expect(Operation.CREATE, Pending(600.0))
    sandbox = world.create()
    world.deliver_all()

    assert twice(world).orphans_deleted == 0
    assert len(backend.instances()) == 1
    assert world.status(sandbox) is Status.PROVISIONING


def test_two_pools_on_one_backend_leave_each_others_instances_alone(world: World, backend: FakeBackend) -> None:
    world.add_pool("twin", backend)
    sandbox = running(world, placement={"allowedPools": ["pool"]})

    report = twice(world, "twin")

    assert (report.instances, report.orphans_deleted) == (1, 0)
    assert world.status(sandbox) is Status.RUNNING


def test_a_sandbox_whose_instance_vanished_fails_after_two_lists_and_gives_everything_back(
    world: World, backend: FakeBackend
) -> None:
    sandbox = running(world)
    ref = world.sandbox(sandbox).backend_ref
    assert ref is not None
    backend.vanish(ref)

    assert reconcile(world.core, "pool").lost == 0
    assert world.status(sandbox) is Status.RUNNING
    world.clock.advance(AFTER_GRACE)
    assert reconcile(world.core, "pool").lost == 1
    world.deliver_all()

    found = world.sandbox(sandbox)
    assert found.status is Status.FAILED
    assert found.reason is not None
    assert (found.reason.code, found.reason.source) == ("instance_lost", "backend")
    assert [attempt.status for attempt in world.attempts(sandbox)] == [AttemptState.SETTLED]
    assert world.held(Scope.ORG, world.org.id) == world.held(Scope.POOL, "pool") == 0


def test_an_instance_that_a_list_left_out_for_a_while_is_not_lost(world: World, backend: FakeBackend) -> None:
    """A list that lags is contradicted by the direct look."""
    sandbox = running(world)
    ref = world.sandbox(sandbox).backend_ref
    assert ref is not None
    instance = backend.find(ref)
    assert instance is not None
    instance.listed_at = world.clock.monotonic() + 3600

    twice(world)

    assert world.status(sandbox) is Status.RUNNING


def test_a_failed_list_skips_the_pool_and_says_why(world: World, backend: FakeBackend) -> None:
    sandbox = running(world)
    backend.expect(Operation.LIST, Refuse(ProviderUnavailable("page 2 could not be read")))

    report = reconcile(world.core, "pool")

    assert report.error == "page 2 could not be read"
    assert world.status(sandbox) is Status.RUNNING


def test_one_broken_pool_does_not_keep_the_others_from_being_reconciled(world: World, backend: FakeBackend) -> None:
    other = world.add_pool("other")
    backend.expect(Operation.LIST, Refuse())

    reports = {report.pool: report for report in reconcile_all(world.core)}

    assert reports["pool"].error is not None
    assert reports["other"].error is None
    assert other.instances() == []


# The comparison itself.

ID = "sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV"


def instance(ref: str, state: InstanceState = InstanceState.RUNNING, sandbox: str = ID) -> Instance:
    return Instance(ref, Owner("inst", sandbox), state)


def test_an_instance_without_an_attempt_proves_nothing_while_attempts_are_not_all_read() -> None:
    assert compare("inst", [instance("a")], [], whole=False).findings == ()
    assert compare("inst", [instance("a")], [], whole=True).findings == (Strange(instance("a")),)


def test_the_comparison_names_what_is_missing_and_what_changed(world: World, backend: FakeBackend) -> None:
    sandbox = running(world)
    (attempt,) = world.attempts(sandbox)
    assert attempt.ref is not None
    stopped = instance(attempt.ref, InstanceState.STOPPED, sandbox)

    assert compare("inst", [], [attempt], whole=True).findings == (Missing(attempt),)
    assert compare("inst", [stopped], [attempt], whole=True).findings == (Changed(attempt, stopped),)
    for state in (AttemptState.CALLING, AttemptState.DEBT):
        assert compare("inst", [], [attempt.with_(status=state)], whole=True).findings == ()


def test_a_ref_that_the_backend_gave_to_another_sandbox_is_missing(world: World, backend: FakeBackend) -> None:
    sandbox = running(world)
    (attempt,) = world.attempts(sandbox)
    assert attempt.ref is not None
    taken = instance(attempt.ref, sandbox="sbx_01ARZ3NDEKTSV4RRFFQ69G5FAW")

    assert compare("inst", [taken], [attempt], whole=True).findings == (Missing(attempt),)


# Following.


def test_an_instance_that_stopped_by_itself_is_followed_and_frees_what_it_held(
    world: World, backend: FakeBackend
) -> None:
    sandbox = running(world)
    (found,) = backend.instances()
    found.state = InstanceState.STOPPED

    assert twice(world).followed == 1

    assert world.status(sandbox) is Status.STOPPED
    assert world.held(Scope.ORG, world.org.id) == world.held(Scope.POOL, "pool") == 0
    world.delete(sandbox)
    world.deliver_all()
    assert world.status(sandbox) is Status.TERMINATED
    assert backend.instances() == []
    assert world.held(Scope.ORG, world.org.id) == world.held(Scope.POOL, "pool") == 0


def test_an_instance_that_failed_ends_its_sandbox_and_is_cleaned_up(world: World, backend: FakeBackend) -> None:
    sandbox = running(world)
    (found,) = backend.instances()
    found.state = InstanceState.ERROR

    assert twice(world).followed == 1
    assert world.status(sandbox) is Status.FAILED

    world.pass_time(120)
    assert backend.instances() == []
    assert world.held(Scope.POOL, "pool") == 0


def test_a_stopped_sandbox_still_ends_with_its_time_to_live(world: World, backend: FakeBackend) -> None:
    sandbox = running(world, ttlSeconds=600)
    (found,) = backend.instances()
    found.state = InstanceState.STOPPED
    twice(world)

    world.pass_time(600)

    assert world.status(sandbox) is Status.TERMINATED
    assert backend.instances() == []


# The entry point.


def test_a_message_reconciles_its_pool(world: World, backend: FakeBackend) -> None:
    orphan = backend.plant(ours(world, world.core.ids.new("sbx")))

    handle(world.core, Reconcile(pool="pool").event())
    world.clock.advance(AFTER_GRACE)
    handle(world.core, Reconcile(pool="pool").event())

    assert backend.find(orphan.ref) is None


@pytest.mark.parametrize("event", [{}, {"pool": "Not A Name"}, {"pool": "pool", "more": 1}, {"pool": 3}])
def test_what_is_no_message_is_dropped_and_named(
    world: World, backend: FakeBackend, caplog: pytest.LogCaptureFixture, event: dict[str, object]
) -> None:
    handle(world.core, event)
    assert "message dropped" in caplog.text


def test_a_pool_that_is_gone_is_no_work(world: World) -> None:
    handle(world.core, Reconcile(pool="gone").event())
