"""Secrets of a project: its own keys set, replace, list and remove them, and nobody reads a value again."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..errors import InvalidRequest, NotFound, QuotaExceeded
from ..model.secret import SECRET_NAME_PATTERN, ProjectSecret
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import Absent, Action, Committed, Delete, Equals, Put, StoreThrottled
from .core import Caller, Core
from .giving import context
from .standing import check_open, read, still_open

_NAME = re.compile(SECRET_NAME_PATTERN)
PROJECT_SECRETS_MAX = 1_000


@dataclass(frozen=True)
class Owner:
    """Whose secrets."""

    org: OrgId
    project: ProjectId


@dataclass(frozen=True)
class Kept:
    """`created` is False where an older value was replaced."""

    secret: ProjectSecret
    created: bool


def owner_of(core: Core, caller: Caller, project: str | None) -> Owner:
    """The project of the key, or the one that an operator names. Another tenant's is not found."""
    if caller.project is not None:
        if project is not None and project != caller.project:
            raise NotFound(f"There is no project {project[:64]!r}.")
        named = caller.project
    elif project is None:
        raise InvalidRequest("An operator key belongs to no project: send projectId.", field="projectId")
    else:
        named = ProjectId(project)
    return Owner(caller.org if caller.org is not None else core.catalog.org_of(named), named)


def put(core: Core, caller: Caller, owner: Owner, name: str, value: str) -> Kept:
    """Keep this value under the name. Sandboxes that have the old one keep it.

    Raises `InvalidState` for a project that is on its way out: its secrets are being removed.
    """
    _check_name(name)
    revision = core.ids.new("rev")
    sealed = core.sealer.seal(value, context(core, owner.project, name, revision))
    for _ in range(core.tuning.conflict_tries_max):
        tenants = (read(core, owner.org, None), read(core, owner.org, owner.project))
        for tenant in tenants:
            check_open(tenant)
        before = core.store.get(ProjectSecret, ProjectSecret.key_of(owner.project, name))
        if before is None:
            _check_room(core, owner)
        now = core.clock.now()
        secret = ProjectSecret(
            project=owner.project, org=owner.org, name=name, revision=revision, sealed=sealed,
            version=before.version + 1 if before is not None else 1,
            created_at=before.created_at if before is not None else now, updated_at=now, updated_by=caller.actor,
        )  # fmt: skip
        event = core.event(
            caller, "project_secret.put", name, owner.org, project=owner.project, details={"version": secret.version}
        )
        unchanged = (Absent(),) if before is None else (Equals("version", before.version),)
        stay_open = [replace(still_open(tenant), name=f"open {tenant.id}") for tenant in tenants]
        actions: list[Action] = [Put(secret, unchanged, "secret"), Put(event, (Absent(),), "event"), *stay_open]
        if isinstance(core.commit(actions), Committed):
            return Kept(secret, created=before is None)
    raise StoreThrottled("This secret is being changed by others right now; repeat the call.")


def _check_room(core: Core, owner: Owner) -> None:
    """A bound on what one project keeps; calls at the same moment may each add one more."""
    found, more = listed(core, owner, None, PROJECT_SECRETS_MAX)
    while more is not None and len(found) < PROJECT_SECRETS_MAX:
        page, more = listed(core, owner, more, PROJECT_SECRETS_MAX)
        found += page
    if len(found) >= PROJECT_SECRETS_MAX:
        raise QuotaExceeded(
            f"This project keeps {PROJECT_SECRETS_MAX} secrets, which is the most; remove one first.",
            limit=PROJECT_SECRETS_MAX,
        )


def get(core: Core, owner: Owner, name: str) -> ProjectSecret:
    _check_name(name)
    found = core.store.get(ProjectSecret, ProjectSecret.key_of(owner.project, name))
    if found is None:
        raise NotFound(f"This project has no secret {name!r}.", secret=name)
    return found


def listed(core: Core, owner: Owner, after: str | None, limit: int) -> tuple[list[ProjectSecret], str | None]:
    """By name; one round trip."""
    table, pk, prefix = ProjectSecret.key_of(owner.project, "")
    page = core.store.query(table, pk, prefix=prefix, after=after, limit=limit)
    return [row for row in page.rows if isinstance(row, ProjectSecret)], page.next


def remove(core: Core, caller: Caller, owner: Owner, name: str) -> None:
    """Forget it. Sandboxes that were given it keep it until they end."""
    for _ in range(core.tuning.conflict_tries_max):
        found = get(core, owner, name)
        event = core.event(
            caller, "project_secret.delete", name, owner.org, project=owner.project, details={"version": found.version}
        )
        unchanged = (Equals("version", found.version),)
        outcome = core.commit(
            [Delete(ProjectSecret, found.key(), "secret", unchanged), Put(event, (Absent(),), "event")]
        )
        if isinstance(outcome, Committed):
            return
    raise StoreThrottled("This secret is being changed by others right now; repeat the call.")


def _check_name(name: str) -> None:
    """What does not look like a name is not repeated: it may be the secret itself."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            "A secret's name has 1 to 63 lower-case letters, digits and dashes, and begins with a letter.", field="name"
        )
