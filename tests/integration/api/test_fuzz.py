"""Requests made up from the OpenAPI document, right and wrong ones: no fault of ours, nothing undocumented."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings

from tests.support.fuzzing import Fuzzed
from tests.support.scale import scaled

EXAMPLES_MAX = scaled(6, 220)
"""For each route; enough to find what is plainly wrong, in seconds."""

PLANE = Fuzzed()
SCHEMA = PLANE.schema
REAL = {
    "id": PLANE.sandbox, "org": PLANE.tenant.org, "project": PLANE.tenant.project,
    "key": "key_" + PLANE.tenant.token.split("_")[1], "name": "main", "job": "build",
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
    PLANE.judge(case, case.call(headers=PLANE.headers(case)))
