"""Entry points hand a message to its operation; what is no message is named in the log and harms nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from differently_core.errors import DifferentlyError
from differently_core.model.attempt import AttemptState
from differently_core.model.sandbox import Status
from differently_core.runtime.ids import SandboxId
from differently_core.store.ports import StoreUnavailable
from differently_scheduler import dispatch, tick, worker
from differently_scheduler.messages import Cleanup, Probe, Step, Sweep
from tests.support.world import Dispatch as DispatchMessage
from tests.support.world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.add_pool()
    return made


def test_a_step_moves_its_sandbox(world: World) -> None:
    sandbox = world.create()
    worker.handle(world.core, Step(sandbox=sandbox).event())
    assert world.status(sandbox) is Status.RUNNING


def test_a_cleanup_of_nothing_owed_changes_nothing(world: World) -> None:
    sandbox = world.create()
    worker.handle(world.core, Step(sandbox=sandbox).event())
    worker.handle(world.core, Cleanup(sandbox=sandbox, attempt=1).event())
    (attempt,) = world.attempts(sandbox)
    assert attempt.status is AttemptState.LIVE


@pytest.mark.parametrize(
    "event",
    [
        {}, {"kind": "unknown"}, {"kind": "step"}, {"kind": "step", "sandbox": "sbx_1"},
        {"kind": "step", "sandbox": "sbx_" + "0" * 26, "more": 1}, {"kind": "cleanup", "sandbox": "sbx_" + "0" * 26},
        {"kind": "cleanup", "sandbox": "sbx_" + "0" * 26, "attempt": 0}, {"kind": "sweep"},
    ],
)  # fmt: skip
def test_the_worker_drops_what_is_no_message(
    world: World, caplog: pytest.LogCaptureFixture, event: dict[str, Any]
) -> None:
    worker.handle(world.core, event)
    assert "message dropped" in caplog.text


def test_a_poison_message_is_told_without_its_content(world: World, caplog: pytest.LogCaptureFixture) -> None:
    worker.handle(world.core, {"kind": "step", "sandbox": "canary-1"})
    assert "canary-1" not in str([vars(record) for record in caplog.records])


class Broken:
    """A store that never answers."""

    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailable("away")


@pytest.mark.parametrize(
    ("entry", "event"),
    [
        (worker, Step(sandbox="sbx_" + "0" * 26).event()),
        (dispatch, dispatch.batch("1")),
        (tick, Sweep().event()),
    ],
)
def test_a_fault_of_the_store_is_raised_for_another_delivery(world: World, entry: Any, event: dict[str, Any]) -> None:
    object.__setattr__(world.core, "store", Broken())
    with pytest.raises(DifferentlyError):
        entry.handle(world.core, event)


# Dispatch


@pytest.fixture
def waiting(world: World) -> World:
    """A sandbox in the queue of a pool that has room again."""
    world = World()
    world.add_pool(concurrency=1)
    first, second = world.create(), world.create()
    worker.handle(world.core, Step(sandbox=first).event())
    world.delete(first)
    worker.handle(world.core, Step(sandbox=first).event())
    assert world.status(second) is Status.QUEUED
    world.lose_messages()
    return world


def queued(world: World) -> int:
    return len([row for row in world.memory.rows().values() if getattr(row, "status", None) is Status.QUEUED])


def test_one_run_serves_a_batch(waiting: World) -> None:
    assert dispatch.handle(waiting.core, dispatch.batch("1", "2", "3")) == {"batchItemFailures": []}
    assert queued(waiting) == 0


@pytest.mark.parametrize("body", ["not json", "[]", '"text"', "{}", '{"kind": "step"}', "null"])
def test_a_poison_record_fails_alone(waiting: World, body: str) -> None:
    event = dispatch.batch("1")
    event["Records"].append({"messageId": "bad", "body": body})
    assert dispatch.handle(waiting.core, event) == {"batchItemFailures": [{"itemIdentifier": "bad"}]}
    assert queued(waiting) == 0


def test_a_batch_of_poison_alone_looks_at_nothing(waiting: World) -> None:
    event = {"Records": [{"messageId": "bad", "body": "x"}, {"messageId": "worse"}]}
    failed = dispatch.handle(waiting.core, event)["batchItemFailures"]
    assert [failure["itemIdentifier"] for failure in failed] == ["bad", "worse"]
    assert queued(waiting) == 1


def test_a_message_is_json_with_its_kind_alone() -> None:
    (record,) = dispatch.batch("1")["Records"]
    assert json.loads(record["body"]) == {"kind": "dispatch"}


# Tick


def test_a_sweep_nudges_what_is_due(world: World) -> None:
    sandbox = world.create()
    world.lose_messages()
    world.clock.advance(60)
    assert tick.handle(world.core, Sweep().event()) == {"due": 1}
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING


def test_a_sweep_ends_at_once_when_nothing_is_due(world: World) -> None:
    before = world.clock.monotonic()
    assert tick.handle(world.core, Sweep(seconds=50).event()) == {"due": 0}
    assert world.clock.monotonic() == before


def test_a_sweep_goes_on_while_something_will_soon_be_due(world: World) -> None:
    """The new sandbox is due two seconds from now; the sweep waits for it, nudges it, and sees that it is done."""
    sandbox = world.create()
    world.lose_messages()
    seen: list[float] = []

    def nudged(sandbox: str) -> None:
        seen.append(world.clock.monotonic())
        worker.handle(world.core, Step(sandbox=SandboxId(sandbox)).event())

    world.bag.worker = nudged  # type: ignore[method-assign]
    assert tick.handle(world.core, Sweep(seconds=50).event()) == {"due": 1}
    assert seen == [pytest.approx(2, abs=1)]
    assert world.clock.monotonic() < 10
    assert world.status(sandbox) is Status.RUNNING


def test_a_sweep_stops_when_its_time_is_up(world: World) -> None:
    world.create()
    world.lose_messages()
    tick.handle(world.core, Sweep(seconds=50).event())
    assert world.clock.monotonic() == pytest.approx(50, abs=1)


def test_a_probe_looks_at_every_pool(world: World) -> None:
    world.pools.backend("pool")
    before = world.core.catalog.pools().views["pool"].at
    world.clock.advance(30)
    tick.handle(world.core, Probe().event())
    assert world.core.catalog.pools().views["pool"].at > before


def test_the_tick_drops_what_is_no_message(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert tick.handle(world.core, {"detail-type": "Scheduled Event"}) == {"due": 0}
    assert "message dropped" in caplog.text


def test_dispatch_messages_of_the_operations_are_ours(waiting: World) -> None:
    waiting.bag.dispatch()
    assert waiting.bag.messages == [DispatchMessage()]
