"""API keys. A secret is shown once, in the answer that made it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field

from differently_core.errors import InvalidRequest, InvalidState, NotFound
from differently_core.model.record import Wire
from differently_core.model.tenancy import OPERATOR_ORG, ApiKey, KeyScope
from differently_core.operations import keys
from differently_core.runtime.ids import OrgId, ProjectId

from ..moments import Moment
from ..route import Access, Call, Group, Method, NoBody, NoQuery, Route
from .paging import PageQuery, next_cursor
from .tenancy import DisplayName


class CreateKey(Wire):
    name: DisplayName
    scope: KeyScope
    project_id: str | None = None
    """Needed for a tenant's key; an operator's key has none."""
    expires_at: Moment | None = None
    """From this moment on the key is refused."""


class RotateKey(Wire):
    grace_seconds: Annotated[int, Field(ge=0, le=keys.GRACE_SECONDS_MAX)] = keys.GRACE_SECONDS_DEFAULT
    """How long the old key works beside the new one: 0, or at least 120."""


class KeyView(Wire):
    id: str
    name: str
    scope: KeyScope
    org: str | None = None
    project: str | None = None
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rotated_to: str | None = None
    """The key that takes its place."""

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        return cls(**{name: getattr(key, name) for name in KeyView.model_fields})


class NewKeyView(KeyView):
    token: str
    """The key itself. It is shown here and never again."""

    def __repr__(self) -> str:
        return f"NewKeyView(id={self.id!r}, <token withheld>)"

    __str__ = __repr__


class RotatedKeyView(NewKeyView):
    """The new key. `replaced` is the old one, with the moment at which it ends."""

    replaced: KeyView

    __repr__ = __str__ = NewKeyView.__repr__


class KeyPage(Wire):
    items: list[KeyView]
    next_cursor: str | None = None


class ListKeys(PageQuery):
    org: str | None = None
    """The organization whose keys to list; operators' own keys without it."""


def create_api_key(call: Call[CreateKey, NoQuery]) -> NewKeyView:
    asked = call.body
    if asked.scope is KeyScope.OPERATOR and asked.project_id is not None:
        raise InvalidRequest("An operator's key belongs to no project; leave projectId out.", field="projectId")
    project = ProjectId(asked.project_id) if asked.project_id is not None else None
    made = keys.create_key(
        call.core, call.service.peppers, call.caller, asked.name, asked.scope,
        org=call.core.catalog.org_of(project) if project is not None else None, project=project,
        expires_at=asked.expires_at,
    )  # fmt: skip
    return NewKeyView(**KeyView.of(made.key).model_dump(), token=made.token)


def list_api_keys(call: Call[NoBody, ListKeys]) -> KeyPage:
    org = OrgId(call.query.org) if call.query.org is not None else OPERATOR_ORG
    if org != OPERATOR_ORG:
        call.core.catalog.org(org)
    after = call.query.after(call.core, "keys", org)
    found, position = keys.list_keys(call.core, org, after, call.query.limit)
    return KeyPage(items=[KeyView.of(key) for key in found], next_cursor=next_cursor(call.core, position, "keys", org))


def get_api_key(call: Call[NoBody, NoQuery]) -> KeyView:
    return KeyView.of(keys.get_key(call.core, call.params["key"]))


def rotate_api_key(call: Call[RotateKey, NoQuery]) -> RotatedKeyView:
    done = keys.rotate_key(
        call.core, call.service.peppers, call.caller, call.params["key"], call.body.grace_seconds
    )  # fmt: skip
    made, replaced = KeyView.of(done.made.key), KeyView.of(done.replaced)
    return RotatedKeyView(**made.model_dump(), token=done.made.token, replaced=replaced)


def revoke_api_key(call: Call[NoBody, NoQuery]) -> KeyView:
    return KeyView.of(keys.revoke_key(call.core, call.caller, call.params["key"]))


ROUTES = (
    Route(
        Method.POST, "/v1/api-keys", Group.ADMIN, Access.OPERATOR, create_api_key,
        "Create an API key", CreateKey, NoQuery, NewKeyView, 201, errors=(NotFound, InvalidState),
    ),
    Route(
        Method.GET, "/v1/api-keys", Group.ADMIN, Access.OPERATOR, list_api_keys,
        "List API keys, oldest first", NoBody, ListKeys, KeyPage, errors=(NotFound,),
    ),
    Route(
        Method.GET, "/v1/api-keys/{key}", Group.ADMIN, Access.OPERATOR, get_api_key,
        "Read an API key", NoBody, NoQuery, KeyView, description="Without its secret, which is not stored.",
    ),
    Route(
        Method.POST, "/v1/api-keys/{key}/rotate", Group.ADMIN, Access.OPERATOR, rotate_api_key,
        "Replace an API key", RotateKey, NoQuery, RotatedKeyView, 201, errors=(InvalidState,),
        description="The new key has the scope, project and end of the old one. Both work for `graceSeconds`; then the "
        "old one is refused, to the second. A key is replaced once: if the answer was lost, rotate the key that "
        "`rotatedTo` names.",
    ),
    Route(
        Method.DELETE, "/v1/api-keys/{key}", Group.ADMIN, Access.OPERATOR, revoke_api_key,
        "Revoke an API key", NoBody, NoQuery, KeyView,
        description="At once for operators' routes; elsewhere within a minute, which is how long the gateway remembers "
        "a key. Repeating it is success.",
    ),
)  # fmt: skip
