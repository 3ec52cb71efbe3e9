"""Usage: what was used in a period and what it is estimated to cost, as JSON or as a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from differently_core.errors import InvalidRequest, LimitExceeded, NotFound
from differently_core.model.record import Wire
from differently_core.model.usage import MICRO
from differently_core.operations import standing, usage
from differently_core.operations.core import Caller, Core
from differently_core.runtime.ids import OrgId, ProjectId, is_id

from ..failures import JSON
from ..moments import Day
from ..route import Access, Answer, Call, Group, Method, NoBody, Route
from .paging import next_cursor, position_of

DAYS_MAX = 400
CSV = "text/csv; charset=utf-8"
GROUP_PATTERN = r"^(org|project|pool|key|day|label:[^\x00-\x1f]{1,128})$"
COLUMNS = (
    "group", "sandboxSeconds", "cpuSeconds", "memoryGiBSeconds", "keptSeconds", "estimatedCost", "currency",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet may take for the beginning of a formula."""


class UsageFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


class UsageQuery(Wire):
    first: Annotated[Day | None, Field(alias="from")] = None
    """The first day, in UTC, such as `2026-11-01`. Default: the first of this month."""
    end: Annotated[Day | None, Field(alias="to")] = None
    """The day behind the last one. Default: tomorrow."""
    group_by: Annotated[str, Field(pattern=GROUP_PATTERN)] = "project"
    """`org`, `project`, `pool`, `key`, `day` or `label:<name>`."""
    format: UsageFormat = UsageFormat.JSON
    org_id: str | None = None
    """For operators: one organization alone."""
    project_id: str | None = None
    """For operators: one project alone."""
    cursor: str | None = None
    """`nextCursor` of the page before, in an operator's report of all organizations by `org`."""

    def ask(self, core: Core) -> usage.Ask:
        first, end = usage.period(core, self.first, self.end)
        if end <= first:
            raise InvalidRequest(f"to {end} is not behind from {first}; to is the day behind the last one.", field="to")
        if (end - first).days > DAYS_MAX:
            raise InvalidRequest(
                f"from and to are more than {DAYS_MAX} days apart; ask for less at once.", field="from"
            )
        name, _, label = self.group_by.partition(":")
        return usage.Ask(first, end, usage.GroupBy(name), label)


class UsageLine(Wire):
    group: str | None = None
    """The organization, project, pool, key, day or value of the label; null for what has no such label."""
    sandbox_seconds: float
    """Time for which sandboxes held quota."""
    cpu_seconds: float
    """The same, times the virtual CPUs that each asked for."""
    memory_gib_seconds: float
    kept_seconds: float
    """Time at rest, on pools that have a price for it."""
    estimated_cost: float | None
    """By the prices of the pool when counting began and the size that was asked for; null where the pool has none."""
    currency: str | None

    @classmethod
    def of(cls, line: usage.Line) -> Self:
        amounts = line.amounts
        return cls(
            group=line.group, sandbox_seconds=amounts.sandbox_ms / 1000, cpu_seconds=amounts.cpu_ms / 1000,
            memory_gib_seconds=round(amounts.memory_mib_ms / 1024 / 1000, 3), kept_seconds=amounts.kept_ms / 1000,
            estimated_cost=amounts.cost / MICRO if line.currency is not None else None, currency=line.currency,
        )  # fmt: skip


class UsageReport(Wire):
    first: Annotated[date, Field(alias="from")]
    end: Annotated[date, Field(alias="to")]
    as_of: datetime
    """What still runs is counted until then."""
    group_by: str
    items: list[UsageLine]
    """A group has a line for each currency, and one without for what ran on pools whose costs are unknown."""
    next_cursor: str | None = None


def report_usage(call: Call[NoBody, UsageQuery]) -> Answer:
    core, asked = call.core, call.query
    ask = asked.ask(core)
    found = _report(core, call.caller, asked, ask)
    lines = [UsageLine.of(line) for line in found.lines]
    further = next_cursor(core, found.next, *_bound_to(asked))
    if asked.format is UsageFormat.JSON:
        report = UsageReport(
            first=ask.first, end=ask.end, as_of=core.clock.now(), group_by=asked.group_by, items=lines,
            next_cursor=further,
        )  # fmt: skip
        # An unknown cost is told as null, where other answers leave out what they do not know.
        left_out = {"next_cursor"} if further is None else None
        return Answer(200, report.model_dump_json(by_alias=True, exclude=left_out), {"Content-Type": JSON})
    headers = {
        "Content-Type": CSV,
        "Content-Disposition": f'attachment; filename="usage-{ask.first}-{ask.end}.csv"',
        **({"X-Next-Cursor": further} if further is not None else {}),
    }
    return Answer(200, table(lines), headers)


def _report(core: Core, caller: Caller, asked: UsageQuery, ask: usage.Ask) -> usage.Report:
    if caller.project is not None:
        if (asked.org_id or caller.org, asked.project_id or caller.project) != (caller.org, caller.project):
            raise NotFound("There is no such organization or project here; leave orgId and projectId out.")
        assert caller.org is not None
        return usage.of_owner(core, standing.read(core, caller.org, caller.project), ask)
    if asked.project_id is not None:
        project = ProjectId(_id("proj", asked.project_id, "projectId"))
        org = core.catalog.org_of(project)
        if asked.org_id not in (None, org):
            raise NotFound(f"There is no project {project!r} in that organization.")
        return usage.of_owner(core, standing.read(core, org, project), ask)
    if asked.org_id is not None:
        return usage.of_owner(core, standing.read(core, OrgId(_id("org", asked.org_id, "orgId")), None), ask)
    if asked.cursor is not None and ask.by is not usage.GroupBy.ORG:
        raise InvalidRequest("Only a report by org has pages; leave cursor out.", field="cursor")
    return usage.of_everybody(core, ask, position_of(core, asked.cursor, *_bound_to(asked)))


def _bound_to(asked: UsageQuery) -> tuple[str, ...]:
    return ("usage", asked.group_by, str(asked.first), str(asked.end))


def _id(prefix: str, text: str, name: str) -> str:
    if not is_id(prefix, text):
        raise NotFound(f"{name}: there is no such {'organization' if prefix == 'org' else 'project'}.")
    return text


def table(lines: list[UsageLine]) -> str:
    """A line for each, as RFC 4180 has it. What a spreadsheet would take for a formula is told as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for line in lines:
        shown = line.model_dump(mode="json", by_alias=True)
        writer.writerow([_cell(shown[column]) for column in COLUMNS])
    return out.getvalue()


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return f"{value:.6f}".rstrip("0").rstrip(".")


ROUTES = (
    Route(
        Method.GET, "/v1/usage", Group.CONTROL, Access.ANY, report_usage,
        "Report usage and estimated cost", NoBody, UsageQuery, UsageReport, media="text/csv",
        errors=(LimitExceeded, NotFound),
        description="A tenant sees its project; an operator everything, or what `orgId` or `projectId` name. What a "
        "sandbox uses is the size that it asked for, from its admission until its quota is given back. Costs are "
        "estimates from the prices of pools (`costModel`). A report that would read too much is refused, and says what "
        "to narrow.",
    ),
)  # fmt: skip
