"""Organizations, projects, their quotas and keys: for operators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from .._request import at, given, request
from ..models import KeyView, NewKeyView, OrgView, ProjectView, QuotaView, RepairView, RotatedKeyView
from .paging import items
from .transport import AsyncTransport


class _AsyncTenants:
    """What organizations and projects have in common."""

    _base = ""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def quota(self, id: str) -> QuotaView:
        return QuotaView.from_dict(await self._document("GET", id, "/quota"))

    async def set_quota(self, id: str, limits: Mapping[str, Any]) -> QuotaView:
        """Replace it; `limits` are in the API's spelling, such as `{"maxConcurrent": 50}`."""
        return QuotaView.from_dict(await self._document("PUT", id, "/quota", dict(limits)))

    async def repair_quota(self, id: str, *, dry_run: bool = False) -> RepairView:
        """Count again what is held, and put the counters right."""
        return RepairView.from_dict(await self._document("POST", id, "/quota/repair", {"dryRun": dry_run}))

    async def _document(self, method: str, id: str, tail: str = "", body: Any = None) -> Any:
        return await self._transport.document(request(method, at(self._base + "/{}", id) + tail, body=body))


class AsyncOrgs(_AsyncTenants):
    _base = "/v1/orgs"

    def list(self, *, at_most: int | None = None) -> AsyncIterator[OrgView]:
        return items(self._transport, "/v1/orgs", OrgView, at_most=at_most)

    async def get(self, id: str) -> OrgView:
        return OrgView.from_dict(await self._document("GET", id))

    async def create(
        self, name: str, *, weight: int | None = None, quota: Mapping[str, Any] | None = None
    ) -> OrgView:  # fmt: skip
        body = given(name=name, weight=weight, quota=dict(quota) if quota is not None else None)
        asked = request("POST", "/v1/orgs", body=body, repeat="refused")
        return OrgView.from_dict(await self._transport.document(asked))

    async def update(self, id: str, *, name: str | None = None, weight: int | None = None) -> OrgView:
        return OrgView.from_dict(await self._document("PATCH", id, "", given(name=name, weight=weight)))

    async def suspend(self, id: str, *, reason: str | None = None, stop_running: bool | None = None) -> OrgView:
        """Let nothing new start in it."""
        body = given(reason=reason, stop_running=stop_running)
        return OrgView.from_dict(await self._document("POST", id, "/suspend", body))

    async def unsuspend(self, id: str) -> OrgView:
        return OrgView.from_dict(await self._document("POST", id, "/unsuspend"))

    async def archive(self, id: str) -> OrgView:
        """Remove everything in it, for good, and keep its record."""
        return OrgView.from_dict(await self._document("POST", id, "/archive"))

    async def delete(self, id: str) -> OrgView:
        """Remove it and everything in it, for good."""
        return OrgView.from_dict(await self._document("DELETE", id))


class AsyncProjects(_AsyncTenants):
    _base = "/v1/projects"

    def list(self, org: str, *, at_most: int | None = None) -> AsyncIterator[ProjectView]:
        return items(self._transport, at("/v1/orgs/{}/projects", org), ProjectView, at_most=at_most)

    async def get(self, id: str) -> ProjectView:
        return ProjectView.from_dict(await self._document("GET", id))

    async def create(self, org: str, name: str, *, quota: Mapping[str, Any] | None = None) -> ProjectView:
        body = given(name=name, quota=dict(quota) if quota is not None else None)
        asked = request("POST", at("/v1/orgs/{}/projects", org), body=body, repeat="refused")
        return ProjectView.from_dict(await self._transport.document(asked))

    async def suspend(self, id: str, *, reason: str | None = None, stop_running: bool | None = None) -> ProjectView:
        body = given(reason=reason, stop_running=stop_running)
        return ProjectView.from_dict(await self._document("POST", id, "/suspend", body))

    async def unsuspend(self, id: str) -> ProjectView:
        return ProjectView.from_dict(await self._document("POST", id, "/unsuspend"))

    async def archive(self, id: str) -> ProjectView:
        return ProjectView.from_dict(await self._document("POST", id, "/archive"))

    async def delete(self, id: str) -> ProjectView:
        return ProjectView.from_dict(await self._document("DELETE", id))


class AsyncKeys:
    """API keys. A key itself is in the answer that made it, and nowhere else."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, org: str | None = None, at_most: int | None = None) -> AsyncIterator[KeyView]:
        """An organization's, or the operators' own."""
        return items(self._transport, "/v1/api-keys", KeyView, {"org": org}, at_most)

    async def get(self, id: str) -> KeyView:
        return KeyView.from_dict(await self._transport.document(request("GET", at("/v1/api-keys/{}", id))))

    async def create(
        self, name: str, *, project: str | None = None, expires_at: datetime | str | None = None
    ) -> NewKeyView:  # fmt: skip
        """A project's key, or without one an operator's. Its `token` is told here and never again."""
        end = expires_at.isoformat() if isinstance(expires_at, datetime) else expires_at
        scope = "tenant" if project else "operator"
        body = given(name=name, scope=scope, project_id=project, expires_at=end)
        asked = request("POST", "/v1/api-keys", body=body, repeat="refused")
        return NewKeyView.from_dict(await self._transport.document(asked))

    async def rotate(self, id: str, *, grace_seconds: int | None = None) -> RotatedKeyView:
        """A key in its place; both work for `grace_seconds`."""
        asked = request(
            "POST", at("/v1/api-keys/{}/rotate", id), body=given(grace_seconds=grace_seconds), repeat="refused"
        )  # fmt: skip
        return RotatedKeyView.from_dict(await self._transport.document(asked))

    async def revoke(self, id: str) -> KeyView:
        return KeyView.from_dict(await self._transport.document(request("DELETE", at("/v1/api-keys/{}", id))))
