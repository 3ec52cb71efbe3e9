"""Organizations, projects and what they may hold."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints

from differently_core.errors import InvalidState, NotFound
from differently_core.model.closing import Closing
from differently_core.model.quota import Counter, Limits, Scope
from differently_core.model.record import Wire
from differently_core.model.resources import UNLIMITED, Size
from differently_core.model.snapshot import SnapshotTally
from differently_core.model.tenancy import CLOSED, Org, Project, StateReason, TenantState
from differently_core.operations import closing, recount, retally, standing, tenants
from differently_core.operations.core import Caller, Core
from differently_core.operations.tallies import tally
from differently_core.runtime.ids import OrgId, ProjectId, is_id

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .paging import PageQuery, next_cursor

DisplayName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
Weight = Annotated[int, Field(ge=1, le=1000)]
Amount = Annotated[int, Field(ge=0, le=UNLIMITED)]
Cpus = Annotated[float, Field(ge=0, le=UNLIMITED // 1000)]
_TOTAL, _EACH = Limits().total, Limits().each


class SandboxLimit(Wire):
    """The most that one sandbox may ask for. What is left out gets the default; null means no limit."""

    max_cpu: Cpus | None = Field(default=_EACH.cpu_millis / 1000, alias="maxCPU")
    max_memory_mib: Amount | None = _EACH.memory_mib
    max_disk_gib: Amount | None = _EACH.disk_gib

    def size(self) -> Size:
        return _size(1, self.max_cpu, self.max_memory_mib, self.max_disk_gib)

    @classmethod
    def of(cls, size: Size) -> Self:
        return cls(
            max_cpu=_cpus(size.cpu_millis), max_memory_mib=_bound(size.memory_mib), max_disk_gib=_bound(size.disk_gib)
        )


class Quota(Wire):
    """May be held at once, and asked for by one sandbox. What is left out gets the default; null means no limit."""

    max_concurrent: Amount = _TOTAL.sandboxes
    """Sandboxes that hold a place at once; more wait in the queue."""
    max_cpu: Cpus | None = Field(default=None, alias="maxCPU")
    max_memory_mib: Amount | None = None
    max_disk_gib: Amount | None = None
    max_ttl_seconds: Annotated[int, Field(ge=1, le=UNLIMITED, alias="maxTTLSeconds")] = Limits().ttl_seconds_max
    max_queued: Amount | None = None
    """Sandboxes that may wait at once, exactly; more are refused with `queue_full`. Null sets no bound of its own: then
    10,000 of an organization is where a guard begins to refuse. What waits already when a bound is set is not counted.
    """
    max_snapshots: Amount = Limits().snapshots_max
    """Snapshots kept at once."""
    max_snapshot_gib: Amount | None = None
    """Once so much is kept, or more, no further snapshot is taken."""
    per_sandbox: SandboxLimit = SandboxLimit()

    def limits(self) -> Limits:
        return Limits(
            total=_size(self.max_concurrent, self.max_cpu, self.max_memory_mib, self.max_disk_gib),
            each=self.per_sandbox.size(), ttl_seconds_max=self.max_ttl_seconds, backlog_max=self.max_queued,
            snapshots_max=self.max_snapshots,
            snapshot_gib_max=UNLIMITED if self.max_snapshot_gib is None else self.max_snapshot_gib,
        )  # fmt: skip

    @classmethod
    def of(cls, limits: Limits) -> Self:
        total = limits.total
        return cls(
            max_concurrent=total.sandboxes, max_cpu=_cpus(total.cpu_millis),
            max_memory_mib=_bound(total.memory_mib), max_disk_gib=_bound(total.disk_gib),
            max_ttl_seconds=limits.ttl_seconds_max, max_queued=limits.backlog_max,
            max_snapshots=limits.snapshots_max, max_snapshot_gib=_bound(limits.snapshot_gib_max),
            per_sandbox=SandboxLimit.of(limits.each),
        )  # fmt: skip


class Used(Wire):
    concurrent: int
    cpu: float
    memory_mib: int
    disk_gib: int


class QuotaUsed(Used):
    snapshots: int
    snapshot_bytes: int
    queued: int
    """Sandboxes that hold a place in the queue; counted while `maxQueued` is set."""


class QuotaView(Wire):
    """`limits` can be changed and sent back. `waiting`: sandboxes in the queue that wait for this quota."""

    limits: Quota
    used: QuotaUsed
    waiting: int = 0


class RepairQuota(Wire):
    dry_run: bool = False
    """Only count."""


class RepairView(Wire):
    """`held`: what its sandboxes and snapshots really hold. `drift`: what the counters said beyond that, before the
    repair.
    """

    held: QuotaUsed
    drift: QuotaUsed
    repaired: bool


def _size(sandboxes: int, cpu: float | None, memory_mib: int | None, disk_gib: int | None) -> Size:
    return Size(
        sandboxes=sandboxes,
        cpu_millis=UNLIMITED if cpu is None else round(cpu * 1000),
        memory_mib=UNLIMITED if memory_mib is None else memory_mib,
        disk_gib=UNLIMITED if disk_gib is None else disk_gib,
    )


def _bound(amount: int) -> int | None:
    return None if amount >= UNLIMITED else amount


def _cpus(millis: int) -> float | None:
    return None if millis >= UNLIMITED else millis / 1000


class CreateOrg(Wire):
    name: DisplayName
    weight: Weight = 1
    """Its share when several organizations wait."""
    quota: Quota = Quota()


class UpdateOrg(Wire):
    """What is left out stays."""

    name: DisplayName | None = None
    weight: Weight | None = None
    """Its share when several organizations wait."""


class StateReasonView(Wire):
    """Why it is in its state, who put it there (a key's id), and when."""

    detail: str
    by: str
    at: datetime

    @classmethod
    def of(cls, reason: StateReason | None) -> Self | None:
        return cls(detail=reason.detail, by=reason.by, at=reason.at) if reason is not None else None


class ClosingView(Wire):
    """How far archiving or deleting has come, and what it waits for."""

    target: TenantState
    requested_by: str
    requested_at: datetime
    removed: int
    """Sandboxes and snapshots that were told to go."""
    waits_for: str

    @classmethod
    def of(cls, row: Closing) -> Self:
        return cls(
            target=row.target, requested_by=row.by, requested_at=row.at, removed=row.removed, waits_for=row.waits_for
        )


class OrgView(Wire):
    id: str
    name: str
    weight: int
    state: TenantState
    state_reason: StateReasonView | None = None
    closing: ClosingView | None = None
    created_at: datetime

    @classmethod
    def of(cls, org: Org) -> Self:
        return cls(
            id=org.id, name=org.name, weight=org.weight, state=org.state, state_reason=StateReasonView.of(org.reason),
            created_at=org.created_at,
        )  # fmt: skip


class OrgPage(Wire):
    items: list[OrgView]
    next_cursor: str | None = None


class CreateProject(Wire):
    name: DisplayName
    quota: Quota = Quota()


class ProjectView(Wire):
    id: str
    org: str
    name: str
    state: TenantState
    state_reason: StateReasonView | None = None
    closing: ClosingView | None = None
    created_at: datetime

    @classmethod
    def of(cls, project: Project) -> Self:
        return cls(
            id=project.id, org=project.org, name=project.name, state=project.state,
            state_reason=StateReasonView.of(project.reason), created_at=project.created_at,
        )  # fmt: skip


class ProjectPage(Wire):
    items: list[ProjectView]
    next_cursor: str | None = None


class Suspend(Wire):
    reason: Annotated[str, StringConstraints(max_length=512, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """Told to whoever is refused."""
    stop_running: bool = False
    """Also stop what runs, where its pool can do that; it can be started again after the suspension."""


def create_org(call: Call[CreateOrg, NoQuery]) -> OrgView:
    asked = call.body
    return OrgView.of(tenants.create_org(call.core, call.caller, asked.name, asked.quota.limits(), asked.weight))


def list_orgs(call: Call[NoBody, PageQuery]) -> OrgPage:
    after = call.query.after(call.core, "orgs")
    found, position = tenants.list_orgs(call.core, after, call.query.limit)
    return OrgPage(items=[OrgView.of(org) for org in found], next_cursor=next_cursor(call.core, position, "orgs"))


def get_org(call: Call[NoBody, NoQuery]) -> OrgView:
    return _org_view(call.core, standing.read(call.core, _org(call.params["org"]), None))


def update_org(call: Call[UpdateOrg, NoQuery]) -> OrgView:
    org = _org(call.params["org"])
    return _org_view(call.core, tenants.update_org(call.core, call.caller, org, call.body.name, call.body.weight))


def suspend_org(call: Call[Suspend, NoQuery]) -> OrgView:
    asked, org = call.body, _org(call.params["org"])
    found = closing.suspend(call.core, call.caller, org, None, asked.reason, stop=asked.stop_running)
    return _org_view(call.core, found)


def unsuspend_org(call: Call[NoBody, NoQuery]) -> OrgView:
    return _org_view(call.core, standing.unsuspend(call.core, call.caller, _org(call.params["org"]), None))


def archive_org(call: Call[NoBody, NoQuery]) -> OrgView:
    return _closed_org(call, TenantState.ARCHIVED)


def delete_org(call: Call[NoBody, NoQuery]) -> OrgView:
    return _closed_org(call, TenantState.DELETED)


def _closed_org(call: Call[NoBody, NoQuery], target: TenantState) -> OrgView:
    return _org_view(call.core, closing.close(call.core, call.caller, _org(call.params["org"]), None, target))


def _org_view(core: Core, owner: standing.Owner) -> OrgView:
    assert isinstance(owner, Org)
    return OrgView.of(owner).model_copy(update={"closing": _closing(core, owner)})


def _closing(core: Core, owner: standing.Owner) -> ClosingView | None:
    row = closing.of(core, owner) if owner.state in CLOSED else None
    return ClosingView.of(row) if row is not None else None


def create_project(call: Call[CreateProject, NoQuery]) -> ProjectView:
    org = _org(call.params["org"])
    return ProjectView.of(tenants.create_project(call.core, call.caller, org, call.body.name, call.body.quota.limits()))


def list_projects(call: Call[NoBody, PageQuery]) -> ProjectPage:
    org = _org(call.params["org"])
    after = call.query.after(call.core, "projects", org)
    projects, position = tenants.list_projects(call.core, org, after, call.query.limit)
    return ProjectPage(
        items=[ProjectView.of(project) for project in projects],
        next_cursor=next_cursor(call.core, position, "projects", org),
    )


def get_project(call: Call[NoBody, NoQuery]) -> ProjectView:
    return _project_view(call.core, standing.read(call.core, *_project(call.caller, call)))


def suspend_project(call: Call[Suspend, NoQuery]) -> ProjectView:
    asked, (org, project) = call.body, _project(call.caller, call)
    found = closing.suspend(call.core, call.caller, org, project, asked.reason, stop=asked.stop_running)
    return _project_view(call.core, found)


def unsuspend_project(call: Call[NoBody, NoQuery]) -> ProjectView:
    return _project_view(call.core, standing.unsuspend(call.core, call.caller, *_project(call.caller, call)))


def archive_project(call: Call[NoBody, NoQuery]) -> ProjectView:
    return _closed_project(call, TenantState.ARCHIVED)


def delete_project(call: Call[NoBody, NoQuery]) -> ProjectView:
    return _closed_project(call, TenantState.DELETED)


def _closed_project(call: Call[NoBody, NoQuery], target: TenantState) -> ProjectView:
    return _project_view(call.core, closing.close(call.core, call.caller, *_project(call.caller, call), target))


def _project_view(core: Core, owner: standing.Owner) -> ProjectView:
    assert isinstance(owner, Project)
    return ProjectView.of(owner).model_copy(update={"closing": _closing(core, owner)})


def get_org_quota(call: Call[NoBody, NoQuery]) -> Answer:
    org = _org(call.params["org"])
    if not call.caller.operator and call.caller.org != org:
        raise _no_org(org)
    return _quota(*tenants.org_quota(call.core, org), tally(call.core, Scope.ORG, org))


def put_org_quota(call: Call[Quota, NoQuery]) -> Answer:
    org = _org(call.params["org"])
    tenants.set_quota(call.core, call.caller, org, None, call.body.limits())
    return _quota(*tenants.org_quota(call.core, org), tally(call.core, Scope.ORG, org))


def get_project_quota(call: Call[NoBody, NoQuery]) -> Answer:
    org, project = _project(call.caller, call)
    return _quota(*tenants.project_quota(call.core, org, project), tally(call.core, Scope.PROJECT, project))


def put_project_quota(call: Call[Quota, NoQuery]) -> Answer:
    org, project = _project(call.caller, call)
    tenants.set_quota(call.core, call.caller, org, project, call.body.limits())
    return _quota(*tenants.project_quota(call.core, org, project), tally(call.core, Scope.PROJECT, project))


def repair_org_quota(call: Call[RepairQuota, NoQuery]) -> RepairView:
    return _repaired(call, _org(call.params["org"]), None)


def repair_project_quota(call: Call[RepairQuota, NoQuery]) -> RepairView:
    return _repaired(call, *_project(call.caller, call))


def _repaired(call: Call[RepairQuota, NoQuery], org: OrgId, project: ProjectId | None) -> RepairView:
    correct = not call.body.dry_run
    ran = recount.recount(call.core, call.caller, org, project, correct=correct)
    kept = retally.retally(call.core, call.caller, org, project, correct=correct)
    return RepairView(
        held=_with_snapshots(ran.held, kept.held, ran.queued),
        drift=_with_snapshots(ran.drift, kept.drift, ran.queued_drift),
        repaired=ran.corrected or kept.corrected,
    )  # fmt: skip


def _with_snapshots(held: Size, kept: retally.Kept, queued: int) -> QuotaUsed:
    return QuotaUsed(**_used(held).model_dump(), snapshots=kept.snapshots, snapshot_bytes=kept.bytes, queued=queued)


def _used(held: Size) -> Used:
    return Used(
        concurrent=held.sandboxes, cpu=held.cpu_millis / 1000, memory_mib=held.memory_mib, disk_gib=held.disk_gib
    )  # fmt: skip


def _quota(limits: Limits, counter: Counter | None, queued: int, kept: SnapshotTally) -> Answer:
    """With its nulls, so that `limits` can be changed and sent back as it is."""
    held = _used(counter.held if counter is not None else Size())
    used = QuotaUsed(**held.model_dump(), snapshots=kept.count, snapshot_bytes=kept.bytes, queued=queued)
    waiting = (counter.waiting or 0) if counter is not None else 0
    view = QuotaView(limits=Quota.of(limits), used=used, waiting=waiting)
    return Answer(200, view.model_dump_json(by_alias=True), {"Content-Type": JSON})


def _org(text: str) -> OrgId:
    if not is_id("org", text):
        raise _no_org(text)
    return OrgId(text)


def _no_org(text: str) -> NotFound:
    return NotFound(f"There is no organization {text[:64]!r}.")


def _project(caller: Caller, call: Call[Any, NoQuery]) -> tuple[OrgId, ProjectId]:
    """The project of the path and its organization; another tenant's is not found."""
    text = call.params["project"]
    if not is_id("proj", text) or not (caller.operator or caller.project == text):
        raise NotFound(f"There is no project {text[:64]!r}.")
    project = ProjectId(text)
    return caller.org if caller.org is not None else call.core.catalog.org_of(project), project


ROUTES = (
    Route(
        Method.POST, "/v1/orgs", Group.ADMIN, Access.OPERATOR, create_org,
        "Create an organization", CreateOrg, NoQuery, OrgView, 201,
    ),
    Route(
        Method.GET, "/v1/orgs", Group.ADMIN, Access.OPERATOR, list_orgs,
        "List organizations, oldest first", NoBody, PageQuery, OrgPage,
    ),
    Route(
        Method.GET, "/v1/orgs/{org}", Group.ADMIN, Access.OPERATOR, get_org,
        "Read an organization", NoBody, NoQuery, OrgView,
    ),
    Route(
        Method.PATCH, "/v1/orgs/{org}", Group.ADMIN, Access.OPERATOR, update_org,
        "Change an organization's name or weight", UpdateOrg, NoQuery, OrgView, errors=(InvalidState,),
        description="What waits is served by the new weight within seconds. Limits are changed with its quota.",
    ),
    Route(
        Method.POST, "/v1/orgs/{org}/suspend", Group.ADMIN, Access.OPERATOR, suspend_org,
        "Let nothing new start in an organization", Suspend, NoQuery, OrgView, errors=(InvalidState,),
        description="New sandboxes are refused as `suspended`, with the reason; what waits in the queue waits on. What "
        "runs goes on, and can be used, read and deleted. Repeating it replaces the reason.",
    ),
    Route(
        Method.POST, "/v1/orgs/{org}/unsuspend", Group.ADMIN, Access.OPERATOR, unsuspend_org,
        "Let new work into an organization again", NoBody, NoQuery, OrgView, errors=(InvalidState,),
    ),
    Route(
        Method.POST, "/v1/orgs/{org}/projects", Group.ADMIN, Access.OPERATOR, create_project,
        "Create a project", CreateProject, NoQuery, ProjectView, 201, errors=(InvalidState,),
    ),
    Route(
        Method.GET, "/v1/orgs/{org}/projects", Group.ADMIN, Access.OPERATOR, list_projects,
        "List an organization's projects, oldest first", NoBody, PageQuery, ProjectPage,
    ),
    Route(
        Method.GET, "/v1/projects/{project}", Group.ADMIN, Access.ANY, get_project,
        "Read a project", NoBody, NoQuery, ProjectView, description="With a tenant's key: its own project.",
    ),
    Route(
        Method.POST, "/v1/projects/{project}/suspend", Group.ADMIN, Access.OPERATOR, suspend_project,
        "Let nothing new start in a project", Suspend, NoQuery, ProjectView, errors=(InvalidState,),
        description="As for an organization.",
    ),
    Route(
        Method.POST, "/v1/projects/{project}/unsuspend", Group.ADMIN, Access.OPERATOR, unsuspend_project,
        "Let new work into a project again", NoBody, NoQuery, ProjectView, errors=(InvalidState,),
    ),
    Route(
        Method.POST, "/v1/orgs/{org}/archive", Group.ADMIN, Access.OPERATOR, archive_org,
        "Empty an organization and keep its record", NoBody, NoQuery, OrgView, 202, errors=(InvalidState,),
        description="Nothing new starts, its keys are revoked, and everything in it is removed. It is `archived` when "
        "nothing is held any more, which a pool that is offline delays; `closing` tells what it waits for. For good; "
        "repeating it is success.",
    ),
    Route(
        Method.DELETE, "/v1/orgs/{org}", Group.ADMIN, Access.OPERATOR, delete_org,
        "Delete an organization and everything in it", NoBody, NoQuery, OrgView, 202, errors=(InvalidState,),
        description="As archiving; at the end it is not found any more.",
    ),
    Route(
        Method.GET, "/v1/orgs/{org}/quota", Group.ADMIN, Access.ANY, get_org_quota,
        "Read an organization's quota", NoBody, NoQuery, QuotaView,
        description="With a tenant's key: of its own organization.",
    ),
    Route(
        Method.PUT, "/v1/orgs/{org}/quota", Group.ADMIN, Access.OPERATOR, put_org_quota,
        "Replace an organization's quota", Quota, NoQuery, QuotaView,
        description="Below what is held now, nothing ends and nothing new is admitted.",
    ),
    Route(
        Method.POST, "/v1/orgs/{org}/quota/repair", Group.ADMIN, Access.OPERATOR, repair_org_quota,
        "Count again what an organization holds", RepairQuota, NoQuery, RepairView, errors=(InvalidState,),
        description="Its sandboxes and its snapshots, and put both counters right, while others create and delete. "
        "Projects are counted by themselves.",
    ),
    Route(
        Method.POST, "/v1/projects/{project}/archive", Group.ADMIN, Access.OPERATOR, archive_project,
        "Empty a project and keep its record", NoBody, NoQuery, ProjectView, 202, errors=(InvalidState,),
        description="As for an organization.",
    ),
    Route(
        Method.DELETE, "/v1/projects/{project}", Group.ADMIN, Access.OPERATOR, delete_project,
        "Delete a project and everything in it", NoBody, NoQuery, ProjectView, 202, errors=(InvalidState,),
        description="As for an organization.",
    ),
    Route(
        Method.GET, "/v1/projects/{project}/quota", Group.ADMIN, Access.ANY, get_project_quota,
        "Read a project's quota", NoBody, NoQuery, QuotaView,
        description="With a tenant's key: of its own project.",
    ),
    Route(
        Method.PUT, "/v1/projects/{project}/quota", Group.ADMIN, Access.OPERATOR, put_project_quota,
        "Replace a project's quota", Quota, NoQuery, QuotaView,
        description="Below what is held now, nothing ends and nothing new is admitted.",
    ),
    Route(
        Method.POST, "/v1/projects/{project}/quota/repair", Group.ADMIN, Access.OPERATOR, repair_project_quota,
        "Count again what a project holds", RepairQuota, NoQuery, RepairView, errors=(InvalidState,),
        description="As for an organization.",
    ),
)  # fmt: skip
