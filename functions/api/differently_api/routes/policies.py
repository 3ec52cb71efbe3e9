"""Policies: where sandboxes may run, for the whole installation, an organization or a project."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field, WithJsonSchema

from differently_core.errors import InvalidState
from differently_core.model.policy import (
    RETENTION_SECONDS_MAX,
    RETENTION_SECONDS_MIN,
    CommandLog,
    External,
    Policy,
    PolicyRules,
    Strategy,
)
from differently_core.model.pool import POOL_NAME_PATTERN
from differently_core.model.record import Wire
from differently_core.operations import policies
from differently_core.operations.core import Core
from differently_core.operations.requests import Name, Peer

from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .paging import PageQuery, next_cursor

NAMES_MAX = 256
CLASSIFICATIONS_MAX = 32
RetentionSeconds = Annotated[int, Field(ge=RETENTION_SECONDS_MIN, le=RETENTION_SECONDS_MAX)]
PoolNames = Annotated[list[Annotated[str, Field(pattern=POOL_NAME_PATTERN)]], Field(max_length=NAMES_MAX)]


class EgressCeiling(Wire):
    """The most that a sandbox may reach."""

    allow: Annotated[list[Peer], Field(max_length=NAMES_MAX)] | None = None
    """Host names, wildcards such as `*.example.com`, addresses and CIDR blocks; absent means everything, an empty list
    nothing. Whether a name leads into a block is not known, so a block does not permit a name."""
    deny: Annotated[list[Peer], Field(max_length=NAMES_MAX)] = []
    """Never these; a denial always wins."""


def _only_false(value: bool) -> bool:
    if value:
        raise ValueError("a classification can only take away: leave it out or say false")
    return value


# Not `Literal[False]`, which takes the number 0 for it.
NoMore = Annotated[bool, AfterValidator(_only_false), WithJsonSchema({"type": "boolean", "const": False})]


class ClassPolicy(Wire):
    """What a classification takes away from the rules around it. What is left out takes nothing away."""

    external: External | None = None
    external_pools: PoolNames | None = None
    allowed_pools: PoolNames | None = None
    denied_pools: PoolNames = []
    egress: EgressCeiling | None = None
    secrets_in_env: NoMore | None = None


class PolicyBody(Wire):
    """What is left out permits no external pool and every private one."""

    external: External = External.NEVER
    """`allowed` opens the external pools that `externalPools` names, if every wider policy does too."""
    external_pools: PoolNames = []
    allowed_pools: PoolNames | None = None
    """Only these pools; absent means any, an empty list none."""
    denied_pools: PoolNames = []
    egress: EgressCeiling | None = None
    """A pool that cannot enforce it takes none of this scope's sandboxes."""
    pool_egress: Annotated[
        dict[Annotated[str, Field(pattern=POOL_NAME_PATTERN)], EgressCeiling], Field(max_length=NAMES_MAX)
    ] = {}
    """The same, for the sandboxes in one pool."""
    secrets_in_env: bool = False
    """Sandboxes may be given secrets of their project as environment variables, if every wider policy says so too."""
    shorter_lifetime: bool | None = None
    """`true` permits pools that cannot keep a sandbox for its whole `ttlSeconds`: it then shows a sooner `expiresAt`.
    The global policy must say so; `false` in a narrower one forbids it again."""
    retention_seconds: RetentionSeconds | None = None
    """How long a sandbox is kept while it is stopped or paused, from its next rest on; absent means as the installation
    says. Of several policies the shortest counts."""
    strategy: Strategy | None = None
    """Which of several pools is tried first, after private ones and what the caller prefers: the `cheapest` (also when
    no policy says anything), each in proportion to its `maxConcurrency` (`spread`), or the first by name that has room
    (`pack`). The narrowest policy that says one counts."""
    snapshot_retention_seconds: RetentionSeconds | None = None
    """The most that a snapshot may ask for, and what one gets that asks for nothing."""
    command_log: CommandLog | None = None
    """What the audit log keeps of commands, jobs and file calls: `none`, a keyed `hash`, or the `text` without the
    values of the sandbox's secrets. Of several policies the one that keeps most counts; where none says anything it is
    `hash`."""
    classifications: Annotated[dict[Name, ClassPolicy], Field(max_length=CLASSIFICATIONS_MAX)] = {}
    """By the `classification` that a sandbox is created with. `default` is for those not listed here."""

    def rules(self) -> PolicyRules:
        return PolicyRules.model_validate(self.model_dump())

    @classmethod
    def of(cls, rules: PolicyRules) -> Self:
        return cls.model_validate(rules.model_dump())


class PutPolicy(Wire):
    rules: PolicyBody
    version: Annotated[int, Field(ge=0)] | None = None
    """Of the policy that this one replaces, 0 where there is none; if it was changed since, nothing happens and the
    answer is 409. Absent: whatever is there is replaced."""


class PolicyView(Wire):
    scope: str
    rules: PolicyBody
    version: int
    updated_at: datetime | None = None
    updated_by: str | None = None
    warnings: list[str] = []
    """What may not be meant, such as a name that leads to no pool now."""

    @classmethod
    def of(cls, core: Core, policy: Policy) -> Self:
        return cls(
            scope=policy.scope, rules=PolicyBody.of(policy.rules), version=policy.version,
            updated_at=policy.updated_at, updated_by=policy.updated_by or None,
            warnings=policies.warnings(core, policy.rules),
        )  # fmt: skip


class PolicyPage(Wire):
    items: list[PolicyView]
    next_cursor: str | None = None


def list_policies(call: Call[NoBody, PageQuery]) -> PolicyPage:
    after = call.query.after(call.core, "policies")
    found, position = policies.list_policies(call.core, after, call.query.limit)
    return PolicyPage(
        items=[PolicyView.of(call.core, policy) for policy in found],
        next_cursor=next_cursor(call.core, position, "policies"),
    )


def get_policy(call: Call[NoBody, NoQuery]) -> PolicyView:
    return PolicyView.of(call.core, policies.find(call.core, call.params["scope"]))


def put_policy(call: Call[PutPolicy, NoQuery]) -> PolicyView:
    asked = call.body
    replaced = policies.replace(call.core, call.caller, call.params["scope"], asked.rules.rules(), asked.version)
    return PolicyView.of(call.core, replaced)


def delete_policy(call: Call[NoBody, NoQuery]) -> Answer:
    policies.remove(call.core, call.caller, call.params["scope"])
    return Answer(204)


ROUTES = (
    Route(
        Method.GET, "/v1/policies", Group.ADMIN, Access.OPERATOR, list_policies,
        "List policies by scope", NoBody, PageQuery, PolicyPage,
    ),
    Route(
        Method.GET, "/v1/policies/{scope}", Group.ADMIN, Access.OPERATOR, get_policy,
        "Read a policy", NoBody, NoQuery, PolicyView,
        description="The scope is `global`, an organization's id or a project's id.",
    ),
    Route(
        Method.PUT, "/v1/policies/{scope}", Group.ADMIN, Access.OPERATOR, put_policy,
        "Replace a policy", PutPolicy, NoQuery, PolicyView, errors=(InvalidState,),
        description="Decides where new and waiting sandboxes may go, everywhere within a few seconds. What runs "
        "already stays where it is.",
    ),
    Route(
        Method.DELETE, "/v1/policies/{scope}", Group.ADMIN, Access.OPERATOR, delete_policy,
        "Remove the policy of an organization or project", NoBody, NoQuery, status=204, errors=(InvalidState,),
        description="The wider ones go on to apply.",
    ),
)  # fmt: skip
