"""Changing, trying and removing pools: checked whole before anything is written, and nothing is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter
from differently_core.model.pool import Pool
from differently_core.model.quota import Counter, Scope
from differently_core.model.record import Table
from differently_core.operations import pools
from differently_core.store.ports import Put, Update
from tests.support.api import Reply, Tenant, World


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def patch(world: World, body: Any, name: str = "main", query: str = "") -> Reply:
    return op(world, "PATCH", f"/v1/admin/pools/{name}{query}", body)


def stored(world: World, name: str = "main") -> Pool:
    return pools.detail(world.core, name).pool


def refusal(reply: Reply) -> tuple[int, dict[str, Any]]:
    return reply.status, reply.json()["error"]["details"]


# Change


def test_what_is_given_changes_and_the_rest_stays(world: World) -> None:
    before = op(world, "GET", "/v1/admin/pools/main").json()
    changed = patch(world, {"region": "eu-central-1", "maxConcurrency": 7, "costModel": {"cpuHour": 0.5}})
    assert changed.status == 200
    shown = changed.json()
    assert (shown["region"], shown["maxConcurrency"], shown["costModel"]["cpuHour"]) == ("eu-central-1", 7, 0.5)
    assert (shown["generation"], shown["fingerprint"]) == (before["generation"] + 1, before["fingerprint"])
    assert patch(world, {"region": None}).json().get("region") is None
    assert patch(world, {}).json()["generation"] == before["generation"] + 2, "nothing to change is no change"


def test_the_room_follows_and_what_is_held_stays_counted(world: World, acme: Tenant) -> None:
    world.running(acme)
    assert patch(world, {"maxConcurrency": 1}).json()["held"] == 1
    waiting = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{waiting['id']}", token=acme.token).json()["status"] == "queued"
    patch(world, {"maxConcurrency": 2})
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{waiting['id']}", token=acme.token).json()["status"] == "running"
    assert op(world, "GET", "/v1/admin/pools/main").json()["held"] == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"config": {"nothing": 1}}, "config.nothing"),
        ({"config": {"sandboxes": "many"}}, "config.sandboxes"),
        ({"config": None}, "config"),
        ({"maxConcurrency": 0}, "maxConcurrency"),
        ({"maxConcurrency": None}, "maxConcurrency"),
        ({"adapter": "devhost"}, "adapter"),
        ({"trust": "external"}, "trust"),
        ({"name": "other"}, "name"),
        ({"credential": "secret:none"}, "credential"),
        ({"credential": "canary-a-key"}, "credential"),
    ],
)
def test_a_change_that_cannot_work_leaves_everything_as_it_was(world: World, body: Any, field: str) -> None:
    before = stored(world)
    reply = patch(world, {"region": "elsewhere", **body})
    status, details = refusal(reply)
    assert (status, details["field"]) == (400, field)
    assert b"canary" not in reply.raw
    assert stored(world) == before


def test_a_change_is_tried_against_the_backend_unless_told_otherwise(world: World) -> None:
    world.backend("main").up = False
    before = stored(world)
    assert refusal(patch(world, {"config": {"settles_seconds": 5}}))[1]["reason"] == "not_verified"
    assert stored(world) == before
    assert patch(world, {"config": {"settles_seconds": 5}}, query="?verify=false").status == 200
    assert stored(world).config == {"settles_seconds": 5}


def test_a_pool_leads_elsewhere_only_when_it_holds_nothing(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    elsewhere = {"config": {"backend": "elsewhere"}}
    for query in ("", "?verify=false"):
        assert refusal(patch(world, elsewhere, query=query)) == (409, {"pool": "main", "reason": "another_backend"})
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    before = op(world, "GET", "/v1/admin/pools/main").json()["fingerprint"]
    assert patch(world, elsewhere).json()["fingerprint"] != before


def test_a_dry_run_checks_everything_and_writes_nothing(world: World) -> None:
    before = world.call("GET", "/v1/admin/pools/main", token=world.operator).json()
    dry = patch(world, {"maxConcurrency": 3, "config": {"settles_seconds": 5}}, query="?dryRun=true")
    assert (dry.status, dry.json()["maxConcurrency"]) == (200, 3)
    assert op(world, "GET", "/v1/admin/pools/main").json() == before
    assert refusal(patch(world, {"config": {"x": 1}}, query="?dryRun=true"))[0] == 400

    body = {"name": "new", "adapter": "fake", "maxConcurrency": 1}
    made = op(world, "POST", "/v1/admin/pools?dryRun=true", body)
    assert (made.status, made.json()["name"]) == (200, "new")
    assert op(world, "GET", "/v1/admin/pools/new").status == 404
    assert refusal(op(world, "POST", "/v1/admin/pools?dryRun=true", {**body, "config": {"x": 1}}))[0] == 400


def test_a_changed_pool_gets_its_adapter_in_place_and_keeps_what_runs(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    before = world.backends.adapter(stored(world))
    patch(world, {"config": {"settles_seconds": 5}})
    after = world.backends.adapter(stored(world))
    assert isinstance(after, FakeAdapter)
    assert after is not before
    said = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token)
    assert said.status == 200


def test_a_pool_gets_loses_and_changes_its_secret(world: World) -> None:
    def users(name: str) -> int:
        return int(op(world, "GET", f"/v1/admin/secrets/{name}").json()["pools"])

    for name in ("one", "two"):
        op(world, "PUT", f"/v1/admin/secrets/{name}", {"fields": {"token": f"canary-{name}"}})
    assert patch(world, {"credential": "secret:one"}).json()["credential"] == "secret:one"
    assert (users("one"), users("two")) == (1, 0)
    world.backend("main").token = "canary-two"
    assert patch(world, {"credential": "secret:two"}).status == 200
    assert (users("one"), users("two")) == (0, 1)
    assert refusal(patch(world, {"credential": "secret:one"}))[1]["reason"] == "not_verified"
    assert (users("one"), users("two")) == (0, 1)
    assert patch(world, {"credential": None}, query="?verify=false").json().get("credential") is None
    assert (users("one"), users("two")) == (0, 0)


# Use, verify, discover


def test_use_sends_what_is_new_to_one_pool_and_drains_the_others(world: World, acme: Tenant) -> None:
    """features.md 2 #11"""
    world.pool("second")
    old = world.running(acme, {"placement": {"allowedPools": ["main"]}})
    bodies: tuple[dict[str, bool] | None, ...] = ({}, None)
    for body in bodies:
        used = op(world, "POST", "/v1/admin/pools/second/use", body)
        assert used.status == 200
        states = {pool["name"]: pool["state"] for pool in used.json()["items"]}
        assert states == {"main": "draining", "second": "active"}
    new = world.running(acme)
    assert world.call("GET", f"/v1/sandboxes/{new}", token=acme.token).json()["pool"] == "second"
    assert world.call("POST", f"/v1/sandboxes/{old}/exec", {"command": "x"}, token=acme.token).status == 200


def test_an_external_pool_is_used_only_when_that_is_said(world: World) -> None:
    """features.md 2 #11: use on an external pool needs approval."""
    world.pool("outside", trust="external")
    refused = op(world, "POST", "/v1/admin/pools/outside/use", {})
    assert refusal(refused) == (400, {"field": "approveExternal", "pool": "outside"})
    assert stored(world).state == "active"
    approved = op(world, "POST", "/v1/admin/pools/outside/use", {"approveExternal": True})
    assert {pool["name"]: pool["state"] for pool in approved.json()["items"]} == {
        "main": "draining", "outside": "active",
    }  # fmt: skip


def test_a_pool_that_does_not_answer_is_not_used(world: World) -> None:
    """Every healthy pool was drained for one whose backend was not there."""
    world.pool("second")
    world.backend("second").up = False
    refused = op(world, "POST", "/v1/admin/pools/second/use", {})
    assert refusal(refused) == (409, {"pool": "second", "reason": "unhealthy"})
    assert stored(world).state == "active"


def test_a_pool_can_be_tried_and_asked_what_it_offers(world: World) -> None:
    assert op(world, "POST", "/v1/admin/pools/main/verify").json() == {"pool": "main", "verified": True}
    offered = op(world, "GET", "/v1/admin/pools/main/discover").json()
    assert offered == {"templates": {"base": "An empty machine."}, "regions": {"here": "In this process."}}
    world.backend("main").token = "another"
    assert refusal(op(world, "POST", "/v1/admin/pools/main/verify")) == (
        409, {"pool": "main", "reason": "not_verified"},
    )  # fmt: skip
    assert op(world, "GET", "/v1/admin/pools/main/discover").status == 503


# Remove


def test_a_pool_with_a_stopped_sandbox_is_not_removed(world: World, acme: Tenant) -> None:
    """A sandbox at rest holds no slot, and its disk lies there all the same."""
    sandbox = world.running(acme)
    world.call("POST", f"/v1/sandboxes/{sandbox}/stop", token=acme.token)
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{sandbox}", token=acme.token).json()["status"] == "stopped"
    counts = refusal(op(world, "DELETE", "/v1/admin/pools/main"))
    assert counts == (409, {"pool": "main", "held": 0, "instances": 1, "starting": 0, "cleanups": 0, "snapshots": 0})
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    assert op(world, "DELETE", "/v1/admin/pools/main").status == 204


def test_a_cleanup_that_is_not_finished_keeps_the_pool(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.backend("main").up = False
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    status, counts = refusal(op(world, "DELETE", "/v1/admin/pools/main"))
    assert (status, counts["held"]) == (409, 1)


def test_force_lets_go_of_what_a_vanished_kind_holds(world: World, acme: Tenant) -> None:
    """features.md 3 E0.22: without its kind nothing there can be reached, and terminations would repeat for ever."""
    running, ending, queued = world.running(acme), world.running(acme), None
    world.core.store.transact(
        [Put(stored(world).with_(adapter="vanished", version=stored(world).version + 1), (), "pool")]
    )
    world.core.catalog.forget()
    world.call("DELETE", f"/v1/sandboxes/{ending}", token=acme.token)
    queued = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()["id"]
    world.settle()
    assert op(world, "DELETE", "/v1/admin/pools/main").status == 409

    for _ in range(3):
        gone = op(world, "DELETE", "/v1/admin/pools/main?force=true")
        world.settle()
        if gone.status == 204:
            break
        world.pass_time(60)
    assert gone.status == 204
    assert op(world, "GET", "/v1/admin/pools/main").status == 404
    ends = {one: world.call("GET", f"/v1/sandboxes/{one}", token=acme.token).json() for one in (running, ending)}
    assert (ends[running]["status"], ends[running]["statusReason"]["code"]) == ("failed", "pool_removed")
    assert ends[ending]["status"] == "terminated"
    quota = op(world, "GET", f"/v1/orgs/{acme.org}/quota").json()
    still = world.call("GET", f"/v1/sandboxes/{queued}", token=acme.token).json()["status"]
    assert quota["used"]["concurrent"] == (0 if still in {"queued", "failed"} else 1)


def test_snapshots_keep_their_pool_and_are_let_go_by_force(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    taken = world.call("POST", f"/v1/sandboxes/{sandbox}/snapshots", {}, token=acme.token)
    world.settle()
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    status, counts = refusal(op(world, "DELETE", "/v1/admin/pools/main"))
    assert (status, counts["instances"], counts["snapshots"]) == (409, 0, 1)
    assert op(world, "DELETE", "/v1/admin/pools/main?force=true").status == 204
    shown = world.call("GET", f"/v1/snapshots/{taken.json()['id']}", token=acme.token).json()
    assert (shown["status"], shown["statusReason"]["code"]) == ("broken", "pool_removed")


def test_letting_go_is_written_down_with_who_asked(memory: World) -> None:
    tenant = memory.tenant()
    memory.running(tenant)
    assert op(memory, "DELETE", "/v1/admin/pools/main?force=true").status == 204
    events = [row for slot, row in memory.store.rows().items() if slot[0] is Table.LOG]  # type: ignore[attr-defined]
    told = {event.action: event for event in events}
    assert told["pool.force_release"].details == {
        "slots": 1,
        "instances": 1,
        "starting": 0,
        "cleanups": 0,
        "snapshots": 0,
    }
    assert told["pool.force_release"].actor.startswith("key_")
    assert told["pool.delete"].details == {"forced": True}
    assert told["sandbox.failed"].actor == told["pool.delete"].actor


def test_what_was_let_go_is_removed_when_its_pool_comes_back(memory: World) -> None:
    """It still runs there; under the same installation the reconciler knows it as an orphan."""
    tenant = memory.tenant()
    memory.pool("second", config={"backend": "b"})
    memory.running(tenant, {"placement": {"allowedPools": ["second"]}})
    backend = memory.backend("second")
    assert op(memory, "DELETE", "/v1/admin/pools/second?force=true").status == 204
    assert len(backend.instances()) == 1
    memory.clock.advance(1)
    memory.pool("second", config={"backend": "b"})
    for _ in range(3):
        op(memory, "POST", "/v1/admin/reconcile", {"pool": "second"})
        memory.clock.advance(60)
    assert backend.instances() == []


# Kinds


def test_a_stored_pool_of_a_kind_that_is_not_built_stays_listed_with_the_reason(world: World) -> None:
    """features.md 2 #83"""
    pool = stored(world).with_(name="old", adapter="vanished")
    world.core.store.transact([Put(pool, (), "pool")])
    world.core.catalog.forget()
    pools.probe_all(world.core)
    shown = {entry["name"]: entry for entry in op(world, "GET", "/v1/admin/pools").json()["items"]}
    assert shown["old"]["health"]["healthy"] is False
    assert "There is no adapter kind 'vanished'" in shown["old"]["health"]["message"]
    assert "fingerprint" not in shown["old"]
    assert shown["main"]["health"]["healthy"] is True
    made = op(world, "POST", "/v1/admin/pools", {"name": "new", "adapter": "vanished", "maxConcurrency": 1})
    assert refusal(made) == (400, {"field": "adapter"})
    assert patch(world, {"region": "somewhere"}, name="old").status == 200
    assert refusal(patch(world, {"config": {"a": 1}}, name="old"))[1]["field"] == "adapter"
    assert op(world, "DELETE", "/v1/admin/pools/old").status == 204


def test_every_kind_says_what_it_asks_for(memory: World) -> None:
    kinds = {kind["kind"]: kind for kind in op(memory, "GET", "/v1/admin/adapter-kinds").json()["items"]}
    assert {"devhost", "fake", "opensandbox", "remote"} <= set(kinds)
    sandbox = kinds["opensandbox"]
    assert sandbox["credential"] == {"need": "optional", "fields": ["api_key"]}
    assert "api_key" not in str(sandbox["config"]["properties"])
    assert {"apiUrl", "runtime"} <= set(sandbox["config"]["properties"])
    assert sandbox["identity"] == ["apiUrl"]
    assert sandbox["trust"] == "operator_declares"
    assert op(memory, "GET", "/v1/admin/adapter-kinds/opensandbox").json() == sandbox
    assert kinds["devhost"]["unsupported"]["verify_credential"] == "no_credential"
    assert op(memory, "GET", "/v1/admin/adapter-kinds/none").status == 404


def test_what_it_keeps_without_running_is_bounded_and_told(world: World, acme: Tenant) -> None:
    kept, other = world.running(acme), world.running(acme)
    assert patch(world, {"maxRetained": 1}).json()["maxRetained"] == 1
    assert world.call("POST", f"/v1/sandboxes/{kept}/stop", token=acme.token).status == 202
    assert op(world, "GET", "/v1/admin/pools/main").json()["retained"] == 1
    refused = world.call("POST", f"/v1/sandboxes/{other}/pause", token=acme.token)
    bound = {"scope": "pool", "resource": "retained", "limit": 1, "held": 1}
    assert refusal(refused) == (429, bound)
    assert "maxRetained" not in patch(world, {"maxRetained": None}).json()
    assert world.call("POST", f"/v1/sandboxes/{other}/pause", token=acme.token).status == 202
    assert patch(world, {"maxRetained": -1}).status == 400


def test_what_it_holds_is_counted_again_and_put_right(world: World, acme: Tenant) -> None:
    world.running(acme)
    right = op(world, "POST", "/v1/admin/pools/main/repair", {}).json()
    assert (right["held"]["slots"], right["drift"]["slots"], right["repaired"]) == (1, 0, False)
    key = Counter.key_of(Scope.POOL, "main")
    world.store.transact([Update(Counter, key, "counter", add={"free_sandboxes": -2, "moves": 1})])
    looked = op(world, "POST", "/v1/admin/pools/main/repair", {"dryRun": True}).json()
    assert (looked["drift"]["slots"], looked["repaired"]) == (2, False)
    assert op(world, "POST", "/v1/admin/pools/main/repair", {}).json() == {**looked, "repaired": True}
    assert op(world, "GET", "/v1/admin/pools/main").json()["held"] == 1
    assert op(world, "POST", "/v1/admin/pools/nowhere/repair", {}).status == 404
