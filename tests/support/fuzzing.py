"""Requests made up from the OpenAPI document, sent in process, and what every answer to one must be."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import schemathesis
from schemathesis.specs.openapi.checks import (
    ensure_resource_availability,
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
)

from differently_core.runtime.ids import is_id

from .api import Tenant, World
from .wsgi import Gateway

LENGTH_MAX = 1_000
FAR_FETCHED = frozenset(
    {
        "projectId", "profile", "snapshotId", "secrets", "placement", "capabilities", "classification", "cursor",
        "resources", "sandboxId", "idempotencyKey", "stdin", "cwd", "images", "args", "env",
    }
)  # fmt: skip
"""Made-up ones are refused at once, which the other test of this kind sees to; a chain would end there."""
NEAR = {
    "template": "default",
    "path": "a",
    "port": 3000,
    "name": "main",
    "id": "build",
    "command": "true",
    "timeoutSeconds": 1,
}


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: Any) -> None:
    """Bounds so large that values beyond them take seconds to make up are tested by hand, at the boundary."""
    for value in list(raw_schema.values()) if isinstance(raw_schema, dict) else raw_schema:
        if isinstance(value, (dict, list)):
            before_load_schema(context, value)
    if isinstance(raw_schema, dict):
        for bound in ("maxItems", "maxLength", "maxProperties"):
            if isinstance(raw_schema.get(bound), int) and raw_schema[bound] > LENGTH_MAX:
                del raw_schema[bound]


class Fuzzed:
    """A control plane behind a gateway, and the schema that it describes itself by."""

    def __init__(self) -> None:
        self.renew()
        self.gateway = Gateway(self.world)
        self.schema: Any = schemathesis.openapi.from_wsgi("/openapi.json", self.gateway)
        self.requests = 0

    def renew(self) -> None:
        """As it was in the beginning: one pool, one tenant, and one of each thing that it can have."""
        self.world = World()
        self.world.pool()
        self.tenant: Tenant = self.world.tenant()
        self.sandbox = self.world.running(self.tenant)
        base = f"/v1/sandboxes/{self.sandbox}"
        answers = []
        for method, path, body in (
            ("POST", f"{base}/jobs", {"id": "build", "command": "true"}),
            ("PUT", f"{base}/files/content?path=a", b"x"),
            ("POST", f"{base}/snapshots", {}),
            ("POST", f"{base}/ports", {"port": 3000}),
            ("PUT", "/v1/secrets/token", {"value": "a value of eight"}),
        ):
            answers.append(self.world.call(method, path, body, token=self.tenant.token))
            assert answers[-1].status < 300
        self.snapshot = str(answers[2].json()["id"])
        self.world.settle()
        if hasattr(self, "gateway"):
            self.gateway.lead(self.world)

    def headers(self, case: Any) -> dict[str, str]:
        operators = case.operation.definition.raw["x-access"] == "operator"
        return {"Authorization": f"Bearer {self.world.operator if operators else self.tenant.token}"}

    def bring_near(self, case: Any) -> None:
        """Of a request that is right by the schema, what names something: to what there is, or left out.

        Ids that an answer gave are left as they are.
        """
        if case.meta is not None and case.meta.generation.mode.is_negative:
            return
        for name, prefix, real in (
            ("id", "sbx", self.sandbox), ("snapshot", "snap", self.snapshot), ("org", "org", self.tenant.org),
            ("project", "proj", self.tenant.project), ("job", "", "build"), ("port", "", 3000),
        ):  # fmt: skip
            if name in (case.path_parameters or {}) and not is_id(prefix, str(case.path_parameters[name])):
                case.path_parameters[name] = real
        for given in (case.query, case.body):
            if isinstance(given, dict):
                for name in FAR_FETCHED & set(given):
                    del given[name]
                given.update({name: value for name, value in NEAR.items() if name in given})

    def judge(self, case: Any, response: Any, *, chained: bool = False) -> None:
        """Every check of the tool but those that do not hold here.

        What is right by the schema may still be refused: an unknown project, a full pool, another sandbox's job; and
        what was made may be on its way, or gone by its own rules. Whether keys are looked at is asked by the matrix
        of routes and callers. 413 is a refusal that the tool does not know; in a chain it puts right values into the
        places that it spoilt before; and a parameter that is an empty list is not sent at all.
        """
        self.requests += 1
        excluded = [positive_data_acceptance, unsupported_method, ignored_auth, ensure_resource_availability]
        sent = {name for name, _ in parse_qsl(urlsplit(response.request.url).query, keep_blank_values=True)}
        if chained or response.status_code == 413 or not set(case.query or {}) <= sent:
            excluded.append(negative_data_rejection)
        case.validate_response(response, excluded_checks=excluded)
        assert response.status_code != 500
        self.world.settle()
