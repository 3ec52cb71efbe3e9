"""What a body or a query names is the caller's own, or is not there. (`test_access` asks that of what a path names.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from differently_api.examples import EXAMPLES
from differently_api.route import AnyRoute, NoBody
from differently_api.routes import ROUTES
from tests.support.api import Reply, Tenant, World
from tests.support.naming import NAMINGS, Naming, named


@pytest.fixture(scope="module")
def plane() -> tuple[World, Tenant, Tenant, dict[str, str]]:
    """One who asks, one who owns, and what there is of the second."""
    world = World()
    world.pool()
    asking, owning = world.tenant("asking"), world.tenant("owning")
    sandbox, mine = world.running(owning), world.running(asking)
    made = world.call("POST", f"/v1/sandboxes/{sandbox}/snapshots", {}, token=owning.token)
    world.settle()
    world.call("PUT", "/v1/secrets/theirs", {"value": "a value of theirs"}, token=owning.token)
    theirs = {
        "projectId": owning.project, "snapshotId": made.json()["id"], "sandboxId": sandbox,
        "secrets[].secret": "theirs", "orgId": owning.org, "mine": mine,
    }  # fmt: skip
    return world, asking, owning, theirs


def ask(world: World, naming: Naming, token: str, value: str, path: Mapping[str, str]) -> Reply:
    route: AnyRoute = next(route for route in ROUTES if route.name == naming.route)
    target = route.path.format(**path)
    if naming.field in named(route.query):
        body: Any = None if route.body is NoBody else EXAMPLES[route.body]
        needed = "&fromSize=1" if route.path.endswith("/consistency") else ""
        return world.call(route.method, f"{target}?{naming.field}={value}{needed}", body, token=token)
    given = [{"secret": value, "env": "TOKEN"}] if naming.field.startswith("secrets") else value
    required = {field.alias or name for name, field in route.body.model_fields.items() if field.is_required()}
    body = {name: value for name, value in EXAMPLES.get(route.body, {}).items() if name in required}
    return world.call(route.method, target, {**body, naming.field.partition("[")[0]: given}, token=token)


@pytest.mark.parametrize("naming", NAMINGS, ids=lambda naming: f"{naming.route} {naming.field}")
def test_what_is_a_strangers_is_as_if_it_were_not_there(
    plane: tuple[World, Tenant, Tenant, dict[str, str]], naming: Naming
) -> None:
    world, asking, owning, theirs = plane
    path = {"id": theirs["mine"], "name": "theirs", "event": "evt_01JBM2ZQ9A1B3C5D7E9F1G3H5J"}
    nothing = {
        "projectId": "proj_01JBM2YB7H1K3M5R9S2W4Y6ZCD", "snapshotId": "snap_01JBM2ZQ7M0N4P6R8T1V3X5Z7B",
        "sandboxId": "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA", "secrets[].secret": "nobodys",
        "orgId": "org_01JBM2Y0G4S8N6P2Q7T3V5X9ZB",
    }[naming.field]  # fmt: skip
    value = theirs[naming.field]
    told, none = (ask(world, naming, asking.token, named, path) for named in (value, nothing))
    assert told.status == none.status == naming.status, (told.raw, none.raw)
    if naming.status == 200:
        assert told.json()["items"] == []
    said = told.raw.decode().replace(value, "NAME").replace(told.headers["X-Request-Id"], "REQUEST")
    assert said == none.raw.decode().replace(nothing, "NAME").replace(none.headers["X-Request-Id"], "REQUEST")
    assert owning.org not in said
    assert world.call("GET", "/v1/secrets/theirs", token=owning.token).status == 200
