"""Vercel's API: each call sent once, and its refusals told as our errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import (
    BackendError,
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
from .config import VercelConfig
from .wire import TAG_INSTALLATION, PageRead, SandboxRead, read

CALL_SECONDS: Final = 30.0
STOP_SECONDS: Final = 60.0
PAGE_SIZE: Final = 50
_INSIDE: Final = re.compile(r"/v2/sandboxes/sessions/[^/]+/(cmd|fs/[a-z]+)")


class Api:
    def __init__(self, config: VercelConfig, token: str, clock: Clock) -> None:
        self._team = {"teamId": config.team_id}
        self._project = config.project_id
        self.http = Http(
            config.api(), clock, headers={"authorization": f"Bearer {token}"}, secrets=[token], rules=config.rules(),
            explain=explain,
        )  # fmt: skip

    def query(self, **more: str) -> dict[str, str]:
        return {**self._team, **more}

    # Sandboxes, by their names.

    def create(self, body: dict[str, JsonValue], seconds: float) -> SandboxRead:
        body = {"projectId": self._project, **body}
        call = Call("POST", "/v3/sandboxes", Deadlines(seconds), query=self.query(), body=body)
        return read(SandboxRead, self.http.json(call))

    def sandbox(self, name: str) -> SandboxRead:
        """Looking never wakes: without `resume=false` this call would boot it."""
        query = self.query(projectId=self._project, resume="false")
        return read(SandboxRead, self.http.json(Call("GET", _at(name), Deadlines(CALL_SECONDS), query=query)))

    def resumed(self, name: str, seconds: float) -> SandboxRead:
        """Boot it from what it kept. A GET that changes something."""
        query = self.query(projectId=self._project, resume="true")
        return read(SandboxRead, self.http.json(Call("GET", _at(name), Deadlines(seconds), query=query, mutates=True)))

    def named(self, owner: Owner) -> SandboxRead | None:
        """The one that has the owner's name and carries the owner."""
        try:
            seen = self.sandbox(sandbox_name(owner))
        except NotFound:
            return None
        return seen if seen.owner == owner else None

    def of_installation(self, installation: str) -> list[SandboxRead]:
        wanted = self.query(
            project=self._project, limit=str(PAGE_SIZE), sortBy="createdAt", tags=f"{TAG_INSTALLATION}:{installation}"
        )

        def page(cursor: str | None) -> Page[SandboxRead]:
            query = {**wanted, "cursor": cursor} if cursor else wanted
            told = read(PageRead, self.http.json(Call("GET", "/v2/sandboxes", Deadlines(CALL_SECONDS), query=query)))
            onwards = told.pagination.next if told.pagination is not None else None
            return Page([SandboxRead(sandbox=one) for one in told.sandboxes], onwards)

        found = every_item(page, lambda seen: seen.name)
        return [seen for seen in found if seen.owner.installation == installation and seen.owner.sandbox]

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        query = self.query(project=self._project, limit="1")
        self.http.json(Call("GET", "/v2/sandboxes", Deadlines(10.0), query=query))

    def delete(self, name: str) -> None:
        """With what it kept. Missing is success."""
        query = self.query(projectId=self._project, deleteOrphanSnapshots="true")
        try:
            self.http.answer(Call("DELETE", _at(name), Deadlines(STOP_SECONDS), query=query))
        except NotFound:
            return

    def change(self, name: str, body: JsonValue) -> None:
        query = self.query(projectId=self._project)
        self.http.answer(Call("PATCH", _at(name), Deadlines(CALL_SECONDS), query=query, body=body))

    # Sessions.

    def stop(self, session: str, seconds: float) -> None:
        self._move(session, "stop", {}, seconds)

    def extend(self, session: str, milliseconds: int) -> None:
        self._move(session, "extend-timeout", {"duration": milliseconds}, CALL_SECONDS)

    def set_network(self, session: str, policy: JsonValue) -> None:
        self._move(session, "network-policy", policy, CALL_SECONDS)

    def _move(self, session: str, what: str, body: JsonValue, seconds: float) -> None:
        path = f"{of_session(session)}/{what}"
        self.http.answer(Call("POST", path, Deadlines(seconds), query=self.query(), body=body))


def _at(name: str) -> str:
    return f"/v2/sandboxes/{segment(name)}"


def of_session(session: str) -> str:
    return f"/v2/sandboxes/sessions/{segment(session)}"


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What Vercel means where its status alone says too little; None leaves it to the shared table."""
    code = code_in(body)
    if status == 410 and "snapshot" in code:
        return NotFound("What the sandbox kept has expired at Vercel.", status=status, reason=code)
    if status == 410 or code == "sandbox_stopped":
        return InvalidState("The sandbox does not run.", status=status, reason=code or "gone")
    if status == 402:
        return InsufficientCapacity("The Vercel team is at its limit, or does not pay.", reason="quota", status=status)
    if status == 429:
        return InsufficientCapacity("Vercel was asked too often.", reason="rate_limited", status=status)
    if _INSIDE.fullmatch(call.path):
        return _of_command(status)
    return None


def _of_command(status: int) -> DifferentlyError:
    """Nothing of their text is repeated: it may quote the command."""
    match status:
        case 400 | 422:
            return InvalidRequest("Vercel refused the request as wrong.", status=status)
        case 401 | 403:
            return ProviderUnavailable("Vercel says that our token was rejected.", settled=True, status=status)
        case 404:
            return NotFound("The sandbox does not have it.", status=status)
        case _:
            return ExecUnconfirmed("Vercel failed.", settled=400 <= status < 500, status=status)


def code_in(body: JsonValue) -> str:
    match body:
        case {"error": {"code": str(code)}}:
            return code[:64]
        case _:
            return ""


def answered(error: BackendError) -> bool:
    """Whether the service itself said that it failed."""
    return "status" in error.details
