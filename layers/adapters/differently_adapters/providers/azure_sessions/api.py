"""The session pool's API: each call sent once, and its refusals told as our errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeVar

from pydantic import JsonValue

from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    NotFound,
    ProviderUnavailable,
)
from differently_core.runtime.clock import Clock

from ...http import Call, Deadlines, Http, segment
from ...pages import Page, every_item
from .config import AzureSessionsConfig
from .tokens import Tokens
from .wire import ExecutionRead, SessionRead, SessionsRead, read

CALL_SECONDS: Final = 30.0
SPARE_SECONDS: Final = 10.0
EXECUTION_SECONDS_MAX: Final = 220
"""Azure ends a synchronous execution then."""
LOOK_SECONDS: Final = 1.0
READINGS_MAX: Final = 5
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
EXECUTIONS: Final = "/executions"
T = TypeVar("T")


class Api:
    def __init__(self, config: AzureSessionsConfig, secret: str, clock: Clock, untold: Collection[str] = ()) -> None:
        self._version = config.api_version
        self._clock = clock
        self._place = config.sessions()
        self._tokens = Tokens(config, secret, clock, untold)

    def session(self, name: str) -> SessionRead:
        return read(SessionRead, self._call(lambda http: http.json(self._get("/session", identifier=name))))

    def sessions(self) -> list[SessionRead]:
        """Everybody's of the session pool: there is no filter.

        Pages are cut by number from live data, so one that ends meanwhile lets another slip over the edge of a page
        that was read already. A list of several pages therefore counts when two readings find the same.
        """
        before: set[str] = set()
        for _ in range(READINGS_MAX):
            pages, found = self._reading()
            names = {seen.identifier for seen in found}
            if pages == 1 or names == before:
                return found
            before = names
        raise ProviderUnavailable("Azure's list of sessions did not come out whole.", settled=True)

    def _reading(self) -> tuple[int, list[SessionRead]]:
        """How many pages were read, and what stands on them."""
        pages = 0

        def page(cursor: str | None) -> Page[SessionRead]:
            nonlocal pages
            pages += 1
            told = read(
                SessionsRead, self._call(lambda http: http.json(self._get("/listSessions", skip=cursor or "0")))
            )
            return Page(told.sessions, told.next_skip)

        found = every_item(page, lambda seen: seen.identifier)
        return pages, found

    def look(self) -> None:
        """The cheapest call that needs the credential and the session pool."""
        read(SessionsRead, self._call(lambda http: http.json(self._get("/listSessions", skip="0"))))

    def delete(self, name: str) -> None:
        """Missing is success."""
        call = Call("DELETE", "/session", Deadlines(CALL_SECONDS), query=self._query(identifier=name))
        try:
            self._call(lambda http: http.answer(call))
        except NotFound:
            return

    def execute(self, name: str, script: str, seconds: int) -> str:
        """Run a shell script in the session, which is made if it is not there. What it printed on its output."""
        limit = min(EXECUTION_SECONDS_MAX, seconds)
        body: JsonValue = {
            "codeInputType": "Inline", "executionType": "Synchronous", "timeoutInSeconds": limit,
            "command": ["/bin/sh", "-c", script],
        }  # fmt: skip
        call = Call(
            "POST", EXECUTIONS, Deadlines(limit + SPARE_SECONDS), query=self._query(identifier=name), body=body,
            lost=ExecUnconfirmed, answer_bytes_max=ANSWER_BYTES_MAX, error_inside=_none,
        )  # fmt: skip
        told = read(ExecutionRead, self._call(lambda http: http.json(call)))
        ends = self._clock.monotonic() + limit + SPARE_SECONDS
        while not told.is_over:
            if not told.id or self._clock.monotonic() >= ends:
                raise ExecUnconfirmed("The command's end was not seen in time.")
            self._clock.sleep(LOOK_SECONDS)
            told = self._looked(name, told)
        return (told.result.stdout if told.result else None) or ""

    def _looked(self, name: str, told: ExecutionRead) -> ExecutionRead:
        look = self._get(f"{EXECUTIONS}/{segment(told.id)}", identifier=name)
        try:
            return read(ExecutionRead, self._call(lambda http: http.json(look)))
        except (NotFound, InvalidRequest):
            pass
        except BackendError:
            return told
        raise ExecUnconfirmed("Azure no longer has the command's result.")

    def close(self) -> None:
        self._tokens.http.close()

    def _get(self, path: str, **query: str) -> Call:
        return Call("GET", path, Deadlines(CALL_SECONDS), query=self._query(**query), answer_bytes_max=ANSWER_BYTES_MAX)

    def _query(self, **query: str) -> dict[str, str]:
        return {"api-version": self._version, **query}

    def _call(self, ask: Callable[[Http], T]) -> T:
        """By the token that is in force; one that is rejected is not used again."""
        token = self._tokens.current()
        http = self._tokens.http.at(self._place, {"authorization": f"Bearer {token}"}, explain=explain, secrets=[token])
        try:
            return ask(http)
        except ProviderUnavailable as error:
            if error.details.get("status") == 401:
                self._tokens.forget(token)
            raise


def _none(body: JsonValue) -> None:
    """An execution that failed tells so in its status, and has an error beside it that is no failure of the call."""


def explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """What Azure means where its status alone says too little; None leaves it to the shared table.

    Nothing of what it says of a command is repeated: it may quote it.
    """
    if status == 429:
        return InsufficientCapacity("The session pool has no session left.", status=status)
    if not call.path.startswith(EXECUTIONS):
        return None
    match status:
        case 401 | 403:
            return ProviderUnavailable("Azure says that our token was rejected.", settled=True, status=status)
        case 404:
            return NotFound("The session pool does not exist, or the session is gone.", status=status)
        case 400 | 422:
            return InvalidRequest("Azure refused the command as wrong.", status=status)
        case _:
            return ExecUnconfirmed("Azure gave up on the command; its end was not seen.", status=status)
