"""Times of a sandbox, seen from outside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from differently_core.contract import Capabilities, Operation
from differently_core.operations import pools
from tests.support.api import Tenant, World


def get(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def limit(world: World, *, lease: int = 0, life: int = 0) -> None:
    """The pool gives no longer than this."""
    backend = world.backend("main")
    features = backend.capabilities.features
    backend.capabilities = Capabilities(features=features, lease_seconds=lease, max_lifetime_seconds=life)
    pools.probe_all(world.core)
    world.core.catalog.forget()


def test_a_longer_time_to_live_reaches_the_backend(world: World, acme: Tenant) -> None:
    """features.md 1 TTL, 2 #10 and #77."""
    limit(world, lease=7200)
    sandbox = world.running(acme, {"ttlSeconds": 3600})
    world.pass_time(3000)

    world.call("PATCH", f"/v1/sandboxes/{sandbox}", {"ttlSeconds": 5400}, token=acme.token)
    world.settle()

    (instance,) = world.backend("main").instances()
    assert instance.expires_at == world.clock.now() + timedelta(seconds=5700)
    assert world.backend("main").calls[Operation.RENEW] == 1
    assert get(world, acme, sandbox)["expiresAt"] == "2026-01-01T02:20:00Z"


def test_a_lease_that_lapsed_says_so(world: World, acme: Tenant) -> None:
    limit(world, lease=600)
    sandbox = world.running(acme, {"ttlSeconds": 3600})
    (instance,) = world.backend("main").instances()
    world.backend("main").vanish(instance.ref)
    world.pass_time(600)

    ended = get(world, acme, sandbox)
    assert (ended["status"], ended["statusReason"]["code"]) == ("failed", "lease_lost")
    assert ended["statusReason"]["source"] == "backend"


def test_a_pool_that_cannot_keep_it_is_refused_or_shown_shorter(world: World, acme: Tenant) -> None:
    """Issue 4, item 2."""
    limit(world, life=3600)
    refused = world.call("POST", "/v1/sandboxes", {"ttlSeconds": 7200}, token=acme.token)
    assert (refused.status, refused.code) == (422, "no_eligible_pool")
    assert "lifetime_too_short" in str(refused.json()["error"]["details"]["pools"])

    sandbox = world.running(acme, {"ttlSeconds": 600})
    over = world.call("PATCH", f"/v1/sandboxes/{sandbox}", {"ttlSeconds": 7200}, token=acme.token)
    assert (over.status, over.code) == (422, "limit_exceeded")

    body = {"rules": {"shorterLifetime": True}}
    assert world.call("PUT", "/v1/policies/global", body, token=world.operator).status == 200
    world.core.catalog.forget()
    shown = get(world, acme, world.running(acme, {"ttlSeconds": 7200}))
    assert (shown["ttlSeconds"], shown["expiresAt"]) == (7200, "2026-01-01T00:59:30Z")
    assert shown["effective"]["expiresAt"] == shown["expiresAt"]


def test_it_rests_after_its_longest_run(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"maxRunSeconds": 60})
    world.pass_time(60)
    rested = get(world, acme, sandbox)
    assert (rested["status"], rested["maxRunSeconds"]) == ("paused", 60)
    assert (rested["statusReason"]["code"], rested["statusReason"]["source"]) == ("max_run_reached", "timer")
    refused = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token)
    assert refused.status == 409
