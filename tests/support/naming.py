"""By what a request can name something that somebody owns: declared once, for the tests that ask it of every caller.

`tests/unit/api/test_names.py` sees to it that nothing is left out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel

OWNERS: Mapping[str, str] = {
    "id": "project", "snapshot": "project", "project": "project", "job": "sandbox", "port": "sandbox",
    "org": "organization", "key": "operator", "name": "installation", "kind": "installation", "scope": "operator",
    "event": "organization", "webhook": "project", "delivery": "project",
}  # fmt: skip
"""Whose is what a path names. `name` on routes of tenants is a project's own, or shared by all and read alone."""
OWNED_BY_OPERATORS = frozenset({"operator", "installation"})
NAMES_SOMETHING = ("id", "org", "project", "sandbox", "snapshot", "secret")
"""A field with one of these words at its end names something that may be somebody else's."""


class Naming(NamedTuple):
    """One way to name something in a request, and what a tenant gets that names what a stranger owns."""

    route: str
    field: str
    status: int
    """200: the answer is told, and empty."""


NAMINGS = (
    Naming("POST /v1/sandboxes", "projectId", 400),
    Naming("POST /v1/sandboxes", "snapshotId", 404),
    Naming("POST /v1/sandboxes", "secrets[].secret", 422),
    Naming("POST /v1/placement/explain", "projectId", 400),
    Naming("POST /v1/placement/explain", "snapshotId", 404),
    Naming("POST /v1/placement/explain", "secrets[].secret", 422),
    Naming("GET /v1/sandboxes", "projectId", 404),
    Naming("POST /v1/sandboxes/{id}/fork", "secrets[].secret", 422),
    Naming("GET /v1/snapshots", "projectId", 404),
    Naming("GET /v1/snapshots", "sandboxId", 200),
    Naming("PUT /v1/secrets/{name}", "projectId", 404),
    Naming("GET /v1/secrets", "projectId", 404),
    Naming("GET /v1/secrets/{name}", "projectId", 404),
    Naming("DELETE /v1/secrets/{name}", "projectId", 404),
    Naming("GET /v1/audit-events", "orgId", 404),
    Naming("GET /v1/audit-events/verify", "orgId", 404),
    Naming("GET /v1/audit-events/roots", "orgId", 404),
    Naming("GET /v1/audit-events/consistency", "orgId", 404),
    Naming("GET /v1/audit-events/{event}/proof", "orgId", 404),
    Naming("GET /v1/audit-events/export", "orgId", 404),
    Naming("GET /v1/usage", "orgId", 404),
    Naming("GET /v1/usage", "projectId", 404),
    Naming("GET /v1/trust-report/placements", "orgId", 404),
    Naming("GET /v1/trust-report/placements", "projectId", 404),
    Naming("POST /v1/webhooks", "projectId", 404),
    Naming("POST /v1/webhooks", "orgId", 404),
    Naming("GET /v1/webhooks", "projectId", 404),
    Naming("GET /v1/webhooks", "orgId", 404),
)
NEW_IDS = frozenset({"POST /v1/sandboxes/{id}/jobs id"})
"""Fields that name what the request itself makes."""


def named(model: Any, prefix: str = "") -> Iterator[str]:
    """The fields of a request, also those inside others, by which it names something."""
    for name, field in model.model_fields.items():
        alias = f"{prefix}{field.alias or name}"
        inner = [part for part in _types(field.annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        for part in inner:
            yield from named(part, f"{alias}{'[]' if 'list' in str(field.annotation) else ''}.")
        if not inner and alias.lower().endswith(NAMES_SOMETHING):
            yield alias


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _types(part)
