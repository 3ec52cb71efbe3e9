"""The lines that metrics are read from: how long moves take, what becomes of snapshots, and what ports do."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from differently_adapters.providers.fake import FakeBackend, Refuse
from differently_core.contract import InstanceState, Operation
from differently_core.errors import SandboxFailed
from differently_core.model.sandbox import MoveKind, Status
from differently_core.operations import moves, pools, ports, reconcile, snapshots
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.runtime.ids import SandboxId
from tests.support.world import World


@pytest.fixture(autouse=True)
def _told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, "differently_core"):
        yield


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, object]]:
    return [vars(record) for record in caplog.records if record.msg == message]


def running(world: World) -> SandboxId:
    sandbox = world.create()
    world.deliver_all()
    assert world.status(sandbox) is Status.RUNNING
    return sandbox


def test_a_finished_pause_tells_how_long_it_took_and_for_which_pool(world: World, caplog: pytest.LogCaptureFixture):
    """features.md 1, Metrics: finished pauses only, and not those that a backend makes by itself."""
    backend = world.add_pool(backend=FakeBackend(world.clock, move_seconds=90.0))
    sandbox = running(world)
    moves.ask(world.core, world.caller, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    assert not lines(caplog, "move finished"), "it has not finished"
    for _ in range(5):
        world.pass_time(30.0)
    (told,) = lines(caplog, "move finished")
    assert (told["pool"], told["kind"]) == ("pool", "pause")
    assert 90 <= float(str(told["seconds"])) <= 130

    backend.move_seconds = 0.0
    moves.ask(world.core, world.caller, sandbox, MoveKind.RESUME)
    world.deliver_all()
    assert [entry["kind"] for entry in lines(caplog, "move finished")] == ["pause", "resume"]
    backend.expect(Operation.PAUSE, Refuse(SandboxFailed("It cannot be done.", settled=True)))
    moves.ask(world.core, world.caller, sandbox, MoveKind.PAUSE)
    world.deliver_all()
    backend.instances()[0].state = InstanceState.PAUSED
    for _ in range(3):
        world.clock.advance(60.0)
        reconcile.reconcile_all(world.core)
    assert world.status(sandbox) is Status.PAUSED
    assert len(lines(caplog, "move finished")) == 2, "neither a refused pause nor one of the backend's own counts"


def test_a_snapshot_tells_what_became_of_it(world: World, caplog: pytest.LogCaptureFixture):
    backend = world.add_pool(backend=FakeBackend(world.clock))
    sandbox = running(world)
    snapshots.take(world.core, world.caller, sandbox, TakeSnapshot())
    world.deliver_all()
    (taken,) = lines(caplog, "snapshot taken")
    assert (taken["pool"], taken["seconds"]) == ("pool", 0.0)
    assert isinstance(taken["bytes"], int)
    backend.expect(Operation.SNAPSHOT, Refuse(SandboxFailed("It cannot be captured.", settled=True)))
    snapshots.take(world.core, world.caller, sandbox, TakeSnapshot())
    world.deliver_all()
    (failed,) = lines(caplog, "snapshot failed")
    assert (failed["pool"], failed["why"]) == ("pool", "sandbox_failed")


def test_an_opened_port_and_one_that_is_not_taken_back_are_told(world: World, caplog: pytest.LogCaptureFixture):
    backend = world.add_pool(backend=FakeBackend(world.clock))
    sandbox = running(world)
    ports.expose(world.core, world.caller, sandbox, 80, 600)
    assert [entry["pool"] for entry in lines(caplog, "port opened")] == ["pool"]
    backend.expect(Operation.PORT_REVOKE, Refuse())
    ports.close(world.core, world.caller, sandbox, 80)
    world.deliver_all()
    assert [entry["pool"] for entry in lines(caplog, "port not taken back yet")] == ["pool"]


def test_a_probe_tells_what_the_pool_holds_and_keeps(world: World, caplog: pytest.LogCaptureFixture):
    world.add_pool(backend=FakeBackend(world.clock))
    running(world)
    moves.ask(world.core, world.caller, running(world), MoveKind.STOP)
    world.deliver_all()
    caplog.clear()
    pools.probe_all(world.core)
    (told,) = lines(caplog, "pool probed")
    assert (told["pool"], told["held"], told["retained"]) == ("pool", 1, 1)
