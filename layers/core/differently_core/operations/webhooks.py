"""Webhooks as their owners manage them: made, changed, given a new secret, removed.

A tenant's key manages those of its own project, which are told of that project alone; an operator's key manages any,
those of whole organizations and of the installation itself among them. A signing secret is told once, when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from ..errors import InvalidRequest, InvalidState, NotFound, QuotaExceeded
from ..model.due import stamp
from ..model.lifecycle import TYPES
from ..model.record import Native
from ..model.tenancy import OPERATOR_ORG
from ..model.webhook import EVERYTHING, Disabled, Lane, Webhook, WebhookEntry
from ..runtime.ids import OrgId, ProjectId, WebhookId, is_id
from ..store.ports import Absent, Action, Committed, Delete, Equals, Put, StoreThrottled, Update
from . import signing
from .core import Caller, Core
from .offering import of_org, poke
from .standing import check_open, read

OF_PROJECT_MAX = 10
OF_ORG_MAX = 50
"""In all, those of projects among them: one page, read for every batch of events."""
SECRETS_MAX = 2
GRACE_SECONDS_DEFAULT = 24 * 3600
GRACE_SECONDS_MAX = 90 * 24 * 3600
_BUSY = "This webhook is being changed by others right now; repeat the call."


@dataclass(frozen=True)
class Owner:
    """Whose webhooks; `project` None is the whole organization."""

    org: OrgId
    project: ProjectId | None


@dataclass(frozen=True)
class NewSecret:
    """The only moment at which the signing secret exists in clear."""

    webhook: Webhook
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Change:
    """None leaves things as they are."""

    url: str | None = None
    events: Sequence[str] | None = None
    description: str | None = None
    enabled: bool | None = None


def owner_of(core: Core, caller: Caller, org: str | None, project: str | None) -> Owner:
    """Who a tenant is; what an operator names: a project, an organization, or neither for the installation itself.

    Raises `NotFound` for another's, and `Forbidden` or `InvalidState` for one that is not open.
    """
    if not caller.operator:
        if caller.org is None or caller.project is None:
            raise NotFound("There is no such project.")
        if project not in (None, caller.project):
            raise NotFound(f"There is no project {(project or '')[:64]!r}.")
        if org not in (None, caller.org):
            raise NotFound(f"There is no organization {(org or '')[:64]!r}.")
        return Owner(caller.org, caller.project)
    if project is not None:
        named = ProjectId(project)
        found = core.catalog.org_of(named)
        if org not in (None, found):
            raise InvalidRequest("This project is of another organization; leave orgId out.", field="orgId")
        return Owner(found, named)
    if org is None or org == OPERATOR_ORG:
        return Owner(OPERATOR_ORG, None)
    return Owner(core.catalog.org(OrgId(org)).id, None)


def create(
    core: Core, caller: Caller, owner: Owner, url: str, events: Sequence[str], description: str = ""
) -> NewSecret:  # fmt: skip
    """Raises `InvalidRequest` for a URL or a type that cannot be used, `QuotaExceeded` for one too many."""
    core.courier.check(url)
    wanted = _known(events)
    _check_open(core, owner)
    _check_room(core, owner)
    secret = signing.fresh(core)
    identity, now = WebhookId(core.ids.new("whk")), core.clock.now()
    webhook = Webhook(
        id=identity, org=owner.org, project=owner.project, url=url, events=wanted, description=description,
        secrets=(signing.seal(core, identity, secret),), created_at=now, created_by=caller.actor, updated_at=now,
    )  # fmt: skip
    entry = WebhookEntry(id=identity, org=owner.org, project=owner.project)
    core.commit(
        [
            Put(webhook, (Absent(),), "webhook"), Put(entry, (Absent(),), "entry"),
            Put(_fresh_lane(core, identity), (Absent(),), "lane"), _event(core, caller, "webhook.create", webhook),
        ]
    )  # fmt: skip
    return NewSecret(webhook, secret)


def find(core: Core, caller: Caller, webhook: str) -> Webhook:
    """One round trip; raises `NotFound` for what is absent and for what is another's."""
    found = core.store.get(Webhook, Webhook.key_of(WebhookId(webhook))) if is_id("whk", webhook) else None
    if found is None or not (caller.operator or (caller.project is not None and found.project == caller.project)):
        raise NotFound(f"There is no webhook {webhook[:64]!r}.")
    return found


def listed(core: Core, owner: Owner) -> list[Webhook]:
    """All of them, oldest first: they are few. An organization's list holds those of its projects."""
    found = of_org(core, owner.org)
    return [row for row in found if owner.project is None or row.project == owner.project]


def lane_of(core: Core, webhook: Webhook) -> Lane:
    return core.store.get(Lane, Lane.key_of(webhook.id)) or Lane(webhook=webhook.id)


def update(core: Core, caller: Caller, webhook: str, change: Change) -> Webhook:
    """Enabling it again forgives its receiver everything; disabling it gives up on what is on its way."""
    if change.url is not None:
        core.courier.check(change.url)
    events = _known(change.events) if change.events is not None else None
    for _ in range(core.tuning.conflict_tries_max):
        found = find(core, caller, webhook)
        now = core.clock.now()
        after = found.with_(
            url=found.url if change.url is None else change.url,
            events=found.events if events is None else events,
            description=found.description if change.description is None else change.description,
        )
        if change.enabled is not None and change.enabled is (found.disabled is not None):
            after = after.with_(disabled=None if change.enabled else Disabled(code="asked", at=now))
        if after == found:
            return found
        after = after.with_(version=found.version + 1, updated_at=now)
        forgiven = ("failing_since", "rest_until") if found.disabled is not None and after.disabled is None else ()
        actions: list[Action] = [
            Put(after, (Equals("version", found.version),), "webhook"),
            _looked_at(core, found.id, forgiven),
            _event(core, caller, "webhook.update", after, enabled=after.disabled is None),
        ]
        if isinstance(core.commit(actions), Committed):
            core.nudges.deliver(found.id)
            return after
    raise StoreThrottled(_BUSY)


def rotate(core: Core, caller: Caller, webhook: str, grace_seconds: int) -> NewSecret:
    """A new signing secret; the one before signs beside it for `grace_seconds`, to the second, and any older ends."""
    secret = signing.fresh(core)
    sealed = None
    for _ in range(core.tuning.conflict_tries_max):
        found = find(core, caller, webhook)
        sealed = sealed or signing.seal(core, found.id, secret)
        now = core.clock.now()
        before = found.secrets[0].model_copy(update={"until": now + timedelta(seconds=grace_seconds)})
        after = found.with_(
            secrets=(sealed, before) if grace_seconds else (sealed,), version=found.version + 1, updated_at=now
        )
        event = _event(core, caller, "webhook.rotate", after, graceSeconds=grace_seconds)
        if isinstance(core.commit([Put(after, (Equals("version", found.version),), "webhook"), event]), Committed):
            return NewSecret(after, secret)
    raise StoreThrottled(_BUSY)


def remove(core: Core, caller: Caller, webhook: str) -> None:
    """Nothing more is sent, except what is being sent at this moment. One that is gone already is `NotFound`."""
    for _ in range(core.tuning.conflict_tries_max):
        found = find(core, caller, webhook)
        actions: list[Action] = [
            Delete(Webhook, found.key(), "webhook", (Equals("version", found.version),)),
            Delete(WebhookEntry, WebhookEntry.key_of(found.org, found.id), "entry"),
            _looked_at(core, found.id),
            _event(core, caller, "webhook.delete", found),
        ]
        if isinstance(core.commit(actions), Committed):
            core.nudges.deliver(found.id)
            return
    raise StoreThrottled(_BUSY)


def remove_all(core: Core, caller: Caller, org: OrgId, project: ProjectId | None) -> None:
    """Those of a project or of a whole organization that is on its way out."""
    for webhook in listed(core, Owner(org, project)):
        try:
            remove(core, caller, webhook.id)
        except NotFound:
            continue  # by somebody else just now


def check_sends(webhook: Webhook) -> None:
    if webhook.disabled is not None:
        raise InvalidState(
            f"This webhook is disabled ({webhook.disabled.code}): enable it with PATCH first.",
            webhook=webhook.id, code=webhook.disabled.code,
        )  # fmt: skip


def _known(events: Sequence[str]) -> tuple[str, ...]:
    families = {f"{kind.partition('.')[0]}.*" for kind in TYPES}
    wrong = [name for name in events if name not in {EVERYTHING, *families, *TYPES}]
    if wrong or not events:
        raise InvalidRequest(
            f"{wrong[0][:64]!r} is no type of event: use one of the reference, a family such as sandbox.*, or *."
            if wrong
            else "Name at least one type of event, or * for all.",
            field="events",
        )
    return tuple(dict.fromkeys(events))


def _check_open(core: Core, owner: Owner) -> None:
    if owner.org == OPERATOR_ORG:
        return
    check_open(read(core, owner.org, None))
    if owner.project is not None:
        check_open(read(core, owner.org, owner.project))


def _check_room(core: Core, owner: Owner) -> None:
    """A bound on what is offered every event; calls at the same moment may each add one more."""
    found = of_org(core, owner.org)
    of_project = [row for row in found if row.project == owner.project]
    for held, most, whose in ((of_project, OF_PROJECT_MAX, "project"), (found, OF_ORG_MAX, "organization")):
        if (whose == "organization" or owner.project is not None) and len(held) >= most:
            raise QuotaExceeded(f"This {whose} has {most} webhooks, which is the most; remove one first.", limit=most)


def _fresh_lane(core: Core, webhook: WebhookId) -> Lane:
    now = core.clock.now()
    return Lane(webhook=webhook, compared_to=now, due_at=core.after(core.tuning.webhook_compare_seconds))


def _looked_at(core: Core, webhook: WebhookId, forgiven: tuple[str, ...] = ()) -> Update:
    """Its lane is to be looked at now: what is on its way follows what was decided."""
    poked = poke(core, webhook, 0)
    # What happened while it was disabled is not for it, unless it is replayed.
    anew: dict[str, Native] = {"failures": 0, "compared_to": stamp(core.clock.now())} if forgiven else {}
    changed = {**poked.set, **anew}
    return Update(Lane, poked.key, poked.name, set=changed, add=poked.add, remove=forgiven)


def _event(core: Core, caller: Caller, action: str, webhook: Webhook, **facts: bool | int) -> Put:
    event = core.event(caller, action, webhook.id, webhook.org, project=webhook.project, details=dict(facts))
    return Put(event, (Absent(),), "event")
