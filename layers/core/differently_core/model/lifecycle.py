"""What the world is told of a change: a projection of its event row, as a CloudEvent with a documented type.

One table says which changes are told, under which type, and which facts of the row go along. What is not named here
stays inside: details may hold what an operator wrote, and a row is for auditors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from .event import Event
from .record import Wire
from .sandbox import ENDED, Status

SPECIFICATION: Final = "1.0"
"""Of CloudEvents."""
SCHEMA: Final = "1"
"""Rises when a field changes its meaning or goes; new fields and types come without."""
TEST_TYPE: Final = "webhook.test"

Fact = str | int | bool


class Cause(StrEnum):
    """Who or what brought a state about, in the few words that a program tells apart."""

    USER = "user"
    """Somebody with a key asked for it."""
    TTL = "ttl"
    """The time that was asked for is over."""
    IDLE = "idle"
    """Nobody used it."""
    BUDGET = "budget"
    """A budget is used up."""
    POLICY = "policy"
    """What operators decided."""
    CAPACITY = "capacity"
    """There was no room in time."""
    BACKEND = "backend"
    """The backend lost it, ended it, or could not make it."""
    LEASE = "lease"
    """The backend's own term ran out."""
    ERROR = "error"
    """A fault of ours, or one that nothing else explains."""


CAUSES: Final[Mapping[str, Cause]] = {
    "ttl_expired": Cause.TTL,
    "max_run_reached": Cause.TTL,
    "retention_expired": Cause.POLICY,
    "queue_timeout": Cause.CAPACITY,
    "idle": Cause.IDLE,
    "preempted": Cause.POLICY,
    "budget": Cause.BUDGET,
    "lease_lost": Cause.LEASE,
    "pool_removed": Cause.POLICY,
    "egress_not_confirmed": Cause.POLICY,
    "internal": Cause.ERROR,
}
"""Codes whose cause is not simply who said so."""
_BY_SOURCE: Final[Mapping[str, Cause]] = {
    "caller": Cause.USER,
    "operator": Cause.POLICY,
    "policy": Cause.POLICY,
    "timer": Cause.TTL,
    "admission": Cause.CAPACITY,
    "backend": Cause.BACKEND,
}


def cause_of(code: str, source: str) -> Cause:
    return CAUSES.get(code) or _BY_SOURCE.get(source, Cause.ERROR)


@dataclass(frozen=True)
class EventType:
    """`facts` are the details of the row that go along, with what each means."""

    about: str
    facts: Mapping[str, str]


def _type(about: str, **facts: str) -> EventType:
    return EventType(about, facts)


TYPES: Final[Mapping[str, EventType]] = {
    "sandbox.created": _type("A create was accepted; `after` tells if it runs soon or waits."),
    "sandbox.updated": _type("Its time to live, idle timeout or labels were changed."),
    "sandbox.queued": _type("It waits for room: to start, to start again, or to wake."),
    "sandbox.provisioning": _type("It was admitted from the queue and is being made.", attempt="number of the try"),
    "sandbox.running": _type("It can be used."),
    "sandbox.pausing": _type("It is on its way to being paused."),
    "sandbox.paused": _type("It rests with its memory."),
    "sandbox.resuming": _type("It is being woken from a pause."),
    "sandbox.stopping": _type("It is on its way to being stopped."),
    "sandbox.stopped": _type("It rests without its memory."),
    "sandbox.starting": _type("It is being started again."),
    "sandbox.terminating": _type("Its end was decided; the backend is being told."),
    "sandbox.ended": _type("It is over for good; `after` is `terminated` or `failed`."),
    "snapshot.created": _type("A snapshot was asked for.", sandbox="of which sandbox", kind="`disk` or `memory`"),
    "snapshot.ready": _type("It can be restored."),
    "snapshot.failed": _type("It could not be taken."),
    "snapshot.broken": _type("The backend lost it."),
    "snapshot.deleting": _type("It is being removed."),
    "snapshot.deleted": _type("It is gone."),
    "port.opened": _type("A port can be reached.", port="its number"),
    "port.closed": _type("A port was taken back.", port="its number"),
    "key.created": _type("An API key was made.", scope="`operator` or `tenant`"),
    "key.rotated": _type(
        "An API key was replaced.", successor="the new key's id", graceSeconds="how long both keys work",
    ),
    "key.revoked": _type("An API key was taken back."),
    "project.created": _type("A project was made."),
    "project.changed": _type("A project's state changed: `after` tells which it is now."),
    "org.created": _type("An organization was made."),
    "org.updated": _type("An organization's name or weight was changed."),
    "org.changed": _type("An organization's state changed: `after` tells which it is now."),
    "quota.updated": _type("The limits of an organization or project were changed."),
    "budget.updated": _type("A budget was set or changed."),
    "budget.deleted": _type("A budget was removed."),
    "budget.threshold": _type(
        "What is projected for this month reached a threshold of a budget; told once for each.",
        threshold="in percent of the limit", limit="in millionths of the currency", spent="as the limit",
        projected="as the limit", currency="ISO 4217", month="such as 2026-11",
        does="`alert`, `queue`, `pause` or `stop`",
    ),
    "policy.updated": _type("A placement policy was changed.", version="its new version"),
    "policy.deleted": _type("A placement policy was removed."),
    "pool.created": _type("A pool was registered."),
    "pool.updated": _type("A pool's configuration was changed.", changed="names of what changed"),
    "pool.draining": _type("A pool takes nothing new."),
    "pool.active": _type("A pool takes work again."),
    "pool.deleted": _type("A pool was removed.", forced="whether it still held something"),
    "webhook.created": _type("A webhook was made."),
    "webhook.updated": _type("A webhook was changed.", enabled="whether it is sent anything"),
    "webhook.rotated": _type("A webhook's signing secret was replaced.", graceSeconds="how long both secrets sign"),
    "webhook.disabled": _type(
        "A webhook was switched off because its receiver refused or failed for too long.", code="`gone` or `failing`",
    ),
    "webhook.deleted": _type("A webhook was removed."),
    TEST_TYPE: _type("Made by `POST …/test`, for one webhook alone."),
}  # fmt: skip
"""Every type that there is; the written reference is made from it."""

_NAMED: Final[Mapping[str, str]] = {
    "sandbox.create": "sandbox.created",
    "sandbox.update": "sandbox.updated",
    "snapshot.create": "snapshot.created",
    "snapshot.delete": "snapshot.deleting",
    "port.open": "port.opened",
    "port.close": "port.closed",
    "key.create": "key.created",
    "key.rotate": "key.rotated",
    "key.revoke": "key.revoked",
    "project.create": "project.created",
    "org.create": "org.created",
    "org.update": "org.updated",
    "quota.update": "quota.updated",
    "budget.update": "budget.updated",
    "budget.delete": "budget.deleted",
    "policy.update": "policy.updated",
    "policy.delete": "policy.deleted",
    "pool.create": "pool.created",
    "pool.update": "pool.updated",
    "pool.delete": "pool.deleted",
    "webhook.create": "webhook.created",
    "webhook.update": "webhook.updated",
    "webhook.rotate": "webhook.rotated",
    "webhook.disable": "webhook.disabled",
    "webhook.delete": "webhook.deleted",
}


def type_of(event: Event) -> str | None:
    """The public type of a change; None for one that is nobody's business outside.

    A sandbox's change is told by the state that it leads to, whoever brought it about, and told once: a step that
    leaves it where it was is not.
    """
    thing, _, action = event.action.partition(".")
    named = _NAMED.get(event.action)
    if named is not None:
        return named
    if thing == "sandbox":
        return _state_of_sandbox(event)
    if thing in {"project", "org"} and event.after is not None:
        return f"{thing}.changed"
    return event.action if event.action in TYPES and action else None


def _state_of_sandbox(event: Event) -> str | None:
    if event.after is None or event.after == event.before:
        return None
    return "sandbox.ended" if event.after in ENDED else f"sandbox.{Status(event.after).value}"


class Why(Wire):
    code: str
    """Stable, such as `ttl_expired` or `deleted`; new ones may come."""
    source: str
    """Who said so: `caller`, `operator`, `policy`, `timer`, `admission`, `backend` or `worker`."""
    cause: Cause


class LifecycleData(Wire):
    """What changed. `facts` are those that the type documents."""

    org: str
    """The organization, or `operators` for what concerns the installation."""
    project: str | None = None
    pool: str | None = None
    """Where it is, or was."""
    actor: str
    """The key that asked for it, or the part of the system that acted."""
    request_id: str
    """The request that caused it, as `X-Request-Id` named it."""
    before: str | None = None
    """The state before; absent where there was none."""
    after: str | None = None
    """The state since."""
    reason: Why | None = None
    """Why it is in that state."""
    facts: dict[str, Fact] = {}
    """What the type tells beside that."""


class Lifecycle(Wire):
    """A CloudEvent in its JSON form. `id` is the same however often and by whichever way it is sent."""

    specversion: str = SPECIFICATION
    id: str
    source: str
    """The installation."""
    type: str
    subject: str
    """The id or name of what changed."""
    time: datetime
    datacontenttype: str = "application/json"
    schemaversion: str = SCHEMA
    data: LifecycleData

    def text(self) -> str:
        """What is sent: compact JSON."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


def published(event: Event, installation: str) -> Lifecycle | None:
    """What the world is told of a change, or None."""
    kind = type_of(event)
    if kind is None:
        return None
    facts = {
        name: value for name in TYPES[kind].facts if (value := event.details.get(name)) is not None
    }  # fmt: skip
    return Lifecycle(
        id=event.id, source=f"/differently/{installation}", type=kind, subject=event.target, time=event.at,
        data=LifecycleData(
            org=event.org, project=event.project, pool=event.pool, actor=event.actor, request_id=event.request_id,
            before=event.before, after=event.after, reason=_why(event), facts=facts,
        ),
    )  # fmt: skip


def _why(event: Event) -> Why | None:
    code, source = event.details.get("reason"), event.details.get("source")
    if not isinstance(code, str) or not isinstance(source, str):
        return None  # `reason` of an organization or project is what an operator wrote
    return Why(code=code, source=source, cause=cause_of(code, source))
