"""Templates and profiles: what creates start from, changed by operators and used by everybody."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.operations import pools
from differently_core.store.ports import Put
from tests.support.api import Reply, Tenant, World


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def put(world: World, path: str, body: Any) -> Any:
    reply = op(world, "PUT", path, body)
    assert reply.status in (200, 201), reply.raw
    return reply.json()


def create(world: World, tenant: Tenant, **body: Any) -> Reply:
    return world.call("POST", "/v1/sandboxes", body, token=tenant.token)


def images_asked(world: World, pool: str) -> list[str | None]:
    return [instance.image for instance in world.backend(pool).instances()]


# Templates


def test_a_template_is_made_replaced_listed_and_removed(world: World, acme: Tenant) -> None:
    body = {"images": {"main": "registry/py:3"}, "resources": {"cpu": 2, "memoryMiB": 1024, "diskGiB": 4}}
    made = op(world, "PUT", "/v1/templates/python", body)
    assert (made.status, made.json()["version"]) == (201, 1)
    again = op(world, "PUT", "/v1/templates/python", body)
    assert (again.status, again.json()) == (200, made.json())
    stale = op(world, "PUT", "/v1/templates/python", {**body, "images": {}, "version": 0})
    assert (stale.status, stale.code) == (409, "invalid_state")
    changed = put(world, "/v1/templates/python", {**body, "images": {}, "version": 1})
    assert (changed["version"], changed["images"]) == (2, {})
    for token in (acme.token, world.operator):
        assert world.call("GET", "/v1/templates/python", token=token).json() == changed
        listed = world.call("GET", "/v1/templates", token=token).json()["items"]
        assert [template["name"] for template in listed] == ["default", "python"]
    for _ in range(2):
        assert op(world, "DELETE", "/v1/templates/python").status == 204
    assert op(world, "GET", "/v1/templates/python").status == 404
    assert op(world, "DELETE", "/v1/templates/default").code == "invalid_state"


def test_a_template_gives_size_and_image_and_names_its_pools(world: World, acme: Tenant) -> None:
    """features.md 1, #10: only pools in its images are candidates."""
    world.pool("second")
    put(world, "/v1/templates/python", {"images": {"second": "registry/py:3"}, "resources": {"memoryMiB": 2048}})
    made = create(world, acme, template="python").json()
    assert (made["pool"], made["resources"]) == ("second", {"cpu": 1.0, "memoryMiB": 2048, "diskGiB": 1})
    world.settle()
    assert images_asked(world, "second") == ["registry/py:3"]
    assert create(world, acme, template="python", placement={"allowedPools": ["main"]}).code == "no_eligible_pool"


def test_an_image_of_ones_own_leads_to_every_pool_that_takes_any(world: World, acme: Tenant) -> None:
    """features.md 3: the per-request image is not hidden behind a template."""
    put(world, "/v1/templates/python", {"images": {"second": "registry/py:3"}})
    body: dict[str, Any] = {"template": "python", "placement": {"allowedPools": ["main"]}}
    assert create(world, acme, **body).code == "no_eligible_pool"
    assert create(world, acme, **body, image="registry/mine:1").json()["pool"] == "main"
    world.settle()
    assert images_asked(world, "main") == ["registry/mine:1"]


def test_an_image_is_kept_in_mind_while_it_waits(world: World, acme: Tenant) -> None:
    put(world, "/v1/templates/python", {"images": {"second": "registry/py:3"}})
    op(world, "POST", "/v1/admin/pools/main/drain")
    waiting = create(world, acme, template="python", image="registry/mine:1").json()
    assert waiting["status"] == "queued"
    op(world, "POST", "/v1/admin/pools/main/undrain")
    world.settle()
    shown = world.call("GET", f"/v1/sandboxes/{waiting['id']}", token=acme.token).json()
    assert (shown["status"], shown["image"]) == ("running", "registry/mine:1")


def test_a_changed_template_acts_on_what_waits(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    put(world, "/v1/templates/python", {"images": {"tiny": "registry/py:3"}})
    world.running(acme, {"template": "python"})
    waiting = create(world, acme, template="python").json()["id"]
    world.settle()
    put(world, "/v1/templates/python", {"images": {"tiny": "registry/py:3", "main": "registry/py:4"}})
    world.settle()
    shown = world.call("GET", f"/v1/sandboxes/{waiting}", token=acme.token).json()
    assert (shown["status"], shown["pool"]) == ("running", "main")
    assert images_asked(world, "main") == ["registry/py:4"]


def test_a_tenant_sees_the_images_of_its_own_pools(world: World, acme: Tenant) -> None:
    world.pool("outside", trust="external")
    put(world, "/v1/templates/python", {"images": {"main": "a", "outside": "b", "typo": "c"}})
    shown = world.call("GET", "/v1/templates/python", token=acme.token).json()
    assert (shown["images"], shown["warnings"]) == ({"main": "a"}, [])
    assert op(world, "GET", "/v1/templates/python").json()["warnings"] == ["There is no pool 'typo' now."]


@pytest.mark.parametrize("name", ["Python", "a b", "-x", "x" * 64, "%2e%2e"])
def test_a_name_is_short_and_plain(memory: World, name: str) -> None:
    for kind in ("templates", "profiles"):
        body: dict[str, Any] | None = {"defaults": {}} if kind == "profiles" else None
        reply = op(memory, "PUT", f"/v1/{kind}/{name}".replace(" ", "%20"), body)
        assert reply.status == 400, reply.raw
        assert reply.json()["error"]["details"]["field"] == "name"


# Profiles


PROFILE = {
    "description": "For test runs.",
    "defaults": {
        "ttlSeconds": 900, "resources": {"cpu": 2, "memoryMiB": 2048}, "labels": {"team": "qa", "run": "none"},
        "placement": {"preferredPools": ["main"]}, "priority": 3, "capabilities": ["exec"],
    },
}  # fmt: skip


def test_a_profile_fills_in_what_a_create_leaves_out(world: World, acme: Tenant) -> None:
    made = op(world, "PUT", "/v1/profiles/tests", PROFILE)
    assert (made.status, made.json()) == (201, {"name": "tests", "version": 1, **PROFILE})
    plain = create(world, acme, profile="tests").json()
    assert plain["resources"] == {"cpu": 2.0, "memoryMiB": 2048, "diskGiB": 1}
    assert (plain["ttlSeconds"], plain["priority"], plain["labels"]) == (900, 3, {"team": "qa", "run": "none"})
    assert (plain["profile"], plain["capabilities"]) == ("tests", ["exec"])
    own = {"resources": {"cpu": 4}, "labels": {"run": "7"}, "ttlSeconds": 60, "capabilities": []}
    mixed = create(world, acme, profile="tests", **own).json()
    assert mixed["resources"] == {"cpu": 4.0, "memoryMiB": 2048, "diskGiB": 1}
    assert (mixed["ttlSeconds"], mixed["labels"]) == (60, {"team": "qa", "run": "7"})
    assert mixed["capabilities"] == []
    told = world.call("POST", "/v1/placement/explain", {"profile": "tests"}, token=acme.token).json()
    assert told["decision"] == "place"


def test_a_profile_can_be_changed_and_sent_back(world: World, acme: Tenant) -> None:
    put(world, "/v1/profiles/tests", PROFILE)
    shown = world.call("GET", "/v1/profiles/tests", token=acme.token).json()
    del shown["name"]
    assert put(world, "/v1/profiles/tests", shown)["version"] == 1
    shown["defaults"]["ttlSeconds"] = 30
    assert put(world, "/v1/profiles/tests", shown)["version"] == 2
    assert op(world, "PUT", "/v1/profiles/tests", {**shown, "defaults": {}}).code == "invalid_state"
    listed = world.call("GET", "/v1/profiles", token=acme.token).json()
    assert [profile["defaults"]["ttlSeconds"] for profile in listed["items"]] == [30]
    assert "nextCursor" not in listed
    for _ in range(2):
        assert op(world, "DELETE", "/v1/profiles/tests").status == 204
    gone = create(world, acme, profile="tests")
    assert (gone.status, gone.json()["error"]["details"]) == (400, {"field": "profile"})


def test_a_key_still_names_its_sandbox_when_the_profile_changed(world: World, acme: Tenant) -> None:
    put(world, "/v1/profiles/tests", PROFILE)

    def keyed(**body: Any) -> Reply:
        headers = {"Idempotency-Key": "k"}
        return world.call("POST", "/v1/sandboxes", {"profile": "tests", **body}, token=acme.token, headers=headers)

    first = keyed()
    put(world, "/v1/profiles/tests", {"defaults": {"ttlSeconds": 5}})
    again = keyed()
    assert (again.status, again.json()) == (200, first.json())
    assert keyed(ttlSeconds=6).code == "idempotency_conflict"


@pytest.mark.parametrize(
    ("defaults", "field"),
    [
        ({"env": {"TOKEN": "canary-7f3a"}}, "body"),
        ({"profile": "other"}, "body"),
        ({"snapshotId": "snap_01JBM2YB7H1K3M5R9S2W4Y6ZCD"}, "body"),
        ({"projectId": "proj_01JBM2YB7H1K3M5R9S2W4Y6ZCD"}, "body"),
        ({"template": "gone"}, "defaults.template"),
        ({"ttlSeconds": -1}, "defaults.ttlSeconds"),
        ({"colour": "blue"}, "defaults.colour"),
    ],
)
def test_a_profile_holds_no_environment_and_nothing_unknown(memory: World, defaults: Any, field: str) -> None:
    reply = op(memory, "PUT", "/v1/profiles/tests", {"defaults": defaults})
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, field)
    assert b"canary" not in reply.raw


def test_a_profile_costs_no_trip_while_warm(world: World, acme: Tenant) -> None:
    put(world, "/v1/profiles/tests", PROFILE)
    create(world, acme, profile="tests")
    with world.store.ledger.measure() as cost:  # type: ignore[attr-defined]
        assert create(world, acme, profile="tests").status == 202
    assert cost.calls == ["GetItem", "TransactWriteItems"]  # the first is the authorizer's


@pytest.mark.parametrize(
    ("defaults", "field"),
    [
        ({"capabilities": ["gpu"]}, "defaults.capabilities"),
        ({"placement": {"allowedPools": ["gone"]}}, "defaults.placement.allowedPools"),
        ({"placement": {"regions": ["mars"]}}, "defaults.placement.regions"),
        ({"resources": {"cpu": 512}}, "defaults.resources"),
        ({"placement": {"allowedPools": ["main"]}, "capabilities": ["gpu"]}, "defaults.capabilities"),
        ({"template": "nowhere"}, "defaults.template"),
    ],
)
def test_a_profile_that_nothing_could_satisfy_is_refused_when_it_is_stored(
    memory: World, defaults: dict[str, Any], field: str
) -> None:
    view = pools.detail(memory.core, "main").view
    assert view is not None
    memory.store.transact([Put(view.with_(max_cpu_millis=64_000), (), "view")])
    memory.core.catalog.forget()
    op(memory, "PUT", "/v1/templates/nowhere", {"images": {"no-such-pool": "image"}})
    refused = op(memory, "PUT", "/v1/profiles/never", {"defaults": defaults})
    assert (refused.status, refused.json()["error"]["details"]) == (400, {"field": field})
    assert op(memory, "GET", "/v1/profiles/never").status == 404


def test_a_profile_for_a_pool_that_takes_nothing_right_now_is_stored(memory: World) -> None:
    memory.call("POST", "/v1/admin/pools/main/drain", token=memory.operator)
    assert (
        op(memory, "PUT", "/v1/profiles/later", {"defaults": {"placement": {"allowedPools": ["main"]}}}).status == 201
    )
