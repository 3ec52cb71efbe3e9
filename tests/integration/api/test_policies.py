"""Policies: who may go where, changed by operators, obeyed by creates, capabilities and the queue."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from differently_core.model.event import Event
from differently_core.model.policy import Policy
from differently_core.model.record import Record, Table
from differently_core.operations.catalog import CACHE_SECONDS
from differently_core.operations.tenants import create_project
from differently_core.store.ports import Put
from tests.support.api import BOOT, Reply, Tenant, World

NO_PROJECT = "proj_01JBM2YB7H1K3M5R9S2W4Y6ZCD"


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def put(world: World, scope: str, rules: Any, **body: Any) -> Any:
    reply = op(world, "PUT", f"/v1/policies/{scope}", {"rules": rules, **body})
    assert reply.status == 200, reply.raw
    return reply.json()


def create(world: World, tenant: Tenant, **body: Any) -> Reply:
    return world.call("POST", "/v1/sandboxes", body, token=tenant.token)


def pools_shown(world: World, token: str) -> list[str]:
    return [pool["name"] for pool in world.call("GET", "/v1/capabilities", token=token).json()["pools"]]


# Reading and replacing


def test_an_installation_begins_with_a_policy_that_lets_nothing_out(world: World) -> None:
    shown = op(world, "GET", "/v1/policies/global").json()
    assert (shown["scope"], shown["version"], shown["warnings"]) == ("global", 1, [])
    assert shown["rules"] == {
        "external": "never", "externalPools": [], "deniedPools": [], "poolEgress": {},
        "secretsInEnv": False, "classifications": {},
    }  # fmt: skip


def test_a_policy_is_replaced_listed_and_removed(world: World, acme: Tenant) -> None:
    rules = {
        "external": "allowed", "externalPools": ["main"], "allowedPools": ["main"], "deniedPools": [],
        "egress": {"allow": ["*.example.com", "10.0.0.0/8"], "deny": ["169.254.169.254/32"]},
        "poolEgress": {"main": {"allow": [], "deny": []}},
        "secretsInEnv": True,
        "classifications": {"secret": {"external": "never", "deniedPools": ["main"], "secretsInEnv": False}},
    }  # fmt: skip
    assert op(world, "GET", f"/v1/policies/{acme.org}").code == "not_found"
    made = put(world, acme.org, rules, version=0)
    assert (made["version"], made["rules"], made["scope"]) == (1, rules, acme.org)
    assert made["updatedAt"] == "2026-01-01T00:00:00Z"
    assert op(world, "GET", f"/v1/policies/{acme.org}").json() == made
    listed = op(world, "GET", "/v1/policies").json()["items"]
    assert [policy["scope"] for policy in listed] == ["global", acme.org]

    for _ in range(2):
        assert op(world, "DELETE", f"/v1/policies/{acme.org}").status == 204
    assert op(world, "GET", f"/v1/policies/{acme.org}").status == 404
    assert op(world, "DELETE", "/v1/policies/global").code == "invalid_state"


def test_a_change_names_the_version_it_was_made_from(world: World) -> None:
    first = put(world, "global", {"deniedPools": ["main"]}, version=1)
    assert first["version"] == 2
    # Sent twice because its answer was lost: it is what it should be already.
    assert put(world, "global", {"deniedPools": ["main"]}, version=1) == first
    for never in (0, 7):
        assert op(world, "PUT", "/v1/policies/global", {"rules": first["rules"], "version": never}).status == 409
    stale = op(world, "PUT", "/v1/policies/global", {"rules": {}, "version": 1})
    assert (stale.status, stale.code) == (409, "invalid_state")
    assert stale.json()["error"]["details"] == {"scope": "global", "version": 2}
    assert put(world, "global", {})["version"] == 3


def test_a_change_is_an_event_and_a_repeat_is_none(world: World, acme: Tenant) -> None:
    for _ in range(2):
        put(world, acme.org, {"deniedPools": ["main"]})
    world.clock.advance(1)
    op(world, "DELETE", f"/v1/policies/{acme.org}")
    rows = world.store.query(Table.LOG, f"EVT#{acme.org}").rows
    events = [row for row in rows if isinstance(row, Event) and row.action.startswith("policy.")]
    assert [(event.action, event.target) for event in events] == [
        ("policy.update", acme.org), ("policy.delete", acme.org)
    ]  # fmt: skip
    assert events[0].details == {"version": 1, "rules": '{"denied_pools":["main"]}'}


@pytest.mark.parametrize("whose", ["org", "project"])
def test_what_is_on_its_way_out_takes_no_policy(world: World, acme: Tenant, whose: str) -> None:
    """A policy that was written meanwhile outlived its project."""
    scope, path = (acme.org, "orgs") if whose == "org" else (acme.project, "projects")
    op(world, "DELETE", f"/v1/{path}/{scope}")
    reply = op(world, "PUT", f"/v1/policies/{scope}", {"rules": {}})
    assert (reply.status, reply.code) == (409, "invalid_state")
    world.settle()
    world.pass_time(61)
    world.pass_time(61)
    assert op(world, "PUT", f"/v1/policies/{scope}", {"rules": {}}).status == 404
    assert [policy["scope"] for policy in op(world, "GET", "/v1/policies").json()["items"]] == ["global"]


@pytest.mark.parametrize("scope", ["nothing", "..", "org_x", NO_PROJECT, "GLOBAL", "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA"])
def test_only_what_exists_has_a_policy(memory: World, scope: str) -> None:
    for method, body in (("GET", None), ("PUT", {"rules": {}}), ("DELETE", None)):
        reply = op(memory, method, f"/v1/policies/{scope}", body)
        assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"external": "sometimes"}, "rules.external"),
        ({"allowPools": []}, "rules.allowPools"),
        ({"deniedPools": ["Main"]}, "rules.deniedPools[0]"),
        ({"externalPools": None}, "rules.externalPools"),
        ({"classifications": {"Secret!": {}}}, "rules.classifications.Secret!"),
        ({"classifications": {"secret": {"classifications": {}}}}, "rules.classifications.secret.classifications"),
        ({"classifications": {"secret": {"secretsInEnv": 0}}}, "rules.classifications.secret.secretsInEnv"),
        ({"classifications": {"secret": {"secretsInEnv": True}}}, "rules.classifications.secret.secretsInEnv"),
    ],
)
def test_a_policy_that_says_nothing_known_is_refused(memory: World, rules: Any, field: str) -> None:
    reply = op(memory, "PUT", "/v1/policies/global", {"rules": rules})
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, field)


def test_a_policy_warns_of_what_it_may_not_mean(memory: World) -> None:
    made = put(memory, "global", {"deniedPools": ["typo"], "externalPools": ["main"]})
    assert made["warnings"] == [
        "There is no pool 'typo' now.",
        "Pool 'main' is private: externalPools does not matter to it.",
        "externalPools has no effect while external is never.",
    ]
    assert put(memory, "global", {"external": "allowed"})["warnings"] == [
        "external is allowed, but externalPools names no pool: no external pool is used."
    ]


# What they do


def test_an_external_pool_needs_every_scope_to_allow_and_name_it(world: World, acme: Tenant) -> None:
    """features.md 1: fail-closed external; organization external never beats the global one (#72)."""
    world.pool("cloud", trust="external")
    opened = {"external": "allowed", "externalPools": ["cloud"]}
    pinned = {"placement": {"allowedPools": ["cloud"]}}
    assert create(world, acme, **pinned).code == "no_eligible_pool"
    put(world, acme.org, opened)
    assert create(world, acme, **pinned).code == "no_eligible_pool"
    put(world, "global", {"external": "allowed"})
    assert create(world, acme, **pinned).code == "no_eligible_pool"
    put(world, "global", opened)
    assert create(world, acme, **pinned).json()["pool"] == "cloud"
    put(world, acme.project, {"external": "never"})
    assert create(world, acme, **pinned).code == "no_eligible_pool"


def test_private_comes_first_even_where_external_is_allowed(world: World, acme: Tenant) -> None:
    world.pool("cloud", trust="external")
    put(world, "global", {"external": "allowed", "externalPools": ["cloud"]})
    assert create(world, acme).json()["pool"] == "main"


def test_tenants_see_the_pools_that_their_policies_allow(world: World, acme: Tenant) -> None:
    """features.md 2 #51: a pool that an organization denies is absent for it alone."""
    other = world.tenant("other")
    world.pool("second")
    put(world, acme.org, {"deniedPools": ["main"]})
    assert pools_shown(world, acme.token) == ["second"]
    assert pools_shown(world, other.token) == ["main", "second"]
    assert pools_shown(world, world.operator) == ["main", "second"]


def test_a_classification_may_be_kept_inside(world: World, acme: Tenant) -> None:
    world.pool("cloud", trust="external")
    only = {"external": "allowed", "externalPools": ["cloud"], "deniedPools": ["main"]}
    put(world, "global", {**only, "classifications": {"default": {"external": "never"}, "public": {}}})
    made = create(world, acme, classification="public")
    assert (made.json()["pool"], made.json()["classification"]) == ("cloud", "public")
    for body in ({}, {"classification": "secret"}, {"classification": "default"}):
        assert create(world, acme, **body).code == "no_eligible_pool"
    assert pools_shown(world, acme.token) == []


def test_a_full_private_pool_is_waited_for_when_nothing_may_go_out(world: World, acme: Tenant) -> None:
    """features.md 1, #46: external never and a full private pool is queued, not 422; later it runs."""
    op(world, "DELETE", "/v1/admin/pools/main")
    world.pool("tiny", max_concurrency=1)
    world.pool("cloud", trust="external")
    put(world, "global", {"external": "never"})
    first = world.running(acme)
    waiting = create(world, acme).json()
    assert waiting["status"] == "queued"
    world.settle()
    world.call("DELETE", f"/v1/sandboxes/{first}", token=acme.token)
    world.settle()
    shown = world.call("GET", f"/v1/sandboxes/{waiting['id']}", token=acme.token).json()
    assert (shown["status"], shown["pool"]) == ("running", "tiny")


def test_waiting_work_obeys_the_policy_of_its_admission(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    world.pool("spare", max_concurrency=1)
    body = {"placement": {"allowedPools": ["tiny", "spare"]}, "classification": "secret"}
    running = [world.running(acme, body), world.running(acme, body)]
    waiting = create(world, acme, **body).json()["id"]
    world.settle()
    put(world, acme.org, {"classifications": {"secret": {"deniedPools": ["spare"]}}})
    for sandbox in running:
        if world.call("GET", f"/v1/sandboxes/{sandbox}", token=acme.token).json()["pool"] == "spare":
            world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{waiting}", token=acme.token).json()["status"] == "queued"
    op(world, "DELETE", f"/v1/policies/{acme.org}")
    world.settle()
    assert world.call("GET", f"/v1/sandboxes/{waiting}", token=acme.token).json()["pool"] == "spare"


def test_another_process_obeys_within_one_refresh(world: World, acme: Tenant) -> None:
    """What one process writes, others go by when their catalog is read again."""
    create(world, acme)
    world.store.transact(
        [Put(Policy.model_validate({"scope": "global", "rules": {"denied_pools": ["main"]}}), (), "p")]
    )
    world.clock.advance(CACHE_SECONDS)
    assert create(world, acme).code == "no_eligible_pool"


# What cannot be read


class Unreadable(Record):
    """A policy as some other version may have written it."""

    kind: ClassVar[str] = "policy"
    table: ClassVar[Table] = Table.CONFIG

    scope: str
    version: int = 7
    rules: dict[str, Any]

    def key(self) -> Any:
        return Policy.key_of(self.scope)


BROKEN = [{"external": "sometimes"}, {"denied_regions": ["eu"]}, {"denied_pools": "main"}]


def spoil(world: World, scope: str, rules: Any = BROKEN[1]) -> None:
    world.store.transact([Put(Unreadable(scope=scope, rules=rules), (), "policy")])
    world.core.catalog.forget()


@pytest.mark.parametrize("rules", BROKEN)
def test_an_unreadable_policy_places_nothing(world: World, acme: Tenant, rules: Any) -> None:
    """features.md 2 #72: create and capabilities answer 503, never by what is left of the policies."""
    spoil(world, "global", rules)
    for reply in (create(world, acme), world.call("GET", "/v1/capabilities", token=acme.token)):
        assert (reply.status, reply.code) == (503, "provider_unavailable")
        assert "Retry-After" in reply.headers
    assert pools_shown(world, world.operator) == ["main"]


def test_waiting_work_stays_queued_under_an_unreadable_policy(world: World, acme: Tenant) -> None:
    """features.md 2 #72: it is placed when the policy can be read again, and others' work goes on."""
    other = world.tenant("other")
    op(world, "POST", "/v1/admin/pools/main/drain")
    world.core.catalog.forget()
    waiting = [create(world, tenant).json()["id"] for tenant in (acme, other)]
    spoil(world, acme.org)
    op(world, "POST", "/v1/admin/pools/main/undrain")
    world.settle()

    def statuses() -> list[str]:
        pairs = zip(waiting, (acme, other), strict=True)
        return [world.call("GET", f"/v1/sandboxes/{name}", token=who.token).json()["status"] for name, who in pairs]

    assert statuses() == ["queued", "running"]
    world.pass_time(120)
    assert statuses() == ["queued", "running"]
    put(world, acme.org, {"external": "never"})
    world.settle()
    assert statuses() == ["running", "running"]


def test_one_unreadable_policy_stops_its_own_scope_alone(world: World, acme: Tenant) -> None:
    """reliability.md I12: a poison record never blocks others."""
    other = world.tenant("other")
    sibling = create_project(world.core, BOOT, acme.org, "sibling")  # type: ignore[arg-type]
    spoil(world, sibling.id)
    assert create(world, other).status == 202
    assert create(world, acme).status == 202
    body = {"projectId": sibling.id}
    assert op(world, "POST", "/v1/sandboxes", body).status == 503
    spoil(world, acme.org)
    assert create(world, acme).status == 503
    assert create(world, other).status == 202


def test_an_operator_can_replace_or_remove_what_cannot_be_read(world: World, acme: Tenant) -> None:
    spoil(world, acme.org)
    for path in (f"/v1/policies/{acme.org}", "/v1/policies"):
        assert op(world, "GET", path).status == 503
    assert op(world, "PUT", f"/v1/policies/{acme.org}", {"rules": {}, "version": 7}).status == 503
    assert put(world, acme.org, {"external": "never"})["version"] == 1
    spoil(world, acme.org)
    assert op(world, "DELETE", f"/v1/policies/{acme.org}").status == 204
    assert create(world, acme).status == 202


def test_a_policy_goes_with_its_project(world: World, acme: Tenant) -> None:
    put(world, acme.project, {"external": "never"})
    assert op(world, "DELETE", f"/v1/projects/{acme.project}").status == 202
    for _ in range(4):
        world.settle()
        world.pass_time(120)
    assert world.store.get(Policy, Policy.key_of(acme.project)) is None
    assert [policy["scope"] for policy in op(world, "GET", "/v1/policies").json()["items"]] == ["global"]
