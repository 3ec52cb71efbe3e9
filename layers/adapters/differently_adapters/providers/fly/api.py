"""The Machines API: each call sent once, except one that was refused for its pace, and its refusals as our errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

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
from .config import FlyConfig
from .wire import GONE, KEY_INSTALLATION, KEY_SANDBOX, ExecRead, MachineRead, oldest_first, read

CALL_SECONDS: Final = 30.0
LIST_BYTES_MAX: Final = 64 * 1024 * 1024
"""A list is one answer, however long."""
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
SPARE_SECONDS: Final = 10.0
PACE_SECONDS: Final = 1.0
PACE_SECONDS_MAX: Final = 3.0
"""Fly takes about a call a second; being refused for that is usual, and worth one wait."""
T = TypeVar("T")


class Api:
    def __init__(self, config: FlyConfig, token: str, clock: Clock) -> None:
        self._machines = f"/apps/{segment(config.app)}/machines"
        self._clock = clock
        sent = token if token.startswith("FlyV1 ") else f"Bearer {token}"
        self.http = Http(
            config.api(), clock, headers={"authorization": sent}, secrets=[token, token.removeprefix("FlyV1 ")],
            rules=config.rules(), explain=explain,
        )  # fmt: skip

    # Machines.

    def create(self, body: JsonValue, seconds: float) -> MachineRead:
        call = Call("POST", self._machines, Deadlines(seconds), body=body)
        return read(MachineRead, self._paced(lambda: self.http.json(call)))

    def machine(self, ref: str) -> MachineRead:
        """`NotFound` also for one that Fly still tells of and that is gone."""
        seen = read(
            MachineRead, self._paced(lambda: self.http.json(Call("GET", self._at(ref), Deadlines(CALL_SECONDS))))
        )
        if seen.state in GONE:
            raise NotFound("The machine is gone.")
        return seen

    def owned(self, owner: Owner) -> list[MachineRead]:
        """What carries the owner on itself: the oldest that is not on its way out first."""
        wanted = {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}
        return oldest_first([seen for seen in self._labelled(wanted) if seen.owner == owner])

    def of_installation(self, installation: str) -> list[MachineRead]:
        found = self._labelled({KEY_INSTALLATION: installation})
        return [seen for seen in found if seen.owner.installation == installation and seen.owner.sandbox]

    def _labelled(self, wanted: Mapping[str, str]) -> list[MachineRead]:
        query = {f"metadata.{key}": value for key, value in wanted.items()}
        call = Call("GET", self._machines, Deadlines(CALL_SECONDS), query=query, answer_bytes_max=LIST_BYTES_MAX)
        found = read(list[MachineRead], self._paced(lambda: self.http.json(call)))
        return [seen for seen in found if seen.state not in GONE]

    def look(self) -> None:
        """The cheapest call that needs the credential: a filter that nothing passes."""
        query = {f"metadata.{KEY_INSTALLATION}": "none"}
        call = Call("GET", self._machines, Deadlines(10.0), query=query, answer_bytes_max=LIST_BYTES_MAX)
        self._paced(lambda: self.http.json(call))

    def delete(self, ref: str) -> None:
        """Missing is success."""
        call = Call("DELETE", self._at(ref), Deadlines(CALL_SECONDS), query={"force": "true"})
        try:
            self._paced(lambda: self.http.answer(call))
        except NotFound:
            return

    def stop(self, ref: str) -> None:
        self._move(ref, "stop")

    def start(self, ref: str) -> None:
        self._move(ref, "start")

    def _move(self, ref: str, what: str) -> None:
        call = Call("POST", f"{self._at(ref)}/{what}", Deadlines(CALL_SECONDS), body={})
        self._paced(lambda: self.http.answer(call))

    def exec(self, ref: str, command: list[str], stdin: str, seconds: int) -> str:
        """What the command printed on its standard output."""
        body: JsonValue = {"command": [*command], "stdin": stdin, "timeout": seconds}
        call = Call(
            "POST", f"{self._at(ref)}/exec", Deadlines(seconds + SPARE_SECONDS), body=body, lost=ExecUnconfirmed,
            answer_bytes_max=ANSWER_BYTES_MAX,
        )  # fmt: skip
        return read(ExecRead, self._paced(lambda: self.http.json(call))).stdout or ""

    def _at(self, ref: str) -> str:
        return f"{self._machines}/{segment(ref)}"

    def _paced(self, call: Callable[[], T]) -> T:
        """Once more, if Fly refused for the pace alone: then nothing has happened."""
        try:
            return call()
        except InsufficientCapacity as error:
            if error.details.get("reason") != "rate_limited":
                raise
            asked = error.details.get("retry_after_seconds", PACE_SECONDS)
        self._clock.sleep(min(PACE_SECONDS_MAX, float(asked) if isinstance(asked, int | float) else PACE_SECONDS))
        return call()


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What Fly means where its status alone says too little; None leaves it to the shared table."""
    told = body if isinstance(body, dict) else {}
    message = f"{told.get('error', '')} {told.get('message', '')}".lower()
    if status == 429:
        return InsufficientCapacity("Fly was asked too often.", reason="rate_limited", status=status)
    if told.get("status") == "insufficient_capacity" or "insufficient resources" in message or "capacity" in message:
        return InsufficientCapacity("Fly has no room now.", reason="capacity", status=status)
    if call.path.endswith("/exec"):
        return _of_command(status)
    if "already" in message and "name" in message:
        return InvalidState("The name is taken in the Fly app.", reason="name_taken", status=status)
    if status in {408, 412}:
        return InvalidState("The machine is in another's hands, or on its way.", status=status)
    return None


def _of_command(status: int) -> DifferentlyError:
    """Nothing of their text is repeated: it may quote the command."""
    match status:
        case 401 | 403:
            return ProviderUnavailable("Fly says that our token was rejected.", settled=True, status=status)
        case 404:
            return NotFound("The machine is gone.", status=status)
        case 409 | 412:
            return InvalidState("The machine does not run.", status=status)
        case 400 | 422:
            return InvalidRequest("Fly refused the command as wrong.", status=status)
        case _:
            return ExecUnconfirmed("Fly gave up on the command; its end was not seen.", status=status)
