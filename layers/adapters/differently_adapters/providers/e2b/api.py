"""E2B's control API: each call sent once, and its refusals told as our errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import (
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.runtime.clock import Clock

from ... import envd
from ...http import Call, Deadlines, Http, segment
from ...pages import Page, every_item
from .config import E2bConfig
from .wire import (
    KEY_INSTALLATION,
    KEY_SANDBOX,
    CreatedRead,
    SandboxRead,
    SnapshotRead,
    TemplateRead,
    oldest_first,
    read,
)

CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 100
NEXT: Final = "x-next-token"
_NO_ROOM: Final = frozenset({"sandbox_capacity_unavailable", "sandbox_placement_timeout", "sandbox_no_compatible_node"})
_CREATES: Final = frozenset({"/v2/sandboxes", "/sandboxes"})


class Api:
    def __init__(self, config: E2bConfig, api_key: str, clock: Clock, untold: Sequence[str] = ()) -> None:
        self._creates = "/sandboxes" if config.legacy_create else "/v2/sandboxes"
        self._connects = "" if config.legacy_create else "/v2"
        self.http = Http(
            config.api(), clock, headers={"x-api-key": api_key}, secrets=[api_key, *untold],
            rules=config.rules(), explain=explain,
        )  # fmt: skip

    # Sandboxes.

    def create(self, body: JsonValue, key: str, seconds: float) -> str:
        """The new sandbox's id, or that of the one that was made under this key before."""
        call = Call("POST", self._creates, Deadlines(seconds), headers={"idempotency-key": key}, body=body)
        return read(CreatedRead, self.http.json(call)).sandbox_id

    def sandbox(self, ref: str) -> SandboxRead:
        return read(SandboxRead, self.http.json(Call("GET", _at(ref), Deadlines(CALL_SECONDS))))

    def owned(self, owner: Owner) -> list[SandboxRead]:
        """What carries the owner on itself, oldest first."""
        wanted = {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}
        return oldest_first([seen for seen in self._labelled(wanted) if seen.owner == owner])

    def of_installation(self, installation: str) -> list[SandboxRead]:
        found = self._labelled({KEY_INSTALLATION: installation})
        return [seen for seen in found if seen.owner.installation == installation and seen.owner.sandbox]

    def _labelled(self, wanted: Mapping[str, str]) -> list[SandboxRead]:
        def page(cursor: str | None) -> Page[SandboxRead]:
            return self._page("/v2/sandboxes", {"metadata": _quoted_twice(wanted), "state": "running,paused"}, cursor)

        return every_item(page, lambda seen: seen.sandbox_id)

    def _page(self, path: str, query: Mapping[str, str], cursor: str | None) -> Page[SandboxRead]:
        items, cursor = self._items(path, query, cursor)
        return Page(read(list[SandboxRead], items), cursor)

    def _items(self, path: str, query: Mapping[str, str], cursor: str | None) -> tuple[JsonValue, str | None]:
        onwards = {"nextToken": cursor} if cursor else {}
        call = Call("GET", path, Deadlines(CALL_SECONDS), query={**query, "limit": str(PAGE_SIZE), **onwards})
        with self.http.stream(call) as answer:
            return answer.json(), answer.headers.get(NEXT)

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        self.http.json(Call("GET", "/v2/sandboxes", Deadlines(10.0), query={"limit": "1"}))

    def delete(self, ref: str) -> None:
        """Missing is success."""
        self._gone(_at(ref))

    def set_timeout(self, ref: str, seconds: int) -> None:
        self.http.answer(Call("POST", f"{_at(ref)}/timeout", Deadlines(CALL_SECONDS), body={"timeout": seconds}))

    def pause(self, ref: str, seconds: float) -> None:
        self.http.answer(Call("POST", f"{_at(ref)}/pause", Deadlines(seconds), body={"memory": True}))

    def connect(self, ref: str, timeout: int, seconds: float) -> None:
        """Resume it. A timeout is always sent: without one E2B takes five minutes."""
        path = f"{self._connects}{_at(ref)}/connect"
        self.http.answer(Call("POST", path, Deadlines(seconds), body={"timeout": timeout}))

    def set_network(self, ref: str, rules: JsonValue) -> None:
        self.http.answer(Call("PUT", f"{_at(ref)}/network", Deadlines(CALL_SECONDS), body=rules))

    # Snapshots and templates.

    def snapshot(self, ref: str, name: str, seconds: float) -> SnapshotRead:
        call = Call("POST", f"{_at(ref)}/snapshots", Deadlines(seconds), body={"name": name})
        return read(SnapshotRead, self.http.json(call))

    def snapshots_named(self, name: str) -> list[SnapshotRead]:
        def page(cursor: str | None) -> Page[SnapshotRead]:
            items, onwards = self._items("/snapshots", {"name": name}, cursor)
            return Page(read(list[SnapshotRead], items), onwards)

        return every_item(page, lambda seen: seen.snapshot_id)

    def snapshot_delete(self, ref: str) -> None:
        """Missing is success."""
        self._gone(f"/templates/{segment(ref)}")

    def templates(self) -> list[TemplateRead]:
        return read(list[TemplateRead], self.http.json(Call("GET", "/templates", Deadlines(CALL_SECONDS))))

    def _gone(self, path: str) -> None:
        try:
            self.http.answer(Call("DELETE", path, Deadlines(CALL_SECONDS)))
        except NotFound:
            return


def _at(ref: str) -> str:
    return f"/sandboxes/{segment(ref)}"


def _quoted_twice(wanted: Mapping[str, str]) -> str:
    """A query string inside the query string, whose own parts were quoted before: as E2B's client sends it."""
    return urlencode({quote(key, safe=""): quote(value, safe="") for key, value in wanted.items()}, quote_via=quote)


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What E2B means where its status alone says too little; None leaves it to the shared table."""
    if envd.is_ours(call.path):
        return envd.refusal(status, body)
    told = body if isinstance(body, dict) else {}
    code, message = str(told.get("error_code", "")), str(told.get("message", "")).lower()
    creates = call.method == "POST" and call.path in _CREATES
    if status == 429:
        return _too_many(message)
    if code in _NO_ROOM:
        return InsufficientCapacity("E2B has no room now.", status=status, reason=code)
    if code.startswith("idempotency_"):
        if code == "idempotency_request_mismatch":
            return InvalidState("E2B made another sandbox under this key.", status=status, reason=code)
        return ProviderUnavailable("E2B does not know yet what became of the create.", status=status, reason=code)
    if code in {"sandbox_create_failed", "sandbox_create_refused"}:
        refused = code == "sandbox_create_refused"
        return SandboxFailed("E2B could not start the sandbox.", settled=refused, status=status, reason=code)
    if creates and (status == 404 or (status == 403 and "template" in message)):
        return InvalidRequest("E2B has no such template, or it is another team's.", field="image", status=status)
    return None


def _too_many(message: str) -> InsufficientCapacity:
    """One status for two things. A cap is told by its words; it lags behind deletes, so it may pass by itself."""
    if "maximum number" in message or "concurrent" in message:
        return InsufficientCapacity(
            "The E2B team runs as many sandboxes as its plan permits.", reason="quota", status=429
        )
    return InsufficientCapacity("E2B was asked too often.", reason="rate_limited", status=429)
