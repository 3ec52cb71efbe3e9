"""Requests made up from the OpenAPI document, right and wrong ones: no fault of ours, nothing undocumented."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
    unsupported_method,
)

from tests.support.api import World
from tests.support.wsgi import Gateway

EXAMPLES_MAX = 6
"""For each route; enough to find what is plainly wrong, in seconds."""

LENGTH_MAX = 1_000


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


WORLD = World()
WORLD.pool()
TENANT = WORLD.tenant()
SANDBOX = WORLD.running(TENANT)
SCHEMA: Any = schemathesis.openapi.from_wsgi("/openapi.json", Gateway(WORLD))
REAL = {
    "id": SANDBOX, "org": TENANT.org, "project": TENANT.project, "key": "key_" + TENANT.token.split("_")[1],
    "name": "main", "job": "build",
}  # fmt: skip
DESTRUCTIVE = {
    ("DELETE", "/v1/sandboxes/{id}"), ("DELETE", "/v1/api-keys/{key}"), ("POST", "/v1/api-keys/{key}/rotate"),
    ("DELETE", "/v1/admin/pools/{name}"), ("POST", "/v1/orgs/{org}/suspend"),
    ("POST", "/v1/projects/{project}/suspend"), ("POST", "/v1/orgs/{org}/archive"), ("DELETE", "/v1/orgs/{org}"),
    ("POST", "/v1/projects/{project}/archive"), ("DELETE", "/v1/projects/{project}"),
}  # fmt: skip


@SCHEMA.parametrize()
@settings(
    max_examples=EXAMPLES_MAX, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
def test_no_request_is_answered_with_a_fault_or_otherwise_than_described(case: Any) -> None:
    if (case.method, case.path) not in DESTRUCTIVE:
        # Made-up ids are all "not found", which says little; real ones get further.
        case.path_parameters = {name: REAL.get(name, value) for name, value in (case.path_parameters or {}).items()}
    operators = case.operation.definition.raw["x-access"] == "operator"
    token = WORLD.operator if operators else TENANT.token
    response = case.call(headers={"Authorization": f"Bearer {token}"})
    # What is right by the schema may still be refused: an unknown project, a full pool, another sandbox's job. Whether
    # keys are looked at is asked by the matrix of routes and callers. 413 is a refusal that the tool does not know.
    excluded = [positive_data_acceptance, unsupported_method, ignored_auth]
    if response.status_code == 413:
        excluded.append(negative_data_rejection)
    case.validate_response(response, excluded_checks=excluded)
    assert response.status_code != 500
    WORLD.settle()
