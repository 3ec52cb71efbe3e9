"""Northflank's API: each call sent once, and its refusals told as our errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.errors import DifferentlyError, InsufficientCapacity, NotFound, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ...http import Call, Deadlines, Http, segment
from ...pages import Page, every_item
from .config import NorthflankConfig
from .wire import ServiceAnswer, ServicePage, ServiceRead, read

CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 100
_FULL: Final = ("quota", "limit", "capacity", "billing", "payment")
"""In the id or text of a refusal that is about room; which words there are is not documented."""


class Api:
    def __init__(self, config: NorthflankConfig, token: str, clock: Clock, untold: Collection[str] = ()) -> None:
        """`untold` is in no message."""
        self.token = token
        team = f"/teams/{segment(config.team)}" if config.team else ""
        self._services = f"{team}/projects/{segment(config.project)}/services"
        self.http = Http(
            config.api(), clock, headers={"authorization": f"Bearer {token}"}, secrets=[token, *untold],
            rules=config.rules(), explain=explain,
        )  # fmt: skip

    def create(self, body: JsonValue, seconds: float, secrets: Collection[str]) -> ServiceRead:
        call = Call("POST", f"{self._services}/deployment", Deadlines(seconds), body=body, secrets=secrets)
        return read(ServiceAnswer, self.http.json(call)).data

    def service(self, ref: str) -> ServiceRead:
        return read(ServiceAnswer, self.http.json(Call("GET", self._at(ref), Deadlines(CALL_SECONDS)))).data

    def of_installation(self, installation: str) -> list[ServiceRead]:
        """Out of all services of the project."""
        found = every_item(self._page, lambda seen: seen.id)
        return [seen for seen in found if seen.owner.installation == installation and seen.owner.sandbox]

    def _page(self, cursor: str | None) -> Page[ServiceRead]:
        query = {"per_page": str(PAGE_SIZE)} | ({"cursor": cursor} if cursor else {})
        told = read(ServicePage, self.http.json(Call("GET", self._services, Deadlines(CALL_SECONDS), query=query)))
        if told.pagination.goes_on and not told.pagination.cursor:
            raise ProviderUnavailable("Northflank tells of a next page and not where it is.", settled=True)
        return Page(told.data.services, told.pagination.cursor if told.pagination.goes_on else None)

    def look(self) -> None:
        """The cheapest call that needs the credential and the project."""
        read(ServicePage, self.http.json(Call("GET", self._services, Deadlines(10.0), query={"per_page": "1"})))

    def delete(self, ref: str) -> None:
        """Missing is success."""
        try:
            self.http.answer(Call("DELETE", self._at(ref), Deadlines(CALL_SECONDS)))
        except NotFound:
            return

    def command_path(self, ref: str) -> str:
        return f"/command-exec{self._at(ref)}"

    def _at(self, ref: str) -> str:
        return f"{self._services}/{segment(ref)}"


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What Northflank means where its status alone says too little; None leaves it to the shared table."""
    if status == 429:
        return InsufficientCapacity("Northflank was asked too often.", reason="rate_limited", status=status)
    error = body.get("error") if isinstance(body, dict) else None
    told = f"{error.get('id', '')} {error.get('message', '')}".lower() if isinstance(error, dict) else ""
    refused_for_room = status in {400, 402, 403, 409} and any(word in told for word in _FULL)
    if call.method == "POST" and (status == 402 or refused_for_room):
        return InsufficientCapacity("Northflank's plan or service has no room.", reason="quota", status=status)
    return None
