"""Who may call what: every route against every kind of caller, generated from the declaration of routes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from differently_api.examples import EXAMPLES
from differently_api.route import Access, AnyRoute, Group, NoBody
from differently_api.routes import ROUTES
from differently_api.routes.project_secrets import PutProjectSecret
from differently_api.routes.secrets import PutSecret
from differently_api.routes.webhooks import CreateWebhook, ReplayEvents
from differently_core.model.policy import PolicyRules
from differently_core.model.tenancy import KeyScope
from differently_core.operations import keys, policies
from differently_core.operations.requests import CreateSandbox
from tests.support.api import BOOT, Reply, Tenant, World

OWNER, SIBLING, STRANGER, OPERATOR = "owner", "other project", "other organization", "operator"
REVOKED, EXPIRED, UNKNOWN, NOBODY = "revoked", "expired", "unknown", "nobody"
CALLERS = (OWNER, SIBLING, STRANGER, OPERATOR, REVOKED, EXPIRED, UNKNOWN, NOBODY)
REFUSED = frozenset({REVOKED, EXPIRED, UNKNOWN, NOBODY})
QUERIES = {
    "/v1/sandboxes/{id}/files/stat": "?path=a", "/v1/sandboxes/{id}/files/content": "?path=a",
    "/v1/sandboxes/{id}/wait": "?timeoutSeconds=0", "/v1/sandboxes/{id}/files": "?path=d",
    "/v1/audit-events/consistency": "?fromSize=1",
}  # fmt: skip


@dataclass
class Scene:
    """One sandbox of `owner`, with a job and a file, and a token for each caller."""

    world: World
    owner: Tenant
    sandbox: str
    snapshot: str
    event: str
    webhook: str
    delivery: str
    tokens: dict[str, str | None]

    def call(self, route: AnyRoute, caller: str) -> Reply:
        key = keys.create_key(self.world.core, self.world.peppers, BOOT, "spare", KeyScope.OPERATOR).key
        values = {
            "id": self.sandbox, "job": "build", "org": self.owner.org, "project": self.owner.project, "key": key.id,
            "name": "spare", "kind": "fake", "scope": self.owner.project, "port": "3000", "snapshot": self.snapshot,
            "event": self.event, "webhook": self.webhook, "delivery": self.delivery,
        }  # fmt: skip
        path = route.path.format(**values) + QUERIES.get(route.path, "")
        lists = route.path in ("/v1/sandboxes", "/v1/snapshots") and route.method == "GET"
        if caller == OPERATOR and (lists or route.path.startswith("/v1/secrets")):
            path += f"?projectId={self.owner.project}"
        if caller == OPERATOR and route.path.startswith("/v1/audit-events"):
            path += f"{'&' if '?' in path else '?'}orgId={self.owner.org}"
        if caller == OPERATOR and route.path == "/v1/trust-report/placements":
            path += f"?orgId={self.owner.org}"
        return self.world.call(route.method, path, self._body(route, caller), token=self.tokens[caller])

    def _body(self, route: AnyRoute, caller: str) -> Any:
        if route.body is bytes:
            return b"x"
        if route.body is NoBody:
            return None
        body = dict(EXAMPLES[route.body])
        if route.name == "POST /v1/admin/pools":
            body = {"name": f"new-{caller.replace(' ', '-')}", "adapter": "fake", "maxConcurrency": 1}
        if route.body is ReplayEvents:
            now = self.world.clock.now()
            body = {"from": (now - timedelta(seconds=1)).isoformat(), "to": now.isoformat()}
        if route.name == "POST /v1/admin/reconcile":
            body = {"pool": "main"}
        if route.body is CreateSandbox and caller == OPERATOR:
            body["projectId"] = self.owner.project
        if route.name == "POST /v1/api-keys":
            body["projectId"] = self.owner.project
        return body


@pytest.fixture
def scene() -> Scene:
    world = World()
    world.pool()
    world.pool("spare")
    world.call("PUT", "/v1/admin/secrets/spare", EXAMPLES[PutSecret], token=world.operator)
    owner = world.tenant("owner")
    sandbox = world.running(owner, {"placement": {"allowedPools": ["main"]}})
    policies.replace(world.core, BOOT, owner.project, PolicyRules())
    for path in ("/v1/templates/spare", "/v1/profiles/spare"):
        body: dict[str, Any] | None = {"defaults": {}} if "profiles" in path else None
        assert world.call("PUT", path, body, token=world.operator).status == 201
    for path in (f"/v1/orgs/{owner.org}/budget", f"/v1/projects/{owner.project}/budget"):
        assert world.call("PUT", path, {"limit": 500}, token=world.operator).status == 200
    base = f"/v1/sandboxes/{sandbox}"
    world.call("POST", f"{base}/jobs", {**EXAMPLES_JOB, "id": "build"}, token=owner.token)
    world.call("PUT", f"{base}/files/content?path=a", b"x", token=owner.token)
    world.call("PUT", f"{base}/files/content?path=d/b", b"x", token=owner.token)
    snapshot = world.call("POST", f"{base}/snapshots", {}, token=owner.token).json()["id"]
    world.settle()
    world.call("POST", f"{base}/ports", {"port": 3000}, token=owner.token)
    webhook = world.call("POST", "/v1/webhooks", EXAMPLES[CreateWebhook], token=owner.token).json()["id"]
    delivery = world.call("POST", f"/v1/webhooks/{webhook}/test", token=owner.token).json()["id"]
    world.settle()
    revoked, expired = world.tenant("revoked", org=owner.org), world.tenant("expired", org=owner.org)
    keys.revoke_key(world.core, BOOT, "key_" + revoked.token.split("_")[1])
    short = keys.create_key(
        world.core, world.peppers, BOOT, "short", KeyScope.TENANT, org=expired.org, project=expired.project,  # type: ignore[arg-type]
        expires_at=world.core.after(1),
    )  # fmt: skip
    world.clock.advance(1)
    tokens: dict[str, str | None] = {
        OWNER: owner.token, SIBLING: world.tenant("sibling", org=owner.org).token,
        STRANGER: world.tenant("stranger").token, OPERATOR: world.operator, REVOKED: revoked.token,
        EXPIRED: short.token, UNKNOWN: "dk_01JBM2YPQ8A2C4E6G1J3K5M7NP_" + "x" * 43, NOBODY: None,
    }  # fmt: skip
    for token in (tokens[OWNER], tokens[SIBLING], tokens[STRANGER]):
        world.call("PUT", "/v1/secrets/spare", EXAMPLES[PutProjectSecret], token=token)
    world.seal()
    event = world.call("GET", "/v1/audit-events", token=owner.token).json()["items"][0]["id"]
    return Scene(world, owner, sandbox, snapshot, event, webhook, delivery, tokens)


EXAMPLES_JOB = {"command": "make all", "timeoutSeconds": 3600}
OWN_OBJECTS = {"id", "project", "snapshot", "webhook"}


def expected(route: AnyRoute, caller: str) -> int | None:
    """The status that the declaration promises; None stands for the route's own success."""
    if route.access is Access.PUBLIC:
        return None
    if caller in REFUSED:
        return 401
    if route.access is Access.OPERATOR and caller != OPERATOR:
        return 403
    if caller in (SIBLING, STRANGER) and OWN_OBJECTS & set(route.params):
        return 404
    if caller == STRANGER and {"org", "event"} & set(route.params):
        return 404
    return None


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_answers_every_caller_as_declared(scene: Scene, route: AnyRoute, caller: str) -> None:
    if route.name == "DELETE /v1/admin/pools/{name}":
        scene.world.settle()
    reply = scene.call(route, caller)
    wanted = expected(route, caller)
    if wanted is None:
        assert reply.status in (route.status, *route.also), reply.raw
        return
    assert reply.status == wanted, reply.raw
    assert reply.json()["error"]["requestId"] == reply.headers["X-Request-Id"]
    if "project" not in route.params:
        assert scene.owner.project not in reply.raw.decode()


@pytest.mark.parametrize("route", [route for route in ROUTES if "id" in route.params], ids=lambda route: route.name)
def test_anothers_sandbox_and_none_are_told_apart_by_nothing(scene: Scene, route: AnyRoute) -> None:
    theirs = scene.call(route, STRANGER)
    nothing = "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA"
    none = replace(scene, sandbox=nothing).call(route, STRANGER)
    assert (theirs.status, none.status) == (404, 404)
    said = [
        reply.raw.decode().replace(identity, "ID").replace(reply.headers["X-Request-Id"], "REQUEST")
        for reply, identity in ((theirs, scene.sandbox), (none, nothing))
    ]
    assert said[0] == said[1]


def test_a_strangers_calls_leave_the_sandbox_as_it_was(scene: Scene) -> None:
    before = scene.world.call("GET", f"/v1/sandboxes/{scene.sandbox}", token=scene.owner.token).json()
    for route in ROUTES:
        if "id" in route.params:
            scene.call(route, STRANGER)
            scene.call(route, SIBLING)
    scene.world.settle()
    assert scene.world.call("GET", f"/v1/sandboxes/{scene.sandbox}", token=scene.owner.token).json() == before


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_function_serves_its_own_routes_alone(scene: Scene, route: AnyRoute) -> None:
    entries = {
        Group.CONTROL: scene.world.app.control, Group.ADMIN: scene.world.app.admin, Group.DATA: scene.world.app.data
    }  # fmt: skip
    values = dict.fromkeys(route.params, scene.sandbox)
    event = scene.world.event(route.method, route.path.format(**values))
    context = scene.world.app.authorizer(
        {"methodArn": "a:b/c/d", "headers": {"Authorization": f"Bearer {scene.world.operator}"}}
    )["context"]
    event["requestContext"]["authorizer"] = context
    for group, entry in entries.items():
        if group is not route.group:
            assert entry(event)["statusCode"] == 404


TRICKS = [
    "//v1/orgs", "/v1//orgs", "/v1/orgs/", "/v1/./orgs", "/v1/x/../orgs", "/v1/%2e%2e/v1/orgs", "/v1%2Forgs",
    "/V1/orgs", "/v1/Orgs", "/v1/orgs.", "/v1/orgs;x=1", "/v1/orgs%00", "/v1/orgs%20", "/v1/orgs?x", "v1/orgs", "",
    "/", "/v1", "/v1/admin", "/v1/admin/pools/", "/v1/admin/pools//drain", "/v1/admin/pools/%2Fmain/drain",
    "/v1/admin/pools/main/drain/", "/v1/admin/pools/main%2Fdrain", "http://x/v1/orgs", "/v1/\u00adorgs", "/v1/orgs\n",
]  # fmt: skip


ELSEWHERE = {
    **dict.fromkeys(("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"), "DELETE"),
    **dict.fromkeys(("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Forwarded-Prefix"), "/v1/orgs"),
}
"""Headers that other servers take for the method or the path."""


@pytest.mark.parametrize("path", TRICKS)
def test_no_spelling_of_a_path_gets_around_its_access(scene: Scene, path: str) -> None:
    for method in ("GET", "POST", "get", "HEAD", "TRACE"):
        event = scene.world.event(method, "/", None, headers=ELSEWHERE)
        event["path"] = path
        event["requestContext"]["authorizer"] = {
            "keyId": "key_" + scene.owner.token.split("_")[1], "scope": "tenant", "org": scene.owner.org,
            "project": scene.owner.project,
        }  # fmt: skip
        for entry in (scene.world.app.control, scene.world.app.admin, scene.world.app.data):
            assert entry(event)["statusCode"] in (403, 404, 405)


def test_no_header_and_no_query_make_a_call_another_one(scene: Scene) -> None:
    base = f"/v1/sandboxes/{scene.sandbox}"
    plain = scene.world.call("GET", base, token=scene.owner.token)
    led = scene.world.call("GET", base, token=scene.owner.token, headers=ELSEWHERE)
    assert (led.status, led.json()) == (200, plain.json())
    assert scene.world.call("GET", f"{base}?_method=DELETE", token=scene.owner.token).status == 400
    assert scene.world.call("GET", base, token=scene.owner.token).json() == plain.json()
