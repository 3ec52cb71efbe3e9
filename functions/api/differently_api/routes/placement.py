"""Placement: where a sandbox would run, and why not elsewhere."""

from __future__ import annotations

from differently_core.errors import LimitExceeded, NotFound, Suspended
from differently_core.operations import explain
from differently_core.operations.requests import CreateSandbox

from ..route import Access, Call, Group, Method, NoQuery, Route


def explain_placement(call: Call[CreateSandbox, NoQuery]) -> explain.PlacementExplanation:
    return explain.explain(call.core, call.caller, call.body)


ROUTES = (
    Route(
        Method.POST, "/v1/placement/explain", Group.CONTROL, Access.TENANT, explain_placement,
        "Tell what a create would meet", CreateSandbox, NoQuery, explain.PlacementExplanation,
        errors=(NotFound, LimitExceeded, Suspended),
        description="Takes the body of a create and does nothing with it. Every pool that this key may know of is told "
        "with its reason, how lasting it is and what could change it. What is true now may have changed by the time of "
        "the create.",
    ),
)  # fmt: skip
