"""Webhooks: who is told of what happens, and what became of each telling."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

from .._request import Repeat, at, given, request
from ..models import DeliveryView, NewWebhookView, ReplayView, WebhookDetail, WebhookView
from .paging import items
from .transport import AsyncTransport

Listing = list[WebhookView]


class AsyncWebhooks:
    """A tenant's key has those of its project; operators name an organization or project, or have the
    installation's own.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, url: str, *, events: Sequence[str] | None = None, description: str | None = None,
        org: str | None = None, project: str | None = None,
    ) -> NewWebhookView:  # fmt: skip
        """Its signing `secret` is told here and never again. `events` are types, families (`sandbox.*`) or `*`."""
        body = given(
            url=url, events=list(events) if events else None, description=description, org_id=org, project_id=project
        )
        asked = request("POST", "/v1/webhooks", body=body, repeat="refused")
        return NewWebhookView.from_dict(await self._transport.document(asked))

    async def list(self, *, org: str | None = None, project: str | None = None) -> Listing:
        """Oldest first."""
        asked = request("GET", "/v1/webhooks", query={"orgId": org, "projectId": project})
        return [WebhookView.from_dict(item) for item in (await self._transport.document(asked))["items"]]

    async def get(self, id: str) -> WebhookDetail:
        """With how its receiver is doing."""
        return WebhookDetail.from_dict(await self._transport.document(request("GET", at("/v1/webhooks/{}", id))))

    async def update(
        self, id: str, *, url: str | None = None, events: Sequence[str] | None = None,
        description: str | None = None, enabled: bool | None = None,
    ) -> WebhookView:  # fmt: skip
        """Change what is given. `enabled=False` gives up on what is on its way; True forgives its failures."""
        body = given(
            url=url, events=list(events) if events is not None else None, description=description, enabled=enabled
        )
        asked = request("PATCH", at("/v1/webhooks/{}", id), body=body)
        return WebhookView.from_dict(await self._transport.document(asked))

    async def delete(self, id: str) -> None:
        await self._transport.document(request("DELETE", at("/v1/webhooks/{}", id), repeat="refused"))

    async def rotate(self, id: str, *, grace_seconds: int | None = None) -> NewWebhookView:
        """A new `secret`, told here alone; the old one signs beside it for `grace_seconds`."""
        found = await self._post(id, "/rotate", given(grace_seconds=grace_seconds))
        return NewWebhookView.from_dict(found)

    async def test(self, id: str) -> DeliveryView:
        """Send an event of the type `webhook.test`, once; `delivery` tells what became of it."""
        return DeliveryView.from_dict(await self._post(id, "/test"))

    async def replay(self, id: str, since: datetime | str, to: datetime | str | None = None) -> ReplayView:
        """Send the events of that time again, up to now or `to`, under the ids that they had."""
        body = {"from": _text(since), **given(to=_text(to))}
        return ReplayView.from_dict(await self._post(id, "/replay", body))

    def deliveries(
        self, id: str, *, status: Sequence[str] | None = None, at_most: int | None = None
    ) -> AsyncIterator[DeliveryView]:  # fmt: skip
        """Newest events first; `status` is of `pending`, `delivered` and `failed`."""
        query = {"status": list(status or ()), "limit": min(100, at_most or 100)}
        return items(self._transport, at("/v1/webhooks/{}/deliveries", id), DeliveryView, query, at_most)

    async def delivery(self, id: str, event: str) -> DeliveryView:
        asked = request("GET", at("/v1/webhooks/{}/deliveries/{}", id, event))
        return DeliveryView.from_dict(await self._transport.document(asked))

    async def redeliver(self, id: str, event: str) -> DeliveryView:
        """Send one event again, with all its tries anew; the receiver knows it by its id."""
        tail = at("/deliveries/{}/redeliver", event)
        return DeliveryView.from_dict(await self._post(id, tail, repeat="always"))

    async def _post(self, id: str, tail: str, body: Any = None, repeat: Repeat = "refused") -> Any:
        asked = request("POST", at("/v1/webhooks/{}", id) + tail, body=body, repeat=repeat)
        return await self._transport.document(asked)


def _text(moment: datetime | str | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment
