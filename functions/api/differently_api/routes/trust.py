"""The trust report: where sandboxes may run, what is known of each place and how, and where they did run."""

from __future__ import annotations

from datetime import UTC, datetime, time
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from differently_adapters.registry import KINDS, TrustList, load
from differently_core.contract import Registration, Verification
from differently_core.errors import InvalidRequest, NotFound
from differently_core.model import features
from differently_core.model.policy import GLOBAL, Policy
from differently_core.model.pool import Pool, PoolView, Trust
from differently_core.model.record import Wire
from differently_core.operations import placements, standing, usage
from differently_core.operations.core import Core
from differently_core.policy import trust
from differently_core.policy.placement import Candidate, Rules, permitted
from differently_core.policy.trust import Known
from differently_core.runtime.ids import OrgId, ProjectId, is_id

from ..moments import Day
from ..route import Access, Answer, Call, Group, Method, NoBody, Route
from .paging import PageQuery, next_cursor

SPEAKS_FOR_OTHERS = "remote"
"""The kind whose pools are whatever answers the protocol."""


class TrustFormat(StrEnum):
    JSON = "json"
    TEXT = "text"


class TrustQuery(Wire):
    format: TrustFormat = TrustFormat.JSON


class IsolationView(Wire):
    value: str | None = None
    known: Known
    by: str | None = None
    """Who says so: `kind`, `configuration`, `plugin`, or `us`."""


class PoolUse(Wire):
    """Who may use it by policy. Room, capabilities and lifetimes are another matter."""

    global_policy: bool
    """Whether the policy of the installation permits it. Where it does not, nobody may."""
    narrowed: dict[str, bool]
    """Organizations and projects with a policy of their own, and whether that permits it too."""


class PoolTrust(Wire):
    pool: str
    adapter: str
    trust: Trust
    trust_by: TrustList | None = None
    """Who says so. Absent for a kind that this build does not have."""
    isolation: IsolationView
    region: str | None = None
    verification: Verification | None = None
    """The most real thing that its adapter was tested against."""
    egress_control: bool | None = None
    """Whether it can limit what sandboxes reach; absent before its first good probe."""
    probed_at: datetime | None = None
    healthy: bool | None = None
    limitations: list[str]
    endpoint: dict[str, str] | None = None
    """What leads to its backend; of an address the host alone. For operators."""
    credential: str | None = None
    """A reference: where it is kept, never what it is. For operators."""
    use: PoolUse | None = None
    """For operators."""


class TrustReport(Wire):
    as_of: datetime
    pools: list[PoolTrust]


def report_trust(call: Call[NoBody, TrustQuery]) -> TrustReport | Answer:
    core = call.core
    pools = core.catalog.pools()
    policies = core.catalog.policies()
    shown = [
        _pool(pool, pools.views.get(name), policies if call.caller.operator else None, _secrets(policies))
        for name, pool in sorted(pools.pools.items())
        if call.caller.operator or _may_know(core, call, Candidate(pool, pools.views.get(name)))
    ]
    report = TrustReport(as_of=core.clock.now(), pools=shown)
    if call.query.format is TrustFormat.JSON:
        return report
    return Answer(200, as_text(report), {"Content-Type": "text/plain; charset=utf-8"})


def _may_know(core: Core, call: Call[NoBody, TrustQuery], candidate: Candidate) -> bool:
    assert call.caller.org is not None
    assert call.caller.project is not None
    return permitted(candidate, core.catalog.rules(call.caller.org, call.caller.project))


def _secrets(policies: list[Policy]) -> bool:
    return any(policy.rules.secrets_in_env for policy in policies if policy.scope == GLOBAL)


def _pool(pool: Pool, view: PoolView | None, policies: list[Policy] | None, secrets_in_env: bool) -> PoolTrust:
    told = load(pool.adapter).registration if pool.adapter in KINDS else None
    if told is None:
        return PoolTrust(
            pool=pool.name, adapter=pool.adapter, trust=pool.trust, isolation=IsolationView(known=Known.UNKNOWN),
            limitations=["This build does not have its kind, so nothing of it can be looked at."],
        )  # fmt: skip
    isolation = trust.isolation_of(pool, view, told, speaks_for_others=pool.adapter == SPEAKS_FOR_OTHERS)
    seen = view is not None and bool(view.features)
    found = PoolTrust(
        pool=pool.name, adapter=pool.adapter, trust=pool.trust, trust_by=KINDS[pool.adapter].trust,
        isolation=IsolationView(value=isolation.value, known=isolation.known, by=isolation.by), region=pool.region,
        verification=told.verification,
        egress_control=features.EGRESS_CONTROL in view.features if view is not None and seen else None,
        probed_at=view.at if view is not None else None, healthy=view.healthy if view is not None else None,
        limitations=list(trust.limitations(pool, view, told, isolation, secrets_in_env=secrets_in_env)),
    )  # fmt: skip
    return found if policies is None else found.model_copy(update=_for_operators(pool, view, told, policies))


def _for_operators(
    pool: Pool, view: PoolView | None, told: Registration, policies: list[Policy]
) -> dict[str, object]:  # fmt: skip
    candidate = Candidate(pool, view)
    by_scope = {policy.scope: permitted(candidate, Rules([policy.rules])) for policy in policies}
    use = PoolUse(global_policy=by_scope.pop(GLOBAL, pool.trust is Trust.PRIVATE), narrowed=by_scope)
    return {"endpoint": dict(trust.endpoint_of(pool, told)), "credential": pool.credential, "use": use}


def as_text(report: TrustReport) -> str:
    """The same for reading: a paragraph for each pool."""
    parts = [f"Trust report as of {report.as_of:%Y-%m-%d %H:%M:%S} UTC\n"]
    for pool in report.pools:
        isolation = pool.isolation
        by = {None: "", "us": " by us"}.get(isolation.by, f" by the {isolation.by}")
        facts = [
            ("trust", f"{pool.trust} ({pool.trust_by or 'unknown kind'})"),
            ("isolation", f"{isolation.value or '?'}, {isolation.known}{by}"),
            ("region", pool.region),
            ("verified against", pool.verification),
            ("egress control", {True: "yes", False: "no", None: None}[pool.egress_control]),
            ("endpoint", ", ".join(f"{name} {value}" for name, value in (pool.endpoint or {}).items()) or None),
            ("credential", pool.credential),
            ("global policy", None if pool.use is None else ("permits" if pool.use.global_policy else "refuses")),
        ]
        parts.append(f"{pool.pool} ({pool.adapter})")
        parts += [f"  {name}: {value}" for name, value in facts if value is not None]
        parts += [f"  - {limitation}" for limitation in pool.limitations]
        parts.append("")
    return "\n".join(parts)


class PlacementQuery(PageQuery):
    first: Annotated[Day | None, Field(alias="from")] = None
    """The first day, in UTC. Default: the first of this month."""
    end: Annotated[Day | None, Field(alias="to")] = None
    """The day behind the last one. Default: tomorrow."""
    org_id: str | None = None
    """For operators, who must name it."""
    project_id: str | None = None
    """For operators: one project of it alone."""


class PlacementView(Wire):
    sandbox: str
    project: str | None = None
    pool: str
    trust: Trust | None = None
    """Of the pool as it is now; absent for one that was removed."""
    decision: str
    """`create`: at once; `admit`: out of the queue; `start`, `resume`: woken, where it was kept."""
    at: datetime
    event: str
    """The row of the audit log that holds the decision."""
    actor: str
    request_id: str

    @classmethod
    def of(cls, core: Core, entry: placements.Placement) -> Self:
        event = entry.event
        pool = core.catalog.pools().pools.get(event.pool or "")
        return cls(
            sandbox=event.target, project=event.project, pool=event.pool or "",
            trust=pool.trust if pool is not None else None, decision=entry.decision, at=event.at, event=event.id,
            actor=event.actor, request_id=event.request_id,
        )  # fmt: skip


class PlacementPage(Wire):
    items: list[PlacementView]
    next_cursor: str | None = None
    """Absent on the last page. A page may be short, even empty, and still have one."""


def list_placements(call: Call[NoBody, PlacementQuery]) -> PlacementPage:
    core, asked = call.core, call.query
    org, project = _whose(call)
    first, end = usage.period(core, asked.first, asked.end)
    if end <= first:
        raise InvalidRequest(f"to {end} is not behind from {first}; to is the day behind the last one.", field="to")
    bound = ("placements", org, project or "", str(asked.first), str(asked.end))
    page = placements.placements(
        core, org, project, datetime.combine(first, time(), UTC), datetime.combine(end, time(), UTC),
        asked.after(core, *bound), asked.limit,
    )  # fmt: skip
    return PlacementPage(
        items=[PlacementView.of(core, entry) for entry in page.items], next_cursor=next_cursor(core, page.next, *bound)
    )


def _whose(call: Call[NoBody, PlacementQuery]) -> tuple[OrgId, ProjectId | None]:
    caller, asked = call.caller, call.query
    if caller.project is not None and caller.org is not None:
        if (asked.org_id or caller.org, asked.project_id or caller.project) != (caller.org, caller.project):
            raise NotFound("There is no such organization or project here; leave orgId and projectId out.")
        return caller.org, caller.project
    if asked.org_id is None:
        raise InvalidRequest("Name the organization: an operator key belongs to none.", field="orgId")
    if not is_id("org", asked.org_id) or not (asked.project_id is None or is_id("proj", asked.project_id)):
        raise NotFound("There is no such organization or project.")
    project = ProjectId(asked.project_id) if asked.project_id is not None else None
    standing.read(call.core, OrgId(asked.org_id), project)
    return OrgId(asked.org_id), project


ROUTES = (
    Route(
        Method.GET, "/v1/trust-report", Group.ADMIN, Access.ANY, report_trust,
        "Report what is known of each pool", NoBody, TrustQuery, TrustReport, media="text/plain",
        description="A tenant sees the pools that policy lets it use; an operator all of them, with endpoint, "
        "reference of the credential, and who may use it. Nothing in it is a secret.",
    ),
    Route(
        Method.GET, "/v1/trust-report/placements", Group.CONTROL, Access.ANY, list_placements,
        "List where sandboxes ran", NoBody, PlacementQuery, PlacementPage, errors=(NotFound,),
        description="Each admission to a pool, with the decision that led there: of a tenant's project, or of the "
        "organization that an operator names. Oldest first.",
    ),
)  # fmt: skip
