"""The queue as tenants and operators see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.test_policies import put, spoil
from tests.support.api import Tenant, World


def queue(world: World, token: str, query: str = "") -> list[Any]:
    """Every page of it."""
    found: list[Any] = []
    cursor = ""
    for _ in range(50):
        page = world.call("GET", f"/v1/queue?{query}{cursor}", token=token)
        assert page.status == 200, page.raw
        found += page.json()["items"]
        if "nextCursor" not in page.json():
            return found
        cursor = f"&cursor={page.json()['nextCursor']}"
    raise AssertionError("the pages never end")


def wait(world: World, tenant: Tenant, **body: Any) -> str:
    world.clock.advance(0.01)
    made = world.call("POST", "/v1/sandboxes", body, token=tenant.token).json()
    assert made["status"] == "queued", made
    return str(made["id"])


@pytest.fixture
def busy(world: World, acme: Tenant) -> World:
    world.call("POST", "/v1/admin/pools/main/drain", token=world.operator)
    return world


def test_who_waits_is_told_with_place_reason_and_age(busy: World, acme: Tenant) -> None:
    first = wait(busy, acme)
    second = wait(busy, acme)
    urgent = wait(busy, acme, priority=5)
    busy.clock.advance(30)
    found = queue(busy, acme.token)
    assert [(entry["sandbox"], entry["position"]) for entry in found] == [(urgent, 1), (first, 2), (second, 3)]
    assert found[0]["priority"] == 5
    assert found[1]["ageSeconds"] == pytest.approx(30.02)
    assert (found[0]["reason"], found[0]["detail"], found[0]["wakes"]) == ("no_room", "main: draining", False)


def test_a_tenant_sees_its_project_s_own_at_their_real_places(busy: World, acme: Tenant) -> None:
    sibling = busy.tenant("sibling", org=acme.org)
    stranger = busy.tenant("stranger")
    order = [wait(busy, who) for who in (sibling, acme, stranger, sibling, acme)]
    assert [(entry["sandbox"], entry["position"]) for entry in queue(busy, acme.token)] == [
        (order[1], 2),
        (order[4], 4),
    ]
    assert [(entry["sandbox"], entry["position"]) for entry in queue(busy, stranger.token)] == [(order[2], 1)]
    everybody = queue(busy, busy.operator)
    assert {entry["sandbox"] for entry in everybody} == set(order)
    places = {entry["sandbox"]: entry["position"] for entry in everybody}
    assert [places[one] for one in order] == [1, 2, 1, 3, 4]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_leave_nothing_out_and_count_on(busy: World, acme: Tenant, limit: int) -> None:
    tenants = [acme, busy.tenant("other"), busy.tenant("third")]
    order = [wait(busy, tenants[number % 3]) for number in range(9)]
    found = queue(busy, busy.operator, f"limit={limit}")
    assert sorted(entry["sandbox"] for entry in found) == sorted(order)
    for tenant in tenants:
        assert [entry["position"] for entry in found if entry["project"] == tenant.project] == [1, 2, 3]
        assert [entry["position"] for entry in queue(busy, tenant.token, f"limit={limit}")] == [1, 2, 3]


def test_a_cursor_is_for_its_own_list(busy: World, acme: Tenant) -> None:
    for _ in range(2):
        wait(busy, acme)
    cursor = busy.call("GET", "/v1/queue?limit=1", token=busy.operator).json()["nextCursor"]
    refused = busy.call("GET", f"/v1/queue?cursor={cursor}", token=acme.token)
    assert (refused.status, refused.code) == (400, "invalid_request")


def test_each_reason_is_told_apart(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    world.pool("outside", trust="external")
    world.running(acme, {"placement": {"allowedPools": ["tiny"]}})
    full = wait(world, acme, placement={"allowedPools": ["tiny"]})
    (entry,) = queue(world, acme.token)
    assert (entry["sandbox"], entry["reason"]) == (full, "no_room")
    assert entry["detail"] == "main: not_in_allowed_pools, tiny: full"

    world.call("PUT", f"/v1/projects/{acme.project}/quota", {"maxConcurrent": 1}, token=world.operator)
    (entry,) = queue(world, acme.token)
    assert (entry["reason"], entry["detail"]) == ("quota", "the project has no free sandboxes")
    world.call("PUT", f"/v1/projects/{acme.project}/quota", {"maxConcurrent": 9}, token=world.operator)

    spoil(world, acme.org)
    assert queue(world, acme.token)[0]["reason"] == "policy_unreadable"
    put(world, acme.org, {"deniedPools": ["tiny"]})
    world.mail.messages.clear()
    assert "tiny" not in queue(world, acme.token)[0]["detail"]
    assert "tiny: denied_by_policy" in queue(world, world.operator)[0]["detail"]


def test_what_waits_for_a_pool_is_told_with_the_pool(world: World, acme: Tenant) -> None:
    """features.md 3: the queue-pressure signal."""
    world.pool("tiny", max_concurrency=1)
    pinned = {"placement": {"allowedPools": ["tiny"]}, "resources": {"cpu": 2, "memoryMiB": 1024}}
    world.running(acme, pinned)
    assert "queue" not in world.call("GET", "/v1/admin/pools/tiny", token=world.operator).json()
    for _ in range(3):
        wait(world, acme, **pinned)
    world.settle()
    told = world.call("GET", "/v1/admin/pools/tiny", token=world.operator).json()["queue"]
    assert (told["waiting"], told["cpu"], told["memoryMiB"]) == (3, 6.0, 3072)
    assert told["oldestAt"].startswith("2026-01-01T00:00:00.01")
    world.clock.advance(300)
    assert "queue" not in world.call("GET", "/v1/admin/pools/tiny", token=world.operator).json()
