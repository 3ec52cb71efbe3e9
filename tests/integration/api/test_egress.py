"""What a sandbox may reach: asked by callers, bounded by policies, told to the backend and confirmed before use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeInstance, Ignored, Refuse
from differently_core.contract import EgressAction, EgressRules, Operation
from differently_core.errors import InvalidRequest
from differently_core.model.features import EGRESS_CONTROL
from differently_core.operations import pools
from tests.integration.api.test_policies import put, spoil
from tests.support.api import Reply, Tenant, World

ONLY_EXAMPLE = {"allow": ["*.example.com"]}


def create(world: World, tenant: Tenant, **body: Any) -> Reply:
    return world.call("POST", "/v1/sandboxes", body, token=tenant.token)


def shown(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def only_instance(world: World, pool: str = "main") -> FakeInstance:
    (instance,) = world.backend(pool).instances()
    return instance


def without_egress_control(world: World, pool: str) -> None:
    """As a backend that cannot limit what its sandboxes reach."""
    backend = world.backend(pool)
    features = backend.capabilities.features - {EGRESS_CONTROL}
    backend.capabilities = replace(backend.capabilities, features=features)
    pools.probe(world.core, pools.detail(world.core, pool).pool)


def test_the_rules_are_told_confirmed_and_shown(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"egress": {"allow": ["API.example.com", "10.0.0.0/8"], "deny": ["10.1.0.0/16"]}})
    view = shown(world, acme, sandbox)
    assert view["egress"] == {"allow": ["api.example.com", "10.0.0.0/8"], "deny": ["10.1.0.0/16"]}
    assert view["effective"]["egress"] == view["egress"]
    assert view["conditions"]["prepared"]["evidence"].endswith("egress rules in force")
    assert only_instance(world).egress == EgressRules(
        EgressAction.DENY, ("api.example.com", "10.0.0.0/8"), ("10.1.0.0/16",)
    )


def test_without_a_wish_and_a_policy_nothing_is_told(world: World, acme: Tenant) -> None:
    view = shown(world, acme, world.running(acme))
    assert "egress" not in view
    assert "egress" not in view["effective"]
    assert only_instance(world).egress is None
    assert world.backend("main").calls[Operation.EGRESS_SET] == 0


def test_an_empty_list_means_nothing_at_all(world: World, acme: Tenant) -> None:
    """users/reports.md 3, rank 3: an empty list is deny, never open."""
    sandbox = world.running(acme, {"egress": {"allow": []}})
    assert shown(world, acme, sandbox)["effective"]["egress"] == {"allow": [], "deny": []}
    assert only_instance(world).egress == EgressRules(EgressAction.DENY)


def test_policies_narrow_what_is_asked(world: World, acme: Tenant) -> None:
    put(world, "global", {"egress": {"allow": ["*.example.com", "10.0.0.0/8"], "deny": ["169.254.169.254"]}})
    put(world, acme.org, {"poolEgress": {"main": {"allow": ["*.example.com", "192.0.2.0/24"]}}})
    plain = shown(world, acme, world.running(acme))
    assert plain["effective"]["egress"] == {"allow": ["*.example.com"], "deny": ["169.254.169.254/32"]}
    wished = {"allow": ["a.example.com", "10.1.0.0/16", "b.example.org"], "deny": ["c.example.com"]}
    asked = shown(world, acme, world.running(acme, {"egress": wished}))
    assert asked["egress"] == wished
    assert asked["effective"]["egress"] == {
        "allow": ["a.example.com"], "deny": ["169.254.169.254/32", "c.example.com"],
    }  # fmt: skip


def test_a_pool_that_cannot_enforce_it_is_no_candidate(world: World, acme: Tenant) -> None:
    world.pool("weak")
    without_egress_control(world, "weak")
    pinned = {"placement": {"allowedPools": ["weak"]}}
    assert create(world, acme, **pinned).json()["pool"] == "weak"
    refused = create(world, acme, **pinned, egress=ONLY_EXAMPLE)
    assert (refused.status, refused.code) == (422, "no_eligible_pool")
    told = world.call("POST", "/v1/placement/explain", {**pinned, "egress": ONLY_EXAMPLE}, token=acme.token).json()
    assert {entry["pool"]: entry["reason"] for entry in told["candidates"]}["weak"] == "egress_not_enforced"
    assert create(world, acme, egress=ONLY_EXAMPLE).json()["pool"] == "main"
    # Demanded by a policy, it is as much of a restriction.
    put(world, acme.project, {"egress": {"deny": ["evil.example"]}})
    assert create(world, acme, **pinned).code == "no_eligible_pool"


def test_waiting_work_is_held_to_the_policy_of_its_admission(world: World, acme: Tenant) -> None:
    world.call("POST", "/v1/admin/pools/main/drain", token=world.operator)
    waiting = create(world, acme, egress=ONLY_EXAMPLE).json()["id"]
    put(world, acme.org, {"egress": {"allow": ["a.example.com"]}})
    world.call("POST", "/v1/admin/pools/main/undrain", token=world.operator)
    world.settle()
    view = shown(world, acme, waiting)
    assert (view["status"], view["effective"]["egress"]) == ("running", {"allow": ["a.example.com"], "deny": []})


def test_a_sandbox_whose_rules_are_not_in_force_does_not_run(world: World, acme: Tenant) -> None:
    """Never claim what a backend does not confirm: it is looked at again until they are."""
    backend = world.backend("main")
    backend.expect(Operation.EGRESS_SET, Ignored(), Ignored())
    made = create(world, acme, egress={"allow": []}).json()
    only_told_later(world)
    world.settle()
    assert shown(world, acme, made["id"])["status"] == "provisioning"
    world.pass_time(3)
    world.pass_time(3)
    assert shown(world, acme, made["id"])["status"] == "running"
    assert only_instance(world).egress == EgressRules(EgressAction.DENY)


def only_told_later(world: World) -> None:
    """As a backend that does not take the rules with the create."""
    backend = world.backend("main")
    create_instance = backend.create

    def forgetful(request: Any, **rest: Any) -> FakeInstance:
        made = create_instance(request, **rest)
        made.egress = None
        return made

    backend.create = forgetful  # type: ignore[method-assign]


def test_rules_that_a_backend_refuses_for_good_fail_the_sandbox(world: World, acme: Tenant) -> None:
    backend = world.backend("main")
    refusal = InvalidRequest("This backend takes no wildcards.")
    backend.expect(Operation.EGRESS_SET, *[Refuse(refusal)] * 3)
    made = create(world, acme, egress=ONLY_EXAMPLE).json()
    for _ in range(8):
        world.settle()
        world.pass_time(70)
    view = shown(world, acme, made["id"])
    assert view["status"] == "failed"
    assert "no wildcards" in view["statusReason"]["detail"]
    assert not backend.instances()


def test_an_unreadable_policy_opens_nothing(world: World, acme: Tenant) -> None:
    """features.md 2 #72, for what a sandbox may reach."""
    put(world, acme.org, {"egress": {"allow": []}})
    spoil(world, acme.org)
    assert create(world, acme).status == 503


@pytest.mark.parametrize(
    ("egress", "field"),
    [
        ({"allow": ["*"]}, "egress.allow[0]"),
        ({"allow": ["10.0.0.1/8"]}, "egress.allow[0]"),
        ({"deny": ["a.example", "http://b.example"]}, "egress.deny[1]"),
        ({"deny": None}, "egress.deny"),
        ({"default": "allow"}, "egress.default"),
        ({"allow": ["a.example"] * 65}, "egress.allow"),
    ],
)
def test_a_rule_that_is_no_peer_is_refused(memory: World, egress: Any, field: str) -> None:
    tenant = memory.tenant()
    reply = create(memory, tenant, egress=egress)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, field)
    ceiling = memory.call("PUT", "/v1/policies/global", {"rules": {"egress": egress}}, token=memory.operator)
    assert ceiling.status == (200 if field == "egress.allow" else 400)


def test_a_profile_may_bring_rules(world: World, acme: Tenant) -> None:
    body = {"defaults": {"egress": ONLY_EXAMPLE}}
    assert world.call("PUT", "/v1/profiles/closed", body, token=world.operator).status == 201
    made = create(world, acme, profile="closed").json()
    assert made["effective"]["egress"] == {"allow": ["*.example.com"], "deny": []}


@pytest.mark.parametrize(("rest", "wake"), [("stop", "start"), ("pause", "resume")])
def test_the_rules_are_in_force_again_when_it_wakes(world: World, acme: Tenant, rest: str, wake: str) -> None:
    sandbox = world.running(acme, {"egress": {"allow": []}})
    world.call("POST", f"/v1/sandboxes/{sandbox}/{rest}", token=acme.token)
    world.settle()
    only_instance(world).egress = None  # what a backend may forget meanwhile
    world.call("POST", f"/v1/sandboxes/{sandbox}/{wake}", token=acme.token)
    world.settle()
    world.pass_time(3)
    assert shown(world, acme, sandbox)["status"] == "running"
    assert only_instance(world).egress == EgressRules(EgressAction.DENY)
