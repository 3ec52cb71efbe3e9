"""The lifecycle server's routes: each call sent once, its answer read, its refusal told as one of our errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import InvalidRequest, NotFound, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ...http import Call, Deadlines, Endpoint, Http, parse_endpoint, segment
from .config import OpenSandboxConfig
from .errors import explain, not_a_page
from .listing import PAGE_SIZE, read_all
from .wire import (
    KEY_INSTALLATION,
    KEY_SANDBOX,
    EndpointRead,
    PolicyRead,
    PoolList,
    PoolRead,
    RenewalRead,
    SandboxPage,
    SandboxRead,
    SnapshotPage,
    SnapshotRead,
    TemplatePage,
    TemplateRead,
    VersionRead,
    read,
)

CALL_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 10.0
VERSION_CHARACTERS_MAX: Final = 64
KEY_HEADER: Final = "OPEN-SANDBOX-API-KEY"


class Lifecycle:
    """`api_key` may be empty: an OpenSandbox on a private network can run without one. `untold` is in no message."""

    def __init__(self, config: OpenSandboxConfig, api_key: str, clock: Clock, untold: Sequence[str] = ()) -> None:
        self._server = config.server()
        self._rules = config.rules()
        self._scheme_of_execd = config.scheme_of_execd
        self._proxied = config.use_server_proxy
        self._headers = {KEY_HEADER: api_key} if api_key else {}
        self._http = Http(
            self._server, clock, headers=self._headers, secrets=[api_key, *untold], rules=self._rules, explain=explain,
            check=not_a_page,
        )  # fmt: skip

    def close(self) -> None:
        self._http.close()

    # Sandboxes.

    def create(self, body: dict[str, JsonValue], seconds: float, secrets: Collection[str]) -> str:
        """The new sandbox's id. What the answer says beyond it is not relied on: it is looked at again anyway."""
        return read(SandboxRead, self._told("POST", "/sandboxes", body=body, seconds=seconds, secrets=secrets)).id

    def sandbox(self, ref: str) -> SandboxRead:
        return read(SandboxRead, self._told("GET", _at(ref)))

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
            query = {"metadata": urlencode(labels), "page": str(number), "pageSize": str(PAGE_SIZE)}
            return read(SandboxPage, self._told("GET", "/sandboxes", query, seconds=seconds))

        return read_all(page)

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        self._told("GET", "/sandboxes", {"page": "1", "pageSize": "1"}, seconds=PROBE_SECONDS)

    def delete(self, ref: str) -> None:
        """Missing is success."""
        self._remove(_at(ref))

    def relabel(self, ref: str, changes: dict[str, str | None]) -> SandboxRead:
        return read(SandboxRead, self._told("PATCH", f"{_at(ref)}/metadata", body={**changes}))

    def renew(self, ref: str, until: datetime) -> datetime | None:
        body: dict[str, JsonValue] = {"expiresAt": until.astimezone(UTC).isoformat().replace("+00:00", "Z")}
        return read(RenewalRead, self._told("POST", f"{_at(ref)}/renew-expiration", body=body)).expires_at

    def pause(self, ref: str) -> None:
        self._http.answer(Call("POST", f"{_at(ref)}/pause", Deadlines(CALL_SECONDS)))

    def resume(self, ref: str) -> None:
        self._http.answer(Call("POST", f"{_at(ref)}/resume", Deadlines(CALL_SECONDS)))

    def policy(self, ref: str) -> PolicyRead:
        """The egress rules in force, as the sandbox's sidecar tells them."""
        return read(PolicyRead, self._told("GET", f"{_at(ref)}/networkpolicy"))

    def set_policy(self, ref: str, rules: dict[str, JsonValue]) -> None:
        self._http.answer(Call("PUT", f"{_at(ref)}/networkpolicy", Deadlines(CALL_SECONDS), body=rules))

    # Endpoints.

    def reach(self, ref: str, port: int) -> Http:
        """A port of the sandbox as it is reached from here, with the headers that it wants. For our own use only."""
        found = self._endpoint(ref, port, {"use_server_proxy": "true"} if self._proxied else {})
        headers = dict(found.headers or {})
        if self._proxied:
            # The server names itself as it sees itself; we keep to the address that the operator gave us.
            path = f"{self._server.path}{_at(ref)}/proxy/{port}"
            return self._http.at(replace(self._server, path=path), {**headers, **self._headers})
        return self._http.at(self._direct(found.endpoint), headers)

    def _direct(self, told: str) -> Endpoint:
        try:
            return parse_endpoint(f"{self._scheme_of_execd}://{told.rstrip('/')}", self._rules)
        except InvalidRequest as error:
            why = error.message.partition(": ")[2]
        raise ProviderUnavailable(f"OpenSandbox tells an address that this pool may not use: {why}", settled=True)

    def signed_endpoint(self, ref: str, port: int, expires: datetime) -> EndpointRead:
        return self._endpoint(ref, port, {"expires": str(int(expires.timestamp()))}, mutates=True)

    def _endpoint(self, ref: str, port: int, query: dict[str, str], *, mutates: bool = False) -> EndpointRead:
        """`mutates`: an address that somebody may have is one, whether or not we heard it."""
        return read(EndpointRead, self._told("GET", f"{_at(ref)}/endpoints/{port}", query, mutates=mutates))

    @property
    def base(self) -> str:
        return self._server.url

    @property
    def host(self) -> str:
        return self._server.authority

    # Snapshots.

    def snapshot(self, ref: str, name: str) -> SnapshotRead:
        return read(SnapshotRead, self._told("POST", f"{_at(ref)}/snapshots", body={"name": name}))

    def snapshot_get(self, ref: str) -> SnapshotRead:
        return read(SnapshotRead, self._told("GET", f"/snapshots/{segment(ref)}"))

    def snapshots_named(self, sandbox: str, name: str) -> list[SnapshotRead]:
        """Newest first, on one page: a name of ours is used once, so more would be a fault of its own."""
        query = {"sandboxId": sandbox, "name": name, "page": "1", "pageSize": str(PAGE_SIZE)}
        page = read(SnapshotPage, self._told("GET", "/snapshots", query))
        return [seen for seen in page.items if (seen.sandbox_id, seen.name) == (sandbox, name)]

    def snapshot_delete(self, ref: str) -> None:
        self._remove(f"/snapshots/{segment(ref)}")

    # The installation.

    def version(self) -> str:
        return read(VersionRead, self._told("GET", "/version", seconds=PROBE_SECONDS)).version[:VERSION_CHARACTERS_MAX]

    def pool(self, name: str) -> PoolRead:
        return read(PoolRead, self._told("GET", f"/pools/{segment(name)}"))

    def pools(self) -> list[PoolRead]:
        return read(PoolList, self._told("GET", "/pools")).items

    def templates(self) -> list[TemplateRead]:
        return read(TemplatePage, self._told("GET", "/templates", {"page": "1", "pageSize": str(PAGE_SIZE)})).items

    # Calls.

    def _told(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: dict[str, JsonValue] | None = None,
        seconds: float = CALL_SECONDS,
        secrets: Collection[str] = (),
        mutates: bool | None = None,
    ) -> JsonValue:
        call = Call(
            method, path, Deadlines(seconds), query=query or {}, body=body, secrets=secrets, mutates=mutates,
            error_inside=_nothing,
        )  # fmt: skip
        return self._http.json(call)

    def _remove(self, path: str) -> None:
        try:
            self._http.answer(Call("DELETE", path, Deadlines(CALL_SECONDS)))
        except NotFound:
            return


def _nothing(body: JsonValue) -> None:
    """OpenSandbox tells errors by the status alone."""


def _at(ref: str) -> str:
    return f"/sandboxes/{segment(ref)}"
