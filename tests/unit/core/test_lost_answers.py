"""A create whose answer is lost is observed under the same id; only an idempotent one is ever called again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from differently_adapters.providers.fake import (
    Duplicate,
    FakeAdapter,
    FakeBackend,
    FakeConfig,
    Late,
    LoseAnswer,
    LoseCall,
    Refuse,
    Slow,
    Unlisted,
    Vanish,
)
from differently_core.contract import AdapterContext, Instance, Operation, Target
from differently_core.errors import ProviderUnavailable
from differently_core.model.attempt import AttemptState
from differently_core.model.quota import Scope
from differently_core.model.sandbox import Claim, Status
from differently_core.operations import pools, sandboxes, worker
from differently_core.operations.ending import write
from differently_core.operations.requests import UpdateSandbox
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from tests.support.interruptions import Interrupted
from tests.support.world import World

SETTLES = 60.0
"""How long a late instance may take to turn up, as the fake declares it."""


@pytest.fixture(params=[True, False], ids=["idempotent", "not idempotent"])
def either(world: World, request: pytest.FixtureRequest) -> FakeBackend:
    return world.add_pool(backend=FakeBackend(world.clock, idempotent_create=request.param, settles_seconds=SETTLES))


@pytest.fixture
def once(world: World) -> FakeBackend:
    """A backend where a second create makes a second instance."""
    return world.add_pool(backend=FakeBackend(world.clock, idempotent_create=False, settles_seconds=SETTLES))


def calls(backend: FakeBackend) -> int:
    return backend.calls[Operation.CREATE]


def begun(world: World, backend: FakeBackend, *faults: LoseAnswer | LoseCall | Late | Slow | Refuse) -> SandboxId:
    backend.expect(Operation.CREATE, *faults)
    sandbox = world.create()
    world.deliver_all()
    return sandbox


@pytest.mark.parametrize("seconds", [0.0, 1.0, float("inf")], ids=["cut", "slowly cut", "until the deadline"])
def test_a_lost_answer_is_found_and_nothing_is_made_twice(world: World, either: FakeBackend, seconds: float):
    sandbox = begun(world, either, LoseAnswer(seconds))
    assert world.status(sandbox) is Status.PROVISIONING

    world.pass_time(2)

    assert world.status(sandbox) is Status.RUNNING
    assert (calls(either), len(either.instances())) == (1, 1)
    assert world.sandbox(sandbox).attempt == 1


def test_a_lost_idempotent_create_is_called_again_under_the_same_attempt(world: World, backend: FakeBackend):
    sandbox = begun(world, backend, LoseCall())
    world.pass_time(2)

    assert world.status(sandbox) is Status.RUNNING
    assert (calls(backend), len(backend.instances())) == (2, 1)
    assert [(attempt.number, attempt.calls) for attempt in world.attempts(sandbox)] == [(1, 2)]


def test_an_idempotent_create_is_called_three_times_at_most_for_one_attempt(world: World, backend: FakeBackend):
    sandbox = begun(world, backend, *[LoseCall()] * 3)
    for _ in range(20):
        world.pass_time(2)

    assert calls(backend) == 3
    assert world.status(sandbox) is Status.PROVISIONING


def test_a_create_that_is_not_idempotent_is_never_called_again(world: World, once: FakeBackend):
    """Only when nothing can come of it any more is it given up, and a new attempt made."""
    sandbox = begun(world, once, LoseCall())
    for _ in range(int(SETTLES / 2) - 1):
        world.pass_time(2)
    assert (world.status(sandbox), calls(once)) == (Status.PROVISIONING, 1)

    world.pass_time(2)
    found = world.sandbox(sandbox)
    assert (found.status, found.failures) == (Status.QUEUED, 1)
    assert found.reason is not None
    assert found.reason.code == "attempt_lost"

    pools.probe_all(world.core)  # a backend that did not answer gets nothing before it is seen well
    world.pass_time(4)
    assert (world.status(sandbox), calls(once), world.sandbox(sandbox).attempt) == (Status.RUNNING, 2, 2)


@pytest.mark.parametrize("seconds", [5.0, 59.0])
def test_an_instance_that_comes_late_is_taken(world: World, once: FakeBackend, seconds: float):
    sandbox = begun(world, once, Late(seconds))
    for _ in range(30):
        world.pass_time(2)

    assert world.status(sandbox) is Status.RUNNING
    assert (calls(once), len(once.instances())) == (1, 1)


def test_a_create_past_its_deadline_is_a_lost_answer(world: World, once: FakeBackend):
    """The call gives up after 60 s, the instance comes 30 s later."""
    sandbox = begun(world, once, Slow(90.0))
    for _ in range(20):
        world.pass_time(2)

    assert (world.status(sandbox), calls(once), len(once.instances())) == (Status.RUNNING, 1, 1)


def test_a_list_that_lags_is_no_proof_of_absence(world: World, once: FakeBackend):
    """The answer is lost, and for 40 s the instance cannot be found by its owner either."""
    once.expect(Operation.CREATE, Unlisted(40.0))
    once.expect(Operation.EXEC, LoseCall())
    sandbox = world.create()
    world.deliver_all()
    for _ in range(25):
        world.pass_time(2)

    assert (world.status(sandbox), calls(once)) == (Status.RUNNING, 1)


class SlowLook(FakeAdapter):
    """Its answer to a look is five seconds old when it arrives."""

    def get(self, target: Target) -> Instance:
        try:
            return super().get(target)
        finally:
            self.backend.clock.sleep(5.0)


@pytest.mark.parametrize("deleted", [False, True], ids=["while it is waited for", "while it is deleted"])
def test_a_look_that_began_before_the_time_was_over_is_no_proof(world: World, once: FakeBackend, deleted: bool):
    """Nothing was there at 58 s, the instance came at 59, the look was answered at 63: it must not be left behind."""
    installation = world.core.catalog.installation().id
    context = AdapterContext("pool", installation, FakeConfig(), world.clock)
    world.pools.serve("pool", SlowLook(context, once))
    sandbox = begun(world, once, Late(59.0))
    if deleted:
        world.delete(sandbox)
    world.clock.advance(58)
    world.lose_messages()
    worker.step(world.core, sandbox)

    assert world.status(sandbox) is (Status.TERMINATING if deleted else Status.PROVISIONING)
    for _ in range(10):
        world.pass_time(10)
    assert (world.status(sandbox), len(once.instances())) == (
        (Status.TERMINATED, 0) if deleted else (Status.RUNNING, 1)
    )


def test_a_refused_repetition_says_nothing_of_the_first_call(world: World, backend: FakeBackend):
    """The first call's instance is still to come when the second call is refused: the pool's slot stays held."""
    sandbox = begun(world, backend, Late(50.0), Refuse(ProviderUnavailable("No.", settled=True)))
    world.pass_time(2)
    (attempt,) = world.attempts(sandbox)
    assert (attempt.status, attempt.holds_slot, attempt.calls) == (AttemptState.DEBT, True, 2)

    world.delete(sandbox)
    for _ in range(30):
        world.pass_time(5)

    assert backend.instances() == []
    assert [one.status for one in world.attempts(sandbox)] == [AttemptState.SETTLED]
    assert world.held(Scope.POOL, "pool") == 0


def test_an_instance_that_vanishes_before_it_is_ready_is_tried_again(world: World, backend: FakeBackend):
    backend.pending_seconds = 10
    sandbox = begun(world, backend)
    backend.expect(Operation.GET, Vanish())
    world.pass_time(2)
    found = world.sandbox(sandbox)
    assert found.reason is not None
    assert (found.status, found.reason.detail) == (Status.QUEUED, "the instance disappeared")

    for _ in range(10):
        world.pass_time(4)

    assert (world.status(sandbox), len(backend.instances())) == (Status.RUNNING, 1)


def test_a_second_instance_of_the_same_create_goes_with_the_first(world: World, once: FakeBackend):
    once.expect(Operation.CREATE, Duplicate())
    sandbox = world.create()
    world.deliver_all()
    assert (world.status(sandbox), len(once.instances())) == (Status.RUNNING, 2)

    world.delete(sandbox)
    world.deliver_all()
    for _ in range(3):
        world.pass_time(5)

    assert (world.status(sandbox), once.instances()) == (Status.TERMINATED, [])


# Workers that die, freeze and meet.


def test_nobody_calls_while_a_worker_is_at_work(world: World, backend: FakeBackend):
    sandbox = world.create()
    before = world.sandbox(sandbox)
    claim = Claim(owner="another", until=world.clock.now() + timedelta(seconds=65), generation=1)
    world.memory.transact([write(before, before.with_(claim=claim))[1]])

    world.deliver_all()

    assert (world.status(sandbox), calls(backend)) == (Status.PROVISIONING, 0)


def test_a_worker_that_died_is_followed_when_its_claim_is_over(world: World, backend: FakeBackend):
    """It died after it had written down its attempt and called; nobody was told of the instance."""

    class Died(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Died

    sandbox = world.create()
    backend.expect(Operation.EXEC, LoseCall())
    world.lose_messages()
    original, worker._advance = worker._advance, die
    try:
        with pytest.raises(Died):
            worker.step(world.core, sandbox)
    finally:
        worker._advance = original
    assert len(backend.instances()) == 1

    world.pass_time(64.9)
    assert world.status(sandbox) is Status.PROVISIONING
    world.pass_time(0.1)
    world.pass_time(2)

    assert (world.status(sandbox), calls(backend), len(backend.instances())) == (Status.RUNNING, 1, 1)


def test_a_worker_that_stood_still_does_not_call_any_more():
    """Between its write and its call an hour passed: somebody else has taken over long ago."""
    world, store = _interrupted()
    backend = world.add_pool()
    sandbox = world.create(env={"A": "1"})
    world.lose_messages()
    store.before("attempt", lambda: None)
    original = world.core.catalog.template

    def slowly(name: str):
        world.clock.advance(3600)
        return original(name)

    world.core.catalog.template = slowly  # type: ignore[method-assign]  # time passes just before the call
    worker.step(world.core, sandbox)
    assert calls(backend) == 0

    world.core.catalog.template = original  # type: ignore[method-assign]
    world.pass_time(0)
    assert world.status(sandbox) is Status.RUNNING


def test_a_change_while_the_backend_is_called_costs_one_more_look():
    world, store = _interrupted()
    backend = world.add_pool()
    sandbox = world.create()
    change = UpdateSandbox(labels={"n": "1"})
    store.before("event", lambda: sandboxes.update(world.core, world.caller, sandbox, change))
    world.deliver_all()

    found = world.sandbox(sandbox)
    assert (found.status, found.labels, calls(backend)) == (Status.RUNNING, {"n": "1"}, 1)


def test_a_delete_while_the_backend_is_called_wins():
    """The instance comes up after the delete was accepted; it is noted, and removed at once."""
    world, store = _interrupted()
    backend = world.add_pool()
    sandbox = world.create()
    store.before("event", lambda: world.delete(sandbox))
    world.deliver_all()

    assert (world.status(sandbox), backend.instances()) == (Status.TERMINATED, [])
    assert world.held(Scope.POOL, "pool") == 0


def _interrupted() -> tuple[World, Interrupted]:
    stores: list[Interrupted] = []

    def wrap(memory: MemoryStore) -> Interrupted:
        stores.append(Interrupted(memory))
        return stores[0]

    return World(wrap=wrap), stores[0]
