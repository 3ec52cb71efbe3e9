"""Snapshots: copies of sandboxes that outlive them."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._failure import SnapshotFailed
from .._request import at, given, request
from ..models import SnapshotView
from .paging import items
from .sandbox import Sandbox, list_of, page_of
from .transport import Transport

if TYPE_CHECKING:
    from .client import Client

FIRST_LOOK_SECONDS = 0.3
LOOK_SECONDS_MAX = 3.0


class Snapshot:
    """One snapshot, as last seen in `info`."""

    def __init__(self, client: Client, info: SnapshotView) -> None:
        self._client = client
        self._transport: Transport = client._transport
        self.info = info

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, status={self.status!r})"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> str:
        return self.info.status

    def refresh(self) -> Snapshot:
        found = self._transport.document(request("GET", at("/v1/snapshots/{}", self.id)))
        self.info = SnapshotView.from_dict(found)
        return self

    def wait(self) -> Snapshot:
        """Until it is ready; SnapshotFailed when it could not be taken."""
        seconds = FIRST_LOOK_SECONDS
        while self.status == "creating":
            self._transport._pause(seconds)
            seconds = min(LOOK_SECONDS_MAX, seconds * 1.5)
            self.refresh()
        if self.status != "ready":
            reason = self.info.status_reason
            raise SnapshotFailed(f"{self.id} is {self.status}{': ' + reason.detail if reason else '.'}", self.info)
        return self

    def restore(self, **options: Any) -> Sandbox:
        """A new sandbox made from it; options are those of a create."""
        return self._client.sandboxes.create(snapshot=self.id, **options)

    def delete(self) -> None:
        """Accepted in every state and final."""
        self._transport.document(request("DELETE", at("/v1/snapshots/{}", self.id)))


class Snapshots:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._transport: Transport = client._transport

    def create(
        self, sandbox: str, name: str | None = None, *, kind: str | None = None, retention_seconds: int | None = None,
        wait: bool = True, idempotency_key: str | None = None,
    ) -> Snapshot:  # fmt: skip
        """Take one and wait until it is ready. `kind="memory"` keeps running processes too, where the pool can."""
        asked = request(
            "POST", at("/v1/sandboxes/{}/snapshots", sandbox),
            body=given(name=name, kind=kind, retention_seconds=retention_seconds),
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )  # fmt: skip
        made = self._snapshot(self._transport.document(asked))
        return made.wait() if wait else made

    def get(self, id: str) -> Snapshot:
        return self._snapshot(self._transport.document(request("GET", at("/v1/snapshots/{}", id))))

    def list(
        self, *, sandbox: str | None = None, status: Sequence[str] = (), project: str | None = None,
        at_most: int | None = None,
    ) -> Iterator[Snapshot]:  # fmt: skip
        """Newest first, page after page as they are walked."""
        query = {"sandboxId": sandbox, "status": list_of(status), "projectId": project, "limit": page_of(at_most)}
        for info in items(self._transport, "/v1/snapshots", SnapshotView, query, at_most):
            yield Snapshot(self._client, info)

    def _snapshot(self, found: Mapping[str, Any]) -> Snapshot:
        return Snapshot(self._client, SnapshotView.from_dict(found))
