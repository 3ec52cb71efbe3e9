"""Webhooks and their deliveries. A signing secret is shown once, and nothing of a receiver's answer but its status."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints

from differently_core.errors import InvalidRequest, InvalidState, NotFound, ProviderUnavailable, QuotaExceeded
from differently_core.model.record import Wire
from differently_core.model.webhook import Delivery, DeliveryStatus, Disabled, Failure, Lane, Replay, Webhook
from differently_core.operations import deliveries, webhooks

from ..moments import Moment
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from .paging import PageQuery, next_cursor

EVENTS_MAX = 50
Url = Annotated[str, StringConstraints(min_length=1, max_length=2048)]
"""https, to a public address; what comes after the host is sent as it is."""
Events = Annotated[list[Annotated[str, StringConstraints(max_length=64)]], Field(min_length=1, max_length=EVENTS_MAX)]
Description = Annotated[str, StringConstraints(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]


class CreateWebhook(Wire):
    url: Url
    """https, to a public address. Redirects are not followed."""
    events: Events = ["*"]
    """Types of the reference, families such as `sandbox.*`, or `*`."""
    description: Description = ""
    project_id: str | None = None
    """With an operator's key: only of this project. A tenant's webhook is of its own project."""
    org_id: str | None = None
    """With an operator's key: of this organization. Without it and `projectId` it is told of the installation itself:
    pools and operators' keys."""

    def __repr__(self) -> str:
        return "CreateWebhook(<url withheld>)"

    __str__ = __repr__


class UpdateWebhook(Wire):
    """Body of a PATCH; what is left out stays."""

    url: Url | None = None
    events: Events | None = None
    description: Description | None = None
    enabled: bool | None = None
    """`false` gives up on what is on its way; `true` forgives the receiver its failures."""

    def __repr__(self) -> str:
        return "UpdateWebhook(<url withheld>)"

    __str__ = __repr__


class DisabledView(Wire):
    code: str
    """`asked`, `gone` (the receiver answered 410) or `failing` (it took nothing for five days)."""
    at: datetime


class WebhookView(Wire):
    id: str
    org: str
    project: str | None = None
    url: str
    events: list[str]
    description: str
    enabled: bool
    disabled: DisabledView | None = None
    secrets: int
    """How many sign: two while one is being replaced."""
    created_at: datetime
    created_by: str
    updated_at: datetime

    @classmethod
    def of(cls, webhook: Webhook, now: datetime) -> Self:
        signing = [secret for secret in webhook.secrets if secret.until is None or now < secret.until]
        return cls(
            id=webhook.id, org=webhook.org, project=webhook.project, url=webhook.url, events=list(webhook.events),
            description=webhook.description, enabled=webhook.disabled is None, disabled=_disabled(webhook.disabled),
            secrets=len(signing), created_at=webhook.created_at, created_by=webhook.created_by,
            updated_at=webhook.updated_at,
        )  # fmt: skip


def _disabled(found: Disabled | None) -> DisabledView | None:
    return DisabledView(code=found.code, at=found.at) if found is not None else None


class NewWebhookView(WebhookView):
    secret: str
    """The signing secret, `whsec_…`. It is shown here and never again."""

    def __repr__(self) -> str:
        return f"NewWebhookView(id={self.id!r}, <secret withheld>)"

    __str__ = __repr__


class ReplayView(Wire):
    since: Annotated[datetime, Field(alias="from")]
    until: Annotated[datetime, Field(alias="to")]
    offered: int
    """Events that were put on their way so far."""

    @classmethod
    def of(cls, replay: Replay) -> Self:
        return cls(since=replay.since, until=replay.until, offered=replay.offered)


class WebhookDetail(WebhookView):
    pending: int
    """Deliveries that are on their way or wait for another try."""
    failing_since: datetime | None = None
    """Since when the receiver has taken nothing."""
    resting_until: datetime | None = None
    """The receiver is down, or asked for it: nothing is sent before."""
    replay: ReplayView | None = None
    """The one that is under way."""

    @classmethod
    def told(cls, webhook: Webhook, lane: Lane, replay: Replay | None, now: datetime) -> Self:
        resting = lane.rest_until if lane.rest_until is not None and now < lane.rest_until else None
        return cls(
            **WebhookView.of(webhook, now).model_dump(), pending=lane.pending, failing_since=lane.failing_since,
            resting_until=resting, replay=ReplayView.of(replay) if replay is not None else None,
        )  # fmt: skip


class WebhookPage(Wire):
    items: list[WebhookView]


class ListWebhooks(Wire):
    org_id: str | None = None
    """With an operator's key: whose webhooks; those of the installation itself without it."""
    project_id: str | None = None
    """With an operator's key: only those of this project."""


class RotateSecret(Wire):
    grace_seconds: Annotated[int, Field(ge=0, le=webhooks.GRACE_SECONDS_MAX)] = webhooks.GRACE_SECONDS_DEFAULT
    """How long the old secret signs beside the new one."""


class ReplayEvents(Wire):
    since: Annotated[Moment, Field(alias="from")]
    """At most 30 days back."""
    until: Annotated[Moment | None, Field(alias="to")] = None
    """Now, when it is left out."""


class TryView(Wire):
    at: datetime
    status: int | None = None
    """Of the receiver's answer; absent when there was none."""
    failure: Failure | None = None
    """Absent when it was delivered."""
    duration_ms: int


class DeliveryView(Wire):
    id: str
    """The event's id, which is also the `webhook-id` header."""
    type: str
    subject: str
    status: DeliveryStatus
    tries: int
    last_try: TryView | None = None
    next_try_at: datetime | None = None
    created_at: datetime
    ended_at: datetime | None = None

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        last = TryView(**delivery.last.model_dump()) if delivery.last is not None else None
        return cls(
            id=delivery.event, type=delivery.type, subject=delivery.subject, status=delivery.status,
            tries=delivery.tries, last_try=last, next_try_at=delivery.due_at, created_at=delivery.created_at,
            ended_at=delivery.ended_at,
        )  # fmt: skip


class DeliveryPage(Wire):
    """A page of one status may be short and have another after it."""

    items: list[DeliveryView]
    next_cursor: str | None = None


class ListDeliveries(PageQuery):
    status: list[DeliveryStatus] = []
    """Only these; may be given several times."""


def create_webhook(call: Call[CreateWebhook, NoQuery]) -> NewWebhookView:
    asked = call.body
    owner = webhooks.owner_of(call.core, call.caller, asked.org_id, asked.project_id)
    made = webhooks.create(call.core, call.caller, owner, asked.url, asked.events, asked.description)
    return _new(call.core.clock.now(), made)


def _new(now: datetime, made: webhooks.NewSecret) -> NewWebhookView:
    return NewWebhookView(**WebhookView.of(made.webhook, now).model_dump(), secret=made.secret)


def list_webhooks(call: Call[NoBody, ListWebhooks]) -> WebhookPage:
    owner = webhooks.owner_of(call.core, call.caller, call.query.org_id, call.query.project_id)
    now = call.core.clock.now()
    return WebhookPage(items=[WebhookView.of(webhook, now) for webhook in webhooks.listed(call.core, owner)])


def _found(call: Call[Any, Any]) -> Webhook:
    return webhooks.find(call.core, call.caller, call.params["webhook"])


def get_webhook(call: Call[NoBody, NoQuery]) -> WebhookDetail:
    found = _found(call)
    lane = webhooks.lane_of(call.core, found)
    replay = deliveries.replay_of(call.core, found) if lane.replaying else None
    return WebhookDetail.told(found, lane, replay, call.core.clock.now())


def update_webhook(call: Call[UpdateWebhook, NoQuery]) -> WebhookView:
    asked = call.body
    change = webhooks.Change(asked.url, asked.events, asked.description, asked.enabled)
    changed = webhooks.update(call.core, call.caller, call.params["webhook"], change)
    return WebhookView.of(changed, call.core.clock.now())


def delete_webhook(call: Call[NoBody, NoQuery]) -> Answer:
    webhooks.remove(call.core, call.caller, call.params["webhook"])
    return Answer(204)


def rotate_webhook_secret(call: Call[RotateSecret, NoQuery]) -> NewWebhookView:
    made = webhooks.rotate(call.core, call.caller, call.params["webhook"], call.body.grace_seconds)
    return _new(call.core.clock.now(), made)


def test_webhook(call: Call[NoBody, NoQuery]) -> DeliveryView:
    return DeliveryView.of(deliveries.test(call.core, call.caller, call.params["webhook"]))


def replay_webhook(call: Call[ReplayEvents, NoQuery]) -> ReplayView:
    asked = call.body
    return ReplayView.of(
        deliveries.replay(call.core, call.caller, call.params["webhook"], asked.since, asked.until)
    )  # fmt: skip


def list_deliveries(call: Call[NoBody, ListDeliveries]) -> DeliveryPage:
    found = _found(call)
    statuses = frozenset(call.query.status)
    bound = ("deliveries", found.id, *sorted(statuses))
    rows, position = deliveries.listed(
        call.core, found, statuses, call.query.after(call.core, *bound), call.query.limit
    )  # fmt: skip
    return DeliveryPage(
        items=[DeliveryView.of(row) for row in rows], next_cursor=next_cursor(call.core, position, *bound)
    )


def get_delivery(call: Call[NoBody, NoQuery]) -> DeliveryView:
    return DeliveryView.of(deliveries.get(call.core, _found(call), call.params["delivery"]))


def redeliver(call: Call[NoBody, NoQuery]) -> DeliveryView:
    return DeliveryView.of(
        deliveries.redeliver(call.core, call.caller, call.params["webhook"], call.params["delivery"])
    )  # fmt: skip


_ONE = "/v1/webhooks/{webhook}"
_URL_RULES = (
    "The URL is https and leads to public addresses alone, which is looked at again whenever something is sent."
)
ROUTES = (
    Route(
        Method.POST, "/v1/webhooks", Group.ADMIN, Access.TENANT, create_webhook,
        "Create a webhook", CreateWebhook, NoQuery, NewWebhookView, 201,
        errors=(InvalidRequest, NotFound, InvalidState, QuotaExceeded, ProviderUnavailable),
        description=f"It is told of everything from now on, at least once. {_URL_RULES} At most 10 for a project and "
        "50 for an organization.",
    ),
    Route(
        Method.GET, "/v1/webhooks", Group.ADMIN, Access.TENANT, list_webhooks,
        "List webhooks, oldest first", NoBody, ListWebhooks, WebhookPage, errors=(InvalidRequest, NotFound),
        description="All at once: they are few.",
    ),
    Route(
        Method.GET, _ONE, Group.ADMIN, Access.TENANT, get_webhook,
        "Read a webhook and how its receiver is doing", NoBody, NoQuery, WebhookDetail, errors=(NotFound,),
    ),
    Route(
        Method.PATCH, _ONE, Group.ADMIN, Access.TENANT, update_webhook,
        "Change, disable or enable a webhook", UpdateWebhook, NoQuery, WebhookView,
        errors=(InvalidRequest, NotFound, ProviderUnavailable), description=_URL_RULES,
    ),
    Route(
        Method.DELETE, _ONE, Group.ADMIN, Access.TENANT, delete_webhook,
        "Remove a webhook", NoBody, NoQuery, status=204, errors=(NotFound,),
        description="What is on its way to it is given up on.",
    ),
    Route(
        Method.POST, f"{_ONE}/rotate", Group.ADMIN, Access.TENANT, rotate_webhook_secret,
        "Replace a webhook's signing secret", RotateSecret, NoQuery, NewWebhookView,
        errors=(NotFound, ProviderUnavailable),
        description="Both sign for `graceSeconds`, then the new one alone. A third secret, from a rotation within the "
        "grace of another, ends at once: if an answer was lost, rotate again.",
    ),
    Route(
        Method.POST, f"{_ONE}/test", Group.ADMIN, Access.TENANT, test_webhook,
        "Send a test event", NoBody, NoQuery, DeliveryView, 202, errors=(NotFound, InvalidState),
        description="Of the type `webhook.test`, once. Read the delivery to see what became of it.",
    ),
    Route(
        Method.POST, f"{_ONE}/replay", Group.ADMIN, Access.TENANT, replay_webhook,
        "Send the events of a stretch of time again", ReplayEvents, NoQuery, ReplayView, 202,
        errors=(InvalidRequest, NotFound, InvalidState),
        description="Those that were delivered too, under the ids that they had: a receiver drops what it has seen. "
        "One at a time.",
    ),
    Route(
        Method.GET, f"{_ONE}/deliveries", Group.ADMIN, Access.TENANT, list_deliveries,
        "List deliveries, newest events first", NoBody, ListDeliveries, DeliveryPage, errors=(InvalidRequest, NotFound),
        description="They are kept for 30 days after their end.",
    ),
    Route(
        Method.GET, f"{_ONE}/deliveries/{{delivery}}", Group.ADMIN, Access.TENANT, get_delivery,
        "Read a delivery", NoBody, NoQuery, DeliveryView, errors=(NotFound,),
    ),
    Route(
        Method.POST, f"{_ONE}/deliveries/{{delivery}}/redeliver", Group.ADMIN, Access.TENANT, redeliver,
        "Send one event again", NoBody, NoQuery, DeliveryView, 202, errors=(NotFound, InvalidState),
        description="Whatever became of it before, with all its tries anew.",
    ),
)  # fmt: skip
