"""The lifecycle server's routes: each call sent once, its answer read, its refusal told as one of our errors."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import NotFound
from differently_core.runtime.clock import Clock

from .config import OpenSandboxConfig
from .errors import code_of, failure
from .listing import PAGE_SIZE, read_all
from .transport import Answer, Call, Transport
from .wire import (
    KEY_INSTALLATION,
    KEY_SANDBOX,
    EndpointRead,
    PoolList,
    PoolRead,
    RenewalRead,
    SandboxPage,
    SandboxRead,
    SnapshotPage,
    SnapshotRead,
    TemplatePage,
    TemplateRead,
    read,
)

CALL_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 10.0
KEY_HEADER: Final = "OPEN-SANDBOX-API-KEY"


class Lifecycle:
    """`api_key` may be empty: an OpenSandbox on a private network can run without one."""

    def __init__(self, transport: Transport, config: OpenSandboxConfig, api_key: str, clock: Clock) -> None:
        self._transport = transport
        self._base = f"{config.api_url}/v1"
        self._scheme_of_execd = config.scheme_of_execd
        self._proxied = config.use_server_proxy
        self._clock = clock
        self.headers = {KEY_HEADER: api_key} if api_key else {}

    # Sandboxes.

    def create(self, body: dict[str, JsonValue], seconds: float, secrets: Iterable[str]) -> str:
        """The new sandbox's id. What the answer says beyond it is not relied on: it is looked at again anyway."""
        answer = self._send("POST", "/sandboxes", "create the sandbox", json=body, seconds=seconds, secrets=secrets)
        return read(SandboxRead, answer.body).id

    def sandbox(self, ref: str) -> SandboxRead:
        return read(SandboxRead, self._send("GET", _at(ref), "find the sandbox").body)

    def owned(self, owner: Owner, seconds: float = CALL_SECONDS) -> list[SandboxRead]:
        """What carries the owner on itself, oldest first: a copy that inherited the labels is younger."""
        labels = {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}
        found = [seen for seen in self._labelled(labels, seconds) if seen.owner == owner]
        return sorted(found, key=lambda seen: (seen.created_at, seen.id))

    def of_installation(self, installation: str) -> list[SandboxRead]:
        labelled = self._labelled({KEY_INSTALLATION: installation})
        return [seen for seen in labelled if seen.owner.installation == installation and seen.owner.sandbox]

    def _labelled(self, labels: dict[str, str], seconds: float = CALL_SECONDS) -> list[SandboxRead]:
        def page(number: int) -> SandboxPage:
            params: dict[str, str | int] = {"metadata": urlencode(labels), "page": number, "pageSize": PAGE_SIZE}
            answer = self._send("GET", "/sandboxes", "list sandboxes", params=params, seconds=seconds)
            return read(SandboxPage, answer.body)

        return read_all(page)

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        params: dict[str, str | int] = {"page": 1, "pageSize": 1}
        self._send("GET", "/sandboxes", "list sandboxes", params=params, seconds=PROBE_SECONDS)

    def delete(self, ref: str) -> None:
        """Missing is success."""
        self._send("DELETE", _at(ref), "delete the sandbox", missing_is_fine=True)

    def relabel(self, ref: str, changes: dict[str, str | None]) -> SandboxRead:
        body: dict[str, JsonValue] = {**changes}
        return read(SandboxRead, self._send("PATCH", f"{_at(ref)}/metadata", "label the sandbox", json=body).body)

    def renew(self, ref: str, until: datetime) -> datetime | None:
        body: JsonValue = {"expiresAt": until.astimezone(UTC).isoformat().replace("+00:00", "Z")}
        answer = self._send("POST", f"{_at(ref)}/renew-expiration", "renew the sandbox", json=body)
        return read(RenewalRead, answer.body).expires_at

    def pause(self, ref: str) -> None:
        self._send("POST", f"{_at(ref)}/pause", "pause the sandbox")

    def resume(self, ref: str) -> None:
        self._send("POST", f"{_at(ref)}/resume", "resume the sandbox")

    # Endpoints.

    def endpoint(self, ref: str, port: int) -> tuple[str, dict[str, str]]:
        """Where a port of the sandbox is reached from here, and the headers that it wants. For our own use only."""
        params: dict[str, str | int] = {"use_server_proxy": "true"} if self._proxied else {}
        found = self._endpoint(ref, port, params)
        headers = dict(found.headers or {})
        if self._proxied:
            # The server names itself as it sees itself; we keep to the address that the operator gave us.
            return f"{self._base}{_at(ref)}/proxy/{port}", {**headers, **self.headers}
        return f"{self._scheme_of_execd}://{found.endpoint.rstrip('/')}", headers

    def signed_endpoint(self, ref: str, port: int, expires: datetime) -> EndpointRead:
        return self._endpoint(ref, port, {"expires": int(expires.timestamp())})

    def _endpoint(self, ref: str, port: int, params: dict[str, str | int]) -> EndpointRead:
        answer = self._send("GET", f"{_at(ref)}/endpoints/{port}", "tell where a port is reached", params=params)
        return read(EndpointRead, answer.body)

    @property
    def host(self) -> str:
        return urlsplit(self._base).netloc

    # Snapshots.

    def snapshot(self, ref: str, name: str) -> SnapshotRead:
        answer = self._send("POST", f"{_at(ref)}/snapshots", "take the snapshot", json={"name": name})
        return read(SnapshotRead, answer.body)

    def snapshot_get(self, ref: str) -> SnapshotRead:
        return read(SnapshotRead, self._send("GET", f"/snapshots/{quote(ref, safe='')}", "find the snapshot").body)

    def snapshots_named(self, sandbox: str, name: str) -> list[SnapshotRead]:
        """Newest first, on one page: a name of ours is used once, so more would be a fault of its own."""
        params: dict[str, str | int] = {"sandboxId": sandbox, "name": name, "page": 1, "pageSize": PAGE_SIZE}
        page = read(SnapshotPage, self._send("GET", "/snapshots", "list snapshots", params=params).body)
        return [seen for seen in page.items if (seen.sandbox_id, seen.name) == (sandbox, name)]

    def snapshot_delete(self, ref: str) -> None:
        self._send("DELETE", f"/snapshots/{quote(ref, safe='')}", "delete the snapshot", missing_is_fine=True)

    # The installation.

    def pool(self, name: str) -> PoolRead:
        return read(PoolRead, self._send("GET", f"/pools/{quote(name, safe='')}", "find the pool").body)

    def pools(self) -> list[PoolRead]:
        return read(PoolList, self._send("GET", "/pools", "list pools").body).items

    def templates(self) -> list[TemplateRead]:
        params: dict[str, str | int] = {"page": 1, "pageSize": PAGE_SIZE}
        return read(TemplatePage, self._send("GET", "/templates", "list templates", params=params).body).items

    def _send(
        self,
        method: str,
        path: str,
        doing: str,
        *,
        params: dict[str, str | int] | None = None,
        json: JsonValue = None,
        seconds: float = CALL_SECONDS,
        secrets: Iterable[str] = (),
        missing_is_fine: bool = False,
    ) -> Answer:
        call = Call(method, self._base + path, seconds, headers=self.headers, params=params or {}, json=json)
        answer = self._transport.send(call)
        if 200 <= answer.status < 300:
            return answer
        error = failure(answer, doing, self._transport, self._clock.now(), secrets)
        if missing_is_fine and isinstance(error, NotFound):
            return answer
        if code_of(answer) == "NOT_FOUND" and method == "POST":  # a snapshot to restore, perhaps on another replica
            error.details["missing"] = "snapshot"
        raise error


def _at(ref: str) -> str:
    return f"/sandboxes/{quote(ref, safe='')}"
