"""Webhooks: who is told of what, what is on its way to them, and how their receivers are doing.

    Webhook      what its owner decides: URL, types, project, signing secrets
    Lane         what is: how much is on its way, who works on it, how the receiver does; the only row that is due
    Delivery     one event for one webhook, whose key makes it one however often it is offered
    Replay       a stretch of the log that is being offered again

Deliveries have an index partition of their own for each webhook, so that a receiver that is down fills its own and
nobody else's.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Final

from pydantic import BaseModel, ConfigDict

from ..runtime.ids import OrgId, ProjectId, WebhookId
from .due import due_index, purge_index, stamp
from .record import Key, Record, Table

EVERYTHING: Final = "*"


class SigningSecret(BaseModel):
    """Sealed under its webhook and revision. From `until` on it signs nothing."""

    model_config = ConfigDict(frozen=True)

    revision: str
    sealed: str
    until: datetime | None = None


class Disabled(BaseModel):
    """Why nothing is sent: `asked` by its owner, `gone` (the receiver answered 410), or `failing` for too long."""

    model_config = ConfigDict(frozen=True)

    code: str
    at: datetime


class Webhook(Record):
    """`project` None: of the whole organization. The newest secret comes first; at most two sign."""

    kind: ClassVar[str] = "webhook"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("version",)

    id: WebhookId
    org: OrgId
    project: ProjectId | None = None
    url: str
    events: tuple[str, ...] = (EVERYTHING,)
    description: str = ""
    disabled: Disabled | None = None
    secrets: tuple[SigningSecret, ...]
    version: int = 1
    created_at: datetime
    created_by: str
    updated_at: datetime

    def wants(self, kind: str, project: str | None) -> bool:
        if self.disabled is not None or (self.project is not None and self.project != project):
            return False
        family = f"{kind.partition('.')[0]}.*"
        return not {EVERYTHING, family, kind}.isdisjoint(self.events)

    @staticmethod
    def key_of(webhook: WebhookId) -> Key:
        return Key(Table.STATE, f"WEBHOOK#{webhook}", "META")

    def key(self) -> Key:
        return self.key_of(self.id)


class WebhookEntry(Record):
    """A webhook's line in the list of its organization's webhooks."""

    kind: ClassVar[str] = "webhook_entry"
    table: ClassVar[Table] = Table.STATE

    id: WebhookId
    org: OrgId
    project: ProjectId | None = None

    @staticmethod
    def key_of(org: OrgId, webhook: WebhookId) -> Key:
        return Key(Table.STATE, f"WEBHOOKS#{org}", webhook)

    def key(self) -> Key:
        return self.key_of(self.org, self.id)


class Lane(Record):
    """Everything that is on its way to one webhook, worked off by one owner at a time.

    `pending` counts its deliveries exactly: it changes in the transactions that add and end them. `pokes` rises with
    each addition, so that whoever lets go of the lane does not overlook one. `due_at` is when somebody must look, which
    is once an hour at least.
    """

    kind: ClassVar[str] = "webhook_lane"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = (
        "pending", "pokes", "poked_at", "owner", "claim_until", "due_at", "failures", "failing_since", "rest_until",
        "replaying", "compared_to",
    )  # fmt: skip

    webhook: WebhookId
    pending: int = 0
    pokes: int = 0
    poked_at: datetime | None = None
    owner: str | None = None
    claim_until: datetime | None = None
    due_at: datetime | None = None
    failures: int = 0
    """In a row, of whatever delivery."""
    failing_since: datetime | None = None
    rest_until: datetime | None = None
    """Nothing is sent before: its receiver is down, or asked for it."""
    replaying: bool | None = None
    compared_to: datetime | None = None
    """Every event before this moment is known to have been offered, whatever became of the stream."""

    @staticmethod
    def key_of(webhook: WebhookId) -> Key:
        return Key(Table.STATE, f"WEBHOOK#{webhook}", "LANE")

    def key(self) -> Key:
        return self.key_of(self.webhook)

    def index(self) -> dict[str, str | int]:
        return due_index(self.webhook, self.due_at)


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    """Given up on; it can be asked for again."""


class Failure(StrEnum):
    """Why a try came to nothing: all that is ever told of it, beside the status."""

    ADDRESS = "address"
    """Its host leads to an address that no webhook may reach."""
    UNREACHABLE = "unreachable"
    """No connection, or no such name."""
    TLS = "tls"
    """Its certificate does not prove who it is."""
    TIMEOUT = "timeout"
    """No answer in time; it may have been heard."""
    BROKEN = "broken"
    """The connection broke or what came was no HTTP; it may have been heard."""
    REDIRECT = "redirect"
    """It sent us elsewhere, and redirects are not followed."""
    REFUSED = "refused"
    """A status of 4xx."""
    BUSY = "busy"
    """429 or 503."""
    GONE = "gone"
    """410: the receiver is not there any more."""
    ERROR = "error"
    """A status of 5xx."""
    DISABLED = "disabled"
    """The webhook was disabled or deleted before it could be sent."""


class Receipt(BaseModel):
    """What became of one try. `status` is None when there was no answer."""

    model_config = ConfigDict(frozen=True)

    status: int | None = None
    failure: Failure | None = None
    retry_after_seconds: float | None = None


class Try(BaseModel):
    model_config = ConfigDict(frozen=True)

    at: datetime
    status: int | None = None
    failure: Failure | None = None
    duration_ms: int = 0


class Delivery(Record):
    """One event for one webhook. `tries` counts since it was last asked for; `body` is what is signed and sent."""

    kind: ClassVar[str] = "delivery"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("status", "version", "due_at")

    webhook: WebhookId
    event: str
    type: str
    subject: str
    body: str
    status: DeliveryStatus = DeliveryStatus.PENDING
    version: int = 1
    due_at: datetime | None = None
    tries: int = 0
    last: Try | None = None
    created_at: datetime
    ended_at: datetime | None = None

    @staticmethod
    def key_of(webhook: WebhookId, event: str) -> Key:
        return Key(Table.STATE, f"WEBHOOK#{webhook}", f"DLV#{event}")

    def key(self) -> Key:
        return self.key_of(self.webhook, self.event)

    def index(self) -> dict[str, str | int]:
        if self.due_at is None:
            return purge_index(self.ended_at)
        return {"due_pk": delivery_shard(self.webhook), "due_sk": f"{stamp(self.due_at)}#{self.event}"}


def delivery_shard(webhook: WebhookId) -> str:
    """The partition of the due index that holds what is on its way to one webhook; no sweep reads it."""
    return f"DELIVER#{webhook}"


class Replay(Record):
    """The events from `since` to `until` are offered again; `position` is the last that was looked at."""

    kind: ClassVar[str] = "webhook_replay"
    table: ClassVar[Table] = Table.STATE
    native: ClassVar[tuple[str, ...]] = ("version",)

    webhook: WebhookId
    since: datetime
    until: datetime
    position: str
    offered: int = 0
    version: int = 1

    @staticmethod
    def key_of(webhook: WebhookId) -> Key:
        return Key(Table.STATE, f"WEBHOOK#{webhook}", "REPLAY")

    def key(self) -> Key:
        return self.key_of(self.webhook)
