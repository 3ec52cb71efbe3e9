"""Commands in a Boat machine: started apart from the call, and read by byte offsets until they have ended.

So a command may outlive a connection: a reader who lost his comes back to the byte where he was. A start is never sent
again, for Boat may have begun it whatever it answered; our own script holds the time limit.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from pydantic import JsonValue, ValidationError

from differently_core.errors import BackendError, DifferentlyError, ExecUnconfirmed, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ...http import Call, Deadlines
from ...http.answers import BadAnswer, parse_json
from ...parts import in_parts
from .api import Api, at
from .wire import FrameRead, StartedRead, read

START_SECONDS: Final = 90.0
"""Boat holds a command for up to a minute until the machine is ready."""
SILENCE_SECONDS: Final = 40.0
"""A heartbeat comes every 15 seconds."""
CUTS_MAX: Final = 3
"""Connections lost in a row, without a byte between them."""
PAUSE_SECONDS: Final = 1.0
PART_BYTES: Final = 3 * 1024 * 1024
"""Of a file in one request, which takes 5 MiB."""
FILE_SECONDS: Final = 120.0
SMALL_SECONDS: Final = 60.0
STREAM_BYTES_MAX: Final = 1 << 34


class BoatShell:
    """A `Shell` in one machine, and files under absolute paths of its home or `/tmp`."""

    def __init__(self, api: Api, ref: str, clock: Clock) -> None:
        self._api = api
        self._path = at(ref)
        self._clock = clock

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        process = self._started(f"/bin/sh -c {shlex.quote(script)} </dev/null")
        yield self._followed(process, self._clock.monotonic() + seconds)

    def _started(self, line: str) -> int:
        call = Call(
            "POST", f"{self._path}/commands", Deadlines(START_SECONDS), body={"command": line, "detached": True},
            lost=ExecUnconfirmed,
        )  # fmt: skip
        answer = self._api.http.answer(call)
        try:
            return read(StartedRead, parse_json(answer.body)).process_id
        except (BadAnswer, ProviderUnavailable):
            pass
        raise ExecUnconfirmed("Boat did not say which process the command became.")

    def _followed(self, process: int, ends: float) -> Iterator[bytes]:
        """Its standard output to the end; a connection that broke is opened again where the last whole line was."""
        offset = cuts = 0
        while (left := ends - self._clock.monotonic()) > 0:
            try:
                for frame in self._frames(process, offset, left):
                    match frame.type:
                        case "stdout":
                            cuts = 0
                            data = frame.data.encode()
                            offset = offset + len(data) if frame.next_offset is None else frame.next_offset
                            yield data
                        case "exit":
                            return
                        case "reconnect":
                            break
                        case "error":
                            raise ProviderUnavailable("Boat cannot follow the command.")
                        case _:
                            pass
                else:
                    cuts += 1
            except ExecUnconfirmed:
                raise
            except BackendError:
                cuts += 1
            except DifferentlyError:
                break
            if cuts >= CUTS_MAX:
                break
            if cuts:
                self._clock.sleep(PAUSE_SECONDS)
        raise ExecUnconfirmed("The command's end was not seen.")

    def _frames(self, process: int, offset: int, left: float) -> Iterator[FrameRead]:
        call = Call(
            "GET", f"{self._path}/commands/{process}/stream", Deadlines(left, read=SILENCE_SECONDS),
            query={"stdoutOffset": str(offset), "stderrOffset": "0"}, accept="application/x-ndjson",
            answer_bytes_max=STREAM_BYTES_MAX,
        )  # fmt: skip
        with self._api.http.stream(call) as answer:
            for line in answer.lines():
                if line.strip():
                    yield _frame(line, offset)

    def put(self, path: str, data: bytes) -> None:
        body: JsonValue = {"path": path, "content": base64.b64encode(data).decode(), "encoding": "base64"}
        self._api.http.answer(Call("PUT", f"{self._path}/files", Deadlines(FILE_SECONDS), body=body))

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        """The first part in its place; each other one beside it, and put to it by a command."""
        target, beside = shlex.quote(path), shlex.quote(f"{path}.part")
        for number, part in enumerate(in_parts(data, PART_BYTES)):
            if number == 0:
                self.put(path, part)
                continue
            self.put(f"{path}.part", part)
            with self.open(f"cat {beside} >> {target} && rm -f {beside} && echo joined", SMALL_SECONDS) as told:
                if b"".join(told).strip() != b"joined":
                    raise ProviderUnavailable("The sandbox did not store the file; the old one is untouched.")


def _frame(line: bytes, offset: int) -> FrameRead:
    frame: FrameRead | None = None
    with suppress(ValueError, ValidationError, RecursionError):  # the text of each quotes the line
        frame = FrameRead.model_validate(json.loads(line))
    if frame is None:
        raise ExecUnconfirmed("Boat's stream holds a line that is none of its frames.")
    if frame.type == "attached" and frame.stdout_offset not in {None, offset}:
        raise ExecUnconfirmed("Boat has replaced the command's output; what came before is lost.")
    return frame
