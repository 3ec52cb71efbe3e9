"""Commands in a Freestyle VM: one call that answers when the command has ended, or says where its result will lie.

A command that outlives a few seconds becomes a background request. Its result is kept by Freestyle for about ten
minutes, so a look whose answer was lost is repeated, and the command never is.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pydantic import JsonValue

from differently_core.errors import BackendError, DifferentlyError, ExecUnconfirmed, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ... import env_file
from ...http import Answer, Call, Deadlines, segment
from ...http.answers import BadAnswer, parse_json
from .api import CALL_SECONDS, Api
from .wire import RanRead, read

BACKGROUND: Final = "x-freestyle-background-request-id"
AFTER: Final = "x-freestyle-background-after-secs"
AFTER_SECONDS: Final = 20
POLL_SECONDS: Final = 2.0
PART_BYTES: Final = 524_288
"""Of a file stored through a command's input, which takes 1 MiB in base64."""
ANSWER_BYTES_MAX: Final = 32 * 1024 * 1024
SMALL_SECONDS: Final = 30.0


class FreestyleShell:
    """A `Shell` in one VM. Every command of a tenant's has the environment that the sandbox was made with."""

    def __init__(self, api: Api, ref: str, clock: Clock, user: str | None) -> None:
        self._api = api
        self._ref = ref
        self._clock = clock
        self._user = user

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        ran = self.run(env_file.PREAMBLE + script, seconds)
        if ran.status_code is None:
            raise ExecUnconfirmed("Freestyle ended the command at its own time limit.")
        yield iter([ran.stdout.encode()])

    def put(self, path: str, data: bytes) -> None:
        quoted = shlex.quote(path)
        for start in range(0, len(data), PART_BYTES) or [0]:
            part = data[start : start + PART_BYTES]
            ran = self.run(f"umask 077; cat {'>>' if start else '>'} {quoted}", SMALL_SECONDS, part)
            if ran.status_code != 0:
                raise ProviderUnavailable("The sandbox did not store what a command needs.", settled=True)

    def run(self, line: str, seconds: float, stdin: bytes = b"", user: str | None = None) -> RanRead:
        """One shell line, run once. `ExecUnconfirmed` when it may have begun and its end was not seen."""
        ends = self._clock.monotonic() + seconds + CALL_SECONDS
        body: dict[str, JsonValue] = {"command": line, "timeoutMs": int(seconds * 1000)}
        if stdin:
            body["stdin"] = base64.b64encode(stdin).decode()
        if user or self._user:
            body["linuxUser"] = user or self._user
        call = Call(
            "POST", f"/v5/vms/{segment(self._ref)}/exec-await", Deadlines(AFTER_SECONDS + CALL_SECONDS), body=body,
            headers={AFTER: str(AFTER_SECONDS)}, lost=ExecUnconfirmed, answer_bytes_max=ANSWER_BYTES_MAX,
        )  # fmt: skip
        answer = self._api.http.answer(call)
        while answer.status == 202:
            answer = self._later(answer, ends)
        return self._understood(answer)

    def _later(self, answer: Answer, ends: float) -> Answer:
        """The next look at a command that goes on; a look that failed on the way is repeated."""
        request = answer.headers.get(BACKGROUND, "")
        if not request or self._clock.monotonic() >= ends:
            raise ExecUnconfirmed("The command's end was not seen in time.")
        self._clock.sleep(POLL_SECONDS)
        call = Call(
            "GET", f"/v5/background-requests/{segment(request)}", Deadlines(CALL_SECONDS),
            answer_bytes_max=ANSWER_BYTES_MAX,
        )  # fmt: skip
        try:
            return self._api.http.answer(call)
        except BackendError:
            return answer
        except DifferentlyError:
            pass
        raise ExecUnconfirmed("Freestyle no longer has the command's result.")

    def _understood(self, answer: Answer) -> RanRead:
        try:
            return read(RanRead, parse_json(answer.body))
        except (BadAnswer, ProviderUnavailable):
            pass
        raise ExecUnconfirmed("Freestyle's answer to the command cannot be read.")


def store_env(shell: FreestyleShell, env: Mapping[str, str]) -> None:
    """In place of one that came with a snapshot."""
    if shell.run(env_file.STORE, SMALL_SECONDS, env_file.text_of(env)).status_code != 0:
        raise ProviderUnavailable("The sandbox's environment could not be stored.")
