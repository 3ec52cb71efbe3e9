"""Archiving goes on whatever dies in between: before any of its writes, or after it with the answer lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from differently_core.model.quota import Counter, Scope
from differently_core.model.tenancy import Project, TenantState
from differently_core.operations import closing
from differently_core.store.ports import Action, Outcome, StoreUnavailable
from tests.support.api import BOOT, Tenant, World

WRITES_MAX = 60
"""More than the whole way out writes; the last of them are never met, and then there is nothing to die in."""


def busy_world() -> tuple[World, Tenant]:
    world = World()
    world.pool()
    tenant = world.tenant()
    for _ in range(2):
        world.running(tenant)
    world.call("POST", f"/v1/sandboxes/{world.running(tenant)}/snapshots", {}, token=tenant.token)
    world.settle()
    return world, tenant


def settle_through(world: World) -> None:
    """Deliver what there is; who dies takes its message along."""
    while world.mail.messages:
        try:
            world.settle()
        except StoreUnavailable:
            continue


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("at", range(0, WRITES_MAX, 3))
def test_a_way_out_that_dies_anywhere_is_gone_to_its_end(
    monkeypatch: pytest.MonkeyPatch, at: int, before: bool
) -> None:
    world, tenant = busy_world()
    org, project = world.core.catalog.org_of(tenant.project), tenant.project  # type: ignore[arg-type]
    closing.close(world.core, BOOT, org, project, TenantState.ARCHIVED)  # type: ignore[arg-type]
    transact, writes = world.store.transact, iter(range(10_000))

    def dying(actions: Sequence[Action]) -> Outcome:
        dies = next(writes) == at
        if dies and before:
            raise StoreUnavailable("this process died")
        outcome = transact(actions)
        if dies:
            raise StoreUnavailable("this process died")
        return outcome

    monkeypatch.setattr(world.store, "transact", dying)
    for _ in range(20):
        settle_through(world)
        try:
            world.pass_time(31)
        except StoreUnavailable:
            continue
    found = world.store.get(Project, Project.key_of(org, project))  # type: ignore[arg-type]
    assert found is not None
    assert found.state is TenantState.ARCHIVED
    backend = world.backend("main")
    assert (backend.instances(), backend.snapshots()) == ([], [])
    for scope, name in ((Scope.ORG, org), (Scope.PROJECT, project), (Scope.POOL, "main")):
        counter = world.store.get(Counter, Counter.key_of(scope, name))
        assert counter is not None
        assert counter.held.sandboxes == 0
