"""Secrets that a project's sandboxes may be given. Values go in and never come out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from differently_core.errors import InvalidRequest, NotFound, ProviderUnavailable, QuotaExceeded
from differently_core.model.record import Wire
from differently_core.model.secret import ProjectSecret
from differently_core.operations import project_secrets
from differently_core.store.sealing import SEALED_BYTES_MAX

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, Route
from .paging import PageQuery, next_cursor

VALUE_BYTES_MIN = 8
"""A shorter value could not be told from what commands write anyway."""


def _fits(value: str) -> str:
    size = len(value.encode())
    if not VALUE_BYTES_MIN <= size <= SEALED_BYTES_MAX:
        raise ValueError(f"takes {size} bytes; a secret has {VALUE_BYTES_MIN} to {SEALED_BYTES_MAX}")
    if "\0" in value:
        raise ValueError("cannot hold NUL")
    if value != value.strip() and "\n" not in value.strip():
        # Commands print it without, and then it would not be masked; it was pasted with its line break or a space.
        raise ValueError("is of one line and begins or ends with white space; send it without")
    return value


class PutProjectSecret(Wire):
    value: Annotated[str, AfterValidator(_fits), Field(json_schema_extra={"format": "password"})]

    def __repr__(self) -> str:
        return "PutProjectSecret(<value withheld>)"

    __str__ = __repr__


class OfProject(Wire):
    project_id: str | None = None
    """Needed with an operator's key, which belongs to no project."""


class ListProjectSecrets(PageQuery):
    project_id: str | None = None
    """Needed with an operator's key, which belongs to no project."""


class ProjectSecretView(Wire):
    """What may be told of a secret. Its value is told to nobody."""

    name: str
    version: int
    """Rises with every replacement."""
    created_at: datetime
    updated_at: datetime
    updated_by: str

    @classmethod
    def of(cls, secret: ProjectSecret) -> Self:
        return cls(**{name: getattr(secret, name) for name in cls.model_fields})


class ProjectSecretPage(Wire):
    items: list[ProjectSecretView]
    next_cursor: str | None = None


def put_project_secret(call: Call[PutProjectSecret, OfProject]) -> Answer:
    owner = project_secrets.owner_of(call.core, call.caller, call.query.project_id)
    kept = project_secrets.put(call.core, call.caller, owner, call.params["name"], call.body.value)
    body = ProjectSecretView.of(kept.secret).model_dump_json(by_alias=True, exclude_none=True)
    return Answer(201 if kept.created else 200, body, {"Content-Type": JSON})


def list_project_secrets(call: Call[NoBody, ListProjectSecrets]) -> ProjectSecretPage:
    owner = project_secrets.owner_of(call.core, call.caller, call.query.project_id)
    after = call.query.after(call.core, "project_secrets", owner.project)
    found, position = project_secrets.listed(call.core, owner, after, call.query.limit)
    return ProjectSecretPage(
        items=[ProjectSecretView.of(secret) for secret in found],
        next_cursor=next_cursor(call.core, position, "project_secrets", owner.project),
    )


def get_project_secret(call: Call[NoBody, OfProject]) -> ProjectSecretView:
    owner = project_secrets.owner_of(call.core, call.caller, call.query.project_id)
    return ProjectSecretView.of(project_secrets.get(call.core, owner, call.params["name"]))


def delete_project_secret(call: Call[NoBody, OfProject]) -> Answer:
    owner = project_secrets.owner_of(call.core, call.caller, call.query.project_id)
    project_secrets.remove(call.core, call.caller, owner, call.params["name"])
    return Answer(204)


ROUTES = (
    Route(
        Method.PUT, "/v1/secrets/{name}", Group.ADMIN, Access.TENANT, put_project_secret,
        "Keep a secret of the project", PutProjectSecret, OfProject, ProjectSecretView, 200, also=(201,),
        errors=(InvalidRequest, NotFound, QuotaExceeded, ProviderUnavailable),
        description="Write-only, 8 to 4,096 bytes. Name it in `secrets` of a create; sandboxes that have the old value "
        "keep it.",
    ),
    Route(
        Method.GET, "/v1/secrets", Group.ADMIN, Access.TENANT, list_project_secrets,
        "List the project's secrets by name", NoBody, ListProjectSecrets, ProjectSecretPage,
        errors=(InvalidRequest, NotFound),
    ),
    Route(
        Method.GET, "/v1/secrets/{name}", Group.ADMIN, Access.TENANT, get_project_secret,
        "Read what may be told of a secret", NoBody, OfProject, ProjectSecretView, errors=(InvalidRequest, NotFound),
        description="Its version and times; never its value.",
    ),
    Route(
        Method.DELETE, "/v1/secrets/{name}", Group.ADMIN, Access.TENANT, delete_project_secret,
        "Forget a secret of the project", NoBody, OfProject, status=204, errors=(InvalidRequest, NotFound),
        description="Sandboxes that were given it keep it until they end.",
    ),
)  # fmt: skip
