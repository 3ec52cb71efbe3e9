"""Snapshots: copies of sandboxes that outlive them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._failure import SnapshotFailed
from .._request import at, given, request
from ..models import SnapshotView
from .paging import items
from .sandbox import AsyncSandbox, list_of, page_of
from .transport import AsyncTransport

if TYPE_CHECKING:
    from .client import AsyncClient

FIRST_LOOK_SECONDS = 0.3
LOOK_SECONDS_MAX = 3.0


class AsyncSnapshot:
    """One snapshot, as last seen in `info`."""

    def __init__(self, client: AsyncClient, info: SnapshotView) -> None:
        self._client = client
        self._transport: AsyncTransport = client._transport
        self.info = info

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, status={self.status!r})"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> str:
        return self.info.status

    async def refresh(self) -> AsyncSnapshot:
        found = await self._transport.document(request("GET", at("/v1/snapshots/{}", self.id)))
        self.info = SnapshotView.from_dict(found)
        return self

    async def wait(self) -> AsyncSnapshot:
        """Until it is ready; SnapshotFailed when it could not be taken."""
        seconds = FIRST_LOOK_SECONDS
        while self.status == "creating":
            await self._transport._pause(seconds)
            seconds = min(LOOK_SECONDS_MAX, seconds * 1.5)
            await self.refresh()
        if self.status != "ready":
            reason = self.info.status_reason
            raise SnapshotFailed(f"{self.id} is {self.status}{': ' + reason.detail if reason else '.'}", self.info)
        return self

    async def restore(self, **options: Any) -> AsyncSandbox:
        """A new sandbox made from it; options are those of a create."""
        return await self._client.sandboxes.create(snapshot=self.id, **options)

    async def delete(self) -> None:
        """Accepted in every state and final."""
        await self._transport.document(request("DELETE", at("/v1/snapshots/{}", self.id)))


class AsyncSnapshots:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._transport: AsyncTransport = client._transport

    async def create(
        self, sandbox: str, name: str | None = None, *, kind: str | None = None, retention_seconds: int | None = None,
        wait: bool = True, idempotency_key: str | None = None,
    ) -> AsyncSnapshot:  # fmt: skip
        """Take one and wait until it is ready. `kind="memory"` keeps running processes too, where the pool can."""
        asked = request(
            "POST", at("/v1/sandboxes/{}/snapshots", sandbox),
            body=given(name=name, kind=kind, retention_seconds=retention_seconds),
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )  # fmt: skip
        made = self._snapshot(await self._transport.document(asked))
        return await made.wait() if wait else made

    async def get(self, id: str) -> AsyncSnapshot:
        return self._snapshot(await self._transport.document(request("GET", at("/v1/snapshots/{}", id))))

    async def list(
        self, *, sandbox: str | None = None, status: Sequence[str] = (), project: str | None = None,
        at_most: int | None = None,
    ) -> AsyncIterator[AsyncSnapshot]:  # fmt: skip
        """Newest first, page after page as they are walked."""
        query = {"sandboxId": sandbox, "status": list_of(status), "projectId": project, "limit": page_of(at_most)}
        async for info in items(self._transport, "/v1/snapshots", SnapshotView, query, at_most):
            yield AsyncSnapshot(self._client, info)

    def _snapshot(self, found: Mapping[str, Any]) -> AsyncSnapshot:
        return AsyncSnapshot(self._client, SnapshotView.from_dict(found))
