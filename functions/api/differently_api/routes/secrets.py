"""Credentials of providers. Values go in and never come out: every answer tells names, versions and times alone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Self

from pydantic import BeforeValidator, Field

from differently_core.errors import InvalidState, NotFound, ProviderUnavailable
from differently_core.model.record import Wire
from differently_core.model.secret import Secret
from differently_core.operations import secrets
from differently_core.store.sealing import SEALED_BYTES_MAX

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .paging import PageQuery, next_cursor

FIELDS_MAX = 16
_FIELD = re.compile(r"[a-z][a-z0-9_]{0,63}")


def _checked(given: object) -> object:
    """Every rule is told of `fields` as a whole: a name in a refusal could be a secret that was put in its place."""
    if not isinstance(given, dict) or not 1 <= len(given) <= FIELDS_MAX:
        raise ValueError(f"must be an object of 1 to {FIELDS_MAX} fields")
    if not all(isinstance(name, str) and _FIELD.fullmatch(name) for name in given):
        raise ValueError("names are lower-case letters, digits and underscores, such as api_key")
    for value in given.values():
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError("every value is a text that is not empty and holds no NUL")
        if value != value.strip() and "\n" not in value.strip():
            # A key file in PEM has lines and ends with one; a token that was pasted with its line break never works.
            raise ValueError("a value of one line begins or ends with white space; paste it without")
        size = len(value.encode())  # the parser of JSON has let no lone surrogate through
        if size > SEALED_BYTES_MAX:
            raise ValueError(
                f"a value takes {size} bytes of {SEALED_BYTES_MAX}; keep a larger one in Secrets Manager and name its "
                "ARN at the pool"
            )
    return given


class PutSecret(Wire):
    fields: Annotated[
        dict[str, Annotated[str, Field(json_schema_extra={"format": "password"})]], BeforeValidator(_checked)
    ]
    """What the kind of pool asks for, such as `api_key`; they replace all fields that were kept."""

    def __repr__(self) -> str:
        return "PutSecret(<fields withheld>)"

    __str__ = __repr__


class SecretView(Wire):
    """What may be told of a secret. Its values are told to nobody."""

    name: str
    version: int
    """Rises with every replacement."""
    fields: list[str]
    pools: int
    """How many pools use it."""
    created_at: datetime
    updated_at: datetime
    updated_by: str

    @classmethod
    def of(cls, secret: Secret) -> Self:
        return cls(
            name=secret.name, version=secret.version, fields=list(secret.fields), pools=secret.users,
            created_at=secret.created_at, updated_at=secret.updated_at, updated_by=secret.updated_by,
        )  # fmt: skip


class SecretPage(Wire):
    items: list[SecretView]
    next_cursor: str | None = None


class PutOptions(Wire):
    verify: bool = True
    """Try it against the backend of every pool that uses it first; false also replaces where a backend is down."""


class DeleteOptions(Wire):
    force: bool = False
    """Also while pools use it; they cannot be used then."""


def put_secret(call: Call[PutSecret, PutOptions]) -> Answer:
    asked = call.body.fields
    kept = secrets.put(call.core, call.caller, call.params["name"], asked, verify=call.query.verify)
    body = SecretView.of(kept.secret).model_dump_json(by_alias=True, exclude_none=True)
    return Answer(201 if kept.created else 200, body, {"Content-Type": JSON})


def list_secrets(call: Call[NoBody, PageQuery]) -> SecretPage:
    after = call.query.after(call.core, "secrets")
    found, position = secrets.listed(call.core, after, call.query.limit)
    return SecretPage(
        items=[SecretView.of(secret) for secret in found], next_cursor=next_cursor(call.core, position, "secrets")
    )


def get_secret(call: Call[NoBody, NoQuery]) -> SecretView:
    return SecretView.of(secrets.get(call.core, call.params["name"]))


def delete_secret(call: Call[NoBody, DeleteOptions]) -> Answer:
    secrets.remove(call.core, call.caller, call.params["name"], force=call.query.force)
    return Answer(204)


ROUTES = (
    Route(
        Method.PUT, "/v1/admin/secrets/{name}", Group.ADMIN, Access.OPERATOR, put_secret,
        "Keep a provider's credential", PutSecret, PutOptions, SecretView, 200, also=(201,),
        errors=(InvalidState, ProviderUnavailable),
        description="Write-only. Each field is sealed by itself; the fields replace all that were kept. They are first "
        "tried against the backend of every pool that uses them: they must give access, and show what the pool holds "
        "there. If one refuses them, nothing is changed; else every process takes them up within five seconds.",
    ),
    Route(
        Method.GET, "/v1/admin/secrets", Group.ADMIN, Access.OPERATOR, list_secrets,
        "List kept credentials by name", NoBody, PageQuery, SecretPage,
    ),
    Route(
        Method.GET, "/v1/admin/secrets/{name}", Group.ADMIN, Access.OPERATOR, get_secret,
        "Read what may be told of a credential", NoBody, NoQuery, SecretView, errors=(NotFound,),
        description="Names of its fields, version and times; never a value.",
    ),
    Route(
        Method.DELETE, "/v1/admin/secrets/{name}", Group.ADMIN, Access.OPERATOR, delete_secret,
        "Forget a credential", NoBody, DeleteOptions, status=204, errors=(NotFound, InvalidState),
        description="Only one that no pool uses, unless forced.",
    ),
)  # fmt: skip
