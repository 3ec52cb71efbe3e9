"""Morph's API: each call sent once, and its refusals told as our errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import DifferentlyError, InsufficientCapacity, NotFound
from differently_core.runtime.clock import Clock

from ...http import STATUSES, Call, Deadlines, Http, segment
from ...http.failures import refused, status_row
from ...numbered import every_numbered
from .config import MorphConfig
from .wire import KEY_INSTALLATION, InstancePage, InstanceRead, SnapshotRead, Snapshots, read

CALL_SECONDS: Final = 30.0
PAGE_SIZE: Final = 50
STOP: Final = "stop"


class Api:
    def __init__(self, config: MorphConfig, api_key: str, clock: Clock, untold: Collection[str] = ()) -> None:
        """`untold` is in no message."""
        self.http = Http(
            config.api(), clock, headers={"authorization": f"Bearer {api_key}"}, secrets=[api_key, *untold],
            rules=config.rules(), explain=explain,
        )  # fmt: skip

    # Instances.

    def create(self, snapshot: str, metadata: dict[str, JsonValue], ttl_seconds: int, seconds: float) -> InstanceRead:
        body: JsonValue = {"metadata": metadata, "ttl_seconds": ttl_seconds, "ttl_action": STOP}
        call = Call("POST", "/instance", Deadlines(seconds), query={"snapshot_id": snapshot}, body=body)
        return read(InstanceRead, self.http.json(call))

    def instance(self, ref: str) -> InstanceRead:
        return read(InstanceRead, self._told("GET", _at(ref)))

    def of_installation(self, installation: str) -> list[InstanceRead]:
        def page(number: int, _: int) -> tuple[list[InstanceRead], int]:
            query = {
                "page": str(number), "limit": str(PAGE_SIZE), f"metadata[{KEY_INSTALLATION}]": installation
            }  # fmt: skip
            told = read(InstancePage, self._told("GET", "/instance/list", query))
            return told.instances, told.total

        found = every_numbered(page, lambda seen: seen.id)
        return [seen for seen in found if seen.owner.installation == installation and seen.owner.sandbox]

    def owned(self, owner: Owner) -> list[InstanceRead]:
        """What carries the owner on itself, oldest first."""
        found = [seen for seen in self.of_installation(owner.installation) if seen.owner == owner]
        return sorted(found, key=lambda seen: (seen.created, seen.id))

    def look(self) -> None:
        """The cheapest call that needs the credential."""
        self._told("GET", "/instance/list", {"page": "1", "limit": "1"})

    def delete(self, ref: str) -> None:
        """Missing is success."""
        self._gone(_at(ref))

    def set_ttl(self, ref: str, seconds: int) -> None:
        """Counted from now."""
        self._done(f"{_at(ref)}/ttl", {"ttl_seconds": seconds, "ttl_action": STOP})

    def pause(self, ref: str, seconds: float) -> None:
        self._done(f"{_at(ref)}/pause", {}, seconds)

    def resume(self, ref: str, seconds: float) -> None:
        self._done(f"{_at(ref)}/resume", {}, seconds)

    # Ports.

    def expose(self, ref: str, name: str, port: int) -> None:
        self._done(f"{_at(ref)}/http", {"name": name, "port": port})

    def close_port(self, ref: str, name: str) -> None:
        self._gone(f"{_at(ref)}/http/{segment(name)}")

    # Snapshots.

    def snapshot(self, ref: str, digest: str, metadata: dict[str, JsonValue], seconds: float) -> SnapshotRead:
        body: JsonValue = {"metadata": metadata}
        call = Call("POST", f"{_at(ref)}/snapshot", Deadlines(seconds), query={"digest": digest}, body=body)
        return read(SnapshotRead, self.http.json(call))

    def snapshot_get(self, ref: str) -> SnapshotRead:
        return read(SnapshotRead, self._told("GET", f"/snapshot/{segment(ref)}"))

    def snapshots(self, query: Mapping[str, str]) -> list[SnapshotRead]:
        return read(Snapshots, self._told("GET", "/snapshot", query)).data

    def snapshot_delete(self, ref: str) -> None:
        self._gone(f"/snapshot/{segment(ref)}")

    def _gone(self, path: str) -> None:
        try:
            self.http.answer(Call("DELETE", path, Deadlines(CALL_SECONDS)))
        except NotFound:
            return

    def _done(self, path: str, body: dict[str, JsonValue], seconds: float = CALL_SECONDS) -> None:
        self.http.answer(Call("POST", path, Deadlines(seconds), body=body))

    def _told(self, method: str, path: str, query: Mapping[str, str] | None = None) -> JsonValue:
        return self.http.json(Call(method, path, Deadlines(CALL_SECONDS), query=query or {}))


def _at(ref: str) -> str:
    return f"/instance/{segment(ref)}"


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """By the status, with the code of newer routes beside it; None leaves it to the shared table."""
    if not isinstance(body, dict) or "detail" not in body:
        return None
    details: dict[str, str | int] = {"status": status}
    code, told = body.get("error_code"), body["detail"]
    if isinstance(code, str):
        details["reason"] = code[:100]
    if isinstance(told, str) and status not in {401, 403} and call.hide(told):
        details["provider_message"] = call.hide(told)
    if status == 402:
        return InsufficientCapacity("Morph's plan has no room for it.", settled=True, **details)
    row = status_row(status, STATUSES)
    return refused(row, mutates=call.changes, lost=call.lost, **details)
