"""API keys that end: replaced with a grace, expired, revoked; each at its moment and not a moment later."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.model.record import Table
from differently_core.model.tenancy import KeyScope
from differently_core.operations import keys
from differently_core.runtime.ids import OrgId
from differently_core.store.ports import Refused
from tests.support.api import BOOT, STAGE, Reply, Tenant, World


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def identity(tenant: Tenant) -> str:
    return "key_" + tenant.token.split("_")[1]


def rotate(world: World, key: str, grace: int | None = None) -> Reply:
    return op(world, "POST", f"/v1/api-keys/{key}/rotate", {} if grace is None else {"graceSeconds": grace})


def works(world: World, token: str) -> bool:
    return world.call("GET", "/v1/sandboxes", token=token).status == 200


def remembered(world: World, token: str) -> dict[str, Any]:
    """A call as the gateway makes it while it remembers what the authorizer said of this key."""
    headers = {"Authorization": f"Bearer {token}"}
    told = world.app.authorizer({"type": "REQUEST", "methodArn": f"{STAGE}/GET/v1/sandboxes", "headers": headers})
    call = world.event("GET", "/v1/sandboxes")
    call["requestContext"]["authorizer"] = told["context"]
    return call


def test_in_the_grace_both_keys_work_and_after_it_only_the_new_one(world: World, acme: Tenant) -> None:
    """features.md 2 #11, and section 1 "Rotation with grace"."""
    sandbox = world.running(acme)
    reply = rotate(world, identity(acme), 300)
    assert reply.status == 201
    made = reply.json()
    assert made["replaced"] == op(world, "GET", f"/v1/api-keys/{identity(acme)}").json()
    assert (made["replaced"]["expiresAt"], made["replaced"]["rotatedTo"]) == ("2026-01-01T00:05:00Z", made["id"])
    assert (made["org"], made["project"], made["scope"]) == (acme.org, acme.project, "tenant")
    world.clock.advance(299.999)
    assert works(world, acme.token)
    assert world.call("GET", f"/v1/sandboxes/{sandbox}", token=made["token"]).status == 200
    world.clock.advance(0.001)
    assert not works(world, acme.token)
    assert works(world, made["token"])
    listed = op(world, "GET", f"/v1/api-keys?org={acme.org}").json()["items"]
    assert {key["id"] for key in listed} == {identity(acme), made["id"]}


def test_the_grace_ends_on_time_for_a_gateway_that_remembers_the_key(world: World, acme: Tenant) -> None:
    rotate(world, identity(acme), 120)
    world.clock.advance(100)
    call = remembered(world, acme.token)
    world.clock.advance(19.999)
    assert world.app.control(call)["statusCode"] == 200
    world.clock.advance(0.001)
    assert world.app.control(call)["statusCode"] == 401


def test_a_key_with_an_end_stops_at_it_for_a_gateway_that_remembers_it(world: World, acme: Tenant) -> None:
    body = {"name": "short", "scope": "tenant", "projectId": acme.project, "expiresAt": "2026-01-01T00:00:30Z"}
    call = remembered(world, op(world, "POST", "/v1/api-keys", body).json()["token"])
    world.clock.advance(29.999)
    assert world.app.control(call)["statusCode"] == 200
    world.clock.advance(0.001)
    answer = world.app.control(call)
    assert (answer["statusCode"], answer["headers"]["WWW-Authenticate"]) == (401, "Bearer")


def test_without_a_grace_the_old_key_ends_at_once(world: World, acme: Tenant) -> None:
    made = rotate(world, identity(acme), 0).json()
    assert not works(world, acme.token)
    assert works(world, made["token"])


def test_a_rotation_makes_no_key_last_longer(world: World, acme: Tenant) -> None:
    """An expired key is never revived by its rotation, nor kept alive by the grace (reliability.md 5, API2)."""
    body = {"name": "short", "scope": "tenant", "projectId": acme.project, "expiresAt": "2026-01-01T00:03:00Z"}
    old = op(world, "POST", "/v1/api-keys", body).json()
    made = rotate(world, old["id"], 3600).json()
    assert made["expiresAt"] == made["replaced"]["expiresAt"] == "2026-01-01T00:03:00Z"
    world.clock.advance(180)
    assert not works(world, old["token"])
    assert not works(world, made["token"])
    late = rotate(world, made["id"])
    assert (late.status, late.code) == (409, "invalid_state")


def test_a_key_is_replaced_once_and_a_lost_answer_is_made_good_by_its_successor(world: World, acme: Tenant) -> None:
    lost = rotate(world, identity(acme)).json()
    again = rotate(world, identity(acme))
    assert (again.status, again.json()["error"]["details"]) == (409, {"rotatedTo": lost["id"]})
    found = rotate(world, lost["id"], 0).json()
    assert not works(world, lost["token"])
    assert works(world, found["token"])
    assert works(world, acme.token)


def test_a_revoked_key_is_not_replaced(world: World, acme: Tenant) -> None:
    op(world, "DELETE", f"/v1/api-keys/{identity(acme)}")
    reply = rotate(world, identity(acme))
    assert (reply.status, reply.code) == (409, "invalid_state")


def test_revoking_the_successor_leaves_the_old_key_its_grace(world: World, acme: Tenant) -> None:
    made = rotate(world, identity(acme), 600).json()
    op(world, "DELETE", f"/v1/api-keys/{made['id']}")
    assert not works(world, made["token"])
    assert works(world, acme.token)


@pytest.mark.parametrize("grace", [-1, 1, 119, 90 * 24 * 3600 + 1])
def test_a_grace_that_could_not_end_on_time_is_refused(memory: World, grace: int) -> None:
    tenant = memory.tenant()
    reply = rotate(memory, identity(tenant), grace)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "graceSeconds")


def test_two_rotations_at_once_make_one_successor(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    key, transact = identity(tenant), memory.store.transact
    others: list[str] = []

    def overtaken(actions: Any) -> Any:
        monkeypatch.setattr(memory.store, "transact", transact)
        others.append(rotate(memory, key).json()["id"])
        outcome = transact(actions)
        assert isinstance(outcome, Refused)
        return outcome

    monkeypatch.setattr(memory.store, "transact", overtaken)
    assert rotate(memory, key).status == 409
    found, _ = keys.list_keys(memory.core, OrgId(tenant.org), None, 10)
    assert {row.id for row in found} == {key, *others}


def test_an_operators_key_can_replace_itself(world: World) -> None:
    made = keys.create_key(world.core, world.peppers, BOOT, "second", KeyScope.OPERATOR)
    done = world.call("POST", f"/v1/api-keys/{made.key.id}/rotate", {"graceSeconds": 0}, token=made.token)
    assert done.status == 201
    assert world.call("GET", "/v1/orgs", token=made.token).status == 401
    assert world.call("GET", "/v1/orgs", token=done.json()["token"]).status == 200


def test_a_rotation_is_logged_with_both_keys_and_no_secret(memory: World) -> None:
    tenant = memory.tenant()
    made = rotate(memory, identity(tenant), 0).json()
    rows = memory.store.query(Table.LOG, f"EVT#{tenant.org}").rows
    (event,) = [row for row in rows if row.action == "key.rotate"]  # type: ignore[attr-defined]
    assert (event.target, event.details["successor"]) == (identity(tenant), made["id"])  # type: ignore[attr-defined]
    assert made["token"].rpartition("_")[2] not in str(rows)


@pytest.mark.parametrize(
    "given",
    ["1893456000", "2030-01-01", "2030-01-01 00:00:00Z", "2030-01-01T00:00Z", "2030-13-01T00:00:00Z", 1893456000, "P1D",
     "2030-01-01T00:00:00", "now", "9999-12-31T23:59:59-14:00",
     "0001-01-01T00:00:00+14:00", "２０３０-01-01T00:00:00Z", "2030-01-01T00:00:00Z\n"],
)  # fmt: skip
def test_a_time_is_written_out(memory: World, given: Any) -> None:
    """A number of seconds in quotes was taken for a time."""
    reply = op(memory, "POST", "/v1/api-keys", {"name": "k", "scope": "operator", "expiresAt": given})
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "expiresAt")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2030-01-01t00:00:00z", "2030-01-01T00:00:00Z"),
        ("2030-01-01T00:00:00.25+02:00", "2029-12-31T22:00:00.250000Z"),
    ],
)
def test_a_time_may_have_fractions_and_an_offset(memory: World, given: str, shown: str) -> None:
    reply = op(memory, "POST", "/v1/api-keys", {"name": "k", "scope": "operator", "expiresAt": given})
    assert (reply.status, reply.json()["expiresAt"]) == (201, shown)
