"""Idle sandboxes, seen from outside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import Tenant, World


def get(world: World, tenant: Tenant, sandbox: str) -> Any:
    return world.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()


def test_it_says_when_it_will_sleep_sleeps_and_wakes_on_use(world: World, acme: Tenant) -> None:
    """features.md 1 and 2 #22: idled, and woken by the next exec. It tells when it will sleep."""
    sandbox = world.running(acme, {"idleTimeoutSeconds": 60})
    shown = get(world, acme, sandbox)
    assert (shown["idleTimeoutSeconds"], shown["effective"]["idleTimeoutSeconds"]) == (60, 60)
    assert shown["idleAt"] == "2026-01-01T00:01:30Z"

    world.pass_time(90)
    slept = get(world, acme, sandbox)
    assert (slept["status"], slept["idled"]) == ("paused", True)
    assert (slept["statusReason"]["code"], slept["statusReason"]["source"]) == ("idle", "timer")
    assert "idleAt" not in slept

    ran = world.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "echo hi"}, token=acme.token)
    assert ran.status == 200, ran.raw
    woken = get(world, acme, sandbox)
    assert woken["status"] == "running"
    assert "idled" not in woken


def test_it_says_why_it_is_still_awake(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"idleTimeoutSeconds": 60})
    body = {"id": "build-1", "command": "make", "timeoutSeconds": 3000}
    world.call("POST", f"/v1/sandboxes/{sandbox}/jobs", body, token=acme.token)

    shown = get(world, acme, sandbox)
    assert shown["busyWith"] == ["job:build-1"]
    assert shown["busyUntil"] == shown["idleAt"] == "2026-01-01T00:50:15Z"


@pytest.mark.parametrize("what", ["stop", "pause"])
def test_what_a_caller_put_to_rest_is_not_woken_by_use(world: World, acme: Tenant, what: str) -> None:
    sandbox = world.running(acme, {"idleTimeoutSeconds": 60})
    world.call("POST", f"/v1/sandboxes/{sandbox}/{what}", token=acme.token)
    world.settle()
    for path, body in (("exec", {"command": "x"}), ("keepalive", None)):
        refused = world.call("POST", f"/v1/sandboxes/{sandbox}/{path}", body, token=acme.token)
        assert (refused.status, refused.code) == (409, "invalid_state")


def test_keep_alive_counts_as_use_and_wakes(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"idleTimeoutSeconds": 60})
    path = f"/v1/sandboxes/{sandbox}/keepalive"
    world.pass_time(80)
    assert world.call("POST", path, token=acme.token).status == 200
    world.pass_time(80)
    assert get(world, acme, sandbox)["status"] == "running"
    world.pass_time(10)
    assert get(world, acme, sandbox)["status"] == "paused"

    woken = world.call("POST", path, token=acme.token)
    assert (woken.status, woken.json()["status"]) == (202, "resuming")
    world.settle()
    assert get(world, acme, sandbox)["status"] == "running"
    assert world.call("POST", path, token=world.tenant("stranger").token).status == 404


def test_the_timeout_can_be_changed_and_has_a_least_value(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    path = f"/v1/sandboxes/{sandbox}"
    assert "idleAt" not in get(world, acme, sandbox)
    changed = world.call("PATCH", path, {"idleTimeoutSeconds": 120}, token=acme.token).json()
    assert changed["idleAt"] == "2026-01-01T00:02:30Z"
    assert "idleAt" not in world.call("PATCH", path, {"idleTimeoutSeconds": 0}, token=acme.token).json()
    for wrong in (5, -1):
        assert world.call("PATCH", path, {"idleTimeoutSeconds": wrong}, token=acme.token).status == 400
        assert world.call("POST", "/v1/sandboxes", {"idleTimeoutSeconds": wrong}, token=acme.token).status == 400
