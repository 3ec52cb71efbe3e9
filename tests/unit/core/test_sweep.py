"""The sure half of the rule of two: whatever became of the message, a due time brings it about."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import Fail, FakeBackend, LoseCall
from differently_core.contract import Operation
from differently_core.model.attempt import AttemptState
from differently_core.model.quota import Limits
from differently_core.model.resources import Size
from differently_core.model.sandbox import Status
from differently_core.operations import worker
from differently_core.operations.sweep import sweep
from tests.support.world import Dispatch, Settle, Step, World


def nudged(world: World) -> list[object]:
    world.lose_messages()
    sweep(world.core)
    found: list[object] = list(world.bag.messages)
    world.lose_messages()
    return found


@pytest.mark.parametrize(
    ("seconds", "due", "why"),
    [
        (1.9, False, "the message has two seconds"),
        (2.0, True, "then the sweep takes over"),
    ],
)
def test_an_admitted_sandbox_is_stepped(world: World, backend: FakeBackend, seconds: float, due: bool, why: str):
    sandbox = world.create()
    world.clock.advance(seconds)

    assert (nudged(world) == [Step(sandbox)]) is due, why


def test_all_who_wait_have_the_queue_looked_at_once(world: World):
    """Each that waited asked for a run of its own, so the work grew with the square of the queue."""
    world.add_pool(concurrency=1)
    for _ in range(12):
        world.create()
    world.deliver_all()
    world.clock.advance(61.0)

    assert [message for message in nudged(world) if isinstance(message, Dispatch)] == [Dispatch()]


def test_nothing_is_due_of_what_runs(world: World, backend: FakeBackend):
    world.create()
    world.deliver_all()
    world.clock.advance(3599)

    assert nudged(world) == []
    assert sweep(world.core).due == 0


def test_a_deleted_sandbox_is_due_at_once(world: World, backend: FakeBackend):
    sandbox = world.create()
    world.deliver_all()
    world.delete(sandbox)

    assert nudged(world) == [Step(sandbox)]


def test_a_debt_is_settled(world: World, backend: FakeBackend):
    backend.expect(Operation.CREATE, Fail(leaves=True))
    sandbox = world.create()
    worker.step(world.core, sandbox)

    assert nudged(world) == [Settle(sandbox, 1)]


def test_a_claimed_sandbox_is_due_when_the_claim_is_over(world: World, backend: FakeBackend):
    """60 s for the create and a margin of 5."""
    sandbox = world.create()
    backend.expect(Operation.CREATE, LoseCall())
    claims: list[float] = []

    def look(call: object) -> None:
        due = world.sandbox(sandbox).due_at
        assert due is not None
        claims.append((due - world.clock.now()).total_seconds())

    backend.plan = look
    backend._expected.clear()
    worker.step(world.core, sandbox)

    assert claims[0] == 65.0


def test_one_sweep_reads_every_shard_and_every_page(world: World):
    world.add_pool(concurrency=1000)
    many = Limits(total=Size.unlimited())
    world.caller = world.tenant(*world.add_tenant(org=many, project=many))
    made = {world.create() for _ in range(300)}
    world.clock.advance(2)
    world.lose_messages()

    swept = sweep(world.core)

    assert (swept.due, swept.more) == (300, False)
    assert {message.sandbox for message in world.bag.messages if isinstance(message, Step)} == made


def test_everything_comes_right_although_every_message_is_lost(world: World):
    """Only sweeps, twelve of them, and a dispatch that a sweep asks for."""
    world.add_pool(concurrency=2)
    made = [world.create(ttlSeconds=100) for _ in range(4)]
    world.delete(made[0])
    for _ in range(12):
        world.lose_messages()
        world.pass_time(60)

    assert [world.status(one) for one in made] == [Status.TERMINATED] * 4
    assert {attempt.status for one in made for attempt in world.attempts(one)} == {AttemptState.SETTLED}
