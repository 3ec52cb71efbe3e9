"""The life of a sandbox, seen from outside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from differently_adapters.providers.fake import Pending, Refuse
from differently_core.contract import Operation
from differently_core.errors import SandboxFailed
from tests.support.api import Reply, Tenant, World


def create(world: World, tenant: Tenant, body: Any = None, key: str | None = None) -> Reply:
    headers = {"Idempotency-Key": key} if key is not None else {}
    return world.call("POST", "/v1/sandboxes", body or {}, token=tenant.token, headers=headers)


def get(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def test_create_is_accepted_and_the_sandbox_runs(world: World, acme: Tenant) -> None:
    reply = create(world, acme, {"labels": {"run": "7"}, "resources": {"cpu": 2, "memoryMiB": 1024}, "ttlSeconds": 60})
    assert reply.status == 202
    made = reply.json()
    assert made["status"] == "provisioning"
    assert reply.headers["Location"] == f"/v1/sandboxes/{made['id']}"
    assert reply.headers["X-Request-Id"] == "request-2"

    world.settle()
    found = get(world, acme, made["id"])
    assert found["status"] == "running"
    assert found["pool"] == "main"
    assert found["resources"] == {"cpu": 2.0, "memoryMiB": 1024, "diskGiB": 1}
    assert found["labels"] == {"run": "7"}
    assert found["expiresAt"] == "2026-01-01T00:01:00Z"
    assert set(found["conditions"]) == {"seen", "reachable", "prepared", "admitted"}
    assert "backendRef" not in found


def test_an_operator_names_the_project_and_sees_the_backends_ref(world: World, acme: Tenant) -> None:
    without = world.call("POST", "/v1/sandboxes", {}, token=world.operator)
    assert (without.status, without.json()["error"]["details"]["field"]) == (400, "projectId")

    made = world.call("POST", "/v1/sandboxes", {"projectId": acme.project}, token=world.operator).json()
    world.settle()
    seen = world.call("GET", f"/v1/sandboxes/{made['id']}", token=world.operator).json()
    assert seen["backendRef"]
    assert seen["project"] == acme.project


def test_a_deleted_sandbox_stays_readable_and_refuses_work(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    reply = world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    assert (reply.status, reply.json()["status"]) == (202, "terminating")
    assert get(world, acme, sandbox)["status"] == "terminating"

    again = world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    assert (again.status, again.json()["status"]) == (202, "terminating")

    world.settle()
    assert get(world, acme, sandbox)["status"] == "terminated"
    assert get(world, acme, sandbox)["statusReason"]["code"] == "deleted"
    assert not world.backend("main").instances()
    gone = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "x"}, token=acme.token)
    assert (gone.status, gone.code) == (409, "invalid_state")
    assert world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token).json()["status"] == "terminated"


def test_a_queued_sandbox_says_what_it_waits_for_and_runs_later(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    body = {"placement": {"allowedPools": ["tiny"]}}
    first = world.running(acme, body)
    waiting = create(world, acme, body).json()
    assert waiting["status"] == "queued"
    assert waiting["queueDeadline"]
    assert waiting["statusReason"]["code"] == "waiting"

    early = world.call("POST", f"/v1/sandboxes/{waiting['id']}/exec", {"command": "x"}, token=acme.token)
    assert (early.status, early.code) == (409, "invalid_state")
    assert "wait?for=running" in early.json()["error"]["message"]

    world.call("DELETE", f"/v1/sandboxes/{first}", token=acme.token)
    world.settle()
    assert get(world, acme, waiting["id"])["status"] == "running"


def test_a_ttl_ends_it_and_an_update_moves_that_moment(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"ttlSeconds": 60})
    world.clock.advance(50)
    reply = world.call("PATCH", f"/v1/sandboxes/{sandbox}", {"ttlSeconds": 100}, token=acme.token)
    assert reply.status == 200
    assert reply.json()["expiresAt"] == "2026-01-01T00:02:30Z"

    world.pass_time(99)
    assert get(world, acme, sandbox)["status"] == "running"
    world.pass_time(1)
    assert get(world, acme, sandbox)["status"] == "terminated"
    assert get(world, acme, sandbox)["statusReason"]["code"] == "ttl_expired"


def test_an_update_replaces_labels_and_leaves_the_rest(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"labels": {"a": "1", "b": "2"}})
    changed = world.call("PATCH", f"/v1/sandboxes/{sandbox}", {"labels": {"c": "3"}}, token=acme.token).json()
    assert changed["labels"] == {"c": "3"}
    assert changed["ttlSeconds"] == 3600
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    late = world.call("PATCH", f"/v1/sandboxes/{sandbox}", {"labels": {}}, token=acme.token)
    assert (late.status, late.code) == (409, "invalid_state")


def test_a_sandbox_that_cannot_start_fails_with_the_reason(world: World, acme: Tenant) -> None:
    backend = world.backend("main")
    backend.expect(Operation.CREATE, *[Refuse(SandboxFailed("no such image", settled=True))] * 3)
    made = create(world, acme).json()
    for _ in range(4):
        world.settle()
        world.pass_time(60)
    found = get(world, acme, made["id"])
    assert found["status"] == "failed"
    assert "no such image" in found["statusReason"]["detail"]


# Idempotency


def test_a_repeat_with_the_same_key_answers_with_the_first(world: World, acme: Tenant) -> None:
    first = create(world, acme, {"labels": {"a": "1", "b": "2"}}, "key-1")
    world.settle()
    again = create(world, acme, '{"ttlSeconds": 0, "labels": {"b": "2", "a": "1"}}', "key-1")
    assert (first.status, again.status) == (202, 200)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["Location"] == first.headers["Location"]
    assert again.json() == first.json()
    assert len(world.backend("main").instances()) == 1


def test_the_same_key_with_another_body_is_a_conflict(world: World, acme: Tenant) -> None:
    first = create(world, acme, {}, "key-1").json()
    other = create(world, acme, {"ttlSeconds": 5}, "key-1")
    assert (other.status, other.code) == (409, "idempotency_conflict")
    assert other.json()["error"]["details"]["sandboxId"] == first["id"]


def test_a_key_is_free_once_its_sandbox_is_on_its_way_out(world: World, acme: Tenant) -> None:
    first = create(world, acme, {}, "key-1").json()
    world.call("DELETE", f"/v1/sandboxes/{first['id']}", token=acme.token)
    second = create(world, acme, {"ttlSeconds": 5}, "key-1")
    assert second.status == 202
    assert second.json()["id"] != first["id"]
    world.settle()
    assert create(world, acme, {"ttlSeconds": 5}, "key-1").json()["id"] == second.json()["id"]


def test_a_key_belongs_to_its_project(world: World, acme: Tenant) -> None:
    other = world.tenant("other")
    ids = {create(world, tenant, {}, "key-1").json()["id"] for tenant in (acme, other)}
    assert len(ids) == 2


def test_a_replay_of_a_queued_create_and_after_the_pool_filled_up(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    body = {"placement": {"allowedPools": ["tiny"]}, "queueTimeoutSeconds": 0}
    first = create(world, acme, body, "key-1")
    assert first.status == 202
    again = create(world, acme, body, "key-1")
    assert (again.status, again.json()["id"]) == (200, first.json()["id"])
    assert create(world, acme, body, "key-2").status == 503


def test_a_key_names_its_live_sandbox_even_when_nothing_new_could_be_created(world: World, acme: Tenant) -> None:
    body = {"resources": {"cpu": 4}}
    first = create(world, acme, body, "key-1").json()
    small = {"perSandbox": {"maxCPU": 1}}
    assert world.call("PUT", f"/v1/orgs/{acme.org}/quota", small, token=world.operator).status == 200
    assert create(world, acme, body).code == "limit_exceeded"
    again = create(world, acme, body, "key-1")
    assert (again.status, again.json()["id"]) == (200, first["id"])
    assert create(world, acme, {"resources": {"cpu": 8}}, "key-1").code == "idempotency_conflict"


def test_64_creates_at_once_with_one_key_make_one_sandbox(world: World, acme: Tenant) -> None:
    with ThreadPoolExecutor(16) as threads:
        replies = list(threads.map(lambda _: create(world, acme, {}, "key-1"), range(64)))
    assert {reply.status for reply in replies} <= {200, 202}
    assert sum(reply.status == 202 for reply in replies) == 1
    assert len({reply.json()["id"] for reply in replies}) == 1
    world.settle()
    assert len(world.backend("main").instances()) == 1


# Not wanting to wait


def test_with_no_patience_a_full_pool_is_503_and_a_full_quota_429(world: World, acme: Tenant) -> None:
    world.pool("tiny", max_concurrency=1)
    body = {"placement": {"allowedPools": ["tiny"]}, "queueTimeoutSeconds": 0}
    assert create(world, acme, body).status == 202
    full = create(world, acme, body)
    assert (full.status, full.code, full.headers["Retry-After"]) == (503, "provider_unavailable", "2")

    world.call("PUT", f"/v1/projects/{acme.project}/quota", {"maxConcurrent": 1}, token=world.operator)
    over = create(world, acme, {"queueTimeoutSeconds": 0})
    assert (over.status, over.code, over.headers["Retry-After"]) == (429, "quota_exceeded", "10")
    details = over.json()["error"]["details"]
    assert details == {"scope": "project", "resource": "sandboxes", "limit": 1, "held": 1}


def test_a_full_backlog_refuses_more(world: World, acme: Tenant) -> None:
    quota = {"maxConcurrent": 1, "maxQueued": 2}
    world.call("PUT", f"/v1/orgs/{acme.org}/quota", quota, token=world.operator)
    world.running(acme)
    for _ in range(2):
        assert create(world, acme).json()["status"] == "queued"
        world.settle()
    refused = create(world, acme)
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "queue_full", "10")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"capabilities": ["gpu"]}, "unsupported_capability"),
        ({"placement": {"allowedPools": ["nowhere"]}}, "no_eligible_pool"),
        ({"resources": {"cpu": 65}}, "limit_exceeded"),
        ({"ttlSeconds": 7 * 24 * 3600 + 1}, "limit_exceeded"),
    ],
)
def test_what_no_pool_could_ever_take_is_422(world: World, acme: Tenant, body: Any, code: str) -> None:
    reply = create(world, acme, body)
    assert (reply.status, reply.code) == (422, code)


def test_limits_are_inclusive(world: World, acme: Tenant) -> None:
    assert create(world, acme, {"ttlSeconds": 7 * 24 * 3600}).status == 202
    assert create(world, acme, {"resources": {"cpu": 64, "memoryMiB": 262_144, "diskGiB": 2_048}}).status == 202


# Waiting


def test_a_wait_answers_when_the_sandbox_runs(world: World, acme: Tenant) -> None:
    made = create(world, acme).json()
    reply = world.call("GET", f"/v1/sandboxes/{made['id']}/wait?for=running&timeoutSeconds=120", token=acme.token)
    assert reply.status == 200
    assert reply.streamed
    world.settle()
    assert reply.json()["status"] == "running"


def test_a_long_wait_keeps_its_connection_and_is_one_json_document(world: World, acme: Tenant) -> None:
    world.backend("main").expect(Operation.CREATE, Pending(3600))
    made = create(world, acme).json()
    world.settle()
    reply = world.call("GET", f"/v1/sandboxes/{made['id']}/wait?timeoutSeconds=120", token=acme.token)
    silences, last, chunks = [], world.clock.monotonic(), []
    for chunk in reply.chunks:
        silences.append(world.clock.monotonic() - last)
        last = world.clock.monotonic()
        chunks.append(chunk)
    assert max(silences) <= 15
    assert len(chunks) > 120 / 15
    assert all(chunk.isspace() for chunk in chunks[:-1])
    assert world.clock.monotonic() == pytest.approx(120, abs=3)
    assert Reply(200, {}, iter(chunks), True).json()["status"] == "provisioning"


def test_a_wait_ends_when_the_sandbox_is_gone_or_time_is_up(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    path = f"/v1/sandboxes/{sandbox}/wait"
    assert world.call("GET", f"{path}?for=paused&timeoutSeconds=0", token=acme.token).json()["status"] == "running"
    assert world.call("GET", f"{path}?for=paused&for=running", token=acme.token).json()["status"] == "running"
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    assert world.call("GET", path, token=acme.token).json()["status"] == "terminating"


def test_a_wait_ends_before_its_function_does(world: World, acme: Tenant) -> None:
    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 40_000

    world.backend("main").expect(Operation.CREATE, Pending(3600))
    made = create(world, acme).json()
    world.settle()
    path = f"/v1/sandboxes/{made['id']}/wait?timeoutSeconds=800"
    reply = world.call("GET", path, token=acme.token, context=Context())
    assert reply.json()["status"] == "provisioning"
    assert 28 <= world.clock.monotonic() <= 32
