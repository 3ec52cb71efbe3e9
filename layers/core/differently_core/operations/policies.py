"""Policies: read, replace, remove. Every process goes by a change within one catalog refresh.

A change decides where new work may go; what runs already stays where it is. Waiting work is looked at again at once.
"""

from __future__ import annotations

import json

from ..errors import InvalidState, NotFound, PolicyUnreadable
from ..model.policy import GLOBAL, External, Policy, PolicyRules
from ..model.pool import Trust
from ..model.record import Table, camel
from ..model.tenancy import OPERATOR_ORG
from ..runtime.ids import OrgId, ProjectId, is_id
from ..store.ports import Absent, Action, Committed, Condition, Delete, Equals, Put, StoreThrottled
from .catalog import UNREADABLE
from .core import Caller, Core
from .standing import Owner, check_open, org_of, read, still_open

WARNINGS_MAX = 50


def find(core: Core, scope: str) -> Policy:
    """As stored. Raises `NotFound` for a scope without one, `PolicyUnreadable` for one that does not parse."""
    _owner(core, scope)
    found = _read(core, scope)
    if found is None:
        raise NotFound(f"{scope} has no policy of its own: the wider ones apply.", scope=scope)
    return found


def list_policies(core: Core, after: str | None, limit: int) -> tuple[list[Policy], str | None]:
    try:
        page = core.store.query(Table.CONFIG, Policy.key_of("").pk, after=after, limit=limit)
    except UNREADABLE as error:
        raise _unreadable("of this page") from error
    return [row for row in page.rows if isinstance(row, Policy)], page.next


def replace(core: Core, caller: Caller, scope: str, rules: PolicyRules, version: int | None = None) -> Policy:
    """Make these the rules of the scope; if they are already, nothing is written.

    With `version` (0: none yet) only the policy that has this version is replaced: `InvalidState` when it was changed
    since; a repeat of the change that made it is no such case. Without, whatever stands there is replaced, also what
    cannot be read. Raises `InvalidState` for an organization or project that is on its way out.
    """
    tenant = _tenant(core, scope)
    if tenant is not None:
        check_open(tenant)
    owner = org_of(tenant) if tenant is not None else OPERATOR_ORG
    bound = [still_open(tenant)] if tenant is not None else []
    for _ in range(core.tuning.conflict_tries_max):
        try:
            before, readable = _read(core, scope), True
        except PolicyUnreadable:
            if version is not None:
                raise
            before, readable = None, False
        standing = before.version if before is not None else 0
        if before is not None and before.rules == rules and version in (None, standing, standing - 1):
            return before
        if version is not None and version != standing:
            raise InvalidState(
                f"The policy of {scope} has version {standing}, not {version}: read it again and repeat the change.",
                scope=scope, version=standing,
            )  # fmt: skip
        after = Policy(
            scope=scope, rules=rules, version=standing + 1, updated_at=core.clock.now(), updated_by=caller.actor
        )
        when: tuple[Condition, ...] = () if not readable else (Equals("version", standing) if standing else Absent(),)
        details = {"version": after.version, "rules": _text(rules)}
        event = core.event(caller, "policy.update", scope, owner, details=details)
        outcome = core.commit([Put(after, when, "policy"), Put(event, (Absent(),), "event"), *bound])
        if isinstance(outcome, Committed):
            _changed(core)
            return after
        if tenant is not None and "open" in outcome.failed:
            _tenant(core, scope)
            raise InvalidState(f"{scope} is on its way out; it takes no policy any more.", scope=scope)
    raise StoreThrottled("This policy is being changed by others right now; repeat the call.")


def remove(core: Core, caller: Caller, scope: str) -> None:
    """Let the wider policies alone apply; repeating it is success. The global one can only be replaced."""
    if scope == GLOBAL:
        raise InvalidState("The global policy can be replaced, not removed: without it nothing would be decided.")
    owner = _owner(core, scope)
    try:
        if _read(core, scope) is None:
            return
    except PolicyUnreadable:
        pass  # what cannot be read can still be removed
    event = core.event(caller, "policy.delete", scope, owner)
    actions: list[Action] = [Delete(Policy, Policy.key_of(scope), "policy"), Put(event, (Absent(),), "event")]
    core.commit(actions)
    _changed(core)


def warnings(core: Core, rules: PolicyRules) -> list[str]:
    """What an operator may not have meant: names that lead to no pool now, and external pools that stay shut."""
    pools = core.catalog.pools().pools
    found = [f"There is no pool {name!r} now." for name in sorted(rules.named_pools() - set(pools))]
    private = [name for name in rules.external_pools if name in pools and pools[name].trust is Trust.PRIVATE]
    found += [f"Pool {name!r} is private: externalPools does not matter to it." for name in private]
    if rules.external is External.ALLOWED and not rules.external_pools:
        found.append("external is allowed, but externalPools names no pool: no external pool is used.")
    if rules.external is External.NEVER and rules.external_pools:
        found.append("externalPools has no effect while external is never.")
    for name in ("retention_seconds", "snapshot_retention_seconds"):
        said = getattr(rules, name)
        if said is not None and said > core.tuning.retention_seconds_max:
            most = core.tuning.retention_seconds_max
            found.append(f"{camel(name)} {said} is longer than this installation keeps anything: {most} counts.")
    return found[:WARNINGS_MAX]


def _tenant(core: Core, scope: str) -> Owner | None:
    """The organization or project of a scope as stored, None for `global`. Raises `NotFound` for what is none."""
    if scope == GLOBAL:
        return None
    if is_id("org", scope):
        return read(core, OrgId(scope), None)
    return read(core, _owner(core, scope), ProjectId(scope))


def _owner(core: Core, scope: str) -> OrgId:
    """The organization that the events of a scope are filed under. Raises `NotFound` for a scope that is none."""
    if scope == GLOBAL:
        return OPERATOR_ORG
    if is_id("org", scope):
        return core.catalog.org(OrgId(scope)).id
    if is_id("proj", scope):
        return core.catalog.org_of(ProjectId(scope))
    raise NotFound(f"{scope[:64]!r} is no scope: name `global`, an organization's id or a project's id.")


def _read(core: Core, scope: str) -> Policy | None:
    try:
        return core.store.get(Policy, Policy.key_of(scope))
    except UNREADABLE as error:
        raise _unreadable(f"of {scope}") from error


def _unreadable(which: str) -> PolicyUnreadable:
    return PolicyUnreadable(
        f"A policy {which} cannot be read, so nothing is placed under it. Replace it by a PUT without version."
    )


def _text(rules: PolicyRules) -> str:
    return json.dumps(rules.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"))


def _changed(core: Core) -> None:
    core.catalog.forget()
    core.nudges.dispatch()
