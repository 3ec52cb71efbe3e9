"""Organizations and projects are archived and deleted: a way out that ends only when nothing is held."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import Refuse
from differently_core.contract import Operation
from differently_core.errors import ProviderUnavailable
from differently_core.model.record import Table
from differently_core.operations import closing, sweep
from differently_core.store.memory import MemoryStore
from tests.support.api import Reply, Tenant, World


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def path_of(tenant: Tenant, scope: str) -> str:
    return f"/v1/orgs/{tenant.org}" if scope == "org" else f"/v1/projects/{tenant.project}"


def begin(world: World, path: str, how: str) -> Reply:
    return op(world, "DELETE", path) if how == "delete" else op(world, "POST", f"{path}/archive")


def state(world: World, path: str) -> str:
    reply = op(world, "GET", path)
    return str(reply.json()["state"]) if reply.status == 200 else str(reply.status)


def pass_until_over(world: World, rounds: int = 20) -> None:
    for _ in range(rounds):
        world.pass_time(31)


@pytest.mark.parametrize("how", ["archive", "delete"])
@pytest.mark.parametrize("scope", ["org", "project"])
def test_its_secrets_are_forgotten_and_none_is_added(world: World, acme: Tenant, scope: str, how: str) -> None:
    for number in range(3):
        body = {"value": f"canary-value-{number}"}
        assert world.call("PUT", f"/v1/secrets/s{number}", body, token=acme.token).status == 201
    begin(world, path_of(acme, scope), how)
    late = op(world, "PUT", f"/v1/secrets/late?projectId={acme.project}", {"value": "canary-late"})
    assert late.code == "invalid_state"
    pass_until_over(world)
    secrets = world.store.query(Table.CONFIG, f"PROJECT#{acme.project}", prefix="SECRET#")
    assert secrets.rows == ()


@pytest.mark.parametrize("scope", ["org", "project"])
@pytest.mark.parametrize(
    ("how", "middle", "end"), [("archive", "archiving", "archived"), ("delete", "deleting", "404")]
)
def test_everything_in_it_goes_and_then_it_is_over(
    world: World, acme: Tenant, scope: str, how: str, middle: str, end: str
) -> None:
    path = path_of(acme, scope)
    op(world, "PUT", f"/v1/orgs/{acme.org}/quota", {"maxConcurrent": 2})
    for _ in range(2):
        world.running(acme)
    world.call("POST", "/v1/sandboxes", {}, token=acme.token)
    begun = begin(world, path, how)
    assert (begun.status, begun.json()["state"]) == (202, middle)
    assert begin(world, path, how).json()["state"] == middle
    world.settle()
    assert world.backend("main").instances() == []
    assert state(world, path) == middle
    pass_until_over(world)
    assert state(world, path) == end
    assert begin(world, path, how).status == (404 if how == "delete" else 202)
    assert op(world, "GET", f"{path}/quota").status == (404 if how == "delete" else 200)
    listed = op(world, "GET", "/v1/orgs").json()["items"]
    assert (acme.org in [org["id"] for org in listed]) == (how == "archive" or scope == "project")
    assert op(world, "GET", "/v1/admin/pools/main").json()["held"] == 0


def test_its_keys_die_and_nothing_new_comes_into_it(world: World, acme: Tenant) -> None:
    neighbour = world.tenant("neighbour", org=acme.org)
    begin(world, path_of(acme, "project"), "archive")
    world.settle()
    assert world.call("GET", "/v1/sandboxes", token=acme.token).status == 401
    assert world.call("GET", "/v1/sandboxes", token=neighbour.token).status == 200
    body = {"name": "k", "scope": "tenant", "projectId": acme.project}
    assert op(world, "POST", "/v1/api-keys", body).code == "invalid_state"
    assert op(world, "POST", "/v1/sandboxes", {"projectId": acme.project}).code == "suspended"
    assert op(world, "POST", f"{path_of(acme, 'project')}/unsuspend").code == "invalid_state"
    begin(world, path_of(acme, "org"), "delete")
    world.settle()
    assert world.call("GET", "/v1/sandboxes", token=neighbour.token).status == 401
    assert op(world, "POST", f"/v1/orgs/{acme.org}/projects", {"name": "late"}).code == "invalid_state"


def test_a_pool_that_cannot_delete_keeps_it_from_being_over(world: World, acme: Tenant) -> None:
    world.running(acme)
    down = Refuse(ProviderUnavailable("no route to it", settled=True))
    world.backend("main").expect(Operation.DELETE, *[down] * 500)
    begin(world, path_of(acme, "org"), "delete")
    pass_until_over(world)
    shown = op(world, "GET", path_of(acme, "org")).json()
    assert shown["state"] == "deleting"
    assert "pool main" in shown["closing"]["waitsFor"]
    world.backend("main").heal()
    pass_until_over(world, 30)
    assert state(world, path_of(acme, "org")) == "404"


def test_a_pool_that_lists_nothing_proves_nothing(memory: World) -> None:
    """Its delete is lost, its list is empty: the attempt is not settled, so the organization still holds it."""
    acme = memory.tenant("acme")
    memory.running(acme)
    backend = memory.backend("main")
    down = Refuse(ProviderUnavailable("no route to it", settled=True))
    backend.expect(Operation.DELETE, *[down] * 500)
    backend.expect(Operation.GET, *[down] * 500)
    (instance,) = backend.instances()
    begin(memory, path_of(acme, "org"), "archive")
    backend.vanish(instance.ref)
    pass_until_over(memory)
    assert state(memory, path_of(acme, "org")) == "archiving"


def test_a_delete_takes_over_from_an_archiving_and_never_the_other_way(world: World, acme: Tenant) -> None:
    path = path_of(acme, "org")
    begin(world, path, "archive")
    assert begin(world, path, "delete").json()["closing"]["target"] == "deleted"
    assert begin(world, path, "archive").code == "invalid_state"
    pass_until_over(world)
    assert state(world, path) == "404"


def test_an_archived_one_can_be_deleted(world: World, acme: Tenant) -> None:
    path = path_of(acme, "project")
    begin(world, path, "archive")
    pass_until_over(world)
    begin(world, path, "delete")
    pass_until_over(world)
    assert state(world, path) == "404"
    assert op(world, "GET", f"/v1/orgs/{acme.org}/projects").json()["items"] == []


def test_each_removal_is_logged_as_who_asked(world: World, acme: Tenant) -> None:
    world.running(acme)
    made = op(world, "POST", "/v1/api-keys", {"name": "cleaner", "scope": "operator"}).json()
    world.call("DELETE", path_of(acme, "org"), token=made["token"])
    pass_until_over(world)
    rows = world.store.query(Table.LOG, f"EVT#{acme.org}").rows
    actors = {row.action: row.actor for row in rows}  # type: ignore[attr-defined]
    for action in ("org.deleting", "sandbox.delete", "org.deleted"):
        assert actors[action] == made["id"]


def test_steps_are_bounded_and_go_on_from_the_due_index_alone(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message of it arrives: the row's due time alone brings each next step."""
    acme = memory.tenant("acme")
    others = [memory.tenant(f"other-{number}", org=acme.org) for number in range(4)]
    monkeypatch.setattr(closing, "STEP_MAX", 3)
    monkeypatch.setattr(memory.mail, "closing", lambda tenant: None)
    for tenant in (acme, *others):
        for _ in range(4):
            memory.running(tenant)
    begin(memory, path_of(acme, "org"), "delete")
    steps = []
    monkeypatch.setattr(memory.mail, "closing", lambda tenant: steps.append(tenant))
    for _ in range(40):
        memory.clock.advance(31)
        sweep.sweep(memory.core)
        due, steps[:] = set(steps), []
        before = len(memory.backend("main").instances())
        for tenant_id in due:
            closing.step(memory.core, tenant_id)
        memory.settle()
        assert before - len(memory.backend("main").instances()) <= 3
    assert memory.backend("main").instances() == []
    assert state(memory, path_of(acme, "org")) == "404"


def test_a_step_that_comes_twice_or_late_changes_nothing(world: World, acme: Tenant) -> None:
    begin(world, path_of(acme, "org"), "archive")
    pass_until_over(world)
    before = op(world, "GET", path_of(acme, "org")).json()
    for _ in range(3):
        closing.step(world.core, acme.org)
    assert op(world, "GET", path_of(acme, "org")).json() == before
    closing.step(world.core, "org_01JBM2Y0G4S8N6P2Q7T3V5X9ZB")


def test_a_sandbox_that_a_stale_process_still_queued_is_found(memory: World) -> None:
    acme = memory.tenant("acme")
    memory.call("POST", "/v1/admin/pools/main/drain", token=memory.operator)
    memory.call("POST", "/v1/sandboxes", {}, token=acme.token)
    stale = dict(memory.core.catalog._cache)
    context = memory.app.authorizer(
        {"methodArn": "arn:aws:execute-api:x:y:z/v1/GET/", "headers": {"Authorization": f"Bearer {acme.token}"}}
    )["context"]
    begin(memory, path_of(acme, "org"), "archive")
    memory.settle()
    memory.core.catalog._cache.update(stale)
    late = memory.event("POST", "/v1/sandboxes", {})
    late["requestContext"]["authorizer"] = context
    assert memory.app.control(late)["statusCode"] == 202
    pass_until_over(memory)
    assert state(memory, path_of(acme, "org")) == "archived"
    store = memory.store
    assert isinstance(store, MemoryStore)
    assert store.query_list(f"LIVE#{acme.project}").rows == ()


def test_its_secrets_and_snapshots_go_with_it(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    for name in ("npm", "pypi"):
        kept = world.call("PUT", f"/v1/secrets/{name}", {"value": "canary-0123456789"}, token=acme.token)
        assert kept.status == 201
    assert world.call("POST", f"/v1/sandboxes/{sandbox}/snapshots", {}, token=acme.token).status in (201, 202)
    world.settle()
    assert len(world.backend("main").snapshots()) == 1
    begin(world, path_of(acme, "org"), "delete")
    pass_until_over(world)
    assert state(world, path_of(acme, "org")) == "404"
    assert world.store.query(Table.CONFIG, f"PROJECT#{acme.project}", prefix="SECRET#").rows == ()
    assert world.backend("main").snapshots() == []
