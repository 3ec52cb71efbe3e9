"""Ports, seen from outside: an address while the sandbox runs, and none after that."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter, LoseAnswer, Refuse
from differently_core.contract import Exposure, Operation, Target, Unsupported
from differently_core.model.port import PORTS_MAX
from tests.support.api import Reply, Tenant, World


def expose(world: World, tenant: Tenant, sandbox: str, port: int = 3000, **body: Any) -> Reply:
    return world.call("POST", f"/v1/sandboxes/{sandbox}/ports", {"port": port, **body}, token=tenant.token)


def listed(world: World, tenant: Tenant, sandbox: str) -> list[Any]:
    items = world.call("GET", f"/v1/sandboxes/{sandbox}/ports", token=tenant.token).json()["items"]
    assert isinstance(items, list)
    return items


def reachable(world: World, pool: str = "main") -> list[int]:
    """Ports that lead anywhere at the backend."""
    return sorted(port for instance in world.backend(pool).instances() for port in instance.ports)


def test_an_open_port_has_an_address_and_an_end(world: World, acme: Tenant) -> None:
    """features.md 1: the port call of a sandbox answers url and `expiresAt`."""
    sandbox = world.running(acme)
    reply = expose(world, acme, sandbox, ttlSeconds=600)
    assert reply.status == 200
    shown = reply.json()
    assert shown["url"].startswith("https://3000-")
    assert (shown["port"], shown["expiresAt"]) == (3000, "2026-01-01T00:10:00Z")
    one = {"port": 3000, "status": "open", "openedAt": "2026-01-01T00:00:00Z", "expiresAt": "2026-01-01T00:10:00Z"}
    assert listed(world, acme, sandbox) == [one]
    assert world.call("GET", f"/v1/sandboxes/{sandbox}/ports/3000", token=acme.token).json() == one


def test_an_address_ends_with_the_sandbox_at_the_latest(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"ttlSeconds": 120})
    assert expose(world, acme, sandbox, ttlSeconds=86_400).json()["expiresAt"] == "2026-01-01T00:02:00Z"


def test_a_closed_port_leads_nowhere_and_closing_it_again_is_success(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    expose(world, acme, sandbox, 3000)
    expose(world, acme, sandbox, 4000)
    for _ in range(2):
        reply = world.call("DELETE", f"/v1/sandboxes/{sandbox}/ports/3000", token=acme.token)
        assert (reply.status, reply.json()) == (200, {"port": 3000, "status": "closed"})
        assert reachable(world) == [4000]
    assert [line["port"] for line in listed(world, acme, sandbox)] == [4000]
    gone = world.call("GET", f"/v1/sandboxes/{sandbox}/ports/3000", token=acme.token)
    assert (gone.status, gone.code) == (404, "not_found")


def test_a_port_closes_when_its_time_is_over_although_every_message_is_lost(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    expose(world, acme, sandbox, ttlSeconds=60)
    for _ in range(3):
        world.mail.messages.clear()
        world.pass_time(30)
    assert (listed(world, acme, sandbox), reachable(world)) == ([], [])


def test_a_deleted_sandbox_keeps_no_port(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    expose(world, acme, sandbox)
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=acme.token)
    refused = expose(world, acme, sandbox, 4000)
    assert (refused.status, refused.code) == (409, "invalid_state")
    world.settle()
    world.pass_time(30)
    assert listed(world, acme, sandbox) == []


def test_a_port_of_a_sandbox_that_is_not_running_is_409(world: World, acme: Tenant) -> None:
    made = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()
    early = expose(world, acme, made["id"])
    assert (early.status, early.code) == (409, "invalid_state")
    assert "wait?for=running" in early.json()["error"]["message"]


def test_opening_a_port_counts_as_use_and_listing_does_not(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.clock.advance(5)
    expose(world, acme, sandbox)
    world.clock.advance(60)
    listed(world, acme, sandbox)
    found = world.call("GET", f"/v1/sandboxes/{sandbox}", token=acme.token).json()
    assert found["lastActivityAt"] == "2026-01-01T00:00:05Z"


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_pool_that_cannot_do_it_is_501_by_name(
    world: World, acme: Tenant, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """features.md 1: an optional operation that is missing is 501 with operation, pool and adapter."""
    sandbox = world.running(acme)
    expose(world, acme, sandbox, 3000)
    operation = Operation.PORT_EXPOSE if method == "POST" else Operation.PORT_REVOKE
    declared = {**FakeAdapter.operations, operation: Unsupported("no_ports")}
    monkeypatch.setattr(FakeAdapter, "operations", declared)
    path, body = (f"/v1/sandboxes/{sandbox}/ports", {"port": 3000})
    reply = world.call(method, path if method == "POST" else f"{path}/3000", body, token=acme.token)
    assert (reply.status, reply.code) == (501, "unsupported_operation")
    details = reply.json()["error"]["details"]
    assert (details["operation"], details["pool"], details["adapter"]) == (operation.value, "main", "fake")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:3000/", "https://127.0.0.1/", "http://[::1]:80/", "http://10.0.0.7:3000/",
        "http://169.254.169.254/", "http://100.64.0.1/", "http://[fd00::1]/", "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::a00:1]/", "http://execd.sandboxes.svc.cluster.local/", "http://gateway:8080/",
        "http://node.internal/", "http://2130706433/", "http://127.1/", "http://0x7f.1/", "http://metadata.goog/",
        "https://user:secret@ports.example.com/", "ftp://ports.example.com/", "https:///nowhere", "nonsense",
        "http://ports.example.com:99999/",
    ],
)  # fmt: skip
def test_an_internal_address_is_never_handed_out(memory: World, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    seen: list[int] = []

    def port_expose(self: FakeAdapter, target: Target, port: int, seconds: int) -> Exposure:
        return Exposure(port, url)

    def port_revoke(self: FakeAdapter, target: Target, port: int) -> None:
        seen.append(port)

    monkeypatch.setattr(FakeAdapter, "port_expose", port_expose)
    monkeypatch.setattr(FakeAdapter, "port_revoke", port_revoke)
    reply = expose(memory, tenant, sandbox)
    assert (reply.status, reply.code) == (501, "unsupported_operation")
    assert reply.json()["error"]["details"]["reason"] == "internal_address"
    assert url not in reply.raw.decode()
    memory.settle()
    assert (seen, listed(memory, tenant, sandbox)) == ([3000], [])


def test_a_lost_answer_opens_nothing_for_long(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.backend("main").expect(Operation.PORT_EXPOSE, LoseAnswer())
    reply = expose(world, acme, sandbox)
    assert (reply.status, reply.code) == (503, "provider_unavailable")
    assert reachable(world) == [3000]
    world.settle()
    assert (listed(world, acme, sandbox), reachable(world)) == ([], [])
    assert expose(world, acme, sandbox).status == 200


def test_a_backend_that_does_not_take_it_back_is_asked_until_it_does(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    expose(world, acme, sandbox)
    world.backend("main").expect(Operation.PORT_REVOKE, Refuse(), LoseAnswer())
    reply = world.call("DELETE", f"/v1/sandboxes/{sandbox}/ports/3000", token=acme.token)
    assert reply.json() == {"port": 3000, "status": "closing"}
    busy = expose(world, acme, sandbox)
    assert (busy.status, busy.code) == (409, "invalid_state")
    for _ in range(3):
        world.pass_time(20)
    assert listed(world, acme, sandbox) == []


def test_a_sandbox_has_a_bounded_number_of_ports(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    for port in range(1, PORTS_MAX + 1):
        assert expose(world, acme, sandbox, port).status == 200
    over = expose(world, acme, sandbox, 5000)
    assert (over.status, over.code) == (422, "limit_exceeded")
    assert expose(world, acme, sandbox, 1).status == 200


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "3000.0", "%33", "000003000"])
def test_what_is_no_port_is_404_in_a_path(memory: World, port: str) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    reply = memory.call("GET", f"/v1/sandboxes/{sandbox}/ports/{port}", token=tenant.token)
    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize("body", [{}, {"port": 0}, {"port": 65_536}, {"port": "80"}, {"port": 80, "ttlSeconds": 0}])
def test_what_is_no_port_is_400_in_a_body(memory: World, body: Any) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    reply = memory.call("POST", f"/v1/sandboxes/{sandbox}/ports", body, token=tenant.token)
    assert (reply.status, reply.code) == (400, "invalid_request")


def test_an_address_is_told_once_and_kept_nowhere(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    """reliability.md I15: a port's token appears in no log, event or row."""
    caplog.set_level("DEBUG")
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    url = expose(memory, tenant, sandbox).json()["url"]
    token = url.rpartition("/")[2]
    memory.call("DELETE", f"/v1/sandboxes/{sandbox}/ports/3000", token=tenant.token)
    rows = [str(record.model_dump()) for record in memory.store.rows().values()]  # type: ignore[attr-defined]
    assert token
    assert not any(token in text for text in rows)
    assert not any(token in str(vars(record)) for record in caplog.records)
    actions = [row.action for row in memory.store.rows().values() if row.kind == "event"]  # type: ignore[attr-defined]
    assert (actions.count("port.open"), actions.count("port.close")) == (1, 1)
