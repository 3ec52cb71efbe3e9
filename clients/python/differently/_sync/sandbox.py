"""A sandbox as an object: run commands in it, move files, open ports, put it to rest, keep it, end it."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._bodies import create_body
from .._failure import ConfigurationError, DifferentlyError, SandboxEnded, WaitTimeout
from .._request import SILENCE_SECONDS, at, given, request
from ..commands import (
    BUFFERED_SECONDS_MAX,
    STREAM_SECONDS_MAX,
    Command,
    Event,
    Exit,
    Lines,
    Output,
    Result,
    collected,
    exec_body,
    result_of,
)
from ..errors import UnsupportedOperation
from ..models import QueueEntry, SandboxView
from ..progress import ENDED, STATUSES, Progress, ended_message
from .files import Files
from .inputs import staged
from .jobs import Jobs
from .paging import items
from .ports import Ports
from .transport import Transport

if TYPE_CHECKING:
    from .client import Client
    from .snapshots import Snapshot

LOOK_SECONDS = 10
"""How long one wait for progress is held: as old as the place in the queue may be."""
WAIT_SECONDS_MAX = 840
QUEUE_LOOKS_MAX = 200
"""Entries of the queue that are looked through for a place."""
OnProgress = Callable[[Progress], None]


class Sandbox:
    """One sandbox, as last seen in `info`. In a `with` block, one that was made here is deleted at the end."""

    def __init__(self, client: Client, info: SandboxView, *, made_here: bool = False) -> None:
        self._client = client
        self._transport: Transport = client._transport
        self._made_here = made_here
        self._owns_client = False
        self.info = info
        self.files = Files(self._transport, info.id)
        self.jobs = Jobs(self._transport, info.id)
        self.ports = Ports(self._transport, info.id)

    # Where it comes from and how it goes

    @classmethod
    def create(cls, *, client: Client | None = None, **options: Any) -> Sandbox:
        """Make one and wait until it runs; see `client.sandboxes.create` for what may be asked for.

        Without a client, one is made from the environment, a login, or the `make run` of this folder.
        """
        if client is not None:
            return client.sandboxes.create(**options)
        return cls._with_own_client(lambda own: own.sandboxes.create(**options))

    @classmethod
    def get(cls, id: str, *, client: Client | None = None) -> Sandbox:
        """One that exists, by its id. A `with` block does not delete it."""
        if client is not None:
            return client.sandboxes.get(id)
        return cls._with_own_client(lambda own: own.sandboxes.get(id))

    @classmethod
    def _with_own_client(cls, get: Callable[[Client], Sandbox]) -> Sandbox:
        from .client import Client

        own = Client()
        try:
            found = get(own)
        except BaseException:
            own.close()
            raise
        found._owns_client = True
        return found

    def close(self) -> None:
        """Let go of the connection. The sandbox itself goes on; `delete` ends it."""
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        try:
            if self._made_here:
                self.delete()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, status={self.status!r})"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> str:
        """As last seen; `refresh` looks again."""
        return self.info.status

    def refresh(self) -> Sandbox:
        return self._seen(self._transport.document(request("GET", self._path())))

    def delete(self) -> None:
        """Accepted in every state and final; repeating it is success."""
        self._transport.document(request("DELETE", self._path()))

    # Commands

    def run(
        self, command: Command, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None, timeout_seconds: int = 60, check: bool = False,
    ) -> Result:  # fmt: skip
        """Run a command and give its result. One that may take long runs as a job behind this call.

        At its timeout (at most 8,100 s) it is ended with exit code 124. With `check`, an exit code other than 0 raises
        CommandFailed. It is never sent twice: when its end was not seen, that is ExecUnconfirmed or ConnectionFailed.
        """
        with staged(self.files, command, cwd, stdin) as (words, folder, text):
            options: dict[str, Any] = {"cwd": folder, "env": env, "stdin": text, "timeout_seconds": timeout_seconds}
            if timeout_seconds > BUFFERED_SECONDS_MAX:
                result = self._collected(self._stream(words, options))
            else:
                asked = request(
                    "POST", self._path("/exec"), body=exec_body(words, **options), repeat="never",
                    silence_seconds=timeout_seconds + SILENCE_SECONDS,
                )  # fmt: skip
                result = result_of(self._transport.document(asked))
        return result.checked() if check else result

    def stream(
        self, command: Command, *, cwd: str | None = None, env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None, timeout_seconds: int = 60,
    ) -> Iterator[Event]:  # fmt: skip
        """The output of a command while it is written, and as the last event its Exit.

        Nothing but the command's own timeout limits how long it takes. Leaving the loop does not end the command.
        """
        with staged(self.files, command, cwd, stdin) as (words, folder, text):
            options = {"cwd": folder, "env": env, "stdin": text, "timeout_seconds": timeout_seconds}
            for event in self._stream(words, options):
                yield event

    def _stream(self, command: Command, options: dict[str, Any]) -> Iterator[Event]:
        if options["timeout_seconds"] > BUFFERED_SECONDS_MAX:
            try:
                job = self.jobs.start(command, **options)
            except UnsupportedOperation:
                if options["timeout_seconds"] > STREAM_SECONDS_MAX:
                    raise
            else:
                for event in job.events():
                    yield event
                return
        asked = request(
            "POST", self._path("/exec"), query={"stream": True}, body=exec_body(command, **options),
            repeat="never", silence_seconds=SILENCE_SECONDS,
        )  # fmt: skip
        lines = Lines()
        with self._transport.opened(asked) as answer:
            for chunk in answer.chunks:
                for event in lines.events(chunk):
                    yield event
        lines.close()

    def _collected(self, events: Iterator[Event]) -> Result:
        outputs = {"stdout": bytearray(), "stderr": bytearray()}
        end = Exit(0)
        for event in events:
            if isinstance(event, Output):
                outputs[event.stream] += event.data
            else:
                end = event
        return collected(outputs, end)

    # Life

    def wait(
        self, status: str | Sequence[str] = "running", *, timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Sandbox:  # fmt: skip
        """Until it is in (one of) the given status; SandboxEnded when it cannot get there any more.

        `on_progress` is told each change, and every few seconds its place in the queue.
        """
        wanted = [status] if isinstance(status, str) else list(status)
        began = time.monotonic()
        while True:
            left = None if timeout_seconds is None else timeout_seconds - (time.monotonic() - began)
            self._wait_once(wanted, on_progress is not None, left)
            if self.status in wanted:
                break
            if self.status in ENDED and not set(wanted) & set(ENDED):
                raise SandboxEnded(ended_message(self.info), self.info)
            if self.status in ("terminated", "failed"):
                raise SandboxEnded(ended_message(self.info), self.info)
            if left is not None and left <= 0:
                told = " or ".join(wanted)
                raise WaitTimeout(f"{self.id} is {self.status}, not {told}, after {timeout_seconds:g} s.", self.info)
            if on_progress is not None:
                on_progress(Progress(self.info, time.monotonic() - began, self._place()))
        if on_progress is not None:
            on_progress(Progress(self.info, time.monotonic() - began))
        return self

    def _wait_once(self, wanted: list[str], is_watched: bool, left: float | None) -> None:
        """One call: held until the wanted status, when watched until any other than now."""
        seconds = LOOK_SECONDS if is_watched else WAIT_SECONDS_MAX
        if left is not None:
            seconds = max(0, min(seconds, int(left + 0.999)))
        ends = [name for name in STATUSES if name in wanted or (is_watched and name != self.status)]
        query = {"for": ends or wanted, "timeoutSeconds": seconds}
        asked = request("GET", self._path("/wait"), query=query, silence_seconds=SILENCE_SECONDS)
        self._seen(self._transport.document(asked))

    def _place(self) -> QueueEntry | None:
        if self.status != "queued":
            return None
        # It is only told along the way.
        with suppress(DifferentlyError):
            for entry in items(self._transport, "/v1/queue", QueueEntry, {"limit": 100}, QUEUE_LOOKS_MAX):
                if entry.sandbox == self.id:
                    return entry
        return None

    def stop(self, **wait: Any) -> Sandbox:
        """Keep the disk and end what runs; waits until it is stopped, unless `wait=False`."""
        return self._move("stop", "stopped", **wait)

    def start(self, **wait: Any) -> Sandbox:
        """Run a stopped one again. It is admitted like a new one, so it may wait in the queue."""
        return self._move("start", "running", **wait)

    def pause(self, **wait: Any) -> Sandbox:
        """Keep memory and disk; waits until it is paused, unless `wait=False`."""
        return self._move("pause", "paused", **wait)

    def resume(self, **wait: Any) -> Sandbox:
        """Go on where it was paused. It is admitted like a new one, so it may wait in the queue."""
        return self._move("resume", "running", **wait)

    def _move(
        self, kind: str, status: str, *, wait: bool = True, timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Sandbox:  # fmt: skip
        self._seen(self._transport.document(request("POST", self._path(f"/{kind}"))))
        if not wait or self.status == status:
            return self
        # A pause or stop that fails leaves it running, with the reason.
        awaited = [status] if status == "running" else [status, "running"]
        self.wait(awaited, timeout_seconds=timeout_seconds, on_progress=on_progress)
        if self.status != status:
            raise SandboxEnded(ended_message(self.info), self.info)
        return self

    def keepalive(self) -> Sandbox:
        """Count as use, for use that the server does not see; wakes one that was put to rest for want of use."""
        return self._seen(self._transport.document(request("POST", self._path("/keepalive"))))

    def update(
        self, *, ttl_seconds: int | None = None, idle_timeout_seconds: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Sandbox:  # fmt: skip
        """Change what is given. A lifetime counts from now; labels are replaced as a whole."""
        body = given(ttl_seconds=ttl_seconds, idle_timeout_seconds=idle_timeout_seconds,
                     labels=dict(labels) if labels is not None else None)  # fmt: skip
        if not body:
            raise ConfigurationError("Nothing to change was given: ttl_seconds, idle_timeout_seconds or labels.")
        return self._seen(self._transport.document(request("PATCH", self._path(), body=body)))

    # Copies

    def snapshot(self, name: str | None = None, **options: Any) -> Snapshot:
        """Keep a copy that outlives it; see `client.snapshots.create`."""
        return self._client.snapshots.create(self.id, name, **options)

    def fork(
        self, *, kind: str | None = None, wait: bool = True, wait_seconds: float | None = None,
        on_progress: OnProgress | None = None, idempotency_key: str | None = None, **options: Any,
    ) -> Sandbox:  # fmt: skip
        """A new sandbox that starts from what this one is now, on the same pool. `kind="memory"` takes processes along.

        Options are those of a create that a fork has: size, env, secrets, labels, egress and times.
        """
        asked = request(
            "POST", self._path("/fork"), body=create_body(kind=kind, **options),
            idempotency_key=idempotency_key or uuid.uuid4().hex,
        )  # fmt: skip
        made = Sandbox(
            self._client, SandboxView.from_dict(self._transport.document(asked)), made_here=True
        )  # fmt: skip
        return made.ready(wait_seconds, on_progress) if wait else made

    def ready(self, seconds: float | None = None, on_progress: OnProgress | None = None) -> Sandbox:
        """Wait for a new one. Whoever gives up on it, or is interrupted, leaves nothing behind."""
        try:
            return self.wait("running", timeout_seconds=seconds, on_progress=on_progress)
        except SandboxEnded:
            raise
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Its lifetime ends it where this does not."""
        with suppress(DifferentlyError):
            self.delete()

    def _seen(self, found: Mapping[str, Any]) -> Sandbox:
        self.info = SandboxView.from_dict(found)
        return self

    def _path(self, tail: str = "") -> str:
        return at("/v1/sandboxes/{}", self.info.id) + tail


class Sandboxes:
    """Make, find and list sandboxes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._transport: Transport = client._transport

    def create(
        self, *, project: str | None = None, profile: str | None = None, template: str | None = None,
        image: str | None = None, snapshot: str | None = None, cpu: float | None = None,
        memory_mib: int | None = None, disk_gib: int | None = None, env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None,
        capabilities: Sequence[str] | None = None, pools: Sequence[str] | None = None,
        regions: Sequence[str] | None = None, preferred_pools: Sequence[str] | None = None,
        ttl_seconds: int | None = None, max_run_seconds: int | None = None,
        idle_timeout_seconds: int | None = None, queue_timeout_seconds: int | None = None,
        priority: int | None = None, egress: Mapping[str, Sequence[str]] | None = None,
        preemptible: bool | None = None, classification: str | None = None, more: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None, wait: bool = True, wait_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> Sandbox:  # fmt: skip
        """Make one and wait until it runs. Everything has a default; what each means stands in docs/reference/api.md.

        `secrets` leads from a variable to the name of a secret; `more` is sent as it is, for fields of newer servers.
        The key makes it safe to send again when an answer was lost, which happens by itself; give your own to find
        the same sandbox from another process. One that does not run after `wait_seconds` is deleted.
        """
        body = create_body(
            project=project, profile=profile, template=template, image=image, snapshot=snapshot, cpu=cpu,
            memory_mib=memory_mib, disk_gib=disk_gib, env=env, secrets=secrets, labels=labels,
            capabilities=capabilities, pools=pools, regions=regions, preferred_pools=preferred_pools,
            ttl_seconds=ttl_seconds, max_run_seconds=max_run_seconds, idle_timeout_seconds=idle_timeout_seconds,
            queue_timeout_seconds=queue_timeout_seconds, priority=priority, egress=egress, preemptible=preemptible,
            classification=classification, more=more,
        )  # fmt: skip
        asked = request("POST", "/v1/sandboxes", body=body, idempotency_key=idempotency_key or uuid.uuid4().hex)
        made = Sandbox(
            self._client, SandboxView.from_dict(self._transport.document(asked)), made_here=True
        )  # fmt: skip
        return made.ready(wait_seconds, on_progress) if wait else made

    def get(self, id: str) -> Sandbox:
        """One that exists, or that ended within the last 30 days."""
        found = self._transport.document(request("GET", at("/v1/sandboxes/{}", id)))
        return Sandbox(self._client, SandboxView.from_dict(found))

    def list(
        self, *, status: Sequence[str] = (), labels: Mapping[str, str] | None = None, ended: bool = False,
        idempotency_key: str | None = None, project: str | None = None, at_most: int | None = None,
    ) -> Iterator[Sandbox]:  # fmt: skip
        """Newest first, page after page as they are walked."""
        query = {
            "status": list_of(status), "label": [f"{key}={value}" for key, value in (labels or {}).items()],
            "ended": ended, "idempotencyKey": idempotency_key, "projectId": project, "limit": page_of(at_most),
        }  # fmt: skip
        for info in items(self._transport, "/v1/sandboxes", SandboxView, query, at_most):
            yield Sandbox(self._client, info)


def list_of(names: Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else [*names]


def page_of(at_most: int | None) -> int:
    """As many as are wanted, up to what one page may hold."""
    return 200 if at_most is None else max(1, min(200, at_most))
