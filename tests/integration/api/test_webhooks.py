"""Webhooks by the API: whose they are, what is shown of them, and what is sent."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from differently_core.model.event import Event
from differently_core.model.webhook import Receipt
from differently_core.operations import offering
from differently_core.store.memory import MemoryStore
from tests.support.api import Tenant, World

URL = "https://hooks.example.com/differently?key=1"
SEEN: set[str] = set()


@pytest.fixture
def world() -> World:
    made = World()
    made.pool()
    SEEN.clear()
    return made


def made(world: World, tenant: Tenant, **body: Any) -> Any:
    reply = world.call("POST", "/v1/webhooks", {"url": URL, **body}, token=tenant.token)
    assert reply.status == 201, reply.raw
    return reply.json()


def project(world: World) -> None:
    """Offer what was written since, as the projector does."""
    assert isinstance(world.store, MemoryStore)
    fresh = [row for row in world.store.rows().values() if isinstance(row, Event) and row.id not in SEEN]
    SEEN.update(row.id for row in fresh)
    offering.offer(world.core, sorted(fresh, key=lambda event: event.id))
    world.settle()


def test_a_secret_is_shown_once_and_nowhere_else(world: World) -> None:
    owner = world.tenant()
    hook = made(world, owner)
    assert hook["secret"].startswith("whsec_")
    path = f"/v1/webhooks/{hook['id']}"
    again = world.call("POST", f"{path}/rotate", {"graceSeconds": 60}, token=owner.token).json()
    assert again["secret"] != hook["secret"]
    assert again["secrets"] == 2
    world.clock.advance(60)
    shown = [world.call("GET", where, token=owner.token).raw.decode() for where in (path, "/v1/webhooks")]
    assert all(secret["secret"] not in text for secret in (hook, again) for text in shown)
    assert json.loads(shown[0])["secrets"] == 1


def test_a_life_is_told_and_listed(world: World) -> None:
    owner = world.tenant()
    hook = made(world, owner, events=["sandbox.*"])
    sandbox = world.running(owner)
    project(world)
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=owner.token)
    world.settle()
    project(world)
    told = [request.event for request in world.receivers.requests]
    assert {event["type"] for event in told} == {
        "sandbox.created", "sandbox.running", "sandbox.terminating", "sandbox.ended",
    }  # fmt: skip
    (end,) = [event for event in told if event["type"] == "sandbox.ended"]
    assert (end["subject"], end["data"]["reason"]["cause"]) == (sandbox, "user")
    assert (end["data"]["org"], end["data"]["project"]) == (owner.org, owner.project)

    path = f"/v1/webhooks/{hook['id']}/deliveries?limit=3"
    first = world.call("GET", path, token=owner.token).json()
    rest = world.call("GET", f"{path}&cursor={first['nextCursor']}", token=owner.token).json()
    found = [entry["id"] for entry in (*first["items"], *rest["items"])]
    assert found == sorted((event["id"] for event in told), reverse=True)
    assert {entry["status"] for entry in first["items"]} == {"delivered"}
    assert world.call("GET", f"{path}&status=failed", token=owner.token).json() == {"items": []}
    assert world.call("GET", f"{path}&cursor=x", token=owner.token).code == "invalid_request"


def test_of_a_failed_try_the_status_is_told_and_nothing_of_the_answer(world: World) -> None:
    owner = world.tenant()
    hook = made(world, owner)
    world.receivers.answer = lambda request: Receipt(status=500)
    test = world.call("POST", f"/v1/webhooks/{hook['id']}/test", token=owner.token)
    assert test.status == 202
    world.settle()
    found = world.call("GET", f"/v1/webhooks/{hook['id']}/deliveries/{test.json()['id']}", token=owner.token).json()
    assert found["status"] == "failed"
    assert set(found["lastTry"]) == {"at", "status", "failure", "durationMs"}
    assert (found["lastTry"]["status"], found["lastTry"]["failure"]) == (500, "error")
    shown = world.call("GET", f"/v1/webhooks/{hook['id']}", token=owner.token).json()
    assert shown["pending"] == 0
    assert "failingSince" in shown


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com", "https://127.0.0.1/x", "https://169.254.169.254/latest", "https://10.1.2.3",
        "https://localhost", "https://2130706433", "https://user:pass@hooks.example.com", "https://[::ffff:10.0.0.1]",
        "ftp://hooks.example.com", "hooks.example.com", "https://metadata.google.internal/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("caller", ["tenant", "operator"])
def test_a_url_that_leads_inside_is_refused_to_everybody(world: World, url: str, caller: str) -> None:
    token = world.tenant().token if caller == "tenant" else world.operator
    reply = world.call("POST", "/v1/webhooks", {"url": url}, token=token)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "url")
    assert world.receivers.requests == []
    hook = world.call("POST", "/v1/webhooks", {"url": URL}, token=token).json()
    assert world.call("PATCH", f"/v1/webhooks/{hook['id']}", {"url": url}, token=token).status == 400


def test_a_tenants_webhook_is_of_its_project_and_an_operator_names_what_it_wants(world: World) -> None:
    owner, other = world.tenant("owner"), world.tenant("other")
    assert made(world, owner)["project"] == owner.project
    for body in ({"projectId": other.project}, {"orgId": other.org}):
        assert world.call("POST", "/v1/webhooks", {"url": URL, **body}, token=owner.token).status == 404

    def by_operator(**body: str) -> Any:
        return world.call("POST", "/v1/webhooks", {"url": URL, **body}, token=world.operator)

    assert by_operator().json()["org"] == "operators"
    assert by_operator(orgId=owner.org).json().get("project") is None
    assert by_operator(projectId=owner.project).json()["org"] == owner.org
    assert by_operator(orgId=other.org, projectId=owner.project).status == 400
    assert by_operator(orgId="org_01JBM2Y0G4S8N6P2Q7T3V5X9ZB").status == 404

    def listed(query: str, token: str) -> int:
        return len(world.call("GET", f"/v1/webhooks{query}", token=token).json()["items"])

    assert listed("", owner.token) == 2
    assert listed("", other.token) == 0
    assert listed(f"?orgId={owner.org}", world.operator) == 3
    assert listed(f"?projectId={owner.project}", world.operator) == 2
    assert listed("", world.operator) == 1


def test_a_change_says_what_it_changes_and_a_repeat_changes_nothing(world: World) -> None:
    owner = world.tenant()
    path = f"/v1/webhooks/{made(world, owner)['id']}"
    change = {"events": ["sandbox.ended"], "description": "ends", "enabled": False}
    first = world.call("PATCH", path, change, token=owner.token).json()
    assert (first["events"], first["enabled"], first["disabled"]["code"]) == (["sandbox.ended"], False, "asked")
    world.clock.advance(1)
    assert world.call("PATCH", path, change, token=owner.token).json() == first
    assert world.call("POST", f"{path}/test", token=owner.token).code == "invalid_state"
    assert world.call("PATCH", path, {"enabled": True}, token=owner.token).json()["enabled"] is True
    assert world.call("PATCH", path, {"events": ["sandbox.exploded"]}, token=owner.token).status == 400
    assert world.call("DELETE", path, token=owner.token).status == 204
    assert world.call("DELETE", path, token=owner.token).status == 404


def test_a_replay_is_told_of_while_it_is_under_way(world: World) -> None:
    owner = world.tenant()
    hook = made(world, owner)
    world.clock.advance(10)
    world.running(owner)
    world.clock.advance(10)
    since = (world.clock.now() - timedelta(seconds=15)).isoformat()
    reply = world.call("POST", f"/v1/webhooks/{hook['id']}/replay", {"from": since}, token=owner.token)
    assert (reply.status, reply.json()["offered"]) == (202, 0)
    shown = world.call("GET", f"/v1/webhooks/{hook['id']}", token=owner.token).json()
    assert shown["replay"]["from"] == reply.json()["from"]
    world.settle()
    shown = world.call("GET", f"/v1/webhooks/{hook['id']}", token=owner.token).json()
    assert "replay" not in shown
    assert {request.event["type"] for request in world.receivers.requests} == {"sandbox.created", "sandbox.running"}
    for wrong in ({}, {"from": "yesterday"}, {"from": since, "to": since}, {"from": 5}):
        assert world.call("POST", f"/v1/webhooks/{hook['id']}/replay", wrong, token=owner.token).status == 400


def test_the_sweep_finds_what_no_message_told_of(world: World) -> None:
    owner = world.tenant()
    hook = made(world, owner)
    world.call("POST", f"/v1/webhooks/{hook['id']}/test", token=owner.token)
    world.mail.messages.clear()
    world.pass_time(1)
    assert [request.event["type"] for request in world.receivers.requests] == ["webhook.test"]


def test_no_log_line_holds_a_url_or_a_secret(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    owner = world.tenant()
    hook = made(world, owner)
    world.call("POST", f"/v1/webhooks/{hook['id']}/test", token=owner.token)
    world.settle()
    said = str([vars(record) for record in caplog.records])
    assert "key=1" not in said
    assert hook["secret"][6:] not in said
