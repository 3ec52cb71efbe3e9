"""Where a sandbox may run, and what a create would be told, over the API."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.model.pool import PoolView
from differently_core.operations import pools
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Delete
from tests.integration.api.test_policies import put, spoil
from tests.support.api import Reply, Tenant, World


def explain(world: World, tenant: Tenant, **body: Any) -> Any:
    reply = world.call("POST", "/v1/placement/explain", body, token=tenant.token)
    assert reply.status == 200, reply.raw
    return reply.json()


def create(world: World, tenant: Tenant, **body: Any) -> Reply:
    return world.call("POST", "/v1/sandboxes", body, token=tenant.token)


def reasons(explained: Any) -> dict[str, str | None]:
    return {entry["pool"]: entry.get("reason") for entry in explained["candidates"]}


def test_an_explanation_tells_each_pool_and_what_could_change_it(world: World, acme: Tenant) -> None:
    world.pool("dear", costModel={"cpuHour": 2.0, "memoryGiBHour": 0.0})
    world.pool("drained")
    world.call("POST", "/v1/admin/pools/drained/drain", token=world.operator)
    told = explain(world, acme, resources={"cpu": 2})
    assert (told["decision"], told["pool"]) == ("place", "main")
    assert told["summary"] == "2/3 pools: 1 draining"
    assert told["candidates"][:2] == [
        {"pool": "main", "eligible": True, "rank": 1, "trust": "private", "hourlyCost": 0.0},
        {"pool": "dear", "eligible": True, "rank": 2, "trust": "private", "hourlyCost": 4.0},
    ]
    assert told["candidates"][2] == {
        "pool": "drained", "eligible": False, "trust": "private", "hourlyCost": 0.0, "reason": "draining",
        "permanence": "not_now", "hint": "The pool takes work again when an operator ends its draining.",
    }  # fmt: skip
    made = create(world, acme, resources={"cpu": 2}).json()
    assert made["pool"] == told["pool"]


def test_an_explanation_has_no_side_effect(world: World, acme: Tenant) -> None:
    """features.md 1: per-pool reasons, no side effect."""
    explain(world, acme)  # whatever is only read once
    before = dict(world.store.rows()) if isinstance(world.store, MemoryStore) else None
    with world.store.ledger.measure() as cost:  # type: ignore[attr-defined]
        explain(world, acme, env={"A": "b"}, labels={"x": "y"})
        explain(world, acme, queueTimeoutSeconds=0, capabilities=["gpu"])
    assert [call for call in cost.calls if call != "GetItem"] == ["BatchGetItem"] * 2
    assert not world.mail.messages
    if isinstance(world.store, MemoryStore):
        assert world.store.rows() == before


def test_a_tenant_is_not_told_of_pools_that_are_not_for_it(world: World, acme: Tenant) -> None:
    """Not in an explanation, not while it waits, not in a refusal, whatever it pins or asks for."""
    world.pool("outside", trust="external", region="eu-1")
    world.pool("hidden")
    put(world, acme.org, {"deniedPools": ["hidden"]})
    pinned: list[dict[str, Any]] = [
        {}, {"placement": {"allowedPools": ["nowhere"]}}, {"placement": {"regions": ["mars"]}},
        {"capabilities": ["gpu"]},
    ]  # fmt: skip
    for body in pinned:
        told = explain(world, acme, **body)
        assert set(reasons(told)) == {"main"}
        assert told["refusedByPolicy"] == 2
        refused = create(world, acme, **body)
        assert b"outside" not in refused.raw
        assert b"hidden" not in refused.raw
    world.call("POST", "/v1/admin/pools/main/drain", token=world.operator)
    waiting = create(world, acme).json()
    assert waiting["waitingFor"] == [{"pool": "main", "reason": "draining"}]
    shown = world.call(
        "POST", "/v1/placement/explain", {"projectId": acme.project}, token=world.operator
    ).json()  # fmt: skip
    assert reasons(shown) == {"main": "draining", "outside": "external_not_allowed", "hidden": "denied_by_policy"}
    assert "refusedByPolicy" not in shown


@pytest.mark.parametrize("name", ["ssh", "pty", "gpu"])
def test_what_no_pool_offers_is_refused_by_name(world: World, acme: Tenant, name: str) -> None:
    """features.md 1: only capabilities are in the way."""
    told = explain(world, acme, capabilities=[name, "exec"])
    assert (told["decision"], told["error"]["code"]) == ("reject", "unsupported_capability")
    assert told["candidates"][0]["detail"] == name
    assert told["candidates"][0]["permanence"] == "never"
    refused = create(world, acme, capabilities=[name, "exec"])
    assert (refused.status, refused.code) == (422, "unsupported_capability")
    assert refused.json()["error"]["message"] == told["error"]["message"]
    assert create(world, acme, capabilities=["teleport"]).code == "invalid_request"


def test_pinning_to_nothing_eligible_is_refused(world: World, acme: Tenant) -> None:
    """features.md 1: placement.allowedPools honoured; none eligible is 422 no_eligible_pool."""
    world.pool("second")
    body = {"placement": {"allowedPools": ["second"]}}
    assert create(world, acme, **body).json()["pool"] == "second"
    gone = {"placement": {"allowedPools": ["gone"]}}
    assert explain(world, acme, **gone)["error"]["code"] == "no_eligible_pool"
    assert create(world, acme, **gone).code == "no_eligible_pool"


def test_a_region_is_where_it_runs(world: World, acme: Tenant) -> None:
    world.pool("berlin", region="eu-1")
    world.pool("paris", region="eu-2")
    for regions, expected in ((["eu-2"], "paris"), (["eu-1", "eu-2"], "berlin"), (["eu-2", "eu-1"], "paris")):
        assert create(world, acme, placement={"regions": regions}).json()["pool"] == expected
    told = explain(world, acme, placement={"regions": ["us-1"]})
    assert reasons(told) == dict.fromkeys(("main", "berlin", "paris"), "wrong_region")
    assert create(world, acme, placement={"regions": ["us-1"]}).code == "no_eligible_pool"


def test_a_failover_list_is_followed_when_the_first_is_full(world: World, acme: Tenant) -> None:
    """users/reports.md 3, rank 11: the preferred pools in order, then any other; kept while it waits."""
    world.pool("first", max_concurrency=1, costModel={"cpuHour": 9.0, "memoryGiBHour": 0.0})
    world.pool("second", max_concurrency=1, costModel={"cpuHour": 8.0, "memoryGiBHour": 0.0})
    body = {"placement": {"preferredPools": ["first", "second"]}}
    found = []
    for _ in range(3):
        made = create(world, acme, **body).json()
        world.settle()
        found.append(world.call("GET", f"/v1/sandboxes/{made['id']}", token=acme.token).json()["pool"])
    assert found == ["first", "second", "main"]


@pytest.mark.parametrize(
    ("placement", "field"),
    [
        ({"allowedPools": ["Main"]}, "placement.allowedPools[0]"),
        ({"regions": [""]}, "placement.regions[0]"),
        ({"preferredPools": "main"}, "placement.preferredPools"),
        ({"preferred": ["main"]}, "placement.preferred"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(memory: World, placement: Any, field: str) -> None:
    tenant = memory.tenant()
    for path in ("/v1/sandboxes", "/v1/placement/explain"):
        reply = memory.call("POST", path, {"placement": placement}, token=tenant.token)
        assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, field)


def test_what_is_full_or_used_up_is_told(world: World, acme: Tenant) -> None:
    world.call("PUT", f"/v1/projects/{acme.project}/quota", {"maxConcurrent": 1}, token=world.operator)
    world.running(acme)
    told = explain(world, acme)
    assert (told["decision"], told["waitsFor"]) == (
        "wait", [{"scope": "project", "reason": "full", "resource": "sandboxes"}],
    )  # fmt: skip
    assert told["candidates"][0]["eligible"] is True
    refused = explain(world, acme, queueTimeoutSeconds=0)
    assert (refused["decision"], refused["error"]["code"]) == ("reject", "quota_exceeded")
    assert create(world, acme, queueTimeoutSeconds=0).json()["error"]["message"] == refused["error"]["message"]


def test_a_full_pool_and_one_that_others_wait_for_are_told(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    body = {"placement": {"allowedPools": ["tiny"]}}
    assert explain(world, acme, **body)["decision"] == "place"
    world.running(acme, body)
    told = explain(world, acme, **body)
    assert (told["decision"], told["waitsFor"]) == ("wait", [{"scope": "pool", "reason": "full"}])
    assert reasons(told)["tiny"] == "full"
    assert explain(world, acme, **body, queueTimeoutSeconds=0)["error"]["code"] == "provider_unavailable"
    create(world, acme, **body)
    world.settle()
    assert explain(world, acme, **body)["decision"] == "wait"


def test_an_explanation_refuses_what_a_create_refuses(world: World, acme: Tenant) -> None:
    too_large = {"resources": {"cpu": 1000}}
    for path in ("/v1/sandboxes", "/v1/placement/explain"):
        refused = world.call("POST", path, too_large, token=acme.token)
        assert (refused.status, refused.code) == (422, "limit_exceeded")
        nameless = world.call("POST", path, {}, token=world.operator)
        assert (nameless.status, nameless.json()["error"]["details"]["field"]) == (400, "projectId")


def test_nothing_is_explained_under_an_unreadable_policy(world: World, acme: Tenant) -> None:
    """features.md 2 #72."""
    spoil(world, acme.project)
    reply = world.call("POST", "/v1/placement/explain", {}, token=acme.token)
    assert (reply.status, reply.code) == (503, "provider_unavailable")


def test_a_pool_that_takes_nothing_new_is_not_called_full(world: World, acme: Tenant) -> None:
    world.call("POST", "/v1/admin/pools/main/drain", token=world.operator)
    world.pool("down").up = False
    world.probe()
    told = explain(world, acme)
    assert (told["decision"], told["waitsFor"]) == (
        "wait", [{"scope": "pool", "reason": "draining"}, {"scope": "pool", "reason": "unhealthy"}],
    )  # fmt: skip


def test_a_pool_that_never_answered_keeps_nobody_waiting_for_what_none_offers(world: World, acme: Tenant) -> None:
    world.pool("silent").up = False
    pools.probe_all(world.core)
    world.store.transact([Delete(PoolView, PoolView.key_of("silent"), "view")])
    world.core.catalog.forget()
    assert create(world, acme, capabilities=["gpu"]).status == 202, "it was registered a moment ago"
    world.clock.advance(600)
    world.core.catalog.forget()
    refused = create(world, acme, capabilities=["gpu"])
    assert (refused.status, refused.code) == (422, "unsupported_capability")
    assert create(world, acme).status == 202


def test_a_policy_says_which_of_several_pools_is_tried_first(world: World, acme: Tenant) -> None:
    world.pool("alpha", costModel={"cpuHour": 2.0})
    assert explain(world, acme)["pool"] == "main"
    put(world, acme.project, {"strategy": "pack"})
    assert explain(world, acme)["pool"] == "alpha"
    assert create(world, acme).json()["pool"] == "alpha"
    refused = world.call("PUT", f"/v1/policies/{acme.org}", {"rules": {"strategy": "random"}}, token=world.operator)
    assert (refused.status, refused.json()["error"]["details"]["field"]) == (400, "rules.strategy")
