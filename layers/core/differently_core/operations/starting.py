"""Templates and profiles: what creates start from. Changed under a version, read from the catalog."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from ..errors import Internal, InvalidRequest, InvalidState, NotFound
from ..model.pool import Template
from ..model.profile import Profile
from ..model.tenancy import OPERATOR_ORG
from ..store.ports import Absent, Committed, Condition, Delete, Equals, Present, Put, Refused, StoreThrottled
from .core import Caller, Core
from .requests import CreateSandbox

N = TypeVar("N", Template, Profile)
DEFAULT_TEMPLATE = "default"
BY_SNAPSHOT = ("template", "image", "resources", "classification")
"""What a snapshot brings along, so that no profile changes it."""
MERGED = ("resources", "placement", "labels")
"""Taken together field by field; of everything else what the caller sends stands alone."""


def find(core: Core, kind: type[N], name: str) -> N:
    found = core.store.get(kind, kind.key_of(name))
    if found is None:
        raise NotFound(f"There is no {kind.kind} {name[:64]!r}.")
    return found


def list_named(core: Core, kind: type[N], after: str | None, limit: int) -> tuple[list[N], str | None]:
    key = kind.key_of("")
    page = core.store.query(key.table, key.pk, after=after, limit=limit)
    return [row for row in page.rows if isinstance(row, kind)], page.next


def replace(core: Core, caller: Caller, wanted: N, version: int | None) -> tuple[N, bool]:
    """Store it under its name, and say whether it is new; if it is there as wanted, nothing is written.

    With `version` (0: none yet) only what has this version is replaced: `InvalidState` when it was changed since.
    """
    kind = type(wanted)
    for _ in range(core.tuning.conflict_tries_max):
        before = core.store.get(kind, wanted.key())
        standing = before.version if before is not None else 0
        if before is not None and wanted.with_(version=standing, created_at=before.created_at) == before:
            return before, False
        if version is not None and version != standing:
            raise InvalidState(
                f"The {kind.kind} {wanted.name!r} has version {standing}, not {version}: read it again and repeat the "
                "change.",
                version=standing,
            )
        made = before.created_at if before is not None else wanted.created_at
        after = wanted.with_(version=standing + 1, created_at=made)
        when: Condition = Equals("version", standing) if standing else Absent()
        details = {"version": after.version}
        event = core.event(caller, f"{kind.kind}.update", wanted.name, OPERATOR_ORG, details=details)
        outcome = core.commit([Put(after, (when,), kind.kind), Put(event, (Absent(),), "event")])
        if isinstance(outcome, Committed):
            core.catalog.forget()
            core.nudges.dispatch()
            return after, before is None
    raise StoreThrottled(f"This {wanted.kind} is being changed by others right now; repeat the call.")


def remove(core: Core, caller: Caller, kind: type[Template] | type[Profile], name: str) -> None:
    """Repeating it is success. The template that a create without one starts from can only be replaced."""
    if kind is Template and name == DEFAULT_TEMPLATE:
        raise InvalidState("The default template can be replaced, not removed: creates without a template start there.")
    event = core.event(caller, f"{kind.kind}.delete", name, OPERATOR_ORG)
    gone = Delete(kind, kind.key_of(name), kind.kind, (Present(),))
    if not isinstance(core.commit([gone, Put(event, (Absent(),), "event")]), Refused):
        core.catalog.forget()


def with_profile(core: Core, request: CreateSandbox, *, restored: bool = False) -> CreateSandbox:
    """The request with what it leaves out taken from its profile, or from the snapshot that it is `restored` from."""
    if request.profile is None:
        return request
    profile = core.catalog.profile(request.profile)
    if profile is None:
        raise InvalidRequest(f"There is no profile {request.profile!r}.", field="profile")
    asked = request.model_dump(by_alias=True, exclude_unset=True)
    brought = BY_SNAPSHOT if restored else ()
    defaults = {name: value for name, value in profile.defaults.items() if name not in brought}
    whole = {**defaults, **asked}
    for name in MERGED:
        default, given = defaults.get(name), asked.get(name)
        if isinstance(default, dict) and isinstance(given, dict):
            whole[name] = {**default, **given}
    try:
        return CreateSandbox.model_validate(whole, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    raise Internal(f"The profile {profile.name!r} does not fit this version at {where}; an operator must replace it.")
