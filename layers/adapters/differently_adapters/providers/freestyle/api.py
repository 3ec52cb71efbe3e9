"""Freestyle's API: each call sent once, and its refusals told as our errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import (
    DifferentlyError,
    InsufficientCapacity,
    NotFound,
)
from differently_core.runtime.clock import Clock

from ...http import STATUSES, Call, Deadlines, Http, segment
from ...http.failures import refused, status_row
from ...numbered import every_numbered
from .config import FreestyleConfig
from .wire import (
    KEY_INSTALLATION,
    SnapshotMade,
    SnapshotPage,
    SnapshotRead,
    TlsPage,
    TlsRead,
    VmPage,
    VmRead,
    read,
)

CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 100
_FULL: Final = ("QUOTA", "LIMIT", "CAPACITY", "EXCEEDED")
"""In the code of a refusal that is about room; the codes themselves are not documented."""


class Api:
    def __init__(self, config: FreestyleConfig, api_key: str, clock: Clock, untold: Collection[str] = ()) -> None:
        """`untold` is in no message."""
        self.http = Http(
            config.api(), clock, headers={"authorization": f"Bearer {api_key}"}, secrets=[api_key, *untold],
            rules=config.rules(), explain=explain,
        )  # fmt: skip

    # VMs.

    def create(self, body: JsonValue, seconds: float, secrets: Collection[str]) -> VmRead:
        """Raises `InvalidState` when the slug is taken."""
        return read(VmRead, self.http.json(Call("POST", "/v5/vms", Deadlines(seconds), body=body, secrets=secrets)))

    def vm(self, ref: str) -> VmRead:
        """By its id or slug."""
        return read(VmRead, self._told("GET", _at(ref)))

    def of_installation(self, installation: str) -> list[VmRead]:
        query = {"metadata": f"{KEY_INSTALLATION}:{installation}"}

        def page(_: int, before: int) -> tuple[list[VmRead], int]:
            told = read(VmPage, self._page("/v5/vms", query, before))
            return told.vms, told.total_count

        found = every_numbered(page, lambda vm: vm.id)
        return [vm for vm in found if vm.owner.installation == installation and vm.owner.sandbox]

    def owned(self, owner: Owner) -> list[VmRead]:
        """What carries the owner on itself, oldest first."""
        found = [vm for vm in self.of_installation(owner.installation) if vm.owner == owner]
        return sorted(found, key=lambda vm: (vm.created_at, vm.id))

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        self._told("GET", "/v5/vms", {"limit": "1"})

    def delete(self, ref: str) -> None:
        """Missing is success."""
        self._gone(_at(ref))

    def set_ttl(self, ref: str, seconds: int) -> VmRead:
        """Counted from the creation."""
        return read(VmRead, self._told("PATCH", _at(ref), body={"ttlSeconds": seconds}))

    def start(self, ref: str, seconds: float) -> None:
        """Boot it, or resume it with its memory."""
        self.http.answer(Call("POST", f"{_at(ref)}/start", Deadlines(seconds), body={}))

    def pause(self, ref: str, seconds: float) -> None:
        self.http.answer(Call("POST", f"{_at(ref)}/pause", Deadlines(seconds), body={}))

    # Snapshots.

    def snapshot(self, ref: str, body: JsonValue, seconds: float) -> str:
        return read(
            SnapshotMade, self.http.json(Call("POST", f"{_at(ref)}/snapshot", Deadlines(seconds), body=body))
        ).snapshot_id

    def snapshots(self, source: str | None = None) -> list[SnapshotRead]:
        query = {"sourceVmId": source} if source is not None else {}

        def page(_: int, before: int) -> tuple[list[SnapshotRead], int]:
            told = read(SnapshotPage, self._page("/v5/snapshots", query, before))
            return told.snapshots, told.total_count

        return every_numbered(page, lambda seen: seen.id)

    def snapshot_delete(self, ref: str) -> None:
        self._gone(f"/v5/snapshots/{segment(ref)}")

    # Ports.

    def tls_rules(self, ref: str) -> list[TlsRead]:
        return read(TlsPage, self._told("GET", "/v5/tls", {"vmId": ref})).rules

    def tls_add(self, body: dict[str, JsonValue]) -> None:
        self.http.answer(Call("POST", "/v5/tls", Deadlines(CALL_SECONDS), body=body))

    def tls_delete(self, rule: str) -> None:
        self._gone(f"/v5/tls/{segment(rule)}")

    def _page(self, path: str, query: Mapping[str, str], before: int) -> JsonValue:
        return self._told("GET", path, {**query, "limit": str(PAGE_SIZE), "offset": str(before)})

    def _gone(self, path: str) -> None:
        try:
            self.http.answer(Call("DELETE", path, Deadlines(CALL_SECONDS)))
        except NotFound:
            return

    def _told(
        self, method: str, path: str, query: Mapping[str, str] | None = None, *, body: JsonValue = None
    ) -> JsonValue:
        return self.http.json(Call(method, path, Deadlines(CALL_SECONDS), query=query or {}, body=body))


def _at(ref: str) -> str:
    return f"/v5/vms/{segment(ref)}"


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """By its code where that says more than the status; None leaves it to the shared table."""
    if not isinstance(body, dict) or not isinstance(body.get("code"), str):
        return None
    code, message = str(body["code"])[:100], body.get("message")
    details: dict[str, str | int] = {"status": status, "reason": code}
    if isinstance(message, str) and status not in {401, 403} and call.hide(message):
        details["provider_message"] = call.hide(message)
    if status != 401 and any(word in code.upper() for word in _FULL):
        return InsufficientCapacity("Freestyle's plan or service has no room for it.", settled=True, **details)
    row = status_row(status, STATUSES)
    return refused(row, mutates=call.changes, lost=call.lost, **details)
