"""Organizations, projects and their limits, and the bootstrap of a fresh installation."""

from __future__ import annotations

from ..errors import NotFound
from ..model.policy import GLOBAL, Policy
from ..model.pool import Template
from ..model.queue import Backlog
from ..model.quota import Counter, Limits, Scope
from ..model.record import Key, Record, Table
from ..model.resources import DIMENSIONS, UNLIMITED
from ..model.tenancy import OPERATOR_ORG, Installation, KeyScope, Org, OrgEntry, Project, ProjectEntry, TenantState
from ..runtime.ids import InstallationId, OrgId, ProjectId
from ..store.ports import ACTIONS_MAX, Absent, Action, Committed, Equals, Put, StoreThrottled, Update
from .core import Caller, Core, system
from .keys import NewKey, Peppers, create_key
from .standing import check_open, read, still_open
from .starting import DEFAULT_TEMPLATE


def bootstrap(core: Core) -> Installation:
    """Make what every installation has, once: its id, the global policy, the default template. Safe to repeat."""
    now = core.clock.now()
    fresh = Installation(id=InstallationId(core.ids.new("inst")), id_salt=core.ids.secret(), created_at=now)
    core.commit([Put(fresh, (Absent(),), "installation")])
    core.commit([Put(Policy(scope=GLOBAL), (Absent(),), "policy")])
    core.commit([Put(Template(name=DEFAULT_TEMPLATE, created_at=now), (Absent(),), "template")])
    core.catalog.forget()
    return core.catalog.installation()


def first_operator_key(core: Core, peppers: Peppers) -> NewKey:
    """A key for the person who installed this; called by the installer, never by the API."""
    return create_key(core, peppers, system("bootstrap"), "first operator key", KeyScope.OPERATOR)


def create_org(core: Core, caller: Caller, name: str, limits: Limits | None = None, weight: int = 1) -> Org:
    org = Org(
        id=OrgId(core.ids.new("org")), name=name, limits=limits or Limits(), weight=weight, created_at=core.clock.now()
    )
    event = core.event(caller, "org.create", org.id, OPERATOR_ORG)
    core.commit(
        [
            Put(org, (Absent(),), "org"),
            Put(OrgEntry(id=org.id, name=name, created_at=org.created_at), (Absent(),), "entry"),
            Put(Counter.of(Scope.ORG, org.id, org.limits.total), (Absent(),), "counter"),
            *_bounded(Scope.ORG, org.id, org.limits),
            Put(event, (Absent(),), "event"),
        ]
    )
    return org


def update_org(core: Core, caller: Caller, org: OrgId, name: str | None, weight: int | None) -> Org:
    """Change its name, or its share when several organizations wait; None leaves as it is, and no change is success.

    Other processes go by the new weight as soon as they read their catalog again. Raises `NotFound`, `InvalidState`.
    """
    for _ in range(core.tuning.conflict_tries_max):
        found = read(core, org, None)
        assert isinstance(found, Org)
        check_open(found)
        changed = found.with_(
            name=found.name if name is None else name, weight=found.weight if weight is None else weight
        )
        if changed == found:
            return found
        changed = changed.with_(version=found.version + 1)
        event = core.event(
            caller, "org.update", org, org,
            details={"weight_before": found.weight, "weight": changed.weight, "renamed": changed.name != found.name},
        )  # fmt: skip
        actions: list[Action] = [
            Put(changed, (Equals("version", found.version),), "org"),
            Put(OrgEntry(id=org, name=changed.name, created_at=found.created_at), (), "entry"),
            Put(event, (Absent(),), "event"),
        ]
        if isinstance(core.commit(actions), Committed):
            core.catalog.forget()
            core.nudges.dispatch()
            return changed
    raise StoreThrottled("This organization is being changed by others right now; repeat the call.")


def create_project(core: Core, caller: Caller, org: OrgId, name: str, limits: Limits | None = None) -> Project:
    owner = read(core, org, None)
    check_open(owner)
    project = Project(
        id=ProjectId(core.ids.new("proj")), org=org, name=name, limits=limits or Limits(), created_at=core.clock.now()
    )
    event = core.event(caller, "project.create", project.id, org, project=project.id)
    outcome = core.commit(
        [
            still_open(owner),
            Put(project, (Absent(),), "project"),
            Put(ProjectEntry(id=project.id, org=org), (Absent(),), "entry"),
            Put(Counter.of(Scope.PROJECT, project.id, project.limits.total), (Absent(),), "counter"),
            *_bounded(Scope.PROJECT, project.id, project.limits),
            Put(event, (Absent(),), "event"),
        ]
    )
    if not isinstance(outcome, Committed):
        check_open(read(core, org, None))
        raise StoreThrottled("This organization is being changed by others right now; repeat the call.")
    return project


def list_orgs(core: Core, after: str | None, limit: int) -> tuple[list[Org], str | None]:
    """Oldest first, at most 100; two round trips."""
    page = core.store.query(Table.CONFIG, "ORGS", after=after, limit=min(limit, ACTIONS_MAX))
    entries: list[tuple[type[Org], Key]] = [(Org, Org.key_of(row.id)) for row in page.rows if isinstance(row, OrgEntry)]
    rows = core.store.batch_get(entries) if entries else []
    return [row for row in rows if isinstance(row, Org)], page.next


def list_projects(core: Core, org: OrgId, after: str | None, limit: int) -> tuple[list[Project], str | None]:
    read(core, org, None)
    page = core.store.query(Table.CONFIG, f"ORG#{org}", prefix="PROJECT#", after=after, limit=limit)
    rows = (row for row in page.rows if isinstance(row, Project))
    return [row for row in rows if row.state is not TenantState.DELETED], page.next


def org_quota(core: Core, org: OrgId) -> tuple[Limits, Counter | None, int]:
    """Limits, what is held, and how many hold a place in the backlog if that is bounded; one moment, one round trip."""
    keys = [
        (Org, Org.key_of(org)), (Counter, Counter.key_of(Scope.ORG, org)), (Backlog, Backlog.key_of(Scope.ORG, org))
    ]  # fmt: skip
    found, counter, backlog = core.store.batch_get(keys)  # type: ignore[arg-type]  # a list of mixed record types
    if not isinstance(found, Org) or found.state is TenantState.DELETED:
        raise NotFound(f"There is no organization {org!r}.", org=org)
    return found.limits, counter if isinstance(counter, Counter) else None, _waiting(backlog)


def project_quota(core: Core, org: OrgId, project: ProjectId) -> tuple[Limits, Counter | None, int]:
    """As `org_quota`."""
    counter_key = Counter.key_of(Scope.PROJECT, project)
    backlog_key = Backlog.key_of(Scope.PROJECT, project)
    keys = [(Project, Project.key_of(org, project)), (Counter, counter_key), (Backlog, backlog_key)]
    found, counter, backlog = core.store.batch_get(keys)  # type: ignore[arg-type]  # a list of mixed record types
    if not isinstance(found, Project) or found.state is TenantState.DELETED:
        raise NotFound(f"There is no project {project!r}.", project=project)
    return found.limits, counter if isinstance(counter, Counter) else None, _waiting(backlog)


def _waiting(backlog: Record | None) -> int:
    return backlog.waiting if isinstance(backlog, Backlog) else 0


def set_quota(core: Core, caller: Caller, org: OrgId, project: ProjectId | None, limits: Limits) -> None:
    """Change limits; the free amounts move by the difference. Below what is held nothing ends, nothing is admitted."""
    for _ in range(core.tuning.conflict_tries_max):
        core.catalog.forget()
        owner: Org | Project = core.catalog.org(org) if project is None else core.catalog.project(org, project)
        scope = Scope.ORG if project is None else Scope.PROJECT
        changed = owner.with_(limits=limits, version=owner.version + 1)
        event = core.event(caller, "quota.update", owner.id, org, project=project)
        actions: list[Action] = [
            Put(changed, (Equals("version", owner.version),), "owner"),
            *_move(scope, owner.id, owner.limits, limits),
            *_move_backlog(core, scope, owner.id, owner.limits, limits),
            Put(event, (Absent(),), "event"),
        ]
        if isinstance(core.commit(actions), Committed):
            core.catalog.forget()
            core.nudges.dispatch()
            return
    raise StoreThrottled("This quota is being changed by others right now; repeat the call.")


def _bounded(scope: Scope, name: str, limits: Limits) -> list[Action]:
    if limits.backlog_max is None:
        return []
    made = Backlog(scope=scope, name=name, free=limits.backlog_max, limit=limits.backlog_max)
    return [Put(made, (Absent(),), "backlog")]


def _move_backlog(core: Core, scope: Scope, name: str, before: Limits, after: Limits) -> list[Action]:
    """The change of the bound. A row that was made stays without one too: who waits gives its place back there."""
    if before.backlog_max == after.backlog_max:
        return []
    found = core.store.get(Backlog, Backlog.key_of(scope, name))
    if found is None:
        return _bounded(scope, name, after)
    limit = UNLIMITED if after.backlog_max is None else after.backlog_max
    return [
        Update(
            Backlog, found.key(), "backlog", add={"free": limit - found.limit, "moves": 1}, set={"limit": limit},
            when=(Equals("limit", found.limit),),
        )
    ]  # fmt: skip


def _move(scope: Scope, name: str, before: Limits, after: Limits) -> list[Update]:
    """The change of the counter; none when only limits of one sandbox, lifetime or backlog changed."""
    delta = {key: getattr(after.total, key) - getattr(before.total, key) for key in DIMENSIONS}
    add = {f"{side}_{key}": amount for key, amount in delta.items() if amount for side in ("free", "limit")}
    return [Update(Counter, Counter.key_of(scope, name), "counter", add=add)] if add else []
