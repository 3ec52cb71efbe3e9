"""The trust report: what is known of pools and how, who may know it, and where sandboxes ran."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.registry import KINDS, load
from differently_core.contract import Verification
from differently_core.model.pool import CostModel, Pool, PoolView, Trust
from differently_core.policy import trust
from differently_core.policy.trust import Known
from differently_core.runtime.clock import VirtualClock
from tests.integration.api.test_policies import put
from tests.support.api import Tenant, World

NOW = VirtualClock().now()
CANARY = "canary-8c1d5a-secret"


def a_pool(kind: str, **facts: Any) -> Pool:
    config = facts.pop("config", {})
    return Pool(
        name="p", adapter=kind, trust=facts.pop("trust", Trust.PRIVATE), max_concurrency=1, config=config,
        created_at=NOW, **facts,
    )  # fmt: skip


def a_view(**facts: Any) -> PoolView:
    return PoolView(name="p", at=NOW, healthy=facts.pop("healthy", True), features=("exec",), **facts)


def limits_of(pool: Pool, view: PoolView | None, *, secrets_in_env: bool = False) -> str:
    told = load(pool.adapter).registration
    isolation = trust.isolation_of(pool, view, told, speaks_for_others=pool.adapter == "remote")
    return "\n".join(trust.limitations(pool, view, told, isolation, secrets_in_env=secrets_in_env))


def report(world: World, token: str) -> dict[str, Any]:
    reply = world.call("GET", "/v1/trust-report", token=token)
    assert reply.status == 200, reply.raw
    return {entry["pool"]: entry for entry in reply.json()["pools"]}


def test_an_operator_sees_each_pool_with_references_only(world: World, acme: Tenant) -> None:
    secret = {"fields": {"token": CANARY}}
    assert world.call("PUT", "/v1/admin/secrets/lab", secret, token=world.operator).status in (200, 201)
    world.pool("second", credential="secret:lab", region="eu-central-1")
    put(world, acme.org, {"deniedPools": ["second"]})
    raw = world.call("GET", "/v1/trust-report", token=world.operator).raw
    found = report(world, world.operator)["second"]
    assert CANARY.encode() not in raw
    assert found["credential"] == "secret:lab"
    assert (found["trust"], found["trustBy"], found["region"]) == ("private", "dev_only", "eu-central-1")
    assert found["isolation"] == {"value": "none", "known": "confirmed", "by": "us"}
    assert found["verification"] == load("fake").registration.verification.value
    assert found["use"] == {"globalPolicy": True, "narrowed": {acme.org: False}}
    assert any("not isolated" in sentence for sentence in found["limitations"])


def test_a_tenant_sees_what_it_may_use_and_not_how_it_is_reached(world: World, acme: Tenant) -> None:
    world.pool("second")
    put(world, acme.org, {"deniedPools": ["second"]})
    found = report(world, acme.token)
    assert set(found) == {"main"}
    assert not {"endpoint", "credential", "use"} & set(found["main"])
    assert found["main"]["limitations"]


def test_it_can_be_read(world: World) -> None:
    reply = world.call("GET", "/v1/trust-report?format=text", token=world.operator)
    assert reply.headers["Content-Type"].startswith("text/plain")
    text = reply.raw.decode()
    assert "main (fake)\n  trust: private (dev_only)\n  isolation: none, confirmed by us" in text


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_can_be_reported_on(kind: str) -> None:
    told = load(kind).registration
    pool = a_pool(kind, trust=told.trust or Trust.EXTERNAL)
    assert trust.isolation_of(pool, None, told, speaks_for_others=False).known is Known.UNKNOWN
    assert "isolation is not known" in limits_of(pool, None)
    assert (told.verification is Verification.LIVE) != ("never run against the service" in limits_of(pool, None))
    assert trust.endpoint_of(pool, told) == {}


def test_limitations_follow_what_is_set() -> None:
    pool, view = a_pool("opensandbox"), a_view(isolation="microvm")
    base = limits_of(pool, view)
    assert "declared by the configuration" in base
    assert "what its operator declared" in base
    assert "cannot limit what sandboxes reach" in base
    assert "has no prices" in base
    assert "leaves this installation" not in base
    assert "has no prices" not in limits_of(a_pool("opensandbox", cost_model=CostModel(cpu_hour=0.1)), view)
    able = view.with_(features=("exec", "network.egress-control"))
    assert "cannot limit what sandboxes reach" not in limits_of(pool, able)
    assert "leaves this installation" in limits_of(a_pool("e2b", trust=Trust.EXTERNAL), view)
    assert "new start of the processes" in limits_of(a_pool("opensandbox", credential="env:KEY"), view)
    assert "environment variables" in limits_of(pool, view, secrets_in_env=True)
    assert "does not answer" in limits_of(pool, view.with_(healthy=False))
    assert "declared by the plugin" in limits_of(a_pool("remote"), view)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"https://user:{CANARY}@host.example:8443/path?token={CANARY}#{CANARY}", "https://host.example:8443"),
        ("https://host.example", "https://host.example"),
        (f"user:{CANARY}@host.example", "host.example"),
        ("https://[broken", "an address that cannot be read"),
    ],
)
def test_of_an_address_only_the_host_is_told(address: str, shown: str) -> None:
    told = load("remote").registration
    name = told.wire_name(told.identity_fields[0])
    assert trust.endpoint_of(a_pool("remote", config={name: address}), told) == {name: shown}


def test_where_sandboxes_ran_and_by_which_decision(world: World, acme: Tenant) -> None:
    first = world.running(acme)
    world.call("POST", f"/v1/sandboxes/{first}/stop", token=acme.token)
    world.settle()
    world.call("POST", "/v1/admin/pools/main/drain", token=world.operator)
    second = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()["id"]
    world.clock.advance(1)
    world.call("POST", f"/v1/sandboxes/{first}/start", token=acme.token)
    world.call("POST", "/v1/admin/pools/main/undrain", token=world.operator)
    world.pass_time(60)
    stranger = world.tenant("stranger")
    world.running(stranger)

    def page(token: str, query: str = "") -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        cursor = ""
        for _ in range(20):
            reply = world.call("GET", f"/v1/trust-report/placements?limit=1{query}{cursor}", token=token)
            assert reply.status == 200, reply.raw
            body = reply.json()
            found += [(entry["sandbox"], entry["pool"], entry["decision"]) for entry in body["items"]]
            if "nextCursor" not in body:
                return found
            cursor = f"&cursor={body['nextCursor']}"
        raise AssertionError("the pages never end")

    expected = [(first, "main", "create"), (first, "main", "start"), (second, "main", "admit")]
    assert page(acme.token) == expected
    assert page(world.operator, f"&orgId={acme.org}") == expected
    assert page(acme.token, "&from=2026-01-02&to=2026-01-03") == []
    assert world.call("GET", "/v1/trust-report/placements", token=world.operator).status == 400
    refused = world.call("GET", f"/v1/trust-report/placements?orgId={stranger.org}", token=acme.token)
    assert refused.status == 404
