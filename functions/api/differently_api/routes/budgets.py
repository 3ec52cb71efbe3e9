"""Budgets of organizations and projects: operators set them, tenants read their own."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from differently_core.errors import InvalidState, NotFound
from differently_core.model.budget import THRESHOLDS, BudgetAction, month_of
from differently_core.model.record import Wire
from differently_core.model.usage import MICRO
from differently_core.operations import budgets
from differently_core.operations.core import Core
from differently_core.runtime.ids import OrgId, ProjectId, is_id

from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route

LIMIT_MAX = 1_000_000_000
Percent = Annotated[int, Field(ge=1, le=1000)]


def _ascending(levels: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(levels)))


class PutBudget(Wire):
    limit: Annotated[float, Field(ge=0, le=LIMIT_MAX)]
    """What may be spent in a calendar month (UTC), in the currency; rounded to a millionth."""
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    """What runs at prices in another currency, or at none, is not counted."""
    thresholds: Annotated[tuple[Percent, ...], Field(max_length=10), AfterValidator(_ascending)] = THRESHOLDS
    """In percent of the limit; when what is projected reaches one, an event tells it, once a month."""
    action: BudgetAction = BudgetAction.ALERT


class BudgetView(Wire):
    scope: str
    org: str
    project: str | None = None
    limit: float
    currency: str
    thresholds: list[int]
    action: BudgetAction
    updated_at: datetime
    updated_by: str
    period_ends_at: datetime
    """When the next month begins."""
    spent: float | None = None
    """This month, until `asOf`; estimates. Absent before the first look."""
    projected: float | None = None
    """What is spent, and what may still come of what runs until it ends or the month does."""
    reached: list[int] = []
    """Thresholds that were reached this month."""
    uncounted: bool = False
    """True when something runs, or ran, at a price that is unknown or in another currency."""
    as_of: datetime | None = None

    @classmethod
    def of(cls, core: Core, found: budgets.Standing) -> Self:
        budget, spend = found.budget, found.spend
        begin, end = month_of(core.clock.now())
        now = spend if spend is not None and spend.month == f"{begin:%Y-%m}" else None
        return cls(
            scope=budget.scope, org=budget.org, project=budget.project, limit=budget.limit / MICRO,
            currency=budget.currency, thresholds=list(budget.thresholds), action=budget.action,
            updated_at=budget.updated_at, updated_by=budget.updated_by, period_ends_at=end,
            spent=now.spent / MICRO if now is not None else None,
            projected=now.projected / MICRO if now is not None else None,
            reached=list(now.told) if now is not None else [], uncounted=now is not None and now.uncounted,
            as_of=now.at if now is not None else None,
        )  # fmt: skip


def get_org_budget(call: Call[NoBody, NoQuery]) -> BudgetView:
    return BudgetView.of(call.core, budgets.get(call.core, *_owner(call)))


def put_org_budget(call: Call[PutBudget, NoQuery]) -> BudgetView:
    return _put(call)


def delete_org_budget(call: Call[NoBody, NoQuery]) -> Answer:
    return _delete(call)


def get_project_budget(call: Call[NoBody, NoQuery]) -> BudgetView:
    return BudgetView.of(call.core, budgets.get(call.core, *_owner(call)))


def put_project_budget(call: Call[PutBudget, NoQuery]) -> BudgetView:
    return _put(call)


def delete_project_budget(call: Call[NoBody, NoQuery]) -> Answer:
    return _delete(call)


def _put(call: Call[PutBudget, NoQuery]) -> BudgetView:
    asked = call.body
    found = budgets.put(
        call.core, call.caller, *_owner(call), limit=round(asked.limit * MICRO), currency=asked.currency,
        thresholds=asked.thresholds, action=asked.action,
    )  # fmt: skip
    return BudgetView.of(call.core, found)


def _delete(call: Call[NoBody, NoQuery]) -> Answer:
    budgets.delete(call.core, call.caller, *_owner(call))
    return Answer(204)


def _owner(call: Call[PutBudget, NoQuery] | Call[NoBody, NoQuery]) -> tuple[OrgId, ProjectId | None]:
    """What the path names; a tenant's own, or it is not there."""
    caller, named = call.caller, call.params
    if "org" in named:
        org = named["org"]
        if not is_id("org", org) or (caller.org is not None and caller.org != org):
            raise NotFound("There is no such organization.")
        return OrgId(org), None
    project = named["project"]
    if not is_id("proj", project) or (caller.project is not None and caller.project != project):
        raise NotFound("There is no such project.")
    return call.core.catalog.org_of(ProjectId(project)), ProjectId(project)


_ABOUT = (
    "A create or a wake takes from it the most that the sandbox may cost: its pool's prices times its size until its "
    "time to live is over, or the month. `alert` tells alone. With `queue` what would go beyond the limit waits, with "
    "`stop` it is refused (`budget_exceeded`). With `pause` it waits, and once the limit is spent what runs is put to "
    "rest; with `stop` it is stopped, or ended where its pool cannot stop."
)
ROUTES = (
    Route(
        Method.GET, "/v1/orgs/{org}/budget", Group.ADMIN, Access.ANY, get_org_budget,
        "Read an organization's budget", NoBody, NoQuery, BudgetView, errors=(NotFound,),
        description="With a tenant's key: of its own organization. Looked at each minute.",
    ),
    Route(
        Method.PUT, "/v1/orgs/{org}/budget", Group.ADMIN, Access.OPERATOR, put_org_budget,
        "Set an organization's budget", PutBudget, NoQuery, BudgetView, errors=(NotFound,), description=_ABOUT,
    ),
    Route(
        Method.DELETE, "/v1/orgs/{org}/budget", Group.ADMIN, Access.OPERATOR, delete_org_budget,
        "Remove an organization's budget", NoBody, NoQuery, status=204, errors=(NotFound, InvalidState),
    ),
    Route(
        Method.GET, "/v1/projects/{project}/budget", Group.ADMIN, Access.ANY, get_project_budget,
        "Read a project's budget", NoBody, NoQuery, BudgetView, errors=(NotFound,),
        description="With a tenant's key: of its own project. Looked at each minute.",
    ),
    Route(
        Method.PUT, "/v1/projects/{project}/budget", Group.ADMIN, Access.OPERATOR, put_project_budget,
        "Set a project's budget", PutBudget, NoQuery, BudgetView, errors=(NotFound,), description=_ABOUT,
    ),
    Route(
        Method.DELETE, "/v1/projects/{project}/budget", Group.ADMIN, Access.OPERATOR, delete_project_budget,
        "Remove a project's budget", NoBody, NoQuery, status=204, errors=(NotFound, InvalidState),
    ),
)  # fmt: skip
