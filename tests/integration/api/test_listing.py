"""Lists: filters, pages, and cursors that cannot be made up."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from tests.support.api import Tenant, World


def page(world: World, tenant: Tenant, **query: Any) -> Any:
    reply = world.call("GET", f"/v1/sandboxes?{urlencode(query, doseq=True)}", token=tenant.token)
    assert reply.status == 200, reply.raw
    return reply.json()


def walk(world: World, token: str, path: str, **query: Any) -> list[str]:
    """The ids of every page."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(100):
        reply = world.call("GET", f"{path}?{urlencode({**query, **cursor}, doseq=True)}", token=token)
        assert reply.status == 200, reply.raw
        body = reply.json()
        found += [item.get("id", item.get("name")) for item in body["items"]]
        if "nextCursor" not in body:
            return found
        cursor = {"cursor": body["nextCursor"]}
    raise AssertionError("a list that does not end")


def fill(world: World, tenant: Tenant, count: int) -> list[str]:
    """Sandboxes one second apart, newest first; every third is labelled, every fourth is gone."""
    ids = []
    for number in range(count):
        labels = {"run": "7", "odd": "yes"} if number % 3 == 0 else {"run": "8"}
        made = world.call("POST", "/v1/sandboxes", {"labels": labels}, token=tenant.token).json()["id"]
        if number % 4 == 0:
            world.call("DELETE", f"/v1/sandboxes/{made}", token=tenant.token)
        ids.append(made)
        world.clock.advance(1)
    return ids[::-1]


def test_a_list_is_newest_first_and_hides_what_is_gone(world: World, acme: Tenant) -> None:
    ids = fill(world, acme, 6)
    gone = [ids[5], ids[1]]
    live = [identity for identity in ids if identity not in gone]
    assert [item["id"] for item in page(world, acme)["items"]] == live
    everything = [item["id"] for item in page(world, acme, ended="true")["items"]]
    assert everything == [*live, ids[1], ids[5]]


def test_filters_by_state_and_label(world: World, acme: Tenant) -> None:
    ids = fill(world, acme, 6)
    world.settle()
    assert {item["id"] for item in page(world, acme, status="running")["items"]} == set(ids) - {ids[5], ids[1]}
    assert {item["id"] for item in page(world, acme, status="terminated")["items"]} == {ids[5], ids[1]}
    both = page(world, acme, status=["running", "terminated"])["items"]
    assert len(both) == 6
    assert [item["id"] for item in page(world, acme, label="odd=yes")["items"]] == [ids[2]]
    assert page(world, acme, label=["odd=yes", "run=8"])["items"] == []
    assert page(world, acme, status="queued")["items"] == []


def test_a_label_value_may_hold_anything(world: World, acme: Tenant) -> None:
    value = "a=b&c d/é"
    world.call("POST", "/v1/sandboxes", {"labels": {"k": value}}, token=acme.token)
    assert len(page(world, acme, label=f"k={value}")["items"]) == 1
    assert page(world, acme, label="k=")["items"] == []


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 7, 13, 200])
@pytest.mark.parametrize(
    "query",
    [{}, {"ended": "true"}, {"label": "odd=yes"}, {"status": "terminating"}, {"ended": "true", "label": "run=8"}],
    ids=["live", "all", "labelled", "gone", "all labelled"],
)
def test_every_item_comes_exactly_once_at_every_page_size(memory: World, limit: int, query: dict[str, str]) -> None:
    tenant = memory.tenant()
    fill(memory, tenant, 13)
    whole = walk(memory, tenant.token, "/v1/sandboxes", limit=200, **query)
    assert walk(memory, tenant.token, "/v1/sandboxes", limit=limit, **query) == whole
    assert whole
    assert len(whole) == len(set(whole))


def test_pages_hold_while_others_are_made_and_deleted(world: World, acme: Tenant) -> None:
    ids = fill(world, acme, 9)
    before = walk(world, acme.token, "/v1/sandboxes")
    first = page(world, acme, limit=3)
    world.call("POST", "/v1/sandboxes", {}, token=acme.token)
    deleted = before[4]
    world.call("DELETE", f"/v1/sandboxes/{deleted}", token=acme.token)
    rest = walk(world, acme.token, "/v1/sandboxes", limit=2, cursor=first["nextCursor"])
    assert [item["id"] for item in first["items"]] + rest == [entry for entry in before if entry != deleted]
    assert ids


def test_an_operator_lists_one_project(world: World, acme: Tenant) -> None:
    fill(world, acme, 2)
    assert world.call("GET", "/v1/sandboxes", token=world.operator).status == 400
    listed = world.call("GET", f"/v1/sandboxes?projectId={acme.project}", token=world.operator).json()
    assert len(listed["items"]) == 1
    missing = world.call("GET", "/v1/sandboxes?projectId=proj_nothing", token=world.operator)
    assert (missing.status, missing.code) == (404, "not_found")


def flipped(cursor: str, position: int) -> str:
    raw = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    raw[position] ^= 1
    return base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")


def test_a_cursor_that_was_changed_or_made_up_is_refused(memory: World) -> None:
    tenant, other = memory.tenant(), memory.tenant("other")
    fill(memory, tenant, 4)
    cursor = page(memory, tenant, limit=1)["nextCursor"]
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    bad = [flipped(cursor, position) for position in range(len(raw))]
    bad += ["", "x", "é", cursor[:-3], cursor + "AA", base64.urlsafe_b64encode(b"0.").decode(), "A" * 5000]
    for made_up in bad:
        reply = memory.call("GET", f"/v1/sandboxes?limit=1&cursor={quote(made_up)}", token=tenant.token)
        assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "cursor"), made_up
    foreign = memory.call("GET", f"/v1/sandboxes?limit=1&cursor={cursor}", token=other.token)
    assert foreign.status == 400
    for query in ("ended=true", "status=running", "label=a=b"):
        assert memory.call("GET", f"/v1/sandboxes?{query}&cursor={cursor}", token=tenant.token).status == 400
    assert memory.call("GET", f"/v1/sandboxes?limit=2&cursor={cursor}", token=tenant.token).status == 200
    assert memory.call("GET", f"/v1/orgs?cursor={cursor}", token=memory.operator).status == 400


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_lists_of_operators_come_whole_at_every_page_size(world: World, limit: int) -> None:
    orgs = [world.tenant(f"org-{number}").org for number in range(5)]
    for number in range(3):
        world.tenant(f"more-{number}", org=orgs[0])
    for number in range(4):
        world.pool(f"pool-{number}")
    lists: dict[str, tuple[int, dict[str, str]]] = {
        "/v1/orgs": (5, {}),
        f"/v1/orgs/{orgs[0]}/projects": (4, {}),
        "/v1/api-keys": (1, {}),
        "/v1/api-keys?": (4, {"org": orgs[0]}),
        "/v1/admin/pools": (5, {}),
    }
    for path, (count, query) in lists.items():
        found = walk(world, world.operator, path.rstrip("?"), limit=limit, **query)
        assert len(found) == len(set(found)) == count, path
