"""Jobs: commands in the background, for longer than a connection is kept, with output that can be read again."""

from __future__ import annotations

import base64
import uuid
from collections.abc import AsyncIterator, Mapping

from .._request import at, request
from ..commands import JOB_SECONDS_MAX, Command, Event, Exit, Output, Result, Text, collected, exec_body
from ..errors import ExecUnconfirmed
from ..models import Job as JobView
from .transport import AsyncTransport

FIRST_LOOK_SECONDS = 0.2
LOOK_SECONDS_MAX = 3.0
PIECE_BYTES_MAX = 1_048_576
TIMED_OUT = 124


class AsyncJobs:
    """The jobs of one sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def start(
        self, command: Command, *, id: str | None = None, cwd: str | None = None,
        env: Mapping[str, str] | None = None, stdin: str | bytes | None = None,
        timeout_seconds: int = JOB_SECONDS_MAX,
    ) -> AsyncJob:  # fmt: skip
        """Start one; it is ended after `timeout_seconds`. The id makes a repeat name the first job."""
        body = exec_body(command, env=env, cwd=cwd, stdin=stdin, timeout_seconds=timeout_seconds)
        body["id"] = id or f"job-{uuid.uuid4().hex}"
        path = at("/v1/sandboxes/{}/jobs", self._sandbox)
        return self._job(await self._transport.document(request("POST", path, body=body)))

    async def get(self, id: str) -> AsyncJob:
        path = at("/v1/sandboxes/{}/jobs/{}", self._sandbox, id)
        return self._job(await self._transport.document(request("GET", path)))

    def _job(self, found: Mapping[str, object]) -> AsyncJob:
        return AsyncJob(self._transport, self._sandbox, JobView.from_dict(found))


class AsyncJob:
    """One job, as last seen; `refresh` looks again."""

    def __init__(self, transport: AsyncTransport, sandbox: str, info: JobView) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self.info = info

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, state={self.state!r})"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def state(self) -> str:
        """`running`, `exited`, `stopped`, `timed_out` or `lost`."""
        return self.info.state

    @property
    def exit_code(self) -> int | None:
        return self.info.exit_code

    async def refresh(self) -> AsyncJob:
        self.info = JobView.from_dict(await self._transport.document(request("GET", self._path())))
        return self

    async def stop(self) -> AsyncJob:
        """End its process group. One that has ended stays as it ended."""
        self.info = JobView.from_dict(await self._transport.document(request("DELETE", self._path())))
        return self

    async def wait(self) -> AsyncJob:
        """Until it has ended, however long that takes."""
        seconds = FIRST_LOOK_SECONDS
        while (await self.refresh()).state == "running":
            await self._transport._pause(seconds)
            seconds = min(LOOK_SECONDS_MAX, seconds * 1.5)
        return self

    async def events(self) -> AsyncIterator[Event]:
        """Its output from the beginning, followed until it ends; the last event is its end."""
        text, offsets = Text(), {"stdout": 0, "stderr": 0}
        seconds = FIRST_LOOK_SECONDS
        while offsets:
            quiet = True
            for stream in list(offsets):
                data, offsets[stream], ended = await self._piece(stream, offsets[stream])
                if data:
                    quiet = False
                    yield text.output(stream, data)
                elif ended:
                    del offsets[stream]
            if quiet and offsets:
                await self._transport._pause(seconds)
            seconds = min(LOOK_SECONDS_MAX, seconds * 1.5) if quiet else FIRST_LOOK_SECONDS
        yield self._end((await self.wait()).info)

    async def result(self) -> Result:
        """Its whole output and exit code, once it has ended."""
        outputs = {"stdout": bytearray(), "stderr": bytearray()}
        end = Exit(0)
        async for event in self.events():
            if isinstance(event, Output):
                outputs[event.stream] += event.data
            else:
                end = event
        return collected(outputs, end)

    async def _piece(self, stream: str, offset: int) -> tuple[bytes, int, bool]:
        query = {"stream": stream, "offset": offset, "limit": PIECE_BYTES_MAX, "encoding": "base64"}
        found = await self._transport.document(request("GET", self._path("/output"), query=query))
        return base64.b64decode(found["data"]), int(found["next"]), bool(found["ended"])

    def _end(self, info: JobView) -> Exit:
        """A job that was lost has no end that anybody saw."""
        if info.exit_code is None and info.state in ("lost", "exited"):
            raise ExecUnconfirmed(f"The end of job {info.id} was not seen; it was not repeated.")
        timed_out = info.state == "timed_out"
        code = info.exit_code if info.exit_code is not None else TIMED_OUT if timed_out else 128 + 15
        return Exit(code, timed_out=timed_out)

    def _path(self, tail: str = "") -> str:
        return at("/v1/sandboxes/{}/jobs/{}", self._sandbox, self.id) + tail
