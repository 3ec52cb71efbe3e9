"""CubeAPI: each call sent once, and its refusals told as our errors.

It relays what its scheduler says as 500 with a six-digit code in the text, so the code is what counts. A call that
takes 30 seconds there is answered with 408, and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import (
    DifferentlyError,
    InsufficientCapacity,
    InvalidRequest,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.runtime.clock import Clock

from ... import envd
from ...http import Call, Deadlines, Http, segment
from ...pages import Page, every_item
from .config import CubeSandboxConfig
from .wire import CreatedRead, SandboxRead, SnapshotRead, TemplateRead, oldest_first, read

CALL_SECONDS: Final = 35.0
"""A little more than CubeAPI gives itself."""
PAGE_SIZE: Final = 100
NEXT: Final = "x-next-token"
_CODE: Final = re.compile(r"\b13\d{4}\b")
_NO_ROOM: Final = frozenset({"130597", "130592", "130429", "130480", "130519", "130527", "130567"})
"""No node has the resources, too many requests at once, a full disk."""
_NO_TEMPLATE: Final = frozenset({"130404", "130498", "130400", "130483"})
_SERVICE: Final = frozenset({"130500", "130593", "130594", "130595", "130596", "130598", "130599"})
"""The service itself failed. All others are about the one sandbox."""


class Api:
    def __init__(self, config: CubeSandboxConfig, api_key: str, clock: Clock, untold: Collection[str] = ()) -> None:
        self._nodes_max = config.nodes_max
        self.http = Http(
            config.api(), clock, headers={"x-api-key": api_key} if api_key else {},
            secrets=[value for value in (api_key, *untold) if value], rules=config.rules(), explain=explain,
        )  # fmt: skip

    # Sandboxes.

    def create(self, body: JsonValue, seconds: float) -> str:
        return read(CreatedRead, self.http.json(Call("POST", "/sandboxes", Deadlines(seconds), body=body))).sandbox_id

    def sandbox(self, ref: str) -> SandboxRead:
        return read(SandboxRead, self.http.json(Call("GET", _at(ref), Deadlines(CALL_SECONDS))))

    def owned(self, owner: Owner) -> list[SandboxRead]:
        """What carries the owner on itself, oldest first."""
        return oldest_first([seen for seen in self._all() if seen.owner == owner])

    def of_installation(self, installation: str) -> list[SandboxRead]:
        return [seen for seen in self._all() if seen.owner.installation == installation and seen.owner.sandbox]

    def _all(self) -> list[SandboxRead]:
        """Everybody's: a filter is applied after a page was cut, so what it leaves says nothing about the rest.

        Some releases count nodes by `limit` and know no pages, others count sandboxes. A page of just as many as were
        asked for that leads nowhere may be a cut one.
        """

        def page(cursor: str | None) -> Page[SandboxRead]:
            query = {"limit": str(self._nodes_max)} | ({"nextToken": cursor} if cursor else {})
            items, onwards = self._items("/v2/sandboxes", query)
            found = read(list[SandboxRead], items)
            if len(found) == self._nodes_max and not onwards:
                raise ProviderUnavailable("CubeSandbox's list may be cut; raise the pool's nodesMax.", settled=True)
            return Page(found, onwards)

        return every_item(page, lambda seen: seen.sandbox_id)

    def _items(self, path: str, query: Mapping[str, str]) -> tuple[JsonValue, str | None]:
        with self.http.stream(Call("GET", path, Deadlines(CALL_SECONDS), query=query)) as answer:
            return answer.json(), answer.headers.get(NEXT)

    def look(self) -> None:
        """The cheapest call that needs the credential, where one is needed."""
        self.http.json(Call("GET", "/v2/sandboxes", Deadlines(10.0), query={"limit": "1"}))

    def delete(self, ref: str) -> None:
        """Missing is success."""
        self._gone(_at(ref))

    def set_timeout(self, ref: str, seconds: int) -> None:
        self.http.answer(Call("POST", f"{_at(ref)}/timeout", Deadlines(CALL_SECONDS), body={"timeout": seconds}))

    def pause(self, ref: str) -> None:
        """Answered before it is done."""
        self.http.answer(Call("POST", f"{_at(ref)}/pause", Deadlines(CALL_SECONDS)))

    def connect(self, ref: str, timeout: int) -> None:
        """Resume it. A timeout is always sent: without one some releases take fifteen seconds."""
        self.http.answer(Call("POST", f"{_at(ref)}/connect", Deadlines(CALL_SECONDS), body={"timeout": timeout}))

    # Snapshots and templates.

    def snapshot(self, ref: str, name: str, seconds: float) -> None:
        self.http.answer(Call("POST", f"{_at(ref)}/snapshots", Deadlines(seconds), body={"name": name}))

    def snapshots(self) -> list[SnapshotRead]:
        def page(cursor: str | None) -> Page[SnapshotRead]:
            query = {"limit": str(PAGE_SIZE)} | ({"nextToken": cursor} if cursor else {})
            items, onwards = self._items("/snapshots", query)
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


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What CubeSandbox means where its status alone says too little; None leaves it to the shared table."""
    if envd.is_ours(call.path):
        return envd.refusal(status, body)
    if status == 429:
        return InsufficientCapacity("CubeSandbox was asked too often.", reason="rate_limited", status=status)
    if (call.method, call.path) == ("POST", "/sandboxes"):
        message = str(body.get("message", "")) if isinstance(body, dict) else ""
        return _create_refused(status, message)
    return None


def _create_refused(status: int, message: str) -> DifferentlyError | None:
    found = _CODE.search(message)
    code = found[0] if found else ""
    text = message.lower()
    if status == 404 or code in _NO_TEMPLATE or ("template" in text and "not found" in text):
        return InvalidRequest("CubeSandbox has no such template.", field="image", status=status)
    if code in _NO_ROOM:
        return InsufficientCapacity("CubeSandbox has no room now.", status=status, reason=code)
    if code and code not in _SERVICE:
        return SandboxFailed("CubeSandbox could not start the sandbox.", status=status, reason=code)
    return None
