"""A quota is counted again against what is really held, while others create and delete (users/reports.md 1 S6)."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import Refuse
from differently_core.contract import Operation
from differently_core.errors import ProviderUnavailable
from differently_core.model.quota import Counter, Scope
from differently_core.model.record import Table
from differently_core.model.resources import Size
from differently_core.model.snapshot import SnapshotTally, snapshot_list
from differently_core.operations import accounts, recount, retally
from differently_core.store.ports import Committed, Delete, Page, Put, Update
from tests.support.api import BOOT, Reply, Tenant, World

ZERO = {"concurrent": 0, "cpu": 0.0, "memoryMiB": 0, "diskGiB": 0, "snapshots": 0, "snapshotBytes": 0, "queued": 0}
ONE = {**ZERO, "concurrent": 1, "cpu": 1.0, "memoryMiB": 512}
SIZE: dict[str, Any] = {"resources": {"cpu": 1, "memoryMiB": 512, "diskGiB": 0}}


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def paths(tenant: Tenant) -> tuple[str, str]:
    return f"/v1/orgs/{tenant.org}/quota", f"/v1/projects/{tenant.project}/quota"


def lose(world: World, tenant: Tenant, amount: Size) -> None:
    """What a fault of ours, or a table put back from a backup, would leave: tokens that nobody holds."""
    outcome = world.store.transact(
        [accounts.take(Scope.ORG, tenant.org, amount), accounts.take(Scope.PROJECT, tenant.project, amount)]
    )
    assert isinstance(outcome, Committed)


def indexes(world: World, tenant: Tenant) -> dict[str, Page]:
    """The lists of a project as they are now."""
    names = (f"LIVE#{tenant.project}", f"GONE#{tenant.project}", snapshot_list(tenant.project))
    return {name: world.store.query_list(name) for name in names}


def test_a_right_counter_has_no_drift_and_is_left_alone(world: World, acme: Tenant) -> None:
    world.running(acme, SIZE)
    for path in paths(acme):
        before = op(world, "GET", path).json()
        assert op(world, "POST", f"{path}/repair", {}).json() == {"held": ONE, "drift": ZERO, "repaired": False}
        assert op(world, "GET", path).json() == before


def test_tokens_that_nobody_holds_come_back(world: World, acme: Tenant) -> None:
    world.running(acme, SIZE)
    lose(world, acme, Size(sandboxes=2, memory_mib=64))
    drift = {**ZERO, "concurrent": 2, "memoryMiB": 64}
    for path in paths(acme):
        looked = op(world, "POST", f"{path}/repair", {"dryRun": True}).json()
        assert looked == {"held": ONE, "drift": drift, "repaired": False}
        assert op(world, "POST", f"{path}/repair", {}).json() == {**looked, "repaired": True}
        assert op(world, "GET", path).json()["used"] == ONE
        assert op(world, "POST", f"{path}/repair", {}).json()["drift"] == ZERO


def test_a_counter_that_let_too_much_in_is_charged(world: World, acme: Tenant) -> None:
    world.running(acme, SIZE)
    key = Counter.key_of(Scope.ORG, acme.org)
    world.store.transact([Update(Counter, key, "counter", add={"free_sandboxes": 1, "moves": 1})])
    done = op(world, "POST", f"{paths(acme)[0]}/repair", {}).json()
    assert (done["drift"]["concurrent"], done["repaired"]) == (-1, True)
    assert op(world, "GET", paths(acme)[0]).json()["used"]["concurrent"] == 1


def test_what_is_going_is_held_until_it_is_gone_and_what_waits_holds_nothing(world: World, acme: Tenant) -> None:
    op(world, "PUT", paths(acme)[0], {"maxConcurrent": 1})
    going = world.running(acme, SIZE)
    world.call("POST", "/v1/sandboxes", SIZE, token=acme.token)
    world.call("DELETE", f"/v1/sandboxes/{going}", token=acme.token)
    assert op(world, "POST", f"{paths(acme)[0]}/repair", {}).json() == {"held": ONE, "drift": ZERO, "repaired": False}


def test_a_counter_that_is_gone_is_made_again(world: World, acme: Tenant) -> None:
    world.running(acme, SIZE)
    world.store.transact([Delete(Counter, Counter.key_of(Scope.PROJECT, acme.project), "counter")])
    path = paths(acme)[1]
    assert op(world, "POST", f"{path}/repair", {"dryRun": True}).status == 409
    assert op(world, "POST", f"{path}/repair", {}).json()["repaired"] is True
    assert op(world, "GET", path).json()["used"] == ONE
    assert world.call("POST", "/v1/sandboxes", SIZE, token=acme.token).status == 202


def test_it_is_exact_while_others_come_and_go(world: World, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every read of the recount somebody creates or deletes, until it comes too late to disturb it."""
    lose(world, acme, Size(sandboxes=3))
    running = [world.running(acme, SIZE) for _ in range(4)]
    turns = iter(range(8))
    read = recount._refresh

    def disturbed(*arguments: Any) -> None:
        read(*arguments)
        turn = next(turns, None)
        if turn is not None and turn % 2:
            world.call("POST", "/v1/sandboxes", SIZE, token=acme.token)
        elif turn is not None and running:
            world.call("DELETE", f"/v1/sandboxes/{running.pop()}", token=acme.token)
            world.settle()

    monkeypatch.setattr(recount, "_refresh", disturbed)
    done = op(world, "POST", f"{paths(acme)[0]}/repair", {}).json()
    assert (done["drift"]["concurrent"], done["repaired"]) == (3, True)
    world.settle()
    held = len(world.call("GET", "/v1/sandboxes?limit=100", token=acme.token).json()["items"])
    assert op(world, "GET", paths(acme)[0]).json()["used"]["concurrent"] == held == 4


def test_an_index_that_lags_leads_to_no_wrong_count(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list index may miss what was made, and show what was given back, seconds ago (reliability.md 3, F5)."""
    acme = memory.tenant("acme")
    gone, stays = memory.running(acme, SIZE), memory.running(acme, SIZE)
    old = indexes(memory, acme)
    memory.call("DELETE", f"/v1/sandboxes/{gone}", token=acme.token)
    memory.settle()
    memory.running(acme, SIZE)
    monkeypatch.setattr(memory.store, "query_list", lambda pk, **_: old[pk])
    done = op(memory, "POST", f"{paths(acme)[0]}/repair", {}).json()
    assert (done["held"]["concurrent"], done["drift"]) == (2, ZERO)
    assert stays


def test_a_counter_that_never_stands_still_is_not_guessed(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    acme = memory.tenant("acme")
    read = recount._refresh

    def busy(*arguments: Any) -> None:
        read(*arguments)
        lose(memory, acme, Size(sandboxes=1))

    monkeypatch.setattr(recount, "_refresh", busy)
    reply = op(memory, "POST", f"{paths(acme)[0]}/repair", {})
    assert (reply.status, reply.code) == (503, "provider_unavailable")


def test_a_correction_is_logged_with_who_asked(world: World, acme: Tenant) -> None:
    lose(world, acme, Size(sandboxes=1))
    op(world, "POST", f"{paths(acme)[0]}/repair", {})
    rows = world.store.query(Table.LOG, f"EVT#{acme.org}").rows
    (event,) = [row for row in rows if row.action == "quota.recount"]  # type: ignore[attr-defined]
    assert event.actor.startswith("key_")  # type: ignore[attr-defined]
    assert event.details["drift_sandboxes"] == 1  # type: ignore[attr-defined]


def test_a_counter_from_before_moves_were_counted_is_corrected(memory: World) -> None:
    acme = memory.tenant("acme")
    found = memory.store.get(Counter, Counter.key_of(Scope.ORG, acme.org))
    assert found is not None
    assert found.moves == 0
    memory.store.transact([Put(found.with_(free_sandboxes=1), (), "counter")])
    assert recount.recount(memory.core, BOOT, acme.org, None).corrected  # type: ignore[arg-type]


def test_what_a_backend_will_not_delete_is_not_held_by_its_tenant(memory: World) -> None:
    """Its quota came back with the first failed delete, in a write that the log tells of."""
    acme = memory.tenant("acme")
    stuck = memory.running(acme, SIZE)
    old = indexes(memory, acme)
    memory.backend("main").expect(Operation.DELETE, Refuse(ProviderUnavailable("not now", settled=True)))
    memory.call("DELETE", f"/v1/sandboxes/{stuck}", token=acme.token)
    memory.settle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory.store, "query_list", lambda pk, **_: old[pk])
        done = op(memory, "POST", f"{paths(acme)[0]}/repair", {}).json()
    assert done == {"held": ZERO, "drift": ZERO, "repaired": False}


def snapped(world: World, tenant: Tenant, sandbox: str) -> str:
    reply = world.call("POST", f"/v1/sandboxes/{sandbox}/snapshots", {}, token=tenant.token)
    assert reply.status == 202, reply.raw
    world.settle()
    return str(reply.json()["id"])


def drift_tallies(world: World, tenant: Tenant, count: int, amount: int) -> None:
    for scope, name in ((Scope.ORG, tenant.org), (Scope.PROJECT, tenant.project)):
        key = SnapshotTally.key_of(scope, name)
        outcome = world.store.transact([Update(SnapshotTally, key, "tally", add={"count": count, "bytes": amount})])
        assert isinstance(outcome, Committed)


def test_snapshots_are_counted_again_too(world: World, acme: Tenant) -> None:
    """What a table put back from a backup would leave: tallies of snapshots that are not there, or too low."""
    sandbox = world.running(acme, SIZE)
    world.call("PUT", f"/v1/sandboxes/{sandbox}/files/content?path=a", b"12345", token=acme.token)
    snapped(world, acme, sandbox)
    held = op(world, "GET", paths(acme)[0]).json()["used"]
    assert held["snapshots"] == 1
    assert held["snapshotBytes"] > 0
    for count, amount in ((2, 7), (-1, -3)):
        drift_tallies(world, acme, count, amount)
        for path in paths(acme):
            looked = op(world, "POST", f"{path}/repair", {"dryRun": True}).json()
            assert looked["held"] == held
            assert looked["drift"] == {**ZERO, "snapshots": count, "snapshotBytes": amount}
            assert looked["repaired"] is False
            assert op(world, "POST", f"{path}/repair", {}).json() == {**looked, "repaired": True}
            assert op(world, "GET", path).json()["used"] == held
            assert op(world, "POST", f"{path}/repair", {}).json()["drift"] == ZERO


def test_a_tally_that_is_gone_is_made_again(world: World, acme: Tenant) -> None:
    snapped(world, acme, world.running(acme, SIZE))
    world.store.transact([Delete(SnapshotTally, SnapshotTally.key_of(Scope.PROJECT, acme.project), "tally")])
    path = paths(acme)[1]
    done = op(world, "POST", f"{path}/repair", {}).json()
    assert (done["drift"]["snapshots"], done["repaired"]) == (-1, True)
    assert op(world, "GET", path).json()["used"]["snapshots"] == 1


def test_snapshots_are_exact_while_others_come_and_go(
    world: World, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the tally and the rows somebody takes or deletes one, until it comes too late to disturb it."""
    sandbox = world.running(acme, SIZE)
    there = [snapped(world, acme, sandbox) for _ in range(2)]
    drift_tallies(world, acme, 3, 0)
    turns = iter(range(4))
    read = retally._kept

    def disturbed(*arguments: Any) -> retally.Kept:
        kept = read(*arguments)
        turn = next(turns, None)
        if turn is not None and turn % 2:
            world.call("DELETE", f"/v1/snapshots/{there.pop()}", token=acme.token)
            world.settle()
        elif turn is not None:
            snapped(world, acme, sandbox)
        return kept

    monkeypatch.setattr(retally, "_kept", disturbed)
    done = op(world, "POST", f"{paths(acme)[0]}/repair", {}).json()
    assert (done["held"]["snapshots"], done["drift"]["snapshots"], done["repaired"]) == (2, 3, True)
    assert op(world, "GET", paths(acme)[0]).json()["used"]["snapshots"] == 2


def test_an_index_of_snapshots_that_lags_leads_to_no_wrong_count(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may miss what was taken and show what was removed, seconds ago."""
    acme = memory.tenant("acme")
    sandbox = memory.running(acme, SIZE)
    gone = snapped(memory, acme, sandbox)
    snapped(memory, acme, sandbox)
    old = indexes(memory, acme)
    memory.call("DELETE", f"/v1/snapshots/{gone}", token=acme.token)
    memory.settle()
    snapped(memory, acme, sandbox)
    snapped(memory, acme, sandbox)
    monkeypatch.setattr(memory.store, "query_list", lambda pk, **_: old[pk])
    done = op(memory, "POST", f"{paths(acme)[0]}/repair", {}).json()
    assert (done["held"]["snapshots"], done["drift"]) == (3, ZERO)
