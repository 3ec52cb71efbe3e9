"""Blaxel's control plane: each call sent once, and its refusals told as our errors.

The version of the API is pinned: lists have pages from one version on, and were bare before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import (
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)
from differently_core.runtime.clock import Clock

from ...http import Call, Deadlines, Http, segment
from ...names import digest, sandbox_name
from ...pages import Page, every_item
from .config import BlaxelConfig
from .wire import GONE, PageRead, SandboxRead, read

VERSION: Final = "2026-09-22"
CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 50
PROCESS: Final = "/process"


class Api:
    def __init__(self, config: BlaxelConfig, api_key: str, clock: Clock) -> None:
        self.headers = {
            "x-blaxel-authorization": f"Bearer {api_key}", "x-blaxel-workspace": config.workspace,
            "blaxel-version": VERSION,
        }  # fmt: skip
        self.http = Http(
            config.api(), clock, headers=self.headers, secrets=[api_key], rules=config.rules(), explain=explain
        )

    def create(self, body: JsonValue, seconds: float) -> SandboxRead:
        """The new sandbox, or the one that has its name already, whoever it belongs to."""
        call = Call("POST", "/sandboxes", Deadlines(seconds), query={"createIfNotExist": "true"}, body=body)
        return read(SandboxRead, self.http.json(call))

    def sandbox(self, name: str) -> SandboxRead:
        """`NotFound` also for one that Blaxel still tells of and that is gone."""
        seen = read(SandboxRead, self.http.json(Call("GET", _at(name), Deadlines(CALL_SECONDS))))
        if seen.status == GONE:
            raise NotFound("The sandbox is gone.")
        return seen

    def named(self, owner: Owner) -> SandboxRead | None:
        """The one that has the owner's name and carries the owner."""
        try:
            seen = self.sandbox(sandbox_name(owner))
        except NotFound:
            return None
        return seen if seen.owner == owner else None

    def of_installation(self, installation: str) -> list[SandboxRead]:
        wanted = {"externalId": external_id(installation), "limit": str(PAGE_SIZE), "showTerminated": "false"}

        def page(cursor: str | None) -> Page[SandboxRead]:
            query = {**wanted, "cursor": cursor} if cursor else wanted
            told = read(PageRead, self.http.json(Call("GET", "/sandboxes", Deadlines(CALL_SECONDS), query=query)))
            if told.meta.has_more and not told.meta.next_cursor:
                raise ProviderUnavailable("Blaxel says that its list goes on, and not where.", settled=True)
            return Page(told.data, told.meta.next_cursor if told.meta.has_more else None)

        found = every_item(page, lambda seen: seen.name)
        return [
            seen for seen in found
            if seen.owner.installation == installation and seen.owner.sandbox and seen.status != GONE
        ]  # fmt: skip

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        self.http.json(Call("GET", "/sandboxes", Deadlines(10.0), query={"limit": "1"}))

    def delete(self, name: str) -> None:
        """Missing is success."""
        try:
            self.http.answer(Call("DELETE", _at(name), Deadlines(CALL_SECONDS)))
        except NotFound:
            return


def external_id(installation: str) -> str:
    """What lists are filtered by. It permits few characters, and proves nothing."""
    return f"differently-{digest(installation)}"


def _at(name: str) -> str:
    return f"/sandboxes/{segment(name)}"


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What Blaxel means where its status alone says too little; None leaves it to the shared table."""
    if call.path == PROCESS or call.path.startswith("/filesystem/"):
        return _inside(status)
    code = str(body.get("code", "")) if isinstance(body, dict) else ""
    if code == "INVALID_IMAGE":
        return InvalidRequest("Blaxel has no such image.", field="image", status=status)
    if code == "QUOTA_EXCEEDED":
        return InsufficientCapacity("The Blaxel workspace is at its limit.", reason="quota", status=status)
    if status == 429:
        return InsufficientCapacity("Blaxel was asked too often.", reason="rate_limited", status=status)
    return None


def _inside(status: int) -> DifferentlyError:
    """Nothing of their text is repeated: it may quote the command."""
    match status:
        case 400 | 422:
            return InvalidRequest("Blaxel refused the request as wrong.", status=status)
        case 401 | 403:
            return ProviderUnavailable("Blaxel says that our key was rejected.", settled=True, status=status)
        case 404:
            return NotFound("The sandbox does not have it.", status=status)
        case 409:
            return InvalidState("The sandbox cannot do this now.", status=status)
        case 429:
            return InsufficientCapacity("Blaxel was asked too often.", reason="rate_limited", status=status)
        case _:
            return ExecUnconfirmed("Blaxel failed, or gave up waiting for the command.", status=status)
