"""Ports against time, races and lost answers: the row comes before the call and goes after the backend said so."""

from __future__ import annotations

import pytest

from differently_adapters.providers.fake import FakeAdapter, FakeBackend, LoseCall, Refuse
from differently_core.contract import Operation, Target, Unsupported
from differently_core.errors import InvalidRequest, InvalidState, ProviderUnavailable
from differently_core.model.port import OpenPort, PortStatus
from differently_core.model.sandbox import Sandbox, Status
from differently_core.operations import ports, reconcile
from differently_core.runtime.ids import SandboxId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Put
from tests.support.interruptions import Interrupted
from tests.support.world import LookAtPort, World


def running(world: World) -> SandboxId:
    sandbox = world.create()
    world.deliver_all()
    return sandbox


def expose(world: World, sandbox: SandboxId, port: int = 3000, seconds: int = 600) -> OpenPort:
    return ports.expose(world.core, world.caller, sandbox, port, seconds)[0]


def row(world: World, sandbox: SandboxId, port: int = 3000) -> OpenPort | None:
    return world.memory.get(OpenPort, OpenPort.key_of(sandbox, port))


def open_at(backend: FakeBackend) -> list[int]:
    return [port for instance in backend.instances() for port in instance.ports]


def test_the_row_is_there_before_the_backend_is_asked(world: World, backend: FakeBackend):
    sandbox = running(world)
    seen: list[OpenPort | None] = []
    backend.plan = lambda call: seen.append(row(world, sandbox)) if call.operation is Operation.PORT_EXPOSE else None

    expose(world, sandbox)

    (found,) = seen
    assert found is not None
    assert (found.status, found.due_at) == (PortStatus.OPENING, world.core.after(ports.CALL_SECONDS))


def test_a_call_that_died_is_taken_back_by_its_due_time(world: World, backend: FakeBackend):
    """The process ended between the backend's answer and our write."""
    sandbox = running(world)

    class Died(BaseException):
        pass

    def die(self: FakeAdapter, target: Target, port: int, seconds: int) -> None:
        exposed(target, port, seconds)
        raise Died

    exposed = world.pools.adapter(world.core.catalog.pool("pool")).port_expose
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeAdapter, "port_expose", die)
        with pytest.raises(Died):
            expose(world, sandbox)
    assert open_at(backend) == [3000]

    world.pass_time(ports.CALL_SECONDS - 1)
    assert open_at(backend) == [3000]
    world.pass_time(1)
    assert (open_at(backend), row(world, sandbox)) == ([], None)


def test_a_refused_call_leaves_no_row(world: World, backend: FakeBackend):
    sandbox = running(world)
    backend.expect(Operation.PORT_EXPOSE, Refuse(InvalidRequest("Port 3000 belongs to the agent.", field="port")))

    with pytest.raises(InvalidRequest):
        expose(world, sandbox)

    assert row(world, sandbox) is None


def test_a_refused_repeat_leaves_the_open_port_as_it_is(world: World, backend: FakeBackend):
    sandbox = running(world)
    expose(world, sandbox)
    backend.expect(Operation.PORT_EXPOSE, Refuse())

    with pytest.raises(ProviderUnavailable):
        expose(world, sandbox)
    world.deliver_all()

    found = row(world, sandbox)
    assert found is not None
    assert found.status is PortStatus.OPEN
    assert open_at(backend) == [3000]


def test_a_sandbox_that_stops_behind_our_back_keeps_no_port(world: World, backend: FakeBackend):
    """Nobody of ours asked for the stop, so nobody sends a message about its ports."""
    sandbox = running(world)
    expose(world, sandbox)
    for _ in range(2):
        (instance,) = backend.instances()
        instance.state = type(instance.state).STOPPED
        reconcile.reconcile(world.core, "pool")
        world.clock.advance(31)
    assert world.status(sandbox) is Status.STOPPED

    world.lose_messages()
    world.pass_time(ports.LOOK_SECONDS)

    assert (open_at(backend), row(world, sandbox)) == ([], None)


def test_leaving_running_nudges_every_port(world: World, backend: FakeBackend):
    sandbox = running(world)
    for port in (1, 2, 3):
        expose(world, sandbox, port)
    world.delete(sandbox)
    world.deliver_all()
    world.delete(sandbox)

    assert [row(world, sandbox, port) for port in (1, 2, 3)] == [None] * 3


def test_a_port_is_looked_at_twice_a_minute_and_left_alone(world: World, backend: FakeBackend):
    sandbox = running(world)
    first = expose(world, sandbox)
    ports.step(world.core, sandbox, 3000)  # a message that comes early changes nothing
    assert row(world, sandbox) == first.with_(version=2)

    world.pass_time(30)

    found = row(world, sandbox)
    assert found is not None
    assert (found.status, found.due_at) == (PortStatus.OPEN, world.core.after(30))
    assert backend.calls[Operation.PORT_REVOKE] == 0


def test_a_delete_that_comes_before_the_row_wins():
    """The row is written on condition that the sandbox still runs: no port is opened behind a delete."""
    interrupted: list[Interrupted] = []

    def wrap(memory: MemoryStore) -> Interrupted:
        interrupted.append(Interrupted(memory))
        return interrupted[0]

    world = World(wrap=wrap)
    backend = world.add_pool()
    sandbox = running(world)
    interrupted[0].before("port", lambda: world.delete(sandbox))

    with pytest.raises(InvalidState):
        expose(world, sandbox)

    assert row(world, sandbox) is None
    assert backend.calls[Operation.PORT_EXPOSE] == 0


def test_a_delete_that_comes_during_the_call_takes_the_port_back(world: World, backend: FakeBackend):
    sandbox = running(world)

    def delete(call: object) -> None:
        backend.plan = None
        world.delete(sandbox)
        ports.step(world.core, sandbox, 3000)

    backend.plan = lambda call: delete(call) if call.operation is Operation.PORT_EXPOSE else None
    with pytest.raises(InvalidState):
        expose(world, sandbox)
    world.deliver_all()
    world.pass_time(60)

    assert (row(world, sandbox), world.status(sandbox)) == (None, Status.TERMINATED)


def test_a_port_of_an_earlier_run_is_not_taken_for_one_of_this(world: World, backend: FakeBackend):
    """Stopped and started in between: the generation has risen."""
    sandbox = running(world)
    expose(world, sandbox)
    found = world.sandbox(sandbox)
    world.memory.transact([Put(found.with_(generation=found.generation + 2, version=9), (), "sandbox")])

    ports.step(world.core, sandbox, 3000)

    assert (open_at(backend), row(world, sandbox)) == ([], None)


def test_where_nothing_can_be_taken_back_the_row_stays_until_the_address_ends(
    world: World, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
):
    declared = {**FakeAdapter.operations, Operation.PORT_REVOKE: Unsupported("not_revocable")}
    monkeypatch.setattr(FakeAdapter, "operations", declared)
    sandbox = running(world)
    opened = expose(world, sandbox, seconds=100)
    world.pass_time(100)
    assert opened.expires_at == world.clock.now()

    world.pass_time(1)

    assert row(world, sandbox) is None
    assert backend.calls[Operation.PORT_REVOKE] == 0


def test_a_revocation_that_fails_is_repeated_less_and_less_often(world: World, backend: FakeBackend):
    sandbox = running(world)
    expose(world, sandbox)
    backend.plan = lambda call: LoseCall() if call.operation is Operation.PORT_REVOKE else None
    waits = []
    ports.close(world.core, world.caller, sandbox, 3000)
    for _ in range(9):
        found = row(world, sandbox)
        assert found is not None
        assert found.due_at is not None
        waits.append((found.due_at - world.clock.now()).total_seconds())
        world.pass_time(waits[-1])

    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]
    backend.plan = None
    world.pass_time(300)
    assert row(world, sandbox) is None


def test_two_looks_at_once_are_one(world: World, backend: FakeBackend):
    sandbox = running(world)
    expose(world, sandbox)
    world.delete(sandbox)
    world.bag.messages += [LookAtPort(sandbox, 3000)] * 2
    world.deliver_all()

    assert row(world, sandbox) is None
    assert world.memory.get(Sandbox, Sandbox.key_of(sandbox)) is not None
