"""Templates and profiles: what creates start from."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator

from differently_core.errors import InvalidRequest, InvalidState
from differently_core.model.pool import POOL_NAME_PATTERN, Template
from differently_core.model.profile import Profile
from differently_core.model.record import Wire
from differently_core.model.resources import Resources
from differently_core.operations import pools, profiles, starting
from differently_core.operations.requests import NAME_PATTERN, CreateSandbox, Image

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .paging import PageQuery, next_cursor

IMAGES_MAX = 256
NOT_IN_A_PROFILE = ("env", "profile", "project_id", "snapshot_id")
Description = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]
_NAME = re.compile(NAME_PATTERN)
Version = Annotated[int, Field(ge=0)]


class PutTemplate(Wire):
    images: Annotated[dict[Annotated[str, Field(pattern=POOL_NAME_PATTERN)], Image], Field(max_length=IMAGES_MAX)] = {}
    """By pool: its image, or its backend's own template. With any, only these pools take it, unless the create names an
    image itself. Without, every pool takes it and uses the image that it is configured with."""
    resources: Resources = Resources()
    """The size of a sandbox that asks for none."""
    version: Version | None = None
    """Of the template that this one replaces, 0 where there is none; 409 if it was changed since. Absent: whatever is
    there is replaced."""


class TemplateView(Wire):
    name: str
    images: dict[str, str]
    """With a tenant's key, of the pools that it may use."""
    resources: Resources
    version: int
    warnings: list[str] = []
    """Such as a name that leads to no pool now; for operators."""


class TemplatePage(Wire):
    items: list[TemplateView]
    next_cursor: str | None = None


class PutProfile(Wire):
    description: Description = ""
    defaults: CreateSandbox
    """What a create that names this profile gets where it says nothing itself: the same fields, without `env`,
    `profile`, `projectId` and `snapshotId`. `resources`, `placement` and `labels` are filled up field by field."""
    version: Version | None = None
    """As of a template."""

    @model_validator(mode="after")
    def _defaults_alone(self) -> Self:
        if self.defaults.model_fields_set & set(NOT_IN_A_PROFILE):
            raise ValueError("defaults cannot hold env, profile, projectId or snapshotId: send them with the create")
        return self


class ProfileView(Wire):
    name: str
    description: str = ""
    defaults: CreateSandbox
    version: int


class ProfilePage(Wire):
    items: list[ProfileView]
    next_cursor: str | None = None


def list_templates(call: Call[NoBody, PageQuery]) -> TemplatePage:
    after = call.query.after(call.core, "templates")
    found, position = starting.list_named(call.core, Template, after, call.query.limit)
    return TemplatePage(
        items=[_template(call, template) for template in found],
        next_cursor=next_cursor(call.core, position, "templates"),
    )


def get_template(call: Call[NoBody, NoQuery]) -> TemplateView:
    return _template(call, starting.find(call.core, Template, call.params["name"]))


def template_of(name: str, asked: PutTemplate, now: datetime) -> Template:
    base, size = Template(name=name, created_at=now), asked.resources
    return base.with_(
        images=dict(asked.images),
        cpu_millis=base.cpu_millis if size.cpu is None else max(1, round(size.cpu * 1000)),
        memory_mib=base.memory_mib if size.memory_mib is None else size.memory_mib,
        disk_gib=base.disk_gib if size.disk_gib is None else size.disk_gib,
    )


def put_template(call: Call[PutTemplate, NoQuery]) -> Answer:
    wanted = template_of(_named(call.params["name"]), call.body, call.core.clock.now())
    stored, made = starting.replace(call.core, call.caller, wanted, call.body.version)
    return _answer(_template(call, stored), made)


def delete_template(call: Call[NoBody, NoQuery]) -> Answer:
    starting.remove(call.core, call.caller, Template, call.params["name"])
    return Answer(204)


def list_profiles(call: Call[NoBody, PageQuery]) -> Answer:
    after = call.query.after(call.core, "profiles")
    found, position = starting.list_named(call.core, Profile, after, call.query.limit)
    page = ProfilePage(
        items=[_profile(profile) for profile in found], next_cursor=next_cursor(call.core, position, "profiles")
    )
    return _answer(page, made=False)


def get_profile(call: Call[NoBody, NoQuery]) -> Answer:
    return _answer(_profile(starting.find(call.core, Profile, call.params["name"])), made=False)


def put_profile(call: Call[PutProfile, NoQuery]) -> Answer:
    asked = call.body
    defaults = asked.defaults
    wanted = Profile(
        name=_named(call.params["name"]), description=asked.description, created_at=call.core.clock.now(),
        defaults=json.loads(defaults.model_dump_json(by_alias=True, exclude_unset=True)),
    )  # fmt: skip
    stored, made = profiles.replace(call.core, call.caller, wanted, defaults, asked.version)
    return _answer(_profile(stored), made)


def delete_profile(call: Call[NoBody, NoQuery]) -> Answer:
    starting.remove(call.core, call.caller, Profile, call.params["name"])
    return Answer(204)


def _template(call: Call[Any, Any], template: Template) -> TemplateView:
    known = {entry.pool.name for entry in pools.visible(call.core, call.caller)}
    operator = call.caller.operator
    missing = sorted(set(template.images) - known) if operator else []
    return TemplateView(
        name=template.name, version=template.version,
        images={pool: image for pool, image in template.images.items() if operator or pool in known},
        resources=Resources(
            cpu=template.cpu_millis / 1000, memory_mib=template.memory_mib, disk_gib=template.disk_gib
        ),
        warnings=[f"There is no pool {name!r} now." for name in missing],
    )  # fmt: skip


def _profile(profile: Profile) -> ProfileView:
    defaults = CreateSandbox.model_validate(profile.defaults, by_alias=True, by_name=False)
    return ProfileView(
        name=profile.name, description=profile.description, defaults=defaults, version=profile.version
    )  # fmt: skip


def _answer(view: TemplateView | ProfileView | ProfilePage, made: bool) -> Answer:
    """Of a profile only what it sets: its defaults can be changed and sent back as they are."""
    body = view.model_dump_json(by_alias=True, exclude_unset=True, exclude_none=True)
    return Answer(201 if made else 200, body, {"Content-Type": JSON})


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidRequest("A name is up to 63 of a-z, 0-9, `.`, `_` and `-`.", field="name")
    return name


ROUTES = (
    Route(
        Method.GET, "/v1/templates", Group.CONTROL, Access.ANY, list_templates,
        "List templates by name", NoBody, PageQuery, TemplatePage,
    ),
    Route(
        Method.GET, "/v1/templates/{name}", Group.CONTROL, Access.ANY, get_template,
        "Read a template", NoBody, NoQuery, TemplateView,
    ),
    Route(
        Method.PUT, "/v1/templates/{name}", Group.ADMIN, Access.OPERATOR, put_template,
        "Make or replace a template", PutTemplate, NoQuery, TemplateView, also=(201,), errors=(InvalidState,),
        description="For new and waiting sandboxes, everywhere within a few seconds.",
    ),
    Route(
        Method.DELETE, "/v1/templates/{name}", Group.ADMIN, Access.OPERATOR, delete_template,
        "Remove a template", NoBody, NoQuery, status=204, errors=(InvalidState,),
        description="What was made from it goes on.",
    ),
    Route(
        Method.GET, "/v1/profiles", Group.CONTROL, Access.ANY, list_profiles,
        "List profiles by name", NoBody, PageQuery, ProfilePage,
    ),
    Route(
        Method.GET, "/v1/profiles/{name}", Group.CONTROL, Access.ANY, get_profile,
        "Read a profile", NoBody, NoQuery, ProfileView,
    ),
    Route(
        Method.PUT, "/v1/profiles/{name}", Group.ADMIN, Access.OPERATOR, put_profile,
        "Make or replace a profile", PutProfile, NoQuery, ProfileView, also=(201,), errors=(InvalidState,),
    ),
    Route(
        Method.DELETE, "/v1/profiles/{name}", Group.ADMIN, Access.OPERATOR, delete_profile,
        "Remove a profile", NoBody, NoQuery, status=204,
    ),
)  # fmt: skip
