"""What bounds a tenant and what it keeps: policies, its own secrets, and the queue that its sandboxes wait in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from .._request import at, given, once, request
from ..models import PolicyView, ProjectSecretView, QueueEntry
from .paging import items
from .transport import AsyncTransport


class AsyncQueue:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, at_most: int | None = None) -> AsyncIterator[QueueEntry]:
        """Who waits, for what and since when; with an operator's key everybody."""
        return items(self._transport, "/v1/queue", QueueEntry, at_most=at_most)


class AsyncSecrets:
    """Secrets that a project's sandboxes may be given. Values go in and never come out."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, project: str | None = None, at_most: int | None = None) -> AsyncIterator[ProjectSecretView]:
        return items(self._transport, "/v1/secrets", ProjectSecretView, {"projectId": project}, at_most)

    async def get(self, name: str, *, project: str | None = None) -> ProjectSecretView:
        asked = request("GET", at("/v1/secrets/{}", name), query={"projectId": project})
        return ProjectSecretView.from_dict(await self._transport.document(asked))

    async def put(self, name: str, value: str, *, project: str | None = None) -> ProjectSecretView:
        """Keep it, or replace it; sandboxes that have the old value keep that."""
        asked = request("PUT", at("/v1/secrets/{}", name), query={"projectId": project}, body={"value": value})
        return ProjectSecretView.from_dict(await self._transport.document(asked))

    async def delete(self, name: str, *, project: str | None = None) -> None:
        await self._transport.document(request("DELETE", at("/v1/secrets/{}", name), query={"projectId": project}))


class AsyncPolicies:
    """Where sandboxes may run. A scope is `global`, an organization's id or a project's id."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, at_most: int | None = None) -> AsyncIterator[PolicyView]:
        return items(self._transport, "/v1/policies", PolicyView, at_most=at_most)

    async def get(self, scope: str) -> PolicyView:
        return PolicyView.from_dict(await self._transport.document(request("GET", at("/v1/policies/{}", scope))))

    async def put(self, scope: str, rules: Mapping[str, Any], *, version: int | None = None) -> PolicyView:
        """Replace the rules, which are in the API's spelling. `version` names the one that is replaced."""
        body = given(rules=dict(rules), version=version)
        asked = request("PUT", at("/v1/policies/{}", scope), body=body, repeat=once(version))
        return PolicyView.from_dict(await self._transport.document(asked))

    async def delete(self, scope: str) -> None:
        await self._transport.document(request("DELETE", at("/v1/policies/{}", scope)))
