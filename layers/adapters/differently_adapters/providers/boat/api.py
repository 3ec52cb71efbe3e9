"""Boat's API: each call sent once, and its refusals told as our errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import (
    DifferentlyError,
    InsufficientCapacity,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.runtime.clock import Clock

from ...http import STATUSES, Call, Deadlines, Http, Status, segment
from ...http.failures import refused, status_row
from ...pages import Page, every_item
from .config import BoatConfig
from .wire import (
    LimitsRead,
    MachinePage,
    MachineRead,
    MachineTold,
    SnapshotRead,
    SnapshotsTold,
    SnapshotTold,
    read,
)

CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 100
REF: Final = re.compile(r"bx_[2-9a-hjkmnp-z]{8}")
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ROOM: Final = Status(InsufficientCapacity, "Boat has no room for it, or the account none left.", settled=True)
_CODES: Final[Mapping[str, Status]] = {
    "no_ready_machine": _NO_ROOM,
    "boat_starting": Status(ProviderUnavailable, "The machine is still starting; nothing was run.", settled=True),
    "snapshot_data_expired": Status(SandboxFailed, "Boat no longer has the machine's disk.", settled=True),
}
_STATUSES: Final[Mapping[int, Status]] = {**STATUSES, 402: _NO_ROOM}


class Api:
    def __init__(self, config: BoatConfig, api_key: str, clock: Clock, untold: Collection[str] = ()) -> None:
        """`untold` is in no message."""
        self.http = Http(
            config.api(), clock, headers={"authorization": f"Bearer {api_key}", "x-boat-org": config.org},
            secrets=[api_key, *untold], rules=config.rules(), explain=explain,
        )  # fmt: skip

    # Machines.

    def create(self, body: JsonValue, key: str, seconds: float, secrets: Collection[str]) -> MachineRead:
        """Raises `InvalidState`, with the code as its reason, for a key that is in use."""
        call = Call(
            "POST", "/sandboxes", Deadlines(seconds), body=body, headers={"idempotency-key": key}, secrets=secrets
        )
        return read(MachineTold, self.http.json(call)).sandbox

    def machine(self, ref: str) -> MachineRead:
        return read(MachineTold, self._told("GET", at(ref))).sandbox

    def of_installation(self, installation: str) -> list[MachineRead]:
        """Boat filters by no name, and an organization's list holds everybody's."""

        def page(cursor: str | None) -> Page[MachineRead]:
            query = {"limit": str(PAGE_SIZE)} | ({"cursor": cursor} if cursor else {})
            told = read(MachinePage, self._told("GET", "/sandboxes", query))
            if told.page_info.has_more and not told.page_info.next_cursor:
                raise ProviderUnavailable("Boat's list goes on and does not say where.", settled=True)
            return Page(told.sandboxes, told.page_info.next_cursor if told.page_info.has_more else None)

        found = every_item(page, lambda seen: seen.id)
        return [seen for seen in found if seen.owner.installation == installation]

    def owned(self, owner: Owner) -> list[MachineRead]:
        """What has the owner's name on itself, oldest first."""
        found = [seen for seen in self.of_installation(owner.installation) if seen.owner == owner]
        return sorted(found, key=lambda seen: (seen.created_at or _LONG_AGO, seen.id))

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        self._told("GET", "/me")

    def limits(self) -> LimitsRead:
        return read(LimitsRead, self._told("GET", "/limits"))

    def delete(self, ref: str) -> None:
        """Out of every list at once, and erased in the background. Missing is success."""
        self._gone(at(ref), {"x-ascii-confirm-delete": ref})

    def set_ttl(self, ref: str, seconds: int) -> None:
        """Counted from now."""
        self._told("PATCH", at(ref), body={"ttlSeconds": seconds})

    def stop(self, ref: str, seconds: float) -> None:
        self.http.answer(Call("POST", f"{at(ref)}/stop", Deadlines(seconds), body={"force": False}))

    def resume(self, ref: str, body: JsonValue, seconds: float) -> None:
        self.http.answer(Call("POST", f"{at(ref)}/resume", Deadlines(seconds), body=body))

    # Saved snapshots.

    def save(self, ref: str, name: str) -> SnapshotRead:
        body: JsonValue = {"sandboxId": ref, "name": name}
        return read(SnapshotTold, self._told("POST", "/saved-snapshots", body=body)).snapshot

    def snapshot(self, name: str) -> SnapshotRead:
        return read(SnapshotTold, self._told("GET", f"/saved-snapshots/{segment(name)}")).snapshot

    def snapshots(self) -> list[SnapshotRead]:
        return read(SnapshotsTold, self._told("GET", "/saved-snapshots")).snapshots

    def snapshot_delete(self, name: str) -> None:
        self._gone(f"/saved-snapshots/{segment(name)}", {})

    def _gone(self, path: str, headers: Mapping[str, str]) -> None:
        try:
            self.http.answer(Call("DELETE", path, Deadlines(CALL_SECONDS), headers=headers))
        except NotFound:
            return

    def _told(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, body: JsonValue = None
    ) -> JsonValue:
        return self.http.json(Call(method, path, Deadlines(CALL_SECONDS), query=query or {}, body=body))


def at(ref: str) -> str:
    """Raises `NotFound` for what cannot be one of Boat's ids."""
    if not REF.fullmatch(ref):
        raise NotFound("Boat cannot have a machine of this id.")
    return f"/sandboxes/{ref}"


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """By its code where that says more than the status; None leaves it to the shared table."""
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        return None
    code, message = str(body["code"])[:100], body.get("message")
    details: dict[str, str | int] = {"status": status, "reason": code}
    if isinstance(message, str) and status not in {401, 403} and call.hide(message):
        details["provider_message"] = call.hide(message)
    row = _CODES.get(code) or status_row(status, _STATUSES)
    return refused(row, mutates=call.changes, lost=call.lost, **details)
