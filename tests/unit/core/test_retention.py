"""How long what does not run is kept: the default, what policies say, and that an end wins over a wake."""

from __future__ import annotations

import pytest

from differently_core.errors import InvalidState, LimitExceeded, PolicyUnreadable
from differently_core.model.policy import PolicyRules
from differently_core.model.quota import Limits
from differently_core.model.resources import Size
from differently_core.model.sandbox import MoveKind, Status
from differently_core.model.snapshot import Snapshot
from differently_core.operations import moves, policies, sandboxes, snapshots, tenants
from differently_core.operations.core import Tuning
from differently_core.operations.dispatch import dispatch
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.runtime.ids import SandboxId
from tests.support.world import OPERATOR, World

HOUR, DAY = 3600, 86_400


@pytest.fixture
def world() -> World:
    made = World(
        tuning=Tuning(retention_seconds=DAY, snapshot_retention_seconds=2 * DAY, retention_seconds_max=9 * DAY)
    )
    made.add_pool()
    return made


def says(world: World, scope: str, **rules: int) -> None:
    policies.replace(world.core, OPERATOR, scope, PolicyRules(**rules))


def resting(world: World) -> SandboxId:
    sandbox = world.create(ttlSeconds=7 * DAY)
    world.deliver_all()
    moves.ask(world.core, world.caller, sandbox, MoveKind.STOP)
    world.deliver_all()
    assert world.status(sandbox) is Status.STOPPED
    return sandbox


def kept_seconds(world: World, sandbox: SandboxId) -> float:
    found = world.sandbox(sandbox)
    shown = sandboxes.view(world.caller, found)
    assert shown.effective.retention_seconds == found.retention_seconds
    assert found.rested_at is not None
    assert shown.kept_until is not None
    return (shown.kept_until - found.rested_at).total_seconds()


def test_without_policies_the_installation_says(world: World):
    sandbox = resting(world)
    assert kept_seconds(world, sandbox) == DAY


@pytest.mark.parametrize(
    ("everywhere", "org", "project", "kept"),
    [(None, 5 * DAY, None, 5 * DAY), (2 * HOUR, 5 * DAY, None, 2 * HOUR), (None, 5 * DAY, HOUR, HOUR),
     (None, None, 100 * DAY, 9 * DAY)],
)  # fmt: skip
def test_policies_say_otherwise_the_shortest_and_never_beyond_the_maximum(
    world: World, everywhere: int | None, org: int | None, project: int | None, kept: int
):
    for scope, seconds in (("global", everywhere), (world.org.id, org), (world.project.id, project)):
        if seconds is not None:
            says(world, scope, retention_seconds=seconds)
    assert kept_seconds(world, resting(world)) == kept


def test_what_rests_keeps_what_it_was_told_and_its_next_rest_goes_by_what_is_said_then(world: World):
    sandbox = resting(world)
    says(world, world.project.id, retention_seconds=HOUR)
    assert kept_seconds(world, sandbox) == DAY
    world.pass_time(2 * HOUR)
    assert world.status(sandbox) is Status.STOPPED
    moves.ask(world.core, world.caller, sandbox, MoveKind.START)
    world.deliver_all()
    assert sandboxes.view(world.caller, world.sandbox(sandbox)).kept_until is None
    moves.ask(world.core, world.caller, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    assert kept_seconds(world, sandbox) == HOUR
    world.pass_time(HOUR)
    assert world.status(sandbox) is Status.TERMINATED


def test_a_policy_that_cannot_be_read_shortens_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    says(world, world.project.id, retention_seconds=5 * DAY)
    sandbox = world.create(ttlSeconds=7 * DAY)
    world.deliver_all()

    def unreadable(*scopes: str) -> None:
        raise PolicyUnreadable("It holds something else than this version knows.")

    monkeypatch.setattr(world.core.catalog, "rules", unreadable)
    moves.ask(world.core, world.caller, sandbox, MoveKind.STOP)
    world.deliver_all()
    assert kept_seconds(world, sandbox) == 5 * DAY


def test_an_end_that_is_due_wins_over_a_wake_that_waits(world: World):
    """Issue 4, item 3: until the last write, also where dispatch looks before the sweep does."""
    sandbox = resting(world)
    world.clock.advance(DAY - 10)
    one = Size.unlimited().model_copy(update={"sandboxes": 1})
    tenants.set_quota(world.core, OPERATOR, world.org.id, None, Limits(total=one))
    other = world.create(ttlSeconds=7 * DAY)
    world.deliver_all()
    moves.ask(world.core, world.caller, sandbox, MoveKind.START)
    world.deliver_all()
    assert world.status(sandbox) is Status.QUEUED
    world.clock.advance(10)
    world.delete(other)
    world.lose_messages()
    tenants.set_quota(world.core, OPERATOR, world.org.id, None, Limits())
    dispatch(world.core)
    assert world.status(sandbox) is Status.QUEUED
    with pytest.raises(InvalidState):
        moves.ask(world.core, world.caller, sandbox, MoveKind.START)
    world.pass_time(60)
    assert (world.status(sandbox), world.sandbox(sandbox).reason.code) == (Status.TERMINATED, "retention_expired")  # type: ignore[union-attr]


def kept_snapshot(world: World, **request: int) -> float:
    sandbox = world.create()
    world.deliver_all()
    taken = snapshots.take(world.core, world.caller, sandbox, TakeSnapshot.model_validate(request))
    found = world.memory.get(Snapshot, Snapshot.key_of(taken.snapshot))
    assert found is not None
    return (found.retain_until - found.created_at).total_seconds()


def test_a_snapshot_gets_what_it_asks_for_within_what_policies_permit(world: World):
    assert kept_snapshot(world) == 2 * DAY
    assert kept_snapshot(world, retentionSeconds=9 * DAY) == 9 * DAY
    with pytest.raises(LimitExceeded) as over:
        kept_snapshot(world, retentionSeconds=10 * DAY)
    assert over.value.details == {"resource": "retentionSeconds", "requested": 10 * DAY, "limit": 9 * DAY}
    says(world, world.org.id, snapshot_retention_seconds=HOUR)
    assert kept_snapshot(world) == HOUR
    with pytest.raises(LimitExceeded):
        kept_snapshot(world, retentionSeconds=2 * HOUR)


def test_a_repeated_snapshot_is_answered_although_the_policy_changed(world: World):
    sandbox = world.create()
    world.deliver_all()
    asked = TakeSnapshot(retention_seconds=2 * DAY)
    first = snapshots.take(world.core, world.caller, sandbox, asked, "key")
    says(world, world.org.id, snapshot_retention_seconds=HOUR)
    again = snapshots.take(world.core, world.caller, sandbox, asked, "key")
    assert (again.snapshot, again.replayed) == (first.snapshot, True)


def test_an_operator_is_told_of_a_retention_that_has_no_effect(world: World):
    (warning,) = policies.warnings(world.core, PolicyRules(retention_seconds=10 * DAY))
    assert "retentionSeconds" in warning
    assert str(9 * DAY) in warning
