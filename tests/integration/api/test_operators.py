"""What operators decide: pools, organizations, projects, quotas and keys."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import Refuse
from differently_core.contract import Operation
from differently_core.errors import ProviderUnavailable
from differently_core.model.event import Event
from differently_core.model.record import Table
from differently_core.operations.catalog import CACHE_SECONDS, Catalog
from differently_core.runtime.ids import OrgId
from tests.support.api import Reply, Tenant, World


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


# Pools


def test_a_pool_is_registered_probed_and_shown(world: World) -> None:
    body = {
        "name": "second", "adapter": "fake", "maxConcurrency": 7, "region": "eu-central-1",
        "costModel": {"cpuHour": 0.04, "memoryGiBHour": 0.005}, "config": {"settles_seconds": 5},
    }  # fmt: skip
    made = op(world, "POST", "/v1/admin/pools", body)
    assert made.status == 201
    shown = op(world, "GET", "/v1/admin/pools/second").json()
    assert shown == made.json()
    assert shown["trust"] == "private"
    assert shown["health"]["healthy"] is True
    assert shown["costModel"] == {"cpuHour": 0.04, "memoryGiBHour": 0.005, "currency": "USD"}
    assert (shown["held"], shown["maxConcurrency"], shown["state"]) == (0, 7, "active")
    assert [pool["name"] for pool in op(world, "GET", "/v1/admin/pools").json()["items"]] == ["main", "second"]


def test_a_pool_whose_backend_is_down_is_kept_and_reported(world: World) -> None:
    world.pool("shared", config={"backend": "b"})
    backend = world.backend("shared")
    backend.expect(Operation.HEALTH, Refuse(ProviderUnavailable("no route to it", settled=True)))
    made = op(
        world,
        "POST",
        "/v1/admin/pools",
        {"name": "again", "adapter": "fake", "maxConcurrency": 1, "config": {"backend": "b"}},
    )
    assert made.status == 201
    assert made.json()["health"]["healthy"] is False
    assert "no route to it" in made.json()["health"]["message"]


def test_a_name_is_taken_once(world: World) -> None:
    again = op(world, "POST", "/v1/admin/pools", {"name": "main", "adapter": "fake", "maxConcurrency": 1})
    assert (again.status, again.code) == (409, "invalid_state")


def test_a_draining_pool_takes_nothing_new_and_can_come_back(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    drained = op(world, "POST", "/v1/admin/pools/main/drain")
    assert (drained.status, drained.json()["state"]) == (200, "draining")
    assert op(world, "POST", "/v1/admin/pools/main/drain").status == 200
    waiting = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()
    assert waiting["status"] == "queued"
    assert waiting["waitingFor"] == [{"pool": "main", "reason": "draining"}]
    assert world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token).status == 200

    assert op(world, "POST", "/v1/admin/pools/main/undrain").json()["state"] == "active"
    world.settle()
    assert op(world, "GET", "/v1/admin/pools/main").json()["held"] == 2


def test_only_an_empty_pool_goes(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    held = op(world, "DELETE", "/v1/admin/pools/main")
    assert (held.status, held.json()["error"]["details"]) == (
        409, {"pool": "main", "held": 1, "instances": 1, "starting": 0, "cleanups": 0, "snapshots": 0},
    )  # fmt: skip
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    gone = op(world, "DELETE", "/v1/admin/pools/main")
    assert (gone.status, gone.raw) == (204, b"")
    assert op(world, "GET", "/v1/admin/pools/main").status == 404
    assert op(world, "DELETE", "/v1/admin/pools/main").status == 404
    assert op(world, "POST", "/v1/admin/pools/main/drain").status == 404


def test_a_pool_made_again_under_its_name_gets_its_own_adapter(world: World) -> None:
    first = world.backend("main")
    op(world, "DELETE", "/v1/admin/pools/main")
    world.clock.advance(1)
    assert world.pool("main", config={"backend": "another"}) is not first


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"adapter": "nothing"}, "adapter"),
        ({"config": {"nothing": 1}}, "config.nothing"),
        ({"config": {"sandboxes": "many"}}, "config.sandboxes"),
        ({"name": "Upper"}, "name"),
        ({"maxConcurrency": 0}, "maxConcurrency"),
    ],
)
def test_a_pool_that_could_not_work_is_refused(world: World, change: Any, field: str) -> None:
    body = {"name": "second", "adapter": "fake", "maxConcurrency": 1, **change}
    reply = op(world, "POST", "/v1/admin/pools", body)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, field)


# Capabilities


def test_a_tenant_sees_the_pools_that_its_policies_allow_and_an_operator_all(world: World, acme: Tenant) -> None:
    world.pool("outside", trust="external")
    seen = world.call("GET", "/v1/capabilities", token=acme.token).json()["pools"]
    assert [pool["name"] for pool in seen] == ["main"]
    assert seen[0]["accepting"] is True
    assert "exec" in seen[0]["features"]
    everything = op(world, "GET", "/v1/capabilities").json()["pools"]
    assert [pool["name"] for pool in everything] == ["main", "outside"]
    op(world, "POST", "/v1/admin/pools/main/drain")
    assert world.call("GET", "/v1/capabilities", token=acme.token).json()["pools"][0]["accepting"] is False


def test_a_tenant_learns_nothing_of_a_pool_that_is_not_for_it(world: World, acme: Tenant) -> None:
    op(world, "DELETE", "/v1/admin/pools/main")
    world.pool("outside", trust="external")
    world.core.catalog.forget()
    reply = world.call("POST", "/v1/sandboxes", {}, token=acme.token)
    assert (reply.status, reply.code) == (422, "no_eligible_pool")
    assert b"outside" not in reply.raw


# Organizations, projects, quotas


def test_an_organization_gets_projects_keys_and_work(world: World) -> None:
    org = op(world, "POST", "/v1/orgs", {"name": "Research", "weight": 3, "quota": {"maxConcurrent": 5}})
    assert (org.status, org.json()["weight"]) == (201, 3)
    identity = org.json()["id"]
    assert op(world, "GET", f"/v1/orgs/{identity}").json() == org.json()
    project = op(world, "POST", f"/v1/orgs/{identity}/projects", {"name": "Agents"})
    assert (project.status, project.json()["org"]) == (201, identity)
    listed = op(world, "GET", f"/v1/orgs/{identity}/projects").json()["items"]
    assert listed == [project.json()]
    body = {"name": "staging", "scope": "tenant", "projectId": project.json()["id"]}
    key = op(world, "POST", "/v1/api-keys", body).json()
    assert (key["org"], key["project"]) == (identity, project.json()["id"])
    assert world.call("POST", "/v1/sandboxes", {}, token=key["token"]).status == 202


def test_an_organization_s_name_and_weight_can_be_changed(world: World, acme: Tenant) -> None:
    path = f"/v1/orgs/{acme.org}"
    before = op(world, "GET", path).json()
    elsewhere = Catalog(world.store, world.core.clock)
    assert elsewhere.org(OrgId(acme.org)).weight == 1

    heavier = op(world, "PATCH", path, {"weight": 7})
    assert (heavier.status, heavier.json()) == (200, {**before, "weight": 7})
    renamed = op(world, "PATCH", path, {"name": "Acme Research"}).json()
    assert renamed == {**before, "weight": 7, "name": "Acme Research"} == op(world, "GET", path).json()
    assert renamed in op(world, "GET", "/v1/orgs").json()["items"]
    assert world.core.catalog.org(OrgId(acme.org)).weight == 7

    world.clock.advance(CACHE_SECONDS)
    assert elsewhere.org(OrgId(acme.org)).weight == 7


def test_a_change_of_an_organization_is_one_version_and_one_event(world: World, acme: Tenant) -> None:
    """The same change again is none; what it admits, and whom, is told by the log."""
    version = world.core.catalog.org(OrgId(acme.org)).version
    for _ in range(2):
        assert op(world, "PATCH", f"/v1/orgs/{acme.org}", {"weight": 7, "name": "Other"}).status == 200
    assert op(world, "PATCH", f"/v1/orgs/{acme.org}", {}).json()["weight"] == 7

    assert world.core.catalog.org(OrgId(acme.org)).version == version + 1
    rows = world.store.query(Table.LOG, f"EVT#{acme.org}").rows
    (event,) = [row for row in rows if isinstance(row, Event) and row.action == "org.update"]
    assert event.actor.startswith("key_")
    assert event.details == {"weight_before": 1, "weight": 7, "renamed": True}


def test_a_change_of_an_organization_is_refused_where_it_makes_no_sense(world: World, acme: Tenant) -> None:
    path = f"/v1/orgs/{acme.org}"
    bodies: list[dict[str, Any]] = [{"weight": 0}, {"weight": 1001}, {"weight": True}, {"name": ""}, {"quota": {}}]
    for body in bodies:
        assert op(world, "PATCH", path, body).code == "invalid_request"
    assert op(world, "PATCH", "/v1/orgs/org_00000000000000000000000000", {"weight": 2}).code == "not_found"
    assert world.call("PATCH", path, {"weight": 2}, token=acme.token).code == "forbidden"
    assert op(world, "POST", f"{path}/archive").status == 202
    assert op(world, "PATCH", path, {"weight": 2}).code == "invalid_state"


def test_quotas_are_read_replaced_and_counted(world: World, acme: Tenant) -> None:
    world.running(acme, {"resources": {"cpu": 2, "memoryMiB": 1024, "diskGiB": 4}})
    for path in (f"/v1/orgs/{acme.org}/quota", f"/v1/projects/{acme.project}/quota"):
        shown = op(world, "GET", path).json()
        used = {"concurrent": 1, "cpu": 2.0, "memoryMiB": 1024, "diskGiB": 4, "snapshots": 0, "snapshotBytes": 0}
        assert shown["used"] == {**used, "queued": 0}
        assert shown["limits"]["maxConcurrent"] == 100
        assert shown["limits"]["maxCPU"] is None

        changed = {**shown["limits"], "maxConcurrent": 3, "maxCPU": 7.5, "maxTTLSeconds": 60}
        replaced = op(world, "PUT", path, changed)
        assert (replaced.status, replaced.json()["limits"]) == (200, changed)
        assert replaced.json()["used"] == shown["used"]
        assert op(world, "PUT", path, changed).json() == replaced.json()
        assert world.call("GET", path, token=acme.token).json() == replaced.json()


def test_a_raised_quota_lets_waiting_work_in(world: World, acme: Tenant) -> None:
    op(world, "PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 1})
    world.running(acme)
    waiting = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()
    world.settle()
    assert op(world, "GET", f"/v1/orgs/{acme.org}/quota").json()["waiting"] == 1
    op(world, "PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 2})
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{waiting['id']}", token=acme.token).json()["status"] == "running"
    assert op(world, "GET", f"/v1/orgs/{acme.org}/quota").json()["waiting"] == 0


def test_a_quota_below_what_is_held_ends_nothing(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    shown = op(world, "PUT", f"/v1/projects/{acme.project}/quota", {"maxConcurrent": 0}).json()
    assert (shown["limits"]["maxConcurrent"], shown["used"]["concurrent"]) == (0, 1)
    assert world.call("GET", f"/v1/sandboxes/{sandbox}", token=acme.token).json()["status"] == "running"


@pytest.mark.parametrize("name", ["org_x", "nothing", "..", "org_01JBM2Y0G4S8N6P2Q7T3V5X9ZB", "%00"])
def test_an_organization_that_is_not_there_is_404(memory: World, name: str) -> None:
    for method, tail, body in (
        ("GET", "", None), ("GET", "/quota", None), ("PUT", "/quota", {}), ("GET", "/projects", None),
        ("POST", "/projects", {"name": "x"}),
    ):  # fmt: skip
        reply = op(memory, method, f"/v1/orgs/{name}{tail}", body)
        assert (reply.status, reply.code) == (404, "not_found")


# Keys


def test_a_secret_is_shown_once_and_never_again(world: World, acme: Tenant) -> None:
    made = op(world, "POST", "/v1/api-keys", {"name": "second operator", "scope": "operator"})
    assert made.status == 201
    token = made.json()["token"]
    secret = token.rpartition("_")[2]
    assert world.call("GET", "/v1/orgs", token=token).status == 200
    identity = made.json()["id"]
    for reply in (op(world, "GET", f"/v1/api-keys/{identity}"), op(world, "GET", "/v1/api-keys")):
        assert reply.status == 200
        assert secret.encode() not in reply.raw
        assert b"digest" not in reply.raw
    listed = op(world, "GET", f"/v1/api-keys?org={acme.org}").json()["items"]
    assert [(key["name"], key["scope"]) for key in listed] == [("acme", "tenant")]


def test_a_key_expires_at_its_moment(world: World, acme: Tenant) -> None:
    body = {"name": "short", "scope": "tenant", "projectId": acme.project, "expiresAt": "2026-01-01T00:01:00Z"}
    token = op(world, "POST", "/v1/api-keys", body).json()["token"]
    world.clock.advance(59.999)
    assert world.call("GET", "/v1/sandboxes", token=token).status == 200
    world.clock.advance(0.001)
    assert world.call("GET", "/v1/sandboxes", token=token).status == 401


def test_a_revoked_key_is_refused_and_revoking_again_is_success(world: World, acme: Tenant) -> None:
    made = op(world, "POST", "/v1/api-keys", {"name": "k", "scope": "tenant", "projectId": acme.project}).json()
    first = op(world, "DELETE", f"/v1/api-keys/{made['id']}")
    assert (first.status, first.json()["revokedAt"]) == (200, "2026-01-01T00:00:00Z")
    world.clock.advance(5)
    assert op(world, "DELETE", f"/v1/api-keys/{made['id']}").json() == first.json()
    assert world.call("GET", "/v1/sandboxes", token=made["token"]).status == 401


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"scope": "tenant"}, 400, "projectId"),
        ({"scope": "operator", "projectId": "proj_x"}, 400, "projectId"),
        ({"scope": "root"}, 400, "scope"),
        ({"scope": "operator", "expiresAt": "2025-12-31T00:00:00Z"}, 400, "expiresAt"),
        ({"scope": "operator", "expiresAt": "2027-01-01T00:00:00"}, 400, "expiresAt"),
        ({"scope": "tenant", "projectId": "proj_x"}, 404, None),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(memory: World, change: Any, status: int, field: str | None) -> None:
    reply = op(memory, "POST", "/v1/api-keys", {"name": "k", **change})
    assert reply.status == status
    assert reply.json()["error"]["details"].get("field") == field
