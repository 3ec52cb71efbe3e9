"""Budgets through the API: operators set them, tenants read their own, and a hard stop says what stands in the way."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.operations import budgets
from tests.support.api import Tenant, World

HOUR = {"resources": {"cpu": 1}, "ttlSeconds": 3600}


@pytest.fixture
def priced(world: World, acme: Tenant) -> World:
    world.call("PATCH", "/v1/admin/pools/main", {"costModel": {"cpuHour": 1.0}}, token=world.operator)
    return world


def put(world: World, path: str, **body: Any) -> Any:
    reply = world.call("PUT", f"{path}/budget", body, token=world.operator)
    assert reply.status == 200, reply.raw
    return reply.json()


def test_a_hard_stop_is_told_with_its_figures_and_a_raise_lets_it_go_on(priced: World, acme: Tenant) -> None:
    project = f"/v1/projects/{acme.project}"
    put(priced, project, limit=1.5, action="stop")
    assert priced.call("POST", "/v1/sandboxes", HOUR, token=acme.token).status == 202
    refused = priced.call("POST", "/v1/sandboxes", HOUR, token=acme.token)
    assert (refused.status, refused.code) == (403, "budget_exceeded")
    details = refused.json()["error"]["details"]
    assert {name: details[name] for name in ("limit", "spent", "currency", "periodEnd")} == {
        "limit": 1.5, "spent": 0.0, "currency": "USD", "periodEnd": "2026-02-01T00:00:00Z",
    }  # fmt: skip
    shown = put(priced, project, limit=2.5, action="stop")
    assert (shown["projected"], shown["reached"], shown["periodEndsAt"]) == (1.0, [], "2026-02-01T00:00:00Z")
    assert priced.call("POST", "/v1/sandboxes", HOUR, token=acme.token).status == 202


def test_a_key_that_names_a_live_sandbox_is_answered_with_it(priced: World, acme: Tenant) -> None:
    first = priced.call("POST", "/v1/sandboxes", HOUR, token=acme.token, headers={"Idempotency-Key": "one"})
    put(priced, f"/v1/orgs/{acme.org}", limit=0, action="stop")
    again = priced.call("POST", "/v1/sandboxes", HOUR, token=acme.token, headers={"Idempotency-Key": "one"})
    assert (again.status, again.json()["id"]) == (200, first.json()["id"])


def test_a_tenant_reads_its_own_and_no_other(priced: World, acme: Tenant) -> None:
    stranger = priced.tenant("stranger")
    for tenant in (acme, stranger):
        put(priced, f"/v1/projects/{tenant.project}", limit=5)
        put(priced, f"/v1/orgs/{tenant.org}", limit=50, thresholds=[90, 10, 90])
    mine = priced.call("GET", f"/v1/orgs/{acme.org}/budget", token=acme.token).json()
    assert (mine["limit"], mine["thresholds"], mine["action"], mine["spent"]) == (50.0, [10, 90], "alert", 0.0)
    assert priced.call("GET", f"/v1/projects/{acme.project}/budget", token=acme.token).json()["limit"] == 5.0
    for path in (f"/v1/orgs/{stranger.org}/budget", f"/v1/projects/{stranger.project}/budget"):
        assert priced.call("GET", path, token=acme.token).status == 404
        assert priced.call("PUT", path, {"limit": 9}, token=acme.token).status == 403


def test_a_removed_budget_is_gone(priced: World, acme: Tenant) -> None:
    put(priced, f"/v1/orgs/{acme.org}", limit=0, action="stop")
    assert priced.call("DELETE", f"/v1/orgs/{acme.org}/budget", token=priced.operator).status == 204
    assert priced.call("DELETE", f"/v1/orgs/{acme.org}/budget", token=priced.operator).status == 404
    assert priced.call("POST", "/v1/sandboxes", HOUR, token=acme.token).status == 202
    assert budgets.look_at_all(priced.core) == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"limit": -1}, "limit"),
        ({}, "limit"),
        ({"limit": 1, "currency": "euro"}, "currency"),
        ({"limit": 1, "thresholds": [0]}, "thresholds[0]"),
        ({"limit": 1, "action": "kill"}, "action"),
    ],
)
def test_a_budget_that_makes_no_sense_names_its_field(world: World, acme: Tenant, body: Any, field: str) -> None:
    refused = world.call("PUT", f"/v1/orgs/{acme.org}/budget", body, token=world.operator)
    assert refused.status == 400
    assert refused.json()["error"]["details"]["field"] == field
