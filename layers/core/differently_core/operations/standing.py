"""Whether an organization or project takes anything new: its state, suspending it, and letting it go on.

The state is on the record, with its reason; the counter is closed in the same write, so nothing that was decided on an
older view can still be admitted. What waits in the queue waits on.
"""

from __future__ import annotations

from ..errors import InvalidState, NotFound, Suspended
from ..model.quota import Counter, Scope
from ..model.record import Record
from ..model.tenancy import CLOSED, OPEN, Org, Project, StateReason, TenantState
from ..runtime.ids import OrgId, ProjectId
from ..store.ports import (
    Absent,
    AnyOf,
    Check,
    Committed,
    Condition,
    Equals,
    Missing,
    OneOf,
    Put,
    StoreThrottled,
    Update,
)  # fmt: skip
from .core import Caller, Core

Owner = Org | Project


def check_admits(owner: Owner) -> None:
    """Raises `Suspended`, with the reason that an operator wrote."""
    if owner.state is not TenantState.ACTIVE:
        why = f": {owner.reason.detail}" if owner.reason is not None and owner.reason.detail else ""
        raise Suspended(
            f"The {_word(owner)} is {owner.state}{why}. Nothing new starts in it; ask its operator.",
            scope=scope_of(owner).value, state=owner.state.value,
        )  # fmt: skip


def suspend(core: Core, caller: Caller, org: OrgId, project: ProjectId | None, detail: str) -> Owner:
    """Let nothing new start; repeating it with the same reason is success. Raises `NotFound`."""
    return _move(core, caller, org, project, TenantState.SUSPENDED, detail)


def unsuspend(core: Core, caller: Caller, org: OrgId, project: ProjectId | None) -> Owner:
    """Let new work in again, and what waited; repeating it is success. Raises `NotFound`."""
    return _move(core, caller, org, project, TenantState.ACTIVE, "")


def read(core: Core, org: OrgId, project: ProjectId | None) -> Owner:
    """As stored, not as cached; one round trip. One that was deleted is not found."""
    found: Record | None
    if project is None:
        found = core.store.get(Org, Org.key_of(org))
    else:
        found = core.store.get(Project, Project.key_of(org, project))
    if not isinstance(found, Org | Project) or found.state is TenantState.DELETED:
        what = f"organization {org!r}" if project is None else f"project {project!r}"
        raise NotFound(f"There is no {what}.")
    return found


def check_open(owner: Owner) -> None:
    """Raises `InvalidState` for one that is on its way out, or out."""
    if owner.state in CLOSED:
        raise InvalidState(f"The {_word(owner)} is {owner.state}, for good.", state=owner.state.value)


def still_open(owner: Owner) -> Check:
    """That it is not on its way out, as part of a transaction that puts something into it."""
    states = tuple(sorted(OPEN))
    return Check(type(owner), owner.key(), "open", (AnyOf((OneOf("state", states), Missing("state"))),))


def scope_of(owner: Owner) -> Scope:
    return Scope.ORG if isinstance(owner, Org) else Scope.PROJECT


def org_of(owner: Owner) -> OrgId:
    return owner.id if isinstance(owner, Org) else owner.org


def _word(owner: Owner) -> str:
    return "organization" if isinstance(owner, Org) else "project"


def _move(
    core: Core, caller: Caller, org: OrgId, project: ProjectId | None, state: TenantState, detail: str
) -> Owner:  # fmt: skip
    for _ in range(core.tuning.conflict_tries_max):
        found = read(core, org, project)
        check_open(found)
        if found.state is state and (found.reason.detail if found.reason is not None else "") == detail:
            return found
        outcome = core.commit(list(transition(core, caller, found, state, detail)))
        core.catalog.forget()
        if isinstance(outcome, Committed):
            core.nudges.dispatch()
            return read(core, org, project)
        if "counter" in outcome.failed:
            raise InvalidState(f"The counter of {found.id} is missing; repair its quota first.", id=found.id)
    raise StoreThrottled("This is being changed by others right now; repeat the call.")


def transition(
    core: Core, caller: Caller, found: Owner, state: TenantState, detail: str, counter: tuple[Condition, ...] = ()
) -> tuple[Put, Update, Put]:  # fmt: skip
    """The record in its new state, its counter (which must be as `counter` says) closed or opened, and the event."""
    reason = StateReason(detail=detail, by=caller.actor, at=core.clock.now())
    changed = found.with_(state=state, reason=reason, version=found.version + 1)
    opens = state is TenantState.ACTIVE
    key = Counter.key_of(scope_of(found), found.id)
    event = core.event(
        caller, f"{scope_of(found)}.{state}", found.id, org_of(found),
        project=found.id if isinstance(found, Project) else None, before=found.state.value, after=state.value,
        details={"reason": detail or None},
    )  # fmt: skip
    return (
        Put(changed, (Equals("version", found.version),), "owner"),
        Update(
            Counter,
            key,
            "counter",
            set={} if opens else {"closed": state.value},
            remove=("closed",) if opens else (),
            when=counter,
        ),
        Put(event, (Absent(),), "event"),
    )
