"""Daytona's API: each call sent once, and its refusals told as our errors, many of them by their words alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
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
from ...names import sandbox_name
from ...pages import Page, every_item
from .config import DaytonaConfig
from .wire import KEY_INSTALLATION, PreviewRead, SandboxPage, SandboxRead, SnapshotRead, read

CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 200
EXECUTE: Final = "/process/execute"


class Api:
    def __init__(self, config: DaytonaConfig, api_key: str, clock: Clock, untold: Sequence[str] = ()) -> None:
        self.headers = {"authorization": f"Bearer {api_key}", "x-daytona-source": "differently"}
        if config.organization_id is not None:
            self.headers["x-daytona-organization-id"] = config.organization_id
        self.http = Http(
            config.api(), clock, headers=self.headers, secrets=[api_key, *untold], rules=config.rules(),
            explain=explain,
        )  # fmt: skip

    # Sandboxes.

    def create(self, body: JsonValue, seconds: float) -> SandboxRead:
        return read(SandboxRead, self.http.json(Call("POST", "/sandbox", Deadlines(seconds), body=body)))

    def sandbox(self, ref: str) -> SandboxRead:
        """By its id or its name. One that ended while in error is told as gone."""
        return read(SandboxRead, self.http.json(Call("GET", _at(ref), Deadlines(CALL_SECONDS))))

    def named(self, owner: Owner) -> SandboxRead | None:
        """The one that has the owner's name and carries the owner. Names are told without delay, lists are not."""
        try:
            seen = self.sandbox(sandbox_name(owner))
        except NotFound:
            return None
        return seen if seen.owner == owner else None

    def of_installation(self, installation: str) -> list[SandboxRead]:
        wanted = {"labels": json.dumps({KEY_INSTALLATION: installation}), "limit": str(PAGE_SIZE)}

        def page(cursor: str | None) -> Page[SandboxRead]:
            onwards = {"cursor": cursor} if cursor else {}
            call = Call("GET", "/sandbox", Deadlines(CALL_SECONDS), query={**wanted, **onwards})
            told = read(SandboxPage, self.http.json(call))
            return Page(told.items, told.next_cursor)

        found = every_item(page, lambda seen: seen.id)
        return [seen for seen in found if seen.owner.installation == installation and seen.owner.sandbox]

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        self.http.json(Call("GET", "/sandbox", Deadlines(10.0), query={"limit": "1"}))

    def delete(self, ref: str) -> None:
        self.http.answer(Call("DELETE", _at(ref), Deadlines(CALL_SECONDS)))

    def stop(self, ref: str) -> None:
        self._move(f"{_at(ref)}/stop")

    def start(self, ref: str) -> None:
        self._move(f"{_at(ref)}/start")

    def set_ttl(self, ref: str, minutes: int) -> None:
        self._move(f"{_at(ref)}/ttl/{minutes}")

    def set_network(self, ref: str, rules: JsonValue) -> None:
        self.http.answer(Call("POST", f"{_at(ref)}/network-settings", Deadlines(CALL_SECONDS), body=rules))

    def preview(self, ref: str, port: int, seconds: int) -> str:
        path = f"{_at(ref)}/ports/{port}/signed-preview-url"
        call = Call("GET", path, Deadlines(CALL_SECONDS), query={"expiresInSeconds": str(seconds)}, mutates=True)
        return read(PreviewRead, self.http.json(call)).url

    # Snapshots.

    def snapshot(self, ref: str, name: str) -> None:
        body: JsonValue = {"name": name, "includeMemory": False}
        self.http.answer(Call("POST", f"{_at(ref)}/snapshot", Deadlines(CALL_SECONDS), body=body))

    def snapshot_get(self, name: str) -> SnapshotRead:
        path = f"/snapshots/{segment(name)}"
        return read(SnapshotRead, self.http.json(Call("GET", path, Deadlines(CALL_SECONDS))))

    def snapshot_delete(self, identity: str) -> None:
        """By its id, not its name. Missing is success."""
        try:
            self.http.answer(Call("DELETE", f"/snapshots/{segment(identity)}", Deadlines(CALL_SECONDS)))
        except NotFound:
            return

    def _move(self, path: str) -> None:
        self.http.answer(Call("POST", path, Deadlines(CALL_SECONDS)))


def _at(ref: str) -> str:
    return f"/sandbox/{segment(ref)}"


def ttl_minutes(created_at: datetime, until: datetime) -> int:
    """Whole minutes since the creation, which is how Daytona counts; never beyond what was asked."""
    return max(1, int((until - created_at).total_seconds() // 60))


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What Daytona means where its status alone says too little; None leaves it to the shared table."""
    message = str(body.get("message", "")).lower() if isinstance(body, dict) else ""
    if call.path == EXECUTE:
        return _of_command(status, message)
    if status == 429:
        return InsufficientCapacity("Daytona was asked too often.", reason="rate_limited", status=status)
    if status in {400, 409, 503}:
        return _by_words(status, message)
    return None


def _of_command(status: int, message: str) -> DifferentlyError:
    """Nothing of their text is repeated: it may quote the command."""
    match status:
        case 400 if "not started" in message:
            return InvalidState("The sandbox does not run.", status=status)
        case 400:
            return InvalidRequest("Daytona refused the command as wrong.", status=status)
        case 408:
            return ExecUnconfirmed("Daytona ended the command for its time; what it wrote is lost.", status=status)
        case 401 | 403:
            return ProviderUnavailable("Daytona rejected our key in the sandbox.", settled=True, status=status)
        case 404:
            return NotFound("The sandbox is gone.", status=status)
        case 429:
            return InsufficientCapacity("Daytona was asked too often.", reason="rate_limited", status=status)
        case _:
            return ExecUnconfirmed("Daytona failed to run the command to its end.", status=status)


def _by_words(status: int, message: str) -> DifferentlyError | None:
    """One status for caps of the organization, caps of one sandbox, and everything that is wrong with a request."""
    if "limit exceeded" in message:
        return InsufficientCapacity("The Daytona organization is at its limit.", reason="quota", status=status)
    if "no available runners" in message:
        return InsufficientCapacity("Daytona has no room now.", reason="no_runners", status=status)
    if "exceeds maximum allowed" in message:
        return InvalidRequest(
            "The size is over what the Daytona organization permits.", field="resources", status=status
        )
    if "state change in progress" in message:
        return InvalidState("The sandbox is on its way to another state.", status=status, reason="in_transition")
    if "already exists" in message:
        return InvalidState("The name is taken at Daytona.", status=status, reason="name_taken")
    if "fork" in message:
        return InvalidState("Sandboxes that were forked from it still exist.", status=status)
    if status == 503:
        return ProviderUnavailable("Daytona does not work now.", status=status)
    return None
